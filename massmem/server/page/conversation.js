// A conversation: its messages, the turn under way, and the question that comes next.
import { html, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "./html.js";
import { download, getJson, postJson, request } from "./api.js";
import { Composer } from "./composer.js";
import { Agreement, Council, LongText, Sources, summarise, Verdict } from "./council.js";
import { bytes, exactly, plural, when } from "./format.js";
import { LiveConversation } from "./live.js";
import { announceChange, AgentName, Confirm, Copy, Dialog, Empty, FileList, fitHeight, Icon, Menu, placeOf, Trouble, useInterval, useLoad, Waiting } from "./parts.js";
import { colourOf, describeWorkCut, hasEnded, nameOf } from "./turn.js";

const REFRESH = 4_000; // milliseconds; a terminal or another tab may go on with the same conversation

export function Conversation({ id, part, about }) {
  const [, redraw] = useReducer((number) => number + 1, 0);
  const talk = useMemo(() => new LiveConversation(id, redraw), []);
  const [isFinding, setFinding] = useState(false);
  useEffect(() => {
    talk.load();
    return () => talk.close();
  }, []);
  useInterval(() => talk.refresh(), REFRESH);
  const title = talk.session ? talk.session.title || talk.session.session_id : talk.live?.question.slice(0, 80) || "New conversation";
  useEffect(() => {
    document.title = id === null ? "massmem" : `${title} · massmem`;
  }, [title]);

  // Of the team of this conversation: another one may have agents with the same ids.
  const { agents } = talk.team || about.teams[0];
  const models = useMemo(() => Object.fromEntries(agents.map((agent) => [agent.id, agent.model === "scripted" ? "" : agent.model])), [agents]);
  const colours = useMemo(() => Object.fromEntries(agents.map((agent, index) => [agent.id, index % 8])), [agents]);

  const ask = async (text, files, whom, sending) => {
    const isNew = talk.id === null;
    await talk.ask(text, files, whom, sending);
    if (whom.team !== null) talk.team = about.teams.find((entry) => entry.name === whom.team);
    if (isNew) {
      // The address names the conversation from now on; this view stays as it is.
      history.replaceState(null, "", `#/c/${encodeURIComponent(talk.id)}`);
      window.dispatchEvent(new CustomEvent("massmem-named", { detail: talk.id }));
    }
    announceChange();
  };
  useEffect(() => {
    if (!talk.isRunning) announceChange();
  }, [talk.isRunning]);

  if (!talk.isLoaded) return talk.problem ? html`<${Missing} problem=${talk.problem} onRetry=${() => talk.load()} />` : html`<${Waiting} label="Reading the conversation" />`;
  if (part === "context") return html`<${ContextPage} talk=${talk} title=${title} about=${about} />`;
  return html`
    <div class="talk">
      <${Heading} talk=${talk} title=${title} onFind=${() => setFinding(!isFinding)} />
      ${isFinding && talk.session && html`<${Find} id=${talk.id} part=${part} shown=${talk.messages} />`}
      <${Messages} talk=${talk} part=${part} models=${models} colours=${colours} about=${about} />
      <${Composer} talk=${talk} about=${about} onAsk=${ask} />
    </div>`;
}

function ContextPage({ talk, title, about }) {
  const [View, setView] = useState(null);
  useEffect(() => {
    import("./context.js").then((module) => setView(() => module.ContextView));
  }, []);
  return View ? html`<${View} id=${talk.id} title=${title} about=${about} />` : html`<${Waiting} label="Loading" />`;
}

const Missing = ({ problem, onRetry }) =>
  problem.status === 404
    ? html`<${Empty} title="There is no such conversation"><p>It was deleted, or it belongs to somebody else. <a href="#/">Begin a new one.</a></p><//>`
    : html`<${Trouble} problem=${problem} onRetry=${onRetry} />`;

function Heading({ talk, title, onFind }) {
  const [dialog, setDialog] = useState(null);
  const [problem, setProblem] = useState(null);
  if (talk.id === null || !talk.session) return html`<header class="heading"><h1>${title}</h1></header>`;
  const encoded = encodeURIComponent(talk.id);
  const attempt = (action) => action().then(() => setProblem(null), setProblem);
  const fork = () => attempt(async () => {
    const copy = await postJson(talk.path("/fork"), {});
    announceChange();
    location.hash = `#/c/${encodeURIComponent(copy.session_id)}`;
  });
  const items = [
    { icon: "window", label: "What the agents see", onSelect: () => (location.hash = `#/c/${encoded}/context`) },
    { icon: "pencil", label: "Rename", onSelect: () => setDialog("rename") },
    { icon: "fork", label: "Fork", onSelect: fork },
    { icon: "file", label: "Export", onSelect: () => setDialog("export") },
    { icon: "bin", label: "Delete", isDanger: true, onSelect: () => setDialog("delete") },
  ];
  const remove = async () => {
    await request(`api/ai-memory/conversations/${encoded}`, { method: "DELETE" });
    announceChange();
    location.hash = "#/";
  };
  return html`
    <header class="heading"><h1 title=${title}>${title}</h1>
      <button type="button" class="icon-button" aria-label="Search in this conversation" title="Search in this conversation" onClick=${onFind}><${Icon} name="search" /></button>
      <a class="quiet" aria-label="Context: what the agents see" href=${`#/c/${encoded}/context`}><${Icon} name="window" /><span>Context</span></a>
      <${Menu} label="What to do with this conversation" items=${items} /></header>
    <${Trouble} problem=${problem} />
    ${dialog === "rename" && html`<${Rename} talk=${talk} title=${title} onClose=${() => setDialog(null)} />`}
    ${dialog === "export" && html`<${Export} talk=${talk} onClose=${() => setDialog(null)} />`}
    ${dialog === "delete" && html`<${Confirm} title="Delete this conversation?" text=${`"${title}" and everything that is remembered of it will be erased for good.`} verb="Delete" onConfirm=${remove} onClose=${() => setDialog(null)} />`}`;
}

function Rename({ talk, title, onClose }) {
  const [text, setText] = useState(title);
  const [problem, setProblem] = useState(null);
  const save = async (event) => {
    event.preventDefault();
    try {
      talk.session = await postJson(talk.path("/rename"), { title: text });
      talk.changed();
      announceChange();
      onClose();
    } catch (error) {
      setProblem(error);
    }
  };
  return html`
    <${Dialog} title="Rename" onClose=${onClose}><form onSubmit=${save}>
      <label for="title">Name</label>
      <input id="title" maxlength="80" required autofocus value=${text} onInput=${(e) => setText(e.target.value)} />
      <${Trouble} problem=${problem} />
      <footer><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="primary">Rename</button></footer>
    </form><//>`;
}

const FORMATS = [["markdown", "Markdown", "md"], ["html", "Web page", "html"], ["text", "Text", "txt"], ["json", "JSON, with everything", "json"]];

function Export({ talk, onClose }) {
  const [detailed, setDetailed] = useState(false);
  const [problem, setProblem] = useState(null);
  const save = (format, suffix) => download(talk.path(`/export?format=${format}&detailed=${detailed}`), `${talk.id}.${suffix}`).then(onClose, setProblem);
  return html`
    <${Dialog} title="Export" onClose=${onClose}>
      <p class="dim">Without what looks like a password or a key.</p>
      <label class="check"><input type="checkbox" checked=${detailed} onChange=${(e) => setDetailed(e.target.checked)} /> With rounds, votes and reasoning</label>
      <div class="choices">${FORMATS.map(([format, label, suffix]) => html`<button type="button" onClick=${() => save(format, suffix)}>${label}</button>`)}</div>
      <${Trouble} problem=${problem} />
    <//>`;
}

// Finds words among the messages of this conversation, and goes from hit to hit.
function Find({ id, part, shown }) {
  const [text, setText] = useState("");
  const [hits, setHits] = useState(null);
  const [problem, setProblem] = useState(null);
  const place = hits ? hits.findIndex((hit) => part === `message-${hit.seq}`) : -1;
  const step = (all, next) => all.length > 0 && location.replace(placeOf(all.at(next % all.length)));
  const search = async () => {
    const answer = await getJson(`api/v1/search?${new URLSearchParams({ limit: 200, session_id: id, query: text })}`);
    const all = answer.hits.filter((hit) => hit.seq).sort((a, b) => a.seq - b.seq);
    setHits(all);
    step(all, -1);
  };
  useEffect(() => {
    const timer = setTimeout(() => (text.trim() ? search().then(() => setProblem(null), setProblem) : setHits(null)), 300);
    return () => clearTimeout(timer);
  }, [text]);
  useLayoutEffect(() => highlightWords(hits ? text.trim() : ""), [hits, part, shown]);
  const arrow = (next, label, icon) => html`<button type="button" class=${`icon-button small ${icon}`} aria-label=${label} title=${label} onClick=${() => step(hits, next)}><${Icon} name="down" /></button>`;
  return html`
    <search class="find-here"><div class="find"><${Icon} name="search" /><input type="search" aria-label="Words in this conversation" placeholder="Words in this conversation" value=${text} onInput=${(e) => setText(e.target.value)} onKeyDown=${(e) => e.key === "Enter" && hits && step(hits, place - 1)} /></div>
      ${hits && html`<span role="status">${place < 0 ? plural(hits.length, "hit") : `${place + 1} of ${hits.length}`}</span>${arrow(place - 1, "Earlier hit", "up")}${arrow(place + 1, "Later hit", "next")}`}<${Trouble} problem=${problem} /></search>`;
}

// Marks words where they are shown, and returns what ends that. The elements stay as they are.
function highlightWords(text) {
  const [words, ranges] = [new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "|"), "giu"), []];
  for (const texts = document.createTreeWalker(document.querySelector(".messages"), NodeFilter.SHOW_TEXT); text && texts.nextNode(); )
    for (const { index, 0: word } of texts.currentNode.data.matchAll(words)) ranges.push(new StaticRange({ startContainer: texts.currentNode, startOffset: index, endContainer: texts.currentNode, endOffset: index + word.length }));
  CSS.highlights?.set("hit", new Highlight(...ranges));
  return () => CSS.highlights?.clear();
}

function Messages({ talk, part, models, colours, about }) {
  const box = useRef(null);
  const isAtEnd = useRef(true);
  const [problem, setProblem] = useState(null);
  const onScroll = () => {
    const { scrollHeight, scrollTop, clientHeight } = box.current;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < 80;
  };
  // Whoever reads at the end stays there while something new comes; what they open themselves moves nothing.
  const shown = useRef("");
  useLayoutEffect(() => {
    const newest = `${talk.messages.at(-1)?.seq} ${talk.live !== null}`;
    if (isAtEnd.current && (talk.isRunning || newest !== shown.current)) box.current.scrollTop = box.current.scrollHeight;
    shown.current = newest;
  });
  // The address may name a turn or a message.
  useEffect(() => {
    const [, kind, number] = /^(turn|message)-(\d+)$/.exec(part) || [];
    const land = async () => {
      isAtEnd.current = false;
      while (talk.hasOlder && !talk.messages.some((message) => (kind === "turn" ? message.turn : message.seq) === Number(number))) await talk.loadOlder(200);
      requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById(part)?.scrollIntoView()));
    };
    if (kind) land().catch(setProblem);
  }, [part]);
  const older = async () => {
    const height = box.current.scrollHeight;
    try {
      await talk.loadOlder();
      requestAnimationFrame(() => requestAnimationFrame(() => (box.current.scrollTop += box.current.scrollHeight - height)));
    } catch (error) {
      setProblem(error);
    }
  };
  const groups = groupByTurn(talk.messages);
  const isEmpty = groups.length === 0 && talk.live === null;
  // A turn keeps its key, and so what its reader has opened, when its messages take the place of its events.
  if (talk.live && !groups.some((group) => group.turn && group.turn === talk.live.turn)) groups.push({ key: `turn-${talk.live.turn || "next"}`, turn: talk.live.turn, messages: [] });
  return html`
    <div class="messages" ref=${box} onScroll=${onScroll} tabindex="0" role="log" aria-label="Messages" aria-live="off">
      ${talk.hasOlder && html`<button type="button" class="plain older" onClick=${older}>Show earlier messages</button>`}
      <${Trouble} problem=${problem} />
      ${isEmpty && html`<${Welcome} about=${about} />`}
      ${groups.map((group, index) => html`<${Turn} key=${group.key} talk=${talk} group=${group} models=${models} colours=${colours} about=${about} part=${part} isLast=${index === groups.length - 1} />`)}
      ${talk.isConnecting && html`<p class="waiting" role="status"><span class="spinner" aria-hidden="true"></span>The connection was lost. Trying again; nothing is lost.</p>`}
      <${Trouble} problem=${talk.problem} onRetry=${() => talk.load()} />
    </div>`;
}

function Welcome({ about }) {
  const team = about.teams[0];
  return html`
    <${Empty} title="Ask, and several agents answer together">
      <p>Each answers alone. Then they read each other, improve or vote, and the winner writes the final answer.</p>
      <ul class="team">${team.agents.map((agent, index) => html`<li><${AgentName} name=${agent.name} colour=${index % 8} /><span class="model">${agent.model}</span></li>`)}</ul>
    <//>`;
}

// Messages of one turn together; what stands between turns alone.
function groupByTurn(messages) {
  const groups = [];
  for (const message of messages) {
    const last = groups.at(-1);
    if (message.turn && last && last.turn === message.turn && !message.is_note) last.messages.push(message);
    else if (message.turn && !message.is_note) groups.push({ key: `turn-${message.turn}${groups.some((g) => g.turn === message.turn) ? `-${message.seq}` : ""}`, turn: message.turn, messages: [message] });
    else groups.push({ key: `message-${message.seq}`, turn: 0, messages: [message] });
  }
  return groups;
}

function Turn({ talk, group, models, colours, about, part, isLast }) {
  const [chosen, setOpen] = useState(null);
  const [editing, setEditing] = useState(false);
  const [wasEditing, setWasEditing] = useState(false);
  const [problem, setProblem] = useState(null);
  const edit = (isOpen) => {
    setEditing(isOpen);
    setWasEditing(!isOpen);
  };
  const record = talk.turns.get(group.turn);
  const live = talk.live && (talk.live.turn === group.turn || !group.messages.length) ? talk.live : null;
  const details = live || talk.details.get(group.turn);
  const isRunning = live !== null && !hasEnded(live);
  const hasAnswer = group.messages.some((message) => message.role === "assistant" && !message.waiting_for);
  const job = live ? live.job : record?.job;
  const status = live ? live.status : !record ? "" : record.status === "limit" && !hasAnswer ? "failed" : record.status;
  const isUnfinished = isLast && ["interrupted", "failed"].includes(status);
  const open = chosen ?? (isUnfinished && Boolean(details)); // what there is of a turn without an answer
  const known = details?.agents.every((id) => id in models) ? models : {}; // another team answered
  const { agents } = talk.team || about.teams[0];
  const names = Object.fromEntries(agents.map((agent) => [agent.id, agent.name]));
  const load = () => talk.loadDetails(group.turn).then(() => setProblem(null), setProblem);
  const toggle = () => {
    setOpen(!open);
    if (!open && !details) load();
  };
  // A turn without an answer says by itself what happened.
  useEffect(() => {
    if (isUnfinished && group.turn && !details) load();
  }, [isLast, status]);
  // The turn may have ended since the list of messages was drawn; it is drawn again at once.
  if (!group.messages.length && !live) return null;
  const questions = group.messages.length ? group.messages : [{ seq: 0, role: "user", text: live.question, length: live.question.length, texts: [], files: [], pending: live.files || [] }];
  const shown = questions.filter((message) => message.role === "user" || message.waiting_for || !live || !live.final);
  const answer = live?.final ? live.final.answer : group.messages.findLast((message) => message.role === "assistant")?.text;
  const canEdit = group.turn > 0 && group.messages[0]?.role === "user" && !group.messages[0].param && !isRunning;
  return html`
    <section id=${`turn-${group.turn}`} class=${`turn ${status} ${part === `turn-${group.turn}` ? "marked" : ""}`} aria-label=${group.turn ? `Turn ${group.turn}` : "Message"}>
      ${job && html`<span class="badge job">Job: ${job}</span>`}
      ${shown.map((message, index) => {
        if (index > 0 || !canEdit) return html`<${Message} key=${message.seq} talk=${talk} message=${message} part=${part} colour=${colours[message.agent_id] ?? 0} names=${names} result=${message.waiting_for ? null : record} />`;
        if (editing) return html`<${EditQuestion} key="edit" talk=${talk} turn=${group.turn} about=${about} onClose=${() => edit(false)} />`;
        return html`<${Message} key=${message.seq} talk=${talk} message=${message} part=${part} onEdit=${() => edit(true)} wasEditing=${wasEditing} />`;
      })}
      ${isRunning && html`<p class="progress" role="status">${summarise(live)}</p>`}
      ${isRunning && html`<${Council} turn=${live} models=${known} />`}
      ${isRunning && live.presentation && html`<${Presentation} turn=${live} />`}
      ${live && live.final && html`<${FinalAnswer} turn=${live} />`}
      ${live && live.waiting && !group.messages.some((m) => m.waiting_for) && html`<article class="message assistant"><header><${AgentName} name=${live.waiting.agent_name || live.waiting.agents[0]} colour=${colourOf(live, live.waiting.agents[0])} /></header><p>${live.waiting.prompt}</p></article>`}
      ${!isRunning && details && details.problem && html`<${Trouble} problem=${[details.problem.message, details.problem.hint].filter(Boolean).join(". ")} />`}
      ${!isRunning && group.turn > 0 && html`<footer class="turn-footer">
        <button type="button" class="plain" aria-expanded=${open} onClick=${toggle}><${Icon} name="down" />${open ? "Hide the council" : "How they decided"}</button>
        ${details && html`<${Verdict} turn=${details} />`}
        ${canEdit && !editing && html`<button type="button" class="plain" onClick=${() => edit(true)}>Ask again</button>`}
        ${record?.versions.length > 1 && html`<${Versions} talk=${talk} record=${record} onProblem=${setProblem} />`}
        ${answer && html`<${Copy} text=${answer} />`}
      </footer>`}
      ${open && !isRunning && details && html`<${Council} turn=${details} models=${known} />`}
      ${open && !details && (problem ? html`<${Trouble} problem=${problem} onRetry=${load} />` : html`<${Waiting} label="Reading the log" />`)}
      ${!isRunning && isUnfinished && html`<${Unfinished} talk=${talk} status=${status} />`}
      ${status === "undone" && html`<p class="dim">You took this turn back; the agents do not see it.</p>`}
      ${status === "abandoned" && html`<p class="dim">This turn was given up.</p>`}
    </section>`;
}

// Goes between the versions of a turn.
function Versions({ talk, record: { turn, versions }, onProblem }) {
  const place = versions.indexOf(turn);
  const go = (next) => talk.chooseVersion(versions[next]).then(announceChange, onProblem);
  const arrow = (next, label, icon) => html`<button type="button" class=${`icon-button small ${icon}`} aria-label=${label} title=${label} disabled=${!(next in versions) || talk.isRunning} onClick=${() => go(next)}><${Icon} name="down" /></button>`;
  return html`<span class="versions" role="group" aria-label="Versions">${arrow(place - 1, "Earlier version", "back")}
    <span aria-label=${`Version ${place + 1} of ${versions.length}`}>${place + 1}/${versions.length}</span>${arrow(place + 1, "Later version", "on")}</span>`;
}

function Unfinished({ talk, status }) {
  const [problem, setProblem] = useState(null);
  return html`
    <div class="unfinished"><span>${status === "failed" ? "No agent could answer." : "This turn was stopped before it had an answer."}</span>
      <button type="button" onClick=${() => talk.continueTurn().catch(setProblem)}><${Icon} name="play" />${status === "failed" ? "Try again" : "Continue"}</button></div>
    <${Trouble} problem=${problem} />`;
}

const Presentation = ({ turn }) => html`
  <article class=${`message assistant final agent-${colourOf(turn, turn.presentation.agent)}`} aria-busy="true">
    <header><${AgentName} name=${nameOf(turn, turn.presentation.agent)} colour=${colourOf(turn, turn.presentation.agent)} /><span class="dim">writes the final answer</span></header>
    <${LongText} text=${turn.presentation.text} isOpen=${true} />
  </article>`;

// Who says what; the answer follows. The same parts as in the terminal (massmem/core/reporting.py).
function Report({ report, name }) {
  const link = (number) => html` <a href=${safeLink(report.sources[number - 1].url)} rel="noopener noreferrer nofollow" target="_blank">[${number}]</a>`;
  const item = (claim) => html`<li>${claim.text}${claim.sources.map(link)} <span class="dim">${claim.agents.map(name).join(", ")}</span></li>`;
  const part = (heading, items) => items.length > 0 && html`<h3>${heading}</h3><ul>${items}</ul>`;
  const byVotes = report.made_from === "votes";
  return html`<section class="report" aria-label="Report of the council">
    ${part(byVotes ? "Given or chosen" : "Agreed", report.agreed.map(item))}
    ${part("Disputed", report.disputed.map((one) => html`<li>${one.text}<ul>${one.positions.map(item)}</ul></li>`))}
    ${part(byVotes ? "Not compared" : "Only one says", report.single.map(item))}
    ${part("Nobody covered", report.missing.map((text) => html`<li>${text}</li>`))}
    ${part("Votes", report.votes.map((vote) => html`<li>${name(vote.agent_id)} for ${name(vote.choice)}: ${vote.reason}</li>`))}
    ${byVotes && html`<p class="dim">Made from equal answers and votes, without a request to a model.</p>`}
    ${report.dropped > 0 && html`<p class="dim">Left out: ${report.dropped} that named an answer or a source that does not exist.</p>`}
  </section>`;
}

// The address of a source is a stranger's: only those of the web become links.
const safeLink = (url) => (/^https?:\/\//i.test(url) ? url : undefined);

const FinalAnswer = ({ turn }) => html`
  <article class=${`message assistant final agent-${colourOf(turn, turn.final.winner)}`}>
    <header><${AgentName} name=${nameOf(turn, turn.final.winner)} colour=${colourOf(turn, turn.final.winner)} /><${Agreement} text=${turn.final.agreement} isLow=${turn.final.escalated} /><time class="dim">${when(turn.endedAt)}</time></header>
    ${turn.final.report && html`<${Report} report=${turn.final.report} name=${(id) => nameOf(turn, id)} />`}
    <${LongText} text=${turn.final.answer} isOpen=${false} />
    <${Flaws} result=${turn.final} />
  </article>`;

// result: as the service tells what a turn came to, or the event that ended it, which has the same fields.
const Flaws = ({ result }) => html`<${Sources} citations=${result.citations} />
    ${result.limit && html`<p class="dim">The turn reached its limit (${result.limit}): this is the best answer there was.</p>`}
    ${result.fallback && html`<p class="dim">Written by ${result.fallback}: the agent's own model had failed.</p>`}
    ${result.truncated && html`<p class="dim">The end is missing: its model reached its limit of tokens.</p>`}
    ${result.work_cut && html`<p class="dim">${describeWorkCut(result.work_cut)}</p>`}`;

// result: what the turn of an answer came to.
function Message({ talk, message, part, colour, names = {}, result, onEdit, wasEditing }) {
  const [text, setText] = useState(null);
  const [problem, setProblem] = useState(null);
  const editButton = useRef(null);
  useEffect(() => wasEditing && editButton.current.focus(), []); // the keyboard goes on where it was
  const shown = text ?? message.text;
  const mark = part === `message-${message.seq}` ? "marked" : "";
  // The service counts characters, the browser halves of some.
  const isCut = useMemo(() => text === null && message.length > Array.from(message.text).length, [text, message.text]);
  const loadAll = async () => {
    try {
      setText(await talk.loadText(message, 0));
    } catch (error) {
      setProblem(error);
    }
  };
  const files = html`${(message.texts || []).map((text, index) => html`<${AttachedText} key=${index} talk=${talk} message=${message} text=${text} part=${index + 1} />`)}
    ${message.description && html`<details class="file"><summary>Description</summary><p class="plain">${message.description}</p></details>`}
    ${message.files.map((file) => html`<${Attached} key=${file.hash} talk=${talk} file=${file} />`)}${(message.pending || []).map((name) => html`<span class="file"><${Icon} name="clip" />${name}</span>`)}`;
  const time = message.created_at && html`<time class="dim" datetime=${message.created_at} title=${exactly(message.created_at)}>${when(message.created_at)}</time>`;
  if (message.role === "user")
    return html`<article id=${`message-${message.seq}`} class=${`message user ${message.is_note ? "note" : ""} ${mark}`} aria-label=${message.is_note ? "Your note" : "You"}>
      ${message.is_note && html`<span class="dim">Note</span>`}
      <div class="plain" dir="auto">${message.param ? html`<em>Your reply (${message.param}) is not shown.</em>` : clip(shown)}</div>
      ${files}${(isCut || clip(shown) !== shown) && html`<${ShowAll} text=${shown} length=${message.length} onLoad=${isCut ? loadAll : null} />`}<${Trouble} problem=${problem} />
      ${onEdit && html`<button type="button" class="plain edit" ref=${editButton} title="Ask it in other words, or again: the turn gets another version" onClick=${onEdit}><${Icon} name="pencil" />Edit</button>`}
    </article>`;
  return html`
    <article id=${`message-${message.seq}`} class=${`message assistant final agent-${colour} ${mark}`}>
      <header>${message.agent && html`<${AgentName} name=${message.agent} colour=${colour} />`}${result && html`<${Agreement} text=${result.agreement} isLow=${result.escalated} />`}${time}</header>
      ${result?.report && html`<${Report} report=${result.report} name=${(id) => names[id] ?? id} />`}
      <${LongText} text=${shown} isOpen=${false} length=${message.length} onLoad=${isCut ? loadAll : null} />
      ${result && html`<${Flaws} result=${result} />`}
      <${Trouble} problem=${problem} />
    </article>`;
}

// The question of a turn, to be asked in other words, or again: the turn gets another version.
function EditQuestion({ talk, turn, about, onClose }) {
  const [question, problem, again] = useLoad(() => talk.loadQuestion(turn), [turn]);
  if (!question) return problem ? html`<${Trouble} problem=${problem} onRetry=${again} />` : html`<${Waiting} label="Reading the question" />`;
  return html`<${EditForm} talk=${talk} turn=${turn} about=${about} question=${question} onClose=${onClose} />`;
}

function EditForm({ talk, turn, about, question, onClose }) {
  const [text, setText] = useState(question.text);
  const [files, setFiles] = useState(question.files);
  const [team, setTeam] = useState(null);
  const [full, setFull] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  useLayoutEffect(() => fitHeight(field.current), [text]);
  const send = async () => {
    if (!text.trim() || busy) return;
    setBusy(true);
    try {
      await talk.askInstead(question, text, files, { team, full, job: talk.turns.get(turn)?.job });
      if (team !== null) talk.team = about.teams.find((entry) => entry.name === team);
      announceChange();
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  const onKey = (event) => {
    if (event.key === "Escape") onClose();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  return html`
    <form class="message user editing" onSubmit=${(e) => { e.preventDefault(); send(); }}>
      <label for="edit">Your question; the one before stays as another version</label>
      <textarea id="edit" ref=${field} rows="1" value=${text} onInput=${(e) => setText(e.target.value)} onKeyDown=${onKey}></textarea>
      ${files.length > 0 && html`<${FileList} files=${files} onRemove=${(index) => setFiles(files.filter((_, i) => i !== index))} />`}
      <${Trouble} problem=${problem} />
      <footer>
        ${about.teams.length > 1 && html`<label class="team-choice"><span class="hidden">Team</span><select value=${team === null ? "same" : `team ${team}`} onChange=${(e) => setTeam(e.target.value === "same" ? null : e.target.value.slice(5))}>
          <option value="same">the same team</option>${about.teams.map((entry) => html`<option value=${`team ${entry.name}`}>${entry.name || "default team"}</option>`)}</select></label>`}
        ${(talk.team || about.teams[0]).adaptive && html`<label><input type="checkbox" checked=${full} onChange=${(e) => setFull(e.target.checked)} /> Ask all agents</label>`}
        <span class="spacer"></span>
        <button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="primary" disabled=${busy || !text.trim()}>Ask</button>
      </footer>
    </form>`;
}

const SHOWN = 1_000; // characters of a question that are shown at once
const LINES = 30;
function clip(text) {
  const lines = text.slice(0, SHOWN).split("\n", LINES).join("\n");
  return lines.length < text.length ? `${lines} …` : text;
}

function ShowAll({ text, length, onLoad }) {
  const [dialog, setDialog] = useState(false);
  const open = async () => {
    if (onLoad) await onLoad();
    setDialog(true);
  };
  return html`<button type="button" class="plain" onClick=${open}>Show all ${length.toLocaleString("en")} characters</button>
    ${dialog && html`<${Dialog} title="The whole question" onClose=${() => setDialog(false)}><pre class="whole" tabindex="0">${text}</pre><//>`}`;
}

// The text of a file below a question; it is read once somebody wants to see it.
function AttachedText({ talk, message, text, part }) {
  const [content, setContent] = useState(null);
  const [problem, setProblem] = useState(null);
  const load = (event) => event.target.open && content === null && talk.loadText(message, part).then(setContent, setProblem);
  return html`
    <details class="file" onToggle=${load}><summary><${Icon} name="clip" />${text.name}<span class="dim"> ${plural(text.length, "character")}</span></summary>
      <${Trouble} problem=${problem} />
      ${content === null ? !problem && html`<${Waiting} label="Reading the text" />` : html`<pre tabindex="0">${content}</pre>`}</details>`;
}

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

function Attached({ talk, file }) {
  const [url, setUrl] = useState(null);
  useEffect(() => {
    if (!PICTURES.includes(file.media_type)) return undefined;
    let made = null;
    let isGone = false;
    request(talk.path(`/files/${file.hash}`)).then((response) => response.blob()).then((blob) => {
      if (isGone) return;
      made = URL.createObjectURL(new Blob([blob], { type: file.media_type }));
      setUrl(made);
    }, () => {});
    return () => {
      isGone = true;
      if (made) URL.revokeObjectURL(made);
    };
  }, [file.hash]);
  if (url) return html`<img class="picture" src=${url} alt=${file.name} />`;
  return html`<span class="file"><${Icon} name="clip" />${file.name}<span class="dim"> ${bytes(file.size)}</span></span>`;
}
