"""What `massmem doctor` checks, in this order. Each check is a function of a module beside this one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from massmem.cli.checks import files, machine, memory, models, service, sessions, setup, tools
from massmem.cli.checks.finding import Finding, Situation, failed
from massmem.errors import MassmemError

Check = Callable[[Situation], Awaitable[Sequence[Finding]]]

PATIENCE = 120.0
"""Seconds for one check: a slow provider, or a model of a gigabyte that is read from a slow disk."""

CHECKS: dict[str, Check] = {
    "python": machine.check_python,
    "packages": machine.check_packages,
    "disk": machine.check_disk,
    "permissions": files.check_permissions,
    "config": setup.check_config,
    "models": models.check_models,
    "tools": tools.check_tools,
    "memory keys": memory.check_keys,
    "embedding": memory.check_embedding,
    "extraction": memory.check_extraction,
    "index": memory.check_index,
    "memory": memory.check_all,
    "store": sessions.check_store,
    "registry": sessions.check_registry,
    "locks": files.check_locks,
    "service": service.check_service,
}


async def findings(situation: Situation) -> AsyncIterator[Finding]:
    """All of them, one after the other: two would want the same lock."""
    for name, check in CHECKS.items():
        try:
            async with asyncio.timeout(PATIENCE):
                found = await check(situation)
        except MassmemError as e:
            found = [failed(e.message, e.hint)]
        except TimeoutError:  # which is an OSError, too
            found = [failed(f"took more than {PATIENCE:g} s", "see what it waits for with --debug on a question")]
        except OSError as e:
            found = [failed(f"cannot be checked: {e}", "look at the owner and the permissions of this file")]
        for finding in found:
            yield finding.of(name)
