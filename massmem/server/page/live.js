// One conversation as the service has it: its messages, and the turn under way, followed through broken connections.
import { getJson, postJson, randomName, readAsUrl, readEvents, request } from "./api.js";
import { feed, fromEvents, hasEnded, newTurn } from "./turn.js";

const PAGE = 30;
const BETWEEN_DRAWINGS = 50; // milliseconds
const LONGEST_WAIT = 8_000; // milliseconds between two attempts to connect
const ATTEMPTS = 15; // to stop a turn that another process is about to hand over

export class LiveConversation {
  // id: null for a conversation that begins with its first question. onChange: called after each change.
  constructor(id, onChange) {
    this.id = id;
    this.session = null;
    this.messages = [];
    this.turns = new Map();
    this.project = ""; // of a new conversation
    this.team = null; // who answers next; null: the default team, or the one that is chosen
    this.note = ""; // what to know of that before the next question
    this.hasOlder = false;
    this.live = null;
    this.problem = null;
    this.isConnecting = false;
    this.isLoaded = id === null;
    this.details = new Map(); // turns by number, as folds of their events
    this._onChange = onChange;
    this._abort = new AbortController();
    this._isClosed = false;
    this._timer = 0;
  }

  close() {
    this._isClosed = true;
    this._abort.abort();
    clearTimeout(this._timer);
  }

  get isRunning() {
    return this.live !== null && !hasEnded(this.live);
  }

  // Many events come in a moment: one drawing is enough for all.
  changed() {
    if (this._isClosed || this._timer) return;
    this._timer = setTimeout(() => {
      this._timer = 0;
      this._onChange();
    }, BETWEEN_DRAWINGS);
  }

  path(rest = "") {
    return `api/v1/sessions/${encodeURIComponent(this.id)}${rest}`;
  }

  // Reads the newest messages, and follows the turn that is under way.
  async load() {
    if (this.id === null) return;
    try {
      const part = await getJson(`${this.path()}?limit=${Math.max(PAGE, Math.min(this.messages.length, 200))}`, { signal: this._abort.signal });
      this._take(part);
      this.problem = null;
      this.isLoaded = true;
      if (part.follow_after !== null && !this.isRunning) this._follow(part.follow_after);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.problem = error;
    }
    this.changed();
  }

  _take(part) {
    this.session = part.session;
    this.team = part.team;
    this.note = part.note;
    const first = part.messages.length ? part.messages[0].seq : 0;
    const older = this.messages.filter((message) => message.seq < first);
    this.hasOlder = older.length ? this.hasOlder : part.has_older;
    this.messages = [...older, ...part.messages];
    for (const turn of part.turns) this.turns.set(turn.turn, turn);
  }

  async loadOlder(limit = PAGE) {
    const part = await getJson(`${this.path()}?before=${this.messages[0].seq}&limit=${limit}`, { signal: this._abort.signal });
    this.messages = [...part.messages, ...this.messages];
    this.hasOlder = part.has_older;
    for (const turn of part.turns) this.turns.set(turn.turn, turn);
    this._onChange(); // at once: whoever asked for them keeps their place
  }

  // Looks whether somebody else, a terminal or another tab, has gone on with the conversation.
  async refresh() {
    if (this.id === null || this.isRunning || !this.isLoaded || this._isClosed) return;
    const part = await getJson(`${this.path()}?limit=1`, { signal: this._abort.signal }).catch((error) => error.status === 404 && this._lose(error));
    if (part && (part.session.updated_at !== this.session?.updated_at || part.session.status !== this.session?.status || part.follow_after !== null)) await this.load();
  }

  // The conversation was deleted, here or elsewhere.
  _lose(problem) {
    this.problem = problem;
    this.isLoaded = false;
    this.changed();
  }

  async loadDetails(number) {
    const answer = await getJson(this.path(`/turns/${number}`), { signal: this._abort.signal });
    this.details.set(number, fromEvents(answer.events));
    this.changed();
  }

  // Asks, or replies to what was asked for. files: [{name, url}] with data: URLs. sending: {id, name} of the session and
  // of the question. Throws a Problem when nothing was asked.
  // whom: {team, agent, model, folder, job, mode, full, replaces}, as in the body of a request.
  async ask(text, files, whom, sending) {
    await this.refresh(); // a conversation that was deleted meanwhile would begin anew
    if (!this.isLoaded) throw this.problem;
    const project = this.id === null ? this.project : "";
    const response = await sendQuestion(sending.id, text, files, { project, ...whom }, sending.name, this._abort.signal);
    this.id = sending.id;
    this.problem = null;
    this.live = newTurn(text);
    this.live.files = files.map((file) => file.name);
    this.changed();
    this._read(response);
  }

  // Returns the question of a turn as it was written: {turn, seq, text, files: [{name, size, part}]}. part: of a text that
  // stands below the question; null for a file of its own.
  async loadQuestion(number) {
    const message = this.messages.find((one) => one.turn === number && one.role === "user");
    const texts = message.texts.map((text, index) => ({ name: text.name, size: text.length, part: index + 1 }));
    const files = message.files.map((file) => ({ ...file, part: null }));
    return { turn: number, seq: message.seq, text: await this.loadText(message, 0), files: [...texts, ...files] };
  }

  // part: 0 for a question without the texts of its files, 1 for the first of them.
  loadText(message, part) {
    return request(this.path(`/messages/${message.seq}?part=${part}`)).then((response) => response.text());
  }

  // Asks in the place of a question of `loadQuestion`: the turn gets another version.
  async askInstead(question, text, files, whom) {
    let whole = text;
    for (const file of files.filter((one) => one.part !== null)) whole += `\n\n--- ${file.name} ---\n${await this.loadText(question, file.part)}`;
    const sent = await Promise.all(files.filter((file) => file.part === null).map(async (file) => ({ name: file.name, url: await this._loadFile(file) })));
    await this.ask(whole, sent, { ...whom, replaces: question.turn }, { id: this.id, name: randomName() });
    this.live.question = text;
    this.messages = this.messages.filter((message) => message.seq < question.seq);
  }

  // Shows another version of a turn. turn: its number.
  async chooseVersion(turn) {
    await postJson(this.path("/version"), { turn });
    this.messages = [];
    await this.load();
  }

  async _loadFile(file) {
    const blob = await (await request(this.path(`/files/${file.hash}`))).blob();
    return readAsUrl(new Blob([blob], { type: file.media_type }));
  }

  stop() {
    return this._steer("stop");
  }

  answerNow() {
    return this._steer("now");
  }

  // A process that has just started may not have taken up the turn yet.
  async _steer(action) {
    for (let attempt = 1; ; attempt++) {
      try {
        return await postJson(`api/v1/chat/${encodeURIComponent(this.id)}/${action}`);
      } catch (error) {
        if (error.status !== 503 || attempt === ATTEMPTS || this._isClosed) throw error;
        await new Promise((resolve) => setTimeout(resolve, 1_000));
      }
    }
  }

  // Goes on with a turn that was stopped, or has failed.
  async continueTurn() {
    await postJson(`api/v1/chat/${encodeURIComponent(this.id)}/continue`);
    this.live = null;
    await this.load();
  }

  async _follow(after) {
    this.live = newTurn();
    this.live.lastId = after;
    this.changed();
    await this._connect();
  }

  async _connect() {
    for (let attempt = 0; !this._isClosed; attempt++) {
      try {
        const headers = { "Last-Event-ID": String(this.live.lastId) };
        const response = await request(`api/v1/chat/stream/${encodeURIComponent(this.id)}`, { headers, signal: this._abort.signal });
        this.isConnecting = false;
        await this._read(response);
        return;
      } catch (error) {
        if (error.name === "AbortError" || this._isClosed) return;
        if (error.status >= 400 && error.status < 500 && error.status !== 429) {
          this.problem = error;
          this.live = null;
          this.changed();
          return;
        }
        this.isConnecting = true;
        this.changed();
        await new Promise((resolve) => setTimeout(resolve, Math.min(500 * 2 ** attempt, LONGEST_WAIT)));
      }
    }
  }

  async _read(response) {
    const turn = this.live;
    let problem = null;
    try {
      for await (const { name, id, data } of readEvents(response)) {
        if (this._isClosed) return;
        if (name === "error") {
          problem = data.error;
          continue;
        }
        turn.lastId = Math.max(turn.lastId, id);
        feed(turn, data);
        if (data.type === "turn_resumed" && !turn.isWhole) {
          // A reply to the agents, or a turn that was stopped: its beginning is in the log.
          this.live = null;
          await this.load();
          return;
        }
        this.changed();
      }
    } catch (error) {
      if (error.name === "AbortError" || this._isClosed) return;
    }
    if (this._isClosed) return;
    if (hasEnded(turn) && !turn.isCutOff) {
      await this._finish(turn);
      return;
    }
    if (problem !== null) this.problem = new Error(problem);
    if (turn.isCutOff) turn.status = "running"; // another process goes on with it, or this one once it is back
    this.isConnecting = true;
    this.changed();
    await new Promise((resolve) => setTimeout(resolve, 700));
    await this._reconnect(turn);
  }

  // The connection broke. Reads from the log whether the turn goes on, waits, or was cut off for good.
  async _reconnect(turn) {
    for (let attempt = 0; !this._isClosed; attempt++) {
      try {
        const part = await getJson(`${this.path()}?limit=${PAGE}`, { signal: this._abort.signal });
        this._take(part);
        const last = part.turns.at(-1);
        if (part.follow_after !== null) {
          await this._connect();
          return;
        }
        if (last && last.turn === turn.turn && last.status === "interrupted" && attempt < 4 && turn.isCutOff) throw new Error("wait");
        this.isConnecting = false;
        this.live = null;
        if (last) await this.loadDetails(last.turn).catch(() => {});
        this.changed();
        return;
      } catch (error) {
        if (error.name === "AbortError" || this._isClosed || error.status === 401) return;
        if (error.status === 404) {
          this.problem = error;
          this.live = null;
          this.isConnecting = false;
          this.changed();
          return;
        }
        await new Promise((resolve) => setTimeout(resolve, Math.min(500 * 2 ** attempt, LONGEST_WAIT)));
      }
    }
  }

  async _finish(turn) {
    this.isConnecting = false;
    if (turn.isWhole) this.details.set(turn.turn, turn);
    this.changed();
    await this.load();
    if (!this.problem && this.live === turn) this.live = null; // unless the next question was asked meanwhile
    this.changed();
  }
}

function sendQuestion(id, text, files, { team, agent = "", model = "", folder = "", job = "", mode = "council", full = false, replaces = null, project = "" }, name, signal) {
  const parts = [{ type: "text", text }, ...files.map((file) => ({ type: "file", file: { filename: file.name, file_data: file.url } }))];
  const body = { message: files.length ? parts : text, session_id: id, ...(team === null ? {} : { team }), ...(project ? { project } : {}), agent, model, folder, job, mode, full, replaces };
  return request("api/v1/chat/stream", { method: "POST", body, headers: { "Idempotency-Key": name }, signal });
}
