// Leases: what is lent, what is worked on here, and everything about one of them.

import { get, post } from "./api.js";
import { diff } from "./diff.js";
import { fill, h, reconcile } from "./dom.js";
import { eventRow } from "./event_row.js";
import { bytes, countdown, empty, facts, failureBox, moment, pill, plural, timeBar, untrusted } from "./format.js";
import { live, onEvents } from "./live.js";
import { heading, keepFresh, say, sure } from "./view.js";

const POLL_MS = 5000;
const ENDED = new Set(["completed", "error", "cancelled", "expired"]);
const SHOWN_FILES = 200;
const KEPT_ROWS = 150;

const who = (one) => (one.agent ? `${one.peer}/${one.agent}` : one.peer);
const access = (one) => `${one.access_mode === "ro" ? "read only" : "read and write"}${one.result_mode === "staged" ? ", staged" : ""}`;

export function leases(main) {
  const lent = h("div", { class: "cards", "aria-live": "off" }), work = h("div", { class: "cards" });
  const problem = h("div");
  const none = h("div"), noWork = h("div");
  let busy = false;
  main.append(heading("Leases"), problem,
    h("section", {}, h("h2", {}, "Lent to others"), lent, none),
    h("section", {}, h("h2", {}, "Worked on here for others"), work, noWork));
  const fresh = keepFresh(problem, async (signal) => {
    const [delegations, assignments] = await Promise.all([get("/api/delegations?limit=100", signal), get("/api/assignments?limit=100", signal)]);
    reconcile(lent, delegations, (one) => one.delegation_id, leaseCard);
    reconcile(work, assignments, (one) => one.delegation_id, workCard);
    fill(none, delegations.length ? null : empty("Nothing is lent yet.", "Pair with a machine that offers an agent, then lend it a directory:", h("pre", { class: "command" }, "sublet peers add LINK\nsublet delegate DIR --to bob \"run the tests\"")));
    fill(noWork, assignments.length ? null : empty("Nobody has asked for anything yet.", "Others reach the agents of this daemon once you have paired:", h("pre", { class: "command" }, "sublet pair")));
    busy = delegations.some((one) => !ENDED.has(one.state)) || assignments.some((one) => one.state === "active");
  }, (events) => events.some((event) => event.delegation_id && event.kind !== "delegation_output"), () => (busy ? POLL_MS : 0));
  return fresh.stop;
}

function timeLeft(one) {
  if (one.remaining_seconds === null || one.remaining_seconds === undefined || ENDED.has(one.state)) return null;
  return h("span", { class: "time-left" }, timeBar(one.remaining_seconds, one.ttl_seconds), countdown(one.remaining_seconds));
}

function leaseCard(one) {
  const changes = one.audit ? one.audit.counts : null;
  return h("a", { class: "card", href: `#/leases/${encodeURIComponent(one.delegation_id)}` },
    h("div", { class: "card-head" }, pill(one.state), h("strong", { class: "card-title" }, one.description || one.delegation_id), h("span", { class: "card-when" }, moment(one.updated_at))),
    one.condition ? h("p", { class: "condition" }, one.condition.kind.replaceAll("_", " "), ": ", one.condition.detail) : null,
    one.error ? h("p", { class: "error-line" }, h("code", {}, one.error.code), " ", one.error.message) : null,
    h("div", { class: "card-facts" },
      h("span", {}, "to ", h("b", {}, who(one))), h("span", { class: "path" }, one.workspace_dir), h("span", {}, access(one)),
      one.usage.operations ? h("span", {}, `${bytes(one.usage.bytes_read)} read, ${bytes(one.usage.bytes_written)} written, ${plural(one.usage.files_touched, "file")}`) : null,
      changes ? changed(one.audit) : null, one.result?.change_set?.status === "pending" && total(changes) ? h("span", { class: "tag theirs" }, "waits for your review") : null, timeLeft(one)));
}

const total = (counts) => Object.values(counts ?? {}).reduce((sum, count) => sum + count, 0);

const unaudited = (audit) => Math.max(audit.unaudited_count ?? 0, audit.unaudited.length);

function inDirectories(counts) {
  const said = [["added", "made"], ["deleted", "removed"], ["mode", "with another mode"]].filter(([kind]) => counts?.[kind]).map(([kind, word]) => `${counts[kind].toLocaleString("en")} ${word}`);
  return said.length ? `, directories: ${said.join(", ")}` : null;
}

const modeOf = (one) => (one.mode_before && one.mode_after && one.mode_before !== one.mode_after ? ` (${one.mode_before} → ${one.mode_after})` : "");

function changed(audit) {
  const count = total(audit.counts), unseen = unaudited(audit);
  return h("span", {}, count ? [plural(count, "file"), " changed ", h("span", { class: "plus" }, `+${audit.lines_added}`), " ", h("span", { class: "minus" }, `−${audit.lines_deleted}`)] : total(audit.directory_counts) ? "no file changed" : "nothing changed",
    inDirectories(audit.directory_counts), unseen ? h("span", { class: "condition" }, `, ${unseen.toLocaleString("en")} could not be looked at`) : null);
}

function workCard(one) {
  return h("div", { class: "card" },
    h("div", { class: "card-head" }, pill(one.state), h("strong", { class: "card-title" }, one.description || one.delegation_id), h("span", { class: "card-when" }, moment(one.updated_at))),
    one.error ? h("p", { class: "error-line" }, h("code", {}, one.error.code), " ", one.error.message) : null,
    h("div", { class: "card-facts" }, h("span", {}, "for ", h("b", {}, one.peer), h("span", { class: "tag theirs", title: "The title is what they say, which nobody has checked" }, "their words")), h("span", {}, "by ", h("b", {}, one.agent)), h("span", {}, one.access_mode === "ro" ? "read only" : "read and write"),
      one.outcome ? h("span", {}, one.outcome, one.exit_code ? `, exit code ${one.exit_code}` : "") : null,
      one.state === "active" && one.remaining_seconds !== null ? countdown(one.remaining_seconds) : null),
    one.state === "active" || one.state === "pending" ? h("div", { class: "actions" }, sure("Stop", "Really stop it?", async () => { await post(`/api/assignments/${encodeURIComponent(one.delegation_id)}/cancel`); say("The work is stopped, and its lender is told."); }, "danger")) : null);
}

export function lease(main, id) {
  const problem = h("div"), head = h("div"), body = h("div"), auditBox = h("div"), undoBox = h("div", { "aria-live": "polite" }), rows = h("ol", { class: "events small" });
  let view = null, shownFacts = "", shownAudit = "";
  main.append(h("p", { class: "back" }, h("a", { href: "#/leases" }, "← All leases")), problem, head, body,
    h("section", {}, h("h2", {}, "What changed"), undoBox, auditBox),
    h("section", {}, h("h2", {}, "What happened"), rows));
  const path = `/api/delegations/${encodeURIComponent(id)}`;
  const fresh = keepFresh(problem, async (signal) => {
    view = await get(path, signal);
    const facts = JSON.stringify(view, (name, value) => (name === "remaining_seconds" || name === "audit" || name === "cursor" ? undefined : value));
    if (facts !== shownFacts) {
      shownFacts = facts;
      showHead();
      fill(body, details(view));
    }
    const print = JSON.stringify([view.audit, view.result?.change_set, view.audit_error, view.undo, ENDED.has(view.state)]);
    if (print !== shownAudit) {
      shownAudit = print;
      fill(auditBox, audited(view, path));
    }
  }, (events) => events.some((event) => event.delegation_id === id && event.kind !== "delegation_output"), () => (view && !view.settled ? POLL_MS : 0));
  const showHead = () => fill(head, h("div", { class: "view-head lease-head" }, h("div", {}, h("h1", {}, view.description || id), h("p", { class: "quiet-text" }, h("code", {}, id))), h("div", { class: "actions" }, pill(view.state),
    ENDED.has(view.state) ? null : sure("Cancel", "Really cancel?", async () => { await post(`${path}/cancel`); say("The lease is revoked."); fresh.refresh(); }, "danger"),
    view.undo === "possible" ? sure("Undo", "Really take it back?", takeBack, "danger") : null)));
  const takeBack = async () => {
    const report = await post(`${path}/undo`);
    fill(undoBox, takenBack(report));
    say(report.conflicts.length ? `Taken back, but for ${plural(report.conflicts.length, "conflict")}.` : "It is taken back.", report.conflicts.length ? "bad" : "good");
    fresh.refresh();
  };
  const takeRows = (events) => {
    for (const event of events) if (event.delegation_id === id) rows.prepend(eventRow(event));
    while (rows.children.length > KEPT_ROWS) rows.lastChild.remove();
  };
  takeRows(live.events);
  const forget = onEvents(takeRows);
  return () => { fresh.stop(); forget(); };
}

function details(one) {
  const peer = who(one);
  return [
    one.condition ? h("p", { class: "condition" }, one.condition.kind.replaceAll("_", " "), ": ", one.condition.detail) : null,
    one.error ? h("div", { class: "problem" }, h("strong", {}, h("code", {}, one.error.code)), one.error.from_peer ? untrusted(peer, `${one.error.message}\n${one.error.hint}`) : h("p", {}, one.error.message, " ", one.error.hint)) : null,
    facts([
      ["Lent to", peer],
      ["Directory", h("span", { class: "path" }, one.workspace_dir)],
      ["Access", access(one)],
      ["Time", one.remaining_seconds !== null && !ENDED.has(one.state) ? h("span", { class: "time-left" }, timeBar(one.remaining_seconds, one.ttl_seconds), countdown(one.remaining_seconds)) : h("span", {}, "ended ", moment(one.updated_at))],
      ["Read", bytes(one.usage.bytes_read)],
      ["Written", bytes(one.usage.bytes_written)],
      ["Files touched", one.usage.files_touched.toLocaleString("en")],
      ["Calls", one.usage.operations.toLocaleString("en")],
      ["May add", one.quota ? `${bytes(one.quota.max_total_bytes)}, ${plural(one.quota.max_files, "file")}` : null],
      ["Travels by", one.transport],
      ["git", one.git === "hidden" ? null : one.git],
      ["Left out", one.left_out ? plural(one.left_out, "name") : null],
      ["Terms", one.terms?.length ? one.terms.join("; ") : null],
      ["Undo", one.undo === "done" ? "what it wrote is taken back" : null],
      ["Enforced there", one.sandbox_enforced.join(", ")],
      ["Its agent", one.sandbox_profile ? held(one.sandbox_profile) : null],
      ["Begun", moment(one.created_at)],
    ]),
    names("Further directories", one.resources.slice(1).map((resource) => `${resource.name}: ${resource.path} (${resource.access_mode})`)),
    names("Hidden from it", one.hidden),
    names("Shown after all", one.revealed),
    names("Left behind", one.left_behind),
    names("Links and mounts that stay here", one.unmountable),
    names("Writable on request", one.unlocked),
    names(".git stays hidden", one.git_hidden),
    one.cautions.map((caution) => h("p", { class: "condition" }, "In a mount: ", caution)),
    said(one.result) ? untrusted(peer, said(one.result)) : null,
    one.follow_ups.length ? h("ul", { class: "plain-list" }, one.follow_ups.map((said) => h("li", {}, pill(said.state), " ", said.prompt, said.why ? ` (${said.why})` : ""))) : null,
  ];
}

const held = (profile) => [
  profile.cwd_only ? "sees what is lent" : "sees more of that machine",
  profile.allow_network ? "has a network" : "has no network",
  profile.allow_exec ? "starts programs" : "starts no programs",
].join(", ");

const said = (result) => (result ? [result.final_summary, ...result.highlights, result.notes].filter(Boolean).join("\n") : "");

function names(label, list, count = list.length) {
  if (!list.length) return null;
  return h("details", { class: "names" }, h("summary", {}, `${label}: ${count}`), h("ul", {}, list.slice(0, SHOWN_FILES).map((name) => h("li", { class: "path" }, name)), count > SHOWN_FILES ? h("li", {}, `… and ${count - SHOWN_FILES} more`) : null));
}

function audited(view, path) {
  const set = view.result?.change_set;
  if (set) return staged(view, set, path);
  if (view.audit_error) return failureBox(view.audit_error);
  if (!view.audit) return h("p", { class: "quiet-text" }, ENDED.has(view.state) ? "Nothing was lent, so nothing changed." : "The report comes when the lease ends.");
  const audit = view.audit;
  const count = total(audit.counts);
  if (!count && !total(audit.directory_counts) && !audit.refs.length && !(audit.index_marks ?? []).length && !(audit.others_edits ?? []).length && !unaudited(audit)) return h("p", { class: "quiet-text" }, "Nothing changed.");
  return [
    h("p", { class: "totals" }, changed(audit), audit.by_others.length ? h("span", { class: "quiet-text" }, `, ${audit.by_others.length} of them not through this lease`) : null),
    fileTable(audit.files, audit.truncated),
    inDirectory(audit),
    names("Edited by somebody else, too", (audit.others_edits ?? []).map((edit) => `${edit.path}: ${edit.overwritten ? (edit.kept ? `overwritten; kept as ${edit.kept}` : "overwritten, and not kept") : "that edit is in the directory"}`)),
    names("Can't be taken back", audit.not_kept ?? []),
    unread(audit),
    repository(audit),
    count || total(audit.directory_counts) ? diff(() => get(`${path}/audit?patch=true`)) : null,
  ];
}

function inDirectory(audit) {
  const word = { added: "made", deleted: "removed", mode: "mode" };
  return names("Directories", (audit.directories ?? []).map((one) => `${one.path} ${word[one.change]}${modeOf(one)}${one.by === "other" ? ", not through this lease" : ""}`), total(audit.directory_counts));
}

// What the references of a repository hold now; and what a checkout of them would write, or an index kept git from seeing.
function repository(audit) {
  const bring = audit.refs_bring ?? [], marks = audit.index_marks ?? [];
  return [
    names("References", audit.refs.map((ref) => `${ref.name}: ${ref.old ?? "none"} → ${ref.new ?? "none"}`)),
    bring.length ? h("div", { class: "problem" }, h("p", {}, "Commits of these references hold names that were hidden from the agent, or that your tools run: a checkout writes them."), names("A checkout brings", bring)) : null,
    names("Git was kept from seeing changes of", marks),
  ];
}

// What was taken back, and what was not since somebody changed it meanwhile.
function takenBack(report) {
  return [
    h("p", { class: "totals" }, report.undone.length ? `Took back ${plural(report.undone.length, "change")}.` : "There was nothing to take back."),
    names("As before", report.undone),
    report.conflicts.length ? h("div", { class: "problem" }, h("strong", {}, plural(report.conflicts.length, "conflict")), h("p", {}, "These were changed since, so they are left as they are:"),
      h("ul", { class: "plain-list" }, report.conflicts.slice(0, SHOWN_FILES).map((one) => h("li", {}, h("span", { class: "path" }, one.path), ` ${one.reason}`,
        one.yours ? h("div", {}, "yours: ", h("span", { class: "path" }, one.yours)) : null, one.theirs ? h("div", {}, "before: ", h("span", { class: "path" }, one.theirs)) : null)))) : null,
  ];
}

function unread(audit) {
  return names("Could not be read, so may have changed unseen", audit.unaudited_why?.length ? audit.unaudited_why : audit.unaudited, unaudited(audit));
}

function staged(view, set, path) {
  return [
    h("p", { class: "totals" }, pill(set.status), " ", `${plural(set.added + set.changed + set.deleted + set.renamed + set.mode_changed, "file")} `, h("span", { class: "plus" }, `+${set.lines_added}`), " ", h("span", { class: "minus" }, `−${set.lines_deleted}`), inDirectories({ added: set.directories_added, deleted: set.directories_deleted, mode: set.directories_mode_changed }), " in a copy; your directory is as it was until you apply it:"),
    view.audit ? [inDirectory(view.audit), repository(view.audit), unread(view.audit)] : null,
    set.status === "pending" ? h("pre", { class: "command" }, `sublet apply ${view.delegation_id}`) : null,
    ["pending", "partly_applied"].includes(set.status) ? diff(() => get(`${path}/review?patch=true`)) : null,
  ];
}

function fileTable(files, cut) {
  return h("table", { class: "files" }, h("thead", {}, h("tr", {}, h("th", {}, "File"), h("th", {}, "Change"), h("th", { class: "number" }, "Lines"))),
    h("tbody", {}, files.slice(0, SHOWN_FILES).map((file) => h("tr", {}, h("td", { class: "path" }, file.path, modeOf(file), file.by === "other" ? h("span", { class: "tag" }, "not through this lease") : null), h("td", {}, file.change),
      h("td", { class: "number" }, file.lines_added === null ? "binary" : [h("span", { class: "plus" }, `+${file.lines_added}`), " ", h("span", { class: "minus" }, `−${file.lines_deleted}`)])))),
    cut || files.length > SHOWN_FILES ? h("caption", {}, "The list is cut; the counts are not.") : null);
}
