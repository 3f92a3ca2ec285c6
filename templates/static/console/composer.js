// Where messages are written: grows with its text, keeps the draft, takes files of text.
import { $, button, h, icon, toast } from "./dom.js";
import { local } from "./keep.js";

const LIMIT = 1 << 20; // bytes of one file

export class Composer {
  constructor({ send, stop }) {
    this.area = $("input");
    this.files = [];
    $("composer").onsubmit = (event) => {
      event.preventDefault();
      if (this.busy) stop();
      else if (!$("send").disabled && (this.area.value.trim() || this.files.length)) send(this.take());
    };
    this.area.oninput = () => this.changed();
    this.area.onkeydown = (event) => this.pressed(event);
    $("attach").onclick = () => $("file").click();
    $("file").onchange = ({ target }) => this.attach(target.files).then(() => (target.value = ""));
    this.listenForDrops();
  }

  pressed(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.busy) $("composer").requestSubmit();
  }

  /** The draft of this conversation; `key` names it where it is kept. */
  open(key) {
    const early = this.draft ? "" : this.area.value; // written while the page was loading
    this.draft = `smoe.draft.${key}`;
    this.set(early || (local.get(this.draft) ?? ""));
    this.files = [];
    this.showFiles();
  }

  /** The conversation has got its place. */
  keepAs(key) {
    local.set(this.draft, null);
    this.draft = `smoe.draft.${key}`;
    this.changed();
  }

  set(text) {
    this.area.value = text;
    this.changed();
  }

  changed() {
    const { value } = this.area;
    local.set(this.draft, value || null);
    this.area.style.height = "auto";
    this.area.style.height = `${Math.min(this.area.scrollHeight, innerHeight / 2.5)}px`;
  }

  take() {
    const message = { text: this.area.value.trim(), ...(this.files.length && { files: this.files }) };
    this.files = [];
    this.showFiles();
    this.set("");
    return message;
  }

  setBusy(busy) {
    if (this.busy === busy) return;
    this.busy = busy;
    $("send").replaceChildren(icon(busy ? "stop" : "send"));
    $("send").title = busy ? "Stop (Esc)" : "Send (Enter)";
  }

  async attach(files) {
    for (const file of files) {
      const text = file.size <= LIMIT ? await file.text() : null;
      if (text === null) toast(`${file.name} is larger than 1 MB.`);
      else if (/[\0\ufffd]/.test(text)) toast(`${file.name} is not a text file.`);
      else this.files.push({ name: file.name, text });
    }
    this.showFiles();
    this.area.focus();
  }

  showFiles() {
    $("files").replaceChildren(...this.files.map((file) => h("span", { className: "chip" }, icon("clip"), file.name,
      button("x", `Remove ${file.name}`, () => { this.files = this.files.filter((other) => other !== file); this.showFiles(); }))));
  }

  listenForDrops() {
    const show = (on) => document.body.classList.toggle("dropping", on);
    const onFiles = (type, act) => addEventListener(type, (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      act(event.dataTransfer.files);
    });
    onFiles("dragover", () => show(true));
    onFiles("drop", (files) => { show(false); this.attach(files); });
    addEventListener("dragleave", (event) => event.relatedTarget || show(false));
  }
}
