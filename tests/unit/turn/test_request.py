"""One request of an agent: it is made to fit, compressed when it is refused, and wrapped up near the end."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from massmem.config.models import AgentConfig, BackendConfig, CompressionConfig, MemoryConfig
from massmem.config.presets import BackendType
from massmem.core.errors import ContextOverflow, DoesNotFit
from massmem.core.events import AgentBusy, AgentRetrying, AnswerSubmitted, ContextCompressed, ContextMeasured
from massmem.core.messages import ActivityChunk, Candidate, ChatMessage
from massmem.memory.conversation import MAX_MESSAGES
from massmem.memory.persistent import RecallOptions
from massmem.memory.tokens import Buffer, estimate_tokens
from massmem.providers import Providers
from massmem.turn.compressor import Compressor, TokenMeter
from massmem.turn.prompt_builder import Prompt
from massmem.turn.request import StepCost, Task
from tests.support.contexts import agent_with, answer, find_orphans, history, vote
from tests.support.turns import Collector, only

LONG = "Nothing of note happened in this part of the work, which went on as it had before. " * 8


def chat(turns: int) -> list[str]:
    return [text for n in range(turns) for text in (f"Question {n}? {LONG}", f"Answer {n}: port {8000 + n}. {LONG}")]


async def test_prompt_within_the_threshold_is_sent_unchanged():
    agent, provider = await agent_with(100_000, history("a", "b"))
    events = await answer(agent, "why?")
    assert [m.content for m in provider.requests[0].messages[1:]] == ["a", "b", "why?"]
    assert not only(events, ContextCompressed)
    (measured,) = only(events, ContextMeasured)
    assert (measured.source, measured.window, measured.threshold) == ("api", 100_000, 0.75)
    assert set(measured.entries) == {"system", "user", "assistant", "pending"}


async def test_loading_of_a_model_is_reported_before_the_request():
    agent, provider = await agent_with(100_000)
    provider.activities = [ActivityChunk("loading", 0.5), ActivityChunk("loading")]
    events = await answer(agent, "why?")
    assert [(event.agent_id, event.activity, event.share) for event in events[:2] if isinstance(event, AgentBusy)] == [
        ("ann", "loading", 0.5),
        ("ann", "loading", None),
    ]
    assert len(provider.requests) == 1


async def test_old_messages_become_a_summary_beyond_the_threshold():
    agent, provider = await agent_with(8_000, history(*chat(20)))
    cost = StepCost()
    (compressed,) = only(await answer(agent, "why?", cost), ContextCompressed)
    assert (compressed.why, compressed.by, compressed.removed + compressed.kept) == ("threshold", "model", 40)
    assert compressed.after < 6_000 < compressed.before
    assert compressed.kept == 8, "target_ratio of them stays"
    assert compressed.until == compressed.removed
    summary, request = provider.requests
    assert (summary.purpose, request.purpose) == ("summary", "answer")
    assert "Summary of 2 messages." in request.messages[1].content
    assert [m.role for m in request.messages[:3]] == ["system", "user", "assistant"]
    assert request.messages[-1] == ChatMessage("user", "why?")
    assert cost.usage.prompt >= compressed.usage.prompt + 1


@pytest.mark.parametrize("type_", ["local", "scripted"])
async def test_local_model_counts_the_first_prompt_itself(type_: BackendType):
    """Here it needs twice as many tokens as we think: half of the window by our count is all of it by its own."""
    scripted = await Providers().open(BackendConfig(type="scripted"))
    memory = MemoryConfig(compression=CompressionConfig(summary="extract"))
    config = AgentConfig(id="ann", backend=BackendConfig(type=type_), system_message="", memory=memory, mcp_servers=())
    meter = TokenMeter(8_000, Buffer(lambda text: len(text) // 8))
    compressor = Compressor(config, scripted, meter)
    prompt = Prompt("ann", history=history(*chat(20))).with_message(lambda _: "why?")
    compression = await compressor.compress_if_due(prompt, 1)
    assert meter.buffer.is_calibrated == (type_ == "local")
    assert (compression is not None) == (type_ == "local")
    assert compression is None or await compressor.compress_if_due(compression.prompt, 1) is None


async def test_refused_prompt_is_compressed_and_sent_again_with_the_summary_last():
    agent, provider = await agent_with(4_000, history(*chat(20)), believed=128_000, summary="extract")
    events = await answer(agent, "why?")
    (compressed,) = only(events, ContextCompressed)
    assert (compressed.why, compressed.by) == ("overflow", "extract")
    assert len(only(events, AgentRetrying)) == 1
    refused, sent = provider.requests
    assert len(refused.messages) == 42
    assert [m.role for m in sent.messages[-2:]] == ["user", "assistant"]
    assert sent.messages[-2].content == "why?"
    assert compressed.summary in sent.messages[-1].content
    assert isinstance(events[-1], AnswerSubmitted)


async def test_text_streamed_before_the_refusal_is_in_the_summary():
    script = {"answer": [{"text": "I read /etc/app.conf and found port 8042.", "error": "overflow"}, "done"]}
    agent, provider = await agent_with(8_000, history(*chat(3)), script=script, summary="extract")
    events = await answer(agent, "why?")
    assert "port 8042" in provider.requests[-1].messages[-1].content
    assert events[-1].content == "done"


async def test_second_refusal_ends_the_step():
    script = {"answer": [{"error": "overflow"}]}
    agent, provider = await agent_with(8_000, history(*chat(3)), script=script, summary="extract")
    with pytest.raises(DoesNotFit):
        await answer(agent, "why?")
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    ("system", "question", "named"),
    [("You are exact. " * 1_000, "why?", "the system prompt"), ("", "What is this? " * 10_000, "the question")],
)
async def test_part_that_can_never_fit_is_named(system: str, question: str, named: str):
    agent, provider = await agent_with(1_000, history(*chat(2)), system=system)
    with pytest.raises(DoesNotFit) as error:
        await answer(agent, question)
    assert named in error.value.message
    assert provider.requests == [], "nothing is paid for"
    assert error.value.hint
    assert isinstance(error.value, ContextOverflow)


async def test_proactive_compression_can_be_turned_off():
    agent, provider = await agent_with(
        128_000, history(*["word " * 12] * (2 * MAX_MESSAGES)), proactive=False, trigger_threshold=0.001
    )
    events = await answer(agent, "why?")
    assert not only(events, ContextCompressed)
    assert len(provider.requests) == 1
    assert only(events, ContextMeasured)[0].threshold is None


async def test_too_many_messages_are_compressed_even_when_they_fit():
    agent, provider = await agent_with(128_000, history(*["word " * 12] * (MAX_MESSAGES + 2)))
    await answer(agent, "why?")
    assert len(provider.requests[-1].messages) < 100


async def test_answers_to_judge_are_shortened_evenly_when_they_do_not_fit():
    agent, provider = await agent_with(2_000)
    candidates = [
        Candidate(label, f"agent_{label}", f"{label} says port {n}. {LONG * 10}") for n, label in enumerate("AB")
    ]
    await vote(agent, "Which port?", [*candidates, Candidate("C", "agent_c", "Port 7.")])
    prompt = provider.requests[-1].messages[-1].content
    assert prompt.startswith("Which port?")
    assert "Port 7." in prompt
    assert "A says port 0." in prompt
    assert "B says port 1." in prompt


async def test_answers_that_are_too_long_take_the_memories_from_no_vote_and_too_many_from_one_alone():
    asked: list[str] = []

    async def recall(question: str, options: RecallOptions) -> str:
        asked.append(question)
        return f"User: the port is 8042.{' It opens the north gate.' * 8}"

    agent, provider = await agent_with(8_000, believed=1_100, recall=recall)
    shown: list[bool] = []
    for labels in ("AB", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "AB"):
        await vote(agent, "Which port?", [Candidate(label, label, f"{label} says: {LONG * 3}") for label in labels])
        shown.append("the port is 8042." in provider.requests[-1].messages[-1].content)
    assert shown == [True, False, True]
    assert len(asked) == 1


async def test_recall_after_compression_leaves_out_what_is_still_sent():
    asked: list[RecallOptions] = []

    async def recall(question: str, options: RecallOptions) -> str:
        asked.append(options)
        return "User: the port is 8042."

    agent, provider = await agent_with(8_000, history(*chat(20)), recall=recall)
    await answer(agent, "why?")
    before, after = asked
    assert len(before.exclude) == 40 and len(after.exclude) == 8
    assert after.exclude < before.exclude
    assert len(after.verbatim) == 9, "the question and the history"
    assert after.max_tokens <= 1_000
    assert "the port is 8042." in provider.requests[-1].messages[-1].content


@pytest.mark.parametrize("lines", ["", "User: the port is 8042."])
async def test_recalled_memories_are_measured(lines: str):
    async def recall(question: str, options: RecallOptions) -> str:
        return lines

    agent, _ = await agent_with(8_000, recall=recall)
    events = await answer(agent, "why?")
    (measured,) = [event for event in events if isinstance(event, ContextMeasured)]
    assert measured.recalled == (estimate_tokens(lines) if lines else 0)
    assert measured.recalled < measured.entries["user"]


async def test_reply_near_the_end_of_the_window_is_wrapped_up():
    script = {"answer": ["word " * 2_000, "and so it ends."], "chunk_size": 40, "context_window": 0}
    agent, provider = await agent_with(1_000, history(*chat(1)), script=script)
    events = await answer(agent, "why?")
    assert len(provider.requests) == 2
    assert "limit of your context" in provider.requests[1].messages[-1].content
    assert events[-1].content.endswith("and so it ends.")
    assert events[-1].content.startswith("word word")


async def test_wrapping_up_can_be_turned_off():
    script = {"answer": ["word " * 2_000], "chunk_size": 40, "context_window": 0}
    agent, provider = await agent_with(1_000, script=script, mid_stream=False)
    events = await answer(agent, "why?")
    assert len(provider.requests) == 1
    assert events[-1].content == ("word " * 2_000).strip()


TEXTS = st.tuples(st.sampled_from([5, 60, 400, 3_000]), st.integers(0, 9)).map(
    lambda t: f"fact {t[1]}: " + "lorem ipsum " * t[0]
)


RUNS = {
    "window": st.sampled_from([512, 1_024, 4_096, 8_000, 32_000, 128_000, 1_000_000]),
    "wrong": st.sampled_from([0.5, 1, 3, 20]),
    "texts": st.lists(TEXTS, max_size=24),
    "ratio": st.floats(0.01, 0.9),
    "proactive": st.booleans(),
    "question": st.sampled_from(["why?", "What is the port? " * 30, "Please look at this: " + "data " * 3_000]),
}


@settings(max_examples=15)
@given(**RUNS)
async def test_every_run_ends_with_an_answer_or_the_part_that_does_not_fit(
    window: int, wrong: float, texts: list[str], ratio: float, proactive: bool, question: str
):
    await run_once(window, wrong, texts, ratio, proactive, question)


@pytest.mark.full
@settings(max_examples=500)
@given(**RUNS)
async def test_every_run_ends_at_full_length(
    window: int, wrong: float, texts: list[str], ratio: float, proactive: bool, question: str
):
    await run_once(window, wrong, texts, ratio, proactive, question)


async def run_once(window: int, wrong: float, texts: list[str], ratio: float, proactive: bool, question: str):
    view = history(*texts[: len(texts) // 2 * 2])
    agent, provider = await agent_with(
        window, view, believed=int(window * wrong), target_ratio=ratio, proactive=proactive
    )
    retried, refused = 0, False
    try:
        for step in ("answer", "vote"):
            if step == "answer":
                events = await answer(agent, question)
            else:
                events = await vote(agent, question, [Candidate(c, f"agent_{c}", f"{c} {texts}") for c in "AB"])
            retried = max(retried, len(only(events, AgentRetrying)))
    except DoesNotFit as e:
        assert e.window is not None
        refused = True
    assert retried <= 1
    steps = [r for r in provider.requests if r.purpose != "summary"]
    assert refused or steps
    assert len(steps) <= 5  # refused, sent again, and wrapped up; then refused and sent again
    for request in steps:
        texts = [m.content for m in request.messages if m.role == "user"]
        assert any(question in text or "too many to read at once" in text for text in texts)
        assert find_orphans(request.messages) == []
        roles = [m.role for m in request.messages if m.role != "system"]
        assert roles[0] == "user"
        assert all(a != b for a, b in pairwise(roles))


async def test_request_is_sent_after_the_summary_that_it_rests_on_is_stored():
    agent, provider = await agent_with(8_000, history(*chat(20)))
    sent: list[list[str]] = []

    class Watching(Collector):
        async def wait_until_stored(self) -> None:
            await asyncio.sleep(0.01)
            sent.append([request.purpose for request in provider.requests])

    await agent.answer(Task("why?", 1, StepCost(), Watching()))
    assert sent == [["summary"]]
    assert [request.purpose for request in provider.requests] == ["summary", "answer"]


async def test_prompt_of_a_model_with_an_unknown_window_is_sent_whatever_its_size():
    agent, provider = await agent_with(1_000_000, believed=1_000)
    agent._compressor.meter.assumed = True
    await answer(agent, "What is this? " * 1_000)
    assert provider.requests


async def test_window_that_the_server_did_not_name_is_not_stated():
    agent, _ = await agent_with(1_000)
    agent._compressor.meter.learn(900, ContextOverflow("m: the prompt is too long"))
    prompt = Prompt("ann", question="What is this?").with_message(lambda _: "What is this?")
    error = agent._compressor.explain_too_long(prompt, ContextOverflow("m: HTTP 400: the prompt is too long"))
    assert "reads an unknown number of tokens" in error.message
    assert error.message.endswith("m: HTTP 400: the prompt is too long")
    agent._compressor.meter.learn(900, ContextOverflow("m: at most 700", window=700))
    assert "reads 700 tokens" in agent._compressor.explain_too_long(prompt).message
