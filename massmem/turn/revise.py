"""A turn of shape revise: one agent drafts, or the user's text is the draft; the others criticise it, the author
revises it or says why not. It ends when nobody has a criticism left."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from massmem.core import events as ev
from massmem.core import prompts
from massmem.core.items import Stand, UnionItem, write_item
from massmem.core.messages import Usage, split_question
from massmem.core.report import Dispute, Report, Statement
from massmem.core.verdict import Judgement
from massmem.tools.actions import ActionError, find_object
from massmem.tools.item_form import read_checks
from massmem.turn.agent import Agent
from massmem.turn.coordinator import TurnRun
from massmem.turn.decide import DecideRun
from massmem.turn.request import Form, StepCost, Task
from massmem.turn.union import ItemRun, Step, UnionRun, build_checks_schema, build_list_schema

_MOST_REVISIONS = 2


@dataclass(slots=True)
class ReviseRun(ItemRun):
    """A turn of shape revise: rounds 2 and 4 are criticism, 3 and 5 revisions. The first agent is the author."""

    shape = "revise"

    @property
    def _author(self) -> str:
        return next(iter(self.tally.answers), "")

    def _list_open(self) -> list[UnionItem]:
        """Return the criticism to which the author has not replied."""
        return [point for point in self.tally.items or () if not point.checks]

    def _next_actors(self) -> tuple[str, ...]:
        tally, author = self.tally, self._author
        live, number = tally.live_agents(), tally.round
        if number == 0 or not author:
            return live[:1] if number == 0 else ()
        if number % 2 == 0:
            return (author,) if self._list_open() and author in live else ()
        is_over = number > 2 * min(_MOST_REVISIONS, self.settings.max_rounds) or author in tally.missed
        return () if is_over else tuple(agent for agent in live if agent != author) or live

    def _prepare_step(self, agent: Agent, number: int, *, final: bool) -> Step:
        if number == 1 and self.settings.draft == "given":
            return self._give_draft(agent)
        if number == 1:
            return TurnRun._prepare_step(self, agent, number, final=final)
        draft, points = self.tally.answers[self._author].content, self.tally.items or ()
        if number % 2 == 0:
            write = partial(prompts.build_criticism_prompt, draft=draft, points="\n".join(map(_write_point, points)))
            form = Form("items", write, self._read_list, build_list_schema("place", "problem", "suggestion"))
            return self._prepare_form(agent, number, form, lambda items: {"items": items})
        numbers = [point.number for point in self._list_open()]
        write = partial(
            prompts.build_revision_prompt, draft=draft, points="\n".join(map(_write_point, self._list_open()))
        )
        read = partial(_read_revision, draft=draft, numbers=numbers)
        form = Form("check", write, read, build_checks_schema(numbers, text={"type": "string"}))
        return self._prepare_form(agent, number, form, dict)

    def _give_draft(self, agent: Agent) -> Step:
        """Return the step in which the user's text becomes the draft, without a request."""
        asked, texts, _ = split_question(self.turn.question, self.turn.attachments)
        draft = "\n\n".join(text for _, text in texts) or asked
        fields: dict[str, Any] = {"number": 0, "content": draft, "usage": Usage(requests=0), "remember": False}
        task = Task(self.turn.question, 1, StepCost(), self.outbox)

        async def give() -> ev.AnswerSubmitted:
            return ev.AnswerSubmitted(agent_id=agent.id, round=1, **fields)

        return partial(self._run_step, agent, task, "answer", give)

    async def _end_wave(self) -> None:
        if self._can_merge:
            self._merge()

    def _decide_winner(self) -> ev.WinnerDecided:
        if self.tally.lists:
            self._merge()
        return ev.WinnerDecided(agent_id=self._author, votes={}, by="revise")

    def _needs_presentation(self, winner: ev.WinnerDecided, judgement: Judgement) -> bool:
        return False

    def _build_completion(self, winner: ev.WinnerDecided, judgement: Judgement, form_error: str) -> ev.TurnCompleted:
        completed = ItemRun._build_completion(self, winner, judgement, form_error)
        disputes = tuple(_write_dispute(point) for point in self.tally.items or ())
        return completed.model_copy(update={"report": Report("answers", disputed=disputes) if disputes else None})

    def _write_result(self, text: str) -> tuple[str, str]:
        points, tally = self.tally.items or (), self.tally
        counts = [
            f"{sum(bool(p.list_agents(s)) for p in points)} {word}" for s, word in _DONE.items() if s != "abstain"
        ]
        left = len(self._list_open())
        readers = tally.acting if tally.round % 2 == 0 else tally.agents if tally.round == 1 else ()
        late = [self._name(agent) for agent in readers if agent not in tally.acted]
        end = f", {left} without a reply" if left else "" if tally.round % 2 or late else ", and nobody has one left"
        end += f", this text was not read by {', '.join(late)}" if late else ""
        listed = f"{len(points)} point{'s' * (len(points) != 1)} of criticism"
        return text, f"not compared: {listed}, {', '.join(counts)}{end}"


_DONE: dict[Stand, str] = {"confirm": "revised", "reject": "declined", "abstain": "left open"}


def _write_point(point: UnionItem) -> str:
    """Return a point with what was done with it."""
    return write_item(point.number, point.item, "; ".join(_write_reply(point)))


def _write_reply(point: UnionItem) -> list[str]:
    return [": ".join(filter(None, (_DONE[check.stand], check.reason))) for check in point.checks]


def _write_dispute(point: UnionItem) -> Dispute:
    """Return a point for the report: who criticises it, and what the author did."""
    where = f"{point.item.where}: " if point.item.where else ""
    criticism = Statement(point.item.suggestion or point.item.reason or point.item.title, point.found_by)
    replies = zip(_write_reply(point), point.checks, strict=True)
    return Dispute(where + point.item.title, (criticism, *(Statement(text, (check.agent,)) for text, check in replies)))


def _read_revision(text: str, draft: str, numbers: list[int]) -> dict[str, Any]:
    """Return what was done with each point, and the text. Raise ActionError: neither can be read."""
    checks, revised = read_checks(text, numbers), (find_object(text) or {}).get("text")
    is_text = isinstance(revised, str) and not re.fullmatch(r"\s*<[^<>]*>\s*", revised)  # as in the form
    revised = str(revised).strip() if is_text else ""
    if not revised and any(check.stand == "confirm" for check in checks):
        raise ActionError('the revised text is missing: "text"')
    if "<notes>" in revised and "<notes>" not in draft:
        raise ActionError('"text" quotes the notes; it has to be the revised text alone')
    return {"checks": checks, "content": revised or draft}


RUNS: Mapping[ev.Shape, type[TurnRun]] = {run.shape: run for run in (TurnRun, UnionRun, DecideRun, ReviseRun)}
