"""A model that says whether an answer is right, for questions that no rule can check."""

import hashlib
import json
import re
from contextlib import aclosing
from dataclasses import dataclass, field

from massmem.core import prompts
from massmem.core.errors import TurnError
from massmem.core.events import TurnCompleted, TurnFailed
from massmem.core.messages import Usage
from massmem.evaluation.items import Item
from massmem.evaluation.results import ResultFile, Verdict
from massmem.evaluation.runner import Entrant, Spending
from massmem.session.session import Session
from massmem.session.team import Team

_WORD = re.compile(r"\b(RIGHT|WRONG)\b")


@dataclass(slots=True)
class Judge:
    """Asks twice, once with the reference first and once with the answer first: models favour what stands first.

    An answer is right when both replies say so. Verdicts are stored, and not asked for again.
    """

    entrant: Entrant
    """The judge's model, as a team of one."""
    results: ResultFile
    spending: Spending
    team: Team
    usage: Usage = field(default_factory=Usage)

    async def grade(self, item: Item, text: str) -> bool:
        """Return whether the judge finds the answer right.

        Raises:
            TurnError: the judge's model cannot be asked.
            LimitReached: the cost is at its limit.
        """
        if not text.strip():
            return False
        identity = json.dumps([self.entrant.key, item.key, item.expected, text])
        key = hashlib.sha256(identity.encode()).hexdigest()[:32]
        verdict = self.results.get_verdict(key)
        if verdict is None:
            self.spending.check()
            first, usage = await self._ask(item, text, reference_first=True)
            second, more = await self._ask(item, text, reference_first=False)
            verdict = Verdict(key=key, right=first and second, usage=usage + more)
            self.results.add(verdict)
            self.usage += verdict.usage
            self.spending.usage += verdict.usage
        return verdict.right

    async def _ask(self, item: Item, text: str, *, reference_first: bool) -> tuple[bool, Usage]:
        question = prompts.build_judge_prompt(item.question, item.expected, text, reference_first=reference_first)
        async with await Session.on(self.team) as session, aclosing(session.ask(question)) as events:
            end = [event async for event in events][-1]
        match end:
            case TurnCompleted(answer=answer, usage=usage):
                words = _WORD.findall(answer.upper())
                return words[-1:] == ["RIGHT"], usage
            case TurnFailed(message=message, hint=hint):
                raise TurnError(f"the judge failed: {message}", hint)
            case _:
                raise TurnError("the judge gave no verdict", "name a judge that asks nothing back")
