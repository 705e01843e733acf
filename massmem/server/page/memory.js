// What is remembered: searched as an agent does, traced to its messages, forgotten, counted.
import { html, useEffect, useState } from "./html.js";
import { getJson, postJson, request } from "./api.js";
import { addColours, Bars, colourTable } from "./chart.js";
import { bytes, count, exactly, percent, plural, projectName, when } from "./format.js";
import { AgentName, Confirm, Dialog, Empty, Icon, placeOf, Trouble, useInterval, useLoad, Waiting } from "./parts.js";

const TABS = [["", "Search"], ["history", "History"], ["all", "Browse"], ["figures", "Figures"]];
const PAGE = 50;
const REFRESH = 3_000; // milliseconds; what has just been said is recorded in the background

export function MemoryView({ about, part }) {
  const colours = colourTable(about);
  return html`
    <div class="view">
      <header><h1>Memory</h1><nav class="tabs" aria-label="Memory">${TABS.map(([name, label]) => html`
        <a href=${`#/memory${name ? `/${name}` : ""}`} aria-current=${part === name ? "page" : undefined}>${label}</a>`)}</nav></header>
      ${!about.remembers && html`<${Trouble} problem="This team remembers nothing: memory.persistent_memory.enabled is false." />`}
      ${part === "figures" ? html`<${MemoryFigures} about=${about} colours=${colours} />` : part === "history" ? html`<${History} about=${about} />` : part === "all" ? html`<${Browse} about=${about} colours=${colours} />` : html`<${Search} about=${about} colours=${colours} />`}
    </div>`;
}

const agentsOf = (about) => {
  const names = new Map();
  for (const team of about.teams) for (const agent of team.agents) if (!names.has(agent.id)) names.set(agent.id, agent.name);
  return [...names];
};

function Search({ about, colours }) {
  const [form, setForm] = useState({ query: "", agent: agentsOf(about)[0]?.[0] || "", session: "", turn: "", as_of: "", origin: "", project: "" });
  const [asked, setAsked] = useState(null);
  const [sessions] = useLoad(() => getJson("api/v1/sessions?limit=100"), []);
  const set = (name) => (event) => setForm((old) => ({ ...old, [name]: event.target.value }));
  const submit = (event) => {
    event.preventDefault();
    if (form.query.trim()) setAsked({ ...form });
  };
  return html`
    <form class="row card" role="search" onSubmit=${submit}>
      <label class="wide">What to look for<input type="search" required value=${form.query} onInput=${set("query")} /></label>
      <label>As<select value=${form.agent} onChange=${set("agent")}>${agentsOf(about).map(([id, name]) => html`<option value=${id}>${name}</option>`)}<option value="">any agent</option></select></label>
      <label>In<select value=${form.session} onChange=${set("session")}><option value="">all conversations</option>${(sessions?.sessions || []).map((session) => html`<option value=${session.session_id}>${(session.title || session.session_id).slice(0, 60)}</option>`)}</select></label>
      ${!form.session && html`<label>Project<input class="project" maxlength="4096" placeholder="none" value=${form.project} onInput=${set("project")} /></label>`}
      ${form.session && html`<label>In turn<input class="short" type="number" min="1" placeholder="next" value=${form.turn} onInput=${set("turn")} /></label>`}
      <label>From<select value=${form.origin} onChange=${set("origin")}><${Origins} /></select></label>
      <label>As of<input type="date" value=${form.as_of} onInput=${set("as_of")} /></label>
      <button type="submit" class="primary">Search</button>
    </form>
    ${asked ? html`<${Hits} asked=${asked} about=${about} colours=${colours} />` : html`<${Empty} title="What does an agent remember?">
      <p>An agent sees what it said itself, what you said, and what the winner of a complete turn said. It does not see what others said in a turn that they lost, nor what is still under way.</p><//>`}`;
}

function Hits({ asked, about, colours }) {
  const [all, setAll] = useState(false);
  const query = new URLSearchParams({ query: asked.query, limit: "30" });
  if (asked.agent) query.set("agent", asked.agent);
  if (asked.session) query.set("session_id", asked.session);
  if (!asked.session && asked.project.trim()) query.set("project", asked.project.trim());
  if (asked.session && asked.turn) query.set("turn", asked.turn);
  if (asked.as_of) query.set("as_of", asked.as_of);
  if (asked.origin) query.set("origin", asked.origin);
  if (all) query.set("all", "true");
  const [hits, problem, again] = useLoad(() => getJson(`api/v1/memories/search?${query}`), [query.toString()]);
  if (problem) return html`<${Trouble} problem=${problem} onRetry=${again} />`;
  if (!hits) return html`<${Waiting} label="Searching" />`;
  const found = hits.memories.length + hits.beyond.length;
  const more = html`<button type="button" aria-pressed=${all} onClick=${() => setAll(!all)}>${all ? "Only what the agent would be shown" : "Also what it would not be shown"}</button>`;
  if (!found) return html`<${Empty} title="Nothing is recalled"><p>No memory that this agent may see bears on it.</p>${!all && more}<//>`;
  return html`
    <p class="dim" role="status">${plural(hits.memories.length, "memory").replace("memorys", "memories")}, ${count(hits.tokens)} tokens in the prompt. ${hits.by_words_alone ? "Found by words alone." : "Found by words and meaning."}</p>
    <${MemoryList} memories=${hits.memories} about=${about} colours=${colours} onChanged=${again} isSearch=${true} />
    ${hits.beyond.length > 0 && html`<h2 class="cut">The agent would not be shown what follows</h2>
      <${MemoryList} memories=${hits.beyond} about=${about} colours=${colours} onChanged=${again} isSearch=${true} />`}
    ${more}`;
}

function History({ about }) {
  const [query, setQuery] = useState("");
  const [agent, setAgent] = useState(agentsOf(about)[0]?.[0] || "");
  const [history, setHistory] = useState(null);
  const [problem, setProblem] = useState(null);
  const submit = (event) => {
    event.preventDefault();
    const asked = new URLSearchParams({ query, ...(agent && { agent }) });
    getJson(`api/v1/memories/history?${asked}`).then((answer) => (setHistory(answer), setProblem(null)), setProblem);
  };
  return html`
    <form class="row card" role="search" onSubmit=${submit}>
      <label class="wide">What the values are of, or one of them<input type="search" required value=${query} onInput=${(event) => setQuery(event.target.value)} /></label>
      <label>As<select value=${agent} onChange=${(event) => setAgent(event.target.value)}>${agentsOf(about).map(([id, name]) => html`<option value=${id}>${name}</option>`)}<option value="">any agent</option></select></label>
      <button type="submit" class="primary">Show</button>
    </form>
    <${Trouble} problem=${problem} />
    ${history && history.topics.length === 0 && html`<${Empty} title="No value is known of that"><p>A value is known when somebody said it plainly, or when a model that extracts facts named it.</p><//>`}
    ${history && history.topics.map((topic) => html`<section class="card"><header><h2>${topic.subject === "user" ? "You" : topic.subject}: ${topic.attribute}</h2></header>
      <table><thead><tr><th>Value</th><th>Since</th><th>Until</th><th>Says who</th></tr></thead>
        <tbody>${topic.values.map((value) => html`<tr><td>${value.value}</td><td><time datetime=${value.since}>${exactly(value.since)}</time></td>
          <td>${value.until ? html`<time datetime=${value.until}>${exactly(value.until)}</time>` : html`<strong>holds</strong>`}</td>
          <td>${value.by.map((name) => (name === "user" ? "you" : name)).join(", ")}${value.disputed_by.length > 0 && html`<span class="dim">; ${value.disputed_by.map((name) => (name === "user" ? "you" : name)).join(", ")} otherwise</span>`}</td></tr>`)}</tbody></table></section>`)}`;
}

function Browse({ about, colours }) {
  const [filter, setFilter] = useState({ agent: "", kind: "", origin: "", pinned: false });
  const [adding, setAdding] = useState(false);
  const add = async (text) => (await postJson("api/v1/memories", { text }), await load(0));
  const [memories, setMemories] = useState(null);
  const [isLast, setLast] = useState(false);
  const [notice, setNotice] = useState("");
  const [problem, setProblem] = useState(null);
  const load = async (offset) => {
    const query = new URLSearchParams({ limit: String(PAGE), offset: String(offset) });
    for (const [name, value] of Object.entries(filter)) if (value) query.set(name, value);
    try {
      const page = await getJson(`api/v1/memories?${query}`);
      setMemories((old) => (offset ? [...old, ...page.memories] : page.memories));
      setLast(page.memories.length < PAGE);
      setNotice(page.notice);
      setProblem(null);
    } catch (error) {
      setProblem(error);
    }
  };
  useEffect(() => {
    load(0);
  }, [filter]);
  useInterval(() => memories?.length === 0 && load(0), REFRESH);
  const set = (name) => (event) => setFilter((old) => ({ ...old, [name]: event.target.value }));
  return html`
    <div class="row card">
      <label>Of<select value=${filter.agent} onChange=${set("agent")}><option value="">everybody</option><option value="user">you</option>${agentsOf(about).map(([id, name]) => html`<option value=${id}>${name}</option>`)}</select></label>
      <label>Kind<select value=${filter.kind} onChange=${set("kind")}><option value="">all</option><option value="episode">word for word</option><option value="fact">facts</option></select></label>
      <label>From<select value=${filter.origin} onChange=${set("origin")}><${Origins} /></select></label>
      <label class="check"><input type="checkbox" checked=${filter.pinned} onChange=${(event) => setFilter((old) => ({ ...old, pinned: event.target.checked }))} />Pinned</label>
      <button type="button" class="primary" onClick=${() => setAdding(true)}>Add a memory</button>
    </div>
    ${adding && html`<${TextDialog} title="Add a memory" text="" verb="Remember" onSave=${add} onClose=${() => setAdding(false)} />`}
    <${Trouble} problem=${notice} /><${Trouble} problem=${problem} onRetry=${() => load(0)} />
    ${!memories && !problem && html`<${Waiting} label="Reading" />`}
    ${memories && memories.length === 0 && html`<${Empty} title="Nothing is remembered yet"><p>What you ask and what the agents answer is remembered as soon as a turn has ended.</p><//>`}
    ${memories && html`<${MemoryList} memories=${memories} about=${about} colours=${colours} onChanged=${() => load(0)} />`}
    ${memories && memories.length > 0 && !isLast && html`<button type="button" onClick=${() => load(memories.length)}>Show more</button>`}`;
}

const MemoryList = ({ memories, ...rest }) => html`
  <ul class="memories">${memories.map((memory) => html`<${MemoryCard} key=${memory.id} memory=${memory} ...${rest} />`)}</ul>`;

// Who is named as the author needs no origin beside it.
const originOf = ({ origin, rests_on, call }) => call || (rests_on ? `quoting ${rests_on === "web" ? "the web" : rests_on.slice(5)}` : origin === "import" ? "imported" : "");
const Origins = () => html`<option value="">anywhere</option><option value="user">you</option><option value="agent">agents</option><option value="tool">tools</option><option value="web">the web</option><option value="import">an import</option>`;

const WHY = { own: "it said this itself", user: "you said this", won: "this won its turn" };

const WARNINGS = {
  memory: "It is erased from the memory for good and never recorded again. The log of the conversation keeps its messages.",
  everywhere: "Each sentence that says the same goes for good: from your conversations, their files, and all memories. The rest of them stays.",
};

// What a receipt says of the log; null: only the index was asked for.
function outcomeOf(receipt) {
  if (!receipt) return "the log of the conversation keeps its messages.";
  const place = `${plural(receipt.deleted.sessions.length, "conversation")} changed, ${plural(receipt.deleted.files, "file")} deleted`;
  const near = receipt.near.length ? ` ${plural(receipt.near.length, "sentence")} may say it in other words and stayed.` : "";
  return `${place}. ${receipt.complete ? "Nothing of it is left." : "Something of it is left: run it again later."}${near}`;
}

// A dialog for the text of a memory. onSave may throw what is shown then.
function TextDialog({ title, text, verb, onSave, onClose }) {
  const [value, setValue] = useState(text);
  const [problem, setProblem] = useState(null);
  const save = (event) => {
    event.preventDefault();
    onSave(value).then(onClose, setProblem);
  };
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <form onSubmit=${save}>
        <label>What agents are to know<textarea rows="4" required maxlength="2000" value=${value} onInput=${(event) => setValue(event.target.value)} autofocus></textarea></label>
        <${Trouble} problem=${problem} />
        <footer><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="primary">${verb}</button></footer>
      </form>
    <//>`;
}

const DONE = { edit: "corrected", pin: "pinned", unpin: "no longer pinned", promote: "made global", demote: "given back to its project" };

function MemoryCard({ memory, about, colours, onChanged, isSearch }) {
  const [details, setDetails] = useState(null);
  const [open, setOpen] = useState(false);
  const [asking, setAsking] = useState("");
  const [receipt, setReceipt] = useState(null);
  const [problem, setProblem] = useState(null);
  const toggle = async () => {
    setOpen(!open);
    if (!open && !details) await getJson(`api/v1/memories/${memory.id}`).then(setDetails, setProblem);
  };
  const forget = async () =>
    setReceipt(await (await request(`api/v1/memories/${memory.id}${asking === "everywhere" ? "?everywhere=true" : ""}`, { method: "DELETE" })).json());
  const [editing, setEditing] = useState(false);
  const change = async (path, options) => {
    await request(`api/v1/memories/${memory.id}${path}`, options);
    setDetails(null);
    setOpen(false);
    onChanged();
  };
  const pin = () => change("/pin", { method: memory.pinned ? "DELETE" : "PUT" }).catch(setProblem);
  const promote = () => change("/global", { method: memory.is_global ? "DELETE" : "PUT" }).catch(setProblem);
  const name = memory.agent_id === "user" ? "you" : Object.fromEntries(agentsOf(about))[memory.agent_id] || memory.agent_id;
  if (receipt)
    return html`<li class="memory" role="status"><${Icon} name="check" /> Forgotten at ${exactly(receipt.forgotten_at)}: ${plural(receipt.entries, "entry").replace("entrys", "entries")} of the index. It is never recorded again; ${outcomeOf(receipt.receipt)}</li>`;
  return html`
    <li class="memory">
      <header>${memory.agent_id === "user" ? html`<strong>you</strong>` : html`<${AgentName} name=${name} colour=${colours[memory.agent_id] ?? 7} />`}
        <span class="badge">${memory.kind === "fact" ? "fact" : "word for word"}</span>
        ${memory.seen_because && html`<span class="why">${WHY[memory.seen_because]}</span>`}
        ${originOf(memory) && html`<span class="badge">${originOf(memory)}</span>`}
        ${memory.note && html`<span class="badge">${memory.note}</span>`}
        ${memory.pinned && html`<span class="badge">pinned</span>`}
        ${memory.project && html`<span class="badge" title=${memory.project}>in ${projectName(memory.project)}</span>`}
        ${memory.edited_at && html`<span class="badge" title=${exactly(memory.edited_at)}>edited</span>`}
        <span class="spacer"></span>
        ${isSearch && !memory.pinned && html`<span class="dim" title="How much it matters for the words">${percent(memory.relevance)}</span>`}
        <code class="dim">${memory.short_id}</code><time class="dim" datetime=${memory.created_at} title=${exactly(memory.created_at)}>${when(memory.created_at)}</time></header>
      <p class="plain">${memory.text}</p>
      <footer><a href=${placeOf(memory)}>${memory.turn ? `Turn ${memory.turn} of its conversation` : "Its conversation"}</a>
        <button type="button" class="plain" aria-expanded=${open} onClick=${toggle}>Where it comes from</button>
        <button type="button" class="plain" onClick=${() => setEditing(true)}>Correct</button>
        <button type="button" class="plain" aria-pressed=${memory.pinned} onClick=${pin}>${memory.pinned ? "Unpin" : "Pin"}</button>
        ${(memory.project || memory.is_global) && html`<button type="button" class="plain" onClick=${promote}>${memory.is_global ? "In its project only" : "Make global"}</button>`}
        <button type="button" class="plain danger-text" onClick=${() => setAsking("memory")}>Forget</button>
        <button type="button" class="plain danger-text" onClick=${() => setAsking("everywhere")}>Forget everywhere</button></footer>
      <${Trouble} problem=${problem} />
      ${editing && html`<${TextDialog} title="Correct this memory" text=${memory.text} verb="Save" onSave=${(text) => change("", { method: "PATCH", body: { text } })} onClose=${() => setEditing(false)} />`}
      ${open && details && html`<ul class="sources">${details.changes.map((c) => html`<li><strong>${DONE[c.action]}</strong> <time class="dim" datetime=${c.changed_at}>${exactly(c.changed_at)}</time>${c.action === "edit" && html`<pre tabindex="0">${c.old}</pre>`}</li>`)}${details.sources.map((source) => html`<li><strong>${source.agent || "You"}</strong> <span class="dim">in turn ${source.turn}</span><pre tabindex="0">${source.text}</pre></li>`)}
        ${details.sources.length === 0 && html`<li class="dim">Its messages are gone.</li>`}</ul>`}
      ${asking && html`<${Confirm} title=${asking === "everywhere" ? "Forget this everywhere?" : "Forget this?"} text=${WARNINGS[asking]} verb="Forget" onConfirm=${forget} onClose=${() => setAsking("")} />`}
    </li>`;
}

function MemoryFigures({ about, colours }) {
  const [view, problem, again] = useLoad(() => getJson("api/v1/memories/figures"), []);
  const [figures] = useLoad(() => getJson("api/v1/figures?days=30"), []);
  if (problem) return html`<${Trouble} problem=${problem} onRetry=${again} />`;
  if (!view) return html`<${Waiting} label="Counting" />`;
  const names = { user: "you", ...Object.fromEntries(agentsOf(about)) };
  const label = (id) => names[id] || id;
  const all = addColours(colours, view.agents.map((agent) => agent.agent_id));
  const prompts = figures ? figures.recalls + figures.without_recall : 0;
  return html`
    <${Trouble} problem=${view.notice} />
    <dl class="tiles">
      <div class="tile"><dt>Memories</dt><dd>${count(view.counted)}</dd></div>
      <div class="tile"><dt>Facts</dt><dd>${count(view.agents.reduce((sum, agent) => sum + agent.facts, 0))}</dd></div>
      ${view.size !== null && html`<div class="tile"><dt>On disk</dt><dd>${bytes(view.size)}</dd></div>`}
      ${prompts > 0 && html`<div class="tile"><dt>Prompts with memories, 30 days</dt><dd>${percent(figures.recalls / prompts)}<small>${count(figures.recalls)} with, ${count(figures.without_recall)} without</small></dd></div>`}
      ${view.queue && html`<div class="tile"><dt>Queue</dt><dd>${count(view.queue.pending)}<small>${count(view.queue.done)} done, ${count(view.queue.failed)} failed</small></dd></div>`}
    </dl>
    ${view.queue && view.queue.reason && html`<${Trouble} problem=${`The last recording that failed: ${view.queue.reason}`} />`}
    ${view.days.length > 0 && html`<section class="card"><header><h2>By day</h2></header>
      <${Bars} days=${view.days.slice(-60).map((day) => ({ day: day.day, values: day.agents }))} label=${label} colours=${all} format=${count} unit="memories" /></section>`}
    <div class="columns">
      <section class="card"><header><h2>By agent</h2></header><table><thead><tr><th>Agent</th><th class="number">Word for word</th><th class="number">Facts</th></tr></thead>
        <tbody>${view.agents.map((agent) => html`<tr><td>${agent.agent_id === "user" ? "you" : html`<${AgentName} name=${label(agent.agent_id)} colour=${all[agent.agent_id]} />`}</td><td class="number">${count(agent.episodes)}</td><td class="number">${count(agent.facts)}</td></tr>`)}</tbody></table></section>
      <section class="card"><header><h2>By turn of the conversation</h2></header><table><thead><tr><th>Turn</th><th class="number">Memories</th></tr></thead>
        <tbody>${Object.entries(view.turns).map(([turn, number]) => html`<tr><td>${turn === "0" ? "Notes" : turn === "10" ? "10 and later" : turn}</td><td class="number">${count(number)}</td></tr>`)}</tbody></table></section>
    </div>`;
}
