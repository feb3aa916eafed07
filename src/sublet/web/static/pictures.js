// Pictures of people, as their profiles have them: drawn on a canvas, so that no address of a picture is ever loaded.
// A picture is kept for one login, and asked about again while it is seen: its owner may have another one by then.

import { get, session } from "./api.js";
import { h } from "./dom.js";

const SIDE = 32, MOST = 200, AGAIN_MS = 10_000;
const kept = new Map(); // of each entity its picture, and the digest by which it is asked about again
let of = "", asking = Promise.resolve(), timer = null;

// Return a canvas on which an entity's picture appears once it is there; it takes no place where there is none.
export function portrait(entity) {
  const canvas = h("canvas", { class: "portrait", width: SIDE, height: SIDE, hidden: true, "aria-hidden": "true" });
  canvas.entity = entity;
  forgetOthers();
  const one = kept.get(entity);
  if (one) draw(canvas, one.image);
  if (!one || performance.now() - one.at > AGAIN_MS) ask([canvas]);
  if (timer === null) timer = setTimeout(askAgain, AGAIN_MS);
  return canvas;
}

// Keep nothing for whoever is logged in no more.
export function forgetOthers() {
  if (of !== session.key) kept.clear();
  of = session.key;
}

function askAgain() {
  const shown = [...document.querySelectorAll("canvas.portrait")];
  timer = shown.length ? setTimeout(askAgain, AGAIN_MS) : null;
  if (!document.hidden) ask(shown.filter((canvas) => canvas.parentElement?.checkVisibility()));
}

// One question at a time, whatever the number of members.
function ask(canvases) {
  asking = asking.then(async () => {
    for (const canvas of canvases) if (session.key && canvas.isConnected) await fetched(canvas);
  });
}

async function fetched(canvas) {
  const { entity } = canvas, key = session.key;
  forgetOthers();
  const one = kept.get(entity);
  const known = one?.digest ? `&known=${one.digest}` : "";
  try {
    const found = await get(`/api/picture?entity=${encodeURIComponent(entity)}${known}`);
    const image = found.digest === one?.digest ? one?.image : await decoded(found);
    if (key !== session.key) return;
    kept.delete(entity);
    kept.set(entity, { digest: found.digest, image, at: performance.now() });
    if (kept.size > MOST) kept.delete(kept.keys().next().value);
    draw(canvas, image);
  } catch { /* it may be there the next time */ }
}

async function decoded(found) {
  if (!found.data) return null;
  const content = Uint8Array.from(atob(found.data), (char) => char.charCodeAt(0));
  return createImageBitmap(new Blob([content], { type: found.media_type }));
}

function draw(canvas, image) {
  if (canvas.image === image) return;
  canvas.image = image;
  canvas.hidden = !image;
  if (!image) return;
  const side = Math.min(image.width, image.height), pen = canvas.getContext("2d");
  pen.clearRect(0, 0, SIDE, SIDE);
  pen.drawImage(image, (image.width - side) / 2, (image.height - side) / 2, side, side, 0, 0, SIDE, SIDE);
}
