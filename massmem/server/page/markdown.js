// Markdown as elements. marked reads the text; only the elements below are made, and HTML in the text stays text.
import { lexer, walkTokens } from "./vendor/marked.js";
import { h } from "./html.js";

const MOST = 200_000; // characters; a longer text is shown as it is
const OPTIONS = { gfm: true, breaks: true };

export function Markdown({ text }) {
  if (text.length > MOST) return h("div", { class: "prose plain" }, cutUp(text).map((piece) => h("div", { class: "piece" }, piece)));
  const tokens = lexer(text, OPTIONS);
  setHeadingLevels(tokens);
  return h("div", { class: "prose" }, blocks(tokens));
}

// Only the pieces near the screen are laid out. A piece ends with a word, where there is one.
const cutUp = (text) => text.match(/[^]{1,20000}(?=\s|$)\s?|[^]{1,20000}/gu) || [];

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

const blocks = (tokens) => tokens.map(block);
const inlines = (tokens) => (tokens || []).map(inline);

function block(token) {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      return h(`h${token.level}`, null, inlines(token.tokens));
    case "paragraph":
      return h("p", null, inlines(token.tokens));
    case "text":
      return token.tokens ? inlines(token.tokens) : token.text;
    case "code":
      return h("pre", { tabIndex: 0 }, h("code", null, token.text));
    case "blockquote":
      return h("blockquote", null, blocks(token.tokens));
    case "hr":
      return h("hr");
    case "list":
      return h(token.ordered ? "ol" : "ul", token.ordered ? { start: token.start || 1 } : null, token.items.map(item));
    case "table":
      return table(token);
    default:
      return h("p", null, token.raw);
  }
}

const item = (token) => h("li", null, token.task ? (token.checked ? "☑ " : "☐ ") : null, blocks(token.tokens));

function table(token) {
  const cells = (row, name) => row.map((cell) => h(name, null, inlines(cell.tokens)));
  return h(
    "div",
    { class: "table", tabIndex: 0, role: "region", "aria-label": "Table" },
    h("table", null, [
      h("thead", null, h("tr", null, cells(token.header, "th"))),
      h("tbody", null, token.rows.map((row) => h("tr", null, cells(row, "td")))),
    ]),
  );
}

function inline(token) {
  switch (token.type) {
    case "strong":
      return h("strong", null, inlines(token.tokens));
    case "em":
      return h("em", null, inlines(token.tokens));
    case "del":
      return h("del", null, inlines(token.tokens));
    case "codespan":
      return h("code", null, token.text);
    case "br":
      return h("br");
    case "escape":
      return token.text;
    case "link":
      return link(token);
    case "image": // never fetched: an address may carry away what the answer says
      return token.raw;
    case "text":
      return token.tokens ? inlines(token.tokens) : token.text;
    case "checkbox": // the list item shows it
      return null;
    default:
      return token.raw;
  }
}

function link(token) {
  if (!/^https?:\/\//i.test(token.href)) return token.raw;
  return h("a", { href: token.href, target: "_blank", rel: "noopener noreferrer nofollow" }, inlines(token.tokens));
}
