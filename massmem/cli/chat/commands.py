"""The slash commands of interactive mode.

To add one, write an async function that takes the state and the rest of the line, and add a line to COMMANDS.
"""

import asyncio
import difflib
import re
import shutil
import textwrap
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from massmem.cli import session_view as view
from massmem.cli.chat.state import ChatState
from massmem.cli.memory import (
    change_memory,
    collect_stats,
    forget_memories,
    list_memories,
    parse_as_of,
    report_change,
)
from massmem.cli.memory_view import (
    count_memories,
    print_backlog,
    print_history,
    print_hits,
    print_memories,
    print_stats,
)
from massmem.cli.options import MAX_TURN, offer_jobs
from massmem.cli.question import UserQuestion, attach_mentioned_files
from massmem.cli.sessions import export_session
from massmem.cli.streams import write_err, write_out
from massmem.cli.terminal import copy_to_clipboard, edit_text
from massmem.config.home import expand_home
from massmem.config.presets import PRESETS
from massmem.config.projects import name_project
from massmem.config.variation import Variation, replace_model
from massmem.core.errors import InputError
from massmem.core.messages import Usage
from massmem.core.records import SessionFilter, TurnRecord
from massmem.core.text import format_dollars, one_line
from massmem.export import FORMATS
from massmem.memory.persistent import USER, Selection
from massmem.render.text import format_columns, format_tokens, format_window_share, report_context
from massmem.session.memories import View
from massmem.store.lookup import (
    read_results,
    read_turn,
    read_turns_backwards,
    read_versions,
    require_turn,
)

_SESSION_ONLY = "--session"
"""Before the text of /remember: no other conversation recalls it."""
_AS_OF = "--as-of"
"""Before the date of /memory: as if nothing had been said later."""
_MAX_MEMORIES = 10
_MAX_SESSIONS = 20
_MAX_OFFERS = 50
_ROLE_WIDTH = 60
_KEYS = """
Enter sends; Alt-Enter or Ctrl-J starts a new line. Up and Down recall earlier
lines, Ctrl-R searches them. Ctrl-C stops a turn and saves it, twice quits;
Ctrl-N during a turn answers now, with what there is; Ctrl-D quits. To ask
something that begins with /, put a space before it. @FILE in a question adds
the text of this file.
"""

_EVERYDAY_WORDS = {"exit": "/quit", "quit": "/quit", "bye": "/quit", ":q": "/quit", "help": "/help", "?": "/help"}

Run = Callable[[ChatState, str], Coroutine[Any, Any, None]]
"""Runs the command with the rest of the line."""
Complete = Callable[[ChatState, Sequence[str]], Awaitable[Sequence[str]]]
"""Returns what may follow these words."""


def _offer(*texts: str) -> Complete:
    """Return what offers these as the only word of a command."""

    async def complete(_state: ChatState, words: Sequence[str]) -> Sequence[str]:
        return () if words else texts

    return complete


_OFFER_NOTHING = _offer()


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    """Without the slash."""
    summary: str
    run: Run
    usage: str = ""
    """The words after the name."""
    complete: Complete = _OFFER_NOTHING


def translate_line(line: str) -> str:
    """Return the command that is meant by a lone `exit`, `quit`, `bye` or `help`; any other line unchanged."""
    return _EVERYDAY_WORDS.get(line.strip().lower(), line)


def find_command(name: str) -> Command:
    """Return the command with this name, or the only one whose name starts so.

    Raises InputError: there is none, or there are several; the hint names the likely ones.
    """
    if name in COMMANDS:
        return COMMANDS[name]
    matches = [command for command in COMMANDS if name and command.startswith(name)]
    if len(matches) == 1:
        return COMMANDS[matches[0]]
    near = matches or difflib.get_close_matches(name, COMMANDS, n=2)
    hint = f"did you mean {' or '.join(f'/{command}' for command in near)}?" if near else "list all with /help."
    raise InputError(f"there is no command /{name[:40]}", f"{hint} To ask it, put a space before it")


def format_help() -> str:
    """Return a line for each command, or more where the terminal is narrow."""
    left = [f"/{command.name} {command.usage}".rstrip() for command in COMMANDS.values()]
    width = max(map(len, left)) + 2
    lines = zip(left, COMMANDS.values(), strict=True)
    columns = shutil.get_terminal_size().columns
    return "".join(
        textwrap.fill(command.summary, columns, initial_indent=f"{name:<{width}}", subsequent_indent=" " * width) + "\n"
        for name, command in lines
    )


# Team


async def _show_agents(state: ChatState, _rest: str) -> None:
    meters = await state.team.windows.create_meters()
    rows: list[tuple[str, str]] = []
    for agent in state.team.agents:
        meter = meters[agent.id]
        window = f"reads {'about ' if meter.assumed else ''}{meter.window:,} tokens"
        role = one_line(agent.system_message, _ROLE_WIDTH)
        name = f"{agent.id} ({agent.name})" if agent.name else agent.id
        rows.append((name, f"{agent.backend.label}, {window}{f'  {role}' if role else ''}"))
    write_out("".join(f"{line}\n" for line in format_columns(rows)))


async def _change_model(state: ChatState, rest: str) -> None:
    agent_id, _, model = rest.partition(" ")
    if not agent_id:
        await _show_agents(state, "")
        return
    agent = state.find_agent(agent_id)
    if not model.strip():
        write_out(f"{agent.display_name}: {agent.backend.label}\n")
        return
    await state.change_backends({agent.id: replace_model(agent.backend, model.strip())})
    write_err(f"{agent.display_name} uses {state.find_agent(agent.id).backend.label} until you quit")


async def _ask_alone(state: ChatState, rest: str) -> None:
    first, _, text = rest.partition(" ")
    is_named = any(agent.id == first for agent in state.team.agents)
    config = state.team.config
    team = Variation(agent=first if is_named else config.agents[0].id).apply(config)
    await _ask_next(state, "solo", text if is_named else rest)
    state.next_team = team


async def _ask_in_full(state: ChatState, rest: str) -> None:
    await _ask_next(state, "full", rest)
    state.asks_all = True


async def _do_job(state: ChatState, rest: str) -> None:
    await state.do_job(rest, state.session.id)
    write_err(f"From now on the team does the job {rest}; /job ends that." if rest else "The team answers questions.")


async def _complete_job(_state: ChatState, words: Sequence[str]) -> Sequence[str]:
    return () if words else [*offer_jobs("")]


async def _ask_next(state: ChatState, command: str, text: str) -> None:
    if not text.strip():
        raise InputError("the question is missing", f"write it like this: /{command} Why is the sky blue?")
    state.next_question = await asyncio.to_thread(attach_mentioned_files, text.strip(), state.team.config.files)


async def _complete_agent(state: ChatState, words: Sequence[str]) -> Sequence[str]:
    return () if words else [agent.id for agent in state.team.agents]


async def _complete_model(state: ChatState, words: Sequence[str]) -> Sequence[str]:
    if len(words) != 1:
        return await _complete_agent(state, words)
    used = dict.fromkeys(f"{a.backend.type}/{a.backend.model}" for a in state.team.agents if a.backend.model)
    return [*used, *(f"{type_}/" for type_ in PRESETS if type_ != "scripted")]


# Conversation


async def _finish_turn(state: ChatState, _rest: str) -> None:
    _require_session(state)
    state.finish_next = True


async def _answer_now(state: ChatState, _rest: str) -> None:
    _require_session(state)
    state.finish_next = state.answer_now = True


async def _show_context(state: ChatState, _rest: str) -> None:
    for context in await state.session.context():
        kinds = ", ".join(f"{kind.replace('_', ' ')} {count:,}" for kind, count in context.entries.items() if count)
        fill = f"{context.tokens:,} of {context.window:,} tokens ({format_window_share(context)})"
        write_out(f"{state.find_agent(context.agent_id).display_name}: {fill}{f': {kinds}' if kinds else ''}\n")
    write_err("without the next question and the memories that it recalls")


async def _show_cost(state: ChatState, _rest: str) -> None:
    total, last = Usage(requests=0), Usage(requests=0)
    agents: dict[str, Usage] = {}
    spent: dict[str, Usage] = {}
    turns = 0
    session = await state.team.store.get_session(state.session.id) if state.session.id else None
    if session is not None:
        async with aclosing(read_results(state.team.store, session)) as results:
            async for turn in results:
                turns, last = turns + 1, turn.usage
                total += turn.usage
                spent |= {f"for {key}": usage + spent.get(f"for {key}", Usage()) for key, usage in turn.spent.items()}
                for agent in turn.agents:
                    name = one_line(agent.name, 64)
                    agents[name] = agents.get(name, Usage(requests=0)) + agent.usage
    if not turns:
        write_err("No turn yet.")
        return
    rows = [
        (name, f"{format_tokens(usage, '' if usage.reported else 'about ')}, {format_dollars(usage.cost)}")
        for name, usage in (*agents.items(), *spent.items(), ("last turn", last), ("session", total))
    ]
    write_out("".join(f"{line}\n" for line in format_columns(rows)))


async def _compact(state: ChatState, _rest: str) -> None:
    reports = await state.session.compact()
    for report in reports:
        for line in report_context(report, 0)[1:]:
            write_err(f"{state.find_agent(report.agent_id).display_name}: {line}")
    if not reports:
        write_err("Nothing to compact.")


async def _clear(state: ChatState, _rest: str) -> None:
    await state.session.clear_history()
    write_err(
        "Cleared: the agents no longer see earlier messages. The log keeps them, and memories are still recalled."
    )


async def _undo(state: ChatState, _rest: str) -> None:
    turn = await state.session.undo()
    is_queued = await state.team.store.list_due_recordings("complete", 1, state.session.id)
    memories = "its memories are deleted when the index can be written" if is_queued else "with its memories"
    write_err(f"Turn {turn.turn} is undone, {memories}: {one_line(turn.question, 80)!r}. The log keeps it.")


async def _retry(state: ChatState, rest: str) -> None:
    turn = await _get_last_turn(state)
    if turn.status == "waiting":
        raise InputError("the agents wait for your reply", "reply, or ask another question")
    if rest:
        await state.change_backends({agent.id: replace_model(agent.backend, rest) for agent in state.team.agents})
    asked = await state.session.load_question(turn.turn)
    state.next_question = UserQuestion(*asked, turn.turn if turn.status == "completed" else None)


async def _reword(state: ChatState, rest: str) -> None:
    number = _read_turn(rest) if rest else (await _get_last_turn(state)).turn
    await require_turn(state.team.store, state.session.id, number)
    question, attachments = await state.session.load_question(number)
    if text := await asyncio.to_thread(edit_text, question):
        state.next_question = UserQuestion(text, attachments, number)
    else:
        write_err("The text is empty; nothing was asked.")


async def _go_to_version(state: ChatState, rest: str) -> None:
    versions = await read_versions(state.team.store, state.session.id)
    shown = [turn async for turn in read_turns_backwards(state.team.store, state.session.id) if turn.turn in versions]
    if not shown:
        raise InputError("no turn of this conversation has several versions", "/retry and /reword make one")
    numbers = versions[shown[0].turn]
    if not rest:
        place = numbers.index(shown[0].turn) + 1
        write_err(f"You see version {place} of {len(numbers)} of a turn; go to another one with: /version N")
        return
    place = _read_turn(rest)
    if place > len(numbers):
        raise InputError(f"the turn has {len(numbers)} versions", "name one of them: /version 1")
    async with state.setup.open_sessions() as sessions:
        await sessions.choose_version(await sessions.find(state.session.id), numbers[place - 1])
    await state.resume(state.session.id)
    await show_last_turn(state)


async def _copy(state: ChatState, _rest: str) -> None:
    turn = await _get_last_turn(state)
    if turn.answer is None:
        raise InputError("the last question has no answer yet", "/continue finishes the turn")
    copy_to_clipboard(turn.answer)
    write_err(f"Copied {len(turn.answer):,} characters, if your terminal lets programs write to the clipboard.")


async def _edit(state: ChatState, rest: str) -> None:
    text = await asyncio.to_thread(edit_text, rest)
    if text:
        state.next_question = await asyncio.to_thread(attach_mentioned_files, text, state.team.config.files)
    else:
        write_err("The text is empty; nothing was asked.")


async def _get_last_turn(state: ChatState) -> TurnRecord:
    """Return the last turn of the session. Raises InputError when there is none."""
    turn = await state.team.store.get_last_turn(state.session.id) if state.session.id else None
    if turn is None:
        raise InputError("this conversation is empty", "ask something first")
    return turn


# Memory


async def _show_memory(state: ChatState, rest: str) -> None:
    match rest.split(maxsplit=2):
        case ["history", *words] if words:
            async with state.setup.open_memories() as memories:
                chains, backlog = await memories.read_history(" ".join(words), View())
            print_history(chains)
            print_backlog(backlog)
        case [option, date, words] if option == _AS_OF:
            await _search(state, words, View(as_of=parse_as_of(date)))
        case [option, *_] if option == _AS_OF:
            raise InputError(
                "the date or the words are missing", f"write it like this: /memory {_AS_OF} 2026-05-08 home"
            )
        case []:
            print_stats(replace(await collect_stats(state.setup), unavailable=""))  # the list says it
            async with state.setup.open_memories() as memories:
                newest, _ = await memories.list(Selection(), _MAX_MEMORIES)
            print_memories(newest, state.session.project)
        case _:
            await _search(state, rest, View())


async def _search(state: ChatState, words: str, view: View) -> None:
    async with state.setup.open_memories() as memories:
        hits = await memories.search(words, view, _MAX_MEMORIES)
    print_hits(hits, hits.recalled.memories[:_MAX_MEMORIES], here=state.session.project)


async def _remember(state: ChatState, rest: str) -> None:
    option, _, text = rest.partition(" ")
    session_only = option == _SESSION_ONLY
    await state.session.remember(text if session_only else rest, session_only=session_only)
    settings = state.setup.config.memory.persistent_memory
    if settings.all_sessions and not session_only:
        project = state.session.project
        scope = f"for your conversations in {name_project(project)}" if project else "for all your conversations"
    else:
        name = None if session_only else settings.session_name
        scope = f"for the conversations of {name}" if name else "for this conversation only"
    write_err(f"Remembered ({scope}).")


async def _pin(state: ChatState, rest: str) -> None:
    name = rest.strip()
    if not name:
        raise InputError("no memory was named", "write an id as /memory shows it, or: /pin last")
    if name == "last":
        async with state.setup.open_memories() as memories:
            newest, _ = await memories.list(Selection(agent_id=USER), 1)
        if not newest:
            raise InputError("nothing of you is remembered yet", "/remember TEXT remembers a text")
        name = newest[0].id
    report_change(await change_memory(state.setup, name, "pin"), "pinned")


async def _unpin(state: ChatState, rest: str) -> None:
    report_change(await change_memory(state.setup, _require_name(rest), "unpin"), "no longer pinned")


async def _correct(state: ChatState, rest: str) -> None:
    name, _, text = rest.strip().partition(" ")
    report_change(await change_memory(state.setup, _require_name(name), "edit", text), "corrected")


def _require_name(name: str) -> str:
    if not name.strip():
        raise InputError("no memory was named", "write its id as /memory shows it")
    return name.strip()


async def _forget(state: ChatState, rest: str) -> None:
    match rest.split():
        case []:
            raise InputError("no memory was named", "name ids as /memory shows them, or: turn N")
        case ["turn", number]:
            _require_session(state)
            selection = Selection(state.session.id, turn=_read_turn(number))
        case ids:
            selection = Selection(ids=tuple(ids))
    memories = await list_memories(state.setup, selection)
    if not memories:
        write_err("No memory matches.")
        return
    reply = await state.ask(f"Forget {count_memories(len(memories))} for good? [y/N] ")
    if reply.strip().lower() not in ("y", "yes"):
        write_err("Nothing was forgotten.")
        return
    count, note = await forget_memories(state.setup, selection)
    write_err(note or f"Forgotten: {count}. The log of the session keeps its messages.")


# Sessions


async def _list_sessions(state: ChatState, rest: str) -> None:
    async with state.setup.open_sessions() as sessions:
        page = await sessions.list(SessionFilter(owner=sessions.owner, text=rest), _MAX_SESSIONS)
    if page.sessions:
        write_out(view.format_table(page.sessions), styled=True)
    else:
        write_err("No session matches." if rest else "There is no session yet.")
    if (more := page.total - len(page.sessions)) > 0:
        write_err(f"{more:,} more; find them with: /sessions TEXT")


async def _resume(state: ChatState, rest: str) -> None:
    if not rest:
        await _list_sessions(state, "")
        write_err("Continue one of them with: /resume ID or NAME")
        return
    unfinished = await state.resume(rest)
    await show_last_turn(state)
    if unfinished is not None and unfinished.status != "waiting":
        write_err("Its last turn is not finished: /continue finishes it.")


async def _fork(state: ChatState, rest: str) -> None:
    _require_session(state)
    source = state.session.id
    async with state.setup.open_sessions() as sessions:
        fork = await sessions.fork(await sessions.find(source), _read_turn(rest) if rest else None)
    await state.resume(fork.session_id)
    await show_last_turn(state)
    write_err(f"You are in the copy; the first conversation is still there: /resume {source}")


async def show_last_turn(state: ChatState) -> None:
    """Write the heading and the last turn of the session."""
    async with state.setup.open_sessions() as sessions:
        session = await sessions.find(state.session.id)
        write_out(view.format_heading(session), styled=True)
        if (last := await sessions.store.get_last_turn(session.session_id)) is not None:
            write_out(
                view.format_turn(await read_turn(sessions.store, session, last.turn), detailed=False), styled=True
            )


async def _show_turn(state: ChatState, rest: str) -> None:
    _require_session(state)
    async with state.setup.open_sessions() as sessions:
        session = await sessions.find(state.session.id)
        last = await sessions.store.get_last_turn(session.session_id)
        number = _read_turn(rest) if rest or last is None else last.turn
        turn = await read_turn(sessions.store, session, number)
    write_out(view.format_turn(turn, detailed=True), styled=True)


async def _rename(state: ChatState, rest: str) -> None:
    _require_session(state)
    if not rest:
        raise InputError("the new name is missing", "write it like this: /rename Trip to Lisbon")
    async with state.setup.open_sessions() as sessions:
        session = await sessions.rename(await sessions.find(state.session.id), rest)
    write_err(f'{session.session_id} is now called "{session.title}"')


async def _export(state: ChatState, rest: str) -> None:
    _require_session(state)
    format_ = rest if rest in FORMATS else None
    is_file = rest and format_ is None
    output = expand_home(rest) if is_file else Path(f"{state.session.id}.{FORMATS[format_ or 'markdown'].suffix}")
    await export_session(state.setup, state.session.id, format_, output, detailed=False)
    write_err(f"Written to {output}")


def _read_turn(text: str) -> int:
    """Return the number of a turn. Raises InputError."""
    if re.fullmatch(r"[1-9][0-9]{0,6}", text) is None or int(text) > MAX_TURN:
        raise InputError(f"{text[:40]!r} is not the number of a turn", "turns are counted from 1")
    return int(text)


def _require_session(state: ChatState) -> None:
    if not state.session.id:
        raise InputError("this conversation is empty", "ask something first")


async def _complete_session(state: ChatState, words: Sequence[str]) -> Sequence[str]:
    own = await state.team.store.find_sessions(SessionFilter(owner=state.setup.owner), _MAX_OFFERS)
    sessions = [listed.session for listed in own]
    return [*(s.title for s in sessions if s.title), *(s.session_id for s in sessions)]


# Program


async def _debug(state: ChatState, rest: str) -> None:
    if rest not in ("", "on", "off"):
        raise InputError(f"/debug is on or off, not {rest[:20]!r}", "write it like this: /debug on")
    await state.toggle_debug(on=rest == "on" if rest else state.debug_log is None)
    write_err(f"debug log: {state.debug_log}" if state.debug_log else "No debug log is written.")


async def _show_help(_state: ChatState, _rest: str) -> None:
    write_out(format_help() + _KEYS)


async def _quit(state: ChatState, _rest: str) -> None:
    state.is_over = True


COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command("agents", "List the agents with their models.", _show_agents),
        Command(
            "model",
            "Show or change the model of an agent, until you quit.",
            _change_model,
            "[AGENT [[TYPE/]MODEL]]",
            _complete_model,
        ),
        Command("solo", "Ask one agent alone, by default the first.", _ask_alone, "[AGENT] QUESTION", _complete_agent),
        Command("full", "Ask all agents, also where two or one would be enough.", _ask_in_full, "QUESTION"),
        Command("job", "Do a job with what you ask from now on; alone: none.", _do_job, "[JOB]", _complete_job),
        Command("continue", "Finish the turn that was stopped or failed.", _finish_turn),
        Command("now", "The same, at once: with the answers so far, or the first one.", _answer_now),
        Command("show", "Show every answer and vote of the last turn, or of turn N.", _show_turn, "[N]"),
        Command("retry", "Ask the last question again, with another model if named.", _retry, "[[TYPE/]MODEL]"),
        Command("reword", "Ask the last question, or that of turn N, in other words.", _reword, "[N]"),
        Command("version", "Show which version of a turn you see, or go to version N.", _go_to_version, "[N]"),
        Command("edit", "Write the next question in your editor.", _edit, "[TEXT]"),
        Command("copy", "Copy the last answer to the clipboard.", _copy),
        Command("context", "Show how full each agent's context window is.", _show_context),
        Command("cost", "Show tokens and dollars: per agent, last turn, session.", _show_cost),
        Command("compact", "Replace old messages by a summary in the agents' prompts.", _compact),
        Command("clear", "Hide all earlier messages from the agents.", _clear),
        Command("undo", "Undo the last turn, with its memories.", _undo),
        Command(
            "memory",
            "Show memories; with words, search them; history: values over time.",
            _show_memory,
            "[[history] WORDS]",
        ),
        Command("remember", "Remember a text word for word.", _remember, f"[{_SESSION_ONLY}] TEXT"),
        Command("correct", "Give a memory another text.", _correct, "ID TEXT"),
        Command("pin", "Show a memory with every question; last: your newest one.", _pin, "ID | last"),
        Command("unpin", "Show a memory only where it matters.", _unpin, "ID"),
        Command("forget", "Delete memories for good.", _forget, "ID... | turn N"),
        Command("sessions", "List the sessions, the last used first.", _list_sessions, "[TEXT]"),
        Command("resume", "Continue another session.", _resume, "ID | NAME", _complete_session),
        Command("fork", "Go on in a copy of this session, or of its first N turns.", _fork, "[N]"),
        Command("rename", "Name this session.", _rename, "NAME"),
        Command(
            "export", "Write this session to a file, without secrets.", _export, "[FILE | FORMAT]", _offer(*FORMATS)
        ),
        Command("debug", "Start or stop a debug log and debug files.", _debug, "[on | off]", _offer("on", "off")),
        Command("help", "Show these commands.", _show_help),
        Command("quit", "Leave; the session is saved.", _quit),
    )
}
