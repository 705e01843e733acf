from datetime import timedelta
from typing import Any

from massmem.core.events import ContextMeasured, Event
from massmem.core.insights import MAX_TOPICS, Figures, Insights, extract_topics, name_teams
from massmem.core.turn_result import TurnResult
from tests.support.sample_turn import START, USAGE, event
from tests.support.sessions_said import make_events, session_record

FAILED = event(2, "turn_failed", message="no agent could answer", exit_code=1, usage=USAGE)


def turn(*args: Any, **fields: Any) -> TurnResult:
    return TurnResult.of(make_events(*args, **fields))


def of(*turns: TurnResult, **session: Any) -> dict[str, Any]:
    insights = Insights()
    insights.add_session(session_record(**session))
    for result in turns:
        insights.add_turn(result)
    return insights.to_json()


def test_counts_time_and_tokens():
    insights = of(turn(), turn("And sunsets?", end=FAILED))
    assert (insights["turns"], insights["turns_by_status"]) == (2, {"completed": 1, "failed": 1})
    assert (insights["message_count"], insights["user_messages"], insights["assistant_messages"]) == (8, 2, 1)
    assert (insights["duration"], insights["response_time"]) == (300.0, 2.5)
    assert insights["tokens"] == {"prompt": 170, "completion": 50, "cached": 10, "reported": True}
    assert (insights["confidence"], insights["escalated"]) == (0.9, 0)


def test_who_won_how_often():
    insights = of(
        turn(cost=0.5),
        turn(cost=0.5, winner="bob"),
        turn(cost=0.5, end=event(2, "turn_interrupted", by="user")),
    )
    assert insights["agents_used"] == ["ann", "bob"]
    assert insights["agents"]["ann"] == {
        "name": "ann", "turns": 3, "answers": 6, "ballots": 3, "votes_received": 6, "wins": 1, "win_rate": 0.5,
        "tokens": 136, "cost": 0.65,
    }  # fmt: skip
    assert insights["agents"]["bob"]["win_rate"] == 0.5
    nobody = of(turn(end=FAILED))
    assert nobody["agents"]["ann"]["win_rate"] is None


def test_cost_is_the_sum_of_the_turns_and_not_known_when_one_is_not():
    known = of(turn(cost=0.1), turn(cost=0.2), turn(cost=0.0))
    assert (known["cost"], known["known_cost"], known["turns_without_price"]) == (0.3, 0.3, 0)
    partly = of(turn(cost=0.1), turn())
    assert (partly["cost"], partly["known_cost"], partly["turns_without_price"]) == (None, 0.1, 1)
    assert partly["agents"]["ann"]["cost"] is None


def test_tools_are_counted_with_their_failures():
    def use(name: str, *, failed: bool = False) -> Event:
        fields = {"agent_id": "ann", "round": 1, "name": name, "content": "x", "call_id": "c"}
        return event(1, "tool_returned", **fields, failed=failed)

    start, *rest = make_events()
    outside = event(1, "tool_returned", agent_id="ann", round=0, name="lint", content="x")
    used = [use("mcp__f__read"), use("mcp__f__list"), use("mcp__f__read", failed=True)]
    insights = of(TurnResult.of([start, *used, outside, *rest]))
    assert insights["tools"] == {"mcp__f__read": {"calls": 2, "failed": 1}, "mcp__f__list": {"calls": 1, "failed": 0}}
    assert insights["tool_sequences"] == [
        {"tools": ["mcp__f__read", "mcp__f__list", "mcp__f__read"], "times": 1, "succeeded": 0}
    ]
    good = of(TurnResult.of([start, *used[:2], *rest]))
    assert good["tool_sequences"] == [{"tools": ["mcp__f__read", "mcp__f__list"], "times": 1, "succeeded": 1}]
    assert of(turn())["tools"] == {}


def test_topics_are_the_words_of_most_questions():
    questions = ["Which index does PostgreSQL use?", "Is a PostgreSQL index PostgreSQL-only?", "What about Lisbon?"]
    insights = of(*[turn(q) for q in questions])
    assert insights["topics"][:2] == ["index", "postgresql"]
    assert "lisbon" in insights["topics"]
    assert not {"which", "about", "what"} & set(insights["topics"])
    many = of(*[turn(f"word{chr(97 + i) * 3}") for i in range(20)])
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
    figures.add_turn(turn(cost=0.5), [])
    figures.add_turn(turn(end=FAILED), [])
    figures.add_turn(turn(start=START + timedelta(days=1)), [])
    first, second = (figures.days[day] for day in sorted(figures.days))
    assert (first.turns.total(), first.response_times) == (2, [2.5])
    assert (first.agents["", "ann"].turns, first.agents["", "ann"].wins) == (2, 1)
    assert first.agents["", "ann"].usage.prompt == 70
    assert (second.turns.total(), second.agents["", "bob"].wins) == (1, 0)
    assert figures.turns == 3


def test_prompts_with_and_without_memories_are_counted():
    figures = Figures()
    figures.add_turn(turn(), [measure(0), measure(40), measure(7)])
    assert (figures.recalls, figures.without_recall) == (2, 1)


def test_agents_of_one_id_in_two_teams_are_apart():
    insights, figures = Insights(), Figures()
    for number, path in enumerate(("/a/team.yaml", "/b/other.yaml", "/b/other.yaml")):
        insights.add_session(session_record(session_id=str(number), config_path=path))
        insights.add_turn(turn())
        figures.add_turn(turn(), [], path)
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
