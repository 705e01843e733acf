"""Agent programs that speak the Agent Client Protocol: Claude Code, Codex, OpenCode and others, as members of a team.

A program is started once for its agent. Each request is a session of its own with the whole prompt: the log is the
truth, whatever the program remembers. Only where a prompt begins with all that a session holds, to the letter, does the
session go on: what was forgotten, edited or compressed, and what others said, makes another prompt. It works in the
folder of the question, in the mode that only reads where it has one, and its requests for permission are refused unless
the configuration allows their kind. What a program does without asking is not ours to prevent; `sandbox: bwrap` is.

The SDK's connection matches replies to requests. Its stream of messages is ours: what a program writes beside the
protocol is skipped, and one that floods is ended.
"""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from acp.connection import Connection
from acp.exceptions import RequestError

from massmem.config.home import ADDED_VARIABLES, expand_home
from massmem.config.models import BackendConfig
from massmem.config.presets import PRESETS, Abilities, Program
from massmem.core.errors import (
    AuthenticationError,
    ContentRefused,
    InputError,
    MalformedResponse,
    MassmemError,
    ModelNotFound,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
)
from massmem.core.messages import (
    ActivityChunk,
    ChatMessage,
    ChatRequest,
    Chunk,
    FinishChunk,
    FinishReason,
    NoticeChunk,
    ReasoningChunk,
    TextChunk,
    Usage,
    clean_text,
)
from massmem.core.redact import redact_line
from massmem.isolation import guard_command
from massmem.providers.base import ProviderFactory, ReadFile, Writer, encode_data, read_count, read_usage
from massmem.providers.pricing import price_of
from massmem.providers.retry import Retrier, RetryBudget, RetryPolicy

VERSION = 1
"""Of the protocol."""
_START_SECONDS, _CANCEL_SECONDS, _CLOSE_SECONDS = 60.0, 3.0, 5.0
_MAX_LINE, _MAX_TEXT, _MAX_UPDATES = 16_000_000, 4_000_000, 1_000
"""Bytes of a message; characters of a reply; updates that wait to be read."""
_MAX_IDLE = 20
"""Idle sessions of a program that may go on."""
_LAST_WORDS = 2_000
"""Bytes of what a program wrote to stderr last."""
_LOGIN_NEEDED = -32_000
"""The error of an agent that nobody has logged in."""

_ALLOWED = ("read", "search")

_READING_MODES = ("read-only", "plan", "ask", "chat")
"""Names of modes in which programs change nothing, the best first; some are the end of an address, behind a #."""
_WRITING_MODES = ("default", "build", "agent", "approve", "smart_approve", "code", "auto")
"""Of modes in which they change files, and ask before; in Codex's `auto`, before they leave the folder."""
_VERBS = {
    "read": "reads", "search": "searches", "fetch": "fetches", "execute": "runs", "think": "thinks about",
    "edit": "edits", "delete": "deletes", "move": "moves",
}  # fmt: skip
_FINISH: Mapping[str, FinishReason] = {"end_turn": "stop", "max_tokens": "length", "max_turn_requests": "length"}

_ROLES = {"user": "The user", "assistant": "You", "system": "Instructions", "tool": "A tool"}
_AS_TEXT = "Answer in the text of your reply. Change no files and run nothing that changes anything."
_AS_JSON = "Your whole reply is one JSON value that fits this JSON Schema, without anything before or after it:"

Json = dict[str, Any]
_Files = tuple[ReadFile | None, Writer | None]


class AcpFactory(ProviderFactory):
    """Opens agent programs, one process for each agent."""

    def __init__(self, read_file: ReadFile | None = None, writer: Writer | None = None) -> None:
        """read_file: None: programs read by themselves, without our rules for secrets. writer: of their folder, which
        they may change; None: they may not."""
        self._files: _Files = read_file, writer
        self._programs: list[AcpProvider] = []

    def open(self, backend: BackendConfig) -> "AcpProvider":
        """Return a provider for one agent; the first request starts its program.

        Raises InputError: the program, or bubblewrap, is not installed.
        """
        program = PRESETS[backend.type].program or Program()
        command = backend.command or program.command
        for name, hint in (
            (command[0], program.install),
            (backend.sandbox, "install bubblewrap, or leave out sandbox"),
        ):
            if name and shutil.which(name) is None:
                raise InputError(f"{backend.type}: there is no program {name}", hint)
        self._programs.append(AcpProvider(backend, program, command, self._files))
        return self._programs[-1]

    async def close(self) -> None:
        """End all programs."""
        programs, self._programs = self._programs, []
        await asyncio.gather(*(program.close() for program in programs))


async def try_program(backend: BackendConfig, *, starts: bool = True) -> str:
    """Open a session without asking anything, and say how far that holds; or, unless `starts`, look for the program.

    Raises MassmemError.
    """
    factory = AcpFactory()
    try:
        provider = factory.open(backend)
        return await provider.check() if starts else "is installed, not started (--offline)"
    finally:
        await factory.close()


class AcpProvider:
    """One agent's program."""

    def __init__(self, backend: BackendConfig, program: Program, command: Sequence[str], files: _Files) -> None:
        self.price = price_of(backend, os.environ)
        self._backend, self._program, self._command, self._files = backend, program, command, files
        self._link: _Link | None = None
        self._starting = asyncio.Lock()
        # What a program did before it failed would be done twice.
        self._retrier = Retrier(replace(RetryPolicy.of(backend), max_retries=0), RetryBudget(), self.price)

    @property
    def abilities(self) -> Abilities:
        """A program says when it starts whether it takes pictures, and never whether its model sees them."""
        takes_none = self._link is not None and not self._link.takes.get("image", False)
        vision = False if takes_none else self._backend.vision
        return replace(PRESETS[self._backend.type].abilities, vision=vision)

    async def prepare(self) -> AsyncGenerator[ActivityChunk, None]:
        if self._link is None or self._link.is_broken:
            yield ActivityChunk("loading", what="starts")
            await self._connect()

    async def check(self) -> str:
        """Open a session without asking anything; say how far it holds. Raises ProviderError."""
        _, notice = await (await self._connect()).create_session()
        return notice or "starts, is logged in, and changes nothing"

    def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        return self._retrier.stream(lambda: self._attempt(request), request.deadline)

    async def count_prompt(self, request: ChatRequest) -> int | None:
        return None

    async def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _connect(self) -> "_Link":
        async with self._starting:
            if self._link is None or self._link.is_broken:
                await self.close()
                link = _Link(self._backend, self._program, self._files)
                try:
                    await link.open(self._command)
                except BaseException:
                    await link.close()
                    raise
                self._link = link
            return self._link

    async def _attempt(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        link = await self._connect()
        reply, text = _Reply(self._backend, link.folder), ""
        session, known = link.take_session(request.messages)
        if not session:
            session, notice = await link.create_session()
            if notice:
                yield NoticeChunk(notice)
        blocks, left_out = write_blocks(replace(request, messages=request.messages[known:]), link.takes)
        if left_out:
            yield NoticeChunk(f"it takes no such files, and answers without them: {', '.join(left_out)}")
        async with aclosing(link.prompt(session, blocks)) as updates:
            async for update in updates:
                for chunk in reply.feed(update):
                    text += chunk.text if isinstance(chunk, TextChunk) else ""
                    yield chunk
        finish = reply.finish(link.explain_end)
        link.keep_session(session, (*request.messages, ChatMessage("assistant", text)))
        yield finish


class _Link:
    """A running program and the connection to it."""

    def __init__(self, backend: BackendConfig, program: Program, files: _Files) -> None:
        self.is_broken = False
        self.takes: Json = {}
        """What a prompt may hold beside text."""
        self._backend, self._program, (self._read_file, self._writer) = backend, program, files
        self._sessions: dict[str, asyncio.Queue[Json]] = {}
        self._idle: dict[str, list[object]] = {}
        """What idle sessions hold."""
        self._last_words = b""
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._connection: Connection | None = None
        self._reading: asyncio.Task[None] | None = None
        self._has_warned = False

    async def open(self, command: Sequence[str]) -> None:
        """Start the program and agree on the protocol. Raises ProviderError."""
        if not self._backend.folder:
            self._scratch = tempfile.TemporaryDirectory(prefix="massmem-")
        self.folder = str(expand_home(self._backend.folder or cast("Any", self._scratch).name).resolve())
        if self._backend.sandbox:
            command = build_sandbox(command, self.folder, self._program, may_write=self._writer is not None)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        # With a key of massmem's a program would bill that, and not the subscription that it is logged in with.
        own = {name: value for name, value in os.environ.items() if name not in ADDED_VARIABLES}
        environment = {**own, **(self._program.environment if self._writer is None else self._program.asks)}
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *guard_command(command), cwd=self.folder, env=environment, limit=_MAX_LINE,
                start_new_session=True, umask=-1 if self._writer is None else 0o022, **pipes,
            )  # fmt: skip
        except OSError as e:
            raise ProviderConnectionError(f"{self._backend.type} does not start: {e.strerror}") from e
        self._reading = asyncio.create_task(self._read_stderr(process))
        self._connection = Connection(self._answer, Messages(process.stdout, process.stdin, self._sessions))
        can_read = self._read_file is not None and bool(self._backend.folder)
        abilities = {"fs": {"readTextFile": can_read, "writeTextFile": self._writer is not None}, "terminal": False}
        about = {"name": "massmem", "version": "1"}
        hello = {"protocolVersion": VERSION, "clientCapabilities": abilities, "clientInfo": about}
        reply = await self._ask("initialize", hello)
        version = reply.get("protocolVersion")
        self.takes = get_object(get_object(reply, "agentCapabilities"), "promptCapabilities")
        if version != VERSION:
            raise MalformedResponse(
                f"{self._backend.type} speaks version {version!r:.20} of the protocol, not {VERSION}"
            )

    def take_session(self, messages: Sequence[ChatMessage]) -> tuple[str, int]:
        """Return a session that holds the first of these messages and no others, and how many; "", 0: there is none."""
        words = _list_words(messages)
        for session, held in self._idle.items():
            if len(held) < len(words) and words[: len(held)] == held:
                del self._idle[session]
                return session, len(held)
        return "", 0

    def keep_session(self, session: str, messages: Sequence[ChatMessage]) -> None:
        """Keep a session for a prompt that begins with these messages."""
        self._idle[session] = _list_words(messages)
        if len(self._idle) > _MAX_IDLE:
            del self._idle[next(iter(self._idle))]

    async def create_session(self) -> tuple[str, str]:
        """Return a new session in the mode that only reads, and what the user should know of it, once."""
        reply = await self._ask("session/new", {"cwd": self.folder, "mcpServers": []})
        session = reply.get("sessionId")
        if not isinstance(session, str):
            raise MalformedResponse(f"{self._backend.type} has opened no session")
        if self._backend.model:
            models = [str(model.get("modelId")) for model in list_objects(reply.get("models"), "availableModels")]
            if not await self._set(session, reply, "model", [self._backend.model], models):
                raise ModelNotFound(
                    f"{self._backend.type} has no model {self._backend.model}", "leave out backend.model"
                )
        modes = [str(mode.get("id")) for mode in list_objects(reply.get("modes"), "availableModes")]
        if self._writer is not None:
            await self._set(session, reply, "mode", _WRITING_MODES, modes)
            return session, ""
        # What its environment holds needs no mode, in which it would only write plans.
        holds = self._program.environment or await self._set(session, reply, "mode", _READING_MODES, modes)
        notice = "" if holds or self._has_warned or self._backend.sandbox else (
            "it has no mode that only reads: what it does without asking, massmem cannot prevent (sandbox: bwrap can)"
        )  # fmt: skip
        self._has_warned = True
        return session, notice

    async def _set(self, session: str, reply: Json, name: str, choices: Sequence[str], listed: Sequence[str]) -> bool:
        """Set the first of these values that the agent has, of its model or mode; return whether it has one.

        Newer agents list both among their options, older ones by themselves.
        """
        for option in list_objects(reply, "configOptions"):
            if option.get("category", option.get("id")) == name:
                groups = list_objects(option, "options")
                values = [str(o.get("value")) for group in groups for o in (group, *list_objects(group, "options"))]
                if value := find_value(choices, values):
                    option_id = option.get("id", name)
                    change = {"sessionId": session, "configId": option_id, "value": value}
                    await self._ask("session/set_config_option", change)
                    return True
        if value := find_value(choices, listed):
            await self._ask(f"session/set_{name}", {"sessionId": session, f"{name}Id": value})
        return bool(value)

    async def prompt(self, session: str, blocks: Sequence[Json]) -> AsyncGenerator[Json, None]:
        """Yield the updates of one request, and the reply to it last. Closing the generator tells the agent to stop."""
        updates = self._sessions[session] = asyncio.Queue()
        asking = asyncio.create_task(
            self._ask("session/prompt", {"sessionId": session, "prompt": blocks}, seconds=None)
        )
        asking.add_done_callback(lambda _: updates.put_nowait({}))
        try:
            while True:
                async with asyncio.timeout(self._backend.timeout):
                    update = await updates.get()
                if not update and asking.done():
                    break
                yield update
            yield {"sessionUpdate": "end", **await asking}
        except TimeoutError as e:
            raise ProviderTimeout(f"{self._backend.type}: nothing came for {self._backend.timeout:g} s") from e
        finally:
            if not asking.done():
                await self._cancel(session, asking)
            del self._sessions[session]

    async def close(self) -> None:
        """End the program with all that it has started."""
        self.is_broken = True
        if self._connection is not None:
            await self._connection.close()
        if self._process is not None and self._process.stdin is not None and self._process.stdout is not None:
            self._process.stdin.close()  # the guard ends the group within a second
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    while await self._process.stdout.read(_MAX_LINE):
                        pass
                    await self._process.wait()
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=1)  # to the end of the pipe, which closes it
            self._reading.cancel()
        if self._scratch is not None:
            with suppress(OSError):
                self._scratch.cleanup()

    def explain_end(self) -> str:
        """Return the last line that the program wrote to stderr."""
        lines = [line for line in self._last_words.decode("utf-8", "replace").splitlines() if line.strip()]
        return f": {redact_line(lines[-1], 300)}" if lines else ""

    async def _cancel(self, session: str, asking: "asyncio.Task[Json]") -> None:
        """Tell the agent to stop; end the program of one that goes on."""
        with suppress(ConnectionError, OSError):
            await cast("Connection", self._connection).send_notification("session/cancel", {"sessionId": session})
        await asyncio.wait({asking}, timeout=_CANCEL_SECONDS)
        if not asking.done():
            asking.cancel()
            await self.close()
        with suppress(asyncio.CancelledError, ProviderError):
            await asking

    async def _ask(self, method: str, params: Json, seconds: float | None = _START_SECONDS) -> Json:
        """Return the result of a request. Raises ProviderError."""
        name, connection = self._backend.type, self._connection
        assert connection is not None
        try:
            async with asyncio.timeout(seconds):
                reply = await connection.send_request(method, params)
            return cast("Json", reply) if isinstance(reply, dict) else {}
        except TimeoutError as e:
            raise ProviderTimeout(f"{name} did not answer within {seconds:g} s{self.explain_end()}") from e
        except RequestError as e:
            message = f"{name}: {redact_line(str(e), 300)}"
            if e.code == _LOGIN_NEEDED:
                raise AuthenticationError(message, f"log in with its own program: {self._program.login}") from e
            raise ProviderError(message, f"try it by hand: {self._program.login}") from e
        except (ConnectionError, OSError) as e:
            self.is_broken = True
            await asyncio.sleep(0.1)  # its last words may come behind
            raise ProviderConnectionError(f"{name} has ended{self.explain_end()}") from e

    async def _answer(self, method: str, params: Any, is_notification: bool) -> Json:
        """Take an update, or answer what the agent asks. Raises RequestError: it is refused."""
        params = cast("Json", params) if isinstance(params, dict) else {}
        session = params.get("sessionId")
        updates = self._sessions.get(session) if isinstance(session, str) else None
        match method:
            case "session/update" if updates is not None and isinstance(params.get("update"), dict):
                updates.put_nowait(params["update"])
            case "session/request_permission" if not is_notification:
                return self._decide(params, updates)
            case "fs/read_text_file" if self._read_file is not None and self._backend.folder:
                first, most = params.get("line"), params.get("limit")
                try:
                    text = await self._read_file(
                        self.folder, str(params.get("path")), read_count(first) or 1, read_count(most)
                    )
                except MassmemError as e:
                    raise RequestError.invalid_params({"details": e.message}) from e
                return {"content": text}
            case "fs/write_text_file" if self._writer is not None and not is_notification:
                try:
                    self._writer.write(str(params.get("path")), str(params.get("content")))
                except (OSError, ValueError, RuntimeError) as e:
                    raise RequestError.invalid_params({"details": str(e)}) from e
            case _ if not is_notification:
                raise RequestError.method_not_found(str(method))
            case _:
                pass
        return {}

    def _decide(self, params: Json, updates: "asyncio.Queue[Json] | None") -> Json:
        """Return the answer to a request for permission: no, unless the configuration allows its kind."""
        call = params.get("toolCall")
        call = cast("Json", call) if isinstance(call, dict) else {}
        kind, kinds = call.get("kind"), _ALLOWED if self._backend.allow is None else self._backend.allow
        is_named = kind in kinds if self._writer is None or kind == "fetch" else self._writer.allows(call)
        allowed = updates is not None and is_named
        if updates is not None:
            updates.put_nowait({**call, "sessionUpdate": "tool_call" if allowed else "refused", "status": "decided"})
        kind = "allow_once" if allowed else "reject_once"
        option = next((o.get("optionId") for o in list_objects(params, "options") if o.get("kind") == kind), None)
        outcome = {"outcome": "cancelled"} if option is None else {"outcome": "selected", "optionId": option}
        return {"outcome": outcome}

    async def _read_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while data := await process.stderr.read(65_536):
            self._last_words = (self._last_words + data)[-_LAST_WORDS:]


class Messages:
    """The messages of a program, a line each; the SDK's connection reads and writes them here."""

    def __init__(self, source: Any, sink: Any, sessions: Mapping[str, "asyncio.Queue[Json]"]) -> None:
        """source, sink: a StreamReader and a StreamWriter. sessions: updates that wait to be read."""
        self._in, self._out, self._sessions = source, sink, sessions

    async def send(self, message: Json) -> None:
        self._out.write(json.dumps(message).encode() + b"\n")
        await self._out.drain()

    async def receive(self) -> Json | None:
        """Return the next message; None: the program has ended, or writes a line without end."""
        while True:
            if sum(queue.qsize() for queue in self._sessions.values()) > _MAX_UPDATES:
                await asyncio.sleep(0.01)  # who reads them goes on; the program waits once its pipe is full
            try:
                line = await self._read_line()
            except (ValueError, OSError):
                return None
            if not line:
                return None
            with suppress(ValueError, RecursionError):
                message: object = json.loads(line)
                if isinstance(message, dict) and isinstance(cast("Json", message).get("id"), int | str | None):
                    return cast("Json", message)

    async def close(self) -> None:
        self._out.close()

    async def _read_line(self) -> bytes | bytearray:
        """Return the next line; b"": there is none. Raises ValueError: it does not end."""
        return await self._in.readline()


class _Reply:
    """What a program has said to one request."""

    def __init__(self, backend: BackendConfig, folder: str) -> None:
        self._backend, self._folder = backend, folder
        self._length = 0
        self._shown: set[str] = set()
        self._counts: Json = {}
        self._end = ""
        self._refused = ""

    def feed(self, update: Json) -> list[Chunk]:
        self._take_counts(update)
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                return self._write(update, TextChunk)
            case "agent_thought_chunk":
                return self._write(update, ReasoningChunk)
            case "tool_call" | "tool_call_update":
                return self._show_call(update)
            case "refused":
                self._refused = describe_call(update, self._folder)
                return [ActivityChunk("working", what=f"may not: {self._refused}")]
            case "end":
                self._end = str(update.get("stopReason"))
            case _:
                pass
        return []

    def finish(self, explain_end: Callable[[], str]) -> FinishChunk:
        """Return the last chunk. Raises ProviderError: nothing was said."""
        name = self._backend.type
        if self._end in ("refusal", "cancelled"):
            raise ContentRefused(f"{name} has refused" if self._end == "refusal" else f"{name} has stopped")
        if not self._length:
            why = f"; it was not allowed what it wanted to do: {self._refused}" if self._refused else explain_end()
            raise MalformedResponse(f"{name} has said nothing{why}")
        prompt, written = self._counts.get("inputTokens"), self._counts.get("outputTokens")
        counts = {
            "prompt_tokens": read_count(prompt) or 0,
            "completion_tokens": read_count(written) or 0,
            "cached_tokens": read_count(self._counts.get("cachedReadTokens")) or 0,
            "reasoning_tokens": read_count(self._counts.get("thoughtTokens")) or 0,
        }
        usage = read_usage(counts, Usage()) if any(counts.values()) else Usage(reported=False)
        return FinishChunk(_FINISH.get(self._end, "unknown"), usage)

    def _write(self, update: Json, kind: type[TextChunk] | type[ReasoningChunk]) -> list[Chunk]:
        content = update.get("content")
        text = cast("Json", content).get("text") if isinstance(content, dict) else None
        if not isinstance(text, str) or not text:
            return []
        self._length += len(text) if kind is TextChunk else 0
        if self._length > _MAX_TEXT:
            raise MalformedResponse(f"{self._backend.type}: the reply has more than {_MAX_TEXT:,} characters")
        return [kind(clean_text(text))]

    def _show_call(self, update: Json) -> list[Chunk]:
        """Show a call once it says what it is about."""
        call_id, what = str(update.get("toolCallId")), describe_call(update, self._folder)
        is_named = bool(update.get("locations") or update.get("rawInput")) and update.get("status") != "pending"
        if call_id in self._shown or not is_named:
            return []
        self._shown.add(call_id)
        return [ActivityChunk("working", what=what)]

    def _take_counts(self, update: Json) -> None:
        """Take the tokens of the whole reply, or add those of one of the program's own requests."""
        for name, value in get_object(get_object(update, "_meta"), "usage").items():
            self._counts[name] = (read_count(self._counts.get(name)) or 0) + (read_count(value) or 0)
        self._counts = get_object(update, "usage") or self._counts


def write_prompt(request: ChatRequest) -> str:
    """Return the messages of a request as one text, and how to reply."""
    system = [message.content for message in request.messages if message.role == "system"]
    rest = [message for message in request.messages if message.role != "system"]
    parts = [*system, *(f"{_ROLES[message.role]}:\n{message.content}" for message in rest[:-1])]
    parts += [message.content for message in rest[-1:]]
    if request.purpose != "carry_out":
        parts.append(_AS_TEXT)
    if request.schema is not None:
        parts.append(f"{_AS_JSON}\n{json.dumps(request.schema, ensure_ascii=False)}")
    return clean_text("\n\n".join(parts))


def write_blocks(request: ChatRequest, takes: Json) -> tuple[list[Json], list[str]]:
    """Return the prompt with its files, and the names of those that a program does not take."""
    blocks: list[Json] = [{"type": "text", "text": write_prompt(request)}]
    left_out: list[str] = []
    for one in {a.file.hash: a for message in request.messages for a in message.attachments}.values():
        kind, data = {"mimeType": one.file.media_type}, encode_data(one)
        if one.file.media_type.startswith("image/") and takes.get("image"):
            blocks.append({"type": "image", "data": data, **kind})
        elif not one.file.media_type.startswith("image/") and takes.get("embeddedContext"):
            uri = f"attachment:///{quote(one.file.name)}"
            blocks.append({"type": "resource", "resource": {"uri": uri, "blob": data, **kind}})
        else:
            left_out.append(one.file.name)
    return blocks, left_out


def describe_call(call: Json, folder: str) -> str:
    """Return what an agent's call of a tool does, such as `reads src/main.py`."""
    raw, places = call.get("rawInput"), list_objects(call, "locations")
    command = cast("Json", raw).get("command") if isinstance(raw, dict) else None
    what = command or next((place.get("path") for place in places), "") or call.get("title") or ""
    what = str(what).removeprefix(f"{folder}/")
    return redact_line(f"{_VERBS.get(str(call.get('kind')), 'uses')} {what}".strip(), 200)


def _list_words(messages: Sequence[ChatMessage]) -> list[object]:
    """Return what a program has read or written, to compare it."""
    return [(one.role, one.content.strip(), one.attachments) for one in messages]


def get_object(place: Json, key: str) -> Json:
    """Return the object that stands under a key; an empty one: there is none."""
    value: object = place.get(key)
    return cast("Json", value) if isinstance(value, dict) else {}


def list_objects(place: object, key: str) -> list[Json]:
    """Return the objects in the list that stands under a key, as far as there are any."""
    values: object = cast("Json", place).get(key) if isinstance(place, dict) else None
    items = cast("list[object]", values) if isinstance(values, list) else []
    return [cast("Json", item) for item in items if isinstance(item, dict)]


def find_value(choices: Sequence[str], values: Sequence[str]) -> str:
    """Return the first choice that is there, by its name or by the end of its address; "": there is none."""
    ends = {value.rpartition("#")[2]: value for value in reversed(values)}
    return next((ends[name] for name in choices if name in ends), "")


def build_sandbox(command: Sequence[str], folder: str, program: Program, *, may_write: bool = False) -> list[str]:
    """Return the command of bubblewrap that lets a program read its folder (or write it), and write its settings."""
    place = Path(shutil.which(command[0]) or command[0])
    package = next((path for path in place.resolve().parents if path.name == "node_modules"), place.resolve().parent)
    system = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/run/systemd/resolve")
    visible = [*system, str(place.parent), str(package), folder]
    home = Path.home()
    own = [*(str(home / name) for name in program.folders), *([folder] if may_write else [])]
    binds = [part for path in visible for part in ("--ro-bind-try", path, path)]
    binds += [part for path in own for part in ("--bind-try", path, path)]
    base = ["bwrap", "--die-with-parent", "--unshare-pid", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    return [*base, "--tmpfs", str(home), *binds, "--chdir", folder, str(place), *command[1:]]
