"""Open tasks of an evaluation: no answer is known, but items, criteria for a judge, or bounds that code checks."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from massmem.config.home import massmem_home
from massmem.config.jobs import Criterion, find_job
from massmem.config.projects import find_project
from massmem.config.section import Section
from massmem.core.errors import InputError
from massmem.core.items import Item, UnionItem
from massmem.core.short_answers import has_words
from massmem.tools.actions import ActionError, find_object
from massmem.tools.item_form import read_items
from massmem.turn.merging import compare_items, merge_items


class Graded(Criterion):
    met: bool | None
    """None: not graded."""


class Matches(BaseModel, frozen=True):
    listed: int
    known: int
    matched: int
    uncompared: int


class TaskGrade(BaseModel, frozen=True):
    criteria: tuple[Graded, ...]
    items: dict[str, Matches] = {}
    """Of `all` that are listed, and of those that are `uncontested`."""


class OpenTask(Section):
    """What a question has in place of an answer: items that a team should list, a rubric for a judge, words."""

    items: Annotated[tuple[Item, ...] | None, BeforeValidator(lambda value: read_items(json.dumps(value))[0])] = None
    rubric: tuple[Criterion, ...] = ()
    must_mention: tuple[str, ...] = ()
    must_not_mention: tuple[str, ...] = ()
    min_words: int | None = Field(default=None, ge=1)
    max_words: int | None = Field(default=None, ge=1)

    def grade(self, text: str, items: Sequence[UnionItem], met: Sequence[bool | None]) -> TaskGrade:
        """Return how the task was done. met: of the rubric, as the judge finds; empty: there is none."""
        words = len(text.split())
        checks = {f"mentions {phrase}": has_words(text, phrase) for phrase in self.must_mention}
        if phrases := self.must_not_mention:
            checks[f"mentions none of {', '.join(phrases)}"] = not any(has_words(text, phrase) for phrase in phrases)
        checks |= {f"has {n} words or more": words >= n for n in (self.min_words,) if n}
        checks |= {f"has {n} words or fewer": words <= n for n in (self.max_words,) if n}
        criteria = [Graded(text=name, met=is_met and words > 0) for name, is_met in checks.items()]
        criteria += [Graded(**one.model_dump(), met=is_met) for one, is_met in zip(self.rubric, met, strict=True)]
        lists = {"all": items, "uncontested": [item for item in items if not item.list_agents("reject")]}
        known = {} if self.items is None else {name: match_items(self.items, listed) for name, listed in lists.items()}
        return TaskGrade(criteria=tuple(criteria), items=known)


def read_task(row: Mapping[str, Any], expected: object, where: str) -> OpenTask | None:
    """Return what the row has in place of an answer; None: nothing. Raises InputError: it cannot be used."""
    fields = {name: row[name] for name in ("job", *OpenTask.model_fields) if row.get(name) is not None}
    if not fields:
        return None
    if expected is not None:
        raise InputError(f"{where}: an answer and `{next(iter(fields))}`", "a question has one or the other")
    if job := fields.pop("job", ""):
        fields.setdefault("rubric", find_job(str(job), massmem_home(), find_project()).config.rubric)
    try:
        return OpenTask.model_validate(fields)
    except (ValidationError, ActionError) as e:
        raise InputError(f"{where}: {e}", 'such as "rubric": [{"text": "names a price", "weight": 2}]') from e


def read_grades(reply: str, count: int) -> list[bool | None]:
    """Return which criteria a judge finds met, in the order in which it was asked. None: it does not say."""
    listed: Any = (find_object(reply) or {}).get("criteria")
    grades = cast("list[Any]", listed) if isinstance(listed, list) else []
    met: dict[str, Any] = {str(one.get("item")): one.get("met") for one in grades if hasattr(one, "get")}
    return [met.get(str(n)) if isinstance(met.get(str(n)), bool) else None for n in range(1, count + 1)]


def match_items(known: Sequence[Item], listed: Sequence[UnionItem]) -> Matches:
    """Compare items as those of two agents: each is at most one of the other side."""
    lists = {"known": known, "listed": [one.item for one in listed]}
    same, unsure = compare_items(lists)
    matched = [one.versions for one in merge_items(lists, same) if len(one.versions) == 2]
    entries, taken = [*known, *lists["listed"]], {item for pair in matched for item in pair}
    left = {entries[j] for i, j in unsure if taken.isdisjoint((entries[i], entries[j]))}
    return Matches(listed=len(listed), known=len(known), matched=len(matched), uncompared=len(left))
