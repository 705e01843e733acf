"""The options of `massmem` itself, options that several commands have, and shell completion.

Options are only parsed here; massmem.cli.run and massmem.cli.chat act on them.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer

from massmem import __version__
from massmem.cli.commands import ASK, COMMANDS, format_overview, load_command, load_program, make_parser
from massmem.cli.streams import notify
from massmem.config.home import RECORD_VARIABLE, make_file, massmem_home
from massmem.core.errors import InputError, MassmemError
from massmem.core.text import one_line
from massmem.session.registry import Registry

_MAX_OFFERS = 50


Shell = Literal["bash", "zsh", "fish"]

_HOW_TO_INSTALL = {
    "bash": """add this line to ~/.bashrc: eval "$(massmem completion bash)\"""",
    "zsh": """add this line to ~/.zshrc, after compinit: eval "$(massmem completion zsh)\"""",
    "fish": "run once: massmem completion fish > ~/.config/fish/completions/massmem.fish",
}

completion_app = typer.Typer(help="Print the script for shell completion.")


@completion_app.command()
def completion_command(
    shell: Annotated[Shell | None, typer.Argument(metavar="SHELL", help="bash, zsh or fish. [default: yours]")] = None,
) -> None:
    """Print the script with which a shell completes massmem's commands, options and session ids."""
    chosen = shell or _detect_shell()
    # Typer's protocol: with this variable set, a program prints its completion script.
    os.environ["_MASSMEM_COMPLETE"] = f"source_{chosen}"
    if os.isatty(1):
        notify(_HOW_TO_INSTALL[chosen])
    make_parser(load_command(ASK)).main(args=[], prog_name="massmem", standalone_mode=False)


def complete() -> int:
    """Answer a request of the shell, and return the exit code.

    The arguments of a command are completed by that command, everything else by the run command, which offers the
    names of all commands.
    """
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = line.split()  # some shells separate the words with newlines
    name = words[1] if len(words) > 2 or (len(words) == 2 and line[-1:].isspace()) else ASK
    is_command = name in COMMANDS and name != ASK
    make_parser(load_program(name) if is_command else load_command(ASK)).main(args=[], prog_name="massmem")
    return 0


def offer_commands(incomplete: str) -> Iterator[tuple[str, str]]:
    return ((name, command.summary) for name, command in COMMANDS.items() if name.startswith(incomplete))


def offer_sessions(incomplete: str) -> Iterator[tuple[str, str]]:
    """Offer the newest sessions whose ids start so, with their descriptions; none when the registry is unreadable."""
    try:
        registry = Registry(massmem_home())
        entries = registry.read_entries() if registry.path.exists() else []
    except MassmemError:
        return
    matches = [entry for entry in entries if entry.session_id.startswith(incomplete)]
    for entry in matches[:_MAX_OFFERS]:
        yield entry.session_id, one_line(entry.description, 60)


def offer_agents(context: typer.Context, incomplete: str) -> Iterator[str]:
    """Offer the agents of the configuration and `user`; none when the configuration is invalid."""
    from massmem.cli.setup import read_environment
    from massmem.config.load import load_named

    config: str | None = context.params.get("config")
    try:
        read_environment()
        team = load_named(config or None, os.environ, massmem_home()).team
    except MassmemError:
        return
    for agent_id in (*(agent.id for agent in team.agents), "user"):
        if agent_id.startswith(incomplete):
            yield agent_id


def offer_jobs(incomplete: str) -> Iterator[str]:
    from massmem.config.jobs import list_jobs
    from massmem.config.projects import find_project

    return (name for name in list_jobs(massmem_home(), find_project()) if name.startswith(incomplete))


def _detect_shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in _HOW_TO_INSTALL:
        raise InputError(f"there is no script for the shell {name!r}", "name one: massmem completion bash|zsh|fish")
    return name


Config = Annotated[str | None, typer.Option(metavar="FILE", help="The team, as for a question.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
OwnerName = Annotated[
    str | None, typer.Option("--owner", metavar="USER", help="Of this user of the HTTP service instead of yours.")
]
AllOwners = Annotated[bool, typer.Option("--all-owners", help="Yours and those of all users of the HTTP service.")]
SessionName = Annotated[
    str,
    typer.Argument(metavar="SESSION", help="Its id, the start of its id, or its name.", autocompletion=offer_sessions),
]
InSession = Annotated[
    str | None,
    typer.Option(
        metavar="SESSION", help="In this session only: id, start of the id, or name.", autocompletion=offer_sessions
    ),
]

ProjectName = Annotated[
    str | None,
    typer.Option("--project", metavar="NAME", help="In this project, by name or path. [default: the one here]"),
]
IsGlobal = Annotated[bool, typer.Option("--global", help="In no project: only what is global is recalled.")]


def read_project(name: str | None, *, is_global: bool) -> str | None:
    """Return the project that the options name: "" for none, None for the one of the working directory.

    Raises InputError: they exclude each other.
    """
    if name is not None and is_global:
        raise InputError("--project and --global exclude each other", "leave one of them out")
    if name is not None and not name.strip():
        raise InputError("the name of the project is empty", "name it, or write --global for none")
    return "" if is_global else name


MAX_TURN = 1_000_000
"""The largest number of a turn that is looked for, as in the service."""
MAX_EVENT = 2**31 - 1
"""The largest number that an event can have in the log."""
MAX_LISTED = 1_000_000
"""Most rows of a list, and the last place where one begins."""

_DURATION = re.compile(r"(\d{1,9})\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LONGEST = 100 * 366 * 86_400


def parse_duration(text: str) -> timedelta:
    """Parse `90s`, `30m`, `24h`, `7d` or `4w`, up to 100 years. Raises InputError."""
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = int(match[1]) * _SECONDS[match[2]] if match else math.inf
    if seconds > _LONGEST:
        raise InputError(f"{text[:40]!r} is not a duration", "write it as 90s, 30m, 24h, 7d or 4w")
    return timedelta(seconds=seconds)


def parse_since(text: str | None, now: datetime) -> datetime | None:
    """Parse a duration before `now`, or a date or time in ISO 8601 such as `2026-11-21`, in local time; None is None.

    Raises InputError.
    """
    if text is None:
        return None
    if _DURATION.fullmatch(text.strip().lower()):
        return now - parse_duration(text)
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError) as e:
        raise InputError(f"{text[:40]!r} is not a time", "write it as 24h, 7d, 2026-11-21 or 2026-11-21T14:30") from e


def require_positive(option: str, value: float | None, unit: str) -> None:
    """Refuse a limit that is no finite number above 0. unit: such as `an amount of dollars`. Raises InputError."""
    if value is not None and not 0 < value < math.inf:
        raise InputError(f"{option} {value:g} is not {unit} above 0", "leave it out for no limit here")


def format_time(moment: datetime) -> str:
    """Return `2026-11-21 22:53` in local time."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


Output = Literal["live", "plain", "jsonl", "json", "adr"]
Show = Literal["all", "dissent", "answer", "report"]
Shape = Literal["vote", "union", "decide", "revise"]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """One parsed command line."""

    question: str | None = None
    files: tuple[str, ...] = ()
    """As the user named them: a path would shorten `https://` to `https:/`. Texts are added to the question."""
    pictures: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """That agents may read."""
    write_folder: str | None = None
    """An agent program carries the answer out in it."""
    include: tuple[str, ...] = ()
    """Patterns of files in them that would be left out."""
    no_agents_file: bool = False
    """What a folder says of itself is not shown."""
    describe: bool = False
    """An agent that sees pictures describes them for those that do not."""
    schema: Path | None = None
    """A file with the JSON Schema that the answer has to fit."""
    config: str | None = None
    model: str | None = None
    """[TYPE/]MODEL of a single agent."""
    solo: str | None = None
    """Id of the only agent of the team that is asked; "": the first; None: all."""
    full: bool = False
    """All agents are asked, whatever `coordination.depth` says."""
    shape: Shape | None = None
    """None: as configured."""
    job: str | None = None
    """The team does this job; None: it answers a question."""
    system: str | None = None
    """Instructions for all agents."""
    session_config: str | None = None
    """The configuration that the session began with, where none is named; None: the default one."""
    session_id: str | None = None
    owner: str | None = None
    """The user of the HTTP service whose session it is; None: the user of the command line."""
    project: str | None = None
    """Name or path of the project; "": none; None: the session's, of a new one that of the working directory."""
    choose_session: bool = False
    """Let the user choose the session from a list."""
    newest: bool = False
    """Continue the session that was used last."""
    output: Output | None = None
    """None: what suits the terminal."""
    show: Show = "answer"
    """How much of the council is shown after the answer."""
    limits: Mapping[str, float] = field(default_factory=dict[str, float])
    """The limits of a turn that were given, by their names in `coordination`."""
    no_store: bool = False
    list_sessions: bool = False
    is_single: bool = False
    """Answer and end: no conversation."""
    as_json: bool = False
    debug: bool = False
    quiet: bool = False
    hides_reasoning: bool = False
    """The live view does not show what agents think."""
    strict: bool = False
    wait: bool = False


app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "allow_extra_args": True},
)

QuestionText = Annotated[
    str | None,
    typer.Argument(
        metavar="QUESTION",
        help="The question, in quotes, up to 1,000,000 characters. Text that is piped in is added to it; without a "
        "question, or with '-', it is the question.",
        autocompletion=offer_commands,
        show_default=False,
    ),
]
SessionId = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Continue this session (id, start of the id, or name), or finish its turn.",
        autocompletion=offer_sessions,
    ),
]


Files = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", metavar="FILE", help="Add the text of a file, PDF or web address. May be repeated."),
]
Pictures = Annotated[
    list[str] | None,
    typer.Option(
        "--image",
        "-i",
        metavar="FILE",
        help="Show a picture, or a PDF as it looks, to the agents. May be repeated.",
    ),
]
Folders = Annotated[
    list[str] | None,
    typer.Option("--dir", metavar="DIR", help="Let the agents read the files of a folder. May be repeated."),
]
AllowWrite = Annotated[
    str | None,
    typer.Option(
        metavar="DIR", help="Let an agent program carry the answer out in this folder, which all agents read."
    ),
]
Include = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Files that --dir leaves out otherwise: ignored by git, hidden, or with secrets. May be repeated.",
    ),
]
NoAgentsFile = Annotated[
    bool, typer.Option("--no-agents-file", help="Do not show agents the AGENTS.md or CLAUDE.md of a folder.")
]
Describe = Annotated[
    bool,
    typer.Option("--describe", help="An agent that sees pictures describes them for those that do not."),
]
Schema = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A JSON Schema: the answer is a JSON value that fits it."),
]
TeamFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="The team, a YAML file. [default: ~/.massmem/config.yaml, else a team of the models at hand]",
    ),
]
OutputMode = Annotated[
    Output | None,
    typer.Option(
        metavar="MODE",
        help="live, plain, jsonl, json or adr. live and plain show progress on stderr and the answer on stdout; jsonl "
        "streams every event, json prints one object at the end, adr the record of a decision. [default: live on a "
        "terminal, else plain]",
    ),
]
ShowMode = Annotated[
    Show,
    typer.Option(
        metavar="MODE",
        help="What stderr shows after the answer: answer (one line, where not all are known to agree), dissent (what "
        "the others answered and why) or all (every answer and vote); report: before the answer, what all say, what is "
        "disputed and what only one says.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="[TYPE/]MODEL",
        help="One agent with this model instead of the team: such as gpt-5 or ollama/qwen3:8b",
    ),
]
Solo = Annotated[
    str | None,
    typer.Option(metavar="[ID]", help="Ask one agent of the team alone: the first, or the one with this id."),
]
TurnShape = Annotated[
    Shape | None,
    typer.Option(
        metavar="SHAPE",
        help="vote, union, decide or revise. vote: one answer wins; union: the agents list items, which the others "
        "confirm or reject; decide: they score options; revise: one drafts, the others criticise, it revises. "
        "[default: as configured, else vote]",
    ),
]
JobName = Annotated[
    str | None,
    typer.Option(
        "--job",
        "-j",
        metavar="JOB",
        help="What the team does with it, such as decide, research or premortem: massmem jobs list.",
        autocompletion=offer_jobs,
    ),
]
Full = Annotated[bool, typer.Option("--full", help="Ask all agents, also where two or one would be enough.")]
System = Annotated[
    str | None, typer.Option("--system", "-s", metavar="TEXT", help="Instructions for all agents, before their own.")
]
ChooseSession = Annotated[bool, typer.Option("--resume", "-r", help="Choose a session to continue from a list.")]
IsSingle = Annotated[bool, typer.Option("--print", "-p", help="Print the answer and end; never a conversation.")]
HidesReasoning = Annotated[
    bool, typer.Option("--no-reasoning", help="Do not show what the agents think; the log has it all the same.")
]
JsonOutput = Annotated[
    bool, typer.Option("--json", help="The list of sessions as JSON; else the same as --output json.")
]
MaxTokens = Annotated[int | None, typer.Option(metavar="N", help="Token limit of a turn, for prompts and replies.")]
Debug = Annotated[bool, typer.Option("--debug", help="Write a log, and what memory does, to .massmem/massmem_logs/.")]
NewHome = Annotated[
    bool,
    typer.Option("--new-home", help="Begin anew when the database of the sessions is lost; sessions.json is moved."),
]


def start_recording(context: typer.Context, file: str | None) -> str | None:
    """Have what goes over the wire written to a file; return its name. Raises HomeError: it cannot be written."""
    if file is not None:
        path = Path(file).absolute()
        make_file(path)
        os.environ[RECORD_VARIABLE] = str(path)
        context.call_on_close(lambda: _notify_of_empty(path))
    return file


def _notify_of_empty(path: Path) -> None:
    if path.exists() and path.stat().st_size == 0:
        notify(f"{path} is empty: nothing went over the wire (a model inside massmem needs none)")


Record = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Write all requests to models and their replies to this file, without keys.",
        callback=start_recording,
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait while another process runs a turn of the session.")]


_HELP = """A council of agents answers a question together, and remembers.

The answer goes to stdout, everything else to stderr."""


@app.command(help=_HELP, epilog=format_overview())
def ask(
    context: typer.Context,
    question: QuestionText = None,
    files: Files = None,
    pictures: Pictures = None,
    folders: Folders = None,
    include: Include = None,
    allow_write: AllowWrite = None,
    no_agents_file: NoAgentsFile = False,
    describe: Describe = False,
    schema: Schema = None,
    config: TeamFile = None,
    model: Model = None,
    solo: Solo = None,
    full: Full = False,
    shape: TurnShape = None,
    job: JobName = None,
    system: System = None,
    session_id: SessionId = None,
    choose_session: ChooseSession = False,
    owner: OwnerName = None,
    project: ProjectName = None,
    is_global: IsGlobal = False,
    newest: Annotated[bool, typer.Option("--continue", "-c", help="Continue the session used last.")] = False,
    list_sessions: Annotated[bool, typer.Option("--list-sessions", help="List the sessions, newest first.")] = False,
    as_json: JsonOutput = False,
    output: OutputMode = None,
    show: ShowMode = "answer",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors and limits.")] = False,
    hides_reasoning: HidesReasoning = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 when an agent failed, nobody could vote or the answer is unsure.")
    ] = False,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time limit of a turn.")] = None,
    max_cost: Annotated[float | None, typer.Option(metavar="USD", help="Cost limit of a turn.")] = None,
    max_tokens: MaxTokens = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Write nothing to disk and remember nothing.")] = False,
    wait: Wait = False,
    is_single: IsSingle = False,
    debug: Debug = False,
    record: Record = None,
    new_home: NewHome = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> RunOptions:
    """Return what the command line asks for. Raises InputError."""
    question, solo = _read_words(question, context.args, solo, session_id)
    if version:
        typer.echo(f"massmem {__version__}")
        raise typer.Exit
    if new_home:
        Registry(massmem_home()).set_aside()
    return _refuse_contradictions(RunOptions(
        question=question, files=tuple(files or ()), pictures=tuple(pictures or ()), describe=describe, schema=schema,
        folders=tuple(folders or ()), include=tuple(include or ()), no_agents_file=no_agents_file,
        config=config, model=model, solo=solo, full=full, shape=shape, job=job, system=system, session_id=session_id,
        owner=owner, project=read_project(project, is_global=is_global), choose_session=choose_session, newest=newest,
        show=show, limits=_check_limits(timeout, max_cost, max_tokens), no_store=no_store, list_sessions=list_sessions,
        output=output or ("json" if as_json and not list_sessions else None), is_single=is_single, as_json=as_json,
        debug=debug, quiet=quiet, hides_reasoning=hides_reasoning, strict=strict, wait=wait, write_folder=allow_write,
    ))  # fmt: skip


def _read_words(
    question: str | None, more: list[str], solo: str | None, session_id: str | None
) -> tuple[str | None, str | None]:
    """Return the question and the agent that is asked alone: of two words after --solo, the first is its id.

    Raises InputError: the question is not one word of the command line, or another option stands as the session's id.
    """
    if session_id and session_id.startswith("-"):
        raise InputError(
            f"{session_id} cannot be a session id: has --session-id no value?",
            "see the ids with: massmem sessions list",
        )
    if solo == "" and question is not None and len(more) == 1:
        return more[0], question
    if more:
        words = [question or "", *more]
        raise InputError(
            f"the question must be one argument, but {len(words)} were given",
            f'put it in quotes: massmem "{" ".join(words)}"; '
            f"a command stands before its options: massmem {' '.join(words)} --config FILE",
        )
    return question, solo


def _refuse_contradictions(options: RunOptions) -> RunOptions:
    """Return the options. Raises InputError for those that exclude each other."""
    chosen = {
        "--continue": options.newest,
        "--session-id": options.session_id is not None,
        "--resume": options.choose_session,
    }
    sessions = [name for name, is_given in chosen.items() if is_given]
    if len(sessions) > 1:
        raise InputError(f"{' and '.join(sessions[:2])} exclude each other", "leave one of them out")
    if options.owner is not None and not sessions:
        raise InputError("--owner says whose session to continue", "say which: --session-id ID, or --continue")
    if options.job and options.shape:
        raise InputError("--job and --shape exclude each other", "a job has a shape: leave --shape out")
    if options.full and options.solo is not None:
        raise InputError("--full and --solo exclude each other", "leave one of them out")
    if options.write_folder is not None and options.schema is not None:
        raise InputError("--allow-write and --schema exclude each other", "a JSON value is not carried out")
    if options.include and not (options.folders or options.write_folder):
        raise InputError("--include says what of a folder is read", "name the folder: --dir DIR")
    others = ["--debug", *sessions] if options.debug else sessions
    if options.no_store and others:
        raise InputError(f"--no-store and {others[0]} exclude each other", "leave one of them out")
    return options


def _check_limits(timeout: float | None, max_cost: float | None, max_tokens: int | None) -> dict[str, float]:
    """Return the limits that were given, by their names in `coordination`. Raises InputError."""
    require_positive("--timeout", timeout, "a number of seconds")
    require_positive("--max-cost", max_cost, "an amount of dollars")
    require_positive("--max-tokens", max_tokens, "a number of tokens")
    values = {"timeout": timeout, "max_cost": max_cost, "max_tokens": max_tokens}
    return {name: value for name, value in values.items() if value is not None}
