// Markdown as elements. marked reads the text; only the elements below are made, and HTML in the text stays text.
// KaTeX and highlight.js are loaded once there is something for them; they make elements, too, and no markup.
import { Marked, walkTokens } from "./vendor/marked.js";
import { Fragment, h, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { Copy } from "./parts.js";

const MOST = 200_000; // characters; a longer text is shown as it is
const LONG = 20_000; // characters that are shown of a text that grows, and of code in colours

const FORMULA = /^(?:\$\$([^]{1,4000}?)\$\$|\\\[([^]{1,4000}?)\\\]|\\\(([^]{1,4000}?)\\\)|\$(?![\s$])((?:\\.|[^\\$\n])*?[^\\\s$])\$(?!\d))/;
function readFormula(source) {
  const match = FORMULA.exec(source);
  if (match) return { type: "formula", raw: match[0], text: match.slice(1).find(Boolean), isBlock: Boolean(match[1] || match[2]) };
}
function readFormulas(source) {
  const formula = readFormula(source);
  if (formula?.isBlock && /^[ \t]*(?:\n|$)/.test(source.slice(formula.raw.length))) return formula;
}
function readNote(source) {
  const match = /^\[\^([^\]\s]{1,60})\]:[ \t]*([^]{0,4000}?)(?=\n\[\^|\n\s*\n|\n*$)/.exec(source);
  if (match) return { type: "note", raw: match[0], name: match[1], tokens: this.lexer.inline(match[2]) };
}
function readReference(source) {
  const match = /^\[\^([^\]\s]{1,60})\]/.exec(source);
  if (match) return { type: "reference", raw: match[0], name: match[1] };
}
const find = (pattern) => (source) => source.slice(0, 2_000).match(pattern)?.index;
const MARKED = new Marked({ gfm: true, breaks: true }, { extensions: [
  { name: "formula", level: "inline", start: find(/\$|\\[([]/), tokenizer: readFormula },
  { name: "formulas", level: "block", start: find(/\n(?:\$\$|\\\[)/), tokenizer: readFormulas },
  { name: "note", level: "block", start: find(/\n\[\^/), tokenizer: readNote },
  { name: "reference", level: "inline", start: find(/\[\^/), tokenizer: readReference },
] });

// isOpen: the text grows.
export function Markdown({ text, isOpen = false }) {
  const state = useRef(null);
  if (text.length > MOST && !isOpen) return h("div", { class: "prose plain", dir: "auto" }, cutUp(text).map((piece) => h("div", { class: "piece" }, piece)));
  if (state.current?.source !== text || state.current.isOpen !== isOpen) state.current = read(text, isOpen, state.current);
  return h("div", { class: isOpen ? "prose streaming" : "prose" }, state.current.shown);
}

// Only the pieces near the screen are laid out. A piece ends with a word, where there is one.
const cutUp = (text) => text.match(/[^]{1,20000}(?=\s|$)\s?|[^]{1,20000}/gu) || [];

// Of a text that grows only its last block is read again: the elements of those before it stay as they are.
function read(source, isOpen, last) {
  const text = source.replace(/\r\n?/g, "\n");
  const old = isOpen && last?.isOpen && text.startsWith(last.text) ? last : { start: 0, settled: [] };
  const tokens = [...old.settled, ...MARKED.lexer(text.slice(old.start))];
  setHeadingLevels(tokens);
  const settled = isOpen ? tokens.slice(0, Math.max(tokens.findLastIndex((token) => token.type !== "space"), 0)) : tokens;
  let { start } = old;
  for (const token of settled.slice(old.settled.length)) {
    Object.assign(token, { start, element: h(Fragment, { key: start }, block(token)) });
    start += token.raw.length;
  }
  const shown = settled.filter((token) => !isOpen || token.start > text.length - LONG).map((token) => token.element);
  const grow = (token) => (token.raw.length > LONG ? h("p", { class: "plain" }, `… ${token.raw.slice(-LONG)}`) : block(token, true));
  const rest = tokens.slice(settled.length).map((token, index) => h(Fragment, { key: start + index }, grow(token)));
  return { source, text, isOpen, start, settled, shown: [...shown, ...rest] };
}

// Models begin with headings of any depth, and skip some. On the page the first is a second heading, and none is skipped.
function setHeadingLevels(tokens) {
  const headings = [];
  walkTokens(tokens, (token) => token.type === "heading" && headings.push(token));
  const depths = [...new Set(headings.map((token) => token.depth))].sort();
  let last = 1;
  for (const token of headings) {
    last = Math.min(2 + depths.indexOf(token.depth), last + 1, 6);
    token.level = last;
  }
}

const AUTO = { dir: "auto" };
const blocks = (tokens) => tokens.map((token) => block(token));
const inlines = (tokens) => (tokens || []).map(inline);

// isOpen: it may go on.
function block(token, isOpen = false) {
  switch (token.type) {
    case "space":
    case "def":
    case "checkbox": // the list item shows it
      return null;
    case "heading":
      return h(`h${token.level}`, AUTO, inlines(token.tokens));
    case "paragraph":
      return h("p", AUTO, inlines(token.tokens));
    case "text":
      return h(Fragment, null, token.tokens ? inlines(token.tokens) : token.text);
    case "code":
      return h(Code, { text: token.text, language: isOpen ? "" : token.lang || "" });
    case "formula":
      return h(Formula, token);
    case "note":
      return h("p", { class: "note", dir: "auto", tabIndex: -1, "data-note": token.name }, [h("sup", null, token.name), " ", inlines(token.tokens)]);
    case "blockquote":
      return h("blockquote", AUTO, blocks(token.tokens));
    case "hr":
      return h("hr");
    case "list":
      return h(token.ordered ? "ol" : "ul", { dir: "auto", start: token.ordered ? token.start || 1 : undefined }, token.items.map(item));
    case "table":
      return table(token);
    default:
      return h("p", null, token.raw);
  }
}

const item = (token) => h("li", token.task ? { class: "task" } : null, token.task && h("input", { type: "checkbox", disabled: true, checked: token.checked, "aria-label": token.checked ? "Done" : "To do" }), blocks(token.tokens));

// Of many columns, a narrow screen shows each row as a list: every cell below the first with the name of its column.
function table(token) {
  const isWide = token.header.length > 4;
  const label = (index) => index > 0 && h("span", { class: "label" }, inlines(token.header[index].tokens));
  const fill = (cell, index, name) => (isWide && name === "td" ? [label(index), h("span", null, inlines(cell.tokens))] : inlines(cell.tokens));
  const cells = (row, name) => row.map((cell, index) => h(name, { dir: "auto", style: { textAlign: token.align[index] || undefined } }, fill(cell, index, name)));
  return h(
    "div",
    { class: isWide ? "table wide" : "table", tabIndex: 0, role: "region", "aria-label": "Table" },
    h("table", null, [
      h("thead", null, h("tr", null, cells(token.header, "th"))),
      h("tbody", null, token.rows.map((row) => h("tr", null, cells(row, "td")))),
    ]),
  );
}

function inline(token) {
  switch (token.type) {
    case "strong":
    case "em":
    case "del":
      return h(token.type, null, inlines(token.tokens));
    case "codespan":
      return h("code", null, token.text);
    case "br":
      return h("br");
    case "escape":
      return token.text;
    case "link":
      return link(token);
    case "text":
      return token.tokens ? inlines(token.tokens) : token.text;
    case "formula":
      return h(Formula, token);
    case "reference":
      return h("sup", null, h("button", { type: "button", class: "plain", "aria-label": `Note ${token.name}`, onClick: goToNote }, token.name));
    case "checkbox":
      return null;
    case "image": // never fetched: an address may carry away what the answer says
    default:
      return token.raw;
  }
}

function link(token) {
  if (!/^https?:\/\//i.test(token.href)) return token.raw;
  return h("a", { href: token.href, target: "_blank", rel: "noopener noreferrer nofollow" }, inlines(token.tokens));
}

const goToNote = ({ target }) => target.closest(".prose").querySelector(`[data-note="${CSS.escape(target.textContent)}"]`)?.focus();

const LIBRARIES = {
  highlight: () => import("./vendor/highlight.js").then((module) => module.default),
  katex: () => Promise.all([import("./vendor/katex.js"), loadStyles("page/vendor/katex.css")]).then(() => globalThis.katex),
};
const [loading, loaded] = [{}, {}];
const loadStyles = (href) => new Promise((resolve, reject) => document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href, onload: resolve, onerror: reject })));

// Returns a library as soon as it is there. name: empty: none is needed.
function useLibrary(name) {
  const [, redraw] = useState(false);
  useEffect(() => {
    // The text is there without it.
    if (name) (loading[name] ??= LIBRARIES[name]().then((library) => (loaded[name] = library), () => {})).then(() => redraw(true));
  }, [name]);
  return loaded[name];
}

function Code({ text, language }) {
  const name = language.match(/^[\w+#-]*/)[0].toLowerCase();
  const library = useLibrary(name && text.length <= LONG ? "highlight" : "");
  const tree = library?.getLanguage(name) ? library.highlight(text, { language: name, ignoreIllegals: true })._emitter.rootNode.children.map(colour) : text;
  return h("div", { class: "code", dir: "ltr" }, [h("pre", { tabIndex: 0 }, h("code", null, tree)), h(Copy, { text, what: "the code" }), name === "mermaid" && text.length <= LONG && h(Draw, { text })]);
}

// A tab of its own, without any rights: the library makes markup from what a model wrote, and may be busy with it for long.
const Draw = ({ text }) => h("a", { class: "draw", href: `page/diagram.html#${encodeURIComponent(text.toWellFormed())}`, target: "_blank", rel: "noopener noreferrer", title: "Draw the diagram in a new tab" }, "Draw");

const colour = (node) => (typeof node === "string" ? node : h("span", { class: node.scope ? `hl-${node.scope.split(".")[0]}` : undefined }, node.children.map(colour)));

// trust: asked about what would bring an address or a style along.
const LIMITS = { maxSize: 20, maxExpand: 200, strict: "ignore", trust: () => { throw new Error("no formula alone"); } };

// A formula that KaTeX cannot read, or that is not only one, is shown as it was written.
function Formula({ text, raw, isBlock }) {
  const element = useRef(null);
  const katex = useLibrary("katex");
  useLayoutEffect(() => {
    const showSource = () => element.current.replaceChildren(raw);
    try { katex ? katex.render(text, element.current, { ...LIMITS, displayMode: isBlock }) : showSource(); } catch { showSource(); }
  }, [katex, text]);
  return h("span", { ref: element, class: isBlock ? "formula block" : "formula", dir: "ltr", tabIndex: isBlock ? 0 : undefined });
}
