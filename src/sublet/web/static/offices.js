// Offices: who may be in each, who is, how many calls of each are under way; and sending somebody away.

import { get, remove } from "./api.js";
import { fill, h, reconcile } from "./dom.js";
import { empty, moment, plural } from "./format.js";
import { heading, keepFresh, say, sure } from "./view.js";

const POLL_MS = 3_000; // who comes, goes or calls is no event
const HIDDEN_MS = 60_000;

export function offices(main) {
  const problem = h("div"), list = h("div", { class: "cards" }), none = h("div"), where = h("p", { class: "quiet-text" });
  main.append(heading("Offices", where), problem, list, none);
  const fresh = keepFresh(problem, async (signal) => {
    const found = await get("/api/offices", signal);
    fill(where, found.url ? ["Clients connect to ", h("code", {}, found.url)] : null);
    reconcile(list, found.offices, (one) => one.office_id, (one, old) => office(one, old, fresh));
    fill(none, found.offices.length ? null : empty("There is no office yet.", "In an office one Agent uses the tools of many Computers:", h("pre", { class: "command" }, "sublet office create desk\nsublet office token desk --role computer --name laptop")));
  }, (events) => events.some((event) => event.kind.startsWith("office_")), () => (document.hidden ? HIDDEN_MS : POLL_MS));
  return fresh.stop;
}

// A card and its rows stay as long as their office and member do, so that a button keeps its focus and its question.
function office(one, old, fresh) {
  const card = old ?? h("article", { class: "card" }, h("div", { class: "card-head" }), h("div", { class: "rows members" }), h("div"));
  const [head, rows, none] = card.children;
  const here = one.members.filter((member) => member.connected), calls = one.members.reduce((sum, member) => sum + (member.role === "agent" ? member.calls : 0), 0);
  fill(head, h("strong", { class: "card-title" }, one.name), h("span", { class: "quiet-text" }, `${here.length} of ${plural(one.members.length, "member")} here, ${plural(calls, "call")} under way`), h("span", { class: "card-when" }, "opened ", moment(one.created_at)));
  reconcile(rows, one.members, (member) => `${member.role} ${member.name}`, (member, row) => seat(one, member, row, fresh));
  fill(none, h("div", { class: "card-facts" }, one.members.length ? null : h("span", {}, "Nobody has a token yet."), h("code", { class: "digest" }, one.office_id)));
  return card;
}

function seat(one, member, old, fresh) {
  const row = old ?? h("div", { class: "row flat" }, h("span", { class: "pill" }), h("span", { class: "said" }, h("b", {}, member.name), h("span", { class: "tag" }, member.role)), h("span", { class: "whose" }),
    sure("Kick", "Really send away?", async () => {
      await remove(`/api/offices/${encodeURIComponent(one.office_id)}/members/${encodeURIComponent(member.name)}`);
      say(`${member.name} is sent away, and its token is useless.`);
      fresh.refresh();
    }, "danger small"));
  const [state, , calls, kick] = row.children;
  state.className = `pill ${member.calls ? "live" : member.connected ? "good" : ""}`;
  fill(state, member.connected ? "here" : "away");
  fill(calls, member.calls ? plural(member.calls, "call") : null);
  kick.setAttribute("aria-description", `${member.name}, of ${one.name}`);
  return row;
}
