// A patch as coloured text, so many lines at a time.

import { fill, h } from "./dom.js";
import { failureBox, plural } from "./format.js";

const AT_ONCE = 1500;
const MAX_LINE = 2000;

// Return a button that becomes the patch; `fetchReport` returns an object with `patch`.
export function diff(fetchReport) {
  const box = h("div", { class: "diff-box" });
  const show = async () => {
    button.disabled = true;
    button.textContent = "Fetching…";
    try {
      const report = await fetchReport();
      fill(box, patch(report.patch ?? "", report.patch_truncated));
    } catch (failure) {
      fill(box, failureBox(failure));
    }
  };
  const button = h("button", { class: "primary", onclick: show }, "Show the diff");
  box.append(button);
  return box;
}

function patch(whole, cut) {
  const lines = whole.split("\n");
  if (lines.at(-1) === "") lines.pop();
  if (!lines.length) return h("p", { class: "quiet-text" }, "There is no text to compare.");
  const box = h("div", { class: "diff", tabindex: "0", role: "region", "aria-label": "Diff" });
  const more = h("div", { class: "diff-more" });
  const at = { index: 0, old: 0, new: 0, file: null };
  const next = () => {
    const end = Math.min(lines.length, at.index + AT_ONCE);
    const made = document.createDocumentFragment();
    for (; at.index < end; at.index += 1) line(lines[at.index], at, made);
    box.append(made);
    const left = lines.length - at.index;
    fill(more, left ? h("button", { onclick: next }, `Show ${Math.min(left, AT_ONCE).toLocaleString("en")} of ${plural(left, "more line")}`) : null,
      !left && cut ? h("p", { class: "condition" }, "The patch is larger than is shown here. All of it: sublet diff") : null);
  };
  next();
  return [box, more];
}

function line(whole, at, into) {
  const shown = whole.length > MAX_LINE ? `${whole.slice(0, MAX_LINE)} … [${whole.length - MAX_LINE} more characters]` : whole;
  const head = /^diff --(git|directory|mode) /.exec(whole);
  if (head) {
    at.inside = false;
    into.append(h("div", { class: "d-file" }, shown.slice(head[0].length)));
    return;
  }
  const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(whole);
  if (hunk) {
    at.old = Number(hunk[1]);
    at.new = Number(hunk[2]);
    at.inside = true;
    into.append(row("d-hunk", "", "", shown));
    return;
  }
  if (!at.inside) { into.append(row("d-meta", "", "", shown)); return; }
  if (whole.startsWith("+")) into.append(row("d-add", "", at.new++, shown));
  else if (whole.startsWith("-")) into.append(row("d-del", at.old++, "", shown));
  else if (whole.startsWith("\\")) into.append(row("d-meta", "", "", shown));
  else into.append(row("d-same", at.old++, at.new++, shown));
}

function row(kind, before, after, words) {
  return h("div", { class: `d-line ${kind}` }, h("span", { class: "d-number", "aria-hidden": "true" }, String(before)), h("span", { class: "d-number", "aria-hidden": "true" }, String(after)), h("code", {}, words || " "));
}
