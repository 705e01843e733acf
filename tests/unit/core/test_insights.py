from datetime import timedelta
from typing import Any

from massmem.core.events import ContextMeasured
from massmem.core.insights import MAX_TOPICS, Figures, Insights, extract_topics, name_teams
from massmem.core.transcript import TurnTranscript, build_transcript
from tests.support.sample_turn import START
from tests.support.sessions_said import make_program_turn, make_transcript, message, session_record


def of(*turns: TurnTranscript, **session: Any) -> dict[str, Any]:
    insights = Insights()
    insights.add_session(session_record(**session))
    for turn in turns:
        insights.add_turn(turn)
    return insights.to_json()


def test_counts_time_and_tokens():
    insights = of(make_transcript(), make_transcript("And sunsets?", status="failed", winner=None, answer=None))
    assert (insights["turns"], insights["turns_by_status"]) == (2, {"completed": 1, "failed": 1})
    assert (insights["message_count"], insights["user_messages"], insights["assistant_messages"]) == (17, 2, 1)
    assert (insights["duration"], insights["response_time"]) == (300.0, 2.5)
    assert insights["tokens"] == {"prompt": 120, "completion": 40, "cached": 0, "reported": True}
    assert (insights["confidence"], insights["escalated"]) == (0.9, 0)


def test_messages_before_the_first_turn_are_no_turn():
    found, alone = of(make_program_turn(), make_transcript()), of(make_transcript())
    assert found == alone | {"message_count": alone["message_count"] + 3}


def test_who_won_how_often():
    insights = of(
        make_transcript(cost=0.5),
        make_transcript(cost=0.5, winner="bob"),
        make_transcript(cost=0.5, status="interrupted", winner="ann"),
    )
    assert insights["agents_used"] == ["ann", "bob"]
    assert insights["agents"]["ann"] == {
        "name": "ann", "turns": 3, "answers": 6, "ballots": 3, "votes_received": 6, "wins": 1, "win_rate": 0.5,
        "tokens": 108, "cost": 0.45,
    }  # fmt: skip
    assert insights["agents"]["bob"]["win_rate"] == 0.5
    nobody = of(make_transcript(status="failed", winner=None))
    assert nobody["agents"]["ann"]["win_rate"] is None


def test_cost_is_the_sum_of_the_turns_and_not_known_when_one_is_not():
    known = of(make_transcript(cost=0.1), make_transcript(cost=0.2), make_transcript(cost=0.0))
    assert (known["cost"], known["known_cost"], known["turns_without_price"]) == (0.3, 0.3, 0)
    partly = of(make_transcript(cost=0.1), make_transcript())
    assert (partly["cost"], partly["known_cost"], partly["turns_without_price"]) == (None, 0.1, 1)
    assert partly["agents"]["ann"]["cost"] is None


def test_tools_are_counted_with_their_failures():
    turn = make_transcript()
    used = [
        message(20 + n, "tool_result", "x", "ann", 1, metadata={"tool": name, "call": f"c{n}", "failed": failed})
        for n, (name, failed) in enumerate([("mcp__f__read", False), ("mcp__f__list", False), ("mcp__f__read", True)])
    ]
    outside = message(30, "tool_result", "x", "ann", 0, metadata={"tool": "lint"})
    insights = of(build_transcript(turn.record, [*turn.messages, *used, outside]))
    assert insights["tools"] == {"mcp__f__read": {"calls": 2, "failed": 1}, "mcp__f__list": {"calls": 1, "failed": 0}}
    assert insights["tool_sequences"] == [
        {"tools": ["mcp__f__read", "mcp__f__list", "mcp__f__read"], "times": 1, "succeeded": 0}
    ]
    good = of(build_transcript(turn.record, [*turn.messages, *used[:2]]))
    assert good["tool_sequences"] == [{"tools": ["mcp__f__read", "mcp__f__list"], "times": 1, "succeeded": 1}]
    assert of(make_transcript())["tools"] == {}


def test_topics_are_the_words_of_most_questions():
    questions = ["Which index does PostgreSQL use?", "Is a PostgreSQL index PostgreSQL-only?", "What about Lisbon?"]
    insights = of(*[make_transcript(q) for q in questions])
    assert insights["topics"][:2] == ["index", "postgresql"]
    assert "lisbon" in insights["topics"]
    assert not {"which", "about", "what"} & set(insights["topics"])
    many = of(*[make_transcript(f"word{chr(97 + i) * 3}") for i in range(20)])
    assert len(many["topics"]) <= MAX_TOPICS


def test_topics_in_other_languages_and_of_odd_texts():
    assert extract_topics("Warum ist der Himmel über Köln blau?") == ["himmel", "köln", "blau"]
    assert extract_topics("1234567 ____ a b c \x00 ???") == []
    assert extract_topics("") == []


def test_topics_hold_no_secret():
    assert extract_topics("my password is sunflower") == ["password"]


def test_nothing_at_all():
    found = Insights().to_json()
    assert (found["sessions"], found["turns"], found["topics"], found["agents"]) == (0, 0, [], {})
    assert (found["confidence"], found["response_time"], found["cost"]) == (None, None, 0.0)


def measure(recalled: int) -> ContextMeasured:
    fields: dict[str, Any] = {"agent_id": "ann", "round": 1, "tokens": 10, "window": 100, "source": "api"}
    return ContextMeasured(**fields, entries={}, recalled=recalled)


def test_days_have_turns_wins_tokens_and_waits():
    figures = Figures()
    figures.add_turn(make_transcript(cost=0.5), [])
    figures.add_turn(make_transcript(status="failed", winner=None, answer=None), [])
    figures.add_turn(make_transcript(started_at=START + timedelta(days=1)), [])
    first, second = (figures.days[day] for day in sorted(figures.days))
    assert (first.turns, first.answered, first.seconds) == (2, 1, 2.5)
    assert (first.agents["", "ann"].turns, first.agents["", "ann"].wins) == (2, 1)
    assert first.agents["", "ann"].usage.prompt == 60
    assert (second.turns, second.agents["", "bob"].wins) == (1, 0)
    assert figures.turns == 3


def test_messages_between_turns_are_no_turn():
    figures = Figures()
    figures.add_turn(make_program_turn(), [])
    assert (figures.days, figures.turns) == ({}, 0)


def test_prompts_with_and_without_memories_are_counted():
    figures = Figures()
    figures.add_turn(make_transcript(), [measure(0), measure(40), measure(7)])
    assert (figures.recalls, figures.without_recall) == (2, 1)


def test_agents_of_one_id_in_two_teams_are_apart():
    insights, figures = Insights(), Figures()
    for number, path in enumerate(("/a/team.yaml", "/b/other.yaml", "/b/other.yaml")):
        insights.add_session(session_record(session_id=str(number), config_path=path))
        insights.add_turn(make_transcript())
        figures.add_turn(make_transcript(), [], path)
    agents = insights.to_json()["agents"]
    assert {name: (agent["name"], agent["turns"]) for name, agent in agents.items() if name.startswith("ann")} == {
        "ann (other.yaml)": ("ann (other.yaml)", 2),
        "ann (team.yaml)": ("ann (team.yaml)", 1),
    }
    (day,) = figures.days.values()
    assert (day.agents["/a/team.yaml", "ann"].turns, day.agents["/b/other.yaml", "ann"].turns) == (1, 2)


def test_teams_are_told_apart_by_as_little_as_it_takes():
    keys = [("/a/team.yaml", "ann"), ("/b/team.yaml", "ann"), ("/b/other.yaml", "ann"), ("/a/team.yaml", "ben")]
    assert [*name_teams(keys).values()] == ["/a/team.yaml", "/b/team.yaml", "other.yaml", ""]
