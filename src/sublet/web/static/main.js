// Logging in, the frame around the views, and which view is shown.

import { Failure, get, logIn, logOut, session } from "./api.js";
import { fill, h } from "./dom.js";
import * as live from "./live.js";
import { agents } from "./agents.js";
import { approvals } from "./approvals.js";
import { denials } from "./denials.js";
import { events } from "./events.js";
import { lease, leases } from "./leases.js";
import { nodes } from "./nodes.js";
import { offices } from "./offices.js";
import { forgetOthers } from "./pictures.js";
import { room, rooms } from "./rooms.js";

const VIEWS = [
  ["leases", "Leases", leases, lease],
  ["rooms", "Rooms", rooms, room],
  ["events", "Events", events],
  ["approvals", "Approvals", approvals],
  ["denials", "Denials", denials],
  ["agents", "Agents", agents],
  ["nodes", "Nodes", nodes],
  ["offices", "Offices", offices],
];
const app = document.getElementById("app");
let frame = null;
let leave = () => {};

async function begin() {
  const secret = linkSecret();
  if (secret) {
    // Out of the address before anything else, so that it stays in no history.
    history.replaceState(null, "", "/#/leases");
    try {
      await logIn(secret);
      return enter();
    } catch (failure) {
      return session.key ? enter(failure) : outside(failure);
    }
  }
  return session.key ? enter() : outside();
}

function linkSecret() {
  return location.hash.startsWith("#login=") ? location.hash.slice(7) : "";
}

function outside(failure = null) {
  live.stop();
  leave();
  leave = () => {};
  clearTimeout(badgeTimer);
  frame = null;
  forgetOthers();
  document.title = "Log in – Sublet";
  fill(app, h("main", { id: "content", class: "outside" },
    h("img", { src: "/favicon.svg", alt: "", width: 48, height: 48 }),
    h("h1", {}, failure ? "This link does not log in" : "Log in to Sublet"),
    failure ? h("p", { class: "problem", role: "alert" }, failure.message, ". ") : null,
    h("p", {}, "Run this in a terminal and open the link that it prints. It is good once."),
    h("pre", { class: "command" }, "sublet web"),
    h("p", { class: "quiet-text" }, "Everything here stays on this machine.")));
}

session.ended = () => {
  if (!frame) return;
  session.key = "";
  outside();
};
session.elsewhere = () => {
  if (session.key && !frame) enter();
  if (!session.key && frame) outside();
};

async function enter(failure = null) {
  try {
    const status = await get("/api/status");
    build(status);
    if (failure) say(`${failure.message}. You were logged in already.`, "bad");
    live.start();
    show();
  } catch (error) {
    if (error instanceof Failure && error.status === 401) { session.key = ""; outside(failure); }
    else unreachable(error);
  }
}

let retry = null;
function unreachable(error) {
  fill(app, h("main", { id: "content", class: "outside" }, h("h1", {}, "The daemon does not answer"),
    h("p", {}, error.message, ". ", error.hint ?? ""), h("pre", { class: "command" }, "sublet up --detach"),
    h("button", { class: "primary", onclick: () => enter() }, "Try again")));
  clearTimeout(retry);
  retry = setTimeout(() => { if (!frame && session.key) enter(); }, 3000);
}

function build(status) {
  const links = VIEWS.map(([id, name]) => h("a", { href: `#/${id}`, "data-view": id }, name, id === "approvals" ? h("span", { class: "badge", hidden: true }) : null));
  frame = {
    links,
    state: h("span", { class: "connection", role: "status" }),
    banner: h("div", { class: "banner", role: "alert", hidden: true }),
    main: h("main", { id: "content", tabindex: "-1" }),
    toast: h("div", { class: "toast", role: "status", hidden: true }),
  };
  fill(app,
    h("header", { class: "top" },
      h("div", { class: "top-inner" },
        h("a", { class: "brand", href: "#/leases" }, h("img", { src: "/favicon.svg", alt: "", width: 26, height: 26 }), h("span", {}, "Sublet")),
        h("span", { class: "node", title: `${status.fingerprint}\nversion ${status.version}` }, status.node_id),
        frame.state,
        h("button", { class: "plain-button", onclick: out }, "Log out")),
      h("nav", { "aria-label": "Views" }, links)),
    frame.banner, frame.main, frame.toast);
  connection(live.live.state, false);
  refreshBadge();
}

async function out() {
  live.stop();
  leave();
  leave = () => {};
  await logOut().catch(() => {});
  outside();
}

let toastTimer = null;
function say(words, tone = "good") {
  if (!frame) return;
  fill(frame.toast, words);
  frame.toast.className = `toast ${tone}`;
  frame.toast.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { if (frame) frame.toast.hidden = true; }, 6000);
}
addEventListener("sublet:say", (event) => say(event.detail.words, event.detail.tone));

const STATES = { live: "live", lost: "not connected", connecting: "connecting" };
function connection(state, back) {
  if (!frame) return;
  fill(frame.state, h("span", { class: `dot ${state}` }), STATES[state]);
  frame.banner.hidden = state !== "lost";
  const told = live.live.failure;
  if (state === "lost") fill(frame.banner, told?.status ? `Nothing comes live: ${told.message}. ${told.hint}` : "The connection to the daemon is lost. What you see may be old; it comes back by itself as soon as the daemon does.");
  if (back) { show(); refreshBadge(); }
}
live.onState(connection);

// How many calls wait for a person, in the navigation and in the title.
let waiting = 0, badgeTimer = null;
async function refreshBadge() {
  try {
    waiting = (await get("/api/approvals")).length;
  } catch { return; }
  if (!frame) return;
  const badge = frame.links.map((link) => link.querySelector(".badge")).find(Boolean);
  badge.hidden = !waiting;
  badge.textContent = String(waiting);
  badge.setAttribute("aria-label", `${waiting} waiting`);
  title();
}
live.onEvents((fresh) => {
  if (!fresh.some((event) => event.kind.startsWith("approval") || event.kind.endsWith("_state") || event.kind === "dispatch_result" || event.kind.startsWith("tool_"))) return;
  clearTimeout(badgeTimer);
  badgeTimer = setTimeout(refreshBadge, 250);
});

function title() {
  const [, name] = VIEWS.find(([id]) => id === current()[0]) ?? VIEWS[0];
  document.title = `${waiting ? `(${waiting}) ` : ""}${name} – Sublet`;
}

function current() {
  const [id, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return [VIEWS.some(([known]) => known === id) ? id : "leases", rest.map((part) => decodeURIComponent(part))];
}

function show() {
  if (!frame) return;
  const [id, [one]] = current();
  leave();
  for (const link of frame.links) {
    if (link.dataset.view === id) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  const [, , all, single] = VIEWS.find(([known]) => known === id);
  const make = one && single ? single : all;
  fill(frame.main);
  leave = make(frame.main, one) ?? (() => {});
  title();
}

addEventListener("hashchange", () => {
  if (linkSecret()) { begin(); return; }
  show();
  frame?.main.focus({ preventScroll: true });
  scrollTo(0, 0);
});

begin();
