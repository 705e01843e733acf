"""The configuration."""

from collections.abc import Sequence

from massmem.cli.checks.finding import Finding, Situation, failed, ok
from massmem.render.figures import plural


async def check_config(situation: Situation) -> Sequence[Finding]:
    """It is read and valid."""
    if situation.config is None:
        problems = situation.problem.problems if situation.problem else []
        fix = situation.problem.hint if situation.problem else ""
        text = f"{plural(len(problems), 'problem')} in the configuration"
        return [failed(text, fix or "correct these lines; massmem config validate says what is left", *problems)]
    agents = ", ".join(agent.id for agent in situation.config.agents)
    return [ok(f"{situation.config.source}: {agents}", *situation.warnings)]
