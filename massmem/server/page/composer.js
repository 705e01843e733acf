// The next question: text, files, and what to do with the turn that is under way.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { readAsUrl } from "./api.js";
import { bytes } from "./format.js";
import { FileList, fitHeight, Icon, Trouble } from "./parts.js";

export function Composer({ talk, about, onAsk }) {
  const [text, setText] = useState("");
  const [files, setFiles] = useState([]);
  const [team, setTeam] = useState("");
  const [problem, setProblem] = useState(null);
  const [over, setOver] = useState(false);
  const field = useRef(null);
  const picker = useRef(null);
  const isRunning = talk.isRunning;
  const asked = waitingMessage(talk);

  useLayoutEffect(() => fitHeight(field.current), [text]);
  useEffect(() => {
    if (window.matchMedia("(min-width: 700px)").matches) field.current.focus();
  }, []);

  const send = async () => {
    if (!text.trim() || isRunning) return;
    const question = text;
    const sent = files;
    setText("");
    setFiles([]);
    setProblem(null);
    try {
      const read = await Promise.all(sent.map(async (file) => ({ name: file.name, url: await file.url })));
      await onAsk(question, read, about.teams.length > 1 && talk.messages.length === 0 && team ? team : null);
    } catch (error) {
      setText(question);
      setFiles(sent);
      setProblem(error);
    }
  };
  const add = (chosen) => {
    try {
      const added = Array.from(chosen, (file) => startReading(file, about.max_file_size));
      setFiles((old) => [...old, ...added]);
      setProblem(null);
    } catch (error) {
      setProblem(error);
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
    <form class=${`composer ${over ? "over" : ""}`} onSubmit=${(e) => { e.preventDefault(); send(); }} onDragOver=${(e) => { e.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${onDrop}>
      <${Trouble} problem=${problem} />
      ${isRunning && html`<div class="controls">
        <button type="button" onClick=${() => attempt(() => talk.answerNow())}><${Icon} name="bolt" />Answer now</button>
        <button type="button" onClick=${() => attempt(() => talk.stop())}><${Icon} name="stop" />Stop</button></div>`}
      ${files.length > 0 && html`<${FileList} files=${files} onRemove=${(index) => setFiles(files.filter((_, i) => i !== index))} />`}
      <div class="field">
        <label class="hidden" for="question">${asked ? "Your reply" : "Your question"}</label>
        <textarea id="question" ref=${field} rows="1" placeholder=${asked ? `Reply to ${asked.agent || "the agents"}` : isRunning ? "The agents are at work" : "Ask the council"} value=${text} onInput=${(e) => setText(e.target.value)} onKeyDown=${onKey} onPaste=${onPaste}></textarea>
        <input ref=${picker} type="file" multiple hidden aria-label="Files" onChange=${(e) => { add(e.target.files); e.target.value = ""; }} />
        <div class="tools">
          <button type="button" class="icon-button" aria-label="Attach files" title="Attach files" onClick=${() => picker.current.click()}><${Icon} name="clip" /></button>
          ${about.teams.length > 1 && talk.messages.length === 0 && html`<label class="team-choice"><span class="hidden">Team</span><select value=${team} onChange=${(e) => setTeam(e.target.value)}>${about.teams.map((entry) => html`<option value=${entry.name}>${entry.name || "default team"}</option>`)}</select></label>`}
          <span class="spacer"></span>
          <button type="submit" class="primary send" aria-label=${asked ? "Reply" : "Ask"} disabled=${isRunning || !text.trim()}><${Icon} name="send" /></button>
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

// A file belongs to the question from when it is chosen; its bytes are waited for when the question is sent.
function startReading(file, most) {
  if (file.size > most) throw new Error(`${file.name} is larger than ${bytes(most)}. Attach a smaller file.`);
  const url = readAsUrl(file);
  url.catch(() => {}); // told when the question is sent
  return { name: file.name, size: file.size, url };
}
