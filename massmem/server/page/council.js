// How the agents came to an answer: their rounds side by side, votes with reasons, and the winner.
import { html, useLayoutEffect, useRef, useState } from "./html.js";
import { dollars, plural, seconds, tokens } from "./format.js";
import { Markdown } from "./markdown.js";
import { AgentName, Icon } from "./parts.js";
import { colourOf, describeDecision, describeRound, describeWorkCut, hasEnded, nameOf, ranking } from "./turn.js";

const STATES = { waiting: "waits for its model", thinking: "thinks", writing: "writes", stopped: "was stopped" };
const LONG = 20_000; // characters of an answer that are shown at once

export const Agent = ({ turn, id }) => html`<${AgentName} name=${nameOf(turn, id)} colour=${colourOf(turn, id)} />`;

export function Council({ turn, models }) {
  return html`<div class="council">
    ${turn.notices.map((text) => html`<p class="notice"><${Icon} name="warn" />${text}</p>`)}
    ${turn.rounds.map((round) => html`<${Round} key=${round.number} turn=${turn} round=${round} models=${models} />`)}
  </div>`;
}

function Round({ turn, round, models }) {
  const kinds = new Set(Object.values(round.steps).map((step) => step.step));
  const what = describeRound(turn, round.number) ?? (round.number === 1 ? "Each answers alone" : round.final ? "The last vote" : kinds.has("vote") ? "They read each other, then improve or vote" : "They answer again");
  // On a narrow screen one card is open, and the others are a line.
  const [chosen, choose] = useState(null);
  const isNarrow = matchMedia("(max-width: 760px)").matches && round.agents.length > 1;
  const open = chosen ?? (hasEnded(turn) && round.agents.includes(turn.winner) ? turn.winner : round.agents[0]);
  // While many write, none moves the others.
  const isSteady = turn.status === "running" && (isNarrow || round.agents.length > 3);
  return html`
    <section class="round" aria-label=${`Round ${round.number}`}>
      <h2>Round ${round.number}<span>${what}</span></h2>
      <div class=${`steps ${isSteady ? "steady" : ""}`}>${round.agents.map((id) => html`<${Step} key=${id} turn=${turn} id=${id} step=${round.steps[id]} model=${models[id]} isSteady=${isSteady} onOpen=${isNarrow ? () => choose(id) : null} isOpen=${!isNarrow || id === open} />`)}</div>
      ${round.depth && html`<p class="dim">${round.depth.text}</p>`}
    </section>`;
}

// onOpen: opens the card; null: it cannot be closed.
function Step({ turn, id, step, model, isSteady, isOpen, onOpen }) {
  const colour = colourOf(turn, id);
  const by = step && step.model; // a model that stands in for the agent's own
  const body = useRef(null);
  const isAtEnd = useRef(true);
  const onScroll = ({ target }) => (isAtEnd.current = target.scrollHeight - target.scrollTop - target.clientHeight < 30);
  useLayoutEffect(() => {
    if (isSteady && body.current && isAtEnd.current) body.current.scrollTop = body.current.scrollHeight;
  });
  const state = step ? step.state : turn.status === "running" ? "waiting" : "skipped";
  return html`
    <article class=${`step agent-${colour} ${state} ${step && step.isVoid ? "void" : ""}`} aria-busy=${!["done", "failed", "stopped", "skipped"].includes(state)}>
      <header>${onOpen ? html`<button type="button" class="plain" aria-expanded=${isOpen} onClick=${onOpen}><${Agent} turn=${turn} id=${id} /></button>` : html`<${Agent} turn=${turn} id=${id} />`}${(by || model) && html`<span class="model">${by || model}</span>`}
        ${turn.shape === "vote" && turn.winner === id && step && step === lastAnswer(turn, id) && html`<span class="won" title="The winner"><${Icon} name="check" />won</span>`}${!isOpen && html`<span class="line">${describe(turn, step, state)}</span>`}</header>
      ${isOpen && html`<div class="body" ref=${body} onScroll=${onScroll} tabindex=${isSteady ? 0 : undefined}><${StepBody} turn=${turn} step=${step} state=${state} /></div>`}
    </article>`;
}

const describe = (turn, step, state) => (step?.kind === "ballot" ? `votes for ${nameOf(turn, step.choice)}` : step?.note || step?.text.slice(-80).replace(/^\S+\s(?=[^]{60})|[*_`#$]/g, "") || STATES[state] || state);

function lastAnswer(turn, id) {
  return turn.rounds.map((round) => round.steps[id]).filter((step) => step && step.kind === "answer").at(-1);
}

function StepBody({ turn, step, state }) {
  if (!step) return html`<p class="dim">${state === "skipped" ? "was not asked" : "waits"}</p>`;
  const isOpen = state !== "done" && state !== "failed" && state !== "stopped";
  return html`
    ${step.searches.length > 0 && html`<p class="dim">Searched the web: ${step.searches.filter(Boolean).join(" · ") || plural(step.searches.length, "time")}</p>`}
    ${step.tools.map((tool) => html`<${Tool} key=${tool.id} tool=${tool} />`)}
    ${step.reasoning && html`<details class="reasoning"><summary>Reasoning</summary><p class="plain">${step.reasoning}</p></details>`}
    ${step.kind === "ballot" && html`<${Ballot} turn=${turn} step=${step} />`}
    ${step.kind === "param" && html`<p>asks you: <em>${step.text}</em></p>`}
    ${step.kind !== "ballot" && step.kind !== "param" && step.text && (step.step === "vote" && isOpen ? html`<p class="dim">decides</p>` : html`<${LongText} text=${step.text} isOpen=${isOpen} />`)}
    ${!isOpen && html`<${Sources} citations=${step.citations} />`}
    ${step.cut && html`<p class="dim">The end is missing: its model reached its limit of tokens.</p>`}
    ${step.workCut && html`<p class="dim">${describeWorkCut(step.workCut)}</p>`}
    ${isOpen && html`<p class="state"><span class="spinner" aria-hidden="true"></span>${step.note || STATES[state] || state}</p>`}
    ${state === "stopped" && html`<p class="dim">was stopped</p>`}
    ${state === "failed" && html`<p class="failure"><${Icon} name="warn" />${step.note || "failed"}</p>`}
    ${step.kind === "answer" && step.usage && html`<footer>${tokens(step.usage.completion)} tokens${step.usage.cost ? ` · ${dollars(step.usage.cost)}` : ""}</footer>`}`;
}

const Ballot = ({ turn, step }) => html`
  <p class="ballot">votes for <${Agent} turn=${turn} id=${step.choice} /></p>
  <blockquote>${step.reason}</blockquote>
  ${step.isVoid && html`<p class="dim">Void: a new answer came in.</p>`}`;

const Tool = ({ tool }) => html`
  <details class=${`tool ${tool.failed ? "failed" : ""}`}>
    <summary>${tool.name}${tool.result === null && !tool.failed ? "" : tool.failed ? " · failed" : " · done"}</summary>
    ${tool.arguments && html`<pre tabindex="0">${tool.arguments}</pre>`}
    ${tool.result && html`<pre tabindex="0">${tool.result.slice(0, LONG)}</pre>`}
  </details>`;

// onLoad: loads the rest, when `text` is the beginning only of a text of `length` characters.
export function LongText({ text, isOpen, length = text.length, onLoad }) {
  const [whole, setWhole] = useState(false);
  if (isOpen || (!onLoad && (whole || text.length <= LONG))) return html`<${Markdown} text=${text} isOpen=${isOpen} />`;
  const showAll = async () => {
    if (onLoad) await onLoad();
    setWhole(true);
  };
  return html`<${Markdown} text=${`${text.slice(0, LONG)} …`} />
    <button type="button" class="plain" onClick=${showAll}>Show all ${length.toLocaleString("en")} characters</button>`;
}

// The sources of an answer, by the numbers that it has for them. Only addresses of the web can be followed.
export const Sources = ({ citations }) =>
  citations && citations.length > 0 && html`<ol class="sources" aria-label="Sources">${citations.map(({ url, title, quote }) => html`
    <li title=${quote}>${/^https?:\/\//i.test(url) ? html`<a href=${url} target="_blank" rel="noopener noreferrer nofollow">${title || url}</a>` : `${title} ${url}`}</li>`)}</ol>`;

// One line on how it ended; the whole council is one click away.
export function Verdict({ turn }) {
  const votes = ranking(turn);
  const parts = [];
  if (votes.length) parts.push(votes.map(([id, number]) => html`<span class="tally"><${Agent} turn=${turn} id=${id} /> ${plural(number, "vote")}</span>`));
  const why = describeDecision(turn);
  if (why) parts.push(why);
  const usage = turn.final ? turn.final.usage : null;
  if (turn.startedAt && turn.endedAt) parts.push(seconds((new Date(turn.endedAt) - new Date(turn.startedAt)) / 1000));
  if (usage) parts.push(`${usage.reported ? "" : "about "}${tokens(usage.prompt + usage.completion)} tokens`, usage.completion ? dollars(usage.cost) : "");
  return html`<p class="verdict">${parts.filter((part) => part && part.length).map((part) => html`<span>${part}</span>`)}</p>`;
}

// What is known of how far the agents agree, as the service says it.
export const Agreement = ({ text, isLow }) =>
  (text || isLow) && html`<span class=${`agreement ${isLow ? "low" : ""}`}>${isLow && html`<strong>Not sure: look at the answers yourself${text && "; "}</strong>`}${text}</span>`;

export const summarise = (turn) => {
  const agents = plural(turn.agents.length, "agent");
  const rounds = plural(turn.rounds.length, "round");
  return hasEnded(turn) ? `${agents}, ${rounds}` : `${agents}, round ${turn.rounds.length || 1}`;
};
