"""One agent: what it is sent in each step of a turn, and what its reply means."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from massmem import prompts
from massmem.config.models import AgentConfig
from massmem.context import Context, Task
from massmem.errors import ContextOverflow, LimitReached, NotAnActionError, ProviderError
from massmem.events import (
    AgentDelta,
    AgentRetrying,
    AgentStarted,
    AnswerSubmitted,
    BallotCast,
    ContextCompressed,
    ContextMeasured,
    ParamRequested,
)
from massmem.memory.tokens import estimate_tokens
from massmem.messages import Candidate, ChatMessage, ChatRequest, Usage, clean_text
from massmem.providers.base import ChatProvider
from massmem.providers.truncation import prompt_truncated, truncated
from massmem.replies import ReasoningChunk, Reply, RetryChunk, TextChunk
from massmem.tools.ask_user import AskError, Asking, AskUser, ask_tool, read_request
from massmem.tools.workflow import Action, ActionError, NewAnswer, Vote, read_action, workflow_schema, workflow_tools

Progress = AgentStarted | AgentDelta | AgentRetrying | ContextCompressed | ContextMeasured

_REPAIR_EXCERPT = 2_000
_FIRST_ROUNDS = 2


@dataclass(slots=True)
class Spent:
    """Tokens used by one step so far; still right when the step fails half-way."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class _Unusable:
    """A reply that is no action. problem: for the log; told: to the agent, for its one repair."""

    problem: str
    told: str


class Agent:
    """A configured model that answers, votes and presents, for one turn.

    Every step is an async generator: progress events, then the result as its last item. Raises ProviderError.
    """

    def __init__(
        self, config: AgentConfig, provider: ChatProvider, context: Context, asking: Asking | None = None
    ) -> None:
        """asking None: the user is not asked, and has given nothing."""
        self.id = config.id
        self._config = config
        self._provider = provider
        self._context = context
        self._asking = asking or Asking()

    async def answer(
        self, question: str, round_: int, spent: Spent
    ) -> AsyncGenerator[Progress | AnswerSubmitted | ParamRequested, None]:
        """Answer the question alone, or ask the user for what is missing; one repair is allowed for that.

        The number of an answer is left 0 for the coordinator.
        """
        yield AgentStarted(agent_id=self.id, round=round_, step="answer")
        await self._context.remember(question)
        repair: tuple[ChatMessage, ...] = ()
        while True:
            reply = Reply()
            async with aclosing(self._send(self._answer(question, repair), round_, reply, spent)) as progress:
                async for event in progress:
                    yield event
            request = self._request_in(reply)
            if not isinstance(request, _Unusable):
                break
            if repair:
                raise NotAnActionError(f"{self.id} asked the user in vain: {request.problem}", partial=reply.text)
            repair = self._repair(reply, request.told)
        if request is None:
            yield self._answered(round_, _not_empty(reply), reply, spent)
        else:
            yield self._asked(round_, request, reply, spent)

    async def act(
        self, question: str, round_: int, candidates: Sequence[Candidate], spent: Spent, *, final: bool
    ) -> AsyncGenerator[Progress | AnswerSubmitted | BallotCast | ParamRequested, None]:
        """Vote for one of the candidates, or, unless `final`, submit a better answer or ask the user; one repair."""
        yield AgentStarted(agent_id=self.id, round=round_, step="vote")
        # In each round after a restart, which is every round from the third on, to bring back what it wrote before.
        await self._context.remember(question, again=round_ > _FIRST_ROUNDS)
        labels = [c.label for c in candidates]
        repair: tuple[ChatMessage, ...] = ()
        while True:
            reply = Reply()
            task = self._action(question, candidates, repair, final=final)
            async with aclosing(self._send(task, round_, reply, spent)) as progress:
                async for event in progress:
                    yield event
            action = self._action_in(reply, labels, final=final)
            if not isinstance(action, _Unusable):
                break
            if repair:
                raise NotAnActionError(f"{self.id} did not act: {action.problem}", partial=reply.text)
            repair = self._repair(reply, action.told)
        yield self._acted(round_, action, candidates, reply, spent)

    async def present(
        self, question: str, round_: int, candidates: Sequence[Candidate], reply: Reply, spent: Spent
    ) -> AsyncGenerator[Progress, None]:
        """Write the final answer from all candidates, of which one is this agent's own; `reply` holds it afterwards."""
        yield AgentStarted(agent_id=self.id, round=round_, step="present")
        await self._context.remember(question)
        own = next(c.label for c in candidates if c.agent_id == self.id)
        told = self._told(question)
        task = Task("present", question, lambda shown: prompts.present_prompt(told, shown, own), tuple(candidates))
        async with aclosing(self._send(task, round_, reply, spent)) as progress:
            async for event in progress:
                yield event
        _not_empty(reply)

    async def _send(self, task: Task, round_: int, reply: Reply, spent: Spent) -> AsyncGenerator[Progress, None]:
        """Send a step's request, made to fit; when it is refused nevertheless, once more, and smaller."""
        if compressed := await self._context.fit(task, round_):
            spent.usage += compressed.usage
            yield compressed
        try:
            async with aclosing(self._reply(task, round_, reply, spent)) as progress:
                async for event in progress:
                    yield event
            return
        except ContextOverflow as e:
            compressed = await self._context.overflowed(task, round_, e, reply)
            again = RetryChunk(e.message, 0.0, 1)
        spent.usage += compressed.usage
        yield compressed
        yield AgentRetrying(agent_id=self.id, round=round_, error=again.error, delay=again.delay, attempt=again.attempt)
        reply.feed(again)
        try:
            async with aclosing(self._reply(task, round_, reply, spent)) as progress:
                async for event in progress:
                    yield event
        except ContextOverflow as e:
            raise self._context.too_large(task) from e

    async def _reply(self, task: Task, round_: int, reply: Reply, spent: Spent) -> AsyncGenerator[Progress, None]:
        """Send one request, and when its reply comes near the end of the window, a second one to end it."""
        begun = Reply()
        request, may_stop = self._context.request(task), self._context.can_wrap_up(task)
        async with aclosing(self._stream(request, round_, begun, spent, may_stop=may_stop)) as progress:
            async for event in progress:
                reply.text, reply.reasoning = begun.text, begun.reasoning
                yield event
        if begun.finish is None:
            request, compressed = self._context.wrap_up(task, round_, begun.text)
            yield compressed
            ended = Reply()
            async with aclosing(self._stream(request, round_, ended, spent)) as progress:
                async for event in progress:
                    yield event
            begun.text += ended.text
            begun.finish, begun.usage = ended.finish, ended.usage
        reply.text, reply.reasoning, reply.tool_calls = begun.text, begun.reasoning, begun.tool_calls
        reply.finish, reply.usage = begun.finish, begun.usage

    async def _stream(
        self, request: ChatRequest, round_: int, reply: Reply, spent: Spent, *, may_stop: bool = False
    ) -> AsyncGenerator[Progress, None]:
        """Fill `reply` and add what it cost to `spent`. may_stop: leave it without a finish when the window is full."""
        retries = 0
        try:
            async with aclosing(self._provider.stream(request)) as chunks:
                async for chunk in chunks:
                    reply.feed(chunk)
                    match chunk:
                        case TextChunk(text) if text:
                            yield self._delta(round_, text)
                            if self._context.streamed(text) and may_stop:
                                break
                        case ReasoningChunk(text) if text:
                            self._context.streamed(text, reasoning=True)
                            yield AgentDelta(agent_id=self.id, round=round_, channel="reasoning", text=clean_text(text))
                        case RetryChunk(error, delay, attempt):
                            retries += 1
                            yield AgentRetrying(
                                agent_id=self.id, round=round_, error=error, delay=delay, attempt=attempt
                            )
                        case _:
                            pass
        except (ProviderError, LimitReached, asyncio.CancelledError) as e:
            spent.usage += _unended(request, e, reply.text + reply.reasoning, retries + 1)
            raise
        known = reply.usage.prompt or reply.usage.completion
        used = reply.usage if known else _estimated(request, reply.text + reply.reasoning, retries + 1)
        spent.usage += used
        reply.text, reply.reasoning = clean_text(reply.text), clean_text(reply.reasoning)
        expected = self._context.at_least
        if used.reported and truncated(expected, used.prompt):
            raise prompt_truncated(self._config.backend, expected, used.prompt)
        yield self._context.measured(round_, used)

    def _delta(self, round_: int, text: str) -> AgentDelta:
        return AgentDelta(agent_id=self.id, round=round_, channel="text", text=clean_text(text))

    def _told(self, question: str) -> str:
        """The question with what the user has said since."""
        return prompts.with_given(question, self._asking.known, sorted(self._asking.given_up))

    def _answer(self, question: str, repair: Sequence[ChatMessage]) -> Task:
        tools, asking = self._provider.native_tools, self._asking
        ask = asking.described if asking.offered else None
        told = prompts.answer_prompt(self._told(question), tools=tools, ask=ask)
        offered = (ask_tool(asking),) if tools and asking.offered else ()
        return Task("answer", question, lambda _: told, extra=tuple(repair), tools=offered, optional=True)

    def _request_in(self, reply: Reply) -> AskUser | _Unusable | None:
        """What the reply asks of the user; None: it is an answer."""
        if not self._asking.offered:
            return None
        try:
            request = read_request(reply, self._asking)
        except AskError as e:
            return _Unusable(str(e), prompts.ask_again_prompt(str(e)))
        return request and self._unless_known(request)

    def _action_in(self, reply: Reply, labels: Sequence[str], *, final: bool) -> Action | _Unusable:
        try:
            asking = self._asking if self._asking.offered else None
            action = read_action(reply, labels, final=final, asking=asking)
        except ActionError as e:
            return _Unusable(str(e), prompts.repair_prompt(str(e), tools=self._provider.native_tools))
        return self._unless_known(action) if isinstance(action, AskUser) else action

    def _unless_known(self, request: AskUser) -> AskUser | _Unusable:
        """Nobody is asked twice: an agent that missed a value in its prompt is given it."""
        name, known = request.param, self._asking.known
        if name not in known:
            return request
        return _Unusable(f"{name} is known", prompts.known_prompt(name, known[name]))

    def _action(
        self, question: str, candidates: Sequence[Candidate], repair: Sequence[ChatMessage], *, final: bool
    ) -> Task:
        tools, told = self._provider.native_tools, self._told(question)
        labels = [c.label for c in candidates]
        asking = self._asking if self._asking.offered and not final else None
        ask = asking and asking.described
        return Task(
            "vote",
            question,
            lambda shown: prompts.vote_prompt(told, shown, final=final, tools=tools, ask=ask),
            tuple(candidates),
            tuple(repair),
            workflow_tools(labels, final=final, asking=asking) if tools else (),
            None if tools else workflow_schema(labels, final=final, asking=asking),
        )

    def _repair(self, reply: Reply, text: str) -> tuple[ChatMessage, ...]:
        """The reply that could not be used, and what the agent is told about it. A tool call needs its result."""
        said = reply.text[:_REPAIR_EXCERPT]
        if not reply.tool_calls:
            return (ChatMessage("assistant", said or "(nothing)"), ChatMessage("user", text))
        calls = tuple(reply.tool_calls)
        results = (ChatMessage("tool", text, tool_call_id=call.id) for call in calls)
        return (ChatMessage("assistant", said, tool_calls=calls), *results)

    def _acted(
        self, round_: int, action: Action, candidates: Sequence[Candidate], reply: Reply, spent: Spent
    ) -> AnswerSubmitted | BallotCast | ParamRequested:
        match action:
            case AskUser():
                return self._asked(round_, action, reply, spent)
            case NewAnswer(content):
                return self._answered(round_, clean_text(content), reply, spent)
            case Vote(choice, reason):
                return BallotCast(
                    agent_id=self.id,
                    round=round_,
                    choice=next(c.agent_id for c in candidates if c.label == choice),
                    reason=clean_text(reason),
                    reasoning=reply.reasoning,
                    usage=spent.usage,
                )

    def _asked(self, round_: int, request: AskUser, reply: Reply, spent: Spent) -> ParamRequested:
        return ParamRequested(
            agent_id=self.id,
            round=round_,
            param=request.param,
            prompt=request.prompt,
            reasoning=reply.reasoning,
            usage=spent.usage,
        )

    def _answered(self, round_: int, content: str, reply: Reply, spent: Spent) -> AnswerSubmitted:
        return AnswerSubmitted(
            agent_id=self.id, round=round_, number=0, content=content, reasoning=reply.reasoning, usage=spent.usage
        )


def _not_empty(reply: Reply) -> str:
    text = reply.text.strip()
    if not text:
        raise NotAnActionError(
            "the model sent an empty reply", "raise max_tokens if the model spends them on reasoning"
        )
    return text


def _unended(request: ChatRequest, error: BaseException, reply: str, requests: int) -> Usage:
    """What a request cost that did not end well; one that a limit held back was not sent."""
    if isinstance(error, LimitReached) and not reply:
        return Usage()
    partial = error.partial if isinstance(error, ProviderError) else ""
    return _estimated(request, partial or reply, requests)


def _estimated(request: ChatRequest, reply: str, requests: int) -> Usage:
    prompt = sum(estimate_tokens(m.content) for m in request.messages)
    return Usage(prompt, estimate_tokens(reply), requests=requests, reported=False)
