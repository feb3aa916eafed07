// One event as a row: when, what kind, what to say of it in one line, and all of it on demand.

import { h } from "./dom.js";
import { moment, plural } from "./format.js";

export const GROUPS = {
  routes: ["route_decided", "ask_human", "session_created", "session_bound", "session_resumed", "session_damaged"],
  tools: ["tool_call", "tool_result", "tool_error"],
  replies: ["dispatch_sent", "dispatch_result", "guardrail_failed", "delegation_output"],
  leases: ["delegation_state", "delegation_condition", "delegation_audit", "delegation_extended", "delegation_follow_up", "delegation_review", "workspace_changed", "assignment_state"],
  governance: ["approval_required", "approval_decided", "grant_issued", "grant_revoked", "policy_rejected", "approver_changed", "config_reloaded", "config_rejected", "pair_link_made", "peer_paired", "peer_moved", "peer_renamed", "peer_removed", "peer_key_changed"],
};
const GROUP_OF = Object.fromEntries(Object.entries(GROUPS).flatMap(([group, kinds]) => kinds.map((kind) => [kind, group])));
const BAD = new Set(["policy_rejected", "guardrail_failed", "tool_error", "peer_key_changed", "session_damaged", "config_rejected"]);
const WAITS = new Set(["ask_human", "approval_required"]);
const SUMMARY_CHARS = 240;

export function groupOf(kind) { return GROUP_OF[kind] ?? "governance"; }

const SAYS = {
  route_decided: (d) => [d.decision, d.target && ["→", d.target], d.reason && `– ${d.reason}`],
  dispatch_sent: (d, k) => ["to", d.module ?? k.agentId],
  dispatch_result: (d) => [d.ok === false ? `failed: ${d.code} ${d.message ?? ""}` : d.summary || "done"],
  tool_call: (d, k) => [d.tool, k.agentId && `by ${k.agentId}`],
  tool_result: (d) => [d.tool, d.exitCode !== undefined && `exit code ${d.exitCode}`],
  tool_error: (d) => [d.tool, d.error ?? d.reason],
  delegation_state: (d) => [d.state, d.code],
  assignment_state: (d) => [d.state, d.code],
  delegation_condition: (d) => (d.condition ? [`${d.condition.kind.replaceAll("_", " ")}:`, d.condition.detail] : ["over"]),
  delegation_audit: (d) => (d.code ? [d.code, d.message] : ["the report is there"]),
  grant_issued: (d, k) => [d.tool, k.agentId && `for ${k.agentId}`, d.maxUses && `${d.maxUses}×`, d.issuedBy && `by ${d.issuedBy}`],
  pair_link_made: (d) => [d.link, d.by && `by ${d.by}`],
  peer_paired: (d) => [d.name, d.node_id, d.link && `by the link ${d.link}`],
  peer_moved: (d) => [d.name, d.a2a_url],
  peer_renamed: (d) => [d.was, "→", d.name],
  delegation_output: (d) => [d.text ?? d.output],
  policy_rejected: (d) => [d.subject, d.action, d.resource, d.rule && `– rule ${d.rule}`, d.layer && `(${d.layer})`],
  approval_required: (d, k) => [d.tool, k.agentId && `for ${k.agentId}`],
  approval_decided: (d) => [d.tool, d.decision, d.by && `by ${d.by}`],
  ask_human: (d) => [d.question],
};

export function summary(event) {
  const said = SAYS[event.kind]?.(event.data, event.keys);
  const words = said?.flat().filter((part) => typeof part === "string" && part).join(" ");
  const all = words || Object.entries(event.data).filter(([, value]) => value !== null && typeof value !== "object").map(([name, value]) => `${name} ${value}`).join(", ");
  const line = all.trim().split("\n");
  const cut = line[0].length > SUMMARY_CHARS ? `${line[0].slice(0, SUMMARY_CHARS)}…` : line[0];
  return line.length > 1 ? `${cut} (and ${plural(line.length - 1, "more line")})` : cut;
}

export function eventRow(event) {
  const tone = BAD.has(event.kind) ? "bad" : WAITS.has(event.kind) ? "wait" : groupOf(event.kind);
  const keys = event.keys;
  const row = h("details", {},
    h("summary", {},
      moment(event.at),
      h("span", { class: `kind ${tone}` }, event.kind.replaceAll("_", " ")),
      h("span", { class: "said" }, event.kind === "delegation_output" ? h("span", { class: "tag theirs", title: "What an agent elsewhere says, which nobody has checked" }, "their words") : null, summary(event)),
      h("span", { class: "whose" }, keys.agentId ?? "")));
  row.addEventListener("toggle", () => {
    if (!row.open || row.children.length > 1) return;
    const about = { seq: event.seq, ...(event.delegation_id ? { delegation: event.delegation_id } : {}), ...Object.fromEntries(Object.entries(keys).filter(([, value]) => value !== null)) };
    row.append(h("div", { class: "event-more" },
      h("dl", { class: "facts" }, Object.entries(about).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, name === "delegation" ? h("a", { href: `#/leases/${encodeURIComponent(value)}` }, value) : String(value))))),
      h("pre", {}, JSON.stringify(event.data, null, 2))));
  });
  return h("li", { "data-seq": String(event.seq), "data-kind": event.kind }, row);
}
