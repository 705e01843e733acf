// Conversations of other programs become conversations here.
import { html, useState } from "./html.js";
import { request } from "./api.js";
import { plural } from "./format.js";
import { announceChange, Dialog, Trouble, Waiting } from "./parts.js";

export function ImportDialog({ onClose }) {
  const [file, setFile] = useState(null);
  const [busy, setBusy] = useState(false);
  const [sessions, setSessions] = useState(null);
  const [problem, setProblem] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setSessions(null);
    setProblem(null);
    try {
      const name = encodeURIComponent(file.name.replace(/\.[^.]*$/, "").slice(0, 200));
      const response = await request(`api/v1/sessions/import?name=${name}`, { method: "POST", file });
      setSessions((await response.json()).sessions);
      announceChange();
    } catch (error) {
      setProblem(error.status === 413 ? "This file is too large to be sent. massmem import reads it on the machine of the service." : error);
    }
    setBusy(false);
  };
  return html`
    <${Dialog} title="Import conversations" onClose=${onClose}>
      <form onSubmit=${submit}>
        <p>What ChatGPT and Claude export (<code>conversations.json</code>), what massmem exports as JSON, and lists of messages. Import a newer export again: only what is new is added.</p>
        <label for="export">File</label>
        <input id="export" type="file" accept=".json,.jsonl,.ndjson" required onChange=${(e) => setFile(e.target.files[0] || null)} />
        ${busy && html`<${Waiting} label="Importing" />`}
        <${Trouble} problem=${problem} />
        ${sessions && html`<${Outcome} sessions=${sessions} onOpen=${onClose} />`}
        <footer><button type="button" onClick=${onClose}>${sessions ? "Close" : "Cancel"}</button><button type="submit" class="primary" disabled=${busy || !file}>Import</button></footer>
      </form>
    <//>`;
}

function Outcome({ sessions, onOpen }) {
  const added = sessions.reduce((sum, session) => sum + session.added, 0);
  return html`
    <p role="status"><strong>${plural(sessions.length, "conversation")} read, ${plural(added, "question")} with answers added.</strong></p>
    <ul class="outcome">${sessions.map((session) => html`
      <li><a href=${`#/c/${encodeURIComponent(session.session_id)}`} onClick=${onOpen}>${session.title || session.session_id}</a> <span class="dim">${describe(session)}</span></li>`)}</ul>`;
}

function describe(session) {
  if (session.conflict) return "has gone on in another way here, and was left as it is";
  if (session.busy) return "is being asked something; import it again afterwards";
  return session.added ? `${session.added} added` : "nothing new";
}
