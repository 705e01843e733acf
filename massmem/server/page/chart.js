// Bars by day, stacked by agent, with the same figures as a table for those who cannot see them.
import { html } from "./html.js";
import { AgentName } from "./parts.js";

// Which colour each agent of the teams has; the user has the eighth.
export function colourTable(about) {
  const colours = { user: 7 };
  for (const team of about.teams) team.agents.forEach((agent, index) => (colours[agent.id] ??= index % 7));
  return colours;
}

// With those of agents that are in no team now.
export function addColours(colours, ids) {
  const all = { ...colours };
  for (const id of ids) all[id] ??= (Object.keys(all).length - 1) % 7;
  return all;
}

// days: [{day, values: {id: number}}], in order.
export function Bars({ days, label, colours, format, unit }) {
  const totals = days.map((day) => Object.values(day.values).reduce((sum, value) => sum + value, 0));
  const most = Math.max(...totals, 0);
  const ids = [...new Set(days.flatMap((day) => Object.keys(day.values)))];
  const filled = fillDays(days);
  const all = addColours(colours, ids);
  return html`
    <figure>
      <div class="bars" role="img" aria-label=${`${unit} by day; the most: ${format(most)}. The table below has the figures.`}>${filled.map((day) => html`
        <div class="bar" title=${describe(day, label, format)}>${ids.filter((id) => day.values[id]).map((id) => html`
          <span class=${`agent-${all[id]}`} style=${{ height: `${most ? (day.values[id] / most) * 100 : 0}%` }}></span>`)}</div>`)}</div>
      <div class="axis" aria-hidden="true"><span>${filled[0]?.day}</span><span>most: ${format(most)} ${unit}</span><span>${filled.length > 1 ? filled.at(-1).day : ""}</span></div>
      <figcaption class="legend">${ids.map((id) => html`<${AgentName} name=${label(id)} colour=${all[id]} />`)}</figcaption>
      <details><summary>As a table</summary><div class="table" tabindex="0" role="region" aria-label="By day"><table><thead><tr><th>Day</th>${ids.map((id) => html`<th class="number">${label(id)}</th>`)}</tr></thead>
        <tbody>${days.map((day) => html`<tr><td>${day.day}</td>${ids.map((id) => html`<td class="number">${format(day.values[id] || 0)}</td>`)}</tr>`)}</tbody></table></div></details>
    </figure>`;
}

const describe = (day, label, format) => [day.day, ...Object.entries(day.values).map(([id, value]) => `${label(id)}: ${format(value)}`)].join("\n");

// Days without anything have a place, too: gaps would look like activity.
function fillDays(days) {
  if (!days.length) return [];
  const known = new Map(days.map((day) => [day.day, day]));
  const filled = [];
  const last = new Date(`${days.at(-1).day}T00:00:00Z`);
  for (let date = new Date(`${days[0].day}T00:00:00Z`); date <= last && filled.length < 400; date = new Date(date.getTime() + 86_400_000)) {
    const name = date.toISOString().slice(0, 10);
    filled.push(known.get(name) || { day: name, values: {} });
  }
  return filled;
}
