// The list of conversations, searched; a drawer where the screen is narrow.
import { $, h, toast } from "./dom.js";
import { local } from "./keep.js";
import { all, kept } from "./store.js";
import { download, take } from "./transfer.js";

const NARROW = matchMedia("(max-width: 800px)");

const matches = (conversation, query) => !query || conversation.title.toLowerCase().includes(query) ||
  Object.values(conversation.nodes).some((node) => !node.deleted && node.text.toLowerCase().includes(query));

export class Sidebar {
  constructor({ open, isStreaming, current }) {
    Object.assign(this, { open, isStreaming, current });
    $("search").oninput = () => this.refresh();
    $("side").onclick = () => this.toggle();
    for (const id of ["shade", "side-close"]) $(id).onclick = () => this.closeDrawer();
    $("export-all").onclick = async () => download("s-moe-conversations.json", await all());
    $("import").onclick = () => $("import-file").click();
    $("import-file").onchange = ({ target }) => this.import(target);
    NARROW.addEventListener("change", () => this.toggle(!NARROW.matches));
    kept().then((is) => ($("unkept").hidden = is));
    this.toggle(!NARROW.matches && local.get("smoe.side") !== "closed");
  }

  toggle(on = !this.shown) {
    this.shown = on;
    document.body.classList.toggle("side", on);
    $("side").ariaExpanded = on;
    $("sidebar").inert = !on;
    $("page").inert = on && NARROW.matches;
    if (!NARROW.matches) local.set("smoe.side", on ? "open" : "closed");
    else if (on) $("search").focus();
  }

  /** True: it was open. */
  closeDrawer() {
    const drawn = NARROW.matches && this.shown;
    if (drawn) {
      this.toggle(false);
      $("side").focus();
    }
    return drawn;
  }

  /** The last one asked for wins. */
  async refresh() {
    const mine = (this.turn = {});
    const query = $("search").value.trim().toLowerCase();
    const found = (await all()).filter((conversation) => matches(conversation, query));
    if (mine !== this.turn) return;
    const list = h("ul", { id: "conversations" }, ...found.map((conversation) => this.row(conversation)));
    const { name } = document.activeElement;
    const old = $("conversations");
    if (old.matches(":active")) return setTimeout(() => this.refresh(), 50); // a new list would end the click
    if (!old.isEqualNode(list)) old.replaceWith(list);
    document.getElementsByName(name)[0]?.focus({ preventScroll: true });
    $("none").hidden = found.length > 0;
    $("none").textContent = query ? "Nothing found." : "Conversations appear here.";
  }

  row({ id, title }) {
    const streaming = this.isStreaming(id);
    const onclick = () => { this.closeDrawer(); this.open(id); };
    return h("li", {}, h("button", { name: id, onclick, dir: "auto", "aria-current": id === this.current() ? "true" : null },
      h("span", { className: "cut" }, title || "Untitled"), streaming && h("i", { className: "pulse", role: "img", "aria-label": "replying" })));
  }

  async import(input) {
    const text = await input.files[0].text();
    input.value = "";
    const taken = await take(text);
    toast(taken ? `${taken} imported.` : "That file holds no conversations of this console.");
    return this.refresh();
  }
}
