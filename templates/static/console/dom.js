// The only way that elements are made: a tag, properties, text. No markup is ever parsed, so none can become live.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name in element && !name.startsWith("popover")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child || child === 0));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
const SPRITE = new URL("icons.svg", import.meta.url).pathname;

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `${SPRITE}#${name}`);
  svg.setAttribute("class", "icon");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

export const button = (name, label, onclick, props = {}) =>
  h("button", { type: "button", className: "icon-button", "aria-label": label, title: label, onclick, ...props }, icon(name));

export const $ = (id) => document.getElementById(id);

/** Announces one change of state to screen readers. */
export function announce(text) {
  $("announcer").textContent = text;
}

/** A short message that goes by itself; `undo` puts a button on it. */
export function toast(text, undo) {
  const box = $("toast");
  const close = () => box.replaceChildren();
  clearTimeout(toast.timer);
  box.replaceChildren(h("div", {}, h("span", {}, text),
    undo && h("button", { onclick: () => { close(); undo(); } }, "Undo")));
  toast.timer = setTimeout(close, undo ? 10000 : 4000);
}

/** Copies text; the clipboard API is missing where the page is not on https or loopback. */
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea", { value: text, className: "hidden" });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw 0;
}
