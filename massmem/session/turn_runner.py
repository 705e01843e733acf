"""Runs the turns of a session: starts, resumes and abandons them. Each event is stored, then yielded."""

import asyncio
import logging
import secrets
import shlex
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from massmem.config.models import AgentConfig
from massmem.config.variation import Variation, combine
from massmem.core import events as ev
from massmem.core.errors import DuplicateRequestError, InputError, MassmemError, StoreError, TurnError
from massmem.core.messages import AttachedFile, Attachment, PartialReply, Usage, add_description, remove_description
from massmem.core.outcome import GAVE_UP, MAX_DEATHS, TurnEnd, count_deaths, was_cut_off
from massmem.core.params import detect_intent
from massmem.core.prompts import add_folder_notes
from massmem.core.records import COMMAND_LINE_USER, SessionState, TurnRecord
from massmem.core.text import one_line
from massmem.core.turn_result import TurnResult
from massmem.core.versions import TurnTree
from massmem.memory.budget import Budget, MeteredProvider
from massmem.memory.frames import find_statement_to_forget
from massmem.memory.origins import MOST_READ, ToolText
from massmem.providers.base import ChatProvider
from massmem.session.history import History
from massmem.session.lease import Lease
from massmem.session.recall import remembers
from massmem.session.team import Team
from massmem.store.lookup import load_attachments, read_turns_backwards
from massmem.telemetry import Stage, TurnTrace, make_memory_payload, make_respond_payload
from massmem.tools.actions import AskContext
from massmem.turn.agent import Agent
from massmem.turn.carry_out import complete_cut
from massmem.turn.coordinator import Turn, run_turn
from massmem.turn.fallback import Fallbacks, Model, Outages
from massmem.turn.outbox import Outbox, run_until
from massmem.turn.param_dialog import ParamDialog, ReplyReading
from massmem.turn.revise import RUNS
from massmem.turn.tool_loop import AgentTools, Confirmations
from massmem.turn.vision import Description, describe, find_describer

log = logging.getLogger(__name__)

_NOTES_SHARE = 4
"""Tokens of the window for each character of what folders say of themselves: about a sixteenth of it may be that."""

StopReason = Literal["user", "signal"]
_ENDS = ev.TurnCompleted | ev.TurnFailed | ev.TurnWaiting
"""Events after which nothing is left of the run of a turn."""


@dataclass(slots=True)
class Stop:
    """Ends the running turn from outside."""

    requested: asyncio.Event = field(default_factory=asyncio.Event)
    by: StopReason = "user"
    answer_now: asyncio.Event = field(default_factory=asyncio.Event)
    """Let the turn end with the answers that it has."""


class TurnRunner:
    """Runs what one call of a session asks for, under the session's lease.

    Where an error is seen: that of an agent's step, of a model or a bug, by the coordinator, as `agent_failed`; that of
    a tool by its agent, as the result of the call. Those of the store, and of a reply or a picture that cannot be read,
    are raised here, to whoever takes the events; a turn that had begun is stored as interrupted, if the store can.
    """

    def __init__(
        self,
        team: Team,
        agents: Sequence[AgentConfig],
        history: History,
        lease: Lease,
        stop: Stop,
        equip: Callable[[Team], tuple[Sequence[AgentConfig], History]],
    ) -> None:
        """equip: returns the agents of another team, with a history."""
        self.seq = 0
        """The number in the log of the event that was yielded last."""
        self.dialog = ParamDialog(team.config, SessionState(), 0)
        """Of the turn that runs."""
        self.seed: int | None = None
        """Of new turns; None: a random one for each."""
        self.remembers_question = True
        """As in Session."""
        self._session_id = lease.session_id
        self._use(team, agents, history)
        self._equip = equip
        self._store = team.store
        self._lease = lease
        self._stop = stop
        self._request = ("", "")
        self._outbox = Outbox()
        self._notices: list[str] = []
        self._replies: dict[str, list[str]] = {}
        self._turn = 0
        """Of the events that are emitted."""
        self._providers: dict[str, MeteredProvider] = {}
        self._budget = Budget()
        self._trace: TurnTrace | None = None
        """Of the turn that runs; None: none does."""
        self._is_open = False
        """The log has the beginning of the turn that runs, and not its end."""
        self._releases_lease = False
        """With the end of the turn."""
        self._last: ev.Event | None = None
        """That was stored."""

    def _use(self, team: Team, agents: Sequence[AgentConfig], history: History) -> None:
        self._team, self._config, self._agents, self._history = team, team.config, tuple(agents), history
        self._remembered = {agent.id for agent in self._agents if team.memory.enabled and remembers(agent.memory)}

    @asynccontextmanager
    async def _use_team_of(self, started: ev.TurnStarted, *, asks_for_it: bool) -> AsyncGenerator[None, None]:
        """Use the team with which a turn began in the block.

        asks_for_it: what changes the team now is meant for this turn, and goes before. Raises as `Variation.apply`,
        `Team.start`.
        """
        own, before = self._config.variation, started.variation
        fields = combine(before, own) if asks_for_it else before
        if asks_for_it and (other := [name for name in before if fields.get(name) != before[name]]):
            began, now = (", ".join(f"{name} {of.get(name) or '-'}" for name in other) for of in (before, fields))
            self._notices.append(f"the turn began with {began}; as you ask for that, it goes on with {now}")
        if fields == own:
            yield
            return
        present = self._team, self._agents, self._history
        team = self._team.with_config(Variation.of(fields).apply(self._config.base or self._config))
        agents, history = self._equip(team)
        try:
            await team.start()
            self._use(team, agents, history)
            yield
        finally:
            self._use(*present)
            await history.close()
            await team.close()

    async def stream(self, work: Coroutine[Any, Any, None]) -> AsyncGenerator[ev.Event, None]:
        """Run `ask` or `finish`, and yield what they emit, each event after it was stored.

        A turn that an error ends, or whoever takes the events, is stored as interrupted.
        """
        try:
            async with aclosing(self._outbox.run(work)) as batches:
                async for batch in batches:
                    stored = await self._store_batch(batch.events)
                    batch.confirm()
                    for event in self._history.take_prepared():
                        yield event
                    for self.seq, event in stored:
                        yield event
        finally:
            if self._is_open:
                with suppress(StoreError):  # a store that has just failed has raised its error already
                    await self._append([self._interrupt()])

    async def ask(
        self,
        question: str,
        request: str,
        answer_schema: Mapping[str, Any] | None,
        attachments: Sequence[Attachment] = (),
        *,
        full: bool = False,
        replaces: int | None = None,
    ) -> None:
        """Do what `Session.ask` does: what is left of the turn before, and the new turn."""
        if answer_schema is not None and (shape := self._config.coordination.shape) != "vote":
            raise InputError(f"an answer of shape {shape} has a form of its own", "leave out the schema")
        self._request = (request, question)
        files = tuple(attachment.file for attachment in attachments)
        last, newest, state = await self._read_beginning()
        if request and (seq := await self._store.find_request(self._session_id, request)) is not None:
            raise DuplicateRequestError(seq)
        parent, withdraws = await self._place(last, replaces)
        if last is not None and last.is_unfinished:
            if replaces is not None:
                await self._give_up(last)
            elif await self._continue_turn(last, question, files) or self._stop.requested.is_set():
                return
            _, newest, state = await self._read_beginning()
        number = 1 if newest is None else newest.turn + 1
        self.dialog = ParamDialog(self._config, state, number)
        if self.dialog.state.params and not files and detect_intent(question) == "reset":
            await self._start_over(number, question, parent)
            return
        replies = self.dialog.read_question(question)
        seed = secrets.randbits(32) if self.seed is None else self.seed
        if attachments:
            data = {attachment.file.hash: attachment.data for attachment in attachments}
            await self._store.save_files(self._session_id, data)
        turn = Turn(
            self._session_id,
            number,
            question,
            seed,
            replies=replies,
            params=self._config.param_specs,
            answer_schema=answer_schema,
            attachments=files,
            full=full,
            parent=parent,
            withdraws=withdraws,
            job=self._config.job,
            variation=self._config.variation,
        )
        self._history.replaced = frozenset(withdraws)
        try:
            await self._run(turn, release_lease=True)
        finally:
            self._history.replaced = frozenset()  # the store knows it now, or it did not come to that

    async def _start_over(self, number: int, question: str, parent: int) -> None:
        """Forget the known values and what was said: the user wants that, though no turn waits."""
        self._turn, name, agents = number, self._session_id, tuple(agent.id for agent in self._agents)
        begin = partial(ev.TurnStarted, question=question, agents=agents, seed=0, parent=parent)
        end = partial(ev.TurnAbandoned, why="reset", usage=Usage(requests=0))
        await self._emit(begin(session_id=name, turn=number), ev.HistoryCleared(), end(session_id=name, turn=number))

    async def _read_beginning(self) -> tuple[TurnRecord | None, TurnRecord | None, SessionState]:
        """Return the last turn that is not withdrawn, the last one of all, and the state."""
        store, session_id = self._store, self._session_id
        newest, state = await asyncio.gather(
            store.get_last_turn(session_id, with_withdrawn=True), store.load_state(session_id)
        )
        is_withdrawn = newest is not None and newest.withdrawn
        return await store.get_last_turn(session_id) if is_withdrawn else newest, newest, state

    async def _place(self, last: TurnRecord | None, replaces: int | None) -> tuple[int, tuple[int, ...]]:
        """Return which turn the next one follows, and which ones it withdraws. Raise InputError."""
        if replaces is None and (last is None or last.stands):
            return 0 if last is None else last.turn, ()
        if replaces is not None:
            return TurnTree(await self._store.list_places(self._session_id)).plan_version(replaces)
        async with aclosing(read_turns_backwards(self._store, self._session_id)) as turns:
            return await anext((turn.turn async for turn in turns if turn.stands), 0), ()

    async def _give_up(self, pending: TurnRecord) -> None:
        """Give up the unfinished turn: the user asks in its place, or in that of one before it."""
        await self._load(pending)
        if self.dialog.is_waiting:
            await self._emit(*self.dialog.abandon(pending, ReplyReading("change"), ""))
        else:
            await self._store.abandon_turn(self._session_id, pending.turn)

    async def finish(self) -> None:
        """Do what `Session.finish_turn` does."""
        pending = await self._store.get_last_turn(self._session_id)
        if pending is None or not pending.is_unfinished:
            raise InputError("no turn of this session is unfinished", "ask a question")
        logged = await self._load(pending)
        if self.dialog.is_waiting and self.dialog.is_expired:
            await self._emit(*self.dialog.abandon(pending, ReplyReading("timeout"), ""))
        else:
            await self._resume(pending, logged, asks_for_it=True)

    async def _continue_turn(self, pending: TurnRecord, text: str, files: Sequence[AttachedFile]) -> bool:
        """Go on with the unfinished turn, as far as the user's message asks for that, or give it up.

        Return whether the message was for that turn, and is no question of its own.
        """
        logged = await self._load(pending)
        started = _find_start(logged)
        asked_again = add_description(text, started.description), tuple(files)
        is_same = asked_again == (started.question, started.attachments)
        if is_same or (not self.dialog.is_waiting and was_cut_off(logged)):
            await self._resume(pending, logged, asks_for_it=is_same)
            if is_same or self._stop.requested.is_set():
                return True
            logged = await self._load(pending)
        elif not self.dialog.is_waiting:
            await self._store.abandon_turn(self._session_id, pending.turn)
        return self.dialog.is_waiting and await self._reply(pending, logged, text, has_files=bool(files))

    async def _reply(self, pending: TurnRecord, logged: list[ev.Event], text: str, *, has_files: bool) -> bool:
        """Read the message as a reply to the waiting turn, and go on with the turn, or give it up.

        Return as `_continue_turn`.
        """
        earlier, budget = TurnResult.of(logged), self._begin_budget()
        budget.begin(earlier.usage, spent=earlier.of_steps)
        reading = await self.dialog.read_reply(pending.question, text, self._providers, self._stop.requested)
        if "extract" in budget.spent:
            budget.spent["reply"] = budget.spent.pop("extract")
        if reading is None:
            await self._emit(ev.TurnInterrupted(by=self._stop.by))
        elif reading.intent == "answer":
            if has_files:
                self._notices.append("what is attached to a reply is not shown: attach it to a question")
            await self._resume(pending, logged, self.dialog.accept(reading, text))
        else:
            await self._emit(*self.dialog.abandon(pending, reading, text))
        return reading is None or reading.intent in ("answer", "cancel", "reset")

    async def _resume(
        self,
        pending: TurnRecord,
        logged: list[ev.Event],
        replies: Sequence[ev.Event] = (),
        *,
        asks_for_it: bool = False,
    ) -> None:
        """Go on with the turn, with the team with which it began; where that is gone, the turn fails."""
        started = _find_start(logged)
        fail = partial(ev.TurnFailed, exit_code=TurnError.exit_code, usage=TurnResult.of(logged).usage)
        if count_deaths(logged) >= MAX_DEATHS:
            hint = "ask it in another way, or in smaller parts; to try it again as it is, continue the turn"
            await self._emit(fail(message=GAVE_UP, hint=hint))
            return
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._use_team_of(started, asks_for_it=asks_for_it))
            except MassmemError as e:
                message = f"the turn cannot go on with the team with which it began: {one_line(e.message)}"
                await self._emit(fail(message=message, hint="put that back and continue the turn, or ask anew"))
                return
            await self._run_again(pending, logged, started, replies)

    async def _run_again(
        self, pending: TurnRecord, logged: list[ev.Event], started: ev.TurnStarted, replies: Sequence[ev.Event]
    ) -> None:
        turn = Turn(
            self._session_id,
            pending.turn,
            pending.question,
            pending.seed,
            logged,
            replies or self.dialog.list_provided_params(),
            self._config.param_specs,
            started.answer_schema,
            started.attachments,
            Description(started.description),
            full=started.full,
        )
        resumed = self._build_resumption(turn)
        await self._emit(resumed)  # before anything else is done: a turn may kill its process at once
        if (completed := complete_cut(logged, resumed.names)) is not None:
            await self._emit(completed)
        else:
            await self._run(replace(turn, events=[*turn.events, resumed]))

    async def _load(self, pending: TurnRecord) -> list[ev.Event]:
        """Return what the log holds of the turn, and begin its dialog."""
        events = await self._store.read_turn_events(self._session_id, pending.turn)
        state = await self._store.load_state(self._session_id)
        self.dialog, self._turn = ParamDialog(self._config, state, pending.turn, events), pending.turn
        return events

    async def _run(self, turn: Turn, *, release_lease: bool = False) -> None:
        """Run the turn, and report it to telemetry; a stop ends it. release_lease: with the turn's last events."""
        self._turn, self._is_open, self._releases_lease = turn.number, bool(turn.events), release_lease
        budget = self._begin_budget()
        providers = self._providers
        with self._team.tracer.turn(self._session_id) as self._trace:
            try:
                turn, agents = await self._prepare(turn, providers, budget)
                work = run_turn(turn, agents, self._config.coordination, self._outbox, budget, self._stop.answer_now)
                await run_until(self._stop.requested, work)
                await self._outbox.wait_until_stored()
                if not isinstance(self._last, _ENDS):
                    await self._emit(self._interrupt())
            finally:
                self._stop.answer_now.clear()  # it is for this turn alone
        self._trace = None
        if self._last is not None:
            await self._write_stage("respond", turn, make_respond_payload(self._last))

    def _begin_budget(self) -> Budget:
        budget = self._budget = self._history.budget = Budget(self._config.coordination, self._team.memory.report_usage)
        chat = self._team.chat
        self._providers = {a.id: budget.limit(a.id, a.backend, chat[a.id]) for a in self._agents}
        return budget

    async def _emit(self, *events: ev.Event) -> None:
        """Emit events outside of the running turn, and wait until they are stored."""
        for event in events:
            self._outbox.emit(event)
        await self._outbox.wait_until_stored()

    def _follow_replies(self, events: Sequence[ev.Event]) -> None:
        """Take down what agents have written of replies that have not come to an end."""
        for event in events:
            match event:
                case ev.AgentDelta(channel="text"):
                    self._replies.setdefault(event.agent_id, []).append(event.text)
                case ev.AgentStarted() | ev.AgentRetrying() | ev.ToolCalled() | ev.AnswerSubmitted() | ev.BallotCast():
                    self._replies.pop(event.agent_id, None)
                case ev.ParamRequested() | ev.AgentFailed():
                    self._replies.pop(event.agent_id, None)
                case _:
                    pass

    def _interrupt(self) -> ev.Event:
        partials = tuple(PartialReply(agent_id=a, text="".join(texts)) for a, texts in self._replies.items())
        return ev.TurnInterrupted(by=self._stop.by, partials=partials)

    async def _prepare(
        self, turn: Turn, providers: Mapping[str, MeteredProvider], budget: Budget
    ) -> tuple[Turn, dict[str, Agent]]:
        """Return the turn with what it shows described, and its agents."""
        turn = await self._describe(turn, providers)
        agents = await self._create_agents(turn, providers, budget)
        calibration, notices = await self._team.load_calibration()
        self._notices += [*self._team.take_warnings(), *notices]
        await self._write_stage("received", turn, {})
        shape = _find_start(turn.events).shape if turn.events else self._config.coordination.shape
        is_own = self._history.owner == COMMAND_LINE_USER
        if not turn.events and (statement := find_statement_to_forget(turn.question)):
            command = f"massmem memory forget --everywhere --text {shlex.quote(statement)}"
            way = command if is_own else "DELETE /api/v1/memories/ID?everywhere=true, or Forget everywhere on the page"
            self._notices.append(f"a message forgets nothing; this does: {way}")
        folder, is_allowed = self._config.variation.get("write_folder", ""), self._config.may_write
        if folder:
            names = " or ".join(agent.display_name for agent in self._agents if agent.backend.is_program)
            may = f"{names or 'nobody'} may change files and run commands in {folder} once the council has answered"
            self._notices.append(
                may if is_allowed else f"no file in {folder} is changed: only the command line allows it"
            )
        turn = replace(turn, write_folder=folder if is_allowed else "")
        return replace(turn, calibration=calibration, kind=RUNS[shape], is_own=is_own), agents

    async def _create_agents(
        self, turn: Turn, providers: Mapping[str, MeteredProvider], budget: Budget
    ) -> dict[str, Agent]:
        """Return the agents with what they begin the turn with, by id. Raises StoreError: the log cannot be read."""
        team, ask_context = self._team, self.dialog.build_ask_context(turn.replies)
        settings = team.config.coordination
        await team.tools.wait_until_ready()
        contexts = await self._history.build_contexts(turn.session_id, turn.number, turn.question, providers)
        shown = await load_attachments(team.store, turn.session_id, turn.attachments)
        confirmations = await _read_confirmations(team, turn, ask_context)
        fallbacks = list_fallbacks(team, self._agents, budget)
        agents: dict[str, Agent] = {}
        for config in self._agents:
            context, provider = contexts[config.id], providers[config.id]
            tools = AgentTools(
                team.tools.get_toolbox(config.id),
                config.display_name,
                turn.events,
                settings.max_tool_rounds,
                recorded=config.memory.recording.record_all_tool_calls,
                votes=len(self._agents) > 1 and settings.max_rounds > 1 and settings.shape == "vote",
                confirmations=confirmations,
            )
            sees = provider.abilities.vision is not False
            notes = await team.tools.read_notes(config.id, context.compressor.meter.window // _NOTES_SHARE)
            system = add_folder_notes(context.prompt.system, notes)
            prompt = replace(context.prompt, system=system, attachments=shown if sees else ())
            context = replace(context, prompt=prompt)
            agents[config.id] = Agent(config, provider, context, ask_context, tools, fallbacks[config.id])
        return agents

    def _build_resumption(self, turn: Turn) -> ev.TurnResumed:
        return ev.TurnResumed(
            session_id=turn.session_id,
            turn=turn.number,
            question=remove_description(turn.question, turn.description.text),
            agents=tuple(agent.id for agent in self._agents),
            names=TurnResult.of(turn.events).names
            | {agent.id: agent.display_name for agent in self._agents if agent.display_name != agent.id},
            shape=_find_start(turn.events).shape,
        )

    async def _store_batch(self, events: Sequence[ev.Event]) -> list[tuple[int, ev.Event]]:
        """Store events with the notices that are due; return them with their numbers in the log."""
        last = events[-1] if events else None
        ended = isinstance(last, _ENDS)
        if ended:
            await self._team.memory.wait_for_notices()
        self._follow_replies(events)
        self._notices += self._team.memory.take_notices()
        batch = [self.dialog.mask(event) for event in (*(ev.Notice(message=text) for text in self._notices), *events)]
        stored = await self._append(batch, release_lease=self._releases_lease and ended) if batch else []
        self._notices.clear()
        self._team.memory.wake()
        self._last = last or self._last
        if self._trace is not None:
            for event in batch:
                self._trace.feed(event)
            self._is_open = not isinstance(self._last, TurnEnd)
        if isinstance(last, ev.TurnCompleted) and self._providers:  # else nobody was asked
            tokens = last.usage.prompt + last.usage.completion
            log.info("Response generated: %d chars, %d tokens", len(last.answer), tokens)
            self._history.prepare_next(self._session_id, self._turn, last.answer, self._providers)
        return stored

    async def _append(self, events: Sequence[ev.Event], *, release_lease: bool = False) -> list[tuple[int, ev.Event]]:
        """Store events and the values of params that come in with them, as long as the lease is ours."""
        metered = [
            event.model_copy(update={"spent": self._budget.take()}) if isinstance(event, TurnEnd) else event
            for event in events
        ]
        named = [self._mark_unremembered(_attach_request(event, *self._request)) for event in metered]
        numbers = await self._store.append(
            self._session_id,
            self._turn,
            named,
            state=self.dialog.apply(named),
            owner=self._lease.owner,
            release_lease=release_lease,
        )
        if release_lease:
            self._lease.mark_released()
        return list(zip(numbers, named, strict=True))

    def _mark_unremembered(self, event: ev.Event) -> ev.Event:
        """Mark an event that must never become a memory: memory is off for its agent; for a question, for all."""
        match event:
            case ev.TurnStarted():
                remember = bool(self._remembered) and self.remembers_question
            case ev.TurnCompleted():
                remember = event.winner in self._remembered
            case ev.SourceEvent():
                remember = event.agent_id in self._remembered
            case _:
                return event
        return event if remember else event.model_copy(update={"remember": False})

    async def _describe(self, turn: Turn, providers: Mapping[str, ChatProvider]) -> Turn:
        """Return the turn with what it shows described below its question, if an agent does not see it."""
        describer = find_describer({agent.id: providers[agent.id].abilities for agent in self._agents})
        if not turn.attachments or turn.description.text or describer is None:
            return turn
        shown = await load_attachments(self._store, self._session_id, turn.attachments)
        description = await describe(turn.question, shown, describer, providers[describer], self._stop.requested)
        if description is None:
            return turn  # it is stopped at once, and described when it is resumed
        self._notices.append(f"{describer} described what is attached for agents that do not see it")
        return replace(turn, question=add_description(turn.question, description.text), description=description)

    async def _write_stage(self, stage: Stage, turn: Turn, payload: Mapping[str, Any]) -> None:
        """Write the payload, and how much the session holds now."""
        if self._team.stages.is_enabled:
            session, state = await self._store.get_session(self._session_id), self.dialog.state
            count = 0 if session is None else session.message_count
            payload = {**payload, "memory": make_memory_payload(count, state.params, state.waiting_for_param)}
            await asyncio.to_thread(self._team.stages.write, stage, self._session_id, turn.number, payload)


def list_fallbacks(team: Team, configs: Sequence[AgentConfig], budget: Budget) -> dict[str, Fallbacks]:
    """Return the models that stand in for each agent's own in a turn, with their requests checked."""
    outages, fallbacks = Outages(), dict[str, Fallbacks]()
    for config in configs:
        models: list[Model] = []
        for backend, provider in zip(config.backend.fallbacks, team.fallbacks[config.id], strict=True):
            own = config.model_copy(update={"backend": backend})
            models.append(
                Model(own, budget.limit(own.id, backend, provider), partial(team.windows.create_meter, backend))
            )
        fallbacks[config.id] = Fallbacks(config.backend, models, outages)
    return fallbacks


async def _read_confirmations(team: Team, turn: Turn, ask_context: AskContext) -> Confirmations | None:
    """Return what decides which tool calls the user has to allow, with the session's newest results."""
    by_origin, changed = team.config.coordination.confirm is not None, team.tools.find_changed_tools()
    if not (by_origin or changed):
        return None
    from massmem.recording.rules import list_results

    # What a user of the service allows holds for their turn: the tools are the operator's.
    session = await team.store.get_session(turn.session_id)
    is_own = session is None or session.user_id is None
    results: list[ToolText] = []
    number, read = turn.number if by_origin else 0, 0
    while number > 0 and read < MOST_READ:
        messages = await team.store.read_turn_messages(turn.session_id, number)
        of_turn = [result.words for result in list_results(messages)]
        results = [*of_turn, *results]
        read += sum(len(result.text) for result in of_turn)
        number -= 1
    allow = team.tools.allow if is_own else None
    return Confirmations(ask_context.known, ask_context.given_up, results, by_origin, changed, allow)


def _find_start(events: Sequence[ev.Event]) -> ev.TurnStarted:
    return next(event for event in events if isinstance(event, ev.TurnStarted))


def _attach_request(event: ev.Event, request: str, question: str) -> ev.Event:
    """Return the event with the client's key `request` when it is the one that `question` became."""
    match event:
        case ev.TurnStarted(question=text, description=description):
            text = remove_description(text, description)
        case ev.TurnResumed(question=text) | ev.UserReplied(text=text):
            pass
        case _:
            return event
    return event.model_copy(update={"request": request}) if request and text == question else event
