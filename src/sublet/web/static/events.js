// Everything that happens, as it happens, the newest first.

import { fill, h } from "./dom.js";
import { GROUPS, eventRow, groupOf, summary } from "./event_row.js";
import { empty, plural } from "./format.js";
import { live, onEvents } from "./live.js";
import { heading } from "./view.js";

const SHOWN = 400;
const NEAR_TOP = 160;
const NAMES = { routes: "Routes", tools: "Tools", replies: "Replies", leases: "Leases", governance: "Governance" };
const chosen = { groups: new Set(Object.keys(GROUPS)), words: "" };

export function events(main) {
  const list = h("ol", { class: "events", "aria-live": "off" });
  const none = h("div");
  const held = h("button", { class: "held primary", hidden: true, onclick: () => { scrollTo(0, 0); redraw(); } });
  let waiting = 0;
  const wanted = (event) => chosen.groups.has(groupOf(event.kind)) && (!chosen.words || `${event.kind} ${summary(event)} ${JSON.stringify(event.keys)} ${event.delegation_id ?? ""}`.toLowerCase().includes(chosen.words));
  const redraw = () => {
    waiting = 0;
    held.hidden = true;
    const found = live.events.filter(wanted).slice(-SHOWN).reverse();
    list.replaceChildren(...found.map(eventRow));
    tell();
  };
  const tell = () => fill(none, list.children.length ? null : live.events.length
    ? empty("No event fits what you chose.", "Choose more kinds, or take the words out of the filter.")
    : empty("Nothing has happened yet.", "Ask for something, and watch it here:", h("pre", { class: "command" }, "sublet ask \"run the tests\"")));
  const chips = Object.keys(GROUPS).map((group) => {
    const chip = h("button", { class: `chip ${group}`, "aria-pressed": String(chosen.groups.has(group)), onclick: () => {
      if (chosen.groups.has(group)) chosen.groups.delete(group); else chosen.groups.add(group);
      chip.setAttribute("aria-pressed", String(chosen.groups.has(group)));
      redraw();
    } }, NAMES[group]);
    return chip;
  });
  const filter = h("input", { type: "search", placeholder: "Filter by words, agent, id", "aria-label": "Filter", value: chosen.words, oninput: () => { chosen.words = filter.value.trim().toLowerCase(); redraw(); } });
  main.append(heading("Events"), h("div", { class: "filters" }, h("div", { class: "chips", role: "group", "aria-label": "Kinds" }, chips), filter), held, list, none);
  redraw();
  return onEvents((fresh) => {
    const found = fresh.filter(wanted);
    if (!found.length) return;
    // What somebody reads further down stays where it is.
    if (scrollY > NEAR_TOP || list.querySelector("details[open]")) {
      waiting += found.length;
      held.textContent = `Show ${plural(waiting, "new event")}`;
      held.hidden = false;
      return;
    }
    for (const event of found) list.prepend(eventRow(event));
    while (list.children.length > SHOWN) list.lastChild.remove();
    tell();
  });
}
