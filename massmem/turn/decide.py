"""A turn of shape decide: agents list options and criteria, code merges them, each agent scores all, code adds up."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from massmem.core import prompts
from massmem.core.decision import CRITERION, add_up, write_decision
from massmem.core.items import Check, Item, UnionItem, write_item
from massmem.core.messages import clean_text
from massmem.core.verdict import Judgement
from massmem.tools.actions import ActionError, build_object_schema, find_object
from massmem.turn.agent import Agent
from massmem.turn.request import Form
from massmem.turn.union import ItemRun, Step, UnionRun

_MOST_POINTS, _MOST_WEIGHT = 10, 100
_LONGEST_REASON = 2_000
_CRITERION = re.compile(r"[ck]rit", re.IGNORECASE)


@dataclass(slots=True)
class DecideRun(UnionRun):
    """A turn of shape decide."""

    shape = "decide"
    decided_by = "decide"
    by_kind = True

    def _next_actors(self) -> tuple[str, ...]:
        number, live = self.tally.round, self.tally.live_agents()
        options, criteria = self._split()
        return live if number == 0 or (number == 1 and options and criteria) else ()

    def _split(self) -> tuple[list[UnionItem], list[UnionItem]]:
        """Return the options and the criteria."""
        items = self.tally.items or ()
        return [i for i in items if i.item.kind != CRITERION], [i for i in items if i.item.kind == CRITERION]

    def _read_list(self, text: str) -> tuple[Item, ...]:
        items = ItemRun._read_list(self, text)
        return tuple(replace(i, kind=CRITERION if _CRITERION.search(i.kind) else "option") for i in items)

    def _prepare_step(self, agent: Agent, number: int, *, final: bool) -> Step:
        if number == 1:
            return UnionRun._prepare_step(self, agent, number, final=final)
        options, criteria = self._split()
        listed = "\n".join(write_item(item.number, item.item) for item in (*options, *criteria))
        write = partial(prompts.build_score_prompt, items=listed, task=self.settings.items.check)
        numbers = [item.number for item in options], [item.number for item in criteria]
        form = Form("check", write, partial(read_scores, numbers=numbers), _build_schema(*numbers))
        return self._prepare_form(agent, number, form, lambda checks: {"checks": checks})

    def _needs_presentation(self, winner: Any, judgement: Judgement) -> bool:
        is_decided = add_up(self.tally.items or ()).best is not None
        return is_decided and UnionRun._needs_presentation(self, winner, judgement)

    @property
    def _list(self) -> str:
        return write_decision(self.tally.items or (), self._name)

    def _write_result(self, text: str) -> tuple[str, str]:
        decision = add_up(self.tally.items or ())
        options, criteria = self._split()
        what = f"{len(options)} options by {len(criteria)} criteria"
        agents = f"{len(decision.agents)} of {len(self.tally.agents)} agents scored {what}"
        return write_decision(self.tally.items or (), self._name, text if self.presentation else ""), (
            f"{agents}, {len(decision.dissent)} would choose otherwise" if decision.best else agents
        )


def _build_schema(options: Sequence[int], criteria: Sequence[int]) -> dict[str, Any]:
    points = {"type": "integer", "minimum": 0, "maximum": _MOST_POINTS}
    scores = build_object_schema(**{str(number): points for number in criteria})
    option = build_object_schema(item=_one_of(options), reason={"type": "string"}, points=scores)
    return build_object_schema(
        criteria=_list_of(build_object_schema(item=_one_of(criteria), weight=points), len(criteria)),
        options=_list_of(option, len(options)),
    )


def _one_of(numbers: Sequence[int]) -> dict[str, Any]:
    return {"type": "integer", "enum": list(numbers)}


def _list_of(item: Mapping[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": item, "maxItems": most}


def read_scores(text: str, numbers: tuple[Sequence[int], Sequence[int]]) -> tuple[Check, ...]:
    """Return the points and weights in a reply; what is no number from 0 to 10 is left out. numbers: of options, then
    of criteria. Raise ActionError: no option has points."""
    data, checks = find_object(text) or {}, list[Check]()
    options, criteria = numbers
    for entry in _list_entries(data.get("criteria")):
        number, weight = _read_item(entry, criteria), _read_number(entry.get("weight"), _MOST_WEIGHT)
        if number is not None and weight is not None:
            checks.append(Check(number, "abstain", points={str(number): weight}))
    for entry in _list_entries(data.get("options")):
        number, points = _read_item(entry, options), _read_points(entry.get("points"), criteria)
        if number is not None and points:
            reason = clean_text(str(entry.get("reason") or "")).strip()[:_LONGEST_REASON]
            checks.append(Check(number, "abstain", reason, points=points))
    if {check.item for check in checks}.isdisjoint(options):
        raise ActionError(f"no option has points; the options are {', '.join(map(str, options))}")
    return tuple({check.item: check for check in checks}.values())


def _list_entries(value: Any) -> list[dict[str, Any]]:
    entries = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)]


def _read_item(entry: Mapping[str, Any], numbers: Sequence[int]) -> int | None:
    """Return the number of an item, also of `"2. Its title"`; None: there is no such item."""
    match = re.search(r"\d{1,9}", str(entry.get("item")))
    return int(match[0]) if match and int(match[0]) in numbers else None


def _read_points(value: Any, criteria: Sequence[int]) -> dict[str, float]:
    """Return the points by the number of the criterion."""
    entries = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    points = {str(number): _read_number(entries.get(str(number)), _MOST_POINTS) for number in criteria}
    return {number: value for number, value in points.items() if value is not None}


def _read_number(value: Any, most: float) -> float | None:
    """Return a number from 0 to `most`, also of `"7/10"`, `"7 of 10"` or, as a weight, `"70 %"`; None: it is none."""
    match = re.fullmatch(r"\s*(\d{1,4}(?:[.,]\d{1,4})?)\s*(?:(?:/|(?:out )?of)\s*10)?\D*", str(value))
    number = float(match[1].replace(",", ".")) if match and not isinstance(value, bool) else most + 1
    return number if number <= most else None
