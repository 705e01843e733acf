// Conversations of other programs become conversations here.
import { html, useState } from "./html.js";
import { getJson, request, sentence } from "./api.js";
import { plural } from "./format.js";
import { announceChange, Dialog, Trouble, Waiting } from "./parts.js";

export function ImportDialog({ onClose }) {
  const [file, setFile] = useState(null);
  const [job, setJob] = useState(null);
  const [problem, setProblem] = useState(null);
  const isRunning = job && job.status === "running";
  const submit = async (event) => {
    event.preventDefault();
    setProblem(null);
    try {
      const name = encodeURIComponent(file.name.replace(/\.[^.]*$/, "").slice(0, 200));
      let state = await request(`api/v1/sessions/import?name=${name}`, { method: "POST", file }).then(
        (response) => response.json(),
        (error) => (error.address ? getJson(error.address.slice(1)) : Promise.reject(error)), // it is being imported already
      );
      for (setJob(state); state.status === "running"; setJob(state)) {
        await new Promise((resolve) => setTimeout(resolve, 500));
        state = await getJson(`api/v1/imports/${state.id}`);
      }
      setProblem(state.error && sentence(state.error));
      announceChange();
    } catch (error) {
      setJob(null);
      setProblem(error.status === 413 && !error.message.startsWith("You have") ? "This file is too large to be sent. massmem import reads it on the machine of the service." : error);
    }
  };
  const stop = () => request(`api/v1/imports/${job.id}`, { method: "DELETE" }).catch(setProblem);
  return html`
    <${Dialog} title="Import conversations" onClose=${onClose}>
      <form onSubmit=${submit}>
        <p>What ChatGPT, Claude, Gemini, Open WebUI, LibreChat and others export, as JSON or as the ZIP archive that it came in, what massmem exports as JSON, and lists of messages. Import a newer export again: conversations are brought up to date.</p>
        <label for="export">File</label>
        <input id="export" type="file" accept=".json,.jsonl,.ndjson,.gz,.zip" required onChange=${(e) => setFile(e.target.files[0] || null)} />
        ${isRunning && html`<${Waiting} label=${job.total === null ? "Reading the file" : `${job.turns} of ${plural(job.total, "question")} imported`} />`}
        <${Trouble} problem=${problem} />
        ${job && !isRunning && job.status !== "failed" && html`<${Outcome} ...${job} onOpen=${onClose} />`}
        <footer><button type="button" onClick=${onClose}>Close</button>
          ${isRunning ? html`<button type="button" onClick=${stop}>Stop</button>` : html`<button type="submit" class="primary" disabled=${!file}>Import</button>`}</footer>
      </form>
    <//>`;
}

function Outcome({ status, sessions, left_out: leftOut, onOpen }) {
  const missing = Object.entries(leftOut).map(([what, count]) => `${what} (${count})`);
  const added = sessions.reduce((sum, session) => sum + session.added, 0);
  return html`
    <p role="status"><strong>${plural(sessions.length, "conversation")} read, ${plural(added, "question")} with answers added.</strong>${status !== "done" && html` This is not all: the import was ${status}. Import the file again to go on.`}</p>
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
