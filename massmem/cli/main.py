"""The entry point of the command line: chooses the command, runs it, and turns every error into text and exit code."""

import gc
import inspect
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from massmem.cli.commands import (
    ASK,
    COMMANDS,
    load_program,
    make_parser,
    refuse_mistyped_command,
    translate_everyday_word,
)
from massmem.cli.streams import discard_output, prepare_streams
from massmem.core.errors import InputError, MassmemError

if TYPE_CHECKING:
    import typer

    from massmem.cli.options import RunOptions

EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141
_GARBAGE = 20_000
"""New objects after which garbage is looked for: modules that are loaded later are none either."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line, by default that of the process, and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        gc.disable()  # while modules are imported
        gc.set_threshold(_GARBAGE)
        os.umask(0o077)  # also files of libraries, such as a vector index, are private
    prepare_streams()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except MassmemError as e:
        from massmem.cli.errors import report_error

        code = report_error(e, arguments)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = EXIT_CLOSED_PIPE
    except Exception as e:  # noqa: BLE001 - the last resort: the machine's fault is named, a bug becomes a log file and one line
        from massmem.cli.errors import report_bug, report_error, to_machine_error

        fault = to_machine_error(e)
        code = report_bug(e, arguments) if fault is None else report_error(fault, arguments)
    discard_output()
    gc.freeze()  # at the end of a process a last search of all objects would take longer than a question
    return code


def _run(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if "_MASSMEM_COMPLETE" in os.environ:
        from massmem.cli.options import complete

        return complete()
    if name == ASK:
        return _ask(arguments[1:])
    if arguments:
        refuse_mistyped_command(arguments)
        arguments = translate_everyday_word(arguments)
        name = arguments[0] if arguments else ""
    if name in COMMANDS:
        program = load_program(name)
        gc.freeze()
        gc.enable()
        code = _invoke(program, arguments)
        return code if isinstance(code, int) else 0
    return _ask(arguments)


def _ask(arguments: list[str]) -> int:
    from massmem.cli.options import RunOptions, app

    # Typer has no options with an optional value: as in GNU programs, it stands behind "=".
    options = _invoke(app, ["--solo=" if argument == "--solo" else argument for argument in arguments])
    if not isinstance(options, RunOptions):
        return 0
    if options.list_sessions:
        from massmem.cli.list_sessions import list_sessions

        return list_sessions(as_json=options.as_json)
    from massmem.cli.setup import check_first_run

    if options.choose_session or options.newest or options.session_id is not None:
        options = _choose_session(options)
    check_first_run(options.config or options.session_config or options.model, options.question)
    from massmem.cli.run import prepare_run, run

    invocation = prepare_run(options)
    gc.freeze()
    gc.enable()
    if not invocation.is_conversation:
        return run(invocation)
    from massmem.cli.chat.loop import chat

    return chat(invocation)


def _choose_session(options: "RunOptions") -> "RunOptions":
    """Return the options with the id of the session that is meant, and with the configuration that it began with."""
    from massmem.cli.setup import find_session_config, load_setup, use_session_config

    name = options.session_id
    if name is not None and (options.owner is None or options.config is not None):
        # Without a look into the store: the session may be in another one than that of the default configuration.
        return replace(options, session_config=find_session_config(name) if options.config is None else None)
    import asyncio

    from massmem.cli.sessions import choose_session, find_named_session

    setup = load_setup(options.config, options.owner, warn=False)  # whoever asks the question warns
    session = choose_session(setup) if options.choose_session else asyncio.run(find_named_session(setup, name))
    config = None if options.config is not None else use_session_config(session.config_path)
    return replace(options, session_id=session.session_id, newest=False, session_config=config)


def _invoke(app: "typer.Typer", arguments: list[str]) -> object:
    """Parse the arguments and call the command; return its result, or the exit code that it raised.

    A command may be asynchronous unless it asks the user something: Ctrl-C would wait for the reply.
    Typer's own `main` is not used: it turns a closed pipe and Ctrl-C into exit codes of its own.
    """
    import typer

    command = make_parser(app)
    try:
        with command.make_context("massmem", list(arguments)) as context:
            result = command.invoke(context)
            if inspect.iscoroutine(result):
                import asyncio  # other commands start without it

                return asyncio.run(result)
            return result
    except typer.Exit as e:
        return e.exit_code
    except typer.Abort as e:
        raise KeyboardInterrupt from e
    except typer.TyperException as e:
        if e.format_message().startswith("Usage: "):  # Typer raises the help of a command group without a command
            sys.stderr.write(f"{e.format_message()}\n")
            return InputError.exit_code
        # pydantic, by which Typer reads values, begins its reasons with "Value error, ".
        raise InputError(e.format_message().replace(": Value error, ", ": "), _format_hint(e, arguments)) from e


def _format_hint(error: "typer.TyperException", arguments: Sequence[str]) -> str:
    context = getattr(error, "ctx", None)
    program = "massmem" if context is None else context.command_path
    hint = f"see the options with: {program} --help"
    question = next((word for word in arguments if word.startswith("-") and " " in word.strip()), None)
    if question is None or program != "massmem" or not error.format_message().startswith("No such option"):
        return hint
    return f"{hint}; a question that begins with '-' follows '--': massmem -- {shlex.quote(question)}"
