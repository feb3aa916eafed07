// Elements out of data. Text is only ever put in as text nodes, and what would hide in it is written out.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u{e0000}-\u{e0fff}]/u;
const ALL_HIDDEN = new RegExp(HIDDEN.source, "gu");

// Return nodes for a text: characters that steer or hide are shown as their numbers, so that nobody is misled.
export function text(value) {
  const given = String(value);
  if (!HIDDEN.test(given)) return [document.createTextNode(given)];
  const nodes = [];
  let done = 0;
  for (const match of given.matchAll(ALL_HIDDEN)) {
    if (match[0] === "\n" || match[0] === "\t") continue;
    if (match.index > done) nodes.push(document.createTextNode(given.slice(done, match.index)));
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    const mark = document.createElement("span");
    mark.className = "hidden-char";
    mark.title = "a character that is not visible by itself";
    mark.textContent = `U+${code}`;
    nodes.push(mark);
    done = match.index + match[0].length;
  }
  nodes.push(document.createTextNode(given.slice(done)));
  return nodes;
}

// h("p", {class: "x", onclick: f}, "text", node, [more]) makes an element; null and false are left out.
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "value" || name === "checked" || name === "open") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    if (child instanceof Node) element.append(child);
    else element.append(...text(child));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

// Make the children of `parent` those of `items`; an element stays the same as long as its item does, so that nothing
// jumps, and what is typed or focused stays where it is.
export function reconcile(parent, items, key, render) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const wanted = items.map((item) => {
    const id = String(key(item));
    const print = JSON.stringify(item, (name, value) => (name === "remaining_seconds" ? undefined : value));
    const old = before.get(id);
    if (old && old.print === print) return old;
    const made = render(item, old);
    made.dataset.key = id;
    made.print = print;
    return made;
  });
  const focused = document.activeElement;
  const at = focused && parent.contains(focused) ? focused.closest("[data-key]")?.dataset.key : null;
  const keep = new Set(wanted);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  wanted.forEach((element, index) => {
    if (parent.children[index] !== element) parent.insertBefore(element, parent.children[index] ?? null);
  });
  if (at && !parent.contains(document.activeElement)) {
    const again = wanted.find((element) => element.dataset.key === at);
    (again?.matches("a,button") ? again : again?.querySelector("a,button,summary"))?.focus();
  }
}
