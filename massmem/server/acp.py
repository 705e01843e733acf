"""massmem as an agent of editors, which start it: the Agent Client Protocol on stdin and stdout.

A session of an editor is a conversation of this machine's user; its agents read the editor's folder. The SDK knows the
forms of requests; what is shown, and how long messages may be, is ours.
"""

import asyncio
import logging
import secrets
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, redirect_stdout, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO, cast
from urllib.parse import unquote, urlsplit

from acp import schema
from acp.agent.router import build_agent_router
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.stdio import stdio_streams
from pydantic import ValidationError

from massmem.config.models import FolderConfig, TeamConfig
from massmem.config.projects import find_project
from massmem.core import events as ev
from massmem.core.calls import describe_call, parse_object, split_arguments
from massmem.core.citations import write_notes
from massmem.core.errors import InputError, MassmemError, UnknownSessionError
from massmem.core.ids import name_by_clock
from massmem.core.outcome import TurnEnd
from massmem.core.records import COMMAND_LINE_USER
from massmem.core.reporting import list_sections
from massmem.core.text import one_line
from massmem.providers import acp as programs
from massmem.providers.acp import Json
from massmem.render.text import (
    ABANDONED,
    describe_event,
    describe_limit,
    describe_search,
    describe_winner,
    summarize_turn,
)
from massmem.render.turn_view import TurnView
from massmem.session.session import Session
from massmem.session.sessions import Sessions
from massmem.session.team import Team
from massmem.tools.documents import File, add_document, read_document, read_files, read_picture

log = logging.getLogger(__name__)

_MAX_LINE, _MAX_QUESTION, _MAX_LISTED = 150_000_000, 1_000_000, 1_000
"""Bytes of a message; characters of a question; sessions that are looked at, and messages of one that are replayed."""
_STOP_SECONDS, _CLOSE_SECONDS = 0.8, 0.5
"""For turns to store that they are stopped; for all else to close."""
_KINDS = {"read_file": "read", "search_text": "search", "list_files": "search"}
MODES = {
    "council": "All agents answer, read each other's answers, and vote.",
    "solo": "The first agent of the team answers alone.",
    "report": "What all agents say, what is disputed, and what only one says.",
}


def _change_team(team: TeamConfig, mode: str) -> TeamConfig:
    """Return the team that answers in this mode."""
    if mode == "solo":
        return team.select_agent()
    if mode == "report" and team.coordination.presentation != "as_is":
        settings = team.coordination.model_copy(update={"presentation": "report"})
        return team.model_copy(update={"coordination": settings})
    return team


@dataclass(slots=True)
class Conversation:
    id: str
    folder: str
    project: str | None = None
    """Of a new one; None: the stored session has its own."""
    mode: str = "council"
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A prompt that comes while one is answered waits."""
    cancels: int = 0
    running: Session | None = None

    def stop(self, by: Any) -> None:
        self.cancels += 1
        if self.running is not None:
            self.running.stop(by)


class CouncilAgent:
    """What an editor can ask, by the SDK's names of its methods. They raise MassmemError."""

    def __init__(self, load: Callable[[], tuple[TeamConfig, Path]]) -> None:
        """load: returns the team and massmem's home; called again after a failure, which the user may have mended."""
        self._load = load
        self._teams: dict[tuple[str, str], Team] = {}
        """By folder and mode. The first one owns store and memory."""
        self._opening = asyncio.Lock()
        self._conversations: dict[str, Conversation] = {}
        self._prompts: set[asyncio.Task[Any]] = set()
        self._route = build_agent_router(cast("Any", self))
        self._connection: Connection

    async def serve(self, output: TextIO) -> None:
        """Answer until the editor closes its end; then stop its turns, which stay resumable, and close."""
        with redirect_stdout(output):
            reader, writer = await stdio_streams(limit=_MAX_LINE)
        self._connection = Connection(self._answer, programs.Messages(reader, writer, skips=True), listening=False)
        try:
            await self._connection.main_loop()
        finally:
            for conversation in self._conversations.values():
                conversation.stop("signal")
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await asyncio.gather(*self._prompts, return_exceptions=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._connection.close()
                    for team in reversed(self._teams.values()):
                        await team.close()

    async def initialize(self, **_: Any) -> Json:
        takes = {"image": True, "embeddedContext": True}
        abilities = {"loadSession": True, "promptCapabilities": takes, "sessionCapabilities": {"list": dict[str, Any]()}}
        about = {"name": "massmem", "title": "massmem", "version": version("massmem")}
        return {"protocolVersion": programs.VERSION, "agentCapabilities": abilities, "agentInfo": about}

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> Json:
        project = await asyncio.to_thread(find_project, Path(cwd))
        conversation = Conversation(f"{name_by_clock()}_{secrets.token_hex(3)}", cwd, project)
        return {"sessionId": conversation.id, "modes": await self._open(conversation, mcp_servers)}

    async def load_session(self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any) -> Json:
        """Replay the conversation, and go on with it."""
        team = await self._open_team(cwd, "council")
        await Sessions.of(team, COMMAND_LINE_USER).get(session_id)
        modes = await self._open(Conversation(session_id, cwd), mcp_servers)
        for message in reversed(await team.store.read_conversation(session_id, None, _MAX_LISTED)):
            speaker = "user" if message.speaker == "user" else "agent"
            await self._send(session_id, _write(message.public_text, f"{speaker}_message_chunk"))
        return {"modes": modes}

    async def list_sessions(self, cwd: str | None = None, **_: Any) -> Json:
        """List the conversations of the folder's project, the last used first."""
        home = str(Path.home())
        sessions = Sessions.of(await self._open_team(cwd or home, "council"), COMMAND_LINE_USER)
        project = None if cwd is None else await asyncio.to_thread(find_project, Path(cwd))
        listed = [sessions.publish(one) for one in (await sessions.list_conversations(_MAX_LISTED)).sessions]
        shown = [
            {"sessionId": one.session_id, "title": one.title, "updatedAt": one.updated_at.isoformat()}
            | {"cwd": cwd or one.project or home}
            for one in listed
            if project in (None, one.project)
        ]
        return {"sessions": shown}

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> None:
        """It holds from the next question on."""
        if mode_id not in MODES:
            raise InputError(f"there is no mode {mode_id!r:.50}", f"modes: {', '.join(MODES)}")
        self._find(session_id).mode = mode_id

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._find(session_id).stop("user")

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> Json:
        """Ask, and show the turn."""
        conversation, task = self._find(session_id), asyncio.current_task()
        cancels = conversation.cancels
        assert task is not None
        self._prompts.add(task)
        task.add_done_callback(self._prompts.discard)
        async with conversation.turn:
            team = await self._open_team(conversation.folder, conversation.mode)
            most = team.config.files.max_size
            text, files = await asyncio.to_thread(_read_blocks, Path(conversation.folder), prompt, most)
            documents = await read_files(files)
            for file, document in zip(files, documents, strict=True):
                text = add_document(text, file.name, document)
            if len(text) > _MAX_QUESTION:
                raise InputError(f"the question has more than {_MAX_QUESTION:,} characters", "ask about a part of it")
            shown = [attachment for document in documents for attachment in document.attachments]
            session = await Session.get_or_create(team, session_id, COMMAND_LINE_USER, project=conversation.project)
            try:
                notes = await session.wait_for_tools()
                if conversation.cancels > cancels:
                    return {"stopReason": "cancelled"}
                conversation.running, turn = session, _Turn(team.config, conversation)
                for note in notes:
                    await self._send(session_id, _write(f"{note}\n", "agent_thought_chunk"))
                async with aclosing(session.ask(text, attachments=shown)) as events:
                    async for event in events:
                        turn.view.feed(event)
                        if isinstance(event, TurnEnd):
                            turn.view.result = await session.complete(turn.view.result)
                        for update in turn.show(event):
                            await self._send(session_id, update)
            finally:
                conversation.running = None
                await session.close()
        end = turn.view.result.end
        if isinstance(end, ev.TurnFailed):
            raise RequestError(-32_603, f"{end.message}: {end.hint}" if end.hint else end.message)
        return {"stopReason": "cancelled" if end is None or isinstance(end, ev.TurnInterrupted) else "end_turn"}

    def _find(self, session_id: str) -> Conversation:
        if (conversation := self._conversations.get(session_id)) is None:
            raise UnknownSessionError(f"there is no session {session_id!r:.100}", "begin a new one, or load it first")
        return conversation

    async def _open(self, conversation: Conversation, mcp_servers: Any) -> Json:
        """Go on with a conversation from now on; return its modes."""
        await self._open_team(conversation.folder, conversation.mode)  # what is wrong with it is seen at once
        if mcp_servers:
            log.warning("the editor's MCP servers are not for the agents: name them in the configuration")
        conversation = self._conversations.setdefault(conversation.id, conversation)
        modes = [{"id": mode, "name": mode.capitalize(), "description": text} for mode, text in MODES.items()]
        return {"currentModeId": conversation.mode, "availableModes": modes}

    async def _open_team(self, folder: str, mode: str) -> Team:
        """Return the team that reads the folder, in this mode. Raises as `Team.open` and `Team.start`."""
        async with self._opening:
            if (team := self._teams.get((folder, mode))) is not None:
                return team
            config, home = await asyncio.to_thread(self._load)
            folders = (*config.files.folders, FolderConfig(path=folder))
            files = config.files.model_copy(update={"folders": folders})
            config = _change_team(config.model_copy(update={"files": files}), mode)
            first = next(iter(self._teams.values()), None)
            team = first.with_config(config) if first else await Team.open(config, home=home)
            try:
                await team.start()
            except BaseException:
                await team.close()
                raise
            self._teams[folder, mode] = team
            return team

    async def _send(self, session_id: str, update: Json) -> None:
        await self._connection.send_notification("session/update", {"sessionId": session_id, "update": update})

    async def _answer(self, method: str, params: Any, is_notification: bool) -> Any:
        """Answer a message of the editor. Raises RequestError, with what to do."""
        try:
            return await self._route(method, params, is_notification)
        except ValidationError as e:
            error = RequestError(-32_602, f"{method}: {one_line(str(e), 300)}")
        except MassmemError as e:
            code = -32_002 if isinstance(e, UnknownSessionError) else -32_602 if isinstance(e, InputError) else -32_603
            error = RequestError(code, f"{e.message}: {e.hint}" if e.hint else e.message)
        except RequestError as e:
            error = e
        if not is_notification:
            raise error
        return log.warning("%s", one_line(str(error), 300))


def _read_blocks(folder: Path, blocks: Sequence[Any], most: int) -> tuple[str, list[File]]:
    """Return the text of a prompt, and its files, most bytes of them. Raises InputError."""
    text, files = "", list[File]()
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                text += block.text
            case schema.ImageContentBlock():
                files.append(File(read_picture, f"picture {len(files) + 1}", _decode(block.data)))
            case schema.ResourceContentBlock(uri=uri) if not uri.startswith("file:"):
                text += f"{block.name} ({uri})"
            case schema.EmbeddedResourceContentBlock() | schema.ResourceContentBlock():
                name, data = _read_resource(folder.resolve(), getattr(block, "resource", block), most)
                text += f"@{name}"
                files += [] if data is None else [File(read_document, name, data)]
            case _:
                raise InputError("massmem cannot hear sound", "write what it says")
    if sum(len(file.data) for file in files) > most:
        raise InputError(f"the files are larger than {most:,} bytes together", "raise files.max_size, or attach less")
    return text, files


def _read_resource(folder: Path, resource: Any, most: int) -> tuple[str, bytes | None]:
    """Return what the agents call a file, and what it holds; None: a folder, which they read by themselves."""
    parts = urlsplit(str(resource.uri))
    path = Path(unquote(parts.path)).resolve()
    name = str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name
    name = one_line(f"{name}#{parts.fragment}" if parts.fragment else name, 300)
    match resource:
        case schema.TextResourceContents():
            return name, resource.text.encode()
        case schema.BlobResourceContents():
            return name, _decode(resource.blob)
        case _ if not path.is_relative_to(folder):
            raise InputError(f"{path} is not in {folder}", "open its folder in the editor, or paste its text")
        case _ if path.is_dir():
            return name, None
        case _:
            with suppress(OSError):
                if path.is_file() and path.stat().st_size <= most:
                    return name, path.read_bytes()
            raise InputError(f"{path} cannot be read", f"name a file of at most {most:,} bytes")


def _decode(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except ValueError as e:
        raise InputError("a file of the question is not Base64", "attach it again") from e


def _write(text: str, kind: str = "agent_message_chunk") -> Json:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


class _Turn:
    """A turn, as the updates that an editor shows."""

    def __init__(self, team: TeamConfig, conversation: Conversation) -> None:
        self.view = TurnView(max_rounds=team.coordination.max_rounds)
        self._folder, self._shows_report = Path(conversation.folder), conversation.mode == "report"
        self._is_alone, self._is_report = len(team.agents) == 1, team.coordination.presentation == "report"
        self._is_answer = False
        """The text that comes now is the answer."""
        self._written = self._decision = ""
        self._plan: list[Json] = []

    def show(self, event: ev.Event) -> Iterator[Json]:
        """Yield what the editor shows of an event, which the view has been fed."""
        match event:
            case ev.TurnStarted() | ev.TurnResumed():
                self._written, self._is_answer = "", self._is_alone
            case ev.AgentStarted(step="present"):
                self._is_answer = not self._is_report
            case ev.AnswerSubmitted(citations=citations) if citations:
                self._is_answer = False  # numbers of sources may change when the answer is whole
            case ev.WinnerDecided():
                self._decision = describe_winner(event, self.view)
            case _ if isinstance(event, TurnEnd):
                yield from map(_write, self._end(event))
            case _:
                yield from self._show_step(event)
        is_quiet = self._is_alone and not isinstance(event, ev.Notice | ev.AgentFailed | ev.TurnResumed)
        is_shown = is_quiet or isinstance(event, ev.ToolCalled | ev.ToolReturned | ev.WebSearched | TurnEnd)
        if not is_shown and (line := describe_event(event, self.view)):
            yield _write(f"{line}\n", "agent_thought_chunk")
        if (plan := [*map(self._plan_for, self.view.agents)]) != self._plan:
            self._plan = plan
            yield {"sessionUpdate": "plan", "entries": plan}

    def _plan_for(self, agent_id: str) -> Json:
        agent = self.view.agents[agent_id]
        is_busy = agent.phase in ("working", "retrying")
        status = "in_progress" if is_busy else "pending" if agent.phase == "waiting" else "completed"
        task = "writes the final answer" if is_busy and agent.step == "present" else agent.phase
        return {"content": f"{self.view.name(agent_id)}: {task}", "priority": "medium", "status": status}

    def _show_step(self, event: ev.Event) -> Iterator[Json]:
        match event:
            case ev.AgentDelta(channel="text") if self._is_answer:
                self._written += event.text
                yield _write(event.text)
            case ev.AgentDelta(channel="reasoning") if self._is_alone:
                yield _write(event.text, "agent_thought_chunk")
            case ev.ToolCalled():
                self._written = ""
                yield self._show_call(event)
            case ev.ToolReturned() if event.call_id:
                end = {"status": "failed" if event.failed else "completed"}
                yield {"sessionUpdate": "tool_call_update", "toolCallId": self._name_call(event)} | end
            case ev.AgentBusy(activity="working") | ev.WebSearched():
                what = f"is {describe_search(event.query)}" if isinstance(event, ev.WebSearched) else event.what
                title, call = f"{self.view.name(event.agent_id)} {what}", secrets.token_hex(8)
                yield {"sessionUpdate": "tool_call", "toolCallId": call, "title": title, "status": "completed"}
            case _:
                pass

    def _show_call(self, call: ev.ToolCalled) -> Json:
        kind, main = _KINDS.get(call.name, "other"), split_arguments(call.arguments)[0]
        what = describe_call(call.name, call.arguments) if kind == "other" else main
        title = f"{self.view.name(call.agent_id)} {programs.describe_call({'kind': kind, 'title': what}, '')}"
        path = (parse_object(call.arguments) or {}).get("path") if kind == "read" else None
        places = [{"path": str(self._folder / path)}] if isinstance(path, str) else []
        shown = {"sessionUpdate": "tool_call", "toolCallId": self._name_call(call), "title": title}
        return shown | {"kind": kind, "status": "in_progress", "locations": places}

    def _name_call(self, event: ev.ToolCalled | ev.ToolReturned) -> str:
        return f"{self.view.result.turn}.{event.agent_id}.{event.call_id}"

    def _end(self, end: TurnEnd) -> Iterator[str]:
        """Yield what the user reads at the end of a turn; one that has failed becomes an error."""
        match end:
            case ev.TurnCompleted():
                answer, written = end.answer.strip(), self._written.strip()
                if not answer.startswith(written):
                    yield "\n\n(The text above does not count: its attempt failed.)\n\n"
                    written = ""
                yield "\n\n".join([answer[len(written) :], *write_notes(end.citations)])
                yield "\n\n---\n" + "\n".join(self._explain(end)) + "\n\n"
            case ev.TurnWaiting():
                yield end.prompt
            case ev.TurnAbandoned():
                yield f"{ABANDONED[end.why]}\n\n"
            case ev.TurnInterrupted():
                yield "\n\nStopped; the work of the agents so far is saved: ask the same again to go on with it."
            case ev.TurnFailed():
                pass

    def _explain(self, end: ev.TurnCompleted) -> Iterator[str]:
        """Yield how they have decided, a line of Markdown each."""
        result, name = self.view.result, self.view.name
        report = result.make_report() if self._shows_report else result.report
        for section in list_sections(report, result.authors, name) if report else ():
            yield f"\n**{section.heading}**\n"
            yield from (f"- {line.strip()}" for line in section.lines)
        yield "\n**How they decided**\n" if report else ""
        agreed = result.dissent.summarize(result.agreement or "", name) if result.dissent else result.agreement
        verdict = "verdict: unsure" if result.verdict == "unsure" else ""
        lines = ["" if self._is_alone else self._decision, agreed, verdict, describe_limit(end)]
        lines += [summarize_turn(self.view, end.at), *result.notices]
        lines += [f"{name(error.agent)} failed: {error.error}" for error in result.errors if error.agent]
        yield from (f"- {one_line(line)}" for line in lines if line)
