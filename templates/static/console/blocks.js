// The block structure of Markdown, line by line. A block once followed by another never changes when more text comes:
// that is what lets a growing reply be rendered a block at a time.

const FENCE = /^ {0,3}(`{3,}|~{3,}) *([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t](.*))?$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const empty = (line) => line.trim() === "";
const isTable = (lines, i) => lines[i].includes("|") && i + 1 < lines.length && lines[i + 1].includes("|") && DELIMITERS.test(lines[i + 1]);
const kindOfItem = (marker) => (/\d/.test(marker) ? marker.at(-1) : marker);

/** Whether line i ends a paragraph by being something else. Only a list that starts at 1 may. */
function interrupts(lines, i) {
  const line = lines[i];
  const item = ITEM.exec(line);
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || isTable(lines, i) ||
    (item && item[3] !== "" && (!/\d/.test(item[2]) || parseInt(item[2]) === 1));
}

function fence(lines, i) {
  const [, marks, info] = FENCE.exec(lines[i]);
  const end = new RegExp(`^ {0,3}${marks[0]}{${marks.length},}[ \\t]*$`);
  let to = i + 1;
  while (to < lines.length && !end.test(lines[to])) to++;
  return { type: "code", language: info.trim().split(/\s/)[0], text: lines.slice(i + 1, to).join("\n"), to: Math.min(to + 1, lines.length), closed: to < lines.length };
}

function quote(lines, i) {
  let to = i;
  while (to < lines.length && QUOTE.test(lines[to])) to++;
  return { type: "quote", lines: lines.slice(i, to).map((line) => line.replace(QUOTE, "")), to };
}

function list(lines, i) {
  const first = ITEM.exec(lines[i]);
  const items = [];
  let indent = 0;
  let to = i;
  for (; to < lines.length; to++) {
    const line = lines[to];
    const item = ITEM.exec(line);
    const inside = line.length - line.trimStart().length >= indent;
    if (item && (to === i || !inside)) {
      if (kindOfItem(item[2]) !== kindOfItem(first[2]) || RULE.test(line)) break;
      indent = item[1].length + item[2].length + (item[3].length > 4 ? 1 : item[3].length || 1);
      items.push([line.slice(indent)]);
    } else if (empty(line)) items.at(-1).push("");
    else if (inside) items.at(-1).push(line.slice(indent));
    else if (empty(lines[to - 1]) || interrupts(lines, to)) break;
    else items.at(-1).push(line.trimStart());
  }
  while (empty(lines[to - 1])) to--;
  const loose = items.some((item, n) => item.some((line, at) => empty(line) && at > 0 && (n + 1 < items.length || item.slice(at).some((rest) => !empty(rest)))));
  return { type: "list", ordered: /\d/.test(first[2]), start: parseInt(first[2]), items, loose, to };
}

const cells = (line) => line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));

function table(lines, i) {
  const align = cells(lines[i + 1]).map((cell) => (/^:.*:$/.test(cell) ? "center" : /:$/.test(cell) ? "end" : "start"));
  let to = i + 2;
  while (to < lines.length && !empty(lines[to]) && lines[to].includes("|")) to++;
  return { type: "table", align, head: cells(lines[i]), rows: lines.slice(i + 2, to).map(cells), to };
}

function paragraph(lines, i) {
  let to = i + 1;
  while (to < lines.length && !empty(lines[to]) && !interrupts(lines, to)) to++;
  return { type: "paragraph", text: lines.slice(i, to).map((line) => line.trimStart()).join("\n"), to };
}

function heading(match, i) {
  const text = (match[2] ?? "").trim();
  let end = text.length;
  while (text[end - 1] === "#") end--;
  return { type: "heading", level: match[1].length, text: end && text[end - 1] !== " " ? text : text.slice(0, end).trim(), to: i + 1 };
}

function block(lines, i) {
  const line = lines[i];
  const title = HEADING.exec(line);
  if (FENCE.test(line)) return fence(lines, i);
  if (title) return heading(title, i);
  if (RULE.test(line)) return { type: "rule", to: i + 1 };
  if (QUOTE.test(line)) return quote(lines, i);
  if (ITEM.test(line)) return list(lines, i);
  if (isTable(lines, i)) return table(lines, i);
  return paragraph(lines, i);
}

/** The blocks of these lines, each with `from` and `to` (line numbers, `to` exclusive). */
export function blocks(lines) {
  const found = [];
  for (let i = 0; i < lines.length; ) {
    if (empty(lines[i])) i++;
    else {
      found.push({ ...block(lines, i), from: i });
      i = found.at(-1).to;
    }
  }
  return found;
}
