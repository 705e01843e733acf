// The next question: text, files, the team, and what to do with the turn that is under way.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { newSessionId, randomName, readAsUrl, request } from "./api.js";
import { loadDraft, saveDraft } from "./drafts.js";
import { bytes, projectName } from "./format.js";
import { FileList, fitHeight, Icon, Trouble } from "./parts.js";

const OWN = "own"; // the team that the conversation has had so far, when no request can name it

export function Composer({ talk, about, onAsk }) {
  const [draft, setDraft] = useState({ text: "", files: [], sending: null });
  const [team, setTeam] = useState(null); // null: as it is
  const [problem, setProblem] = useState(null);
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
    loadDraft(key).then((kept) => kept && setDraft((now) => (now.text || now.files.length ? now : kept)));
  }, []);
  const latest = useRef(draft);
  // Another text or other files are another question.
  const change = (part) => {
    latest.current = { ...latest.current, sending: null, ...part };
    setDraft(latest.current);
    if (!asked) saveDraft(key, latest.current); // a reply to the agents may be a secret
  };
  latest.current = draft;

  const send = async () => {
    if (!draft.text.trim() || isRunning || busy) return;
    setBusy(true);
    setProblem(null);
    try {
      // A file belongs to the question from when it is chosen.
      const { refused } = reads.current;
      await reads.current.last;
      if (reads.current.refused > refused) return;
      const { text, files } = latest.current;
      // The same question again after a failure, or a reload, is known by its name: it is asked once.
      const sending = latest.current.sending || { id: talk.id ?? newSessionId(), name: randomName() };
      change({ sending });
      const sent = await Promise.all(files.map(async (file) => ({ name: file.name, url: await readAsUrl(file.blob) })));
      await onAsk(text, sent, chosen === (own.name ?? OWN) ? null : chosen, sending);
      setDraft({ text: "", files: [], sending: null });
      setTeam(null);
      saveDraft(key, null);
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
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
  const onPaste = (event) => {
    if (event.clipboardData.files.length) {
      event.preventDefault();
      add(event.clipboardData.files);
    }
  };
  const onDrop = (event) => {
    event.preventDefault();
    setOver(false);
    add(event.dataTransfer.files);
  };
  const attempt = (action) => action().then(() => setProblem(null), setProblem);

  return html`
    <form class=${`composer ${over ? "over" : ""}`} aria-busy=${busy} onSubmit=${(e) => { e.preventDefault(); send(); }} onDragOver=${(e) => { e.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${onDrop}>
      <${Trouble} problem=${problem} />
      ${talk.note && team === null && !isRunning && html`<p class="notice" role="status"><${Icon} name="warn" />${talk.note}</p>`}
      ${isRunning && html`<div class="controls">
        <button type="button" onClick=${() => attempt(() => talk.answerNow())}><${Icon} name="bolt" />Answer now</button>
        <button type="button" onClick=${() => attempt(() => talk.stop())}><${Icon} name="stop" />Stop</button></div>`}
      ${draft.files.length + reading.length > 0 && html`<${FileList} files=${draft.files} reading=${reading} onRemove=${(index) => change({ files: draft.files.filter((_, i) => i !== index) })} />`}
      <div class="field">
        <label class="hidden" for="question">${asked ? "Your reply" : "Your question"}</label>
        <textarea id="question" ref=${field} rows="1" readonly=${busy} placeholder=${asked ? `Reply to ${asked.agent || "the agents"}` : isRunning ? "The agents are at work" : "Ask the council"} value=${draft.text} onInput=${(e) => change({ text: e.target.value })} onKeyDown=${onKey} onPaste=${onPaste}></textarea>
        <input ref=${picker} type="file" multiple hidden aria-label="Files" onChange=${(e) => { add(e.target.files); e.target.value = ""; }} />
        <div class="tools">
          <button type="button" class="icon-button" aria-label="Attach files" title="Attach files" onClick=${() => picker.current.click()}><${Icon} name="clip" /></button>
          ${(about.teams.length > 1 || own.name === null) && !asked && html`<label class="team-choice"><span class="hidden">Team</span><select value=${chosen} onChange=${(e) => setTeam(e.target.value)}>
            ${own.name === null && html`<option value=${OWN}>${own.agents.map((agent) => agent.name).join(", ")}</option>`}
            ${about.teams.map((entry) => html`<option value=${entry.name}>${entry.name || "default team"}</option>`)}</select></label>`}
          ${talk.id === null && html`<label><span class="hidden">Project</span><input class="project" maxlength="4096" placeholder="Project (none)" title="What is said here is recalled in this project alone" value=${talk.project} onInput=${(e) => (talk.project = e.target.value.trim())} /></label>`}
          ${talk.session?.project && html`<span class="dim" title=${talk.session.project}>in ${projectName(talk.session.project)}</span>`}
          <span class="spacer"></span>
          <button type="submit" class="primary send" aria-label=${asked ? "Reply" : "Ask"} disabled=${isRunning || busy || !draft.text.trim()}>${busy ? html`<span class="spinner" aria-hidden="true"></span>` : html`<${Icon} name="send" />`}</button>
        </div>
      </div>
    </form>`;
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
