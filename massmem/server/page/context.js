// The context window of each agent: what its next prompt holds, as coloured shares, each part opened on a click.
import { html, useState } from "./html.js";
import { postJson } from "./api.js";
import { count, percent, plural, tokens } from "./format.js";
import { AgentName, Empty, Icon, Trouble, useLoad, Waiting } from "./parts.js";

const KINDS = {
  system: "Who it is",
  tools: "Tools",
  summary: "Summary of older messages",
  history: "Messages",
  memories: "Memories",
  question: "The question",
};

export function ContextView({ id, title, about }) {
  const [text, setText] = useState("");
  const [question, setQuestion] = useState("");
  const path = `api/v1/sessions/${encodeURIComponent(id)}/context`;
  const [view, problem, again] = useLoad(() => postJson(path, { question }), [id, question]);
  const submit = (event) => {
    event.preventDefault();
    setQuestion(text.trim());
  };
  return html`
    <div class="view">
      <header><h1>What the agents see</h1><a href=${`#/c/${encodeURIComponent(id)}`}>Back to “${title}”</a></header>
      <p class="dim">Each agent has its own window: what stands here is sent to its model with the next question. Nothing is asked here.</p>
      <form class="row card" onSubmit=${submit}>
        <label class="wide" for="try">If you asked<input id="try" placeholder=${about.remembers ? "A question, to see the memories that it brings back" : "A question"} value=${text} onInput=${(e) => setText(e.target.value)} /></label>
        <button type="submit">Look</button>
      </form>
      <${Trouble} problem=${problem} onRetry=${again} />
      ${!view && !problem && html`<${Waiting} label="Building the prompts" />`}
      ${view && view.agents.length === 0 && html`<${Empty} title="No agent" />`}
      ${view && view.agents.map((agent, index) => html`<${AgentContext} key=${agent.agent_id} agent=${agent} colour=${index % 8} />`)}
    </div>`;
}

function AgentContext({ agent, colour }) {
  const kinds = Object.keys(KINDS).map((kind) => {
    const parts = agent.parts.filter((part) => part.kind === kind);
    return { kind, parts, tokens: parts.reduce((sum, part) => sum + part.tokens, 0) };
  }).filter((entry) => entry.parts.length);
  const share = agent.tokens / agent.window;
  const label = kinds.map((entry) => `${KINDS[entry.kind]} ${count(entry.tokens)}`).join(", ");
  // Of a large window the parts would be hairs: they share the bar, and a second one shows the window.
  return html`
    <section class="card" aria-label=${agent.name}>
      <header><h2><${AgentName} name=${agent.name} colour=${colour} /></h2><span class="model">${agent.model}</span>
        <span class="spacer"></span>
        <span>${count(agent.tokens)} of ${agent.is_assumed ? "about " : ""}${count(agent.window)} tokens</span><strong>${share < 0.01 ? "under 1 %" : percent(share)}</strong></header>
      <div class="shares" role="img" aria-label=${`Shares of the prompt: ${label} tokens`}>${kinds.map((entry) => html`
        <span class=${`part-${entry.kind}`} style=${{ flexGrow: Math.max(entry.tokens, 0.5) }} title=${`${KINDS[entry.kind]}: ${count(entry.tokens)} tokens`}></span>`)}</div>
      <div class="window" role="img" aria-label=${`${percent(share)} of the window is used`}><span style=${{ width: `${Math.min(share, 1) * 100}%` }}></span>
        ${agent.threshold !== null && html`<i style=${{ left: `${agent.threshold * 100}%` }} title=${`Compressed from ${percent(agent.threshold)} on`}></i>`}</div>
      <div class="parts">${kinds.map((entry) => html`<${Part} key=${entry.kind} entry=${entry} whole=${agent.tokens} />`)}</div>
      ${agent.compression && html`<p class="dim">The summary stands for ${plural(agent.compression.removed, "message")} that ${agent.compression.removed === 1 ? "was" : "were"} taken out; ${agent.compression.remaining} stayed. ${agent.compression.by === "model" ? "A model wrote it." : "It is made of their own sentences."} The log keeps all of them.</p>`}
    </section>`;
}

const Part = ({ entry, whole }) => html`
  <details class=${`part-${entry.kind}`}>
    <summary>${KINDS[entry.kind]}${entry.parts.length > 1 ? ` (${entry.parts.length})` : ""}<span class="number">${tokens(entry.tokens)} · ${percent(entry.tokens / (whole || 1))}</span></summary>
    ${entry.parts.map((part) => html`
      ${part.role && html`<p class="dim">${part.role === "user" ? "You" : "The council"} · ${tokens(part.tokens)} tokens</p>`}
      <pre tabindex="0">${part.text}${part.length > part.text.length ? " …" : ""}</pre>`)}
  </details>`;
