"""One agent in one turn: what it is asked in each step, and what its reply means."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from massmem.config.models import AgentConfig
from massmem.core import events as ev
from massmem.core import prompts
from massmem.core.citations import CitedText, number_sources, number_together
from massmem.core.errors import NotAnActionError, ProviderError, ToolsRefused
from massmem.core.messages import (
    Candidate,
    ChatMessage,
    ChatRequest,
    Citation,
    Purpose,
    Reply,
    ToolChoice,
    ToolSpec,
    clean_text,
)
from massmem.core.report import Report
from massmem.core.reporting import Authors, ReportError, build_report_schema, read_report
from massmem.core.text import one_line
from massmem.core.voting import FIRST_RESTART
from massmem.memory.budget import MeteredProvider
from massmem.providers.base import ask
from massmem.providers.pricing import Price
from massmem.tools.actions import (
    ACTIONS,
    ASK_USER,
    NEW_ANSWER,
    Action,
    ActionError,
    AskContext,
    AskUser,
    NewAnswer,
    Vote,
    build_ask_tool,
    build_call_schemas,
    build_decision_schema,
    build_vote_schema,
    build_vote_tools,
    describe_tools,
    find_ask_request,
    find_object,
    find_written_call,
    parse_object,
    read_action,
    read_content,
    write_calls,
)
from massmem.tools.answer_schema import FormError, native_schema, read_value
from massmem.turn.compressor import AgentContext, Reading, read_question
from massmem.turn.fallback import Fallbacks, drop_pictures
from massmem.turn.prompt_builder import Prompt
from massmem.turn.request import Form, RequestSender, Step, StepCost, Task
from massmem.turn.tool_loop import AgentTools, ToolLoop

StepResult = ev.AnswerSubmitted | ev.BallotCast | ev.ItemsGiven | ev.ParamRequested
"""Of a step of a round."""

_MAX_REASONS, _WINDOW_PER_REASON = 8, 600
"""Criticism that an agent is shown at once, and the tokens of its window for each."""
_WINDOW_PER_CHARACTER = 4
"""Tokens of its window for each character of the presenter's earlier answer."""

_REPORT_LENGTH = 3
"""A report, with the final answer in it, may have so many times the tokens of an answer."""

_MAX_QUOTED = 2_000
"""Characters of a reply that could not be used, which the model is shown again."""


@dataclass(frozen=True, slots=True)
class Presentation:
    """The final answer, as the winner wrote it."""

    text: str
    reasoning: str
    truncated: bool = False
    """The end is missing."""
    citations: tuple[Citation, ...] = ()
    data: Any = None
    """The answer as a JSON value, when it has to fit a schema."""
    fallback: str = ""
    """The fallback that wrote it; "": the winner's own model."""
    report: Report | None = None
    """Who says what, where that was asked for."""


@dataclass(frozen=True, slots=True)
class _FinalAnswer:
    """What a reply says that can be used, see `Presentation`."""

    cited: CitedText
    data: Any = None
    report: Report | None = None


@dataclass(frozen=True, slots=True)
class _Unusable:
    problem: str
    """For the log."""
    repair: str
    """Told to the agent, which may try once more."""


class Agent:
    """A configured model that answers, votes and presents; one step at a time.

    A step emits its work, and returns its result. It raises ProviderError, and NotAnActionError when the reply is no
    action, also after one repair.
    """

    def __init__(
        self,
        config: AgentConfig,
        provider: MeteredProvider,
        context: AgentContext,
        ask_context: AskContext | None = None,
        tools: AgentTools | None = None,
        fallbacks: Fallbacks | None = None,
    ) -> None:
        """ask_context None: the user is not asked for anything.

        fallbacks: models that stand in for its own.
        """
        self.id = config.id
        self.name = config.display_name
        self.config = config
        backend = config.backend
        self.order = f"{backend.model}:{config.system_message}" if backend.type == "local" else ""
        """Agents with the same one read answers in the same order: a model on this machine reads the beginning of their
        prompts once for all. "": the agent has its own."""
        self._calls_tools = True
        """Actions are tool calls; else they are JSON objects, constrained by a schema where the model takes one."""
        self._prompt = context.prompt
        self._memories = ""
        """As they were recalled last: a step that has no room for them drops them from its prompt alone."""
        self._step: Step | None = None
        self._provider = provider
        self.fallbacks = fallbacks or Fallbacks(backend)
        self._question = ""
        """Of the step, as it was asked."""
        self._form: Mapping[str, Any] | None = None
        """Of the final answer, in a step for an answer or a vote."""
        self._readings: dict[str, Reading] = {}
        self._notices: list[ev.Notice] = []
        self._compressor = context.compressor
        self._sender = RequestSender(config, provider, context.compressor)
        self._ask_context = ask_context or AskContext()
        self._tools = tools or AgentTools()
        answers = (event for event in self._tools.events if isinstance(event, ev.AnswerSubmitted))
        self._given = [answer.content for answer in answers if answer.agent_id == config.id]
        """Its answers in the turn."""
        self._journal = context.compressor.journal
        for event in self._tools.events:
            self._journal.feed(event)
        self._summary_round = 0
        """The round in whose work a turn was cut off that this agent resumes; 0: none."""
        self._resume_summary()

    def _resume_summary(self) -> None:
        """Take up the last summary of a turn that was cut off: it was paid for, and stands for what was done."""
        for event in self._tools.events:
            if isinstance(event, ev.ContextCompressed) and event.agent_id == self.id and event.work_until is not None:
                self._summary_round = event.round if event.work_until else 0
                place = "question" if event.work_until else "history"
                self._prompt = replace(self._prompt, summary=event.summary, summary_place=place)

    async def answer(self, task: Task) -> StepResult:
        """Answer the question alone, with tools, or ask the user for what is missing.

        The number of an answer is left 0 for the coordinator.
        """
        step = await self._start("answer", task)
        return await self._act(step, self._ask_for_answer, self._read_answer)

    @property
    def price(self) -> Price:
        return self._provider.price

    async def compare(self, messages: Sequence[ChatMessage], schema: Mapping[str, Any]) -> Reply:
        """Send one request beside the steps, without the conversation. Raises as `ChatProvider.stream`."""
        request = ChatRequest(tuple(messages), "compare", self.id, schema=schema, temperature=0.0)
        return await ask(self._provider, request)

    async def vote(self, task: Task, *, final: bool) -> StepResult:
        """Vote for one of the candidates, or, unless `final`, submit a better answer or ask the user."""
        step = await self._start("vote", task)
        read = partial(self._read_vote, candidates=task.candidates, final=final)
        build = partial(self._ask_for_vote, final=final, criticism=self._select(task.criticism))
        return await self._act(step, build, read, may_ask=not final)

    async def fill_in(self, task: Task, form: Form) -> tuple[StepResult, Any]:
        """Fill in a form, with tools, or ask the user for what is missing. Return an answer, and what it says."""
        step = await self._start(form.purpose, task)
        read = partial(_read_form, form=form, step=step)
        return await self._act(step, partial(self._ask_for_form, form=form), read), step.value

    async def present(self, task: Task) -> Presentation:
        """Write the final answer from all candidates, of which one is this agent's own.

        One that does not fit the task's schema is repaired once.
        """
        step, schema = await self._start("present", task), task.answer_schema
        own = next(candidate.label for candidate in task.candidates if candidate.agent_id == self.id)
        form = None if schema is None else native_schema(schema)

        def build(prompt: Prompt, _tools: ToolLoop) -> Prompt:
            text, criticism = self._add_param_values(prompt.question), self._select(task.criticism)
            replaced = one_line("".join(self._given[-2:-1]), self._compressor.meter.window // _WINDOW_PER_CHARACTER)

            def ask(shown: Sequence[Candidate]) -> str:
                message = prompts.build_present_prompt(text, shown, own, criticism, replaced)
                return message if schema is None else prompts.build_form_prompt(message, schema)

            tools = self._list_spare_tools(self._tools.toolbox.specs) if schema is None else ()
            choice = self._spare_choice if tools and not self._tools.toolbox.specs else "none"
            return replace(prompt.with_message(ask), schema=form, tools=tools, tool_choice=choice)

        async def read(repaired: bool) -> _FinalAnswer | _Unusable:
            text = _require_text(_read_submitted(step.reply))
            if schema is None:
                answer = _remove_frame(NewAnswer(text), step.prompt, repaired=repaired)
                return answer if isinstance(answer, _Unusable) else _FinalAnswer(self.cite(answer.content))
            try:
                data = await asyncio.to_thread(read_value, text, schema)
            except FormError as e:
                return _Unusable(str(e), prompts.build_repair_prompt(str(e), "value"))
            # Brackets of a JSON value are no marks; its texts have the numbers that the agent was shown.
            value = json.dumps(data, ensure_ascii=False, indent=2)
            return _FinalAnswer(CitedText(value, tuple(number_together(task.candidates))), data)

        return await self._write_final_answer(step, build, read)

    def cite(self, text: str) -> CitedText:
        """Return a text of the agent's last reply with its sources."""
        step = self._step
        assert step is not None
        offset = step.reply.text.find(text)
        sources = step.sources if offset < 0 else replace(step.sources, offset=offset, is_written=False)
        cited = number_sources(text, sources, self.id)
        if cited.problem:
            step.outbox.emit(ev.Notice(message=f"{self.name}: {cited.problem}"))
        return cited

    async def report(self, task: Task, authors: Authors) -> Presentation:
        """Write who says what, and the final answer, in one request; a reply that is no report is repaired once."""
        step = await self._start("report", task)
        schema = build_report_schema(task.candidates)

        def build(prompt: Prompt, _tools: ToolLoop) -> Prompt:
            text = self._add_param_values(prompt.question)
            criticism = self._select(task.criticism)
            prompt = prompt.with_message(lambda shown: prompts.build_report_prompt(text, shown, criticism))
            config, window = self._compressor.config, self._compressor.meter.window
            usual = config.backend.max_tokens
            most = usual and max(usual, min(_REPORT_LENGTH * usual, window // 3))
            return replace(prompt, schema=schema, tools=(), tool_choice="none", max_tokens=most)

        async def read(_repaired: bool) -> _FinalAnswer | _Unusable:
            try:
                written = read_report(find_object(step.reply.text), task.candidates, authors)
            except ReportError as e:
                return _Unusable(str(e), prompts.build_repair_prompt(str(e), "value"))
            return _FinalAnswer(self.cite(clean_text(written.answer)), report=written.report)

        return await self._write_final_answer(step, build, read)

    def _select(self, criticism: Sequence[str]) -> Sequence[str]:
        """Return as many of the lines as the model has room for."""
        return criticism[: min(_MAX_REASONS, self._compressor.meter.window // _WINDOW_PER_REASON)]

    async def _write_final_answer(
        self,
        step: Step,
        build: Callable[[Prompt, ToolLoop], Prompt],
        read: "Callable[[bool], Awaitable[_FinalAnswer | _Unusable]]",
    ) -> Presentation:
        """Send the request for the final answer, and once more when its reply cannot be used.

        read: returns what the step's reply says; it is told whether that is the second one.
        """
        loop = ToolLoop(AgentTools(), step, self._journal, self._compressor.meter, native=self._native)
        repaired = False
        while True:
            await self._send(step, build, loop, repaired=repaired)
            written = await read(repaired)
            if isinstance(written, _FinalAnswer):
                break
            if repaired:
                problem = f"{self.name} wrote something else: {written.problem}"
                raise NotAnActionError(problem, partial=step.reply.text)
            self._ask_again(step, written)
            repaired = True
        return Presentation(
            written.cited.text,
            step.reply.reasoning,
            step.reply.is_truncated,
            written.cited.citations,
            written.data,
            self.fallbacks.name,
            written.report,
        )

    async def _start(self, purpose: Purpose, task: Task) -> Step:
        """Begin a step with the prompt that the last one left.

        Memories are recalled once, because a prompt that stays the same is read from the provider's cache, and again
        after a restart, to bring back what the agent wrote in earlier rounds.
        """
        self._question = task.question
        question = await self._read_question(task.question, task.cost)
        self._form = None if purpose == "present" else task.answer_schema
        last = self._prompt if self._step is None else self._step.prompt
        prompt = replace(last.next_step(purpose, question, task.candidates), replaced=tuple(self._given[:-1]))
        if task.round == self._summary_round:  # it is this step that was cut off
            prompt = replace(prompt, summary_place="work")
        self._summary_round = 0
        prompt = await self._compressor.write_journal(prompt)
        if self._step is None or (purpose == "vote" and task.round >= FIRST_RESTART):
            prompt = await self._compressor.recall(prompt, abstain=self._step is None)
            self._memories = prompt.memories
        prompt = replace(prompt, memories=prompt.memories or self._memories)
        self._step = Step(task.round, prompt, task.cost, task.outbox, candidates=task.candidates)
        return self._step

    async def _read_question(self, question: str, cost: StepCost) -> str:
        """Return the question as the model can read it; one that is too large is read in parts, once in a turn."""
        if question not in self._readings:
            compressor = self._compressor
            window = compressor.meter.window
            reading = await read_question(question, self.id, self._provider, compressor.meter, compressor.budget)
            self._readings[question] = reading
            cost.usage += reading.usage
            if reading.parts > 1:
                text = f"{self.id} reads {window:,} tokens at once, so it read the question in {reading.parts} parts"
                self._notices.append(ev.Notice(message=text))
        return self._readings[question].text

    async def _act(
        self,
        step: Step,
        build: Callable[[Prompt, ToolLoop], Prompt],
        read: Callable[[Reply], Action | _Unusable],
        *,
        may_ask: bool = True,
    ) -> StepResult:
        """Send requests and run the tools that the replies call, until a reply is an action; allow one repair.

        may_ask: the user may be asked to allow a call.
        """
        is_vote = step.prompt.purpose == "vote"
        tools = ToolLoop(self._tools, step, self._journal, self._compressor.meter, native=self._native)
        await tools.finish_calls()
        repaired = False
        while True:
            await self._send(step, build, tools, repaired=repaired)
            ends = ACTIONS if is_vote or self._list_spare_tools(()) else (ASK_USER,)
            if calls := tools.find_calls(step.reply, ends):
                if (request := tools.request_permission(calls, may_ask=may_ask)) is not None:
                    return self._to_event(request, step)
                await tools.run(calls)
                continue
            if not (is_vote or self._native or self._writes_calls(step.prompt)) and tools.specs:
                # It was asked whether it needs one.
                tools.close()
                continue
            action = read(step.reply)
            if isinstance(action, NewAnswer):
                action = _remove_frame(action, step.prompt, repaired=repaired)
            if not isinstance(action, _Unusable):
                break
            self._ask_for_repair(action, step, tools, repaired=repaired)
            repaired = True
        return self._to_event(action, step)

    async def _update_work(self, step: Step, tools: ToolLoop) -> ev.Notice | None:
        """Put the newest results into the prompt. Return what the user is told when the work has to end now."""
        if not self._journal.entries:
            return None
        tokens = step.prompt.tokens(self._compressor.meter.buffer) + tools.unshown_tokens
        most = min(tokens, self._compressor.budget.limit)
        notice = tools.end_if_due(step.cost.find_end(self._provider.price, most, step.slowest))
        step.work_cut = None if tools.cut == "answer_now" else tools.cut
        if tools.unshown_tokens:
            room = await self._compressor.find_room_for_results(step.prompt)
            step.prompt = step.prompt.add_work(await tools.take_messages(room))
            step.prompt = await self._compressor.write_journal(step.prompt)
        return notice

    def _ask_for_repair(self, unusable: _Unusable, step: Step, tools: ToolLoop, *, repaired: bool) -> None:
        """Raises NotAnActionError when the reply is itself one after a repair."""
        reply, problem = step.reply, unusable.problem
        if repaired and reply.is_truncated:
            message = f"{self.name} did not act: its reply was cut at the limit of tokens ({problem})"
            raise NotAnActionError(message, "raise the agent's backend.max_tokens", partial=reply.text)
        if repaired:
            raise NotAnActionError(f"{self.name} did not act: {problem}", partial=reply.text)
        self._ask_again(step, unusable)
        if not reply.tool_calls and (step.prompt.purpose == "vote" or find_written_call(reply.text)):
            self._go_on_without_tools(step, tools)

    def _ask_again(self, step: Step, unusable: _Unusable) -> None:
        """Take back the text of the reply, and ask for another one."""
        error = f"its reply cannot be used: {unusable.problem}"
        step.outbox.emit(ev.AgentRetrying(agent_id=self.id, round=step.round, error=error, delay=0.0, attempt=2))
        step.prompt = step.prompt.add_work(_build_repair(step.reply, unusable.repair))

    async def _send(
        self, step: Step, build: Callable[[Prompt, ToolLoop], Prompt], tools: ToolLoop, *, repaired: bool
    ) -> None:
        """Build and send the step's prompt with the newest results, and once more without tools when it is refused.

        When its provider fails for good, the step is built again for the next model of the agent.

        repaired: the last message is about a reply that could not be used.
        """
        if notice := await self._update_work(step, tools):
            self._notices.append(notice)
        while True:
            for notice in self._notices:
                step.outbox.emit(notice)
            self._notices = []
            step.prompt = build(step.prompt, tools)
            if repaired:
                step.prompt = replace(step.prompt, note="")  # it is about what tools gave back
            started = time.monotonic()
            try:
                self.fallbacks.require_reachable()
                await self._sender.send(step)
                self.fallbacks.note_reply()
                step.slowest = max(step.slowest, time.monotonic() - started)
                return
            except ToolsRefused as e:
                if not step.prompt.tools:
                    raise
                retrying = ev.AgentRetrying(agent_id=self.id, round=step.round, error=e.message, delay=0.0, attempt=2)
                step.outbox.emit(retrying)
                self._go_on_without_tools(step, tools)
            except ProviderError as e:
                await self._fall_back(e, step, tools)

    async def _fall_back(self, error: ProviderError, step: Step, tools: ToolLoop) -> None:
        """Let the next model of the agent go on with the step, and the rest of the turn.

        Raises ProviderError: there is none, or the error is none of the provider.
        """
        model = self.fallbacks.take_next(error, step.prompt)
        step.outbox.emit(
            ev.AgentRetrying(
                agent_id=self.id,
                round=step.round,
                error=error.message,
                delay=0.0,
                attempt=1,
                fallback=self.fallbacks.name,
            )
        )
        meter = await model.open_meter()
        self._provider = model.provider
        self._compressor.use_model(model.config, model.provider, meter)
        self._sender = RequestSender(model.config, model.provider, self._compressor)
        self._calls_tools = True
        tools.use_model(meter, native=self._native)
        if model.provider.abilities.vision is False:
            step.prompt = drop_pictures(step.prompt)
        self._readings.clear()  # they are as long as the other model reads
        question = await self._read_question(self._question, step.cost)
        work = step.prompt.work if self._native else write_calls(step.prompt.work)
        step.prompt = replace(
            step.prompt,
            question=question,
            work=work,
            tools=(),
            schema=None,
            tool_choice="required",
            plain=meter.is_small,
        )

    @property
    def _native(self) -> bool:
        """Whether actions and tools are calls."""
        return self._calls_tools and self._provider.abilities.tools

    def _writes_calls(self, prompt: Prompt) -> bool:
        """Whether the model may call a tool in place of its answer, which is text."""
        return prompt.purpose == "answer" and self._provider.abilities.writes_calls

    @property
    def _spare_choice(self) -> ToolChoice:
        return self._provider.abilities.spare_tools or "auto"

    def _list_spare_tools(self, specs: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Return the tools of all steps of the turn, () where a request names only those that it needs.

        A cache that begins with the tools is read only as long as they stay the same. specs: without the actions.
        """
        if not (self._native and self._tools.votes and self._provider.abilities.spare_tools):
            return ()
        ask_context = self._ask_context if self._ask_context.may_ask else None
        return (*build_vote_tools((), final=False, ask_context=ask_context), *specs)

    def _go_on_without_tools(self, step: Step, tools: ToolLoop) -> None:
        """Ask for JSON in the rest of the turn: the server refuses tools, or the model does not call them."""
        self._calls_tools = False
        tools.native = False
        step.prompt = replace(step.prompt, work=write_calls(step.prompt.work), tools=(), tool_choice="required")

    def _ask_for_answer(self, prompt: Prompt, tools: ToolLoop) -> Prompt:
        question, ask_context = prompt.question, self._ask_context
        text = self._add_param_values(question)
        if not self._native:
            may_call = bool(tools.specs) and self._writes_calls(prompt)
            if tools.specs and not may_call:
                choice = prompts.build_tool_choice_prompt(describe_tools(tools.specs), text)
                note, schema = prompts.build_enough_prompt(question), build_decision_schema(tools.specs)
                return replace(prompt.with_message(lambda _: choice, note), schema=schema)
            ask = ask_context.descriptions if ask_context.may_ask else None
            answer = prompts.build_answer_prompt(text, tools=False, ask=ask)
            if may_call:
                answer = f"{prompts.describe_calls(describe_tools(tools.specs))}\n\n{answer}"
            go_on = prompts.build_answer_from_tools_prompt(question, ", or use one again" if may_call else "")
            note = "\n\n".join(filter(None, (tools.end_note, go_on)))
            return replace(prompt.with_message(lambda _: answer, note), schema=None)
        answer = prompts.build_answer_prompt(text, tools=True)
        ask_tools = (build_ask_tool(ask_context),) if ask_context.may_ask else ()
        names = self._list_spare_tools(tools.all_specs) or (*ask_tools, *tools.request_specs)
        choice = self._spare_choice
        if ask_tools or tools.specs:
            choice = "auto"
        elif tools.request_specs:
            choice = "none"
        return replace(prompt.with_message(lambda _: answer, tools.end_note), tools=names, tool_choice=choice)

    def _ask_for_form(self, prompt: Prompt, tools: ToolLoop, *, form: Form) -> Prompt:
        if not form.tools:
            tools.close()
        if tools.specs and not self._native:
            return self._ask_for_answer(prompt, tools)  # which of them comes next
        message = form.write(self._add_param_values(prompt.question))
        specs = tools.request_specs if self._native else ()
        prompt = prompt.with_message(lambda _: message, tools.end_note)
        choice = "auto" if tools.specs else "none" if specs else "required"
        return replace(prompt, tools=specs, schema=None if specs else form.schema, tool_choice=choice)

    def _ask_for_vote(self, prompt: Prompt, tools: ToolLoop, *, final: bool, criticism: Sequence[str]) -> Prompt:
        native, text = self._native, self._add_param_values(prompt.question)
        labels = _list_votable(prompt.candidates)
        ask_context = self._ask_context if self._ask_context.may_ask and not final else None
        more = [] if ask_context is None else [prompts.describe_ask(ask_context.descriptions, tools=native)]
        more += [prompts.describe_check(describe_tools(tools.specs))] if tools.specs and not native else []
        build = partial(prompts.build_vote_prompt, final=final, tools=native, more=more, criticism=criticism)
        prompt = prompt.with_message(lambda shown: build(text, shown), tools.end_note)
        if native:
            own = (*build_vote_tools(labels, final=final, ask_context=ask_context), *tools.specs)
            return replace(prompt, tools=self._list_spare_tools(tools.all_specs) or own, tool_choice="required")
        calls = build_call_schemas(tools.specs)
        return replace(prompt, schema=build_vote_schema(labels, final=final, ask_context=ask_context, calls=calls))

    def _read_answer(self, reply: Reply) -> Action | _Unusable:
        try:
            request = find_ask_request(reply, self._ask_context) if self._ask_context.may_ask else None
        except ActionError as e:
            return _Unusable(str(e), prompts.build_repair_prompt(str(e), "ask"))
        if request is not None:
            return self._unless_known(request)
        submitted = _read_submitted(reply)
        if submitted.tool_calls and not submitted.text.strip():
            problem = f"there is nothing to {submitted.tool_calls[0].name[:40]} yet"
            return _Unusable(problem, prompts.build_repair_prompt(problem, "words"))
        return NewAnswer(_require_text(submitted))

    def _read_vote(self, reply: Reply, candidates: Sequence[Candidate], *, final: bool) -> Action | _Unusable:
        labels = _list_votable(candidates)
        ask_context = self._ask_context if self._ask_context.may_ask else None
        try:
            action = read_action(reply, labels, final=final, ask_context=ask_context, native=self._native)
        except ActionError as e:
            # A model that may call tools and writes text instead is asked for JSON.
            form = "call" if self._native and reply.tool_calls else "object"
            return _Unusable(str(e), prompts.build_repair_prompt(str(e), form))
        match action:
            case AskUser():
                return self._unless_known(action)
            case Vote(choice, reason):
                agent = next(candidate.agent_id for candidate in candidates if candidate.label == choice)
                return Vote(agent, reason)
            case NewAnswer():
                return action

    def _unless_known(self, request: AskUser) -> AskUser | _Unusable:
        """Return the request, or the value that the agent missed in its prompt: the user is never asked twice."""
        name, known = request.param, self._ask_context.known
        if name not in known:
            return request
        return _Unusable(f"{name} is known", prompts.build_known_value_prompt(name, known[name]))

    def _add_param_values(self, question: str) -> str:
        text = prompts.describe_form(question, self._form)
        return prompts.add_param_values(text, self._ask_context.known, sorted(self._ask_context.given_up))

    def _to_event(self, action: Action, step: Step) -> StepResult:
        round_, reasoning, usage = step.round, step.reply.reasoning, step.cost.usage
        truncated, fallback = step.reply.is_truncated, self.fallbacks.name
        match action:
            case NewAnswer(content, reason):
                cited = self.cite(clean_text(content))
                self._given.append(cited.text)
                return ev.AnswerSubmitted(
                    agent_id=self.id,
                    round=round_,
                    number=0,
                    content=cited.text,
                    reason=clean_text(reason),
                    citations=cited.citations,
                    reasoning=reasoning,
                    usage=usage,
                    truncated=truncated,
                    work_cut=step.work_cut,
                    fallback=fallback,
                )
            case Vote(choice, reason):
                return ev.BallotCast(
                    agent_id=self.id,
                    round=round_,
                    choice=choice,
                    reason=clean_text(reason),
                    reasoning=reasoning,
                    usage=usage,
                    truncated=truncated,
                    fallback=fallback,
                )
            case AskUser(param, prompt):
                return ev.ParamRequested(
                    agent_id=self.id, round=round_, param=param, prompt=prompt, reasoning=reasoning, usage=usage
                )


def _read_form(reply: Reply, form: Form, step: Step) -> NewAnswer | _Unusable:
    text = _require_text(_read_submitted(reply))
    try:
        step.value = form.read(text)
    except ActionError as e:
        return _Unusable(str(e), prompts.build_repair_prompt(str(e), "value"))
    return NewAnswer(text)


def _list_votable(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.label for candidate in candidates if candidate.votable]


def _read_submitted(reply: Reply) -> Reply:
    """Return the reply with the answer that it submits by a tool, called or written out, as its text."""
    written = find_written_call(reply.text)
    if reply.text.strip() and written is None:
        return reply
    calls = reply.tool_calls if written is None else [written]
    answers = [parse_object(call.arguments) or {} for call in calls if call.name == NEW_ANSWER]
    text = next((content for answer in answers if (content := read_content(answer))), "")
    return replace(reply, text=text, tool_calls=calls)


def _remove_frame(answer: NewAnswer, prompt: Prompt, *, repaired: bool) -> NewAnswer | _Unusable:
    """Return an answer that quotes the frame of the prompt as unusable, and after a repair without it.

    Raises NotAnActionError when it has nothing else.
    """
    sources = [prompt.question, *(m.message.content for m in prompt.history if m.message.role == "user")]
    sources += [message.content for message in prompt.work if message.calls]
    if not prompts.quotes_frame(answer.content, prompt.memories, "\n".join(sources)):
        return answer
    if not repaired:
        return _Unusable("it quotes notes of the prompt", prompts.build_frame_repair_prompt())
    return replace(answer, content=_require_text(Reply(prompts.cut_frame(answer.content, prompt.memories))))


def _build_repair(reply: Reply, text: str) -> tuple[ChatMessage, ...]:
    """Return the reply that could not be used, and what the agent is told about it. A tool call needs its result."""
    quoted, calls = reply.text[:_MAX_QUOTED], tuple(reply.tool_calls)
    if not calls:
        return (ChatMessage("assistant", quoted or "(nothing)"), ChatMessage("user", text))
    results = (ChatMessage("tool", text, tool_call_id=call.id) for call in calls)
    return (ChatMessage("assistant", quoted, tool_calls=calls), *results)


def _require_text(reply: Reply) -> str:
    text = reply.text.strip()
    if not text:
        raise NotAnActionError(
            "the model sent an empty reply", "raise max_tokens if the model spends them on reasoning"
        )
    return text
