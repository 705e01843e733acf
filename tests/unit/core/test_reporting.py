"""Reports of a council: what a model may claim, and what code makes of it."""

from typing import Any

import pytest

from massmem.core.events import TurnCompleted, read_event
from massmem.core.messages import Candidate, Citation, Usage
from massmem.core.report import Report
from massmem.core.reporting import Authors, ReportError, build_report_schema, list_sections, read_report, report_votes
from tests.support.sample_turn import compare_texts

OPENED, LENGTH = Citation("https://a.example/opened", "Opened"), Citation("https://b.example/length", "Length")
CANDIDATES = (
    Candidate("A", "ann", "It opened in 1932 [1].", citations=(OPENED,)),
    Candidate("B", "bob", "It is 503 m long [1]. It opened in 1930 [2].", citations=(LENGTH, OPENED)),
)
AUTHORS = Authors({"A": ["ann", "cid"], "B": ["bob"]}, lambda agent: agent.title(), ["ann", "bob", "cid"])


def read(**parts: Any) -> Report:
    return read_report({"answer": "In 1932.", **parts}, CANDIDATES, AUTHORS).report


def claim(text: str, *answers: str, sources: list[Any] | None = None) -> dict[str, Any]:
    return {"text": text, "answers": list(answers), "sources": sources or []}


def test_labels_become_agents_and_their_number_decides_the_part():
    report = read(agreed=[claim("One says it, whatever the model calls it.", "B")], single=[claim("Two.", "answer A")])
    assert [(c.text, c.agents) for c in report.single] == [("One says it, whatever the model calls it.", ("bob",))]
    assert [(c.text, c.agents) for c in report.agreed] == [("Two.", ("ann", "cid"))]
    assert report.made_from == "answers"
    assert report.dropped == 0


def test_a_claim_names_the_agents_in_the_order_of_the_team_and_the_same_agents_do_not_contradict_themselves():
    report = read(
        agreed=[claim("All say it.", "B", "A")],
        disputed=[{"text": "when", "positions": [claim("In May.", "A", "B"), claim("In June.", "B", "A")]}],
    )
    assert [c.agents for c in report.agreed] == [("ann", "bob", "cid")] * 3
    assert not report.disputed


def test_claims_of_nobody_and_sources_that_no_answer_has_are_dropped_and_counted():
    report = read(
        agreed=[
            claim("A ghost says so.", "Q"),
            claim("Opened in 1932.", "A", "Q", sources=[1, 2, "[1]", 0, "A1", 7]),
        ],
        single=["not even a claim", claim("It is long.", "B", sources=[2])],
    )
    assert [(c.text, c.sources) for c in report.agreed] == [("Opened in 1932.", (1,))]
    assert [(c.text, c.sources) for c in report.single] == [("It is long.", (2,))]
    assert report.sources == (OPENED, LENGTH), "each once, however many answers have it"
    assert report.dropped == 6
    lines = {s.heading: s.lines for s in list_sections(report, ["ann", "bob", "cid"], str.title)}
    assert lines["Agreed"] == ("Opened in 1932. [1] (Ann, Cid)",)
    assert lines["Sources"] == ("[1] Opened https://a.example/opened", "[2] Length https://b.example/length")
    assert lines["About this report"] == ("Left out: 6 that named an answer or a source that does not exist.",)


def test_a_quoted_sentence_belongs_to_whom_it_is_from():
    (single,) = read(agreed=[claim("It is 503 m long", "A", "B")]).single
    assert single.agents == ("bob",)
    (single,) = read(single=[claim("It opened in 1930 [1]", "A")]).single
    assert single.agents == ("bob",), "its source has another number there"


def test_a_dispute_has_two_sides():
    two = {"text": "The year of Answer B", "positions": [claim("1932", "A"), claim("1930", "B")]}
    one = {"text": "No dispute", "positions": [claim("It is old.", "A"), claim("Old it is.", "A")]}
    report = read(disputed=[two, one, "nonsense"])
    (dispute,) = report.disputed
    assert dispute.text == "The year of Bob", "labels are known to the model alone"
    assert [position.agents for position in dispute.positions] == [("ann", "cid"), ("bob",)]
    assert [c.text for c in report.agreed] == ["It is old.", "Old it is."]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "no JSON object"),
        ({"agreed": [claim("x", "A")]}, "answer is missing"),
        ({"answer": "Yes.", "agreed": [claim("x", "Z")], "missing": ["all"]}, "no claim names"),
        ({"answer": "Yes.", "agreed": 3, "single": {"text": "x"}}, "no claim names"),
    ],
)
def test_replies_that_are_no_report(data: dict[str, Any] | None, problem: str):
    with pytest.raises(ReportError, match=problem):
        read_report(data, CANDIDATES, AUTHORS)


def test_the_schema_offers_only_labels_and_sources_that_exist():
    claims = build_report_schema(CANDIDATES)["properties"]["agreed"]["items"]["properties"]
    assert claims["answers"]["items"] == {"type": "string", "enum": ["A", "B"]}
    assert claims["sources"]["items"] == {"type": "integer", "enum": [1, 2]}
    assert "sources" not in str(build_report_schema([Candidate("A", "ann", "x")]))


def test_votes_say_who_chose_what_and_that_texts_are_not_compared():
    answers = {"ann": "It opened in 1932, on a Sunday.", "bob": "In 1930, as far as I know.", "cid": "In 1932 or so."}
    ballots = {"bob": ("ann", "older sources agree"), "cid": ("bob", "it is careful")}
    dissent = compare_texts("ann", answers, ballots)
    assert dissent is not None
    report = report_votes(dissent, "ann", {"ann": [OPENED]})
    (dispute,) = report.disputed
    assert [(p.text, p.agents, p.sources) for p in dispute.positions] == [
        (answers["ann"], ("ann",), (1,)),
        (answers["bob"], ("cid",), ()),
    ]
    assert [c.agents for c in report.single] == [("bob",)], "its own text may say something else"
    assert [(v.agent_id, v.choice) for v in report.votes] == [("bob", "ann"), ("cid", "bob")]
    headings = [s.heading for s in list_sections(report, list(answers), str)]
    assert headings == ["Disputed", "Not compared", "Votes", "Sources", "About this report"]


def test_events_of_before_have_no_report_and_those_of_later_may_have_more():
    completed = TurnCompleted(
        winner="ann", answer="Yes.", presented=True, usage=Usage(), report=read(agreed=[claim("x", "A")])
    )
    stored = completed.model_dump(mode="json")
    assert read_event(stored) == completed
    assert read_event({**stored, "report": {**stored["report"], "new_part": []}}) == completed
    del stored["report"]
    old = read_event(stored)
    assert isinstance(old, TurnCompleted)
    assert old.report is None
