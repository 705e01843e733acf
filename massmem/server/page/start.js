// The first start: nothing is set up, and the page offers what `massmem init` offers in a terminal.
import { html, useState } from "./html.js";
import { getJson, postJson } from "./api.js";
import { bytes } from "./format.js";
import { Trouble, useInterval, useLoad, Waiting } from "./parts.js";

// onDemo: shows what can be seen without any model.
export function FirstStart({ onDemo }) {
  const [offers, problem, again] = useLoad(() => getJson("api/v1/setup"), []);
  const [wait, setWait] = useState("");
  const [provider, setProvider] = useState("openai");
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
  if (isFetching) return html`<${Download} offers=${offers} isGone=${problem?.status === 0} onStop=${() => postJson("api/v1/setup/stop", {}).then(again, setRefusal)} />`;
  if (wait || !offers) return html`<div class="start">${problem && !wait ? html`<${Trouble} problem=${problem} onRetry=${again} />` : html`<${Waiting} label=${wait || "Looking for models on this machine"} />`}</div>`;
  return html`
    <div class="start"><h1>Who answers?</h1><p class="dim">massmem needs a model. Your questions go to the ones that you choose, and nowhere else.</p><${Trouble} problem=${refusal} />
      ${offers.choices.length > 0 && html`<section class="card"><h2>On this machine</h2>${offers.choices.map((team) => html`<button type="button" onClick=${() => choose({ team }, `Trying ${team}`)}>${team}</button>`)}</section>`}
      <form class="card" onSubmit=${useKey}><h2>A key of yours</h2><label>Provider<select name="provider" value=${provider} onChange=${(e) => setProvider(e.target.value)}>${offers.providers.map((name) => html`<option>${name}</option>`)}</select></label>
        <label>API key<input name="key" type="password" autocomplete="off" required /></label><button type="submit" class="primary">Use this key</button><p class="dim">It stays on this machine, readable by you alone (<code>massmem keys</code>).</p></form>
      ${offers.download && html`<section class="card"><h2>A small model inside massmem</h2><button type="button" onClick=${() => choose({}, "Starting")}>${offers.kept ? `Go on with the download (${bytes(offers.kept)} of ${bytes(offers.download)} are here)` : `Download it (${bytes(offers.download)}, once)`}</button></section>`}
      <button type="button" class="plain" onClick=${onDemo}>See a demonstration without any model</button></div>`;
}

function Download({ offers: { fetched, download, notice, stopping }, isGone, onStop }) {
  const isThere = fetched >= download;
  return html`<div class="start"><h1>${isThere ? "Checking and trying the model" : "Downloading the model"}</h1><progress max=${download} value=${fetched} aria-label="Download"></progress>
    <p>${bytes(fetched)} of ${bytes(download)}. What has arrived is kept when massmem ends.</p>${notice && html`<p class="dim">${notice}</p>`}
    <${Trouble} problem=${isGone && "massmem has ended, or does not answer. Start it again, and this page goes on."} />
    ${!isThere && html`<button type="button" disabled=${stopping || isGone} onClick=${onStop}>${stopping ? "Stopping" : "Stop"}</button>`}</div>`;
}
