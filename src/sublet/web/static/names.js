// Entities as a person knows them: by the names of the peers that they are of, and whoever is not known in full.

import { get } from "./api.js";
import { h } from "./dom.js";

const ENTITY = /^@([^:@]+):(.+)$/;

export async function loadNames(signal) {
  const [self, peers] = await Promise.all([get("/api/whoami", signal), get("/api/peers", signal)]);
  return { me: self.entity_id, peers: new Map(peers.map((peer) => [peer.node_id, peer.name])) };
}

export function short(names, entity) {
  if (entity === names.me) return "you";
  const [, local, node] = ENTITY.exec(entity) ?? [];
  const peer = node === ENTITY.exec(names.me)?.[2] ? "here" : names.peers.get(node);
  if (!peer) return entity;
  return local === "human" && peer !== "here" ? peer : `${local}@${peer}`;
}

// The name, with the entity itself where one points at it.
export function who(names, entity, tag = "b") {
  return h(tag, { class: "author", title: entity }, short(names, entity));
}

// What a room is called: a conversation of two by whom it is with.
export function called(names, name) {
  const two = name.split(" and ");
  const other = two.length === 2 && two.includes(names.me) && two.every((one) => ENTITY.test(one)) ? two.find((one) => one !== names.me) : null;
  return other ? `with ${short(names, other)}` : name;
}
