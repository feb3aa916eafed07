// Pictures of people, as their profiles have them: drawn on a canvas, so that no address of a picture is ever loaded.

import { get } from "./api.js";
import { h } from "./dom.js";

const SIDE = 32, MOST = 200;
const kept = new Map();

// Return a canvas on which an entity's picture appears once it is there; it takes no place where there is none.
export function portrait(entity) {
  const canvas = h("canvas", { class: "portrait", width: SIDE, height: SIDE, hidden: true, "aria-hidden": "true" });
  if (!kept.has(entity)) {
    if (kept.size >= MOST) kept.delete(kept.keys().next().value);
    kept.set(entity, load(entity));
  }
  kept.get(entity).then((image) => {
    if (!image) return;
    const side = Math.min(image.width, image.height);
    canvas.getContext("2d").drawImage(image, (image.width - side) / 2, (image.height - side) / 2, side, side, 0, 0, SIDE, SIDE);
    canvas.hidden = false;
  });
  return canvas;
}

async function load(entity) {
  try {
    const found = await get(`/api/picture?entity=${encodeURIComponent(entity)}`);
    if (!found.data) return null;
    const content = Uint8Array.from(atob(found.data), (char) => char.charCodeAt(0));
    return await createImageBitmap(new Blob([content], { type: found.media_type }));
  } catch {
    kept.delete(entity); // it may be there the next time
    return null;
  }
}
