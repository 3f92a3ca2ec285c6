// Inline Markdown -> DOM nodes. Anything that is not understood stays text; HTML and images always do.
import { h } from "./dom.js";

const DEPTH = 6;
const TOKEN = /\\([!-/:-@[-`{-~])|(`+)|(!?)\[|(\*+|_+|~~)|\bhttps?:\/\/[^\s<>]+|<((?:https?:\/\/|mailto:)[^\s<>]+)>|&(amp|lt|gt|quot|nbsp|#39);|( *\\?\n)/g;
// The bounds keep a hostile text's cost linear.
const LINK = /\[((?:[^[\]\\]|\\.|\[[^[\]]{0,200}\]){0,500})\]\(\s*<?([^\s<>()]*(?:\([^\s()]*\)[^\s()]*){0,4})>?(?:\s+(?:"[^"]{0,300}"|'[^']{0,300}'))?\s*\)/y;
const ENTITY = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", "#39": "'" };
const SAFE = new Set(["http:", "https:", "mailto:"]);
const ELEMENT = { "*": "em", _: "em", "**": "strong", __: "strong", "~~": "del" };

/** The address as the browser would open it, or null where it is relative or of a kind that could act. */
function safeUrl(text) {
  const url = URL.parse(text);
  return SAFE.has(url?.protocol) ? url.href : null;
}

function link(url, ...children) {
  const href = safeUrl(url);
  if (!href) return h("span", {}, ...children);
  if (!children.length) children = [url];
  return h("a", { href, title: href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

const space = (character) => character === undefined || /\s/.test(character);
const word = (character) => character !== undefined && /[\p{L}\p{N}]/u.test(character);

/** Where the emphasis opened before `from` by `mark` closes, or -1. A run of three closes two, then one. */
function closing(text, from, mark) {
  const runs = new RegExp(`\\\\.|\`+|\\${mark[0]}+`, "g");
  runs.lastIndex = from;
  for (let run; (run = runs.exec(text)); ) {
    const [found] = run;
    if (found[0] === "`") {
      const end = text.indexOf(found, runs.lastIndex);
      if (end > 0) runs.lastIndex = end + found.length;
    }
    if (found[0] !== mark[0]) continue;
    const fits = mark.length === 1 ? found.length !== 2 : found.length >= mark.length;
    const end = run.index + found.length;
    if (!fits || run.index === from || space(text[run.index - 1]) || (mark[0] === "_" && word(text[end]))) continue;
    return mark.length === 1 && found.length === 1 ? run.index : end - mark.length;
  }
  return -1;
}

/** One pass over `text`; `out` collects nodes and strings. */
export function inline(text, depth = 0) {
  const out = [];
  const hopeless = new Set(); // marks that have no closing one from here on
  const tokens = new RegExp(TOKEN);
  let done = 0;
  const emit = (upTo, end, node) => {
    if (upTo > done) out.push(text.slice(done, upTo));
    out.push(node);
    done = tokens.lastIndex = end;
  };
  for (let match; (match = tokens.exec(text)); ) {
    const { 0: all, 1: escaped, 2: ticks, 3: image, 4: run, 5: angled, 6: entity, 7: newline, index } = match;
    const end = tokens.lastIndex;
    if (escaped) emit(index, end, escaped);
    else if (entity) emit(index, end, ENTITY[entity]);
    else if (newline) emit(index, end, h("br"));
    else if (ticks) code(ticks, index, end);
    else if (run) emphasis(run, index, end);
    else if (image !== undefined) bracket(index, index + image.length);
    else if (depth >= DEPTH) continue;
    else if (angled) emit(index, end, link(angled, angled));
    else bare(all, index);
  }
  if (done < text.length) out.push(text.slice(done));
  return out;

  function code(ticks, index, end) {
    const close = hopeless.has(ticks) ? -1 : closeTicks(ticks, end);
    if (close < 0) hopeless.add(ticks);
    else emit(index, close + ticks.length, h("code", {}, text.slice(end, close).replace(/^ (.*\S.*) $/s, "$1")));
  }

  function closeTicks(ticks, from) {
    for (let at = from; (at = text.indexOf(ticks, at)) >= 0; ) {
      let after = at;
      while (text[after] === "`") after++;
      if (after - at === ticks.length) return at;
      at = after;
    }
    return -1;
  }

  function emphasis(run, index, end) {
    const mark = run.length === 2 ? run : run.length === 3 && run[0] !== "~" ? run.slice(0, 2) : run;
    const start = index + mark.length;
    if (!ELEMENT[mark] || depth >= DEPTH || hopeless.has(mark) || space(text[end])) return;
    if (mark[0] === "_" && word(text[index - 1])) return;
    const close = closing(text, start, mark);
    if (close < 0) hopeless.add(mark);
    else emit(index, close + mark.length, h(ELEMENT[mark], {}, ...inline(text.slice(start, close), depth + 1)));
  }

  function bracket(index, at) {
    LINK.lastIndex = at;
    const match = depth < DEPTH && LINK.exec(text);
    if (match) emit(index, LINK.lastIndex, link(match[2], ...inline(match[1], DEPTH)));
  }

  function bare(url, index) {
    let end = url.length;
    while (".,;:!?'\"*_~])".includes(url[end - 1]) && !(url[end - 1] === ")" && url.includes("("))) end--;
    emit(index, index + end, link(url.slice(0, end), url.slice(0, end)));
  }
}
