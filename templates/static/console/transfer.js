// Conversations as files: out as JSON, and in again only where every part has the shape that the page relies on.
import { h } from "./dom.js";
import { get, save } from "./store.js";
import { blank } from "./tree.js";

export function download(name, value) {
  const url = URL.createObjectURL(new Blob([JSON.stringify(value, null, 1)], { type: "application/json" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const isText = (value) => typeof value === "string";
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isFile = (file) => isObject(file) && isText(file.name) && isText(file.text);

/** A parent is older than its child, and ids sort by age: so no branch can run in a circle. */
const isNode = (node, id, nodes) => isObject(node) && node.id === id && isText(node.text) && isText(node.reasoning ?? "") &&
  /^(user|assistant)$/.test(node.role) && (node.parent === null || (node.parent < id && isObject(nodes[node.parent]))) &&
  Array.isArray(node.files ?? []) && (node.files ?? []).every(isFile);

const isConversation = (value) => isObject(value) && [value.id, value.title, value.system, value.model].every(isText) &&
  isObject(value.sampling) && Object.values(value.sampling).every(Number.isFinite) && isObject(value.nodes) &&
  Object.entries(value.nodes).every(([id, node]) => isNode(node, id, value.nodes)) && (value.leaf === null || isObject(value.nodes[value.leaf]));

/** What is kept of a message. Its time record where it is one; a reply that ran at the export no longer does. */
function kept({ id, parent, role, text, reasoning, files, time, changed, status, finish, deleted, runs }) {
  const records = (Array.isArray(runs) ? runs : []).filter((run) => run?.phase === "end" && isObject(run.ms));
  const ended = status === "error" || status === "streaming" ? "interrupted" : status;
  return { id, parent, role, text, time, changed, finish, deleted, status: ended, reasoning, files, ...(role === "assistant" && { runs: records }) };
}

/** Takes in a file's conversations, merged with those of the same id. The number taken, 0 where the file has another shape. */
export async function take(text) {
  let found;
  try {
    found = [JSON.parse(text)].flat();
  } catch {
    return 0;
  }
  if (!found.every(isConversation)) return 0;
  for (const { id, title, system, model, sampling, leaf, nodes } of found) {
    const known = await get(id);
    const taken = Object.fromEntries(Object.entries(nodes).map(([key, node]) => [key, kept(node)]));
    await save({ ...blank(), id, title, system, model, sampling, leaf, nodes: taken, version: known ? -1 : 0 });
  }
  return found.length;
}
