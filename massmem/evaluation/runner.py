"""Asks teams the questions of an evaluation, some at the same time, and a model whether an answer is right.

Every answer and verdict is stored before it counts: one line of JSON, on disk, so that it is paid for once. Until then
its turn is in a store beside the results, so that a killed one goes on where it was.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from massmem.config.home import explain_write_error, make_folder, open_private
from massmem.config.models import StoreConfig, TeamConfig
from massmem.core import prompts
from massmem.core.citations import remove_marks
from massmem.core.errors import InputError, LimitReached, TurnError
from massmem.core.events import FORMER_DECISIONS, AnswerSubmitted, BallotCast, Decision, Event, TurnFailed, Verdict
from massmem.core.items import UnionItem
from massmem.core.messages import Usage
from massmem.core.records import Owner
from massmem.core.turn_result import AgentAnswer, TurnResult
from massmem.core.verdict import Calibration
from massmem.evaluation.items import Item
from massmem.evaluation.tasks import TaskGrade, read_grades
from massmem.session.session import Session
from massmem.session.team import Team
from massmem.tools.actions import find_object


class ItemResult(BaseModel, frozen=True):
    """How a team answered a question."""

    kind: Literal["result"] = "result"
    team: str
    """Key of the team: what it is configured to, see `Entrant`."""
    item: str
    """Key of the question, see `Item`."""
    seed: int
    sample: int = 0
    """Counts independent answers of one agent to the same question."""
    answer: str = ""
    winner: str = ""
    by: Annotated[Decision | None, BeforeValidator(lambda by: FORMER_DECISIONS.get(str(by), by))] = None
    confidence: float | None = None
    verdict: Verdict = "answered"
    """unsure: `answer` says so, and names what the agents answered."""
    members: dict[str, str] = {}
    """The answer of each agent, as the others were last shown it, in the order in which they came."""
    replaced: dict[str, str] = {}
    """The first answer of each agent that gave another one in a later round."""
    cut: tuple[str, ...] = ()
    """Agents whose answer lacks its end."""
    work_cut: tuple[str, ...] = ()
    """Agents whose work for their answer was cut short by a limit."""
    fallbacks: dict[str, str] = {}
    """Models that answered in place of an agent's own, by agent."""
    items: tuple[UnionItem, ...] | None = None
    ballots: dict[str, str] = {}
    """Standing ballots: voter to the agent that it voted for."""
    usage: Usage = Usage()
    spent: dict[str, int] = {}
    """Tokens of each agent's answers and ballots; the rest is for the final answer, and for what failed."""
    seconds: float = 0.0
    error: str = ""
    """Why there is no answer; the question is asked again by the next run."""

    @property
    def tokens(self) -> int:
        return self.usage.prompt + self.usage.completion

    @property
    def claim(self) -> str:
        """What is graded: the answer, and where the team is unsure the one that it would have given."""
        return self.members.get(self.winner, "") if self.verdict == "unsure" else self.answer


@dataclass(frozen=True, slots=True)
class Answers:
    """Of a team, one per question."""

    name: str
    items: Sequence[Item]
    results: Sequence[ItemResult]
    right: Sequence[bool | None]
    """None: the judge gave no verdict, or the task is open."""
    tasks: Sequence[TaskGrade | None] = ()
    """Of open tasks."""
    agents: tuple[str, ...] = ()
    """Of the team, in its order."""
    is_full: bool = True
    """All of them were asked."""


class JudgeVerdict(BaseModel, frozen=True):
    kind: Literal["verdict"] = "verdict"
    key: str
    """Of the judge, the question and the answer."""
    right: bool | None = None
    met: tuple[bool | None, ...] = ()
    """Whether the answer is right (`right` in earlier files), or meets each criterion; null: not graded."""
    usage: Usage = Usage()


_LINE: TypeAdapter[ItemResult | JudgeVerdict] = TypeAdapter(
    Annotated[ItemResult | JudgeVerdict, Field(discriminator="kind")]
)


class ResultFile:
    """The results so far, and the file that new ones are appended to. Open it with `open_results`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._results: dict[tuple[str, str, int, int], ItemResult] = {}
        self.verdicts: dict[str, JudgeVerdict] = {}
        """By key."""
        self._load()

    def get(self, team: str, item: str, seed: int, sample: int = 0) -> ItemResult | None:
        """Return what is known of an answer; None when it has to be asked for."""
        return self._results.get((team, item, seed, sample))

    def add(self, entry: ItemResult | JudgeVerdict) -> None:
        """Append an entry and wait until it is on disk. Raises MassmemError when the file cannot be written."""
        line = json.dumps({"kind": entry.kind, **entry.model_dump(mode="json", exclude_defaults=True)})
        try:
            with open_private(self.path, "ab") as file:
                size = file.tell()
                try:
                    file.write(f"{line}\n".encode())
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(size)  # half a line would spoil the next one
                    raise
        except OSError as e:
            raise explain_write_error(self.path, e) from e
        self._keep(entry)

    def _keep(self, entry: ItemResult | JudgeVerdict) -> None:
        match entry:
            case JudgeVerdict(key=key):
                self.verdicts[key] = entry
            case ItemResult():
                self._results[entry.team, entry.item, entry.seed, entry.sample] = entry

    def _load(self) -> None:
        """Read the file. A last line that a kill has cut is dropped."""
        try:
            lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        except OSError as e:
            raise InputError(f"{self.path} cannot be read: {e.strerror or e}", "name another file: --results") from e
        whole, rest = lines[:-1], lines[-1] if lines else b""
        for number, line in enumerate(whole, start=1):
            try:
                self._keep(_LINE.validate_json(line))
            except ValidationError as e:
                raise InputError(
                    f"{self.path}:{number} is no result of an evaluation", "name another file: --results FILE"
                ) from e
        if rest:
            with self.path.open("r+b") as file:
                file.truncate(sum(len(line) + 1 for line in whole))


@contextlib.contextmanager
def open_results(path: Path) -> Generator[ResultFile]:
    """Open the file for the block; it is made when missing.

    Raises:
        InputError: another evaluation writes to it, or it holds something else.
        MassmemError: it cannot be written.
    """
    make_folder(path.parent)
    lock = FileLock(f"{path}.lock", timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout as e:
        hint = "wait for it, or name another file: --results FILE"
        raise InputError(f"another evaluation writes to {path}", hint) from e
    except OSError as e:
        raise explain_write_error(path, e) from e
    try:
        yield ResultFile(path)
    finally:
        lock.release()


Progress = Callable[[int, int | None], None]
"""(done, total)"""

MAX_FAILURES = 5
"""Questions in a row that a team may fail to answer before it is given up."""
MAX_SAMPLES = 64
"""Answers of one agent to one question."""


@dataclass(frozen=True, slots=True)
class Entrant:
    name: str
    config: TeamConfig
    calibration: Calibration | None = None
    """By which the team says that it is unsure, or weighs its agents; None: by none."""

    @property
    def key(self) -> str:
        """Equal for teams that would be asked in the same way."""
        fields = self.config.model_dump(mode="json", include={"agents", "coordination", "params"})
        if self.calibration is not None:
            fields["calibration"] = self.calibration.model_dump(mode="json", exclude={"team", "data", "created_at"})
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]

    def select_agent(self, agent_id: str) -> "Entrant":
        return Entrant(f"{self.name}: {agent_id} alone", self.config.select_agent(agent_id))


@dataclass(slots=True)
class Spending:
    """The cost of the evaluation in this run, and its limit."""

    max_cost: float | None = None
    """US dollars; None: no limit."""
    usage: Usage = field(default_factory=Usage)

    def check(self) -> None:
        """Raise LimitReached when the limit is reached."""
        if self.max_cost is not None and (self.usage.cost or 0.0) >= self.max_cost:
            raise LimitReached(
                f"the evaluation has cost ${self.usage.cost or 0:.4f}, the most it may: {self.max_cost:g}",
                "run the same command again with a larger --max-cost: it goes on where it stopped",
            )


@dataclass(frozen=True, slots=True)
class Runner:
    """Answers that the results have already are not asked for again."""

    results: ResultFile
    home: Path
    seed: int = 0
    """Draws the order in which each agent is shown the answers of the others."""
    concurrency: int = 4
    """Questions that are asked at the same time."""
    spending: Spending = field(default_factory=Spending)

    async def run(self, entrant: Entrant, items: Sequence[Item], progress: Progress) -> list[ItemResult]:
        """Return the team's answers to the questions, in their order.

        A question that was not answered has a result with an `error`.

        Raises:
            LimitReached: the cost is at its limit; what was answered is stored.
            TurnError: the team failed to answer several questions in a row.
            MassmemError: the team cannot be started, or a result cannot be stored.
        """
        known = {item.key: self.results.get(entrant.key, item.key, self.seed) for item in items}
        answered = {key: result for key, result in known.items() if result is not None}
        unasked, failures = [item for item in items if item.key not in answered], 0
        progress(len(answered), len(items))

        async def ask(team: Team, item: Item) -> None:
            nonlocal failures
            answered[item.key] = result = await self._ask(team, entrant, item, 0)
            failures = failures + 1 if result.error else 0
            if failures >= MAX_FAILURES:
                raise TurnError(f"{entrant.name} failed {failures} times in a row, the last time: {result.error}")
            progress(len(answered), len(items))

        if unasked:
            await self._with_team(entrant, unasked, ask)
        return [answered[item.key] for item in items]

    async def sample(
        self, entrant: Entrant, items: Sequence[Item], budgets: Sequence[int], progress: Progress
    ) -> list[list[ItemResult]]:
        """Return independent answers to each question, as many as its budget of tokens pays for; at least one.

        Raises: as `run`.
        """
        samples: dict[str, list[ItemResult]] = {}
        budget_of = {item.key: budget for item, budget in zip(items, budgets, strict=True)}

        async def ask(team: Team, item: Item) -> None:
            drawn = samples.setdefault(item.key, [])
            while len(drawn) < MAX_SAMPLES:
                result = await self._ask(team, entrant, item, len(drawn))
                drawn.append(result)
                spent = sum(result.tokens for result in drawn)
                if result.error or spent + spent / len(drawn) > budget_of[item.key]:
                    break
            progress(len(samples), len(items))

        await self._with_team(entrant, list(items), ask)
        return [samples.get(item.key, []) for item in items]

    async def _with_team(
        self, entrant: Entrant, items: Sequence[Item], ask: Callable[[Team, Item], Awaitable[None]]
    ) -> None:
        """Open the team and call `ask` for every question, several at the same time."""
        queue = iter(items)

        async def work(team: Team) -> None:
            for item in queue:
                await ask(team, item)

        async with open_team(entrant, self) as team:
            workers = [asyncio.create_task(work(team)) for _ in range(min(self.concurrency, len(items)))]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    async def _ask(self, team: Team, entrant: Entrant, item: Item, sample: int) -> ItemResult:
        """Return the stored answer, or ask the question in a session of its own, and store the answer."""
        if (known := self.results.get(entrant.key, item.key, self.seed, sample)) is not None:
            return known
        self.spending.check()
        where = {"team": entrant.key, "item": item.key, "seed": self.seed, "sample": sample}
        name, seed = _make_name(where), random.Random(f"{self.seed}:{sample}:{item.key}").getrandbits(32)
        started = time.monotonic()
        turn = await _ask_once(team, name, item.question, seed, item.schema)
        result = ItemResult(**where, **_read_turn(turn), seconds=round(time.monotonic() - started, 3))
        self.spending.usage += result.usage
        if not result.error:
            self.results.add(result)
        if not isinstance(turn[-1], TurnFailed):  # what a failed turn has is not asked for again by the next run
            await team.store.delete_session(name, _WHOLE)
        return result


@asynccontextmanager
async def open_team(entrant: Entrant, runner: Runner, kind: str = "team") -> AsyncGenerator[Team]:
    """Open the team for the block, on a store that goes once all turns have results. Raises MassmemError."""
    folder = runner.results.path.with_name(f"{runner.results.path.name}.{kind}-{entrant.key}")
    config = _isolate(entrant.config, folder, runner.spending.max_cost)
    team = await Team.open(config, home=runner.home, finishes=False)
    try:
        await team.start()
        yield team
        left = {session.status for session in await team.store.list_sessions()} - {"completed"}
    finally:
        await team.close()
    if not left:
        shutil.rmtree(folder)


def _isolate(config: TeamConfig, folder: Path, max_cost: float | None) -> TeamConfig:
    """Return the team with a store in the folder, from which nothing is recalled: no question may help with another.

    max_cost: also the most that one turn may cost, so that a model without a known price is refused.
    """
    memory = config.memory.persistent_memory.model_copy(update={"enabled": False})
    changes: dict[str, object] = {
        "store": StoreConfig(url=f"sqlite:///{folder}/turns.db"),
        "session_id": None,
        "memory": config.memory.model_copy(update={"persistent_memory": memory}),
        "telemetry": config.telemetry.model_copy(update={"stages": None}),
    }
    if max_cost is not None:
        limit = min(filter(None, (max_cost, config.coordination.max_cost)))
        changes["coordination"] = config.coordination.model_copy(update={"max_cost": limit})
    return config.model_copy(update=changes)


_OWNER = Owner("evaluation")
"""Of the sessions: the registry lists those of the command line's user."""
_WHOLE = 1_000_000
"""Events: more than a turn has."""


def _make_name(identity: object) -> str:
    return f"eval_{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]}"


async def _ask_once(
    team: Team, name: str, question: str, seed: int | None = None, schema: Mapping[str, Any] | None = None
) -> list[Event]:
    """Ask a question in the session with this name, or finish the turn that it has; return all events of the turn."""
    async with await Session.get_or_create(team, name, _OWNER) as session:
        session.seed = seed
        last = await team.store.get_last_turn(name)
        if last is None or last.is_unfinished:
            async with aclosing(session.ask(question, answer_schema=schema)) as events:
                async for _ in events:
                    pass
    return await team.store.read_turn_events(name, 1)


def _read_turn(events: Sequence[Event]) -> dict[str, Any]:
    turn = TurnResult.of(events)
    spent = Counter[str]()
    for event in events:
        if isinstance(event, AnswerSubmitted | BallotCast):
            spent[event.agent_id] += event.usage.prompt + event.usage.completion
    answers = {agent.id: agent.answers for agent in turn.agents if agent.answers}
    answers = dict(sorted(answers.items(), key=lambda pair: pair[1][0].number))
    last = {agent: versions[-1] for agent, versions in answers.items()}
    return {
        "winner": turn.winner or "",
        "by": turn.decided_by,
        "members": {agent: _plain(answer) for agent, answer in last.items()},
        "replaced": {agent: _plain(versions[0]) for agent, versions in answers.items() if len(versions) > 1},
        "cut": tuple(agent for agent, answer in last.items() if answer.truncated),
        "work_cut": tuple(agent for agent, answer in last.items() if answer.work_cut is not None),
        "fallbacks": {agent: answer.fallback for agent, answer in last.items() if answer.fallback},
        "ballots": {agent.id: ballot.choice for agent in turn.agents for ballot in agent.ballots if ballot.stands},
        "spent": dict(spent),
        "items": turn.items,
        "usage": turn.usage,
        "answer": remove_marks(turn.answer or "", len(turn.citations)),  # the number of a source is no result
        "confidence": turn.confidence,
        "verdict": turn.verdict or "answered",
        "error": _explain_no_answer(turn),
    }


def _explain_no_answer(turn: TurnResult) -> str:
    """Return why a turn has no answer, "" when it has one."""
    if turn.waiting_for is not None:
        return f"the team asks for {turn.waiting_for.param}"
    reason = next((error.error for error in turn.errors if error.agent is None), "the turn has no end")
    return reason if turn.answer is None else ""


def _plain(answer: AgentAnswer) -> str:
    return remove_marks(answer.content, len(answer.citations))


_VERDICTS = {"right": True, "correct": True, "wrong": False, "incorrect": False}
_SUBJECT = (
    r"(?>(?:(?:(?:the|this|that|my|it|its|i'd|i|would|say|mark|grade|as|so|but|thus|hence|therefore|clearly|answer|final|"
    r"verdict|conclusion|response|given|is)\b[,:]?|:|→)\s*)*)"
)
_WORD = "(?:not )?(?:right|correct|wrong|incorrect)"
_ALONE = re.compile(
    rf"(?i){_SUBJECT}(?P<first>{_WORD})(?:\s?[,:;(—-].*|\sbecause\b.*)?|(?>.*[,:;→])\s*{_SUBJECT}(?P<last>{_WORD})"
)
_DOUBT = re.compile(r"\b(?:not sure|unsure|cannot|can't|no|wait|hmm+)\b", re.IGNORECASE)


def read_verdict(reply: str) -> bool | None:
    """Return the last verdict of a judge: in its JSON, or of a sentence that says nothing else. None: there is none."""
    if (data := find_object(reply)) is not None:
        return _VERDICTS.get(str(data.get("verdict")).strip().lower())
    verdict: bool | None = None
    plain = re.sub(r"[*_`\"'“”#]+", "", re.sub(r"</?\w+>|\\boxed|[{}]", "\n", reply))
    for sentence in re.findall(r"[^\n.!?…]+[.!?…]*", plain):
        alone = _ALONE.fullmatch(sentence.strip(" .!…"))
        if alone is not None:
            word = (alone["first"] or alone["last"]).lower()
            verdict = {"not right": False, "not correct": False}.get(word, _VERDICTS.get(word))
        elif _DOUBT.search(sentence):
            verdict = None
    return verdict


@dataclass(slots=True)
class Judge:
    """Asks twice, once with the reference first and once with the answer first: models favour what stands first.

    An answer is right when both replies say so. A reply without a verdict is asked for once more; what is without one
    then is not graded. Verdicts are stored, and not asked for again.
    """

    entrant: Entrant
    """The judge's model, as a team of one."""
    results: ResultFile
    spending: Spending
    team: Team
    usage: Usage = field(default_factory=Usage)

    async def grade(self, item: Item, text: str, criteria: Sequence[str] = ()) -> tuple[bool | None, ...]:
        """Return whether the judge finds the answer right, or which criteria it meets; None: it does not say.

        Raises:
            TurnError: the judge's model cannot be asked.
            LimitReached: the cost is at its limit.
        """
        if not text.strip():
            return (False,) * (len(criteria) or 1)
        identity = json.dumps([self.entrant.key, item.key, item.expected, text, *criteria])
        key = hashlib.sha256(identity.encode()).hexdigest()[:32]
        if (known := self.results.verdicts.get(key)) is not None:
            return known.met or (known.right,)
        self.spending.check()
        spent, readings, names = Usage(), list[list[bool | None]](), list[str]()
        for reference_first in (True, False):
            reading: list[bool | None] = []
            texts = criteria[:: 1 if reference_first else -1] or item.expected
            question = prompts.build_judge_prompt(
                item.question, texts, text, reference_first=reference_first, is_rubric=bool(criteria)
            )
            for attempt in range(2):
                if not {*reading} - {None}:
                    names.append(_make_name([key, reference_first, attempt]))
                    reply, usage = await self._ask(names[-1], question)
                    reading = read_grades(reply, len(criteria)) if criteria else [read_verdict(reply)]
                    spent += usage
            readings.append(reading)
        pairs = zip(readings[0], readings[1][::-1], strict=True)
        met = tuple(a if a == b else None if criteria or False not in (a, b) else False for a, b in pairs)
        if all({*reading} - {None} for reading in readings) or met == (False,):
            self.results.add(JudgeVerdict(key=key, met=met, usage=spent))
        for name in names:
            await self.team.store.delete_session(name, _WHOLE)
        return met

    async def _ask(self, name: str, question: str) -> tuple[str, Usage]:
        turn = TurnResult.of(await _ask_once(self.team, name, question))
        self.usage += turn.usage
        self.spending.usage += turn.usage
        if turn.answer is not None:
            return turn.answer, turn.usage
        failure = next((error for error in turn.errors if error.agent is None), None)
        if failure is not None:
            raise TurnError(f"the judge failed: {failure.error}", failure.fix)
        raise TurnError("the judge gave no verdict", "name a judge that asks nothing back")
