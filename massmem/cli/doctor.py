"""`massmem doctor`: everything that a question needs, checked one by one, and what to do where something is wrong."""

import asyncio
import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from massmem.cli.checks import findings
from massmem.cli.checks.finding import Finding, Situation
from massmem.cli.streams import write_out
from massmem.cli.team import one_file, read_dotenv
from massmem.config.load import default_config, find_config, load_config
from massmem.errors import ConfigError
from massmem.home import massmem_home
from massmem.render.printable import printable

SCHEMA_VERSION = 1

app = typer.Typer(
    help="Check everything that a question needs, and say what to do.",
    context_settings={"allow_interspersed_args": True},  # options may come after the file
)


@app.callback(invoke_without_command=True)
def doctor_command(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="The same as --config FILE.")] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="The team, as for a question.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask no server: keys are found, but not tried.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Check everything that a question needs, and say what to do where something is wrong.

    Keys are tried, with a list of models or a request of a few tokens. Exit code 1 when a check failed.
    """
    return asyncio.run(_checked(_situation(one_file(file, config), offline=offline), as_json=as_json))


def _situation(name: str | None, *, offline: bool) -> Situation:
    home = massmem_home()
    read_dotenv(Path(".env"))
    try:
        load = default_config(os.environ, home) if name is None else load_config(find_config(name), os.environ)
    except ConfigError as e:
        return Situation(home, os.environ, problem=e, offline=offline)
    return Situation(home, os.environ, load[0], tuple(load[1]), offline=offline)


async def _checked(situation: Situation, *, as_json: bool) -> int:
    found: list[Finding] = []
    async for finding in findings(situation):
        found.append(finding)
        if not as_json:
            write_out(_shown(finding))
    count = sum(finding.status == "failed" for finding in found)
    if as_json:
        write_out(json.dumps(_report(found), ensure_ascii=False) + "\n")
    else:
        write_out(f"\n{count} of {len(found)} checks failed\n" if count else f"\n{len(found)} checks, none failed\n")
    return 1 if count else 0


def _shown(finding: Finding) -> str:
    lines = [f"{finding.status:<8} {finding.check:<12} {finding.text}"]
    lines += [f"{'':<21} {detail}" for detail in finding.details]
    lines += [f"{'':<21} -> {finding.fix}"] if finding.fix else []
    return "".join(printable(line) + "\n" for line in lines)


def _report(found: list[Finding]) -> dict[str, Any]:
    status = "failed" if any(finding.status == "failed" for finding in found) else "ok"
    return {"schema_version": SCHEMA_VERSION, "status": status, "checks": [finding.row() for finding in found]}
