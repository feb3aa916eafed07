// News of rooms as they happen: one wait for the whole page, from where the last one ended.

import { Failure, get } from "./api.js";

const WAIT_SECONDS = 20;
const PAUSE_MS = 2000;
const readers = new Set();
let running = null;

// Call `reader()` when something happens in a room ("" for any); returns what ends that.
export function onNews(room, reader) {
  const one = { room, reader };
  readers.add(one);
  if (!running) { running = new AbortController(); follow(running.signal); }
  return () => {
    readers.delete(one);
    if (readers.size) return;
    running?.abort();
    running = null;
  };
}

async function follow(signal) {
  let cursor = 0, caught = false;
  while (!signal.aborted) {
    try {
      if (document.hidden) await shown(signal);
      const page = await get(`/api/room-events?since=${cursor}&wait=${caught ? WAIT_SECONDS : 0}`, signal);
      // Until everything kept from before has been passed over, what a view has read may be old.
      const before = caught;
      caught ||= page.cursor === cursor;
      if (!before && caught) for (const one of readers) one.reader();
      if (before) for (const one of readers) if (page.events.some((event) => !one.room || event.room_id === one.room)) one.reader();
      cursor = page.cursor;
    } catch (failure) {
      if (signal.aborted || (failure instanceof Failure && failure.status === 401)) return;
      await new Promise((done) => { setTimeout(done, PAUSE_MS); });
    }
  }
}

function shown(signal) {
  return new Promise((done) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      done();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look, { once: true });
    look();
  });
}
