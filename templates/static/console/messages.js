// The messages of the branch that is shown: one view each, kept while the message stays.
import { button, h, icon } from "./dom.js";
import { Markdown } from "./markdown.js";
import { Monitor } from "./monitor.js";
import { seconds } from "./format.js";

const NOTES = {
  stopped: "Stopped.",
  interrupted: "Interrupted: the page was closed before this reply ended.",
};

const text = (label, onclick, className = "") => h("button", { className: `text-button ${className}`, onclick }, label);
const note = (words) => h("p", { className: "note" }, words);

class View {
  constructor(node, actions) {
    this.node = node;
    this.actions = actions;
    this.notes = h("div");
    this.after = h("div");
    this.body = h("div", { className: "body" });
    this.tools = h("div", { className: "tools" });
    this.element = h("article", { className: `message ${node.role}`, tabIndex: -1, "aria-label": node.role === "user" ? "You" : "Reply" }, this.body, this.tools);
  }

  /** The two that every message has, and the way between its alternatives. */
  common(siblings) {
    const { node, actions } = this;
    const at = siblings.indexOf(node);
    const to = (n) => () => actions.branch(siblings[n]);
    const branches = siblings.length > 1 && h("span", { className: "branches" },
      button("left", "Previous version", to(at - 1), { disabled: at === 0 }),
      h("span", {}, `${at + 1} / ${siblings.length}`),
      button("right", "Next version", to(at + 1), { disabled: at === siblings.length - 1 }));
    return [branches, button("copy", "Copy message", () => actions.copy(node.text)), button("trash", "Delete message and what follows", () => actions.remove(node))];
  }
}

export class UserView extends View {
  refresh({ siblings, busy }) {
    const { node } = this;
    const files = (node.files ?? []).map(({ name, text }) =>
      h("details", { className: "file" }, h("summary", {}, icon("clip"), name), h("pre", { tabIndex: 0 }, text)));
    this.body.replaceChildren(...files, h("p", { dir: "auto" }, node.text));
    const [branches, ...rest] = this.common(siblings);
    this.tools.replaceChildren(...[branches, !busy && button("edit", "Edit and branch", () => this.edit()), ...rest].filter(Boolean));
  }

  edit() {
    const area = h("textarea", { value: this.node.text, dir: "auto", ariaLabel: "Edit message" });
    const done = () => this.actions.redraw(this.node);
    const send = () => area.value.trim() && this.actions.edit(this.node, area.value.trim());
    area.onkeydown = (event) => {
      if (event.key === "Escape") done();
      else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
      else return;
      event.stopPropagation();
    };
    this.body.replaceChildren(h("div", { className: "editor" }, area, h("div", { className: "row" }, text("Cancel", done), text("Send", send, "primary"))));
    this.tools.replaceChildren();
    area.style.height = `${Math.min(area.scrollHeight + 2, 400)}px`;
    area.focus();
  }
}

export class ReplyView extends View {
  constructor(node, actions) {
    super(node, actions);
    this.markdown = new Markdown();
    this.thoughts = new Markdown();
    this.thinking = h("details", { className: "thinking", hidden: true }, h("summary"), this.thoughts.element);
    this.shown = [];
    this.monitors = h("div");
    this.verdict = h("div");
    this.body.append(this.thinking, this.markdown.element, this.verdict);
    this.body.after(this.monitors);
  }

  /** Text and clock only: cheap enough for every frame. */
  grow(disk) {
    const { node } = this;
    this.markdown.update(node.text);
    if (node.reasoning) this.think();
    (node.runs ?? []).forEach((run, n, runs) => this.monitor(n).update(run, n === runs.length - 1 ? { disk, finish: node.finish } : {}));
  }

  think() {
    const { node, thinking } = this;
    const during = node.status === "streaming" && !node.text;
    thinking.hidden = false;
    const words = during ? "Thinking" : "Thought process";
    if (thinking.firstChild.textContent !== words) thinking.firstChild.textContent = words;
    this.thoughts.update(node.reasoning);
  }

  monitor(n) {
    if (!this.shown[n]) this.monitors.append((this.shown[n] = new Monitor()).element);
    return this.shown[n];
  }

  refresh({ siblings, busy, disk }) {
    const { node, actions } = this;
    const streaming = node.status === "streaming";
    this.element.classList.toggle("streaming", streaming);
    this.element.ariaBusy = streaming;
    for (const gone of this.shown.splice(node.runs?.length ?? 0)) gone.element.remove();
    this.grow(disk);
    this.verdict.replaceChildren(...(streaming ? [] : this.judge(busy)));
    this.notes.replaceChildren(...(node.notes ?? []).map(note));
    this.after.replaceChildren(...(node.after ? [note(node.after)] : []));
    const [branches, ...rest] = this.common(siblings);
    const again = !busy && button("again", "Regenerate", () => actions.regenerate(node));
    this.tools.replaceChildren(...(streaming ? [] : [branches, again, ...rest].filter(Boolean)));
  }

  /** How it ended, where that needs saying, and the way on. */
  judge(busy) {
    const { node, actions } = this;
    const onwards = !busy && (node.text || node.reasoning) && text("Continue", () => actions.proceed(node), "primary");
    const card = (kind, words, ...buttons) => [h("div", { className: `card ${kind}` }, h("p", {}, words), h("div", { className: "row" }, ...buttons))];
    if (node.status === "error") return this.failed(card, onwards, busy);
    if (NOTES[node.status]) return card("quiet", NOTES[node.status], onwards);
    if (node.finish === "length") return card("length", "Cut off: this reply reached its length limit.", onwards);
    return [];
  }

  failed(card, onwards, busy) {
    const { error } = this.node;
    const left = (error.until ?? 0) - Date.now();
    const hint = left > 0 ? ` Try again in ${seconds(Math.ceil(left / 1000) * 1000).replace(".0", "")}.` : "";
    clearTimeout(this.timer);
    if (left > 0) this.timer = setTimeout(() => this.actions.redraw(this.node), 1000);
    const key = error.kind === "key" && text("Enter key", this.actions.askKey);
    return card("error", error.message + hint, key, !busy && text("Retry", () => this.actions.retry(this.node), onwards ? "" : "primary"), onwards);
  }
}
