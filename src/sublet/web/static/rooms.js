// Rooms: which there are, and the talk in one of them.

import { get, post } from "./api.js";
import { fill, h, reconcile } from "./dom.js";
import { bytes, empty, moment, pill, plural } from "./format.js";
import { called, loadNames, short, who } from "./names.js";
import { portrait } from "./pictures.js";
import { onNews } from "./room_news.js";
import { heading, keepFresh, say, sure } from "./view.js";

const PAGE = 100;
const path = (id) => `/api/rooms/${encodeURIComponent(id)}`;

export function rooms(main) {
  const problem = h("div"), asked = h("div", { class: "cards" }), list = h("div", { class: "cards" }), none = h("div");
  main.append(heading("Rooms"), problem, asked, list, none);
  const fresh = keepFresh(problem, async (signal) => {
    const [found, invited, names] = await Promise.all([get("/api/rooms", signal), get("/api/invitations", signal), loadNames(signal)]);
    reconcile(asked, invited.filter((one) => one.answer === "pending"), (one) => one.room_id, (one) => invitation(one, names, () => fresh.refresh()));
    reconcile(list, found, (one) => one.room_id, (one) => card(one, names));
    fill(none, found.length ? null : empty("No rooms yet.", "In a room, people and agents of paired daemons talk. Open one, and ask somebody in:", h("pre", { class: "command" }, "sublet room create plans\nsublet room invite plans @human:NODE")));
  }, () => false);
  const forget = onNews("", fresh.refresh);
  return () => { forget(); fresh.stop(); };
}

// A room of which nothing is here: who asks, whom, and who is in it; what it is called is their words.
function invitation(one, names, done) {
  const answer = (word, how) => h("button", { class: how, onclick: async (event) => {
    event.target.disabled = true;
    try {
      await post(`/api/invitations/${encodeURIComponent(one.room_id)}/${word}`, {});
      done();
    } catch (failure) { say(`${failure.message}. ${failure.hint ?? ""}`, "bad"); event.target.disabled = false; }
  } }, word === "accept" ? "Accept" : "Decline");
  const more = one.member_count - one.members.length;
  return h("div", { class: "card" },
    h("div", { class: "card-head" }, h("strong", { class: "card-title" }, called(names, one.name)), h("span", { class: "tag" }, "invitation")),
    h("div", { class: "card-facts" }, h("span", {}, "from ", who(names, one.by, "span")), h("span", {}, "members: ", one.members.map((each) => short(names, each)).join(", "), more > 0 ? ` and ${more} more` : "")),
    h("div", {}, answer("accept", "small primary"), " ", answer("decline", "small")));
}

function card(one, names) {
  return h("a", { class: "card", href: `#/rooms/${encodeURIComponent(one.room_id)}` },
    h("div", { class: "card-head" }, h("strong", { class: "card-title" }, called(names, one.name)), h("span", { class: "tag" }, one.closed ? "closed" : one.kind === "delegation" ? "delegation" : one.role)),
    h("div", { class: "card-facts" }, h("span", {}, plural(one.members, "member")), h("span", {}, WAYS_IN[one.policy] ?? one.policy), one.encryption === "members" ? h("span", {}, "only members read it") : null));
}

const WAYS_IN = { open: "open to all", knock: "knock to come in", invite: "by invitation" };

export function room(main, id) {
  const problem = h("div"), head = h("div"), talk = h("ol", { class: "talk" }), earlier = h("button", { class: "small", hidden: true, onclick: before }, "Earlier messages"), nothing = h("p", { class: "quiet-text", hidden: true }, "Nothing has been said yet.");
  let messages = [], names = null, owner = false, whole = false;
  const form = writing(async (body, format) => { await post(`${path(id)}/messages`, { body, format }); fresh.refresh(); });
  main.append(h("p", { class: "back" }, h("a", { href: "#/rooms" }, "← All rooms")), problem, head, h("p", { class: "quiet-text" }, "What others write is their words, which nobody has checked."), h("div", { class: "diff-more" }, earlier), talk, nothing, form);
  const fresh = keepFresh(problem, async (signal) => {
    const [found, last, known] = await Promise.all([get(path(id), signal), get(`${path(id)}/messages?limit=${PAGE}`, signal), loadNames(signal)]);
    names = known;
    owner = found.role === "owner";
    fill(head, heading(called(names, found.name), h("span", { class: "tag" }, found.role)), members(found.roles, names, head.querySelector("details.names")?.open));
    if (!messages.length) whole = last.length < PAGE;
    const there = new Set(last.map((one) => one.ref_id));
    // Whatever is older than the last page stays as it was read.
    messages = last.length ? [...messages.filter((one) => !there.has(one.ref_id) && one.created_at <= last[0].created_at), ...last] : [];
    show();
  }, () => false);
  const forget = onNews(id, fresh.refresh);

  async function before() {
    earlier.disabled = true;
    try {
      const older = await get(`${path(id)}/messages?limit=${PAGE}&before=${encodeURIComponent(messages[0].ref_id)}`);
      whole = older.length < PAGE;
      messages = [...older, ...messages];
      show();
    } catch (failure) { say(`${failure.message}. ${failure.hint ?? ""}`, "bad"); } finally { earlier.disabled = false; }
  }

  function show() {
    const low = innerHeight + scrollY >= document.documentElement.scrollHeight - 80;
    reconcile(talk, messages, (one) => one.ref_id, (one) => message(one, id, names, (ref) => messages.find((other) => other.ref_id === ref), owner || one.author === names.me ? fresh.refresh : null));
    earlier.hidden = whole || !messages.length;
    nothing.hidden = messages.length > 0;
    if (low && messages.length) form.scrollIntoView({ block: "end" });
  }

  return () => { forget(); fresh.stop(); };
}

function members(roles, names, open) {
  return h("details", { class: "names", open: Boolean(open) }, h("summary", {}, plural(Object.keys(roles).length, "member")), h("ul", {}, Object.entries(roles).map(([one, role]) => h("li", {}, portrait(one), short(names, one) === one ? null : [h("b", {}, short(names, one)), " "], h("code", {}, one), " ", h("span", { class: "tag" }, role)))));
}

const QUOTED = 120;

function message(one, room, names, find, purged) {
  const ext = one.ext ?? {};
  const answered = typeof ext.reply_to === "string" ? ext.reply_to : ext.reply_to?.ref_id;
  const quote = one.about?.reply_preview;
  const first = quote ? (quote.accessible === true ? quote : null) : answered ? find(answered) : null;
  const elsewhere = quote ? (first ? " in another room" : "a message of a room that you are not in") : "";
  const gone = one.body === null || one.body === undefined, erased = one.about?.purged?.what === "message";
  return h("li", { class: one.author === names.me ? "message own" : "message" },
    h("div", { class: "message-head" }, who(names, one.author), one.status === "active" ? null : pill(one.status), one.format && one.format !== "plain" ? h("span", { class: "tag" }, one.format) : null, moment(one.created_at)),
    answered ? h("p", { class: "quiet-text" }, "answers ", first?.body ? [who(names, first.author, "span"), elsewhere, ": ", first.body.slice(0, QUOTED), first.body.length > QUOTED ? "…" : ""] : elsewhere || h("code", {}, answered)) : null,
    gone ? h("p", { class: "quiet-text" }, erased ? "It was purged." : one.status === "active" ? "Its text has not come yet." : "It has no text any more.") : h("pre", {}, one.body),
    typeof ext.media?.blob_hash === "string" ? file(room, ext.media) : null,
    given(ext.reactions),
    purged && !erased ? sure("Purge", "Gone for good, for everybody?", async () => { await post(`${path(room)}/messages/${encodeURIComponent(one.ref_id)}/purge`); say("Purged. Who is away loses it once they are reached."); purged(); }, "danger small") : null);
}

// A file is never shown here, whatever it says that it is: it goes to where the browser keeps files.
function file(room, media) {
  const name = String(media.filename ?? "file");
  const button = h("button", { class: "small", onclick: async () => {
    button.disabled = true;
    try {
      const found = await get(`${path(room)}/files?blob_hash=${encodeURIComponent(media.blob_hash)}`);
      keep(name, Uint8Array.from(atob(found.data), (char) => char.charCodeAt(0)));
    } catch (failure) { say(`${failure.message}. ${failure.hint ?? ""}`, "bad"); } finally { button.disabled = false; }
  } }, "Save");
  return h("p", { class: "quiet-text" }, `File: ${name}`, Number.isFinite(media.size_bytes) ? ` (${bytes(media.size_bytes)}) ` : " ", button);
}

function keep(name, content) {
  const url = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

// Who has reacted with what; a key is the reaction and who gave it.
function given(reactions) {
  const counts = new Map();
  for (const [key, at] of Object.entries(reactions ?? {})) {
    const mark = key.slice(0, key.indexOf(":@"));
    if (at && mark) counts.set(mark, (counts.get(mark) ?? 0) + 1);
  }
  return counts.size ? h("p", { class: "reactions" }, [...counts].map(([mark, count]) => h("span", { class: "tag" }, `${mark} ${count}`))) : null;
}

// Enter sends, with Shift it is a new line; what could not be sent stays.
function writing(send) {
  const field = h("textarea", { rows: 2, maxlength: 65536, "aria-label": "Your message", placeholder: "Write a message", onkeydown: (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  } });
  const format = h("select", { "aria-label": "Format" }, ["plain", "markdown", "html"].map((one) => h("option", { value: one }, one)));
  const button = h("button", { class: "primary" }, "Send");
  const form = h("form", { class: "writing", onsubmit: async (event) => {
    event.preventDefault();
    const body = field.value;
    if (!body.trim() || button.disabled) return;
    button.disabled = true;
    try {
      await send(body, format.value);
      if (field.value === body) field.value = "";
    } catch (failure) { say(`${failure.message}. ${failure.hint ?? ""}`, "bad"); } finally { button.disabled = false; field.focus(); }
  } }, field, format, button);
  return form;
}
