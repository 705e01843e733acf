"""`massmem review`: what several agents find in a change, at the lines where it is."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from massmem.cli.options import MaxTokens, Model, RunOptions, TeamFile
from massmem.cli.question import UserQuestion, read_file
from massmem.cli.run import TurnEvents, load_team_of, show_turn
from massmem.cli.setup import fetch_embedded_model, read_environment
from massmem.cli.streams import notify, write_out
from massmem.cli.terminal import TurnStopper
from massmem.config.home import massmem_home
from massmem.config.models import TeamConfig
from massmem.config.projects import find_project
from massmem.core.diffs import ChangedFile, Hunk, number_text, read_diff
from massmem.core.errors import InputError, LimitReached
from massmem.core.records import COMMAND_LINE_USER
from massmem.core.redact import redact_file
from massmem.core.text import one_line
from massmem.render.review import Format, Review, count_findings, format_review
from massmem.render.turn_view import TurnView
from massmem.session.review import Change, Reviews, prepare_team, read_nothing
from massmem.session.session import Session
from massmem.session.team import Team
from massmem.tools.encodings import decode_text
from massmem.tools.folder import is_program, is_secret

app = typer.Typer()

EXIT_FINDINGS = 8
_MOST_BYTES = 20_000_000
_GIT_SECONDS = 120.0
_GIT = ("git", "-c", "core.quotepath=off", "-c", "core.fsmonitor=false")
_DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--find-renames", "--src-prefix=a/", "--dst-prefix=b/")


@app.command("review")
def review_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WHAT]",
            help="A range such as main...HEAD, a file with a diff, a document, or - for a diff on stdin; left out: "
            "what is not committed. Or: dismiss ID.",
        ),
    ] = None,
    staged: Annotated[bool, typer.Option("--staged", help="What the next commit would have.")] = False,
    diff_file: Annotated[str | None, typer.Option("--pr", metavar="FILE", help="The diff of a pull request.")] = None,
    because: Annotated[str | None, typer.Option("--because", metavar="TEXT", help="Why it is dismissed.")] = None,
    config: TeamFile = None,
    model: Model = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="Form of the findings on stdout.")] = "text",
    fail_on: Annotated[
        Literal["high", "medium", "low", "any"] | None,
        typer.Option("--fail-on", help="Exit with 8 when something so severe was found, and nobody rejects it."),
    ] = None,
    max_cost: Annotated[float | None, typer.Option(metavar="USD", help="Cost limit of the review.")] = None,
    max_tokens: MaxTokens = None,
    show_dismissed: Annotated[bool, typer.Option("--show-dismissed", help="Also what you have dismissed.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Ask anew what was reviewed before.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> int:
    """Let the team review a change: each agent by itself, then each what only others have found.

    Agents read the repository, and change nothing. A finding stands at lines that are there, or without a place.
    """
    read_environment()
    home, words = massmem_home(), words or []
    limits = {name: value for name, value in (("max_cost", max_cost), ("max_tokens", max_tokens)) if value is not None}
    root = find_project()
    options = RunOptions(
        config=config, model=model, limits=limits, quiet=quiet, folders=(root,) if root and _is_repository(root) else ()
    )
    team = prepare_team(load_team_of(options, home), home, root)
    if words[:1] == ["dismiss"]:
        if len(words) != 2 or not because:
            raise InputError("say which finding, and why", 'like this: massmem review dismiss ID --because "..."')
        return asyncio.run(_dismiss(team, home, root, words[1], because))
    sources = [*words, *(["--staged"] if staged else []), *([diff_file] if diff_file else [])]
    if len(sources) > 1:
        raise InputError(f"{' and '.join(sources)}: one thing is reviewed at a time", "leave the others out")
    change = read_change(sources[0] if sources else "", root)
    fetch_embedded_model(team)
    stopper = TurnStopper()
    try:
        review = asyncio.run(_review(team, home, root, change, options, stopper, again=again))
    except asyncio.CancelledError:
        return stopper.exit_code or 1
    write_out(format_review(review, output, dismissed=show_dismissed))
    if output != "text" and not quiet:
        notify(count_findings(review))
    if fail_on is not None and review.reaches(fail_on):
        return EXIT_FINDINGS
    return LimitReached.exit_code if review.is_cut else 0


async def _review(
    team: TeamConfig, home: Path, root: str, change: Change, options: RunOptions, stopper: TurnStopper, *, again: bool
) -> Review:
    task = asyncio.current_task()
    assert task is not None
    running: list[Session] = []

    def stop(signum: signal.Signals) -> bool:
        for session in running[-1:]:
            session.stop("user" if signum == signal.SIGINT else "signal")
        return bool(running)

    async def show(session: Session, question: str) -> None:
        running.append(session)
        view = TurnView(max_rounds=team.coordination.max_rounds, shows_reasoning=False)
        events = TurnEvents(session, UserQuestion(question), wait=False)
        await show_turn(events, view, "plain", quiet=options.quiet)

    opened = await Team.open(team, home=home)
    try:
        with stopper.watch(task, stop):
            await opened.start()
            return await Reviews(opened, COMMAND_LINE_USER, root).review(
                change, show, again=again, max_cost=options.limits.get("max_cost")
            )
    finally:
        await opened.close()


async def _dismiss(team: TeamConfig, home: Path, root: str, finding_id: str, why: str) -> int:
    opened = await Team.open(team, home=home)
    try:
        finding, note = await Reviews(opened, COMMAND_LINE_USER, root).dismiss(finding_id, why)
    finally:
        await opened.close()
    write_out(f"dismissed: {finding.merged.item.title} ({finding.where or 'without a place'})\n")
    notify(f"{note.note or 'it is a memory of this project'}: massmem memory show {note.short_id}")
    return 0


def read_change(what: str, root: str) -> Change:
    """Return what is to be reviewed.

    what: as the command line names it, or --staged; "": what is not committed. root: the repository; "": there is none.

    Raises InputError: there is none, it cannot be read, or nothing has changed.
    """
    if what == "-":
        data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise InputError(
                f"the diff is larger than {_MOST_BYTES:,} bytes", "review a part of it: git diff -- FOLDER"
            )
        return _change_of("stdin", data, read_nothing, root)
    if what not in ("", "--staged") and Path(what).is_file():
        return _change_of(what, read_file(what, _MOST_BYTES), read_nothing, root)
    if not _is_repository(root):
        raise InputError(
            f"{what or 'this folder'} is no file and in no repository of git", "name a file, or go to a repository"
        )
    if what.startswith("-") and what != "--staged":
        raise InputError(f"{what} is no range of commits", "name it like this: main...HEAD")
    end = what.rpartition("..")[2] or "HEAD"
    if what == "--staged":
        arguments, read_lines = ["--cached"], partial(_read_object, root, "")
    elif ".." in what:
        arguments, read_lines = [what], partial(_read_object, root, end)
    else:
        arguments, read_lines = [what or "HEAD"], partial(_read_work_file, root)
    data = _run_git(root, *_DIFF, *arguments, "--")
    if not data.strip():
        where = {"": "nothing has changed", "--staged": "nothing is staged"}.get(what, f"nothing has changed in {what}")
        raise InputError(where, _suggest_untracked(root))
    return _change_of(what or "git diff", data, read_lines, root)


def _change_of(name: str, data: bytes, read_lines: Callable[[str], Sequence[str] | None], root: str) -> Change:
    text = data.decode("utf-8", "replace") if b"\n+++ " in data or b"\ndiff --" in data else decode_text(name, data)[0]
    try:
        files = read_diff(text)
    except InputError:
        if name in ("stdin", "git diff") or not text.strip():
            raise
        return Change([_hide_secrets(number_text(name, text))], read_lines, name, "document", bool(root))
    return Change([_hide_secrets(file) for file in files], cache(read_lines), name, "change", bool(root))


def _hide_secrets(file: ChangedFile) -> ChangedFile:
    """Return the file without what has the shape of a secret; of a file that is made for secrets, none of its lines."""
    if is_secret(file.path):
        return replace(file, hunks=(), problem="by its name it holds secrets")
    hunks: list[Hunk] = []
    for hunk in file.hunks:
        text = redact_file("\n".join(line for _, _, line in hunk.lines), is_program=is_program(file.path))
        lines = zip(hunk.lines, text.split("\n"), strict=True)
        hunks.append(Hunk(tuple((number, mark, line) for (number, mark, _), line in lines)))
    return replace(file, hunks=tuple(hunks))


def _is_repository(root: str) -> bool:
    return bool(root) and os.path.lexists(Path(root) / ".git")


def _run_git(root: str, *arguments: str) -> bytes:
    """Return what git writes. Raises InputError: it is missing, or refuses."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            [*_GIT, *arguments], cwd=root, env=environment, capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise InputError(f"git cannot be run: {e}", "or give a diff: git diff | massmem review -") from e
    if done.returncode:
        raise InputError(
            f"git refuses: {one_line(done.stderr.decode('utf-8', 'replace'))}", "name a range: main...HEAD"
        )
    return done.stdout


def _suggest_untracked(root: str) -> str:
    new = _run_git(root, "ls-files", "--others", "--exclude-standard").decode("utf-8", "replace").splitlines()
    return f"git does not know {', '.join(new[:3])}: git add --intent-to-add FILE" if new else ""


def _read_object(root: str, commit: str, path: str) -> Sequence[str] | None:
    with suppress(InputError):
        return _split(_run_git(root, "cat-file", "blob", f"{commit}:{path}"))
    return None


def _read_work_file(root: str, path: str) -> Sequence[str] | None:
    place = (Path(root) / path).resolve()
    if place.is_relative_to(Path(root).resolve()) and place.is_file() and place.stat().st_size <= _MOST_BYTES:
        with suppress(OSError):
            return _split(place.read_bytes())
    return None


def _split(data: bytes) -> Sequence[str]:
    return data.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n").split("\n")
