// Tokens, cost, time and wins of the agents over time; for whoever runs the service, the reports of evaluations.
import { html, useState } from "./html.js";
import { getJson } from "./api.js";
import { addColours, Bars, colourTable } from "./chart.js";
import { count, dollars, exactly, percent, plural, seconds, tokens, when } from "./format.js";
import { AgentName, Empty, Trouble, useLoad, Waiting } from "./parts.js";

const RANGES = [[7, "7 days"], [30, "30 days"], [90, "90 days"], [365, "a year"]];
const MEASURES = {
  tokens: ["Tokens", tokens],
  cost: ["Cost", dollars],
  wins: ["Wins", count],
};

export function FiguresView({ about }) {
  const [days, setDays] = useState(30);
  const [measure, setMeasure] = useState("tokens");
  const [view, problem, again] = useLoad(() => getJson(`api/v1/figures?days=${days}`), [days]);
  const colours = colourTable(about);
  return html`
    <div class="view">
      <header><h1>Figures</h1><div class="tabs" role="group" aria-label="Time">${RANGES.map(([number, label]) => html`
        <button type="button" aria-pressed=${days === number} onClick=${() => setDays(number)}>${label}</button>`)}</div></header>
      <${Trouble} problem=${problem} onRetry=${again} />
      ${!view && !problem && html`<${Waiting} label="Reading the turns" />`}
      ${view && view.days.length === 0 && html`<${Empty} title="No question in this time"><p>Ask something, and see here what it took.</p><//>`}
      ${view && view.days.length > 0 && html`<${Shown} view=${view} measure=${measure} onMeasure=${setMeasure} colours=${colours} />`}
      ${about.is_operator && html`<${Evaluations} />`}
    </div>`;
}

function Evaluations() {
  const [view, problem, again] = useLoad(() => getJson("api/v1/evaluations"), []);
  if (problem) return html`<${Trouble} problem=${problem} onRetry=${again} />`;
  return view && view.reports.map((report) => html`
    <section class="card" aria-label=${`Evaluation of ${report.data}`}>
      <header><h2>Evaluation: ${report.data}</h2><span class="dim">${plural(report.questions, "question")}</span><span class="spacer"></span>
        <time class="dim" datetime=${report.at} title=${exactly(report.at)}>${when(report.at)}</time></header>
      <div class="table" tabindex="0" role="region" aria-label=${`Teams on ${report.data}`}><table>
        <thead><tr><th>Team</th><th class="number">Right</th><th class="number">Accuracy</th><th>With 95 % certainty between</th><th class="number">Tokens</th><th class="number">Wait</th><th class="number">Cost</th></tr></thead>
        <tbody>${report.teams.map((team) => html`
          <${EvaluatedRow} name=${team.name} share=${team.accuracy} team=${team} />
          ${team.selective && html`<${EvaluatedRow} name="where it was sure" share=${team.selective} isPart=${true} />`}
          ${team.council && html`
            ${Object.entries(team.council.members).map(([id, share]) => html`<${EvaluatedRow} name=${`${id} in it`} share=${share} isPart=${true} />`)}
            <${EvaluatedRow} name="any agent of it" share=${team.council.oracle} isPart=${true} />`}`)}</tbody></table></div>
      ${report.comparisons.map((pair) => html`<p class="dim">${pair.first} − ${pair.second}: ${points(pair.difference)} points, with 95 % certainty between ${points(pair.interval[0])} and ${points(pair.interval[1])}; p = ${pair.p.toPrecision(2)}</p>`)}
    </section>`);
}

const EvaluatedRow = ({ name, share, team, isPart }) => html`
  <tr class=${isPart ? "part" : ""}><td>${name}${team && team.failed > 0 && html`<span class="dim"> ${count(team.failed)} without an answer</span>`}</td>
    <td class="number">${count(share.count)} of ${count(share.total)}</td><td class="number">${percent(share.value)}</td>
    <td><div class="interval" title=${`${percent(share.interval[0])} to ${percent(share.interval[1])}`}><span style=${{ left: `${share.interval[0] * 100}%`, width: `${(share.interval[1] - share.interval[0]) * 100}%` }}></span><i style=${{ left: `${share.value * 100}%` }}></i></div>
      <span class="hidden">${percent(share.interval[0])} and ${percent(share.interval[1])}</span></td>
    <td class="number">${team ? tokens(Math.round(team.per_question.tokens)) : ""}</td><td class="number">${team ? seconds(team.per_question.seconds) : ""}</td><td class="number">${team ? dollars(team.cost) : ""}</td></tr>`;

const points = (share) => `${share > 0 ? "+" : ""}${(share * 100).toFixed(1)}`;

function Shown({ view, measure, onMeasure, colours }) {
  const rows = sumAgents(view);
  const all = addColours(colours, rows.map((row) => row.id));
  const total = (name) => view.days.reduce((sum, day) => sum + day[name], 0);
  const cost = rows.some((row) => row.cost === null) ? null : rows.reduce((sum, row) => sum + row.cost, 0);
  const known = rows.reduce((sum, row) => sum + row.knownCost, 0);
  const answered = total("answered");
  const prompts = view.recalls + view.without_recall;
  const [label, format] = MEASURES[measure];
  const values = (day) => Object.fromEntries(Object.entries(day.agents).map(([id, agent]) => [id, agent[measure] || 0]));
  return html`
    ${view.is_cut && html`<${Trouble} problem=${`Only the ${count(view.turns)} turns of the conversations that were used last are counted.`} />`}
    <dl class="tiles">
      <div class="tile"><dt>Questions</dt><dd>${count(total("turns"))}<small>${count(answered)} answered</small></dd></div>
      <div class="tile"><dt>Tokens</dt><dd>${tokens(rows.reduce((sum, row) => sum + row.tokens, 0))}</dd></div>
      <div class="tile"><dt>Cost</dt><dd>${cost === null ? dollars(known) : dollars(cost)}${cost === null && html`<small>and models whose price is not known</small>`}</dd></div>
      <div class="tile"><dt>Wait for an answer</dt><dd>${answered ? seconds(total("seconds") / answered) : "–"}<small>on average</small></dd></div>
      ${prompts > 0 && html`<div class="tile"><dt>Prompts with memories</dt><dd>${percent(view.recalls / prompts)}</dd></div>`}
    </dl>
    <section class="card"><header><h2>By day</h2><span class="spacer"></span>
      <div class="tabs" role="group" aria-label="What is shown">${Object.entries(MEASURES).map(([name, [title]]) => html`<button type="button" aria-pressed=${measure === name} onClick=${() => onMeasure(name)}>${title}</button>`)}</div></header>
      <${Bars} days=${view.days.map((day) => ({ day: day.day, values: values(day) }))} label=${(id) => [view.agents[id]?.name || id, view.agents[id]?.team].filter(Boolean).join(" · ")} colours=${all} format=${format} unit=${label.toLowerCase()} /></section>
    <section class="card"><header><h2>By agent</h2></header><div class="table" tabindex="0" role="region" aria-label="By agent"><table>
      <thead><tr><th>Agent</th><th>Model</th><th class="number">Turns</th><th class="number">Wins</th><th class="number">Win rate</th><th class="number">Tokens</th><th class="number">Cost</th></tr></thead>
      <tbody>${rows.map((row) => html`<tr><td><${AgentName} name=${view.agents[row.id]?.name || row.id} colour=${all[row.id]} />${view.agents[row.id]?.team && html`<span class="dim"> ${view.agents[row.id].team}</span>`}</td><td>${view.agents[row.id]?.model || html`<span class="dim">not in a team now</span>`}</td>
        <td class="number">${count(row.turns)}</td><td class="number">${count(row.wins)}</td><td class="number">${row.turns ? percent(row.wins / row.turns) : ""}</td><td class="number">${tokens(row.tokens)}</td><td class="number">${dollars(row.cost)}</td></tr>`)}</tbody></table></div></section>`;
}

function sumAgents(view) {
  const rows = Object.keys(view.agents).map((id) => {
    const row = { id, turns: 0, wins: 0, tokens: 0, cost: 0, knownCost: 0 };
    for (const day of view.days) {
      const agent = day.agents[id];
      if (!agent) continue;
      row.turns += agent.turns;
      row.wins += agent.wins;
      row.tokens += agent.tokens;
      row.cost = row.cost === null || agent.cost === null ? null : row.cost + agent.cost;
      row.knownCost += agent.cost || 0;
    }
    return row;
  });
  return rows.sort((a, b) => b.wins - a.wins || b.turns - a.turns);
}
