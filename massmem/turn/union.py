"""A turn of shape union: agents list items, code merges them, and each agent judges what it has not found itself.

What is paid is an event: a turn that was cut off goes on from there, and asks nobody twice.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from massmem.core import events as ev
from massmem.core import prompts
from massmem.core.diffs import read_hunks
from massmem.core.errors import LimitReached, MassmemError
from massmem.core.items import Item, Source, UnionItem, write_item, write_list, write_source, write_union
from massmem.core.messages import ChatMessage, Reply
from massmem.core.text import one_line
from massmem.core.verdict import Judgement
from massmem.memory.tokens import estimate_tokens
from massmem.tools.actions import ActionError, build_object_schema
from massmem.tools.item_form import read_checks, read_items
from massmem.turn.agent import Agent, Presentation, StepResult
from massmem.turn.coordinator import TurnRun
from massmem.turn.merging import Pair, compare_items, is_worth_asking, merge_items, settle_place
from massmem.turn.request import Form, StepCost, Task

_MOST = 30
"""Items of a list, for models that are held to a schema: small ones write until they are stopped."""
_LONGEST = 400
"""Characters of an item that is compared."""
_TEXT = {"type": "string"}
_NOT_READ = "there was no time to read it, or there were too many"

Step = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class ItemRun(TurnRun):
    """What the shapes with items have in common."""

    by_kind: ClassVar[bool] = False
    """Items of different kinds are never the same."""
    sources: dict[Item, Source] = field(default_factory=dict[Item, Source])
    """Of the items that were listed, as far as they are read."""

    def _prepare_form(self, agent: Agent, number: int, form: Form, make: Callable[[Any], dict[str, Any]]) -> Step:
        """Return a step in which the agent fills in the form. make: returns fields of its event, for what that says."""
        task = Task(self.turn.question, number, StepCost(find_end=self._find_end_of_work), self.outbox)

        async def fill_in() -> StepResult:
            event, value = await agent.fill_in(task, form)
            if not isinstance(event, ev.AnswerSubmitted):
                return event
            fields: dict[str, Any] = {**make(value), "remember": False}  # the end of the turn has it all
            if "content" in fields:
                return event.model_copy(update=fields | {"citations": ()})
            fields |= {name: getattr(event, name) for name in ("agent_id", "round", "usage", "truncated", "fallback")}
            return ev.ItemsGiven(**fields)

        return partial(self._run_step, agent, task, "items", fill_in)

    def _read_list(self, text: str) -> tuple[Item, ...]:
        """Return the items in a reply; the user is told of those that cannot be read. Raise ActionError."""
        items, unread = read_items(text)
        if unread:
            self._notify(f"{len(unread)} of {len(items) + len(unread)} items were not read: {'; '.join(unread[:3])}")
        return items

    def _merge(self, same: Sequence[Pair] = (), **fields: Any) -> None:
        """Emit the lists as one. same: pairs beside those that code finds. fields: of the event."""
        lists, first = self._lists, len(self.tally.items or ()) + 1
        items = merge_items(lists, [*compare_items(lists, by_kind=self.by_kind)[0], *same], first)
        if self.settings.items.sources:
            items = tuple(map(self._add_sources, items))
        self.outbox.emit(ev.ItemsMerged(round=self.tally.round, items=items, **fields))

    def _add_sources(self, item: UnionItem) -> UnionItem:
        sources = [self.sources.get(own, Source(own.where, problem=_NOT_READ)) for own in item.versions]
        kinds = {own.kind.casefold() for own in item.versions}
        return replace(item, sources=tuple(sources), disputed=len(kinds) > 1)

    @property
    def _lists(self) -> dict[str, tuple[Item, ...]]:
        """What was listed, in the order of the team: who was first makes no difference. Of lines that the question
        numbers, the places are right."""
        lists, files = self.tally.lists, read_hunks(self.turn.question)
        agents = [agent for agent in dict.fromkeys((*self.tally.agents, *lists)) if agent in lists]
        return {agent: tuple(settle_place(item, files) for item in lists[agent]) for agent in agents}

    @property
    def _can_merge(self) -> bool:
        """Whether there are lists, and nobody is to give another one in this round."""
        tally = self.tally
        return bool(tally.lists) and not tally.remaining_actors() and tally.waiting.next_request is None

    def _build_completion(self, winner: ev.WinnerDecided, judgement: Judgement, form_error: str) -> ev.TurnCompleted:
        completed = TurnRun._build_completion(self, winner, Judgement(None), form_error)
        text, agreement = self._write_result(completed.answer)
        return completed.model_copy(update={"answer": text, "agreement": agreement, "verdict": None})

    def _write_result(self, text: str) -> tuple[str, str]:
        """Return the final answer, and how it came about. text: as the presenter wrote it, or its last answer."""
        raise NotImplementedError  # each shape has its own


@dataclass(slots=True)
class UnionRun(ItemRun):
    """A turn of shape union."""

    shape = "union"
    decided_by: ClassVar[ev.Decision] = "union"

    def _next_actors(self) -> tuple[str, ...]:
        live, number = self.tally.live_agents(), self.tally.round
        return live if number == 0 else tuple(filter(self._list_unseen, live)) if number == 1 else ()

    def _list_unseen(self, agent: str) -> list[UnionItem]:
        """Return the items that the agent has not found itself."""
        return [item for item in self.tally.items or () if agent not in item.found_by]

    def _prepare_step(self, agent: Agent, number: int, *, final: bool) -> Step:
        config = self.settings.items
        if number == 1:
            also = {"places": config.places, "suggestions": not self.by_kind, "sources": config.sources}
            write = partial(prompts.build_items_prompt, task=config.task, kinds=config.kinds, **also)
            places = ["place", *(["severity"] * (not config.sources)), "evidence"] * config.places
            names = ["title", *places, "reason", *([] if self.by_kind else ["suggestion"])]
            schema = build_list_schema(*names, kind=_TEXT | {"enum": list(config.kinds)})
            form = Form("items", write, self._read_list, schema)
            return self._prepare_form(agent, number, form, lambda i: {"items": i, "content": write_list(i)})
        items = self._list_unseen(agent.id)
        numbers, shown = [i.number for i in items], partial(write_source, shown=True)
        listed = "\n".join(write_item(i.number, i.item, sources=map(shown, i.sources)) for i in items)
        write = partial(prompts.build_check_prompt, items=listed, task=config.check, sources=config.sources)
        form = Form("check", write, partial(read_checks, numbers=numbers), build_checks_schema(numbers))
        return self._prepare_form(agent, number, form, lambda checks: {"checks": checks})

    async def _end_wave(self) -> None:
        if self.tally.items is not None or not self._can_merge:
            return
        if self.settings.items.sources and not self._asks_no_more:
            from massmem.turn.source_reader import read_sources  # with the readers of all formats

            await self._run_together([partial(read_sources, self.turn, self.agents, self._lists, self.sources)])
        lists, replies = self._lists, list[Reply]()
        items = [one_line(f"{i.where} {i.title}. {i.reason}", _LONGEST) for entries in lists.values() for i in entries]
        pairs = compare_items(lists, by_kind=self.by_kind)[1]
        unsure = [*{(items[i], items[j]): (i, j) for i, j in pairs}.values()]  # what several wrote alike once
        prompt = prompts.build_pairs_prompt([(items[i], items[j]) for i, j in unsure])
        saved, checkers = [items[j] for _, j in unsure], len(self.tally.live_agents()) - 1
        agent = self.agents.get(next(iter(lists)))
        if agent and not self._asks_no_more and is_worth_asking(estimate_tokens(prompt), saved, checkers):
            await self._run_together([partial(self._compare_pairs, agent, prompt, len(unsure), replies)])
        if agent is None or not replies:
            self._merge()
            return
        same: list[Pair] = []
        with suppress(ActionError):  # a reply that cannot be read says of no pair that it is the same
            checks = read_checks(replies[0].text, range(1, len(unsure) + 1))
            same = [unsure[check.item - 1] for check in checks if check.stand == "confirm"]
        self._merge(same, by=agent.id, compared=len(unsure), usage=replies[0].usage)

    async def _compare_pairs(self, agent: Agent, prompt: str, count: int, replies: list[Reply]) -> None:
        await self.outbox.wait_until_stored()
        try:
            message = ChatMessage("user", prompt)
            replies.append(await agent.compare([message], build_checks_schema(range(1, count + 1))))
        except LimitReached:
            pass  # the end of the turn says why
        except MassmemError as e:
            self._notify(f"{agent.name} could not compare items, so that more of them stay apart: {e.message}")

    def _decide_winner(self) -> ev.WinnerDecided:
        tally = self.tally
        if tally.items is None:
            self._merge()
        writer = next(agent for agent in (*tally.live_agents(), *tally.answers) if agent in tally.answers)
        return ev.WinnerDecided(agent_id=writer, votes={}, by=self.decided_by)

    def _needs_presentation(self, winner: ev.WinnerDecided, judgement: Judgement) -> bool:
        return len(self.tally.items or ()) > 1 and self.settings.presentation != "as_is" and not self._asks_no_more

    async def _present(self, agent: Agent, *, report: bool = False) -> None:
        task = Task(self.turn.question, self.tally.round, StepCost(), self.outbox)
        write = partial(prompts.build_overview_prompt, items=self._list, task=self.settings.items.overview)
        form = Form("present", write, str.strip, tools=False)

        async def present() -> Presentation:
            _, text = await agent.fill_in(task, form)
            return Presentation(text, "")

        self.presentation = await self._guard(agent, task.round, "present", task.cost, present)

    @property
    def _list(self) -> str:
        return write_union(self.tally.items or (), len(self.tally.answers), self._name)

    def _write_result(self, text: str) -> tuple[str, str]:
        tally, items = self.tally, self.tally.items or ()
        contested, unread = sum(item.is_contested for item in items), sum(item.is_unread for item in items)
        agreement = f"not compared: {len(tally.answers)} of {len(tally.agents)} agents listed {len(items)} items"
        agreement = agreement.removesuffix("s") if len(items) == 1 else agreement
        agreement += f", {contested} contested" + (f", {unread} not checked against a source" if unread else "")
        judges = {check.agent for item in items for check in item.checks}
        late = [self._name(agent) for agent in tally.agents if agent not in judges and self._list_unseen(agent)]
        agreement += f", not checked by {', '.join(late)}" if late else ""
        return f"{text}\n\n{self._list}" if self.presentation else self._list, agreement


def build_list_schema(*names: str, **fields: Any) -> dict[str, Any]:
    """Return the JSON Schema of a list of items. names: of texts. fields: others."""
    item = build_object_schema(**fields, **dict.fromkeys(names, _TEXT))
    return build_object_schema(items={"type": "array", "items": item, "maxItems": _MOST})


def build_checks_schema(numbers: Sequence[int], **more: Any) -> dict[str, Any]:
    """Return the JSON Schema of what is said of each item with these numbers. more: fields beside it."""
    stand, item = _TEXT | {"enum": ["confirm", "reject", "abstain"]}, {"type": "integer", "enum": list(numbers)}
    check = build_object_schema(item=item, reason=_TEXT, stand=stand)
    return build_object_schema(checks={"type": "array", "items": check, "maxItems": len(numbers)}, **more)
