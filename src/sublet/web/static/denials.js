// What policy has denied or left to a person, with the layer and the rule that decided: from the audit log.

import { get } from "./api.js";
import { fill, h, reconcile } from "./dom.js";
import { empty, failureBox, moment, pill } from "./format.js";
import { heading, keepFresh } from "./view.js";

const PAGE = 50;
const MAX_SHOWN = 1000;

export function denials(main) {
  const problem = h("div"), list = h("div", { class: "cards denials" }), none = h("div"), more = h("div", { class: "diff-more" });
  let shown = [], older = 0;
  const show = () => {
    reconcile(list, shown, (entry) => entry.seq, denial);
    fill(none, shown.length ? null : empty("Nothing was denied.", "Whatever policy refuses appears here, with the rule that decided. To ask beforehand:", h("pre", { class: "command" }, "sublet policy explain --subject agent:NAME --action tool.call --resource shell.exec")));
    fill(more, older && shown.length < MAX_SHOWN ? h("button", { onclick: next }, "Show older ones") : null);
  };
  const next = async () => {
    try {
      const page = await get(`/api/denials?limit=${PAGE}&before=${older}`);
      older = page.cursor;
      shown = [...shown, ...page.entries];
      show();
    } catch (failure) { fill(more, failureBox(failure)); }
  };
  main.append(heading("Denials", h("p", { class: "quiet-text" }, "From the audit log, whose chain ", h("code", {}, "sublet audit verify"), " checks.")), problem, list, none, more);
  const fresh = keepFresh(problem, async (signal) => {
    const page = await get(`/api/denials?limit=${PAGE}`, signal);
    const known = new Set(shown.map((entry) => entry.seq));
    const news = page.entries.filter((entry) => !known.has(entry.seq));
    if (!shown.length) older = page.cursor;
    // More at once than a page holds: begin anew, rather than leave a gap.
    if (shown.length && news.length === PAGE) { shown = page.entries; older = page.cursor; } else shown = [...news, ...shown];
    show();
  }, (events) => events.some((event) => ["policy_rejected", "tool_error", "approval_required", "approval_decided", "dispatch_result"].includes(event.kind)), () => 30_000);
  return fresh.stop;
}

function denial(entry) {
  return h("article", { class: "card denial" },
    h("div", { class: "card-head" }, pill(entry.decision), h("strong", { class: "card-title" }, entry.subject ?? ""), moment(entry.at)),
    h("p", { class: "sentence" }, h("code", {}, entry.action ?? ""), " on ", h("code", { class: "path" }, entry.resource ?? "")),
    entry.reason ? h("p", { class: "reason" }, entry.reason) : null,
    h("div", { class: "card-facts" }, h("span", {}, "layer ", h("b", {}, entry.layer ?? "")), h("span", {}, "rule ", h("b", { class: "rule" }, entry.rule || "none")), entry.role ? h("span", {}, "role ", h("b", {}, entry.role)) : null, h("span", {}, "entry ", String(entry.seq))),
    entry.attributes ? h("details", { class: "names" }, h("summary", {}, "What was looked at"), h("pre", {}, JSON.stringify(entry.attributes, null, 2))) : null);
}
