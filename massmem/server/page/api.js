// Requests to the service. The cookie of the page goes with each; the header says that it is the page that asks.
import { loadDraft, saveDraft } from "./drafts.js";

export class Problem extends Error {
  // status: of the response; 0 when there was none. address: what the response refers to.
  constructor(message, status, address) {
    super(message);
    Object.assign(this, { status, address });
  }
}

const HEADERS = { "X-Massmem-Page": "1" };
const OFFLINE = "The service cannot be reached. Start it again (massmem ui), and this page goes on by itself.";
const KEY = "key of this browser";

// Returns the response to a request. Throws a Problem for any status that is not a success.
export async function request(path, { method = "GET", body, file, headers = {}, signal, isBack = false } = {}) {
  const options = { method, signal, headers: { ...HEADERS, ...headers } };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  } else if (file) options.body = file;
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(OFFLINE, 0);
  }
  if (response.ok) return response;
  if (response.status === 401 && !isBack && (await comeBack())) return request(path, { method, body, file, headers, signal, isBack: true });
  if (response.status === 401 && !isBack) window.dispatchEvent(new Event("massmem-locked"));
  throw new Problem(await readProblem(response), response.status, response.headers.get("Location"));
}

// Exchanges a key or token for a cookie. This machine's user gets a key as well, which scripts can use and cannot read.
export async function enter(token) {
  const response = await request("page/enter", { method: "POST", body: { token }, isBack: true });
  const key = Uint8Array.from((response.headers.get("X-Massmem-Key") || "").match(/../g) || [], (byte) => parseInt(byte, 16));
  if (key.length) await saveDraft(KEY, await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]));
}

// Comes in again after massmem was started anew, once for all requests that are refused at a time. Returns whether it is in.
let comingBack = null;
const comeBack = () => (comingBack ??= signIn().then(() => true, () => false).finally(() => (comingBack = null)));

async function signIn() {
  const key = await loadDraft(KEY);
  if (!key) throw new Problem("There is no key.", 401);
  const challenge = (await request("./", { isBack: true })).headers.get("X-Massmem-Challenge");
  await enter(toHex(new Uint8Array(await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(challenge)))));
}

export const getJson = async (path, options) => (await request(path, options)).json();
export const postJson = async (path, body) => {
  const response = await request(path, { method: "POST", body });
  return response.status === 204 ? null : response.json();
};

async function readProblem(response) {
  try {
    return sentence((await response.json()).error);
  } catch {
    return `The service answered with status ${response.status}.`;
  }
}

export function sentence(text) {
  const first = /^[a-z]+[ ,]/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text; // no name of a file
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

// Yields the server-sent events of a response as {name, id, data}; id is 0 for events without a number.
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = { name: "", id: 0, data: "" };
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (event.data) yield { ...event, data: JSON.parse(event.data) };
          event = { name: "", id: 0, data: "" };
        } else if (line.startsWith("event: ")) event.name = line.slice(7);
        else if (line.startsWith("id: ")) event.id = Number(line.slice(4));
        else if (line.startsWith("data: ")) event.data += line.slice(6);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Returns a random name; crypto.randomUUID is missing on pages that come over plain HTTP from another machine.
export function randomName() {
  return toHex(crypto.getRandomValues(new Uint8Array(16)));
}

const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

// Names a session as massmem does: by the clock of this machine.
export function newSessionId() {
  const now = new Date();
  const two = (number) => String(number).padStart(2, "0");
  const time = `${now.getFullYear()}${two(now.getMonth() + 1)}${two(now.getDate())}_${two(now.getHours())}${two(now.getMinutes())}${two(now.getSeconds())}`;
  return `session_${time}_${randomName().slice(0, 4)}`;
}

// Returns a file as a data: URL.
export function readAsUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    // Browsers leave the kind out for names that they do not know, and the service looks at the bytes anyway.
    reader.onload = () => resolve(String(reader.result).replace(/^data:(?=;|,)/, "data:application/octet-stream"));
    reader.onerror = () => reject(new Error(`${blob.name || "A file"} cannot be read.`));
    reader.readAsDataURL(blob);
  });
}

// Lets the browser save a response as a file.
export async function download(path, name) {
  const url = URL.createObjectURL(await (await request(path)).blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
