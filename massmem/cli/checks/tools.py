"""The agents' tool servers: each is started once, asked what it offers, and ended."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from massmem.cli.checks.finding import Finding, Situation, failed, ok, skipped, without_config
from massmem.config.models import McpServerConfig
from massmem.errors import ToolServerError
from massmem.render.figures import plural
from massmem.tools.toolbox import Toolboxes, library

if TYPE_CHECKING:
    from massmem.tools.mcp import McpServer

_NAMED = 10


async def check_tools(situation: Situation) -> Sequence[Finding]:
    """Every server of every agent, all at once."""
    if situation.config is None:
        return without_config()
    servers = [(agent.id, server) for agent in situation.config.agents for server in agent.mcp_servers]
    if not servers:
        return [skipped("no agent has tool servers")]
    Toolboxes(situation.config.agents).check()
    if situation.offline:
        return [skipped(f"{plural(len(servers), 'tool server')}: not started (--offline)")]
    mcp = await asyncio.to_thread(library)
    return await asyncio.gather(*(_started(who, mcp(server)) for who, server in servers))


async def _started(who: str, server: "McpServer") -> Finding:
    try:
        offered = await server.start()
    except ToolServerError as e:
        return failed(f"{who}: {e.message}", e.hint)
    finally:
        await server.close()
    return _judged(f"{who}: {server.config.name}", server.config, [tool.name for tool in offered])


def _judged(name: str, config: McpServerConfig, known: Sequence[str]) -> Finding:
    """A name in allow or deny that the server does not have is a slip that nobody would notice."""
    wrong = [tool for tool in (*(config.allow or ()), *config.deny) if tool not in known]
    if wrong:
        fix = f"correct allow and deny under mcp_servers; it has: {', '.join(known)}"
        return failed(f"{name} has no tool {', '.join(map(repr, wrong))}", fix)
    usable = [tool for tool in known if tool not in config.deny and (config.allow is None or tool in config.allow)]
    shown = ", ".join(usable[:_NAMED]) + (", ..." if len(usable) > _NAMED else "")
    return ok(f"{name}: {plural(len(usable), 'tool')} of {len(known)}", shown or "none may be called")
