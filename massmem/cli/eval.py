"""`massmem eval`: how well teams answer questions whose answers are known."""

import asyncio
import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from massmem.cli.options import JobName, require_positive
from massmem.cli.setup import load_team, read_environment
from massmem.cli.streams import notify, show_progress, write_json, write_out
from massmem.cli.terminal import EXIT_INTERRUPTED
from massmem.config.calibrations import calibrations_folder, find_calibration, read_calibration, store_calibration
from massmem.config.home import lock_file, massmem_home, replace_file
from massmem.config.jobs import find_job
from massmem.config.projects import find_project
from massmem.core.errors import InputError, MassmemError
from massmem.core.evaluation import SavedReport
from massmem.core.events import now
from massmem.core.verdict import Calibration
from massmem.evaluation.calibration import build_calibration, list_gaps, list_promises, prepare_for_calibration
from massmem.evaluation.evaluate import Evaluation, Evaluator
from massmem.evaluation.items import Item, ScorerName, load_items
from massmem.evaluation.output import format_calibration, format_html, format_text, list_answers
from massmem.evaluation.runner import Entrant, Runner, Spending, open_results

app = typer.Typer()

EXIT_BELOW = 1
_Output = Literal["text", "json", "jsonl", "html"]
_EqualBudget = Annotated[
    bool,
    typer.Option("--equal-budget", help="Also each agent alone, and the majority of as many answers as cost the same."),
]
_Calibrate = Annotated[
    bool,
    typer.Option("--calibrate", help="Ask all agents, and keep how often which agreement was right."),
]
_Results = Annotated[
    Path | None,
    typer.Option("--results", metavar="FILE", help="Where answers are kept; default: below ~/.massmem."),
]
_FailUnder = Annotated[
    float | None,
    typer.Option("--fail-under", min=0, max=1, metavar="SHARE", help="Exit with 1 when the first team is below it."),
]

_Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with 1 when a question was not answered, or an answer not graded.")
]


@app.command("eval")
def eval_command(
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", help="Questions with answers: .jsonl, .json, .csv or .tsv; or: calibration."),
    ],
    configs: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="FILE", help="A team; repeat it to compare several.")
    ] = None,
    scorer: Annotated[
        ScorerName | None, typer.Option("--scorer", help="How answers are checked, where the question does not say.")
    ] = None,
    job: JobName = None,
    judge: Annotated[
        str | None, typer.Option("--judge", metavar="FILE", help="A configuration whose first agent judges answers.")
    ] = None,
    equal_budget: _EqualBudget = False,
    calibrate: _Calibrate = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="The first N questions only.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, metavar="N", help="N questions, drawn by --seed.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Another seed asks everything anew.")] = 0,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", metavar="DOLLARS", help="Stop when this run has cost so much.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, metavar="N", help="Questions at a time.")] = 4,
    results: _Results = None,
    output: Annotated[_Output, typer.Option("--output", "-o", help="Form of the report on stdout.")] = "text",
    fail_under: _FailUnder = None,
    strict: _Strict = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Measure how well teams answer questions whose answers are known.

    Every answer is kept: stop the command at any time, and the same command goes on without asking anything twice.

    With --calibrate, a team of two agents or more says from then on how often answers with such agreement were right.
    `massmem eval calibration` shows what is known of this team, or of all.
    """
    if data == Path("calibration"):
        _show_calibrations(configs or [], massmem_home(), output)
        return
    require_positive("--max-cost", max_cost, "an amount of dollars")
    read_environment()
    home, items = massmem_home(), _select(load_items(data, scorer), limit, sample, seed)
    prepare = prepare_for_calibration if calibrate else partial(_add_calibration, home=home, data=data.name)
    entrants = list(map(prepare, _load_entrants(configs or [None], home, job, items)))
    referee = None if judge is None else Entrant("judge", load_team(judge, home).select_agent())
    with open_results(results or home / "eval" / f"{data.stem}-{_hash_file(data)}.jsonl") as file:
        runner = Runner(file, home, seed, concurrency, Spending(max_cost))
        evaluator = Evaluator(runner, partial(show_progress, quiet=quiet), referee)
        evaluation = _run(evaluator, entrants, items, equal_budget=equal_budget)
    _write(evaluation, output, str(data))
    _save_report(evaluation, home, data, entrants, items, seed)
    codes = [_save_calibration(evaluation, home, data, entrant) for entrant in entrants if calibrate]
    if code := max(codes, default=0):
        raise typer.Exit(code)
    _check(evaluation, fail_under, strict=strict)


def _check(evaluation: Evaluation, fail_under: float | None, *, strict: bool) -> None:
    first = evaluation.report.teams[0]
    shares = [first.accuracy, *([one.f1 for one in first.open.items.values()] if first.open else [])]
    values = [share.value for share in shares if share.total]
    lowest = min(values if first.open is None or first.open.score is None else [*values, first.open.score], default=0.0)
    if fail_under is not None and lowest < fail_under:
        notify(f"{first.name} is at {lowest:.3f}, below --fail-under {fail_under:g}")
        raise typer.Exit(EXIT_BELOW)
    if strict and (gaps := [team for team in evaluation.report.teams if team.failed or team.ungraded]):
        notify("; ".join(f"{one.name}: {one.failed} not answered, {one.ungraded} not graded" for one in gaps))
        raise typer.Exit(EXIT_BELOW)


def _run(evaluator: Evaluator, entrants: Sequence[Entrant], items: Sequence[Item], *, equal_budget: bool) -> Evaluation:
    try:
        return asyncio.run(evaluator.evaluate(entrants, items, equal_budget=equal_budget))
    except KeyboardInterrupt:
        path = evaluator.runner.results.path
        notify(f"stopped; the answers so far are in {path}, and the same command goes on")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _save_report(
    evaluation: Evaluation, home: Path, data: Path, entrants: Sequence[Entrant], items: Sequence[Item], seed: int
) -> None:
    """Keep the report for the page. The same evaluation, run again, replaces it."""
    asked = [[[entrant.name, entrant.key] for entrant in entrants], [item.key for item in items], seed]
    asked.append([team.name for team in evaluation.report.teams])  # more of them with --equal-budget
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]
    path = home / "eval" / "reports" / f"{data.stem}-{digest}.json"
    report = SavedReport(data=data.name, at=now(), seed=seed, **dict(evaluation.report))
    try:
        with lock_file(path):
            replace_file(path, report.model_dump_json())
    except MassmemError as e:  # the answers are kept
        notify(f"the page will not show this report: {e}")


def _save_calibration(evaluation: Evaluation, home: Path, data: Path, entrant: Entrant) -> int:
    """Calibrate the team with its answers; return the exit code."""
    config, answers = entrant.config, next(one for one in evaluation.answers if one.name == entrant.name)
    if len(config.agents) < 2:
        notify(f"{entrant.name} has one agent: no agreement, and so no calibration")
        return 0
    try:
        path = store_calibration(home, build_calibration(config, answers, data.name))
        read_calibration(path)
    except MassmemError as e:  # the answers are kept
        notify(f"{entrant.name} is not calibrated: {e.message}")
        return e.exit_code
    notify(f"{entrant.name} is calibrated: {'; '.join((str(path), *list_gaps(config, answers)))}")
    return 0


def _show_calibrations(configs: Sequence[str], home: Path, output: _Output) -> None:
    """Write what is known of these teams, without any: of all. Raises InputError: nothing is, or as `load_team`."""
    if output not in ("text", "json"):
        raise InputError(f"calibrations have no form {output}", "--output text, or json")
    paths = [find_calibration(home, load_team(config, home)) for config in configs]
    known: list[Calibration] = []
    for path in paths or sorted(calibrations_folder(home).glob("*.json")):
        try:
            known.append(read_calibration(path))
        except InputError as e:
            notify(f"{e.message}; {e.hint}")
    if not known:
        raise InputError("there is no calibration to show", "write one: massmem eval DATA --config FILE --calibrate")
    if output == "text":
        write_out("\n\n".join(map(format_calibration, known)) + "\n")
        return
    promises = [{"promises": [one.model_dump() for one in list_promises(calibration)]} for calibration in known]
    write_json([one.model_dump(mode="json") | more for one, more in zip(known, promises, strict=True)], indent=1)


def _write(evaluation: Evaluation, output: _Output, title: str) -> None:
    match output:
        case "text":
            write_out(format_text(evaluation.report))
        case "json":
            write_json(evaluation.report.model_dump(mode="json"), indent=1)
        case "jsonl":
            for line in list_answers(evaluation):
                write_out(line)
        case "html":
            write_out(format_html(evaluation.report, title))


def _load_entrants(configs: Sequence[str | None], home: Path, job: str | None, items: Sequence[Item]) -> list[Entrant]:
    """Return the teams; None is the default one. Teams whose files have the same name are told apart by number."""
    entrants: list[Entrant] = []
    for config in configs:
        name = "team" if config is None else Path(config).stem
        names = [entrant.name for entrant in entrants]
        unique = name if name not in names else f"{name} ({1 + sum(other.startswith(name) for other in names)})"
        team = load_team(config, home)
        team = find_job(job, home, find_project()).apply(team) if job else team
        if team.coordination.shape in ("vote", "revise") and any(i.task and i.task.items is not None for i in items):
            raise InputError(f"{unique} lists no items, and some are known", "add --job review, or another")
        entrants.append(Entrant(unique, team))
    return entrants


def _add_calibration(entrant: Entrant, home: Path, data: str) -> Entrant:
    """Return the team with the calibration by which it answers, if it does by one; say when there is none."""
    coordination, name, path = entrant.config.coordination, entrant.name, find_calibration(home, entrant.config)
    if coordination.max_error is None and coordination.weights == "equal":
        return entrant
    try:
        calibration = read_calibration(path)
    except InputError as e:
        notify(f"{name} answers without calibration: {e.message}; {e.hint}")
        return entrant
    if calibration.data == data:
        notify(f"{name} is calibrated with {data}: on questions that its calibration has seen it looks too sure")
    return replace(entrant, calibration=calibration)


def _select(items: list[Item], limit: int | None, sample: int | None, seed: int) -> list[Item]:
    if limit is not None and sample is not None:
        raise InputError("--limit and --sample exclude each other", "leave one of them out")
    if sample is not None and sample < len(items):
        chosen = sorted(random.Random(seed).sample(range(len(items)), sample))
        items = [items[index] for index in chosen]
    unique = {item.key: item for item in items[:limit]}
    if len(unique) < len(items[:limit]):
        notify(f"{len(items[:limit]) - len(unique)} questions are there twice, and are asked once")
    return list(unique.values())


def _hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8]
