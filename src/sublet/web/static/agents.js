// The daemon itself: its agents, the sessions, and the rules that hold.

import { get } from "./api.js";
import { fill, h, reconcile } from "./dom.js";
import { empty, facts, moment, pill, plural, span } from "./format.js";
import { heading, keepFresh } from "./view.js";

export function agents(main) {
  const problem = h("div"), about = h("div"), list = h("div", { class: "cards" }), none = h("div"), sessions = h("div", { class: "rows" }), noSessions = h("p", { class: "quiet-text", hidden: true }, "None yet. One begins with: sublet ask"), rules = h("div", { class: "rules" }), source = h("p", { class: "quiet-text" });
  main.append(heading("Agents"), problem, list, none, h("section", {}, h("h2", {}, "Sessions"), sessions, noSessions), h("section", {}, h("h2", {}, "Rules in force"), source, rules), h("section", {}, h("h2", {}, "This daemon"), about));
  const fresh = keepFresh(problem, async (signal) => {
    const [status, found, talks, policy] = await Promise.all([get("/api/status", signal), get("/api/agents", signal), get("/api/sessions?limit=50", signal), get("/api/policy", signal)]);
    fill(about, status.remarks.map((remark) => h("p", { class: "condition" }, remark)), facts([["Node", h("code", {}, status.node_id)], ["Key", h("code", { class: "digest" }, status.fingerprint)], ["Version", status.version], ["Up", span(status.uptime_seconds)], ["A2A", h("code", {}, status.a2a_url)], ["SFTP", h("code", {}, status.sftp)], ["Peers", String(status.peers)], ["Slots in use", `${status.assignments_active} of ${status.slots}`], ["Sandbox", status.sandbox], ["Limits held by", status.limits], ["Lost mounts", status.mount_guard], ["Configuration", h("span", { class: "path" }, status.config_dir)]]));
    reconcile(list, found.agents, (one) => one.agentId, agent);
    fill(none, found.agents.length ? null : empty("This daemon offers no agent.", "It can lend, and ask agents elsewhere. To offer one, name it in agent.json:", h("pre", { class: "command" }, "sublet up --agent agent.json")));
    reconcile(sessions, talks, (one) => one.fingerSessionId, talk);
    noSessions.hidden = talks.length > 0;
    fill(source, `${plural(policy.rules.length, "rule")}, from ${policy.source || "the built-in defaults"}. What denies stands, whatever its layer; what no rule allows is denied.`);
    reconcile(rules, policy.rules, (one) => `${one.layer} ${one.id}`, rule);
  }, (events) => events.some((event) => /^(session|dispatch|config|route)/.test(event.kind)));
  return fresh.stop;
}

function agent(one) {
  return h("div", { class: "card" }, h("div", { class: "card-head" }, h("span", { class: `pill ${one.ok ? "good" : "bad"}` }, one.ok ? "well" : "not well"), h("strong", { class: "card-title" }, one.agentId), one.running ? h("span", { class: "pill live" }, `${one.running} running`) : null),
    one.description ? h("p", {}, one.description) : null, one.detail ? h("p", { class: one.ok ? "quiet-text" : "error-line" }, one.detail) : null,
    h("div", { class: "card-facts" }, h("span", {}, one.role), h("span", {}, one.provider), one.skills.map((skill) => h("span", { class: "tag" }, skill)), one.denied ? h("span", { class: "error-line" }, one.denied) : null));
}

function talk(one) {
  return h("div", { class: "row flat" }, pill(one.busy ? "running" : one.status), h("span", { class: "said" }, one.title || one.fingerSessionId, one.question ? h("span", { class: "tag" }, "asks: ", one.question) : null),
    h("span", { class: "whose" }, one.lastRoute ? `${one.lastRoute.decision.replaceAll("_", " ")} ${one.lastRoute.target}` : ""), moment(one.updatedAt));
}

function rule(one) {
  return h("details", { class: "row" }, h("summary", {}, h("span", { class: `pill ${one.effect === "allow" ? "good" : one.effect === "deny" ? "bad" : "wait"}` }, one.effect), h("span", { class: "said" }, h("code", {}, one.id)), h("span", { class: "whose" }, one.layer, ", ", one.origin)),
    facts([["Who", `${one.kinds.join(", ")} ${one.name}${one.role === "*" ? "" : ` as ${one.role}`}`], ["May", one.actions.join(", ")], ["On", one.resource], ["If", one.conditions.join("; ")], ["Because", one.reason]]));
}
