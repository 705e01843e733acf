"""The command line's entry point: finds out what is asked for, runs it, and turns every error into words and a code."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from massmem.cli.commands import ASK, COMMANDS, load
from massmem.cli.streams import discard_output, prepare_streams
from massmem.errors import InputError, MassmemError

if TYPE_CHECKING:
    import typer

EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141
_COMPLETION = "_MASSMEM_COMPLETE"
# Answered without Typer, which loads pydantic to read any option: the list is to come at once.
_LISTING = {"--list-sessions", "--json"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line, that of the process when None, and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        os.umask(0o077)  # also what libraries write, such as an index of vectors, is its owner's alone
    prepare_streams()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except MassmemError as e:
        from massmem.cli.report import report_error

        code = report_error(e, arguments)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = EXIT_CLOSED_PIPE
    except Exception as e:  # noqa: BLE001 - the last net: a bug becomes a log file and one line, not a traceback
        from massmem.cli.report import report_bug

        code = report_bug(e, arguments)
    discard_output()
    return code


def _run(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if _COMPLETION in os.environ:
        return _complete()
    if name in COMMANDS and name != ASK:
        result = _invoke(_command(name), arguments)
        return result if isinstance(result, int) else 0
    return _ask(arguments[1:], spelled_out=True) if name == ASK else _ask(arguments, spelled_out=False)


def _ask(arguments: list[str], *, spelled_out: bool) -> int:
    if "--list-sessions" in arguments and set(arguments) <= _LISTING:
        return _list_sessions(as_json="--json" in arguments)
    from massmem.cli.ask import RunOptions, app
    from massmem.cli.commands import refuse_mistyped_command

    options = _invoke(app, arguments)
    if not isinstance(options, RunOptions):
        return 0
    if options.list_sessions:
        return _list_sessions(as_json=options.as_json)
    if options.question is not None and not spelled_out:
        refuse_mistyped_command(options.question)
    from massmem.cli.first_run import check_first_run

    check_first_run(options)
    from massmem.cli.run import run

    return run(options)


def _list_sessions(*, as_json: bool) -> int:
    from massmem.cli.listing import list_sessions

    return list_sessions(as_json=as_json)


def _command(name: str) -> "typer.Typer":
    """A program that has just this command, so that none of the others is imported."""
    import typer

    root = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
    root.add_typer(load(name), name=name)
    return root


def _invoke(app: "typer.Typer", arguments: list[str]) -> object:
    """Parse and call; the result of the command, or the exit code it asked for.

    Not Typer's own `main`: that one turns a closed pipe and Ctrl-C into codes of its own.
    """
    import typer
    from typer.main import get_command

    command = get_command(app)
    program = f"massmem {arguments[0]}" if arguments and arguments[0] in COMMANDS else "massmem"
    try:
        with command.make_context("massmem", list(arguments)) as context:
            return command.invoke(context)
    except typer.Exit as e:
        return e.exit_code
    except typer.Abort as e:
        raise KeyboardInterrupt from e
    except typer.TyperException as e:
        if e.format_message().startswith("Usage: "):  # a group of commands without one: Typer raises its help
            sys.stderr.write(f"{e.format_message()}\n")
            return InputError.exit_code
        raise InputError(e.format_message(), f"see what there is with: {program} --help") from e


def _complete() -> int:
    """Answer the shell: for one command's arguments ask that command, else the run command, which knows all names."""
    from typer.main import get_command

    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = line.split()
    # Some shells part the words with newlines.
    name = words[1] if len(words) > 2 or (len(words) == 2 and line[-1:].isspace()) else ASK
    if name == ASK or name not in COMMANDS:
        name = ASK
    get_command(load(ASK) if name == ASK else _command(name)).main(args=[], prog_name="massmem")
    return 0
