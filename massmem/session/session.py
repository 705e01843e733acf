"""One conversation with a team, across any number of runs: the application service behind every front end.

It composes store, registry, providers, agents and coordinator; nothing else does.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from massmem.config.home import massmem_home
from massmem.config.models import AgentConfig, TeamConfig
from massmem.config.projects import name_project
from massmem.core import events as ev
from massmem.core.errors import (
    HomeError,
    InputError,
    MassmemError,
    MemoryUnavailable,
    SessionExistsError,
    StoreError,
    UnknownSessionError,
)
from massmem.core.events import now
from massmem.core.ids import check_session_name, name_by_clock
from massmem.core.messages import Attachment, clean_text, name_attachments, remove_description
from massmem.core.records import COMMAND_LINE_USER, Owner, SessionRecord, SessionState, TurnRecord
from massmem.core.turn_result import TurnResult
from massmem.memory.budget import Budget, MeteredProvider
from massmem.memory.persistent import Selection
from massmem.session.copies import hand_over
from massmem.session.history import History
from massmem.session.lease import Lease, hold_lease
from massmem.session.owners import memory_group, restrict_to_owner
from massmem.session.registry import Registry, register_sessions
from massmem.session.team import Team
from massmem.session.turn_runner import Stop, StopReason, TurnRunner
from massmem.store.lookup import (
    complete_result,
    find_own_session,
    find_session,
    load_attachments,
    read_turns_backwards,
    require_session,
)
from massmem.store.ports import SessionStore
from massmem.tools.answer_schema import check_schema
from massmem.tools.toolbox import FILE_TOOLS
from massmem.turn.compressor import AgentContext
from massmem.turn.vision import choose_visible, find_abilities

log = logging.getLogger(__name__)


class Session:
    """One question at a time, also over processes.

    Made by `open`, for a session alone, or by `find` and `get_or_create`, one of many on the same team; to be closed.
    Whatever reads or writes the store raises StoreError.
    """

    def __init__(
        self,
        team: Team,
        record: SessionRecord | None,
        *,
        session_id: str = "",
        owner: Owner,
        instructions: str = "",
        project: str | None = None,
    ) -> None:
        """record None: the session is stored with its first question.

        session_id: of a new session; "": it gets one from the clock.
        instructions: for all agents, after their own system messages.
        project: of a new session, see SessionRecord; "": none. None: as the stored session has it, a new one has none.

        Raises InputError: the stored session has another project.
        """
        if record is not None and project not in (None, record.project):
            its_own = f"the project {name_project(record.project)}" if record.project else "no project"
            raise InputError(f"the conversation belongs to {its_own}, and stays there", "begin a new one for another")
        self._project = project or ""
        self.resumed = record is not None
        self.unfinished: TurnRecord | None = None
        self.wait = 0.0
        """Seconds that a question waits for another process to end its turn of this session."""
        self.seed: int | None = None
        """Orders the answers that each agent is shown in a new turn; None: a random number for every turn."""
        self.remembers_questions = True
        """False: what is asked is material to work on, and becomes no memory."""
        self._team = team
        self._config = team.config
        self._store = team.store
        self._record = record
        self._new_id = session_id
        self._owner = owner
        self._instructions = instructions
        self._memory = team.memory
        self._agents, self._history = self._equip(team)
        self._stop = Stop()
        self._runner: TurnRunner | None = None
        self._owns_team = False

    @classmethod
    async def open(
        cls,
        config: TeamConfig,
        *,
        home: Path | None = None,
        session_id: str | None = None,
        owner: Owner = COMMAND_LINE_USER,
        debug: Path | None = None,
        project: str | None = None,
    ) -> Self:
        """Open the session `session_id` (or the configuration's), or prepare a new one when neither is given.

        home: the folder for massmem's own files, made when missing; None: ~/.massmem. A new session is stored with its
        first question. session_id: also a name, or the beginning of an id. debug: a folder for debug files of what is
        remembered; None: none are written. project: as for a Session.

        Raises:
            MissingKeyError, MissingModelError, ConfigError, HomeError, InputError: see there; no session was made.
            UnknownSessionError: there is no such session; the hint names similar ones.
            InputError: session_id may be any of several sessions; the hint names them.
        """
        name = session_id or config.session_id
        if name is not None:
            check_session_name(name)
        team = await Team.open(config, home=home or massmem_home(), debug=debug, fallback=name is None)
        try:
            session = await cls.find(team, name, owner=owner, project=project)
            session._owns_team = True
            await team.start()
        except BaseException:
            await team.close()
            raise
        return session

    @classmethod
    async def find(cls, team: Team, session_id: str | None = None, *, owner: Owner, project: str | None = None) -> Self:
        """Open one of several sessions of an owner on an open team; close it before the team.

        Raises UnknownSessionError, InputError: as `open`.
        """
        record = None if session_id is None else await find_session(team.store, session_id, owner)
        session = cls(team, record, owner=owner, project=project)
        last = await session._last_turn()
        session.unfinished = last if last is not None and last.is_unfinished else None
        return session

    @classmethod
    async def get_or_create(
        cls, team: Team, session_id: str, owner: Owner, instructions: str = "", project: str | None = None
    ) -> "Session":
        """Return the session with exactly this id on a started team; its first question creates it for `owner`.

        instructions: for all agents, after their own system messages, as long as this object is used.
        `unfinished` is not read: `ask` and `finish_turn` do that themselves.

        Raises:
            UnknownSessionError: another owner has it.
            SessionBusyError: it is being deleted.
        """
        record = await find_own_session(team.store, session_id, owner)
        return cls(team, record, session_id=session_id, owner=owner, instructions=instructions, project=project)

    @classmethod
    async def open_with(cls, team: Team, config: TeamConfig, record: SessionRecord | None, **settings: Any) -> Self:
        """Return a session with an open team that is configured so until the session is closed. Raise as Team.start."""
        if config == team.config:
            return cls(team, record, **settings)
        changed = team.with_config(config)
        try:
            session = cls(changed, record, **settings)
            await changed.start()
        except BaseException:
            await changed.close()
            raise
        session._owns_team = True
        return session

    @property
    def id(self) -> str:
        """The session's id; empty until a new session has stored its first question, unless it has one before."""
        return self._new_id if self._record is None else self._record.session_id

    @property
    def config_path(self) -> str:
        """The file of the team that the session began with; empty for a new one."""
        return "" if self._record is None else self._record.config_path

    @property
    def project(self) -> str:
        """See SessionRecord."""
        return self._project if self._record is None else self._record.project

    @property
    def is_durable(self) -> bool:
        """False: the session is held in memory, because the store was away, and ends with this process."""
        return self._store.info.durable

    @property
    def secret_values(self) -> Mapping[str, object]:
        """Values that the user gave when asked, by name: no log may show them."""
        return {} if self._runner is None else self._runner.dialog.values

    @property
    def seq(self) -> int:
        """The number in the log of the event that was yielded last."""
        return 0 if self._runner is None else self._runner.seq

    async def ask(
        self,
        question: str,
        request: str = "",
        answer_schema: Mapping[str, Any] | None = None,
        attachments: Sequence[Attachment] = (),
        *,
        full: bool = False,
        replaces: int | None = None,
    ) -> AsyncGenerator[ev.Event, None]:
        """Run a turn and yield its events, each after it was stored.

        request: an idempotency key: a question with a key that the session has seen is not asked again. answer_schema:
        a JSON Schema: the final answer is a JSON value that fits it, also in `TurnCompleted.data`. attachments: what
        the question shows. full: all agents are asked, whatever `coordination.depth` says. replaces: the turn becomes
        another version of this one: that, and what followed it, is withdrawn as the new one starts, and stays in the
        log; an unfinished turn is given up.

        An unfinished turn comes first. It is resumed when a kill cut it off or the question is the same, and abandoned
        when the user stopped it, or saw it fail, and asks something else now. When it waits for the user, the question
        is the reply, and becomes a turn of its own only when it is something else.

        Raises:
            InputError: the question is empty, the schema is none, an agent does not see what the question shows, or
                the turn that it replaces is not part of the conversation.
            DuplicateRequestError: the key is in the log already; nothing was done.
            ProviderError: the reply could not be read; the turn still waits.
            SessionBusyError: another process runs a turn of this session.
            StoreError: the log cannot be written; what was yielded before is safe.
        """
        question = clean_text(question)
        if not question.strip():
            raise InputError("the question is empty", 'ask like this: massmem "your question"')
        if replaces is not None and self._record is None:
            raise InputError("this conversation is empty", "ask something first")
        schema = None if answer_schema is None else await asyncio.to_thread(check_schema, answer_schema)
        if attachments:
            abilities = await find_abilities({agent.id: self._team.chat[agent.id] for agent in self._agents})
            attachments = choose_visible(self._config, abilities, attachments)
            question = name_attachments(question, attachments)
        async with (
            self._create_if_new(),
            self._hold_lease() as lease,
            aclosing(
                (runner := self._create_runner(lease)).stream(
                    runner.ask(question, request, schema, attachments, full=full, replaces=replaces)
                )
            ) as events,
        ):
            async for event in events:
                yield event

    async def finish_turn(self, *, now: bool = False) -> AsyncGenerator[ev.Event, None]:
        """Resume the unfinished turn and yield its further events.

        now: as `answer_now`. Raises SessionBusyError, and InputError: no turn is unfinished.
        """
        async with self._hold_lease() as lease:
            runner = self._create_runner(lease)
            if now:
                self.answer_now()
            async with aclosing(runner.stream(runner.finish())) as events:
                async for event in events:
                    yield event

    async def compact(self) -> list[ev.ContextCompressed]:
        """Compress the history now; return an event for each agent whose history became smaller.

        Raises SessionBusyError.
        """
        if self._record is None:
            return []
        async with self._hold_lease():
            last = await self._last_turn()
            return [] if last is None else await self._history.compact(self.id, last.turn, self._meter_chat())

    async def compress_ahead(self) -> list[ev.ContextCompressed]:
        """Compress what the next turn would have to, when the last one has ended; return an event for each agent.

        Without a lease: the next turn may begin meanwhile.
        """
        last = await self._last_turn()
        if last is None or last.status != "completed":
            return []
        return await self._history.compress_ahead(self.id, last.turn, last.question, self._meter_chat())

    def _meter_chat(self) -> dict[str, MeteredProvider]:
        """Return the agents' models with their requests limited and booked, as those of a turn."""
        budget = self._history.budget = Budget(self._config.coordination, self._team.memory.report_usage)
        return {a.id: budget.limit(a.id, a.backend, self._team.chat[a.id]) for a in self._agents}

    async def context(self) -> list[ev.ContextMeasured]:
        """Return how full each agent's window is before the next question, without recalled memories."""
        last = await self._last_turn()
        return await self._history.measure(self.id, 0 if last is None else last.turn, self._team.chat)

    async def preview(self, question: str) -> dict[str, AgentContext]:
        """Return what each agent would be sent with this question, by its id. Nothing is asked, and nothing stored."""
        last = await self._last_turn()
        return await self._history.preview(self.id, 0 if last is None else last.turn, question, self._team.chat)

    async def clear_history(self) -> None:
        """Hide the history so far from the agents, in this process and in all others.

        The log keeps it, and its memories are still recalled where they bear on a question. Raises SessionBusyError.
        """
        if self._record is None:
            return
        async with self._hold_lease():
            await self._history.wait_for_preparation()
            self._history.take_prepared()
            await self._store.append(self.id, 0, [ev.HistoryCleared()])

    async def undo(self) -> TurnRecord:
        """Undo the last turn, answered or not: hide it from the agents, delete its memories and its params.

        The log keeps it, marked as undone. Return the turn; the next call undoes the turn before it. Where the memory
        cannot be used now, no agent recalls the turn, and whoever records next deletes its memories.

        Raises:
            InputError: there is no turn to undo.
            SessionBusyError
        """
        if self._record is not None:
            async with self._hold_lease():
                await self._history.wait_for_preparation()
                self._history.take_prepared()
                async with aclosing(read_turns_backwards(self._store, self.id)) as turns:
                    turn = await anext((turn async for turn in turns if turn.status != "undone"), None)
                if turn is not None:
                    await self._undo_turn(turn)
                    return turn
        raise InputError("there is no turn to undo", "ask a question first")

    async def _undo_turn(self, turn: TurnRecord) -> None:
        """Note it in the log, which queues the rest; then delete its memories."""
        from massmem.recording.forgetting import forget_memories
        from massmem.recording.worker import Recorder

        selection = Selection(session_id=self.id, turn=turn.turn)
        await hand_over(self._store, self.id, turn.turn)
        state = await _remove_turn_values(self._store, turn)
        await self._store.append(self.id, turn.turn, [ev.TurnUndone(session_id=self.id, turn=turn.turn)], state=state)
        with suppress(MemoryUnavailable):
            async with self._team.open_durable_memory() as memory:
                await forget_memories(self._store, memory, selection, self._config.memory, self._team.home)
                # A recorder may have taken something out of the queue before.
                await Recorder(self._store, memory, session_id=self.id, leaves_facts=True).drain()

    async def remember(self, text: str, *, session_only: bool = False) -> None:
        """Store a note of the user, word for word, that every agent can recall from the next turn on.

        session_only: agents of other sessions never recall it, whatever their configuration says.

        Raises InputError: the text is empty, or the configuration remembers nothing.
        """
        text = clean_text(text).strip()
        if not text:
            raise InputError("there is nothing to remember", "say what: /remember I prefer metric units")
        if not self._memory.enabled:
            raise InputError("this team remembers nothing", "set memory.persistent_memory.enabled: true")
        async with self._create_if_new():
            await self._store.append(self.id, 0, [ev.NoteAdded(text=text, session_only=session_only)])
        self._memory.wake()

    async def add_messages(self, messages: Sequence[tuple[Literal["user", "agent"], str]]) -> None:
        """Add messages that were exchanged elsewhere to the end of the conversation; agents see them from then on.

        messages: who spoke, and the text.
        """
        events = [ev.MessageAdded(role=role, text=clean_text(text)) for role, text in messages]
        async with self._create_if_new():
            last = await self._last_turn()
            await self._store.append(self.id, 0 if last is None else last.turn, events)

    async def load_question(self, turn: int) -> tuple[str, tuple[Attachment, ...]]:
        """Return the question of a turn as it was asked, and what it came with."""
        events = await self._store.read_turn_events(self.id, turn)
        started = next(event for event in events if isinstance(event, ev.TurnStarted))
        shown = await load_attachments(self._store, self.id, started.attachments)
        return remove_description(started.question, started.description), shown

    def limit_recall(self, without: Collection[str], as_of: datetime) -> None:
        """Let no agent recall these memories, given by id, or what was said after this time."""
        self._history.without, self._history.as_of = frozenset(without), as_of

    def stop(self, by: StopReason) -> None:
        """Stop the running turn: its last event is turn_interrupted, and it can be resumed later.

        Where no turn runs yet, it holds for the next one.
        """
        self._stop.by = by
        self._stop.requested.set()

    def answer_now(self) -> None:
        """Let the running turn end with the answers so far, or with the first one; no round or vote follows.

        The winner's answer is shown as it is, unless the question came with a schema. Where no turn runs yet, it holds
        for the next one.
        """
        self._stop.answer_now.set()

    @property
    def memory_fault(self) -> str:
        """Why something is not remembered as the configuration says; "" when it is, or the memory is off."""
        return self._memory.fault

    def take_notices(self) -> list[str]:
        """Return what the user should know of the memory since the last turn; after `close` also of its last work."""
        return self._memory.take_notices()

    async def wait_for_preparation(self) -> None:
        """Wait for the work that prepares the next turn."""
        await self._history.wait_for_preparation()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def wait_for_tools(self) -> list[str]:
        """Wait until every tool server has started, or has failed to. Return what the user is told of folders, once.

        Raises ToolServerError: a required server has failed.
        """
        await self._team.tools.wait_until_ready()
        if (
            self.unfinished
            or self._team.config.has_folders
            or self._runner is not None
            or not await self._has_read_folder()
        ):
            return self._team.tools.take_reading()
        return ["the last turn has read a folder, which the agents do not have now: give it with --dir DIR"]

    def take_team(self) -> Team:
        """Return the team that `open` has opened; from now on the caller closes it, after this session."""
        self._owns_team = False
        return self._team

    async def close(self) -> None:
        """Release what this session holds; when it has opened the team itself, close that too."""
        await self._history.close()
        if self._owns_team:
            await self._team.close()

    async def _has_read_folder(self) -> bool:
        """Return whether an agent has called a tool for folders in the last turn."""
        last = await self._last_turn()
        events = [] if last is None else await self._store.read_turn_events(self.id, last.turn)
        return any(isinstance(event, ev.ToolCalled) and event.name in FILE_TOOLS for event in events)

    async def complete(self, result: TurnResult) -> TurnResult:
        """Return the result of a turn that has ended now, with what earlier runs of it have stored."""
        with suppress(StoreError):  # it has been reported
            return await complete_result(self._store, self.id, result)
        return result

    async def _last_turn(self) -> TurnRecord | None:
        return None if self._record is None else await self._store.get_last_turn(self.id)

    @asynccontextmanager
    async def _create_if_new(self) -> AsyncGenerator[None, None]:
        """Store a new session for the block; remove it when the store fails before anything of the block is stored."""
        is_new = self._record is None
        if is_new:
            self._record = await self._create()
        try:
            yield
        except StoreError:
            if is_new:
                await self._remove_empty()
            raise

    async def _create(self) -> SessionRecord:
        """Store a new session. An id from the clock that is taken gets a random suffix."""
        base = self._new_id or name_by_clock()
        models = dict.fromkeys(agent.backend.model or agent.backend.type for agent in self._config.agents)
        created_at, suffix = now(), ""
        while True:
            record = SessionRecord(
                session_id=base + suffix,
                user_id=self._owner.user_id,
                model=", ".join(models),
                config_path=self._config.path,
                memory_group=memory_group(self._config, self._owner),
                project=self._project,
                created_at=created_at,
                updated_at=created_at,
            )
            try:
                await self._store.create_session(record)
            except SessionExistsError:
                existing = await self._store.get_session(base) if self._new_id else None
                if existing is not None and existing.owner == self._owner:
                    return existing  # another request of the same owner was faster
                suffix = f"_{secrets.token_hex(2)}"
            else:
                return record

    async def _remove_empty(self) -> None:
        """Remove the session when it has no message. A store that refuses this, too, leaves it as it is."""
        with suppress(MassmemError):
            async with hold_lease(self._store, self._team.process, self.id):
                record = await self._store.get_session(self.id)
                if record is None or record.message_count:
                    return
                await self._store.delete_session(self.id, 1)
            if self._owner == COMMAND_LINE_USER:
                await asyncio.to_thread(Registry(self._team.home).remove, self.id)
            self._record = None

    def _equip(self, team: Team) -> tuple[tuple[AgentConfig, ...], History]:
        """Return the team's agents for this session's owner, and what they are shown of it."""
        owner, most = self._owner, team.config.files.max_size
        agents = _instruct(restrict_to_owner(team.agents, owner), self._instructions)
        return agents, History(team.store, team.memory, agents, team.windows, owner=owner, max_attached=most)

    def _create_runner(self, lease: Lease) -> TurnRunner:
        team, history = self._team, self._history
        self._runner = TurnRunner(team, self._agents, history, lease, self._stop, self._equip)
        self._runner.seed = self.seed
        self._runner.remembers_question = self.remembers_questions
        return self._runner

    @asynccontextmanager
    async def _hold_lease(self) -> AsyncGenerator[Lease, None]:
        """Hold the session's lease within the block: nobody else runs turns of it."""
        lease = Lease(self._store, self._team.process, self.id, self._stop.requested.set)
        try:
            await lease.acquire(self.wait)
            record = await require_session(self._store, self.id)  # it may have been deleted since it was opened
            if self._owner not in (record.owner, COMMAND_LINE_USER):
                raise UnknownSessionError("there is no such session")
            async with self._update_registry(record):
                yield lease
        finally:
            await lease.release()
            self._stop.requested.clear()  # it was for this turn; one that comes before the turn has begun holds for it

    @asynccontextmanager
    async def _update_registry(self, record: SessionRecord) -> AsyncGenerator[None, None]:
        """Keep the session's entry in the registry up to date; it lists the sessions of this machine's user.

        record: the session before the block.
        """
        if self._owner != COMMAND_LINE_USER or not self.is_durable:
            yield
            return
        # Beside the turn: with thousands of sessions the file takes longer to write than a turn should wait.
        registering = asyncio.create_task(self._register(record.model_copy(update={"status": "active"})))
        try:
            yield
        finally:
            try:
                await registering
                ended = await self._store.get_session(self.id)
                if ended is not None and ended.status != "deleting":
                    await self._register(ended)
            except (HomeError, StoreError) as e:  # the turn is in the store; the registry can be rebuilt from it
                log.warning("the list of sessions was not updated: %s", e.message)

    async def _register(self, record: SessionRecord) -> None:
        """Enter the session in the registry. Raises HomeError, StoreError."""
        await register_sessions(self._team.home, self._config.store.url, [record])


def _instruct(agents: Sequence[AgentConfig], instructions: str) -> tuple[AgentConfig, ...]:
    """Return the agents with these instructions after their own system messages."""
    if not instructions:
        return tuple(agents)
    return tuple(
        agent.model_copy(update={"system_message": f"{agent.system_message}\n\n{instructions}".lstrip()})
        for agent in agents
    )


async def _remove_turn_values(store: SessionStore, turn: TurnRecord) -> SessionState:
    """Return the session's state without the values that the user gave in the turn, and waiting for none."""
    state = await store.load_state(turn.session_id)
    events = await store.read_turn_events(turn.session_id, turn.turn)
    names = {event.param for event in events if isinstance(event, ev.ParamProvided)}
    params = {name: value for name, value in state.params.items() if name not in names}
    result = state.last_result if (state.last_result or {}).get("turn") != turn.turn else None
    changed = {"params": params, "waiting_for_param": None, "plan_execution": None, "last_result": result}
    return state.model_copy(update=changed)
