// A conversation is a tree of messages: an edit or another reply is a sibling, the branch shown ends at `leaf`.
// Pure functions over plain data. Ids sort by time of creation.

let last = 0;
export function newId() {
  last = Math.max(Date.now(), last + 1);
  return last.toString(36) + Math.random().toString(36).slice(2, 8).padEnd(6, "0");
}

export const blank = () => ({ id: newId(), version: 0, title: "", meta: 0, updated: 0, model: "", system: "", sampling: {}, nodes: {}, leaf: null });

export function add(conversation, node) {
  const full = { id: newId(), parent: conversation.leaf, text: "", time: Date.now(), changed: Date.now(), ...node };
  conversation.nodes[full.id] = full;
  conversation.leaf = full.id;
  return full;
}

const living = (conversation) => Object.values(conversation.nodes).filter((node) => !node.deleted);

export function path(conversation, leaf = conversation.leaf) {
  const nodes = [];
  for (let node = conversation.nodes[leaf]; node; node = conversation.nodes[node.parent]) nodes.unshift(node);
  return nodes;
}

export const siblings = (conversation, node) =>
  living(conversation).filter((other) => other.parent === node.parent && other.role === node.role).sort((a, b) => (a.id < b.id ? -1 : 1));

/** The end of the newest branch that passes through `id`. */
export function newestLeaf(conversation, id) {
  const children = living(conversation).filter((node) => node.parent === id).map((node) => node.id).sort();
  return children.length ? newestLeaf(conversation, children.at(-1)) : id;
}

/** Removes a message and what follows it. Returns a function that brings all back. */
export function remove(conversation, id) {
  const leaf = conversation.leaf;
  const node = conversation.nodes[id];
  mark(node, true);
  const rest = siblings(conversation, node).at(-1);
  conversation.leaf = rest ? newestLeaf(conversation, rest.id) : node.parent && newestLeaf(conversation, node.parent);
  return () => {
    mark(node, false);
    conversation.leaf = leaf;
  };
}

function mark(node, deleted) {
  node.deleted = deleted;
  node.changed = Date.now();
}

/** Takes into `mine` what is newer in another tab's `theirs`: each message, title and settings. */
export function merge(mine, theirs) {
  for (const node of Object.values(theirs.nodes)) {
    const own = mine.nodes[node.id];
    if (!own) mine.nodes[node.id] = node;
    else if (node.changed > own.changed) Object.assign(own, node);
  }
  if (theirs.meta > mine.meta) {
    const { title, system, sampling, model, meta } = theirs;
    Object.assign(mine, { title, system, sampling, model, meta });
  }
  if (mine.leaf && path(mine).some((node) => node.deleted)) mine.leaf = path(mine).find((node) => node.deleted).parent;
}

const fence = (text) => "`".repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map((run) => run[0].length + 1)));

function content(node) {
  const files = (node.files ?? []).map(({ name, text }) => `File ${name}:\n${fence(text)}\n${text}\n${fence(text)}\n\n`);
  return files.join("") + node.text;
}

/** What is sent: the whole branch up to `leaf`, replies that hold nothing left out. */
export function history(conversation, leaf) {
  const messages = conversation.system.trim() ? [{ role: "system", content: conversation.system }] : [];
  for (const node of path(conversation, leaf)) {
    if (node.role === "assistant" && !node.text && !node.reasoning) continue;
    messages.push({ role: node.role, content: content(node), ...(node.reasoning && { reasoning_content: node.reasoning }) });
  }
  return messages;
}
