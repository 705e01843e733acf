// Conversations of other programs become conversations here.
import { html, useState } from "./html.js";
import { request } from "./api.js";
import { plural } from "./format.js";
import { announceChange, Dialog, Trouble, Waiting } from "./parts.js";

export function ImportDialog({ onClose }) {
  const [file, setFile] = useState(null);
  const [busy, setBusy] = useState(false);
  const [outcome, setOutcome] = useState(null);
  const [problem, setProblem] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setOutcome(null);
    setProblem(null);
    try {
      const name = encodeURIComponent(file.name.replace(/\.[^.]*$/, "").slice(0, 200));
      const response = await request(`api/v1/sessions/import?name=${name}`, { method: "POST", file });
      setOutcome(await response.json());
      announceChange();
    } catch (error) {
      setProblem(error.status === 413 ? "This file is too large to be sent. massmem import reads it on the machine of the service." : error);
    }
    setBusy(false);
  };
  return html`
    <${Dialog} title="Import conversations" onClose=${onClose}>
      <form onSubmit=${submit}>
        <p>What ChatGPT, Claude, Gemini, Open WebUI, LibreChat and others export, as JSON or as the ZIP archive that it came in, what massmem exports as JSON, and lists of messages. Import a newer export again: conversations are brought up to date.</p>
        <label for="export">File</label>
        <input id="export" type="file" accept=".json,.jsonl,.ndjson,.gz,.zip" required onChange=${(e) => setFile(e.target.files[0] || null)} />
        ${busy && html`<${Waiting} label="Importing" />`}
        <${Trouble} problem=${problem} />
        ${outcome && html`<${Outcome} ...${outcome} onOpen=${onClose} />`}
        <footer><button type="button" onClick=${onClose}>${outcome ? "Close" : "Cancel"}</button><button type="submit" class="primary" disabled=${busy || !file}>Import</button></footer>
      </form>
    <//>`;
}

function Outcome({ sessions, left_out: leftOut, onOpen }) {
  const missing = Object.entries(leftOut).map(([what, count]) => `${what} (${count})`);
  const added = sessions.reduce((sum, session) => sum + session.added, 0);
  return html`
    <p role="status"><strong>${plural(sessions.length, "conversation")} read, ${plural(added, "question")} with answers added.</strong></p>
    ${missing.length > 0 && html`<p class="dim">Left out: ${missing.slice(0, 8).join(", ")}${missing.length > 8 && ", and more"}</p>`}
    <ul class="outcome">${sessions.map((session) => html`
      <li><a href=${`#/c/${encodeURIComponent(session.session_id)}`} onClick=${onOpen}>${session.title || session.session_id}</a> <span class="dim">${describe(session)}</span></li>`)}</ul>`;
}

function describe(session) {
  if (session.conflict) return "has gone on in another way here, and was left as it is";
  if (session.busy) return "is being asked something; import it again afterwards";
  const removed = session.replaced ? `, ${session.replaced} of an older export removed` : "";
  return session.added ? `${session.added} added${removed}` : "nothing new";
}
