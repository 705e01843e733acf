"""A turn of shape union: agents list items, code merges them, and each agent judges what it has not found itself.

What is paid is an event: a turn that was cut off goes on from there, and asks nobody twice.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from massmem.core import events as ev
from massmem.core import prompts
from massmem.core.errors import LimitReached, MassmemError
from massmem.core.items import UnionItem, write_list, write_union
from massmem.core.messages import ChatMessage, Usage
from massmem.tools.actions import ActionError, build_object_schema
from massmem.tools.item_form import read_checks, read_items
from massmem.turn.agent import Agent, Presentation, StepResult
from massmem.turn.coordinator import TurnRun
from massmem.turn.merging import Pair, compare_items, is_worth_asking, merge_items, read_same, write_pairs
from massmem.turn.request import Filled, Form, StepCost, Task

_TEXT = {"type": "string"}
_MOST = 30
"""Items of a list, for models that are held to a schema: small ones write until they are stopped."""


@dataclass(slots=True)
class ItemRun(TurnRun):
    """What the shapes with items have in common."""

    def _prepare_form(
        self, agent: Agent, number: int, step: ev.Step, form: Form, make: Callable[[Agent, int, Filled], StepResult]
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        """Return a step in which the agent fills in the form. make: returns its event."""
        task = Task(self.turn.question, number, StepCost(find_end=self._find_end_of_work), self.outbox)

        async def fill_in() -> StepResult:
            filled = await agent.fill_in(task, form)
            return make(agent, number, filled) if isinstance(filled, Filled) else filled

        return partial(self._run_step, agent, task, step, fill_in)

    def _merge(self, same: Sequence[Pair] = (), **fields: Any) -> None:
        """Emit the lists as one. fields: of the event."""
        lists, count = self.tally.lists, len(self.tally.items or ())
        certain = compare_items(lists).same
        items = merge_items(lists, [*certain, *same])
        numbered = tuple(replace(item, number=item.number + count) for item in items)
        self.outbox.emit(ev.ItemsMerged(round=self.tally.round, items=numbered, **fields))

    @property
    def _is_round_over(self) -> bool:
        """Whether everybody has acted, and what they have listed can be merged."""
        tally = self.tally
        return bool(tally.lists) and not tally.remaining_actors() and tally.waiting.next_request is None

    def _build_completed(self, winner: str, answer: str, agreement: str) -> ev.TurnCompleted:
        written = self.presentation
        usage = self.tally.usage + self.unreported_usage
        own = self.tally.answers[winner]
        return ev.TurnCompleted(
            winner=winner,
            winner_name=self.names.get(winner, ""),
            answer=answer,
            reasoning="" if written is None else written.reasoning,
            presented=written is not None,
            usage=usage if written is None else usage + written.usage,
            limit=self.limit,
            agreement=agreement,
            verdict=None,
            truncated=own.truncated if written is None else written.truncated,
            work_cut=own.work_cut,
            fallback=own.fallback if written is None else written.fallback,
        )


@dataclass(slots=True)
class UnionRun(ItemRun):
    """A turn of shape union."""

    def _next_actors(self) -> tuple[str, ...]:
        tally = self.tally
        if tally.round == 0:
            return tally.live_agents()
        return tuple(agent for agent in tally.live_agents() if self._list_unseen(agent)) if tally.round == 1 else ()

    def _list_unseen(self, agent: str) -> list[UnionItem]:
        """Return the items that the agent has not found itself."""
        return [item for item in self.tally.items or () if agent not in item.found_by]

    def _prepare_step(self, agent: Agent, number: int, *, final: bool) -> Callable[[], Coroutine[Any, Any, None]]:
        form = self.settings.items
        if number == 1:
            write = partial(prompts.build_items_prompt, task=form.task, kinds=form.kinds, places=form.places)
            schema = build_items_schema(form.kinds, places=form.places)
            return self._prepare_form(agent, number, "answer", Form("items", write, read_items, schema), self._answer)
        items = self._list_unseen(agent.id)
        numbers, listed = (
            [item.number for item in items],
            write_list([i.item for i in items], [i.number for i in items]),
        )
        write = partial(prompts.build_check_prompt, items=listed, task=form.check)
        check = Form("check", write, partial(read_checks, numbers=numbers), build_checks_schema(numbers))
        return self._prepare_form(agent, number, "check", check, self._check)

    def _answer(self, agent: Agent, number: int, filled: Filled) -> ev.AnswerSubmitted:
        items, unread = filled.value
        if unread:
            self._notify(f"{agent.name} listed {len(unread)} more that could not be read: {'; '.join(unread[:3])}")
        return ev.AnswerSubmitted(
            agent_id=agent.id,
            round=number,
            number=0,
            content=write_list(items),
            items=items,
            unread=unread,
            remember=False,  # the merged list has it
            reasoning=filled.reasoning,
            usage=filled.usage,
            truncated=filled.truncated,
            work_cut=filled.work_cut,
            fallback=filled.fallback,
        )

    def _check(self, agent: Agent, number: int, filled: Filled) -> ev.ItemsChecked:
        return ev.ItemsChecked(
            agent_id=agent.id,
            round=number,
            checks=filled.value,
            remember=False,
            usage=filled.usage,
            truncated=filled.truncated,
            fallback=filled.fallback,
        )

    def _complete_cut_answer(self, answer: ev.AnswerSubmitted) -> ev.AnswerSubmitted:
        try:
            items, unread = read_items(answer.content)
        except ActionError:
            items, unread = (), (answer.content[:200],)
        changes = {"content": write_list(items), "items": items, "unread": unread, "remember": False}
        return answer.model_copy(update=changes)

    async def _end_wave(self) -> None:
        if self.tally.items is not None or not self._is_round_over:
            return
        lists = self.tally.lists
        unsure = compare_items(lists).unsure
        texts, comparer = write_pairs(unsure, lists), self.agents[next(iter(lists))]
        messages = prompts.build_pairs_request(texts)
        checkers = len(self.tally.live_agents()) - 1
        if self._asks_no_more or not is_worth_asking([m.content for m in messages], texts, checkers):
            self._merge()
            return
        replies: list[tuple[str, Usage]] = []
        await self._run_together([partial(self._compare_pairs, comparer, messages, len(texts), replies)])
        text, usage = replies[0] if replies else ("", Usage())
        fields = {"by": comparer.id, "compared": len(unsure), "usage": usage} if replies else {}
        self._merge(read_same(text, unsure), **fields)

    async def _compare_pairs(
        self, agent: Agent, messages: Sequence[ChatMessage], count: int, replies: list[tuple[str, Usage]]
    ) -> None:
        await self.outbox.wait_until_stored()
        try:
            reply = await agent.compare(
                messages, build_checks_schema(range(1, count + 1), "pairs", ("same", "different"))
            )
            replies.append((reply.text, reply.usage))
        except LimitReached:
            pass  # the end of the turn says why
        except MassmemError as e:
            self._notify(f"{agent.name} could not compare items, so that more of them stay apart: {e.message}")

    def _decide_winner(self) -> ev.WinnerDecided:
        tally = self.tally
        if tally.items is None:
            self._merge()
        writer = next(agent for agent in (*tally.live_agents(), *tally.answers) if agent in tally.answers)
        return ev.WinnerDecided(agent_id=writer, votes={}, by="union")

    async def conclude(self) -> None:
        """Let the presenter write a summary, where there is something to sum up, and end the turn with the list."""
        tally, winner = self.tally, self.tally.winner
        if winner is None:
            return
        items, name = tally.items or (), self._name(winner.agent_id)
        listed = write_union(items, len(tally.answers), self._name)
        presenter = self.agents.get(winner.agent_id)
        is_wanted = len(items) > 1 and self.settings.presentation != "as_is" and not self._asks_no_more
        if presenter is not None and is_wanted:
            await self._run_together([partial(self._summarise, presenter, listed)])
            if self.presentation is None and not self._asks_no_more:
                self._notify(f"{name} could not write the summary; the list is shown without it")
        summary = "" if self.presentation is None else f"{self.presentation.text.strip()}\n\n"
        contested = sum(bool(item.rejected_by) for item in items)
        agreement = (
            f"not compared: {len(tally.answers)} of {len(tally.agents)} agents listed {len(items)} items, "
            f"{contested} of them contested"
        )
        self.outbox.emit(self._build_completed(winner.agent_id, summary + listed, agreement))

    async def _summarise(self, agent: Agent, listed: str) -> None:
        write = partial(prompts.build_summary_of_items_prompt, items=listed)
        task = Task(self.turn.question, self.tally.round, StepCost(), self.outbox)

        async def present() -> Presentation:
            filled = await agent.fill_in(task, Form("present", write, str.strip, tools=False))
            assert isinstance(filled, Filled)  # without tools nothing is asked of the user
            return Presentation(filled.text, filled.reasoning, filled.usage, filled.truncated, fallback=filled.fallback)

        self.presentation = await self._guard(agent, task.round, "present", task.cost, present)


def build_items_schema(kinds: Sequence[str], *, places: bool) -> dict[str, Any]:
    """Return the JSON Schema of a list of items. kinds: what an item can be."""
    names = [
        "title",
        *(["place", "severity"] if places else []),
        "reason",
        *(["evidence"] if places else []),
        "suggestion",
    ]
    fields: dict[str, Any] = {"kind": {"type": "string", "enum": list(kinds)}} if len(kinds) > 1 else {}
    fields |= dict.fromkeys(names, _TEXT)
    if places:
        fields["severity"] = {"type": "string", "enum": ["high", "medium", "low", "none"]}
    return build_object_schema(items={"type": "array", "items": build_object_schema(**fields), "maxItems": _MOST})


def build_checks_schema(
    numbers: Sequence[int], name: str = "checks", stands: Sequence[str] = ("confirm", "reject", "abstain"), **more: Any
) -> dict[str, Any]:
    """Return the JSON Schema of what is said of each item with these numbers. more: fields beside it."""
    stand, number = {"type": "string", "enum": list(stands)}, {"type": "integer", "enum": list(numbers)}
    check = build_object_schema(item=number, reason=_TEXT, stand=stand)
    checks = {"type": "array", "items": check, "maxItems": len(numbers)}
    return build_object_schema(**{name: checks}, **more)
