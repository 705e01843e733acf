"""`massmem doctor`: checks everything that a question needs, and says what to fix."""

import os
from dataclasses import asdict, replace
from typing import Annotated

import typer

from massmem.cli.checks import CHECKS, CheckResult, DoctorContext, run_check
from massmem.cli.options import AsJson, Config, Record
from massmem.cli.setup import choose_config, load_and_check, read_environment
from massmem.cli.streams import write_json, write_out
from massmem.config.home import massmem_home
from massmem.core.errors import ConfigError

SCHEMA_VERSION = 1

app = typer.Typer(help="Check everything that a question needs, and say what to fix.")


@app.command()
async def doctor_command(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="The same as --config FILE.")] = None,
    config: Config = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Contact no server: keys are found, but not tried.")
    ] = False,
    record: Record = None,
    as_json: AsJson = False,
) -> int:
    """Check everything that a question needs, and say what to fix.

    Keys are tried with the list of models, and each model with two small requests, whose cost is shown. Exit code 1
    when a check failed.
    """
    chosen = choose_config(file, config)
    read_environment()
    context = DoctorContext(massmem_home(), os.environ, offline=offline)
    try:
        loaded = load_and_check(chosen, context.home)
        context = replace(context, config=loaded.team, warnings=tuple(loaded.warnings))
    except ConfigError as e:
        context = replace(context, config=e)
    results: list[CheckResult] = []
    for name, check in CHECKS.items():  # one after the other: two of them may need the same lock
        results += (new := await run_check(name, check, context))
        if not as_json:
            write_out("".join(map(_format_result, new)))
    failures = sum(result.status == "failed" for result in results)
    if as_json:
        rows = [asdict(result) | {"fix": result.fix or None} for result in results]
        status = "failed" if failures else "ok"
        write_json({"schema_version": SCHEMA_VERSION, "status": status, "checks": rows})
    elif failures:
        write_out(f"\n{failures} of {len(results)} checks failed\n")
    else:
        write_out(f"\n{len(results)} checks, none failed\n")
    return 1 if failures else 0


def _format_result(result: CheckResult) -> str:
    lines = [f"{result.status:<8} {result.check:<12} {result.text}"]
    lines += [f"{'':<21} {detail}" for detail in result.details]
    lines += [f"{'':<21} -> {result.fix}"] if result.fix else []
    return "".join(line + "\n" for line in lines)
