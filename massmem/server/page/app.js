// The page: who is here, what is shown, and the list of conversations beside it.
import { html, render, useCallback, useEffect, useErrorBoundary, useRef, useState } from "./html.js";
import { enter, getJson, postJson } from "./api.js";
import { Conversation } from "./conversation.js";
import { forgetDrafts } from "./drafts.js";
import { ImportDialog } from "./imports.js";
import { Dialog, Icon, Trouble, Waiting } from "./parts.js";
import { Sidebar } from "./sidebar.js";
import { FirstStart } from "./start.js";

const VIEWS = {
  memory: () => import("./memory.js").then((module) => module.MemoryView),
  figures: () => import("./figures.js").then((module) => module.FiguresView),
};

// #/c/ID shows a conversation (/turn-2, /message-34: there), #/c/ID/context what its agents are sent, #/memory the rest.
function readRoute() {
  const [view, id, part] = location.hash.replace(/^#\/?/, "").split("/");
  if (view === "c" && id) return { view: "conversation", id: decodeURIComponent(id), part: part || "" };
  return VIEWS[view] ? { view, id: null, part: id || "" } : { view: "conversation", id: null, part: "" };
}

export const go = (hash) => {
  location.hash = hash;
};

// Exchanges the token in the address for a cookie, and takes it out of the address and the history.
async function useToken() {
  const match = /^#token=(.+)$/.exec(location.hash);
  if (!match) return;
  history.replaceState(null, "", location.pathname);
  await enter(decodeURIComponent(match[1]));
}

function App() {
  const [about, setAbout] = useState(null);
  const [problem, setProblem] = useState(null);
  const [locked, setLocked] = useState(false);
  const [route, setRoute] = useState(readRoute);
  const [view, setView] = useState(0); // another conversation is another view; one that gets its name stays the same
  const shownId = useRef(route.id);
  const [help, setHelp] = useState(false);
  const [isImporting, setImporting] = useState(false);
  const [listOpen, setListOpen] = useState(false);

  const load = useCallback(async () => {
    setProblem(null);
    try {
      await useToken().catch((error) => error.status === 0 && Promise.reject(error));
      setAbout(await getJson("api/v1/about"));
      setLocked(false);
    } catch (error) {
      if (error.status !== 401) setProblem(error);
    }
  }, []);

  useEffect(() => {
    const onRoute = () => {
      if (/^#token=/.test(location.hash)) load();
      const next = readRoute();
      if (next.id === null || next.id !== shownId.current) setView((number) => number + 1);
      shownId.current = next.id;
      setRoute(next);
      setListOpen(false);
    };
    const onNamed = (event) => {
      shownId.current = event.detail;
      setRoute((old) => ({ ...old, id: event.detail }));
    };
    window.addEventListener("massmem-named", onNamed);
    const onLocked = () => setLocked(true);
    window.addEventListener("hashchange", onRoute);
    window.addEventListener("massmem-locked", onLocked);
    load();
    return () => {
      window.removeEventListener("massmem-named", onNamed);
      window.removeEventListener("hashchange", onRoute);
      window.removeEventListener("massmem-locked", onLocked);
    };
  }, []);

  useEffect(() => {
    const onKey = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|TEXTAREA|SELECT/.test(event.target.tagName)) return;
      if (document.querySelector("dialog[open]")) return;
      const action = { "/": () => document.querySelector("#find")?.focus(), n: () => go("#/"), m: () => go("#/memory"), f: () => go("#/figures"), "?": () => setHelp(true), c: () => document.querySelector("#question")?.focus() }[event.key];
      if (action) {
        event.preventDefault();
        action();
      }
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);

  if (locked) return html`<${Entrance} wasInside=${about !== null} isLocal=${about !== null && about.user === null} onEnter=${load} />`;
  if (!about) return html`<main class="alone">${problem ? html`<${Trouble} problem=${problem} onRetry=${load} />` : html`<${Waiting} label="Opening massmem" />`}</main>`;
  return html`
    <div class=${`frame ${listOpen ? "list-open" : ""}`}>
      <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.querySelector("#main").focus(); }}>Skip to the content</a>
      <${Sidebar} about=${about} route=${route} onHelp=${() => setHelp(true)} onImport=${() => setImporting(true)} onClose=${() => setListOpen(false)} onLeave=${() => leave(setLocked)} />
      <button type="button" class="icon-button list-button" aria-label="Show conversations" aria-expanded=${listOpen} onClick=${() => setListOpen(!listOpen)}><${Icon} name=${listOpen ? "close" : "menu"} /></button>
      <main id="main" tabindex="-1" inert=${listOpen && matchMedia("(max-width: 760px)").matches}>
        ${about.warning && html`<${Trouble} problem=${about.warning} />`}
        <${View} route=${route} about=${about} view=${view} />
      </main>
      ${help && html`<${Help} onClose=${() => setHelp(false)} />`}
      ${isImporting && html`<${ImportDialog} onClose=${() => setImporting(false)} />`}
    </div>`;
}

function View({ route, about, view }) {
  const [broken, mend] = useErrorBoundary((error) => reportError(error));
  const [views, setViews] = useState({});
  const [problem, setProblem] = useState(null);
  const [isDemo, setDemo] = useState(false);
  useEffect(() => {
    if (VIEWS[route.view] && !views[route.view])
      VIEWS[route.view]().then((view) => setViews((old) => ({ ...old, [route.view]: view })), () => setProblem("This part of the page could not be loaded. Reload the page."));
  }, [route.view]);
  useEffect(() => {
    if (route.view !== "conversation") document.title = `${route.view === "memory" ? "Memory" : "Figures"} · massmem`;
  }, [route.view]);
  useEffect(() => {
    if (broken) mend();
  }, [view, route.view]);
  if (broken) return html`<${Trouble} problem="This part of the page has failed. Nothing is lost: the log has everything." onRetry=${mend} />`;
  if (about.first_start && route.view === "conversation" && route.id === null && !isDemo) return html`<${FirstStart} onDemo=${() => setDemo(true)} />`;
  if (route.view === "conversation") return html`<${Conversation} key=${view} id=${route.id} part=${route.part} about=${about} />`;
  const Shown = views[route.view];
  if (problem) return html`<${Trouble} problem=${problem} />`;
  return Shown ? html`<${Shown} about=${about} part=${route.part} />` : html`<${Waiting} label="Loading" />`;
}

async function leave(setLocked) {
  await forgetDrafts();
  await postJson("page/leave", {}).catch(() => {});
  setLocked(true);
}

function Entrance({ wasInside, isLocal, onEnter }) {
  const [problem, setProblem] = useState(null);
  const [token, setToken] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    try {
      await enter(token.trim());
      setToken("");
      onEnter();
    } catch (error) {
      setProblem(error.status === 401 ? "This key or token is not valid, has expired or was used before." : error);
    }
  };
  return html`
    <main class="alone"><form class="entrance" onSubmit=${submit}>
      <h1><img src="page/icon.svg" alt="" width="36" height="36" />massmem</h1>
      <p>${wasInside ? "You have to come in again." : "Several agents answer your question together, and remember."}</p>
      <p class="dim">On your own machine: end <code>massmem ui</code> with Ctrl-C and start it again. It opens this page with a new address, which works once.</p>
      <label for="token">Key or token</label>
      <input id="token" type="password" autocomplete="current-password" required value=${token} onInput=${(e) => setToken(e.target.value)} />
      ${isLocal || html`<p class="dim">Whoever runs this service makes one: <code>massmem key create --sub you</code></p>`}
      <${Trouble} problem=${problem} />
      <button type="submit" class="primary">Come in</button>
    </form></main>`;
}

const KEYS = [
  ["/", "Search conversations"],
  ["n", "New conversation"],
  ["c", "Go to the question"],
  ["m", "Memory"],
  ["f", "Figures"],
  ["?", "This list"],
  ["Enter", "Ask"],
  ["Shift + Enter", "New line in the question"],
  ["Esc", "Close a dialog or menu"],
];

const Help = ({ onClose }) => html`
  <${Dialog} title="Keys" onClose=${onClose}>
    <dl class="keys">${KEYS.map(([key, text]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl>
  <//>`;

render(html`<${App} />`, document.querySelector("#app"));
