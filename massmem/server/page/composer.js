// The next question: text, files, the team, and what to do with the turn that is under way.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { newSessionId, randomName, readAsUrl, request } from "./api.js";
import { loadDraft, saveDraft } from "./drafts.js";
import { bytes, projectName, seconds, tokens } from "./format.js";
import { FileList, fitHeight, Icon, Trouble, useInterval } from "./parts.js";
import { countTokens } from "./turn.js";

const OWN = "own"; // the team that the conversation has had so far, when no request can name it
const EMPTY = { text: "", files: [], sending: null };
const TEAM = { agent: "", model: null, folder: "", full: false, job: "", mode: "council" }; // who answers: the team as it is
const ENDS = { completed: "The answer is complete.", failed: "The turn has failed.", interrupted: "The turn was stopped.", waiting: "The agents ask you something." };

export function Composer({ talk, about, onAsk }) {
  const [draft, setDraft] = useState({ ...EMPTY, queue: [], whom: TEAM });
  const [team, setTeam] = useState(null); // null: as it is
  const [problem, setProblem] = useState(null);
  const [isOpen, setOpen] = useState(false); // the row with what is seldom chosen
  const [ending, setEnding] = useState("");
  const [busy, setBusy] = useState(false);
  const [reading, setReading] = useState([]); // names of files that are being read
  const reads = useRef({ last: Promise.resolve(), refused: 0 });
  const [over, setOver] = useState(false);
  const field = useRef(null);
  const picker = useRef(null);
  const isRunning = talk.isRunning;
  const asked = waitingMessage(talk);
  const own = talk.team || { name: "", agents: about.teams[0].agents };
  const chosen = team ?? own.name ?? OWN;
  const key = `${about.user ?? ""}\n${talk.id ?? ""}`;

  useLayoutEffect(() => fitHeight(field.current), [draft.text]);
  useEffect(() => {
    if (window.matchMedia("(min-width: 700px)").matches) field.current.focus();
    loadDraft(key).then((kept) => kept && setDraft((now) => (now.text || now.files.length ? now : { ...now, ...kept })));
  }, []);
  const latest = useRef(draft);
  // Another text or other files are another question.
  const change = (part) => {
    latest.current = { ...latest.current, sending: null, ...part };
    setDraft(latest.current);
    saveDraft(key, asked ? { ...latest.current, ...EMPTY } : latest.current); // a reply to the agents may be a secret
  };
  latest.current = draft;

  const { queue, whom } = draft;
  const isReady = draft.text.trim() && whom.model !== "";
  const deliver = async ({ text, files, team, whom, sending }) => {
    const sent = await Promise.all(files.map(async (file) => ({ name: file.name, url: await readAsUrl(file.blob) })));
    await onAsk(text, sent, { ...whom, model: whom.model || "", team }, sending);
  };
  const attempt = (action) => {
    setBusy(true);
    setProblem(null);
    return action().catch(setProblem).finally(() => setBusy(false));
  };
  // What is asked while a turn runs waits for its end.
  const send = () => isReady && !busy && attempt(async () => {
    // A file belongs to the question from when it is chosen.
    const { refused } = reads.current;
    await reads.current.last;
    if (reads.current.refused > refused) return;
    const { text, files, queue } = latest.current;
    // The same question again after a failure, or a reload, is known by its name: it is asked once.
    const sending = latest.current.sending || { id: talk.id ?? newSessionId(), name: randomName() };
    const question = { text, files, team: chosen === (own.name ?? OWN) ? null : chosen, whom, sending };
    if (talk.isRunning) return change({ ...EMPTY, queue: [...queue, question] });
    change({ sending });
    await deliver(question);
    change(EMPTY);
    setTeam(null);
  });
  const askNext = () => attempt(async () => {
    await deliver(latest.current.queue[0]);
    change({ queue: latest.current.queue.slice(1) });
  });
  const takeBack = (question) => change({ queue: queue.filter((one) => one !== question), text: [question.text, draft.text].filter(Boolean).join("\n\n"), files: [...question.files, ...draft.files] });
  const wasRunning = useRef(isRunning);
  useEffect(() => {
    const status = talk.live?.status ?? [...talk.turns.values()].at(-1)?.status;
    if (wasRunning.current && !isRunning) {
      setEnding(ENDS[status] ?? ENDS.completed);
      if (latest.current.queue.length && !["failed", "interrupted", "waiting"].includes(status)) askNext();
    } else if (isRunning) setEnding("");
    wasRunning.current = isRunning;
  }, [isRunning]);
  const read = async (file) => {
    try {
      const added = await readFile(file, about.max_file_size);
      change({ files: [...latest.current.files, added] });
    } catch (error) {
      reads.current.refused++;
      setProblem(error);
    }
    setReading((names) => names.slice(1));
  };
  const add = (list) => {
    if (busy) return;
    setProblem(null);
    for (const file of list) {
      setReading((names) => [...names, file.name]);
      reads.current.last = reads.current.last.then(() => read(file));
    }
  };
  const onKey = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  const take = (event, list) => {
    event.preventDefault();
    add(list);
  };
  const onDrop = (event) => {
    setOver(false);
    take(event, event.dataTransfer.files);
  };
  const choose = (value) => {
    const [kind, id] = value.startsWith("agent:") ? ["agent", value.slice(6)] : value === "model:" ? ["model", ""] : ["team", value];
    if (kind === "team") setTeam(id);
    change({ whom: { ...whom, agent: "", model: null, ...(kind === "team" ? {} : { [kind]: id }) } });
  };
  const chooseJob = (value) => setPart(value === "mode:report" ? { job: "", mode: "report" } : { job: value, mode: "council" });
  const setPart = (part) => change({ whom: { ...whom, ...part } });
  const isLocal = about.user === null;
  const shownTeam = about.teams.find((entry) => entry.name === chosen) || own;

  return html`
    <form class=${`composer ${over ? "over" : ""}`} aria-busy=${busy} onSubmit=${(e) => { e.preventDefault(); send(); }} onDragOver=${(e) => { e.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${onDrop}>
      <${Trouble} problem=${problem} />
      ${talk.note && team === null && !isRunning && html`<p class="notice" role="status"><${Icon} name="warn" />${talk.note}</p>`}
      <p class="hidden" role="status">${ending}</p>
      ${isRunning && html`<div class="controls">
        <button type="button" onClick=${() => talk.answerNow().catch(setProblem)}><${Icon} name="bolt" />Answer now</button>
        <button type="button" onClick=${() => talk.stop().catch(setProblem)}><${Icon} name="stop" />Stop</button><${Progress} turn=${talk.live} /></div>`}
      ${queue.length > 0 && html`<ol class="queue" aria-label="Asked next">${queue.map((question) => html`<li><span class="line" dir="auto">${question.text}</span>
        ${!isRunning && question === queue[0] && html`<button type="button" class="plain" disabled=${busy} onClick=${askNext}>Ask</button>`}
        <button type="button" class="plain" onClick=${() => takeBack(question)}>Take back</button></li>`)}</ol>`}
      ${draft.files.length + reading.length > 0 && html`<${FileList} files=${draft.files} reading=${reading} onRemove=${(index) => change({ files: draft.files.filter((_, i) => i !== index) })} />`}
      <div class="field">
        <label class="hidden" for="question">${asked ? "Your reply" : "Your question"}</label>
        <textarea id="question" ref=${field} rows="1" dir="auto" readonly=${busy} placeholder=${asked ? `Reply to ${asked.agent || "the agents"}` : isRunning ? "Ask the next question: it waits its turn" : "Ask the council"} value=${draft.text} onInput=${(e) => change({ text: e.target.value })} onKeyDown=${onKey} onPaste=${(e) => e.clipboardData.files.length && take(e, e.clipboardData.files)}></textarea>
        <input ref=${picker} type="file" multiple hidden aria-label="Files" onChange=${(e) => { add(e.target.files); e.target.value = ""; }} />
        <div class="tools">
          <button type="button" class="icon-button" aria-label="Attach files" title="Attach files" onClick=${() => picker.current.click()}><${Icon} name="clip" /></button>
          ${(about.teams.length > 1 || own.name === null || shownTeam.agents.length > 1 || isLocal) && !asked && html`<label class="team-choice"><span class="hidden">Who answers</span><select value=${whom.model !== null ? "model:" : whom.agent ? `agent:${whom.agent}` : chosen} onChange=${(e) => choose(e.target.value)}>
            ${own.name === null && html`<option value=${OWN}>${own.agents.map((agent) => agent.name).join(", ")}</option>`}
            ${about.teams.map((entry) => html`<option value=${entry.name}>${entry.name || "default team"}</option>`)}
            ${shownTeam.agents.length > 1 && html`<optgroup label="One agent alone">${shownTeam.agents.map((agent) => html`<option value=${`agent:${agent.id}`}>${agent.name}</option>`)}</optgroup>`}
            ${isLocal && html`<option value="model:">another model</option>`}</select></label>`}
          ${whom.model !== null && !asked && html`<input class="project" aria-label="Model" maxlength="200" placeholder="ollama/qwen3:8b" value=${whom.model} onInput=${(e) => setPart({ model: e.target.value.trim() })} />`}
          ${!asked && html`<label class="team-choice"><span class="hidden">Job</span><select aria-describedby=${whom.job ? "job-hint" : undefined} value=${whom.mode === "report" ? "mode:report" : whom.job} onChange=${(e) => chooseJob(e.target.value)}>
            <option value="">answer</option><option value="mode:report">report</option>
            <optgroup label="Jobs">${about.jobs.map((job) => html`<option value=${job.name} title=${job.summary}>${job.name}</option>`)}</optgroup></select></label>`}
          ${!asked && (talk.id === null || isLocal || shownTeam.adaptive) && html`<button type="button" class="icon-button" aria-label="Project, folder, mode" title="Project, folder, mode" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}><${Icon} name="more" /></button>`}
          ${talk.session?.project && html`<span class="dim" title=${talk.session.project}>in ${projectName(talk.session.project)}</span>`}
          <span class="spacer"></span>
          <button type="submit" class="primary send" aria-label=${asked ? "Reply" : isRunning ? "Ask next" : "Ask"} disabled=${busy || !isReady}>${busy ? html`<span class="spinner" aria-hidden="true"></span>` : html`<${Icon} name="send" />`}</button>
        </div>
        ${whom.job && !asked && html`<p class="dim hint" id="job-hint">${about.jobs.find((job) => job.name === whom.job)?.summary}</p>`}
        ${(isOpen || whom.folder || whom.full || talk.project) && !asked && html`<div class="tools more">
          ${talk.id === null && html`<input class="project" aria-label="Project" maxlength="4096" placeholder="Project (none)" title="What is said here is recalled in this project alone" value=${talk.project} onInput=${(e) => (talk.project = e.target.value.trim())} />`}
          ${isLocal && html`<input class="project" aria-label="Folder" maxlength="4096" placeholder="Folder to read (none)" title="The agents read the files of this folder" value=${whom.folder} onInput=${(e) => setPart({ folder: e.target.value.trim() })} />`}
          ${shownTeam.adaptive && html`<label class="check"><input type="checkbox" checked=${whom.full} onChange=${(e) => setPart({ full: e.target.checked })} />Ask all agents</label>`}</div>`}
      </div>
    </form>`;
}

// How long the turn has run, and the tokens that it took so far.
function Progress({ turn }) {
  const [, tick] = useState(0);
  useInterval(() => tick((number) => number + 1), 1_000);
  const passed = Math.max(0, Math.floor((Date.now() - new Date(turn.startedAt ?? Date.now())) / 1_000));
  return html`<span class="dim" role="timer">${passed < 60 ? `${passed} s` : seconds(passed)} · about ${tokens(countTokens(turn))} tokens</span>`;
}

// The message by which the agents ask for a value, when they wait for the reply.
function waitingMessage(talk) {
  if (talk.live && talk.live.waiting) return { agent: talk.live.waiting.agent_name || talk.live.waiting.agents[0] };
  const last = talk.messages.at(-1);
  return last && last.waiting_for && talk.turns.get(last.turn)?.status === "waiting" ? last : null;
}

// Returns a file with its bytes as they are now. Throws what the service would say of it when it was sent.
async function readFile(file, most) {
  if (file.size > most) throw new Error(`${file.name} is larger than ${bytes(most)}. Attach a smaller file.`);
  const data = await file.arrayBuffer().catch(() => {
    throw new Error(`${file.name} cannot be read. Of a folder, attach the files in it.`);
  });
  const blob = new Blob([data], { type: file.type });
  try {
    await request(`api/v1/files/check?name=${encodeURIComponent(file.name.slice(0, 200))}`, { method: "POST", file: blob });
  } catch (error) {
    if (error.status === 413 || error.status === 422) throw error; // anything else is no fault of the file
  }
  return { name: file.name, size: file.size, blob };
}
