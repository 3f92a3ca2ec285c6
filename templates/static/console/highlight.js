// Quiet colours for code: comments, strings, numbers and common keywords, told apart by the language's comment style.
import { h } from "./dom.js";

const KEYWORDS = "abstract and as assert async await break case catch class const continue def default defer del do elif else enum except export extends extern false False final finally fn for from func function global go if impl implements import in instanceof interface is lambda let match mod module mut namespace new nil None not null or package pass private protected pub public raise return self static struct super switch template this throw trait true True try type typedef typeof union unsafe use using var virtual void where while with yield int float double bool string char long auto echo then fi done esac local end begin";
const COMMENT = { hash: "#[^\\n]*", slash: "//[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)", dash: "--[^\\n]*", tag: "<!--[\\s\\S]*?(?:-->|$)", none: "(?!)" };
const FAMILY = { hash: "py python sh bash shell zsh rb ruby yaml yml toml r perl make makefile dockerfile ini elixir", dash: "sql lua haskell hs", tag: "html xml svg", none: "text txt plain md markdown console output diff" };

const keywords = new Set(KEYWORDS.split(" "));
const families = new Map(Object.entries(FAMILY).flatMap(([family, names]) => names.split(" ").map((name) => [name, family])));
const patterns = new Map();

function patternOf(language) {
  const family = families.get(language.toLowerCase()) ?? "slash";
  if (!patterns.has(family)) {
    const strings = family === "none" ? "(?!)" : `"""[\\s\\S]*?(?:"""|$)|"(?:[^"\\\\\\n]|\\\\.)*"|'(?:[^'\\\\\\n]|\\\\.)*'|\`(?:[^\`\\\\]|\\\\[\\s\\S])*(?:\`|$)`;
    patterns.set(family, new RegExp(`(${COMMENT[family]})|(${strings})|\\b(\\d[\\w.]*)\\b|\\b([A-Za-z_]\\w*)\\b|(\\n)`, "g"));
  }
  return patterns.get(family);
}

/** The nodes of `code`; `safe` is the start of the last line that begins outside every token. */
export function highlight(code, language) {
  const pattern = patternOf(language);
  const nodes = [];
  let plain = 0;
  let safe = 0;
  pattern.lastIndex = 0;
  for (let match; (match = pattern.exec(code)); ) {
    const [all, comment, string, number, name, newline] = match;
    if (newline) safe = pattern.lastIndex;
    const kind = comment ? "c" : string ? "s" : number ? "n" : keywords.has(name) && pattern !== patternOf("txt") ? "k" : null;
    if (!kind) continue;
    if (match.index > plain) nodes.push(code.slice(plain, match.index));
    nodes.push(h("span", { className: kind }, all));
    plain = pattern.lastIndex;
  }
  if (plain < code.length) nodes.push(code.slice(plain));
  return { nodes, safe };
}
