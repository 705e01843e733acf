// The first start: nothing is set up, and the page offers what `massmem init` offers in a terminal.
import { html, useState } from "./html.js";
import { getJson, postJson } from "./api.js";
import { bytes } from "./format.js";
import { Trouble, useInterval, useLoad, Waiting } from "./parts.js";

// onDemo: shows what can be seen without any model.
export function FirstStart({ onDemo }) {
  const [offers, problem, again] = useLoad(() => getJson("api/v1/setup"), []);
  const [wait, setWait] = useState("");
  const [refusal, setRefusal] = useState(null);
  const isFetching = offers && offers.fetched !== null;
  // Once a team is set up, the service starts anew with it.
  useInterval(() => (wait || isFetching) && (problem?.status === 404 ? location.reload() : again()), 1_000);
  const choose = async (body, label) => {
    setWait(label);
    await postJson("api/v1/setup", body).then(() => setRefusal(null), (error) => (setWait(""), setRefusal(error)));
    again();
  };
  const useKey = (event) => (event.preventDefault(), choose(Object.fromEntries(new FormData(event.target)), "Trying the key"));
  if (isFetching) return html`<div class="start"><h1>Downloading the model</h1><progress max=${offers.download} value=${offers.fetched} aria-label="Download"></progress><p role="status">${bytes(offers.fetched)} of ${bytes(offers.download)}. What has arrived is kept when massmem ends.</p></div>`;
  if (wait || !offers) return html`<div class="start">${problem && !wait ? html`<${Trouble} problem=${problem} onRetry=${again} />` : html`<${Waiting} label=${wait || "Looking for models on this machine"} />`}</div>`;
  return html`
    <div class="start"><h1>Who answers?</h1><p class="dim">massmem needs a model. Your questions go to the ones that you choose, and nowhere else.</p><${Trouble} problem=${refusal} />
      ${offers.choices.length > 0 && html`<section class="card"><h2>On this machine</h2>${offers.choices.map((team) => html`<button type="button" onClick=${() => choose({ team }, `Trying ${team}`)}>${team}</button>`)}</section>`}
      <form class="card" onSubmit=${useKey}><h2>A key of yours</h2><label>Provider<select name="provider">${offers.providers.map((name) => html`<option>${name}</option>`)}</select></label>
        <label>API key<input name="key" type="password" autocomplete="off" required /></label><button type="submit" class="primary">Use this key</button><p class="dim">It stays on this machine, readable by you alone (<code>massmem keys</code>).</p></form>
      ${offers.download && html`<section class="card"><h2>A small model inside massmem</h2><button type="button" onClick=${() => choose({}, "Starting")}>Download it (${bytes(offers.download)}, once)</button></section>`}
      <button type="button" class="plain" onClick=${onDemo}>See a demonstration without any model</button></div>`;
}
