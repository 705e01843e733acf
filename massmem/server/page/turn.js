// A turn as its events tell it: a fold, the same for a turn that runs and for one from the log. No elements here.

export function newTurn(question = "") {
  return {
    turn: 0,
    question,
    shape: "vote",
    job: "",
    items: {}, // titles by number
    agents: [],
    names: {},
    rounds: [],
    winner: null,
    votes: {},
    by: "",
    presentation: null,
    final: null,
    waiting: null,
    status: "running",
    problem: null,
    notices: [],
    context: {},
    compressions: [],
    startedAt: null,
    endedAt: null,
    lastId: 0,
    isWhole: false, // it has its events from the first on
    isCutOff: false, // by the end of its process: another one goes on with it
  };
}

export const fromEvents = (events) => events.reduce(feed, newTurn());

export const nameOf = (turn, agent) => turn.names[agent] || agent;

// Which of the eight colours an agent has.
export const colourOf = (turn, agent) => Math.max(turn.agents.indexOf(agent), 0) % 8;

// Tokens of prompts and replies so far; of what is being written, about a quarter of its characters.
export function countTokens(turn) {
  const steps = [...turn.rounds.flatMap((round) => Object.values(round.steps)), turn.presentation].filter(Boolean);
  return steps.reduce((sum, { usage, text, reasoning }) => sum + (usage ? usage.prompt + usage.completion : Math.ceil((text.length + reasoning.length) / 4)), 0);
}

export const hasEnded = (turn) => turn.status !== "running";

// Changes the turn by one event, and returns it.
export function feed(turn, event) {
  const change = CHANGES[event.type];
  if (change) change(turn, event);
  return turn;
}

function currentRound(turn, number) {
  return turn.rounds.find((round) => round.number === number) || null;
}

function stepOf(turn, event) {
  const round = currentRound(turn, event.round);
  return round ? round.steps[event.agent_id] : undefined;
}

// The presentation is a step outside of the rounds.
function activeStep(turn, event) {
  const shown = turn.presentation;
  if (shown && shown.agent === event.agent_id && shown.state !== "done" && turn.winner) return shown;
  return stepOf(turn, event);
}

const newStep = (agent, step) => ({
  agent, step, state: "waiting", text: "", reasoning: "", tools: [], choice: null, reason: "", kind: null, note: "",
  usage: null, isVoid: false, cut: false, searches: [], citations: [],
});

function clearStream(step) {
  step.text = "";
  step.reasoning = "";
}

function end(turn, event, status) {
  turn.status = status;
  turn.endedAt = event.at;
  for (const round of turn.rounds)
    for (const step of Object.values(round.steps)) if (step.state !== "done" && step.state !== "failed") step.state = "stopped";
}

const CHANGES = {
  turn_started(turn, event) {
    turn.isWhole = true;
    turn.turn = event.turn;
    turn.question = turn.question || event.question; // as it was written, without the texts of files
    turn.agents = event.agents;
    turn.names = event.names;
    turn.startedAt = event.at;
    Object.assign(turn, { shape: event.shape, job: event.job });
  },
  turn_resumed(turn, event) {
    turn.turn = event.turn;
    turn.question = turn.question || event.question;
    turn.agents = turn.agents.length ? turn.agents : event.agents;
    turn.names = { ...turn.names, ...event.names };
    turn.status = "running";
    turn.isCutOff = false;
    turn.waiting = null;
    turn.problem = null;
    turn.startedAt = turn.startedAt || event.at;
  },
  round_started(turn, event) {
    const round = currentRound(turn, event.round);
    if (round) Object.assign(round, { agents: event.agents, final: event.final });
    else turn.rounds.push({ number: event.round, agents: event.agents, final: event.final, steps: {}, isVoid: false });
  },
  depth_decided(turn, event) {
    const round = currentRound(turn, event.round);
    if (!round) return;
    round.agents = [...new Set([...round.agents, ...event.asked, ...event.next])];
    round.depth = event;
  },
  agent_started(turn, event) {
    if (event.step === "present") {
      turn.presentation = newStep(event.agent_id, "present");
      return;
    }
    const round = currentRound(turn, event.round);
    if (round) round.steps[event.agent_id] = newStep(event.agent_id, event.step);
  },
  agent_busy(turn, event) {
    const step = activeStep(turn, event);
    if (step) Object.assign(step, { state: "busy", note: describeActivity(event) });
  },
  web_searched(turn, event) {
    const step = activeStep(turn, event);
    if (!step) return;
    step.searches.push(event.query);
    Object.assign(step, { state: "busy", note: event.query ? `searching: ${event.query}` : "searching the web" });
  },
  agent_delta(turn, event) {
    const step = activeStep(turn, event);
    if (!step) return;
    Object.assign(step, { state: event.channel === "text" ? "writing" : "thinking", note: "" });
    step[event.channel] += event.text;
  },
  agent_retrying(turn, event) {
    const step = activeStep(turn, event);
    if (!step) return;
    clearStream(step);
    const next = event.fallback ? `${event.fallback} goes on` : `tried again in ${event.delay.toFixed(1)} s`;
    Object.assign(step, { state: "busy", note: `${event.error}; ${next}`, model: event.fallback || step.model });
  },
  tool_called(turn, event) {
    const step = activeStep(turn, event);
    if (!step) return;
    clearStream(step);
    step.tools.push({ id: event.call_id, name: event.name, arguments: event.arguments, result: null, failed: false });
    Object.assign(step, { state: "busy", note: `uses ${event.name}` });
  },
  tool_returned(turn, event) {
    const step = activeStep(turn, event);
    const tool = step && step.tools.find((call) => call.id === event.call_id);
    if (tool) Object.assign(tool, { result: event.content, failed: event.failed });
  },
  answer_submitted(turn, event) {
    const shown = { kind: "answer", text: event.content, cut: event.truncated, workCut: event.work_cut };
    finish(turn, event, { ...shown, citations: event.citations || [], model: event.fallback });
  },
  items_given(turn, event) {
    const points = (event.items || []).map((item) => `- ${item.title}`);
    const name = (number) => turn.items[number] ?? number;
    const score = (item, [number, value]) => (number === String(item) ? `weight ${value}` : `${name(number)} ${value}`);
    const judge = ({ item, stand, points = {} }) => Object.entries(points).map((entry) => score(item, entry)).join(", ") || stand;
    const checks = event.checks.map((check) => `- **${name(check.item)}**: ${[judge(check), check.reason].filter(Boolean).join(": ")}`);
    finish(turn, event, { kind: "answer", text: [...points, ...checks].join("\n") || "Nothing.", model: event.fallback, citations: [] });
  },
  items_merged(turn, event) {
    for (const { number, item } of event.items) turn.items[number] = item.title;
  },
  ballot_cast(turn, event) {
    finish(turn, event, { kind: "ballot", choice: event.choice, reason: event.reason, text: "", model: event.fallback });
  },
  param_requested(turn, event) {
    finish(turn, event, { kind: "param", text: event.prompt });
  },
  agent_failed(turn, event) {
    const step = activeStep(turn, event);
    const failure = { state: "failed", note: [event.message, event.hint].filter(Boolean).join(". "), text: event.partial };
    if (step) Object.assign(step, failure);
  },
  ballots_voided(turn, event) {
    for (const round of turn.rounds)
      for (const step of Object.values(round.steps)) if (round.number <= event.round && step.kind === "ballot") step.isVoid = true;
  },
  winner_decided(turn, event) {
    Object.assign(turn, { winner: event.agent_id, votes: event.votes, by: event.by });
  },
  turn_completed(turn, event) {
    turn.final = event;
    turn.winner = event.winner;
    if (event.winner_name) turn.names = { ...turn.names, [event.winner]: event.winner_name };
    if (turn.presentation) turn.presentation.state = "done";
    end(turn, event, "completed");
  },
  turn_failed(turn, event) {
    turn.problem = { message: event.message, hint: event.hint };
    end(turn, event, "failed");
  },
  turn_interrupted(turn, event) {
    end(turn, event, "interrupted");
    turn.isCutOff = event.by === "signal";
    for (const { agent_id: agent, text } of event.partials) {
      const step = activeStep(turn, { agent_id: agent, round: turn.rounds.at(-1)?.number });
      if (step) step.text = text;
    }
  },
  turn_waiting(turn, event) {
    turn.waiting = event;
    end(turn, event, "waiting");
  },
  turn_abandoned(turn, event) {
    turn.waiting = null;
    end(turn, event, "abandoned");
  },
  turn_undone(turn) {
    turn.status = "undone";
  },
  context_measured(turn, event) {
    turn.context[event.agent_id] = event;
  },
  context_compressed(turn, event) {
    turn.compressions.push(event);
  },
  notice(turn, event) {
    turn.notices.push(event.message);
  },
};

function finish(turn, event, change) {
  const step = stepOf(turn, event);
  if (step) Object.assign(step, { state: "done", note: "", reasoning: event.reasoning, usage: event.usage, ...change });
}

function describeActivity(event) {
  if (event.what) return event.what;
  const activity = event.activity === "loading" ? "loads its model" : "reads the prompt";
  return event.share === null ? activity : `${activity}, ${Math.round(event.share * 100)} %`;
}

const WORK_CUTS = {
  tool_rounds: "The limit of replies with calls of tools was reached",
  standstill: "The work stood still: no new call and no new text",
  time: "The time limit was reached",
  cost: "The cost limit was reached",
  tokens: "The token limit was reached",
};
export const describeWorkCut = (reason) => `${WORK_CUTS[reason]}. The answer is from what was done until then.`;

// Returns [agent, votes] of the standing ballots, most first.
export const ranking = (turn) => Object.entries(turn.votes).sort((a, b) => b[1] - a[1]);

const ROUNDS = {
  union: ["Each lists what it sees", "Each looks at what others have listed"],
  decide: ["Each lists options and criteria", "Each weighs the criteria and scores the options"],
  revise: ["One drafts", "The others criticise", "The author revises"],
};
// What a round is for, where nobody votes.
export const describeRound = ({ shape }, number) => ROUNDS[shape]?.[number < 3 ? number - 1 : 1 + (number % 2)];

const DECISIONS = {
  only_answer: "it was the only answer",
  consensus: "every agent voted",
  early_stop: "further votes could not change it",
  answer_now: "you did not wait for more",
  plurality: "most votes",
  tie_support: "tie: more agents gave this answer",
  tie: "a tie",
  no_vote: "nobody could vote",
  no_vote_held: "no vote was held",
  unanimous: "all answers are the same",
  majority: "more than half of the voices gave this answer",
};
export const describeDecision = (turn) => DECISIONS[turn.by] || "";
