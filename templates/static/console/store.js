// Conversations in this browser (IndexedDB), and word between tabs of what changed.
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
function open() {
  opened ??= wait(Object.assign(indexedDB.open("smoe", 1), {
    onupgradeneeded: ({ target }) => target.result.createObjectStore("conversations", { keyPath: "id" }),
  }));
  return opened;
}

const table = async (mode) => (await open()).transaction("conversations", mode).objectStore("conversations");

export const all = async () => (await wait((await table("readonly")).getAll())).sort((a, b) => b.updated - a.updated);

export const get = async (id) => wait((await table("readonly")).get(id));

/** Writes, after taking in what another tab wrote meanwhile. False: it was deleted elsewhere, and stays so. */
export async function save(conversation, touch = true) {
  const rows = await table("readwrite");
  const stored = await wait(rows.get(conversation.id));
  if (!stored && conversation.version) return false;
  if (stored && stored.version !== conversation.version) merge(conversation, stored);
  conversation.version = (stored?.version ?? 0) + 1;
  if (touch) conversation.updated = Date.now();
  await wait(rows.put(conversation));
  channel.postMessage({ type: "saved", id: conversation.id });
  return true;
}

export async function remove(id) {
  await wait((await table("readwrite")).delete(id));
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

export const keepPartial = (id, node) => localStorage.setItem(PARTIAL + id, JSON.stringify(node));

/** Takes a kept partial reply into its conversation. */
export function restorePartial(conversation) {
  const kept = localStorage.getItem(PARTIAL + conversation.id);
  if (!kept) return;
  localStorage.removeItem(PARTIAL + conversation.id);
  const node = JSON.parse(kept);
  if (conversation.nodes[node.id]) Object.assign(conversation.nodes[node.id], node);
}
