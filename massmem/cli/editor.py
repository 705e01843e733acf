"""massmem as an agent of editors, which start it: the Agent Client Protocol on stdin and stdout.

A session of an editor is a conversation of this machine's user; its agents read the editor's folder. The SDK knows the
forms of requests; what is shown, and how long messages may be, is ours.
"""

import asyncio
import json
import re
import secrets
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import aclosing, redirect_stdout, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO, cast
from urllib.parse import unquote

from acp.agent.router import build_agent_router
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.schema import HttpMcpServer, McpServerStdio
from acp.stdio import stdio_streams

from massmem.cli.question import UserQuestion, add_files, check_question, read_file
from massmem.cli.run import ABANDONED
from massmem.cli.setup import check_first_run, load_team, read_environment
from massmem.config.home import massmem_home
from massmem.config.jobs import read_jobs
from massmem.config.models import McpServerConfig, TeamConfig
from massmem.config.projects import find_project
from massmem.config.variation import Variation
from massmem.core import calls
from massmem.core import events as ev
from massmem.core.citations import write_notes
from massmem.core.errors import InputError, MassmemError, TurnError, UnknownSessionError
from massmem.core.ids import name_by_clock
from massmem.core.outcome import TurnEnd
from massmem.core.records import COMMAND_LINE_USER
from massmem.core.reporting import list_sections
from massmem.core.text import one_line
from massmem.providers.acp import VERSION, Json, Messages, describe_call
from massmem.render.text import describe_event, describe_limit, summarize_turn
from massmem.render.turn_view import TurnView
from massmem.session.session import Session
from massmem.session.sessions import Sessions
from massmem.session.team import Team
from massmem.session.turn_runner import StopReason
from massmem.tools.documents import File, read_document, read_picture

_MAX_LINE, _MAX_LISTED, _CLOSE_SECONDS = 150_000_000, 1_000, 1.3
"""Bytes of a message; sessions that are looked at, and messages of one that are shown again; to close at the end."""
_BUFFER, _EDGE = 1_000_000, 2_000
"""Bytes that are read at once; those at both ends of a message that is too long, where its id stands."""
_ID, _NAMES = rb'"id"\s*:\s*(\d+|"[^"\\]*")\s*', rb'"(?:jsonrpc|method)"\s*:\s*"[^"]*"\s*'
_FIRST_ID = re.compile(rb"\s*\{\s*(?:" + _NAMES + rb",\s*)*" + _ID + rb",")
_LAST_ID = re.compile(rb",\s*" + _ID + rb"(?:,\s*" + _NAMES + rb")*\}\s*$")
_BREAK = "  \n"
"""Behind a line: Markdown joins lines without it."""
_KINDS = {"read_file": "read", "search_text": "search", "list_files": "search"}
MODES = {
    "council": "The agents answer, read each other, and vote.",
    "solo": "The first agent answers alone.",
    "report": "What all say, what is disputed, what only one says.",
}


@dataclass(slots=True)
class Conversation:
    id: str
    folder: str
    project: str | None = None
    """Of a new one; None: the stored session has its own."""
    servers: tuple[McpServerConfig, ...] = ()
    """Tool servers of the editor."""
    mode: str = "council"
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A prompt that comes while one is answered waits."""
    cancels: int = 0
    running: Session | None = None
    notes: tuple[str, ...] = ()
    """To be shown with the next answer."""

    def stop(self, by: StopReason) -> None:
        self.cancels += 1
        if self.running is not None:
            self.running.stop(by)


class CouncilAgent:
    """What an editor can ask, by the SDK's names of its methods. They raise MassmemError."""

    def __init__(self, config: str | None) -> None:
        self._config = config
        self._teams: dict[tuple[str, ...], Team] = {}
        """By folder, mode, and the conversation if it has tool servers. The first one owns store and memory."""
        self._opening = asyncio.Lock()
        self._conversations: dict[str, Conversation] = {}
        self._route = build_agent_router(cast("Any", self))
        self._connection: Connection

    async def serve(self, output: TextIO) -> None:
        """Answer until the editor closes its end; then stop its turns, which stay resumable, and close."""
        with redirect_stdout(output):
            reader, writer = await stdio_streams(limit=_BUFFER)
        self._connection = Connection(self._answer, _EditorMessages(reader, writer, {}), listening=False)
        try:
            await self._connection.main_loop()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    for conversation in self._conversations.values():
                        conversation.stop("signal")
                        await conversation.turn.acquire()
                    for team in reversed(self._teams.values()):
                        await team.close()

    async def initialize(self, **_: Any) -> Json:
        takes: Json = {"image": True, "embeddedContext": True}
        abilities = {"loadSession": True, "promptCapabilities": takes, "sessionCapabilities": {"list": Json()}}
        about = {"name": "massmem", "title": "massmem", "version": version("massmem")}
        return {"protocolVersion": VERSION, "agentCapabilities": abilities, "agentInfo": about}

    async def new_session(self, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any) -> Json:
        session_id, servers = f"{name_by_clock()}_{secrets.token_hex(3)}", _read_servers(mcp_servers)
        conversation = Conversation(session_id, cwd, find_project(Path(cwd)), servers)
        return {"sessionId": conversation.id} | await self._open(conversation)

    async def load_session(self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any) -> Json:
        """Replay the conversation, and go on with it."""
        team = await self._open_team(cwd, "council")
        await Sessions.of(team, COMMAND_LINE_USER).get(session_id)
        modes = await self._open(Conversation(session_id, cwd, servers=_read_servers(mcp_servers)))
        for message in reversed(await team.store.read_conversation(session_id, None, _MAX_LISTED)):
            speaker = "user" if message.speaker == "user" else "agent"
            await self._send(session_id, _write(message.public_text, f"{speaker}_message_chunk"))
        return modes

    async def list_sessions(self, cwd: str | None = None, **_: Any) -> Json:
        """List the conversations of the folder's project, the last used first."""
        home = str(Path.home())
        project = find_project(Path(cwd)) if cwd else None
        sessions = Sessions.of(await self._open_team(cwd or home, "council"), COMMAND_LINE_USER)
        listed = [sessions.publish(one) for one in (await sessions.list_conversations(_MAX_LISTED)).sessions]
        shown = [
            {"sessionId": one.session_id, "cwd": cwd or one.project or home, "title": one.title}
            | {"updatedAt": one.updated_at.isoformat()}
            for one in listed
            if project in (None, one.project)
        ]
        return {"sessions": shown}

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> None:
        """It holds from the next question on."""
        conversation = self._find(session_id)
        if mode_id not in (modes := _find_modes(conversation.folder)[0]):
            raise InputError(f"there is no mode {mode_id!r:.50}", f"modes: {', '.join(modes)}")
        conversation.mode = mode_id

    async def set_config_option(self, config_id: str, session_id: str, value: str | bool, **_: Any) -> Json:
        """Change the mode, as newer editors do."""
        if config_id != "mode":
            raise InputError(f"there is no option {config_id!r:.50}", "options: mode")
        await self.set_session_mode(session_id, str(value))
        return _describe_modes(self._find(session_id))

    async def cancel(self, session_id: str, **_: Any) -> None:
        if conversation := self._conversations.get(session_id):
            conversation.stop("user")

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> Json:
        """Ask, and show the turn."""
        conversation = self._find(session_id)
        cancels = conversation.cancels
        async with conversation.turn:
            team = await self._open_team(conversation.folder, conversation.mode, conversation)
            question = await asyncio.to_thread(_read_question, conversation.folder, prompt, team.config)
            session = await Session.get_or_create(team, session_id, COMMAND_LINE_USER, project=conversation.project)
            try:
                notes, conversation.notes = conversation.notes, ()
                for note in (*notes, *await session.wait_for_tools()):
                    await self._send(session_id, _write(f"{note}{_BREAK}", "agent_thought_chunk"))
                if conversation.cancels > cancels:
                    return {"stopReason": "cancelled"}
                conversation.running, turn = session, _Turn(team.config, conversation.mode)
                async with aclosing(session.ask(question.text, attachments=question.attachments)) as events:
                    async for event in events:
                        turn.view.feed(event)
                        if isinstance(event, TurnEnd):
                            turn.view.result = await session.complete(turn.view.result)
                        for update in turn.show(event):
                            await self._send(session_id, update)
            finally:
                conversation.running = None
                await session.close()
        if isinstance(end := turn.view.result.end, ev.TurnFailed):
            raise TurnError(end.message, end.hint)
        return {"stopReason": "cancelled" if end is None or isinstance(end, ev.TurnInterrupted) else "end_turn"}

    def _find(self, session_id: str) -> Conversation:
        if (conversation := self._conversations.get(session_id)) is None:
            raise UnknownSessionError(f"there is no session {session_id!r:.100}", "begin a new one, or load it first")
        return conversation

    async def _open(self, conversation: Conversation) -> Json:
        """Go on with a conversation from now on; return its modes."""
        await self._open_team(conversation.folder, conversation.mode, conversation)  # what is wrong is seen at once
        conversation = self._conversations.setdefault(conversation.id, conversation)
        conversation.notes = _find_modes(conversation.folder)[1]
        return _describe_modes(conversation)

    async def _open_team(self, folder: str, mode: str, own: Conversation | None = None) -> Team:
        """Return the team that reads the folder, in this mode, with the tool servers of a conversation.

        Raises as `Team.open` and `Team.start`.
        """
        servers = own.servers if own else ()
        key = (folder, mode, own.id if own and servers else "")
        async with self._opening:
            if (team := self._teams.get(key)) is not None:
                return team
            check_first_run(self._config, None)
            read_environment()
            config, first = load_team(self._config, massmem_home()), next(iter(self._teams.values()), None)
            agents = [a.model_copy(update={"mcp_servers": (*a.mcp_servers, *servers)}) for a in config.agents]
            config = config.model_copy(update={"agents": tuple(agents)})
            changes: dict[str, Any] = {"folders": (folder,)}
            changes |= {"mode": mode} if mode in MODES else {"job": mode, "project": find_project(Path(folder))}
            config = Variation(**changes).apply(config)
            team = first.with_config(config) if first else await Team.open(config, home=massmem_home())
            try:
                await team.start()
            except BaseException:
                await team.close()
                raise
            self._teams[key] = team
            return team

    async def _send(self, session_id: str, update: Json) -> None:
        with suppress(OSError):  # the editor has gone
            await self._connection.send_notification("session/update", {"sessionId": session_id, "update": update})

    async def _answer(self, method: str, params: Any, is_notification: bool) -> Any:
        """Answer a message of the editor. Raises RequestError, with what to do."""
        try:
            return await self._route(method, params, is_notification)
        except MassmemError as e:
            code = -32_602 if isinstance(e, InputError) else -32_603
            raise RequestError(code, f"{e.message}: {e.hint}" if e.hint else e.message) from e
        except RequestError:
            if not is_notification:  # editors send some that are not for us
                raise


class _EditorMessages(Messages):
    """Refuses a message that is too long, of which it holds the ends alone."""

    async def _read_line(self) -> bytes | bytearray:
        line, length = bytearray(), 0
        while not line.endswith(b"\n"):
            try:
                part = await self._in.readuntil()
            except asyncio.LimitOverrunError as e:
                part = await self._in.readexactly(e.consumed)
            except asyncio.IncompleteReadError as e:
                return line + e.partial
            line += part
            length += len(part)
            if length > _MAX_LINE:
                del line[_EDGE:-_EDGE]
        if length > _MAX_LINE:
            number = _FIRST_ID.match(line) or _LAST_ID.search(line)
            why = f"the message has more than {_MAX_LINE // 1_000_000} MB: send smaller files with it"
            error = {"code": -32_600, "message": why}
            await self.send({"jsonrpc": "2.0", "id": number and json.loads(number[1]), "error": error})
            return b"\n"
        return line


def _find_modes(folder: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return how the team can answer about a folder, with what that is; and which jobs there are left out, and why."""
    jobs, left_out = read_jobs(massmem_home(), find_project(Path(folder)))
    return MODES | {job.name: job.config.summary for job in jobs if job.name not in MODES}, (*left_out,)


def _describe_modes(conversation: Conversation) -> Json:
    """Return the modes, as older editors and as newer ones choose them."""
    named = _find_modes(conversation.folder)[0].items()
    choices = [{"id": mode, "value": mode, "name": mode.capitalize(), "description": what} for mode, what in named]
    option = {"id": "mode", "category": "mode", "name": "Mode", "type": "select", "options": choices}
    modes = {"currentModeId": conversation.mode, "availableModes": choices}
    return {"modes": modes, "configOptions": [option | {"currentValue": conversation.mode}]}


def _read_servers(listed: Sequence[Any] | None) -> tuple[McpServerConfig, ...]:
    """Return the tool servers of an editor; those over SSE alone are left out, as the protocol allows."""
    servers: list[McpServerConfig] = []
    for one in listed or ():
        if isinstance(one, McpServerStdio):
            environment = {variable.name: variable.value for variable in one.env}
            servers.append(McpServerConfig.model_validate(
                {"name": one.name, "command": one.command, "args": one.args, "env": environment}
            ))  # fmt: skip
        elif isinstance(one, HttpMcpServer):
            headers = {header.name: header.value for header in one.headers}
            servers.append(McpServerConfig.model_validate({"name": one.name, "url": one.url, "headers": headers}))
    return tuple(servers)


def _read_question(folder: str, blocks: Sequence[Any], team: TeamConfig) -> UserQuestion:
    """Return the question of a prompt, with its files. Raises InputError."""
    root, most = Path(folder).resolve(), team.files.max_size
    parts = [_read_block(root, block, most) for block in blocks]
    # Texts behind each other are messages of their own; a link between two texts stands in a sentence.
    gaps = ["\n\n" * (one.type == two.type == "text") for one, two in pairwise(blocks)]
    text = "".join(text + gap for (text, _), gap in zip(parts, [*gaps, ""], strict=True))
    question = UserQuestion(check_question(text))
    return add_files(question, [file for _, file in parts if file is not None], most)


def _read_block(folder: Path, block: Any, most: int) -> tuple[str, File | None]:
    """Return what stands in the question for a part of a prompt, and its file; None: it has none."""
    if block.type == "text":
        return block.text, None
    if block.type == "image":
        return "", File(read_picture, "picture", b64decode(block.data))
    resource = getattr(block, "resource", block)
    place, _, lines = resource.uri.removeprefix("file://").partition("#")
    path = Path(unquote(place)).resolve()
    if block.type == "resource":  # the editor has read it
        data = b64decode(resource.blob) if hasattr(resource, "blob") else resource.text.encode()
    elif place == resource.uri:
        return f"{block.name} ({place})", None
    elif not path.is_relative_to(folder):
        raise InputError(f"{path} is not in {folder}", "open its folder in the editor, or paste its text")
    else:  # the agents read a folder by themselves
        data = b"" if path.is_dir() else read_file(path, most)
    name = one_line(str(path).removeprefix(f"{folder}/") + (lines and f"#{lines}"), 300)
    return f"@{name}", File(read_document, name, data) if data else None


def _write(text: str, kind: str = "agent_message_chunk") -> Json:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


class _Turn:
    """A turn, as the updates that an editor shows."""

    def __init__(self, team: TeamConfig, mode: str) -> None:
        self.view = TurnView(max_rounds=team.coordination.max_rounds)
        self._mode, self._is_alone = mode, len(team.agents) == 1
        self._is_report = team.coordination.presentation == "report"
        self._is_answer, self._written, self._plan = False, "", list[Json]()
        """Whether the text that comes now is the answer; what was shown of it; the plan that is shown."""

    def show(self, event: ev.Event) -> Iterator[Json]:
        """Yield what the editor shows of an event, which the view has been fed."""
        match event:
            case ev.TurnStarted() | ev.TurnResumed():
                self._written, self._is_answer = "", self._is_alone
            case ev.AgentStarted(step="present"):
                self._is_answer = not self._is_report
            case _ if isinstance(event, TurnEnd):
                yield from map(_write, self._end(event))
            case _:
                yield from self._show_step(event)
        is_shown = isinstance(event, ev.ToolCalled | ev.ToolReturned | ev.AgentBusy | TurnEnd)
        if not is_shown and (line := describe_event(event, self.view)):
            yield _write(f"{line}{_BREAK}", "agent_thought_chunk")
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
            case ev.ToolCalled(name=name, arguments=arguments):
                self._written, kind = "", _KINDS.get(name, "other")
                what = calls.describe_call(name, arguments) if kind == "other" else calls.split_arguments(arguments)[0]
                title = describe_call({"kind": kind, "title": what}, "")
                yield self._call(event, event.call_id, title, kind=kind, status="in_progress")
            case ev.ToolReturned() if event.call_id:
                status = "failed" if event.failed else "completed"
                yield self._call(event, event.call_id, status=status, sessionUpdate="tool_call_update")
            case ev.AgentBusy(activity="working", what=what):
                yield self._call(event, secrets.token_hex(8), what, status="completed")
            case _:
                pass

    def _call(self, event: Any, call_id: str, what: str = "", **more: str) -> Json:
        """Return the update of an agent's call of a tool; `what` it does, as far as that is known now."""
        title = {"title": f"{self.view.name(event.agent_id)} {what}"} if what else {}
        call = f"{self.view.result.turn}.{event.agent_id}.{call_id}"
        return {"sessionUpdate": "tool_call", "toolCallId": call} | title | more

    def _end(self, end: TurnEnd) -> Iterator[str]:
        """Yield what the user reads at the end of a turn; one that has failed becomes an error."""
        if isinstance(end, ev.TurnWaiting | ev.TurnAbandoned):
            yield end.prompt if isinstance(end, ev.TurnWaiting) else ABANDONED[end.why]
        elif isinstance(end, ev.TurnCompleted):
            answer, written = end.answer.strip(), self._written.strip()
            is_begun = answer.startswith(written)
            yield answer[len(written) :] if is_begun else f"\n\n(The text above does not count.)\n\n{answer}"
            yield "\n\n".join(["", *write_notes(end.citations), "---", *self._explain(end)])
        yield "\n\n"

    def _explain(self, end: ev.TurnCompleted) -> Iterator[str]:
        """Yield how they have decided, in paragraphs of Markdown."""
        result, name = self.view.result, self.view.name
        report = result.make_report() if self._mode == "report" else result.report
        for section in list_sections(report, result.authors, name) if report else ():
            yield "\n".join([f"**{section.heading}**", "", *(f"- {line.strip()}" for line in section.lines)])
        agreed = result.dissent.summarize(result.agreement or "", name) if result.dissent else result.agreement
        lines = [agreed, describe_limit(end), summarize_turn(self.view, end.at), *result.notices]
        lines += [f"{name(error.agent)} failed: {error.error}" for error in result.errors if error.agent]
        yield "\n".join(f"- {one_line(line)}" for line in lines if line)
