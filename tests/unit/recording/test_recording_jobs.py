from massmem.config.models import RecordingConfig
from massmem.core.errors import RateLimited
from massmem.core.records import MessageRecord
from massmem.memory.extraction.facts import cut_middle
from massmem.recording.jobs import LARGE, summarize_results
from tests.unit.recording.test_rules import message, row

ON = RecordingConfig(record_all_tool_calls=True, summarize_large_results=True, summary_model="small")
BIG = "begin " + "x" * LARGE + " end"
TURN = [
    message(1, "user", "Why?" + BIG, None),
    message(2, "tool_call", '{"read_file": {"path": "a.py"}}'),
    message(3, "tool_result", BIG),
    message(4, "tool_result", "y" * LARGE),
    message(5, "tool_result", "é" * LARGE),
    message(6, "tool_result", BIG, "bob"),
    message(7, "assistant", BIG),
]


class Model:
    """Answers with a number, or fails from the n-th request on."""

    def __init__(self, fails_from: int = 99) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self._fails_from = fails_from

    async def __call__(self, text: str, model: str | None) -> str:
        self.asked.append((text, model))
        if len(self.asked) >= self._fails_from:
            raise RateLimited("slow down: sk-verysecretkey0123456789abc")
        return f"summary {len(self.asked)}"


def contents(messages: list[MessageRecord]) -> list[str]:
    return [m.content for m in messages]


async def test_large_results_of_the_agent_and_nothing_else_are_summarised() -> None:
    model = Model()
    messages, problem = await summarize_results(TURN, row(9, "extract"), ON, model, {})
    assert model.asked == [(BIG, "small"), ("é" * LARGE, "small")]
    assert [m.id for m in messages] == [m.id for m in TURN]
    assert [a == b for a, b in zip(messages, TURN, strict=True)] == [True, True, False, True, False, True, True]
    assert contents(messages)[2] == f"[Summary of a result of {len(BIG):,} characters]\nsummary 1"
    assert problem == ""


async def test_only_when_it_is_asked_for_and_recorded_at_all() -> None:
    for settings in (RecordingConfig(record_all_tool_calls=True), RecordingConfig(summarize_large_results=True)):
        model = Model()
        assert await summarize_results(TURN, row(9, "extract"), settings, model, {}) == (TURN, "")
        assert model.asked == []


async def test_failed_summary_keeps_the_ends_of_the_text_and_says_why() -> None:
    model = Model(fails_from=1)
    messages, problem = await summarize_results(TURN, row(9, "extract"), ON, model, {})
    assert len(model.asked) == 1, "after one failure nothing more is asked for"
    assert contents(messages)[2] == cut_middle(BIG, 3_000, ", not summarised: slow down: [redacted]")
    assert contents(messages)[2].startswith("begin ")
    assert contents(messages)[2].endswith(" end")
    assert len(contents(messages)[2]) < LARGE
    assert problem == "a tool result was cut and not summarised: slow down: [redacted]"


async def test_a_summary_is_paid_for_once() -> None:
    known: dict[str, str] = {}
    await summarize_results(TURN, row(9, "extract"), ON, Model(fails_from=2), known)
    assert known == {"m3": "summary 1"}
    model = Model()
    messages, problem = await summarize_results(TURN, row(9, "extract"), ON, model, known)
    assert [text for text, _ in model.asked] == ["é" * LARGE]
    assert contents(messages)[2].endswith("\nsummary 1")
    assert problem == ""
