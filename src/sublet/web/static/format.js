// How numbers, times and states are put in words.

import { h } from "./dom.js";

const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const at = UNITS.findIndex(([, size]) => whole >= size);
  if (at < 0) return "0 s";
  const [unit, size] = UNITS[at];
  const rest = UNITS[at + 1];
  const more = rest ? Math.floor((whole % size) / rest[1]) : 0;
  return `${Math.floor(whole / size)} ${unit}${more && whole < 10 * size ? ` ${more} ${rest[0]}` : ""}`;
}

export function bytes(count) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count, at = 0;
  while (Math.abs(value) >= 1024 && at < names.length - 1) { value /= 1024; at += 1; }
  return `${at && Math.abs(value) < 10 ? value.toFixed(1) : Math.round(value)} ${names[at]}`;
}

export function plural(count, one, many = `${one}s`) { return `${count.toLocaleString("en")} ${count === 1 ? one : many}`; }

// A moment, in the reader's own time; with the day where it was not today.
export function moment(at) {
  const date = new Date(at);
  const today = new Date().toDateString() === date.toDateString();
  const time = date.toLocaleTimeString("en-GB");
  const shown = today ? time : `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time.slice(0, 5)}`;
  return h("time", { datetime: at, title: date.toString(), class: "moment" }, shown);
}

// Time that runs down by this browser's own steady clock: what is left when it was asked for is all that is taken over.
const running = new Set();
export function countdown(seconds, say = (left) => (left ? `${span(left)} left` : "over")) {
  const element = h("span", { class: "countdown" });
  const one = { element: new WeakRef(element), until: performance.now() + seconds * 1000, say };
  element.textContent = say(seconds);
  running.add(one);
  return element;
}
export function timeBar(seconds, whole) {
  const bar = h("span", { class: "bar" }, h("span", {}));
  const show = (left) => { bar.firstChild.style.setProperty("inline-size", `${whole ? Math.min(100, (100 * left) / whole) : 0}%`); return null; };
  running.add({ element: new WeakRef(bar), until: performance.now() + seconds * 1000, say: show });
  show(seconds);
  return bar;
}
setInterval(() => {
  for (const one of running) {
    const element = one.element.deref();
    if (!element?.isConnected) { running.delete(one); continue; }
    const shown = one.say(Math.max(0, (one.until - performance.now()) / 1000));
    if (shown !== null && element.textContent !== shown) element.textContent = shown;
  }
}, 1000);

const TONES = {
  running: "live", active: "live", started: "live", usable: "good", completed: "good", approved: "good", done: "good", allow: "good",
  here: "good", reached: "good", silent: "wait", refused: "bad", idle: "good", busy: "live",
  error: "bad", denied: "bad", deny: "bad", revoked: "quiet", failed: "bad", pending: "wait", needs_grant: "wait", paused: "wait",
  invited: "wait", accepted: "wait", created: "wait", cancelled: "quiet", expired: "quiet", withdrawn: "quiet",
};
const WORDS = { needs_grant: "needs a person" };
export function pill(state) {
  return h("span", { class: `pill ${TONES[state] ?? "quiet"}` }, WORDS[state] ?? String(state).replaceAll("_", " "));
}

// Words of somebody else: marked as theirs, and as text alone.
export function untrusted(who, words) {
  return h("figure", { class: "untrusted" }, h("figcaption", {}, `Words of ${who}, which nobody has checked`), h("pre", {}, words));
}

export function empty(title, ...what) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), ...what.map((one) => h("p", {}, one)));
}

export function failureBox(failure) {
  return h("div", { class: "problem", role: "alert" }, h("strong", {}, failure.message ?? String(failure)), failure.hint ? h("p", {}, failure.hint) : null);
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
