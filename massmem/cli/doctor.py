"""`massmem doctor`: checks everything that a question needs, and says what to fix."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Any

import typer

from massmem.cli.checks import CheckResult, DoctorContext, fail, machine, memory, store, team
from massmem.cli.options import AsJson, Config
from massmem.cli.setup import choose_config, read_environment
from massmem.cli.streams import write_json, write_out
from massmem.config.home import massmem_home
from massmem.config.load import load_named
from massmem.core.errors import ConfigError, MassmemError
from massmem.core.text import make_printable

SCHEMA_VERSION = 1
TIMEOUT = 120.0
"""Seconds for one check: providers can be slow, and so can reading a model of a gigabyte."""

Check = Callable[[DoctorContext], Awaitable[Sequence[CheckResult]]]

CHECKS: dict[str, Check] = {
    "python": machine.check_python,
    "packages": machine.check_packages,
    "disk": machine.check_disk,
    "permissions": machine.check_permissions,
    "config": team.check_config,
    "models": team.check_models,
    "tools": team.check_tools,
    "memory keys": memory.check_keys,
    "embedding": memory.check_embedding,
    "extraction": memory.check_extraction,
    "index": memory.check_index,
    "memory": memory.check_recall,
    "store": store.check_store,
    "registry": store.check_registry,
    "service": team.check_service,
}
"""In the order in which they run."""

app = typer.Typer(help="Check everything that a question needs, and say what to fix.")


@app.command()
def doctor_command(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="The same as --config FILE.")] = None,
    config: Config = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Contact no server: keys are found, but not tried.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Check everything that a question needs, and say what to fix.

    Keys are tried, with a list of models or a request of a few tokens. Exit code 1 when a check failed.
    """
    context = _build_context(choose_config(file, config), offline=offline)
    return asyncio.run(_report_checks(context, as_json=as_json))


async def run_checks(context: DoctorContext) -> AsyncIterator[CheckResult]:
    """Run all checks one after the other, because two of them may need the same lock."""
    for name, check in CHECKS.items():
        try:
            async with asyncio.timeout(TIMEOUT):
                results = await check(context)
        except MassmemError as e:
            results = [fail(e.message, e.hint)]
        except TimeoutError:  # is an OSError, too
            results = [fail(f"took more than {TIMEOUT:g} s", "find the cause with --debug on a question")]
        except OSError as e:
            results = [fail(f"cannot be checked: {e}", "check the owner and the permissions of this file")]
        for result in results:
            yield result.of_check(name)


def _build_context(config: str | None, *, offline: bool) -> DoctorContext:
    home = massmem_home()
    read_environment()
    try:
        loaded = load_named(config, os.environ, home)
    except ConfigError as e:
        return DoctorContext(home, os.environ, config_error=e, offline=offline)
    return DoctorContext(home, os.environ, loaded.team, tuple(loaded.warnings), offline=offline)


async def _report_checks(context: DoctorContext, *, as_json: bool) -> int:
    results: list[CheckResult] = []
    async for result in run_checks(context):
        results.append(result)
        if not as_json:
            write_out(_format_result(result))
    failures = sum(result.status == "failed" for result in results)
    if as_json:
        write_json(_results_to_dict(results, failures))
    elif failures:
        write_out(f"\n{failures} of {len(results)} checks failed\n")
    else:
        write_out(f"\n{len(results)} checks, none failed\n")
    return 1 if failures else 0


def _format_result(result: CheckResult) -> str:
    lines = [f"{result.status:<8} {result.check:<12} {result.text}"]
    lines += [f"{'':<21} {detail}" for detail in result.details]
    lines += [f"{'':<21} -> {result.fix}"] if result.fix else []
    return "".join(make_printable(line) + "\n" for line in lines)


def _results_to_dict(results: Sequence[CheckResult], failures: int) -> dict[str, Any]:
    status = "failed" if failures else "ok"
    return {"schema_version": SCHEMA_VERSION, "status": status, "checks": [result.to_dict() for result in results]}
