// Joins the parts: which conversation is open, what a person asks of it, and what is shown then.
import { readKey } from "./api.js";
import { Composer } from "./composer.js";
import { $, announce, copy, h, icon, toast } from "./dom.js";
import { count, tokens } from "./format.js";
import { askKey, editSettings, menuKeys, rename } from "./forms.js";
import { local } from "./keep.js";
import { Meters, showContext } from "./meters.js";
import { Models } from "./models.js";
import { Reply } from "./reply.js";
import { Sidebar } from "./sidebar.js";
import * as store from "./store.js";
import { download } from "./transfer.js";
import { Transcript } from "./transcript.js";
import * as tree from "./tree.js";

const replies = new Map(); // conversation id -> {reply, conversation} that this tab is answering
let conversation = tree.blank();
let opening = true; // the conversation of the address
let elsewhere = false; // another tab is answering the open conversation

const actions = { branch, copy: (text) => copy(text).then(() => toast("Copied."), () => toast("Not copied: press Ctrl+C on it.")), edit, proceed, redraw: show, regenerate, remove, retry: regenerate, askKey: async () => (await askKey()) && refresh() };
const transcript = new Transcript(actions);
const composer = new Composer({ send, stop });
const models = new Models(choose);
const meters = new Meters(refresh);
const sidebar = new Sidebar({ open, isStreaming: (id) => replies.has(id), current: () => conversation.id });

// --- showing

function show() {
  const running = replies.has(conversation.id);
  const empty = !conversation.leaf;
  $("empty").hidden = !empty;
  $("title").textContent = conversation.title || "New conversation";
  document.title = conversation.title ? `${conversation.title} · S-MoE` : "S-MoE";
  models.show(conversation, meters.limit);
  if (empty) welcome();
  composer.setBusy(running);
  $("send").disabled = elsewhere || opening;
  transcript.show(conversation, { busy: running || elsewhere, disk: meters.disk, pending: elsewhere ? "Another tab is answering this conversation." : pendingNotice() });
  context();
}

function pendingNotice() {
  const chosen = models.of(conversation);
  if (chosen && conversation.model && chosen.id !== conversation.model) return `${conversation.model} is not in the fleet any more: the next message runs on ${chosen.id}.`;
  const switching = conversation.leaf && !replies.has(conversation.id) && chosen && models.switchesTo(chosen);
  return switching ? switchNotice(chosen) : "";
}

const switchNotice = ({ id }) => `The next message switches to ${id}: its first reply pays the cold boot.`;

const TROUBLE = { key: "An API key is needed", busy: "The server is busy", server: "The server has a problem", offline: "The server does not answer" };

function welcome() {
  const model = models.of(conversation);
  const parts = model ? [model.id, models.anatomy(model), model.description, model.tokenizer_note]
    : models.failed ? [TROUBLE[models.failed.kind] ?? TROUBLE.offline, models.failed.message]
    : models.known ? ["No vault yet", "Put a vault and its scout into the fleet directory; it appears here."] : [];
  $("about").replaceChildren(...parts.filter(Boolean).map((words, n) => h(n ? "p" : "h2", { className: model && n === 1 && "anatomy" }, words)));
}

function context() {
  const last = tree.path(conversation).flatMap((node) => node.runs ?? []).findLast((run) => run.total);
  showContext(last ? last.total + last.tokens : 0, last?.window ?? meters.window);
}

async function refresh() {
  const key = readKey();
  try {
    await models.refresh();
    models.failed = null;
  } catch (error) {
    models.failed = error;
    show();
    if (error.kind === "key" && (key !== readKey() || (await askKey(error)))) return refresh();
  }
  show();
}

// --- conversations

let turn;
/** The last one asked for wins; one that this tab answers opens at once, so that Escape finds it. */
async function open(id) {
  const mine = (turn = {});
  const stored = id && !replies.has(id) && (await store.get(id));
  const theirs = stored && (await settle(stored));
  if (mine !== turn) return;
  conversation = replies.get(id)?.conversation ?? (stored || { ...tree.blank(), model: conversation.model });
  elsewhere = theirs;
  watch();
  const known = conversation.id === id;
  history.replaceState(null, "", known ? `#${id}` : location.pathname);
  composer.open(known ? id : "new");
  transcript.pinned = true;
  show();
  transcript.toEnd();
  sidebar.refresh();
  composer.area.focus();
}

/** Replies that nobody is writing any more are interrupted. True: another tab is writing one. */
async function settle(conversation) {
  const restored = store.restorePartial(conversation);
  const open = Object.values(conversation.nodes).filter((node) => node.status === "streaming");
  if (!(restored || open.length) || replies.has(conversation.id)) return false;
  if (open.length && (await store.answeredElsewhere(conversation.id))) return true;
  for (const node of open) {
    Object.assign(node, { status: "interrupted", changed: Date.now() });
    for (const run of node.runs) run.phase = "end";
  }
  await save(conversation, false);
  return false;
}

/** A tab that answers may be closed without a word: then its reply is interrupted. */
function watch() {
  clearTimeout(watch.timer);
  if (!elsewhere) return;
  const owner = conversation;
  watch.timer = setTimeout(async () => {
    const theirs = await settle(owner);
    if (owner !== conversation) return;
    elsewhere = theirs;
    show();
    watch();
  }, 3000);
}

async function save(touched = conversation, touch) {
  try {
    if (await store.save(touched, touch)) return sidebar.refresh();
  } catch (error) {
    return toast(`The browser could not keep this conversation (${error.message}). Export what must last.`);
  }
  stop(touched);
  if (touched === conversation) toast("This conversation was deleted elsewhere.");
}

function changeBranch(leaf) {
  conversation.leaf = leaf;
  show();
  save();
}

function branch(node) {
  changeBranch(tree.newestLeaf(conversation, node.id));
}

function remove(node) {
  const owner = conversation;
  stop(owner);
  const undo = tree.remove(owner, node.id);
  changeBranch(owner.leaf);
  toast("Deleted.", () => { undo(); show(); save(owner); });
}

async function removeConversation() {
  const gone = conversation;
  stop(gone);
  await store.remove(gone.id);
  await open();
  toast("Conversation deleted.", async () => { await store.save({ ...gone, version: 0 }); open(gone.id); });
}

function reset() {
  const root = tree.path(conversation)[0];
  if (!root) return;
  remove(root);
  if (conversation.leaf) changeBranch(null);
}

function choose(model) {
  Object.assign(conversation, { model: model.id, meta: Date.now() });
  show();
  if (conversation.version) save();
}

// --- replies

function send({ text, files }) {
  tree.add(conversation, { role: "user", text, files });
  conversation.title ||= (text || files[0].name).split("\n")[0].slice(0, 80);
  transcript.pinned = true;
  answer();
}

function edit(node, text) {
  conversation.leaf = node.parent;
  tree.add(conversation, { role: "user", text, files: node.files });
  answer();
}

/** Another reply beside this one; one that has nothing to lose is replaced. */
function regenerate(node) {
  conversation.leaf = node.parent;
  if (!node.text && !node.reasoning) Object.assign(node, { deleted: true, changed: Date.now() });
  answer();
}

/** Goes on with a reply that was cut off: it is sent as the last message. */
function proceed(node) {
  run(node, tree.history(conversation, node.id));
}

function answer() {
  const messages = tree.history(conversation, conversation.leaf);
  const model = models.of(conversation);
  const notes = model && models.switchesTo(model) ? [switchNotice(model).replace("The next message switches", "Switched")] : undefined;
  run(tree.add(conversation, { role: "assistant", notes }), messages);
}

async function run(node, messages) {
  const owner = conversation;
  const reply = new Reply(node, (what) => progress(owner, node, what));
  replies.set(owner.id, { reply, conversation: owner });
  store.setStreaming(owner.id, true);
  meters.busy = true;
  history.replaceState(null, "", `#${owner.id}`);
  announce("Waiting for the reply");
  show();
  save(owner).then(() => owner === conversation && owner.version && composer.keepAs(owner.id));
  const clock = setInterval(() => tick(owner, reply), 100);
  const keeper = setInterval(() => keep(owner, node), 1000);
  await reply.stream({ model: models.of(owner)?.id ?? owner.model, messages, ...owner.sampling });
  clearInterval(clock);
  clearInterval(keeper);
  finished(owner, node);
}

function keep(owner, node) {
  node.changed = Date.now();
  save(owner);
}

function tick(owner, reply) {
  reply.tick();
  if (owner === conversation) paint(reply.node);
}

let nextPaint = 0;
/** At most one paint a frame, and no more than a fifth of the time spent on painting. */
function paint(node) {
  if (paint.waiting) return;
  paint.waiting = true;
  requestAnimationFrame((now) => {
    paint.waiting = false;
    if (now < nextPaint || node.status !== "streaming") return;
    const start = performance.now();
    context(); // before the text: what follows it reads the layout
    transcript.grow(node, meters.disk);
    nextPaint = performance.now() + 4 * (performance.now() - start);
  });
}

const STATES = { boot: "Booting the vault", prefill: "Reading the conversation", decode: "Replying" };

function progress(owner, node, what) {
  if (what === "phase") announce(STATES[node.runs.at(-1).phase] ?? "");
  if (owner === conversation && what !== "end") paint(node);
}

function finished(owner, node) {
  replies.delete(owner.id);
  store.setStreaming(owner.id, false);
  meters.busy = replies.size > 0;
  slideNotice(owner, node);
  store.keepPartial(owner.id, node);
  save(owner).then(() => store.keepPartial(owner.id, null));
  announce(node.error ? `Error: ${node.error.message}` : `Reply ${node.status === "stopped" ? "stopped" : "finished"}, ${tokens(node.runs.at(-1).tokens)}`);
  models.known = false; // which is active
  show();
  refresh();
}

/** Said once a conversation. */
function slideNotice(owner, node) {
  const { slid, window } = node.runs.at(-1);
  if (!slid || owner.slid) return;
  owner.slid = true;
  node.after = `The window of ${count(window)} tokens is full: from here on the oldest part of the conversation drops out.`;
}

function stop({ id } = conversation) {
  replies.get(id)?.reply.stop();
}

// --- the page

async function otherTab({ type, id }) {
  if (id === conversation.id && !replies.has(id)) await (type === "removed" ? open() : takeIn(await store.get(id)));
  sidebar.refresh();
}

/** Shows what another tab wrote, and follows it where it went on from what is shown here. */
function takeIn(stored) {
  if (stored?.id !== conversation.id) return;
  tree.merge(conversation, stored);
  conversation.version = stored.version;
  const theirs = tree.path(conversation, stored.leaf);
  if (theirs.some((node) => node.id === conversation.leaf)) conversation.leaf = stored.leaf;
  elsewhere = theirs.some((node) => node.status === "streaming");
  watch();
  if (!document.querySelector(".editor")) show();
}

function onkey(event) {
  const command = event.ctrlKey || event.metaKey;
  if (event.key === "Escape" && !document.querySelector("dialog[open], :popover-open")) sidebar.closeDrawer() || stop();
  else if (command && event.key === "k") { event.preventDefault(); sidebar.toggle(true); $("search").focus(); }
  else if (command && event.shiftKey && event.key.toLowerCase() === "o") { event.preventDefault(); open(); }
}

/** The page may be about to go: WebKit ends its requests before it says so with `pagehide`. Or stay: a link to mail asks too. */
function onleave() {
  for (const { reply, conversation } of replies.values()) {
    reply.leaving = true;
    setTimeout(() => (reply.leaving = false), 1000);
    reply.tick();
    store.keepPartial(conversation.id, { ...reply.node, changed: Date.now() });
  }
}

function theme() {
  const { dataset } = document.documentElement;
  const shown = dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  dataset.theme = shown === "dark" ? "light" : "dark";
  local.set("smoe.theme", dataset.theme);
}

function menu(id, action) {
  $(id).onclick = () => {
    $("menu").hidePopover();
    action();
  };
}

menu("do-rename", async () => { if (await rename(conversation)) { show(); save(); } });
menu("do-export", () => download(`${conversation.title || "conversation"}.json`, conversation));
menu("do-reset", reset);
menu("do-delete", removeConversation);
menu("do-key", actions.askKey);
$("new").onclick = () => { sidebar.closeDrawer(); open(); };
$("tune").onclick = async () => { if (await editSettings(conversation)) conversation.version && save(); };
$("theme").onclick = theme;
$("messages").onclick = ({ target }) => {
  const code = target.closest("[data-copy]")?.closest(".code");
  if (code) actions.copy(code.querySelector("code").textContent);
};
for (const place of document.querySelectorAll("[data-icon]")) place.replaceWith(icon(place.dataset.icon));
for (const id of ["models", "menu"]) menuKeys($(id));
addEventListener("keydown", onkey);
for (const event of ["beforeunload", "pagehide"]) addEventListener(event, onleave);
addEventListener("hashchange", () => open(location.hash.slice(1)));
store.listen(otherTab);
open(location.hash.slice(1)).finally(() => {
  opening = false;
  show();
}).then(refresh);
