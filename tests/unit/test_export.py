"""Every export format: complete, inert, without secrets."""

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from massmem.core.transcript import LoggedTurn
from massmem.export import FORMATS, redact_session
from tests.support.sample_turn import USAGE, answer, ballot, begin, event, param_request, waiting
from tests.support.sessions_said import log_turn, make_program_turn, make_transcript, session_record

SECRET = "sk-" + "a1B2" * 8


def export(form: str, *turns: LoggedTurn, detailed: bool = False, title: str = "Why is the sky blue?") -> str:
    writer = FORMATS[form]
    parts = [writer.write_turn(turn, i == 0, detailed) for i, turn in enumerate(turns)]
    start = writer.write_start(redact_session(session_record(title=title)))
    return "".join([start, *parts, writer.end])


@pytest.mark.parametrize("form", FORMATS)
def test_question_answer_names_and_votes_are_exported(form: str):
    text = export(form, make_transcript(), make_transcript("And sunsets?", "Red."))
    for part in ("Why is the sky blue?", "The final answer.", "And sunsets?", "Red.", "ann", "bob has a reason"):
        assert part in text, part
    assert text.index("The final answer.") < text.index("And sunsets?")


@pytest.mark.parametrize("form", ["markdown", "text", "html"])
def test_detailed_export_has_rounds_and_reasoning(form: str):
    short, whole = export(form, make_transcript()), export(form, make_transcript(), detailed=True)
    for part in ("Let me think.", "First.", "Second.", "Better."):
        assert part not in short
        assert part in whole
    assert short.count("bob has a reason") == 1  # the ballot that stands
    assert whole.count("bob has a reason") == 2


@pytest.mark.parametrize("form", FORMATS)
def test_secrets_are_redacted(form: str):
    turn = make_transcript(f"My key is {SECRET}", f"Do not send {SECRET}")
    assert SECRET not in export(form, turn, detailed=True, title=f"key {SECRET}")
    assert "[redacted]" in export(form, turn)


@pytest.mark.parametrize("form", FORMATS)
def test_turn_without_answer_names_its_status(form: str):
    partials = [{"agent_id": "bob", "text": "Blue li"}]
    text = export(form, make_transcript(end=event(2, "turn_interrupted", by="user", partials=partials)))
    for part in ("interrupted", "Better.", "Blue li"):
        assert part in text, part


@pytest.mark.parametrize("form", FORMATS)
def test_answer_of_another_model_without_its_end_says_so(form: str):
    text = export(form, make_transcript(fallback="scripted spare", truncated=True))
    assert "scripted spare" in text
    assert "missing" in text or json.loads(text)["turns"][0]["truncated"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("detailed", [False, True])
def test_messages_outside_of_turns_are_exported_once(form: str, detailed: bool):
    text = export(form, make_program_turn(), make_transcript(), detailed=detailed)
    parts = ("Where is the pump?", "In hall four.", "Hall H-412, shelf 3.", "Why is the sky blue?")
    places = [text.rindex(part) for part in parts]
    assert places == sorted(places)
    assert text.count("Hall H-412") == 1
    assert "No answer" not in text
    if form == "json":
        assert [turn["turn"] for turn in json.loads(text)["turns"]] == [0, 1]
    else:
        assert "Outside of turns" in text
        assert "ann, tool result" in text


def test_json_shape():
    data = json.loads(export("json", make_transcript(), make_transcript("And sunsets?")))
    assert (data["schema_version"], data["session"]["session_id"], len(data["turns"])) == (1, "session_a", 2)
    turn = data["turns"][0]
    assert {k: turn[k] for k in ("turn", "status", "winner", "confidence", "escalated", "votes", "rounds")} == {
        "turn": 1, "status": "completed", "winner": "ann", "confidence": 0.9, "escalated": False,
        "votes": {"ann": 2}, "rounds": 3,
    }  # fmt: skip
    assert [m["role"] for m in turn["messages"]][:2] == ["user", "assistant"]
    assert turn["messages"][3] == turn["messages"][3] | {
        "role": "assistant", "content": "Second.", "agent_type": "bob", "timestamp": "2025-10-28T14:30:00.600000+00:00"
    }  # fmt: skip
    assert json.loads(export("json"))["turns"] == []


class Page(HTMLParser):
    """The tags, attributes and text of a page, as a browser parses them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(), st.sampled_from(["<script>alert(1)</script>", '"><img src=x onerror=y>', "</div></style>", "&lt;"]))
def test_html_is_escaped_and_self_contained(noise: str, attack: str):
    text = noise.replace("\r", "") + attack
    page = Page(export("html", make_transcript(text, text), detailed=True, title=text))
    plain = Page(export("html", make_transcript("q", "a"), detailed=True, title="t"))
    assert page.tags == plain.tags
    assert page.attributes == plain.attributes <= {"charset", "http-equiv", "content", "name", "class", "dir"}
    assert attack in page.text


@pytest.mark.parametrize("form", FORMATS)
@given(text=st.text())
def test_any_text_can_be_export(form: str, text: str):
    assert export(form, make_transcript(text, text), detailed=True).encode("utf-8", errors="replace")


def split_vote() -> LoggedTurn:
    """ann, who wins, votes for bob, bob for ann, eve for bob."""
    votes = {"ann": "bob", "bob": "ann", "eve": "bob"}
    answers = {"ann": "Better.", "bob": "Second.", "eve": "Third <b>."}
    end = {"winner": "ann", "answer": "The final answer.", "agreement": "2 of 3 agents agree", "presented": True}
    return log_turn(
        [
            begin(*votes),
            *(answer(1, agent, text, number=n) for n, (agent, text) in enumerate(answers.items(), 1)),
            event(2, "round_started", round=2, agents=tuple(votes)),
            *(ballot(2, voter, choice, reason=f"{voter} says so") for voter, choice in votes.items()),
            event(3, "winner_decided", agent_id="ann", votes={"bob": 2, "ann": 1}, by="plurality"),
            event(3, "turn_completed", usage=USAGE, **end),
        ]
    )


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_minority_stands_with_its_answer_and_its_reason(form: str):
    page = export(form, split_vote(), detailed=False)
    shown = Page(page).text if form == "html" else page
    assert "2 of 3 agents agree" in shown
    assert "eve voted for bob: eve says so" in shown
    assert "Third <b>." in shown


def test_json_has_the_dissent():
    (turn,) = json.loads(export("json", split_vote(), detailed=True))["turns"]
    assert [position["agent"] for position in turn["dissent"]["minority"]] == ["eve"]


def test_markdown_escapes_names():
    turn = make_transcript(winner="a_b*c*")
    assert r"**Assistant** (a\_b\*c\*): The final answer." in export("markdown", turn)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("detailed", [True, False])
def test_param_values_are_replaced_by_their_names(form: str, detailed: bool):
    question = "Where is O-98765?"
    events = [
        begin("ann", question=question),
        param_request(1, "ann", "order_id"),
        waiting(1, "order_id", "ann"),
        event(2, "turn_resumed", session_id="session_a", turn=1, question=question, agents=("ann",)),
        event(2, "user_replied", param="order_id", text="the one of May, O-98765"),
        event(3, "turn_completed", winner="ann", answer="O-98765 is on its way.", presented=False, usage=USAGE),
    ]
    text = FORMATS[form].write_turn(log_turn(events, {"order_id": "O-98765"}), True, detailed)
    assert "O-98765" not in text and "May" not in text
    for part in ("What is the order_id?", "[order_id]", "[order_id] is on its way.", "Where is [order_id]?"):
        assert part in text, part
    head = redact_session(session_record(title="Where is O-98765?"), {"order_id": "O-98765"})
    assert head.title == "Where is [order_id]?"


@pytest.mark.parametrize("form", FORMATS)
def test_only_values_that_were_given_are_replaced(form: str):
    """An example in the agent's own question is none, nor is a reply without a value; what was given before is."""
    prompt = "What is the number, such as O-98765, for Lisbon?"
    params = {"order_id": "O-98765", "city": "Lisbon"}
    events = [
        begin("ann", question="Where is it?"),
        param_request(1, "ann", "order_id").model_copy(update={"prompt": prompt}),
        waiting(1, "order_id", "ann").model_copy(update={"prompt": prompt}),
        event(2, "turn_resumed", session_id="session_a", turn=1, question="Where is it?", agents=("ann",)),
        event(2, "user_replied", param="order_id", text="I have no idea", is_value=False),
        waiting(3, "order_id", "ann").model_copy(update={"prompt": prompt, "asked": 2}),
        event(4, "turn_resumed", session_id="session_a", turn=1, question="Where is it?", agents=("ann",)),
        event(4, "user_replied", param="order_id", text="O-98765"),
        event(5, "turn_completed", winner="ann", answer="O-98765 is here.", presented=False, usage=USAGE),
    ]
    text = FORMATS[form].write_turn(log_turn(events, params), True, True)
    text = Page(text).text if form == "html" else text
    assert "such as O-98765, for [city]?" in text and "Lisbon" not in text
    assert "I have no idea" in text and "[order_id] is here." in text
    assert text.count("O-98765") == text.count("such as O-98765")


@pytest.mark.parametrize(
    "opened", ["```python\nx = 1", "~~~~\n```\nx", "<!-- note", "<pre>\nx\n\ny", "```", "- a\n  ```\n  x"]
)
def test_block_that_a_text_leaves_open_ends_with_it(opened: str):
    text = export("markdown", make_transcript(f"See:\n\n{opened}", opened), make_transcript("And sunsets?", "Red."))
    headings = [token.content for token in MarkdownIt("commonmark").parse(text) if token.type == "inline"]
    assert [heading for heading in headings if heading.startswith("Turn ")] == [
        heading.removeprefix("## ") for heading in text.splitlines() if heading.startswith("## Turn ")
    ]
    assert len([heading for heading in headings if heading.startswith("Turn ")]) == 2
    assert any(heading.startswith("**User**: And sunsets?") for heading in headings)
