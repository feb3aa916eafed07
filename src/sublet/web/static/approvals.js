// Calls that wait for a person: the exact call, and her answer. Approving needs the passphrase of the approver's key.

import { get, post, remove } from "./api.js";
import { fill, h, reconcile } from "./dom.js";
import { countdown, empty, facts, moment, pill, plural, span } from "./format.js";
import { heading, keepFresh, say, sure } from "./view.js";

const LASTS = [[60, "1 minute"], [300, "5 minutes"], [3600, "1 hour"], [28800, "8 hours"]];

export function approvals(main) {
  const problem = h("div"), key = h("div"), pending = h("div", { class: "cards" }), none = h("div");
  const grants = h("div", { class: "rows" }), history = h("div", { class: "rows" });
  const noGrants = h("p", { class: "quiet-text", hidden: true }, "None. An approval makes one for exactly its call; for more than one call: sublet grants create");
  const noHistory = h("p", { class: "quiet-text", hidden: true }, "Nothing was decided yet.");
  let approver = null;
  main.append(heading("Approvals"), problem, key, pending, none,
    h("section", {}, h("h2", {}, "Grants that can be used"), grants, noGrants),
    h("section", {}, h("h2", {}, "Decided before"), history, noHistory));
  const fresh = keepFresh(problem, async (signal) => {
    const [who, open, all, usable] = await Promise.all([get("/api/approver", signal), get("/api/approvals", signal), get("/api/approvals?limit=60&pending=false", signal), get("/api/grants?usable=true", signal)]);
    const complete = await Promise.all(open.map((one) => get(`/api/approvals/${encodeURIComponent(one.id)}`, signal)));
    approver = who;
    fill(key, approver.public_key ? null : h("div", { class: "problem" }, h("strong", {}, "There is no key to approve with."), h("p", {}, "Calls that need approval are refused until there is one. Make it in a terminal, with a passphrase that only you know:"), h("pre", { class: "command" }, "sublet approver init")),
      approver.reset_at ? h("div", { class: "problem" }, h("strong", {}, "The key was thrown away without its passphrase."), h("p", {}, "If that was not you, a program of your user did it. At ", moment(approver.reset_at))) : null);
    reconcile(pending, complete, (one) => one.id, (one) => question(one, Boolean(approver.public_key), fresh));
    fill(none, complete.length ? null : empty("Nothing waits for you.", "Calls that policy leaves to a person appear here, and in the title of this page."));
    reconcile(grants, usable, (one) => one.id, (one) => grant(one, fresh));
    noGrants.hidden = usable.length > 0;
    const decided = all.filter((one) => one.state !== "pending");
    reconcile(history, decided, (one) => one.id, past);
    noHistory.hidden = decided.length > 0;
  }, (events) => events.some((event) => /^(approval|grant|approver|tool_|delegation_state|assignment_state|dispatch_result)/.test(event.kind)), () => 30_000);
  return fresh.stop;
}

function question(one, canApprove, fresh) {
  const passphrase = h("input", { type: "password", autocomplete: "off", required: true, maxlength: 1024, "aria-label": "Passphrase", placeholder: "Passphrase of your key" });
  const lasts = h("select", { "aria-label": "How long it may be used" }, LASTS.map(([seconds, name]) => h("option", { value: String(seconds), selected: seconds === 300 }, `within ${name}`)));
  const uses = h("select", { "aria-label": "How often" }, [1, 2, 5, 20].map((count) => h("option", { value: String(count) }, count === 1 ? "once" : `${count} times`)));
  const approve = h("button", { class: "primary", type: "submit" }, "Approve exactly this call");
  const told = h("p", { class: "form-error", role: "alert" });
  const form = h("form", { class: "decide", onsubmit: async (event) => {
    event.preventDefault();
    approve.disabled = true;
    approve.textContent = "Checking the passphrase…";
    told.textContent = "";
    try {
      await post(`/api/approvals/${encodeURIComponent(one.id)}/approve`, { passphrase: passphrase.value, terms: { ttl_seconds: Number(lasts.value), max_uses: Number(uses.value) } });
      say("Approved; the agent goes on.");
      fresh.refresh();
    } catch (failure) {
      fill(told, `${failure.message}. `, failure.hint ?? "");
    } finally {
      passphrase.value = "";
      approve.disabled = false;
      approve.textContent = "Approve exactly this call";
    }
  } },
    canApprove ? [passphrase, uses, lasts, approve] : null,
    sure("Deny", "Really deny?", async () => { await post(`/api/approvals/${encodeURIComponent(one.id)}/deny`); say("Denied."); fresh.refresh(); }, "danger"));
  return h("article", { class: "card question" },
    h("div", { class: "card-head" }, pill(one.state), h("strong", { class: "card-title" }, one.agent, " wants to call ", h("code", {}, one.tool)), countdown(one.remaining_seconds)),
    one.context.reason ? h("p", { class: "condition" }, one.context.reason) : null,
    h("pre", { class: "call", tabindex: "0", "aria-label": "Arguments" }, spread(one.arguments ?? "")),
    facts([["Asked", moment(one.created_at)], ["Rule", one.context.rule], ["For", one.scope.startsWith("dlg_") ? h("span", { class: "digest path" }, one.scope) : one.scope], ["The agent", one.waits ? "waits for you" : "does not wait any more; it may ask again"], ["Digest", h("code", { class: "digest" }, one.digest)]]),
    form, told);
}

// Set canonical JSON on lines of its own without reading it, so that every character is the one that gets approved.
export function spread(json) {
  let out = "", depth = 0, quoted = false;
  for (let at = 0; at < json.length; at += 1) {
    const char = json[at];
    if (quoted) {
      out += char;
      if (char === "\\") { at += 1; out += json[at] ?? ""; } else if (char === '"') quoted = false;
    } else if (char === '"') { quoted = true; out += char; }
    else if ((char === "{" || char === "[") && !"}]".includes(json[at + 1])) { depth += 1; out += `${char}\n${"  ".repeat(depth)}`; }
    else if ((char === "}" || char === "]") && !"{[".includes(json[at - 1])) { depth -= 1; out += `\n${"  ".repeat(Math.max(0, depth))}${char}`; }
    else if (char === ",") out += `,\n${"  ".repeat(depth)}`;
    else if (char === ":") out += ": ";
    else out += char;
  }
  return out;
}

function past(one) {
  return h("details", { class: "row" }, h("summary", {}, pill(one.state), h("span", { class: "said" }, one.agent, " → ", h("code", {}, one.tool)), h("span", { class: "whose" }, one.decided_by ?? ""), moment(one.decided_at ?? one.created_at)), h("pre", { class: "call" }, one.shown, one.truncated ? " … (cut)" : ""));
}

function grant(one, fresh) {
  return h("div", { class: "row flat" }, pill(one.state), h("span", { class: "said" }, one.agent, " → ", h("code", {}, one.tool), one.widened ? h("span", { class: "tag" }, "any call that fits") : h("span", { class: "tag" }, "one exact call")),
    h("span", { class: "whose" }, `${plural(one.remaining_uses, "use")} of ${one.max_uses}, `, countdown(one.remaining_seconds, (left) => (left ? `${span(left)} left` : "over"))),
    sure("Revoke", "Really?", async () => { await remove(`/api/grants/${encodeURIComponent(one.id)}`); say("Revoked."); fresh.refresh(); }, "danger small"));
}
