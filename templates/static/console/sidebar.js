// The list of conversations: search, export, import; a drawer where the screen is narrow.
import { $, h, toast } from "./dom.js";
import { all, get, save } from "./store.js";
import { blank } from "./tree.js";

const NARROW = matchMedia("(max-width: 800px)");

export function download(name, value) {
  const url = URL.createObjectURL(new Blob([JSON.stringify(value, null, 1)], { type: "application/json" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const matches = (conversation, query) => !query || conversation.title.toLowerCase().includes(query) ||
  Object.values(conversation.nodes).some((node) => !node.deleted && node.text.toLowerCase().includes(query));

const valid = (value) => value && typeof value.id === "string" && typeof value.nodes === "object" &&
  Object.values(value.nodes).every((node) => typeof node.id === "string" && typeof node.text === "string" && /^(user|assistant)$/.test(node.role));

export class Sidebar {
  constructor({ open, isStreaming, current }) {
    Object.assign(this, { open, isStreaming, current });
    $("search").addEventListener("input", () => this.refresh());
    $("side").addEventListener("click", () => this.toggle());
    for (const id of ["shade", "side-close"]) $(id).addEventListener("click", () => this.toggle(false));
    $("export-all").addEventListener("click", async () => download("s-moe-conversations.json", await all()));
    $("import").addEventListener("click", () => $("import-file").click());
    $("import-file").addEventListener("change", ({ target }) => this.import(target));
    NARROW.addEventListener("change", () => this.toggle(!NARROW.matches));
    this.toggle(!NARROW.matches && localStorage.getItem("smoe.side") !== "closed");
  }

  toggle(on = !this.shown) {
    this.shown = on;
    document.body.classList.toggle("side", on);
    $("side").setAttribute("aria-expanded", on);
    $("sidebar").inert = !on;
    $("page").inert = on && NARROW.matches;
    if (!NARROW.matches) localStorage.setItem("smoe.side", on ? "open" : "closed");
    else if (on) $("search").focus();
  }

  /** True: it was open. */
  closeDrawer() {
    const drawn = NARROW.matches && this.shown;
    if (drawn) this.toggle(false);
    return drawn;
  }

  async refresh() {
    const query = $("search").value.trim().toLowerCase();
    const found = (await all()).filter((conversation) => matches(conversation, query));
    $("conversations").replaceChildren(...found.map((conversation) => this.row(conversation)));
    $("none").hidden = found.length > 0;
    $("none").textContent = query ? "Nothing found." : "Conversations appear here.";
  }

  row({ id, title }) {
    const streaming = this.isStreaming(id);
    const onclick = () => { this.closeDrawer(); this.open(id); };
    return h("li", {}, h("button", { type: "button", onclick, dir: "auto", "aria-current": id === this.current() ? "true" : null },
      h("span", {}, title || "Untitled"), streaming && h("i", { className: "pulse", role: "img", "aria-label": "replying" })));
  }

  async import(input) {
    const [file] = input.files;
    input.value = "";
    const parsed = await file.text().then(JSON.parse).catch(() => null);
    const found = [parsed].flat();
    if (!found.every(valid)) return toast("That file holds no conversations of this console.");
    for (const conversation of found) await this.take(conversation);
    toast(`${found.length} imported.`);
    return this.refresh();
  }

  /** Merges with a conversation of the same id; a reply that was running when it was exported no longer is. */
  async take(conversation) {
    const stored = await get(conversation.id);
    for (const node of Object.values(conversation.nodes)) if (node.status === "streaming") node.status = "interrupted";
    await save({ ...blank(), ...conversation, version: stored ? -1 : 0 }, false);
  }
}
