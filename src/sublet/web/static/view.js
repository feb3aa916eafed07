// What views have in common: to fetch, to fetch again when something happens, and to tell when that fails.

import { Failure } from "./api.js";
import { h, fill } from "./dom.js";
import { failureBox } from "./format.js";
import { onEvents } from "./live.js";

const CALM_MS = 300;

export function say(words, tone = "good") { dispatchEvent(new CustomEvent("sublet:say", { detail: { words, tone } })); }

// Run `load(signal)` now, whenever `wants(events)` says so, and every `every` milliseconds while `every` is not 0.
export function keepFresh(problem, load, wants, every = () => 0) {
  let timer = null, poll = null, busy = false, again = false;
  const ended = new AbortController();
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    clearTimeout(poll);
    try {
      await load(ended.signal);
      fill(problem);
    } catch (failure) {
      if (ended.signal.aborted) return;
      if (!(failure instanceof Failure)) throw failure;
      if (failure.status !== 0) fill(problem, failureBox(failure));
    } finally {
      busy = false;
      if (!ended.signal.aborted) {
        if (again) { again = false; soon(); }
        const pause = every();
        if (pause) poll = setTimeout(() => { refresh(); }, pause);
      }
    }
  };
  const soon = () => { if (timer === null) timer = setTimeout(() => { timer = null; refresh(); }, CALM_MS); };
  const forget = onEvents((fresh) => { if (wants(fresh)) soon(); });
  refresh();
  return { refresh, stop: () => { ended.abort(); clearTimeout(timer); clearTimeout(poll); forget(); } };
}

export function heading(name, ...rest) { return h("div", { class: "view-head" }, h("h1", {}, name), ...rest); }

// A button that asks once more before it acts.
export function sure(label, again, act, kind = "") {
  let timer = null;
  const button = h("button", { class: kind, onclick: async () => {
    if (!button.classList.contains("sure")) {
      button.classList.add("sure");
      button.textContent = again;
      timer = setTimeout(calm, 4000);
      return;
    }
    calm();
    button.disabled = true;
    try { await act(); } catch (failure) { say(`${failure.message}. ${failure.hint ?? ""}`, "bad"); } finally { button.disabled = false; }
  } }, label);
  const calm = () => { clearTimeout(timer); button.classList.remove("sure"); button.textContent = label; };
  return button;
}
