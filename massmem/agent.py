"""One agent: what it is sent in each step of a turn, and what its reply means."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from massmem import prompts
from massmem.config.models import AgentConfig
from massmem.errors import NotAnActionError, ProviderError
from massmem.events import AgentDelta, AgentRetrying, AgentStarted, AnswerSubmitted, BallotCast
from massmem.memory.conversation import estimate_tokens
from massmem.messages import Candidate, ChatMessage, ChatRequest, Purpose, Usage, clean_text
from massmem.providers.base import ChatProvider
from massmem.replies import ReasoningChunk, Reply, RetryChunk, TextChunk
from massmem.tools.workflow import Action, ActionError, NewAnswer, Vote, read_action, workflow_schema, workflow_tools

Progress = AgentStarted | AgentDelta | AgentRetrying

_REPAIR_EXCERPT = 2_000
_FIRST_ROUNDS = 2


@dataclass(slots=True)
class Spent:
    """Tokens used by one step so far; still right when the step fails half-way."""

    usage: Usage


Recall = Callable[[str], Awaitable[str]]
"""From the question to the lines that the agent's memory has on it, "" for none. Never fails: it says so elsewhere."""


class Agent:
    """A configured model that answers, votes and presents, for one turn.

    Every step is an async generator: progress events, then the result as its last item. Raises ProviderError.
    """

    def __init__(
        self,
        config: AgentConfig,
        provider: ChatProvider,
        history: Sequence[ChatMessage] = (),
        recall: Recall | None = None,
    ) -> None:
        """history: what the agent is shown of earlier turns, oldest first. recall None: it has no memory."""
        self.id = config.id
        self._config = config
        self._provider = provider
        self._history = tuple(history)
        self._recall = recall
        self._system: str | None = None

    async def answer(
        self, question: str, round_: int, spent: Spent
    ) -> AsyncGenerator[Progress | AnswerSubmitted, None]:
        """Answer the question alone. The event's `number` is left 0 for the coordinator."""
        yield AgentStarted(agent_id=self.id, round=round_, step="answer")
        await self._remember(question)
        reply = Reply()
        async with aclosing(self._stream(self._request("answer", question), round_, reply, spent)) as progress:
            async for event in progress:
                yield event
        content = _not_empty(reply)
        yield self._answered(round_, content, reply, spent)

    async def act(
        self, question: str, round_: int, candidates: Sequence[Candidate], spent: Spent, *, final: bool
    ) -> AsyncGenerator[Progress | AnswerSubmitted | BallotCast, None]:
        """Vote for one of the candidates, or, unless `final`, submit a better answer; one repair is allowed."""
        yield AgentStarted(agent_id=self.id, round=round_, step="vote")
        await self._remember(question, again=round_ > _FIRST_ROUNDS)
        prompt = prompts.vote_prompt(question, candidates, final=final, tools=self._provider.native_tools)
        labels = [c.label for c in candidates]
        repair: tuple[ChatMessage, ...] = ()
        while True:
            reply = Reply()
            request = self._action_request(prompt, labels, repair, final=final)
            async with aclosing(self._stream(request, round_, reply, spent)) as progress:
                async for event in progress:
                    yield event
            try:
                action = read_action(reply, labels, final=final)
                break
            except ActionError as e:
                if repair:
                    raise NotAnActionError(f"{self.id} did not act: {e}", partial=reply.text) from e
                repair = self._repair(reply, str(e))
        yield self._acted(round_, action, candidates, reply, spent)

    async def present(
        self, question: str, round_: int, candidates: Sequence[Candidate], reply: Reply, spent: Spent
    ) -> AsyncGenerator[Progress, None]:
        """Write the final answer from all candidates, of which one is this agent's own; `reply` holds it afterwards."""
        yield AgentStarted(agent_id=self.id, round=round_, step="present")
        await self._remember(question)
        own = next(c.label for c in candidates if c.agent_id == self.id)
        request = self._request("present", prompts.present_prompt(question, candidates, own))
        async with aclosing(self._stream(request, round_, reply, spent)) as progress:
            async for event in progress:
                yield event
        _not_empty(reply)

    async def _remember(self, question: str, *, again: bool = False) -> None:
        """Make the system prompt, with what the memory has on the question.

        Recalled once and kept, because a prompt that stays the same is read from the provider's cache; `again` in
        each round after a restart, which is every round from the third on, to bring back what it wrote before.
        """
        if self._system is not None and not again:
            return
        memories = await self._recall(question) if self._recall else ""
        self._system = prompts.system_prompt(self._config.system_message, memories)

    async def _stream(
        self, request: ChatRequest, round_: int, reply: Reply, spent: Spent
    ) -> AsyncGenerator[AgentDelta | AgentRetrying, None]:
        """Send one request, fill `reply` and add what it cost to `spent`."""
        retries = 0
        try:
            async with aclosing(self._provider.stream(request)) as chunks:
                async for chunk in chunks:
                    reply.feed(chunk)
                    match chunk:
                        case TextChunk(text) if text:
                            yield self._delta(round_, text)
                        case ReasoningChunk(text) if text:
                            yield AgentDelta(agent_id=self.id, round=round_, channel="reasoning", text=clean_text(text))
                        case RetryChunk(error, delay, attempt):
                            retries += 1
                            yield AgentRetrying(
                                agent_id=self.id, round=round_, error=error, delay=delay, attempt=attempt
                            )
                        case _:
                            pass
        except ProviderError as e:
            spent.usage += _estimated(request, e.partial or reply.text, retries + 1)
            raise
        known = reply.usage.prompt or reply.usage.completion
        spent.usage += reply.usage if known else _estimated(request, reply.text + reply.reasoning, retries + 1)
        reply.text, reply.reasoning = clean_text(reply.text), clean_text(reply.reasoning)

    def _delta(self, round_: int, text: str) -> AgentDelta:
        return AgentDelta(agent_id=self.id, round=round_, channel="text", text=clean_text(text))

    def _request(self, purpose: Purpose, prompt: str) -> ChatRequest:
        messages = prompts.conversation(self._system or "", self._history, prompt)
        return ChatRequest(messages, purpose, self.id)

    def _action_request(
        self, prompt: str, labels: Sequence[str], repair: Sequence[ChatMessage], *, final: bool
    ) -> ChatRequest:
        messages = prompts.conversation(self._system or "", self._history, prompt, repair)
        if self._provider.native_tools:
            return ChatRequest(messages, "vote", self.id, tools=workflow_tools(labels, final=final))
        return ChatRequest(messages, "vote", self.id, schema=workflow_schema(labels, final=final))

    def _repair(self, reply: Reply, problem: str) -> tuple[ChatMessage, ...]:
        """The reply that could not be used, and what was wrong with it. A tool call needs its result."""
        text = prompts.repair_prompt(problem, tools=self._provider.native_tools)
        said = reply.text[:_REPAIR_EXCERPT]
        if not reply.tool_calls:
            return (ChatMessage("assistant", said or "(nothing)"), ChatMessage("user", text))
        calls = tuple(reply.tool_calls)
        results = (ChatMessage("tool", text, tool_call_id=call.id) for call in calls)
        return (ChatMessage("assistant", said, tool_calls=calls), *results)

    def _acted(
        self, round_: int, action: Action, candidates: Sequence[Candidate], reply: Reply, spent: Spent
    ) -> AnswerSubmitted | BallotCast:
        match action:
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


def _estimated(request: ChatRequest, reply: str, requests: int) -> Usage:
    prompt = sum(estimate_tokens(m.content) for m in request.messages)
    return Usage(prompt, estimate_tokens(reply), requests=requests, reported=False)
