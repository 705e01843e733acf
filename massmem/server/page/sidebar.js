// The list of conversations, with search, and the ways to the other views.
import { html, useEffect, useRef, useState } from "./html.js";
import { getJson } from "./api.js";
import { dayGroup, exactly, when } from "./format.js";
import { Icon, placeOf, Trouble, useInterval } from "./parts.js";

const PAGE = 40;
const REFRESH = 10_000; // milliseconds; other programs talk to the same sessions
const MARKS = { active: "under way", interrupted: "interrupted", failed: "failed", waiting: "waits for you" };

export function Sidebar({ about, route, onHelp, onImport, onClose, onLeave }) {
  const [text, setText] = useState("");
  const [list, setList] = useState({ sessions: [], total: 0, loaded: false });
  const [hits, setHits] = useState([]);
  const [problem, setProblem] = useState(null);
  const wanted = useRef(0);
  const shown = useRef(PAGE);

  const load = async () => {
    const ticket = ++wanted.current;
    const words = text.trim();
    try {
      const limit = Math.min(shown.current, 200);
      const pages = [getJson(`api/v1/sessions?limit=${limit}&text=${encodeURIComponent(words)}`)];
      for (let offset = limit; offset < shown.current; offset += 200) pages.push(getJson(`api/v1/sessions?limit=200&offset=${offset}&text=${encodeURIComponent(words)}`));
      const found = words.length > 1 || /[^\0-\u02ff]/.test(words) ? getJson(`api/v1/search?limit=20&query=${encodeURIComponent(words)}`) : { hits: [] };
      const results = await Promise.all(pages);
      const messages = await found;
      if (ticket !== wanted.current) return;
      setList({ sessions: results.flatMap((page) => page.sessions), total: results[0].total, loaded: true });
      setHits(messages.hits);
      setProblem(null);
    } catch (error) {
      if (ticket === wanted.current && error.status !== 401) setProblem(error);
    }
  };

  useEffect(() => {
    const timer = setTimeout(load, text ? 200 : 0);
    return () => clearTimeout(timer);
  }, [text]);
  useEffect(() => {
    const refresh = () => load();
    window.addEventListener("massmem-sessions", refresh);
    return () => window.removeEventListener("massmem-sessions", refresh);
  });
  useInterval(load, REFRESH);

  const more = () => {
    shown.current += 100;
    load();
  };
  let group = "";
  return html`
    <nav class="sidebar" aria-label="massmem" onClick=${(e) => e.target.closest("a") && onClose()}>
      <header><a class="brand" href="#/"><img src="page/icon.svg" alt="" width="24" height="24" />massmem</a></header>
      <a class="new" href="#/"><${Icon} name="plus" />New conversation</a>
      <ul class="views">
        <${ViewLink} href="#/memory" icon="memory" name="Memory" isCurrent=${route.view === "memory"} />
        <${ViewLink} href="#/figures" icon="chart" name="Figures" isCurrent=${route.view === "figures"} />
      </ul>
      <div class="find" role="search"><${Icon} name="search" />
        <input id="find" type="search" placeholder="Search" aria-label="Search conversations" value=${text} onInput=${(e) => setText(e.target.value)} /></div>
      <div class="list" tabindex="0" role="region" aria-label="Conversations">
        <${Trouble} problem=${problem} onRetry=${load} />
        ${list.loaded && list.sessions.length === 0 && hits.length === 0 && html`<p class="dim">${text ? "Nothing matches." : "Your conversations will be here."}</p>`}
        <ul>${list.sessions.map((session) => {
          const heading = text ? "" : dayGroup(session.updated_at);
          const isFirst = heading !== group;
          group = heading;
          return html`${isFirst && heading && html`<li class="group" key=${heading}>${heading}</li>`}
            <${SessionLink} key=${session.session_id} session=${session} isCurrent=${route.id === session.session_id} />`;
        })}</ul>
        ${list.total > list.sessions.length && html`<button type="button" class="plain more" onClick=${more}>Show more of ${list.total.toLocaleString("en")}</button>`}
        ${hits.length > 0 && html`<h2 class="group">Messages</h2><ul>${hits.map((hit) => html`
          <li><a class="hit" href=${placeOf(hit)}>
            <span class="title">${hit.title || hit.session_id}</span><span class="excerpt">${hit.agent ? `${hit.agent}: ` : ""}${hit.excerpt}</span></a></li>`)}</ul>`}
      </div>
      <footer>
        <span class="who" title=${about.user === null ? "The user of this machine" : about.user}>${about.user === null ? "This machine" : about.user}</span>
        <button type="button" class="icon-button" aria-label="Import conversations" title="Import conversations" onClick=${onImport}><${Icon} name="in" /></button>
        <button type="button" class="icon-button" aria-label="Keys" title="Keys" onClick=${onHelp}><${Icon} name="help" /></button>
        ${about.user !== null && html`<button type="button" class="icon-button" aria-label="Leave" title="Leave" onClick=${onLeave}><${Icon} name="out" /></button>`}
      </footer>
    </nav>`;
}

const ViewLink = ({ href, icon, name, isCurrent }) => html`<li><a href=${href} aria-current=${isCurrent ? "page" : undefined}><${Icon} name=${icon} />${name}</a></li>`;

const SessionLink = ({ session, isCurrent }) => html`
  <li><a href=${`#/c/${encodeURIComponent(session.session_id)}`} aria-current=${isCurrent ? "page" : undefined} title=${session.title || session.session_id}>
    <span class="title">${session.title || session.session_id}</span>
    ${MARKS[session.status] ? html`<span class=${`mark ${session.status}`}>${MARKS[session.status]}</span>` : html`<time datetime=${session.updated_at} title=${exactly(session.updated_at)}>${when(session.updated_at)}</time>`}
  </a></li>`;
