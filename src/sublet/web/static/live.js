// Events as they happen. One stream for the whole page; after a break it goes on where it stopped, and nothing is missed.

import { Failure, get, open } from "./api.js";

const KEPT = 2000;
const SILENT_MS = 40_000; // the daemon says that it is alive every 15 s
const HIDDEN_MS = 20_000;
const PAUSES_MS = [300, 700, 1500, 2500];

export const live = { events: [], cursor: 0, state: "connecting", failure: null };
const readers = new Set();
const watchers = new Set();
let running = null;

export function onEvents(reader) { readers.add(reader); return () => readers.delete(reader); }
export function onState(watcher) { watchers.add(watcher); return () => watchers.delete(watcher); }

function become(state, failure = null) {
  if (live.state === state) return;
  const back = state === "live" && live.state === "lost";
  live.state = state;
  live.failure = failure;
  for (const watcher of watchers) watcher(state, back);
}

function take(found) {
  const fresh = found.filter((event) => event.seq > live.cursor);
  if (!fresh.length) return;
  live.cursor = fresh[fresh.length - 1].seq;
  live.events.push(...fresh);
  if (live.events.length > KEPT) live.events.splice(0, live.events.length - KEPT);
  for (const reader of readers) reader(fresh);
}

async function follow(signal) {
  if (!live.cursor) {
    const page = await get("/api/events", signal);
    live.cursor = 0;
    take(page.events);
    live.cursor = page.cursor;
  }
  const response = await open(`/api/events/stream?cursor=${live.cursor}`, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  live.failure = null;
  become("live");
  let rest = "", timer = null;
  const left = () => { if (document.hidden) reader.cancel().catch(() => {}); };
  document.addEventListener("visibilitychange", left);
  try {
    for (;;) {
      const silence = new Promise((_, fail) => { timer = setTimeout(() => fail(new Error("silent")), SILENT_MS); });
      const { value, done } = await Promise.race([reader.read(), silence]);
      clearTimeout(timer);
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      const found = [];
      for (const block of blocks) {
        const data = block.split("\n").find((line) => line.startsWith("data: "));
        if (!data || block.includes("event: error\n")) continue;
        found.push(JSON.parse(data.slice(6)));
      }
      take(found);
    }
  } finally {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", left);
    reader.cancel().catch(() => {});
  }
}

async function run(signal) {
  let tries = 0;
  while (!signal.aborted) {
    const begun = performance.now();
    try {
      if (document.hidden) {
        // A browser opens few connections to one server: a page that nobody looks at asks now and then instead.
        if (live.cursor) take((await get("/api/events?limit=200", signal)).events);
        become("live");
        await pause(HIDDEN_MS, signal);
        continue;
      }
      await follow(signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Failure && error.status === 401) return;
      live.failure = error;
    }
    if (signal.aborted || document.hidden) continue;
    if (performance.now() - begun > 10_000) tries = 0;
    if (tries > 0 || live.failure) become("lost", live.failure);
    await pause(PAUSES_MS[Math.min(tries, PAUSES_MS.length - 1)], signal);
    tries += 1;
  }
}

function pause(milliseconds, signal) {
  return new Promise((done) => {
    const end = () => { clearTimeout(timer); document.removeEventListener("visibilitychange", end); removeEventListener("online", end); signal.removeEventListener("abort", end); done(); };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
    document.addEventListener("visibilitychange", end); addEventListener("online", end);
  });
}

export function start() {
  stop();
  running = new AbortController();
  run(running.signal);
}

export function stop() {
  running?.abort();
  running = null;
  live.events = [];
  live.cursor = 0;
  live.state = "connecting";
}
