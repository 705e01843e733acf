// Small parts that all views share.
import { html, useEffect, useRef, useState } from "./html.js";
import { bytes } from "./format.js";

const ICONS = {
  plus: "M12 5v14M5 12h14",
  search: "M11 18a7 7 0 1 1 0-14 7 7 0 0 1 0 14zm5-2 4 4",
  memory: "M12 4a8 8 0 1 0 8 8M12 8v4l3 2M17 4h3v3",
  chart: "M5 19V9m7 10V5m7 14v-7",
  stop: "M7 7h10v10H7z",
  bolt: "M13 3 5 14h6l-1 7 8-11h-6z",
  play: "M8 5v14l11-7z",
  send: "M12 19V5m-6 6 6-6 6 6",
  clip: "M19 12l-7 7a4.5 4.5 0 0 1-6.4-6.4l7.8-7.8a3 3 0 0 1 4.3 4.3l-7.8 7.8a1.5 1.5 0 0 1-2.1-2.1l7-7",
  fork: "M7 4v10a3 3 0 0 0 3 3h7m-3-3 3 3-3 3M7 4 4 7m3-3 3 3",
  file: "M12 4v11m-4-4 4 4 4-4M5 20h14",
  pencil: "M5 19l1-4L16 5l3 3L9 18z",
  bin: "M5 7h14M10 7V5h4v2m-7 0 1 12h8l1-12",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6 6 18",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  copy: "M9 9h10v10H9zM5 15V5h10",
  down: "M7 10l5 5 5-5",
  check: "M5 13l4 4L19 7",
  warn: "M12 4 3 19h18zM12 10v4m0 2.5v.1",
  window: "M4 5h16v14H4zM4 9h16M8 13h5M8 16h8",
  help: "M9.5 9a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8m0 3v.1M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18z",
  in: "M12 4v10m-4-4 4 4 4-4M5 15v4h14v-4",
  out: "M10 5H5v14h5m4-3 4-4-4-4m4 4H9",
};

export const Icon = ({ name }) => html`
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false"><path d=${ICONS[name]} /></svg>`;

export const AgentName = ({ name, colour }) => html`<span class=${`agent agent-${colour}`}><span class="dot" aria-hidden="true"></span>${name}</span>`;

export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2><div>${children}</div></div>`;

export const Trouble = ({ problem, onRetry }) =>
  problem && html`
  <div class="trouble" role="alert"><${Icon} name="warn" /><span>${problem.message || problem}</span>
    ${onRetry && html`<button type="button" class="plain" onClick=${onRetry}>Try again</button>`}
  </div>`;

// The files of a question that is being written. reading: names of those that are not there yet.
export const FileList = ({ files, reading = [], onRemove }) => html`
  <ul class="files">${files.map((file, index) => html`<li class="file"><${Icon} name="clip" />${file.name} <span class="dim">${bytes(file.size)}</span>
    <button type="button" class="icon-button small" aria-label=${`Remove ${file.name}`} onClick=${() => onRemove(index)}><${Icon} name="close" /></button></li>`)}
    ${reading.map((name) => html`<li class="file dim" role="status"><span class="spinner" aria-hidden="true"></span>${name}</li>`)}</ul>`;

// Lets a text field be as high as its text, within reason.
export function fitHeight(field) {
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight + 2, window.innerHeight * 0.4)}px`;
}

export const Waiting = ({ label }) => html`<p class="waiting" role="status"><span class="spinner" aria-hidden="true"></span>${label}</p>`;

// A dialog that the browser itself keeps the focus in. onClose is called however it is closed.
export function Dialog({ title, onClose, children }) {
  const element = useRef(null);
  useEffect(() => {
    element.current.showModal();
  }, []);
  return html`
    <dialog ref=${element} onClose=${onClose} onClick=${(e) => e.target === element.current && element.current.close()} aria-label=${title}>
      <div class="dialog">
        <header><h2>${title}</h2>
          <button type="button" class="icon-button" aria-label="Close" onClick=${() => element.current.close()}><${Icon} name="close" /></button>
        </header>
        ${children}
      </div>
    </dialog>`;
}

// Asks before something that cannot be undone. onConfirm may be slow, and may throw what is shown then.
export function Confirm({ title, text, verb, onConfirm, onClose }) {
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const confirm = async () => {
    setBusy(true);
    try {
      await onConfirm();
      onClose();
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <p>${text}</p>
      <${Trouble} problem=${problem} />
      <footer>
        <button type="button" onClick=${onClose} autofocus>Cancel</button>
        <button type="button" class="danger" disabled=${busy} onClick=${confirm}>${verb}</button>
      </footer>
    <//>`;
}

// A button with a list of actions: [{icon, label, onSelect, isDanger}].
export function Menu({ label, icon = "more", items }) {
  const [open, setOpen] = useState(false);
  const element = useRef(null);
  useEffect(() => {
    if (!open) return undefined;
    const close = (event) => {
      if (event.type === "keydown" ? event.key === "Escape" : !element.current.contains(event.target)) setOpen(false);
    };
    document.addEventListener("pointerdown", close);
    document.addEventListener("keydown", close);
    element.current.querySelector("[role=menuitem]").focus();
    return () => {
      document.removeEventListener("pointerdown", close);
      document.removeEventListener("keydown", close);
    };
  }, [open]);
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = [...element.current.querySelectorAll("[role=menuitem]")];
    all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
  };
  const select = (item) => {
    setOpen(false);
    element.current.querySelector("button").focus();
    item.onSelect();
  };
  return html`
    <div class="menu" ref=${element} onKeyDown=${move}>
      <button type="button" class="icon-button" aria-haspopup="menu" aria-expanded=${open} aria-label=${label} title=${label} onClick=${() => setOpen(!open)}><${Icon} name=${icon} /></button>
      ${open && html`<ul role="menu" aria-label=${label}>${items.map((item) => html`
        <li role="none"><button type="button" role="menuitem" class=${item.isDanger ? "danger-text" : ""} onClick=${() => select(item)}>
          <${Icon} name=${item.icon} />${item.label}</button></li>`)}</ul>`}
    </div>`;
}

// what: the object of the button's name.
export function Copy({ text, what = "the answer" }) {
  const [done, setDone] = useState(false);
  if (!navigator.clipboard) return null;
  const show = () => [setDone(true), setTimeout(() => setDone(false), 1500)];
  const copy = () => navigator.clipboard.writeText(text).then(show);
  return html`<button type="button" class="icon-button small" aria-label=${done ? "Copied" : `Copy ${what}`} title=${`Copy ${what}`} onClick=${copy}><${Icon} name=${done ? "check" : "copy"} /></button>`;
}

// Runs `action` on a change of `inputs`, and returns [result, problem, again]. What is late is dropped.
export function useLoad(action, inputs) {
  const [state, setState] = useState({ result: null, problem: null });
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    let isCurrent = true;
    action().then(
      (result) => isCurrent && setState({ result, problem: null }),
      (problem) => isCurrent && setState((old) => ({ result: old.result, problem })),
    );
    return () => {
      isCurrent = false;
    };
  }, [...inputs, attempt]);
  return [state.result, state.problem, () => setAttempt((number) => number + 1)];
}

// Calls `action` now and then, as long as the page is seen.
export function useInterval(action, milliseconds) {
  const latest = useRef(action);
  latest.current = action;
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && latest.current(), milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
}

export const announceChange = () => window.dispatchEvent(new Event("massmem-sessions"));

// The address of a message in its conversation, or of the turn that it belongs to.
export const placeOf = ({ session_id: id, turn, seq }) => `#/c/${encodeURIComponent(id)}${seq ? `/message-${seq}` : turn ? `/turn-${turn}` : ""}`;
