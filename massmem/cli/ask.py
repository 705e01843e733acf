"""The options of a run. Only what is asked for is read here; `massmem.cli.run` does it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

import typer

from massmem.cli.commands import COMMANDS, overview
from massmem.cli.completing import session_ids
from massmem.errors import InputError


class Output(StrEnum):
    LIVE = "live"
    PLAIN = "plain"
    JSONL = "jsonl"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """One command line. question None: none was given; output None: what suits the terminal.

    limits: of a turn, by their names in `coordination`; those that were given.
    """

    question: str | None = None
    config: str | None = None
    session_id: str | None = None
    newest: bool = False
    output: Output | None = None
    limits: Mapping[str, float] = field(default_factory=dict[str, float])
    no_store: bool = False
    list_sessions: bool = False
    as_json: bool = False
    debug: bool = False
    quiet: bool = False
    strict: bool = False
    wait: bool = False


app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "allow_extra_args": True},
)


def _command_names(incomplete: str) -> Iterator[tuple[str, str]]:
    return ((name, command.summary) for name, command in COMMANDS.items() if name.startswith(incomplete))


Question = Annotated[
    str | None,
    typer.Argument(
        metavar="QUESTION",
        help="What to ask, in quotes, 1,000,000 characters at most; '-' or a pipe: read from standard input.",
        autocompletion=_command_names,
        show_default=False,
    ),
]
SessionId = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Go on with this session (id, beginning of it, or name), or finish its turn.",
        autocompletion=session_ids,
    ),
]


@app.command(epilog=overview())
def ask(
    context: typer.Context,
    question: Question = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The team, a YAML file. [default: ~/.massmem/config.yaml, else what is found]"
        ),
    ] = None,
    session_id: SessionId = None,
    newest: Annotated[bool, typer.Option("--continue", "-c", help="Go on with the session used last.")] = False,
    list_sessions: Annotated[bool, typer.Option("--list-sessions", help="List the sessions, newest first.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="--list-sessions as JSON; else --output json.")] = False,
    output: Annotated[
        Output | None,
        typer.Option(
            metavar="MODE",
            help="live, plain, jsonl or json. live and plain show progress on stderr and the answer on stdout; jsonl "
            "streams every event, json prints one object at the end. [default: live on a terminal, else plain]",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 when any agent failed.")] = False,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time limit of a turn.")] = None,
    max_cost: Annotated[float | None, typer.Option(metavar="USD", help="Most that a turn may cost.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Most tokens of a turn, of prompts and replies.")
    ] = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Write nothing to disk and remember nothing.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for another process that runs a turn of the session.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Write a log to .massmem/massmem_logs/.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> RunOptions:
    """A council of agents answers a question together, and remembers.

    The answer goes to stdout, everything else to stderr.
    """
    if version:
        _show_version()
    limits = _limits(timeout, max_cost, max_tokens)
    if no_store and (debug or newest or session_id is not None):
        other = "--debug" if debug else "--continue" if newest else "--session-id"
        raise InputError(f"--no-store and {other} exclude each other", "leave one of them out")
    if as_json and not list_sessions:
        output = output or Output.JSON
    if newest and session_id is not None:
        raise InputError("--continue and --session-id exclude each other", "leave one of them out")
    if context.args:
        raise _loose_words([question or "", *context.args])
    return RunOptions(
        question, config, session_id, newest, output, limits, no_store, list_sessions, as_json, debug, quiet, strict,
        wait,
    )  # fmt: skip


def _limits(timeout: float | None, max_cost: float | None, max_tokens: int | None) -> dict[str, float]:
    """What was given, by its name in `coordination`. Raises InputError."""
    given = {"timeout": timeout, "max_cost": max_cost, "max_tokens": max_tokens}
    units = {"timeout": "a number of seconds", "max_cost": "an amount of dollars", "max_tokens": "a number of tokens"}
    limits = {name: value for name, value in given.items() if value is not None}
    for name, value in limits.items():
        if not 0 < value < math.inf:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} {value:g} is not {units[name]} above 0", "leave it out for no limit here")
    return limits


def _show_version() -> None:
    from massmem import __version__

    typer.echo(f"massmem {__version__}")
    raise typer.Exit


def _loose_words(words: list[str]) -> InputError:
    return InputError(
        f"the question must be one argument, but {len(words)} were given",
        f'put it in quotes: massmem "{" ".join(words)}"',
    )
