// The scrolling log: keeps views in step with the branch, and the end in sight while the reader is there.
import { $, h } from "./dom.js";
import { ReplyView, UserView } from "./messages.js";
import { path, siblings } from "./tree.js";

const NEAR = 60; // pixels from the end that still count as being there

export class Transcript {
  constructor(actions) {
    this.actions = actions;
    this.log = $("log");
    this.list = $("messages");
    this.views = new Map();
    this.pinned = true;
    this.log.addEventListener("scroll", () => this.scrolled(), { passive: true });
    const sizes = new ResizeObserver(() => requestAnimationFrame(() => this.follow()));
    for (const box of [this.log, this.list]) sizes.observe(box);
    $("jump").onclick = () => this.toEnd();
  }

  /** Only a reader scrolls up: more text, or blocks that take their true height once in sight, move the end away. */
  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.log;
    this.pinned = scrollHeight - scrollTop - clientHeight < NEAR || (this.pinned && scrollTop >= this.top);
    this.top = scrollTop;
    $("jump").hidden = this.pinned;
  }

  follow() {
    if (this.pinned) this.log.scrollTop = this.log.scrollHeight;
  }

  toEnd() {
    this.pinned = true;
    this.follow();
  }

  /** Shows this branch. `pending`: a notice that stands after the last message. */
  show(conversation, { busy, disk, pending }) {
    const nodes = path(conversation);
    const focus = this.focused();
    const parts = [];
    for (const node of nodes) {
      const view = this.viewOf(node);
      view.refresh({ siblings: siblings(conversation, node), busy, disk });
      parts.push(view.notes, view.element, view.after);
    }
    this.forget(new Set(nodes.map((node) => node.id)));
    if (pending) parts.push(h("p", { className: "note" }, pending));
    this.arrange(parts);
    this.follow();
    if (focus && document.activeElement === document.body) this.refocus(focus);
  }

  /** Which control of which message has the focus: buttons are made anew whenever a message changes. */
  focused() {
    const message = document.activeElement.closest?.(".message");
    return message && { at: this.articles().indexOf(message), name: document.activeElement.ariaLabel };
  }

  refocus({ at, name }) {
    const message = this.articles()[at] ?? this.articles().at(-1);
    const control = [...(message?.querySelectorAll("button") ?? [])].find((button) => button.ariaLabel === name && !button.disabled);
    (control ?? message ?? $("input")).focus({ preventScroll: true });
  }

  articles() {
    return [...this.list.querySelectorAll(".message")];
  }

  viewOf(node) {
    const known = this.views.get(node.id);
    if (known?.node === node) return known;
    const view = new (node.role === "user" ? UserView : ReplyView)(node, this.actions);
    this.views.set(node.id, view);
    return view;
  }

  forget(shown) {
    for (const id of this.views.keys()) if (!shown.has(id)) this.views.delete(id);
  }

  /** Moves only what is out of place: focus, selection and open details survive. */
  arrange(parts) {
    parts.forEach((part, n) => {
      if (this.list.childNodes[n] !== part) this.list.insertBefore(part, this.list.childNodes[n] ?? null);
    });
    while (this.list.childNodes.length > parts.length) this.list.lastChild.remove();
  }

  grow(node, disk) {
    this.views.get(node.id)?.grow?.(disk);
    this.follow();
  }
}
