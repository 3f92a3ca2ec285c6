// Conversations in this browser (IndexedDB), and word between tabs of what changed.
import { local } from "./keep.js";
import { merge } from "./tree.js";

const channel = new BroadcastChannel("smoe");
const listeners = new Set();
const streaming = new Set(); // ids of the conversations that this tab is answering
const answers = new Map();

const wait = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

let opened;
/** The database, or null where the browser grants none. */
function open() {
  opened ??= (async () => wait(Object.assign(indexedDB.open("smoe", 1), {
    onupgradeneeded: ({ target }) => target.result.createObjectStore("conversations", { keyPath: "id" }),
  })))().then((database) => Object.assign(database, { onclose: () => (opened = null) })).catch(() => null); // storage cleared
  return opened;
}

/** Whether conversations outlast this page. */
export const kept = async () => Boolean(await open());

const memory = new Map();
const inMemory = {
  all: async () => structuredClone([...memory.values()]),
  get: async (id) => structuredClone(memory.get(id)),
  put: async (row) => memory.set(row.id, structuredClone(row)),
  remove: async (id) => memory.delete(id),
};

async function table(mode) {
  const database = await open();
  if (!database) return inMemory;
  const rows = database.transaction("conversations", mode).objectStore("conversations");
  return { all: () => wait(rows.getAll()), get: (id) => wait(rows.get(id)), put: (row) => wait(rows.put(row)), remove: (id) => wait(rows.delete(id)) };
}

export const all = async () => (await (await table("readonly")).all()).sort((a, b) => b.updated - a.updated);

export const get = async (id) => (await table("readonly")).get(id);

/** Writes, after taking in what another tab wrote meanwhile. False: it was deleted elsewhere, and stays so. */
export async function save(conversation, touch = true) {
  const rows = await table("readwrite");
  const stored = await rows.get(conversation.id);
  if (!stored && conversation.version) return false;
  if (stored && stored.version !== conversation.version) merge(conversation, stored);
  const version = (stored?.version ?? 0) + 1;
  if (touch) conversation.updated = Date.now();
  await rows.put({ ...conversation, version });
  conversation.version = version; // only now: where there was no room, it has none
  channel.postMessage({ type: "saved", id: conversation.id });
  return true;
}

export async function remove(id) {
  await (await table("readwrite")).remove(id);
  channel.postMessage({ type: "removed", id });
}

/** `listener({type: saved|removed, id})`: another tab did it. */
export const listen = (listener) => listeners.add(listener);

export const setStreaming = (id, on) => (on ? streaming.add(id) : streaming.delete(id));

/** Whether another tab is answering this conversation now: it says so, or silence means no. */
export function answeredElsewhere(id) {
  return new Promise((resolve) => {
    answers.set(id, resolve);
    channel.postMessage({ type: "who", id });
    setTimeout(resolve, 300, false);
  });
}

channel.onmessage = ({ data }) => {
  if (data.type === "who") streaming.has(data.id) && channel.postMessage({ type: "me", id: data.id });
  else if (data.type === "me") answers.get(data.id)?.(true);
  else for (const listener of listeners) listener(data);
};

// A page that is being left has no time for IndexedDB: the reply so far is put where writing is immediate.
const PARTIAL = "smoe.partial.";

export const keepPartial = (id, node) => local.set(PARTIAL + id, node && JSON.stringify(node));

/** Takes a kept partial reply into its conversation. Falsy: there was none, or an older one. */
export function restorePartial({ id, nodes }) {
  const kept = JSON.parse(local.get(PARTIAL + id));
  keepPartial(id, null);
  return nodes[kept?.id]?.changed <= kept?.changed && Object.assign(nodes[kept.id], kept);
}
