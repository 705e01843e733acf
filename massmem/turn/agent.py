"""One agent: what it is sent in each step of a turn, and what its reply means."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from massmem import prompts
from massmem.config.models import AgentConfig
from massmem.errors import NotAnActionError
from massmem.events import AgentStarted, AnswerSubmitted, BallotCast, ParamRequested, ToolCalled, ToolReturned
from massmem.messages import Candidate, ChatMessage, ToolCall, clean_text
from massmem.providers.base import ChatProvider
from massmem.replies import Reply
from massmem.tools.ask_user import NAME as ASK_USER
from massmem.tools.ask_user import AskError, Asking, AskUser, ask_tool, read_request
from massmem.tools.workflow import (
    ACTIONS,
    Action,
    ActionError,
    NewAnswer,
    Vote,
    read_action,
    workflow_schema,
    workflow_tools,
)
from massmem.tools.written import call_schemas, decision_schema, described
from massmem.turn.context import Context, Task
from massmem.turn.sender import Progress, Sender, Spent
from massmem.turn.tool_loop import Hand, ToolLoop

ToolEvent = ToolCalled | ToolReturned

_REPAIR_EXCERPT = 2_000
_FIRST_ROUNDS = 2


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
        self,
        config: AgentConfig,
        provider: ChatProvider,
        context: Context,
        asking: Asking | None = None,
        hand: Hand | None = None,
    ) -> None:
        """asking None: the user is not asked, and has given nothing. hand None: there are no tools."""
        self.id = config.id
        self._provider = provider
        self._context = context
        self._sender = Sender(config, provider, context)
        self._asking = asking or Asking()
        self._hand = hand or Hand()

    @property
    def _native(self) -> bool:
        return self._provider.native_tools

    async def answer(
        self, question: str, round_: int, spent: Spent
    ) -> AsyncGenerator[Progress | ToolEvent | AnswerSubmitted | ParamRequested, None]:
        """Answer the question alone, with tools, or ask the user for what is missing; one repair is allowed for that.

        The number of an answer is left 0 for the coordinator.
        """
        yield AgentStarted(agent_id=self.id, round=round_, step="answer")
        await self._context.begin(question)
        tools, repair = self._tools(round_, spent), tuple[ChatMessage, ...]()
        async for event in tools.settle():
            yield event
        while True:
            reply, deciding = Reply(), self._decides(tools)
            task = self._decision(question, tools) if deciding else self._answer(question, tools, repair)
            async with aclosing(self._sender.send(task, round_, reply, spent)) as progress:
                async for event in progress:
                    yield event
            if calls := self._calls(tools, reply, ASK_USER):
                async with aclosing(tools.run(calls, reply, spent)) as used:
                    async for event in used:
                        yield event
                continue
            if deciding:
                tools.close()
                continue
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
    ) -> AsyncGenerator[Progress | ToolEvent | AnswerSubmitted | BallotCast | ParamRequested, None]:
        """Vote for one of the candidates, or, unless `final`, submit a better answer or ask the user; one repair.

        Tools may be used before.
        """
        yield AgentStarted(agent_id=self.id, round=round_, step="vote")
        # In each round after a restart, which is every round from the third on, to bring back what it wrote before.
        await self._context.begin(question, again=round_ > _FIRST_ROUNDS)
        labels = [c.label for c in candidates]
        tools, repair = self._tools(round_, spent), tuple[ChatMessage, ...]()
        async for event in tools.settle():
            yield event
        while True:
            reply = Reply()
            task = self._action(question, candidates, (tools, repair), final=final)
            async with aclosing(self._sender.send(task, round_, reply, spent)) as progress:
                async for event in progress:
                    yield event
            if calls := self._calls(tools, reply, *ACTIONS):
                async with aclosing(tools.run(calls, reply, spent)) as used:
                    async for event in used:
                        yield event
                continue
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
        await self._context.begin(question)
        own = next(c.label for c in candidates if c.agent_id == self.id)
        told = self._told(question)
        task = Task("present", question, lambda shown: prompts.present_prompt(told, shown, own), tuple(candidates))
        async with aclosing(self._sender.send(task, round_, reply, spent)) as progress:
            async for event in progress:
                yield event
        _not_empty(reply)

    def _told(self, question: str) -> str:
        """The question with what the user has said since."""
        return prompts.with_given(question, self._asking.known, sorted(self._asking.given_up))

    def _tools(self, round_: int, spent: Spent) -> ToolLoop:
        tools = ToolLoop(self.id, self._hand, round_, self._context, native=self._native)
        tools.begin(spent)
        return tools

    def _calls(self, tools: ToolLoop, reply: Reply, *actions: str) -> list[ToolCall]:
        """The calls of tools in a reply; none when it acts as well, which ends the step."""
        calls = tools.calls_in(reply)
        return [] if any(call.name in actions for call in calls) else calls

    def _decides(self, tools: ToolLoop) -> bool:
        """A model without tool calls says first, in a request of its own, whether it needs one."""
        return not self._native and bool(tools.specs)

    def _decision(self, question: str, tools: ToolLoop) -> Task:
        told = prompts.tools_prompt(described(tools.specs), self._told(question))
        extra = _ending(tools.messages, prompts.enough_prompt(question))
        return Task("answer", question, lambda _: told, extra=extra, schema=decision_schema(tools.specs))

    def _answer(self, question: str, tools: ToolLoop, repair: Sequence[ChatMessage]) -> Task:
        native, asking, extra = self._native, self._asking, tools.messages
        ask = asking.described if asking.offered else None
        told = prompts.answer_prompt(self._told(question), tools=native, ask=ask)
        if not native:
            extra = _ending(extra, prompts.after_tools(question))
        offered = (ask_tool(asking),) if native and asking.offered else ()
        # Where earlier messages call tools these are named to the last; they are closed when they are used up.
        named = tools.specs or (tools.all if native and tools.used else ())
        return Task(
            "answer",
            question,
            lambda _: told,
            extra=(*extra, *repair),
            tools=(*offered, *named) if native else (),
            optional=True,
            closed=not offered and not tools.specs and bool(named),
        )

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
            return _Unusable(str(e), prompts.repair_prompt(str(e), tools=self._native))
        return self._unless_known(action) if isinstance(action, AskUser) else action

    def _unless_known(self, request: AskUser) -> AskUser | _Unusable:
        """Nobody is asked twice: an agent that missed a value in its prompt is given it."""
        name, known = request.param, self._asking.known
        if name not in known:
            return request
        return _Unusable(f"{name} is known", prompts.known_prompt(name, known[name]))

    def _action(
        self,
        question: str,
        candidates: Sequence[Candidate],
        so_far: tuple[ToolLoop, Sequence[ChatMessage]],
        *,
        final: bool,
    ) -> Task:
        native, told = self._native, self._told(question)
        tools, repair = so_far
        labels = [c.label for c in candidates]
        asking = self._asking if self._asking.offered and not final else None
        ask = asking and asking.described
        check = described(tools.specs) if tools.specs and not native else ""
        return Task(
            "vote",
            question,
            lambda shown: prompts.vote_prompt(told, shown, final=final, tools=native, ask=ask, check=check),
            tuple(candidates),
            (*tools.messages, *repair),
            (*workflow_tools(labels, final=final, asking=asking), *tools.specs) if native else (),
            None if native else workflow_schema(labels, final=final, asking=asking, calls=call_schemas(tools.specs)),
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


def _ending(messages: tuple[ChatMessage, ...], text: str) -> tuple[ChatMessage, ...]:
    """The messages, if there are any, with a text below the last of them."""
    if not messages:
        return ()
    return (*messages[:-1], replace(messages[-1], content=f"{messages[-1].content}\n\n{text}"))


def _not_empty(reply: Reply) -> str:
    text = reply.text.strip()
    if not text:
        raise NotAnActionError(
            "the model sent an empty reply", "raise max_tokens if the model spends them on reasoning"
        )
    return text
