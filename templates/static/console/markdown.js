// A reply's Markdown as DOM, growing: closed blocks are never touched again, the open one is patched.
import { blocks } from "./blocks.js";
import { button, h } from "./dom.js";
import { highlight } from "./highlight.js";
import { inline } from "./inline.js";

const DEPTH = 8; // of quotes and lists in each other; what lies deeper is shown as text

/** A heading's rank in the page, whose own title has the first: as deep as the headings above it say, none skipped. */
function rank(level, above) {
  while (above.at(-1) >= level) above.pop();
  return above.push(level) + 1;
}

const RTL = /^\P{L}*[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

/** Of what holds blocks: `dir="auto"` passes over children with a direction of their own. */
const direction = (text) => (RTL.test(text) ? "rtl" : "ltr");

function item(lines, loose, depth) {
  const task = /^\[([ xX])\] /.exec(lines[0]);
  const body = task ? [lines[0].slice(4), ...lines.slice(1)] : lines;
  const parts = blocks(body).map((part) => (part.type === "paragraph" && !loose ? inline(part.text) : element(part, depth)));
  const box = task && h("input", { type: "checkbox", checked: task[1] !== " ", disabled: true, "aria-label": "Task" });
  return h("li", {}, box, ...parts);
}

function table({ align, head, rows }) {
  const row = (tag, texts) => h("tr", {}, head.map((_, column) => h(tag, { dir: "auto", className: align[column] ?? "start" }, ...inline(texts[column] ?? ""))));
  return h("div", { className: "table", tabIndex: 0, role: "group", "aria-label": "Table" },
    h("table", { dir: direction(head.join(" ")) }, h("thead", {}, row("th", head)), h("tbody", {}, rows.map((cells) => row("td", cells)))));
}

function element(block, depth = 0) {
  const { type, text, lines, level, rank, ordered, start, items, loose } = block;
  if (type === "code") return new Code(block).element;
  if (type === "heading") return h(rank ? `h${Math.min(rank, 6)}` : "p", { dir: "auto", className: `level${level}` }, ...inline(text));
  if (type === "rule") return h("hr");
  if (type === "table") return table(block);
  if (type === "paragraph") return h("p", { dir: "auto" }, ...inline(text));
  if (depth >= DEPTH) return h("p", {}, (lines ?? items.flat()).join("\n"));
  if (type === "quote") return h("blockquote", { dir: direction(lines.join(" ")) }, blocks(lines).map((part) => element(part, depth + 1)));
  return h(ordered ? "ol" : "ul", { ...(ordered && { start }), dir: direction(items.flat().join(" ")) }, items.map((lines) => item(lines, loose, depth + 1)));
}

/** A block of code; growing it only adds the new text's nodes. */
class Code {
  constructor(block) {
    this.language = block.language;
    this.code = h("code", { dir: "ltr" });
    const pre = h("pre", { tabIndex: 0, role: "group", "aria-label": block.language ? `Code, ${block.language}` : "Code" }, this.code);
    const head = h("div", { className: "code-head" }, h("span", {}, block.language || "text"), button("copy", "Copy code", null, { "data-copy": "code" }));
    this.element = h("div", { className: "code" }, head, pre);
    this.from = 0; // where the text of the tail begins
    this.tail = 0; // nodes before it are final
    this.update(block);
  }

  update({ text }) {
    if (text.length < this.from) this.from = this.tail = 0; // what looked like text was the closing fence
    const tail = text.slice(this.from);
    const coloured = (part) => highlight(part, this.language);
    const { nodes, safe } = coloured(tail);
    const parts = safe ? [coloured(tail.slice(0, safe)).nodes, coloured(tail.slice(safe)).nodes] : [[], nodes];
    while (this.code.childNodes.length > this.tail) this.code.lastChild.remove();
    this.code.append(...parts.flat());
    this.tail += parts[0].length;
    this.from += safe;
  }
}

function takeAttributes(old, fresh) {
  for (const name of old.getAttributeNames()) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
}

/** Makes `old` equal to `fresh`, keeping every node that already is: selection and layout survive. */
function patch(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType === Node.TEXT_NODE && fresh.nodeType === Node.TEXT_NODE) old.data = fresh.data;
  else if (old.nodeType !== Node.ELEMENT_NODE || fresh.nodeType !== Node.ELEMENT_NODE || old.nodeName !== fresh.nodeName) old.replaceWith(fresh);
  else {
    takeAttributes(old, fresh);
    const children = [...fresh.childNodes];
    while (old.childNodes.length > children.length) old.lastChild.remove();
    children.forEach((child, n) => (old.childNodes[n] ? patch(old.childNodes[n], child) : old.append(child)));
  }
}

export class Markdown {
  constructor() {
    this.element = h("div", { className: "markdown" });
    this.reset();
  }

  reset() {
    this.source = "";
    this.from = 0; // where the open block begins
    this.closed = 0; // elements before this one are final
    this.above = []; // levels of the closed headings that the next one stands under
    this.open = null; // {at, code}: the code block that is growing
    this.element.replaceChildren();
  }

  /** Shows `source`; cheap when it only grew. */
  update(source) {
    if (!source.startsWith(this.source)) this.reset();
    this.source = source;
    const tail = source.slice(this.from);
    const complete = tail.slice(0, tail.lastIndexOf("\n") + 1).split("\n");
    const settled = blocks(complete.slice(0, -1));
    const lines = tail.split("\n");
    this.show(blocks(lines));
    if (settled.length > 1) this.close(settled, lines);
  }

  show(found) {
    const above = [...this.above];
    for (const block of found) if (block.type === "heading") block.rank = rank(block.level, above);
    found.forEach((block, n) => this.showOne(block, this.closed + n));
    while (this.element.children.length > this.closed + found.length) this.element.lastChild.remove();
  }

  showOne(block, at) {
    const old = this.element.children[at];
    if (block.type === "code" && this.open?.at === at && this.open.code.language === block.language) return this.open.code.update(block);
    if (this.open?.at === at) this.open = null;
    const code = block.type === "code" ? new Code(block) : null;
    const fresh = code ? code.element : element(block);
    if (code) this.open = { at, code };
    if (!old) this.element.append(fresh);
    else if (code) old.replaceWith(fresh);
    else patch(old, fresh);
  }

  /** All but the last of the blocks that whole lines make are final: a later line cannot change them. */
  close(settled, lines) {
    const last = settled.at(-1).from;
    for (const block of settled.slice(0, -1)) if (block.type === "heading") rank(block.level, this.above);
    this.closed += settled.length - 1;
    this.from += lines.slice(0, last).join("\n").length + 1;
  }
}
