// Nodes of the federation, and the agents of all of them: what each is at, and when it was last heard of.

import { get } from "./api.js";
import { fill, h, reconcile } from "./dom.js";
import { empty, moment, pill, plural } from "./format.js";
import { heading, keepFresh } from "./view.js";

const POLL_MS = 10_000; // a heartbeat is no event
const HIDDEN_MS = 60_000;
const SHOWN = 300;
const STATES = new Set(["node_state", "node_agent", "node_task", "peer_renamed", "peer_removed", "peer_paired", "config_reloaded"]);

export function nodes(main) {
  const problem = h("div"), list = h("div", { class: "cards" }), rows = h("div", { class: "rows" }), none = h("div"), more = h("p", { class: "quiet-text" });
  let found = [];
  const filter = h("input", { type: "search", placeholder: "Filter by address, capability, state", "aria-label": "Filter agents", oninput: () => show() });
  const show = () => {
    const words = filter.value.trim().toLowerCase();
    const fits = found.filter((one) => !words || `${one.address} ${one.status} ${one.runtime_type} ${one.capabilities.join(" ")} ${one.peer ?? ""}`.toLowerCase().includes(words));
    reconcile(rows, fits.slice(0, SHOWN), (one) => one.address, agent);
    fill(none, fits.length ? null : empty(found.length ? "No agent fits these words." : "There is no agent anywhere yet.", found.length ? "" : "This daemon offers those of agent.json, and each paired one tells of its own:", found.length ? null : h("pre", { class: "command" }, "sublet peers add LINK")));
    fill(more, fits.length > SHOWN ? `${plural(fits.length - SHOWN, "more agent")}: filter them, or see sublet agents --everywhere` : null);
  };
  main.append(heading("Nodes"), problem, list, h("section", {}, h("h2", {}, "Agents of all nodes"), h("div", { class: "filters" }, filter), rows, none, more));
  const fresh = keepFresh(problem, async (signal) => {
    const [known, all] = await Promise.all([get("/api/nodes", signal), get("/api/nodes/agents", signal)]);
    reconcile(list, known, (one) => `${one.peer ?? ""} ${one.fingerprint} ${one.node_id ?? ""}`, node);
    found = all;
    show();
  }, (events) => events.some((event) => STATES.has(event.kind)), () => (document.hidden ? HIDDEN_MS : POLL_MS));
  return fresh.stop;
}

function node(one) {
  return h("article", { class: "card node-card" },
    h("div", { class: "card-head" }, pill(one.state), h("strong", { class: "card-title" }, one.node_id ?? "has not said its name yet"), one.state === "here" ? null : heard(one.last_seen)),
    one.why_not ? h("p", { class: "condition" }, one.why_not) : null,
    h("div", { class: "card-facts" },
      one.peer ? h("span", {}, "called ", h("b", {}, one.peer)) : one.state === "here" ? h("span", {}, "this daemon") : null,
      load(one),
      one.namespace ? h("span", {}, "namespace ", h("b", {}, one.namespace)) : null,
      one.trusted ? null : h("span", { class: "tag" }, "no tasks"),
      h("code", { class: "digest" }, one.fingerprint)));
}

// How many of its agents are at work, as words and as a bar.
function load(one) {
  if (!one.agents) return h("span", {}, "no agents");
  return h("span", { class: "time-left" }, `${plural(one.agents, "agent")}, ${one.busy} busy`,
    h("span", { class: "bar", "aria-hidden": "true" }, h("span", { style: { "inline-size": `${Math.min(100, (100 * one.busy) / one.agents)}%` } })));
}

function heard(at) { return at ? h("span", { class: "card-when" }, "heard ", moment(at)) : h("span", { class: "card-when" }, "never heard"); }

function agent(one) {
  return h("div", { class: "row flat wide" }, pill(one.status), h("span", { class: "said" }, h("code", {}, one.address), one.capabilities.map((name) => h("span", { class: "tag" }, name)), one.current_task ? h("span", { class: "tag" }, "at ", one.current_task) : null),
    h("span", { class: "whose" }, one.runtime_type), heard(one.last_seen));
}
