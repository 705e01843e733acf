from massmem.core.election import Answer, Election


def answers(**contents: str) -> dict[str, Answer]:
    return {agent: Answer(agent, number, content) for number, (agent, content) in enumerate(contents.items(), 1)}


def election(ballots: dict[str, str], *, own_votes: bool = False, **contents: str) -> Election:
    return Election(answers(**contents), ballots, own_votes=own_votes)


def choices(vote: Election, voter: str) -> list[str]:
    return [candidate.agent_id for candidate in vote.candidates if vote.may_choose(voter, candidate)]


def supporters(vote: Election, agent_id: str) -> int:
    return len(vote.list_supporters(next(c for c in vote.candidates if c.agent_id == agent_id)))


def test_same_answers_are_one_candidate_the_earliest():
    same = dict(reversed(answers(a="Rome", b="Paris", c="paris.").items()))
    assert [answer.agent_id for answer in Election(same, {}, own_votes=False).candidates] == ["a", "b"]


def test_nobody_chooses_its_own_answer():
    vote = election({}, a="Rome", b="Paris", c="Oslo")
    assert {voter: choices(vote, voter) for voter in "abcd"} == {
        "a": ["b", "c"], "b": ["a", "c"], "c": ["a", "b"], "d": ["a", "b", "c"],
    }  # fmt: skip


def test_an_answer_that_another_agent_gave_as_well_may_be_chosen():
    vote = election({}, a="Rome", b="Paris", c="paris")
    assert {voter: choices(vote, voter) for voter in "abc"} == {"a": ["b"], "b": ["a", "b"], "c": ["a", "b"]}


def test_own_answers_may_be_chosen_where_that_is_allowed_or_there_is_no_other():
    assert choices(election({}, own_votes=True, a="Rome", b="Paris"), "a") == ["a", "b"]
    assert choices(election({}, a="Rome"), "a") == ["a"]


def test_ballots_for_the_same_answer_count_together_and_those_for_nobody_do_not():
    vote = election({"a": "b", "d": "c", "b": "a", "c": "gone"}, a="Rome", b="Paris", c="paris")
    assert vote.votes == {"a": 1, "b": 2}
    assert [leader.agent_id for leader in vote.list_leaders()] == ["b"]


def test_agents_that_gave_an_answer_or_voted_for_it_support_it_once_each():
    vote = election({"b": "c", "c": "b"}, a="Rome", b="Paris", c="paris", d="Oslo")
    assert {agent: supporters(vote, agent) for agent in "abd"} == {"a": 1, "b": 2, "d": 1}


def test_an_author_supports_its_answer_though_it_had_to_vote_for_another():
    vote = election({"a": "b", "b": "a", "c": "a"}, a="Rome", b="Paris", c="Oslo")
    assert {agent: supporters(vote, agent) for agent in "abc"} == {"a": 3, "b": 2, "c": 1}


def test_an_author_that_could_choose_its_answer_and_preferred_another_does_not_support_it():
    vote = election({"b": "a"}, a="Rome", b="Paris", c="paris")
    assert {agent: supporters(vote, agent) for agent in "ab"} == {"a": 2, "b": 1}
    two = election({"a": "b", "b": "b"}, own_votes=True, a="Rome", b="Paris")
    assert {agent: supporters(two, agent) for agent in "ab"} == {"a": 0, "b": 2}


def test_of_equal_answers_a_whole_one_comes_before_one_that_is_cut_off():
    cut, whole = Answer("a", 1, "The sky is", truncated=True), Answer("b", 2, "The sky is blue.")
    vote = Election({"a": cut, "b": whole}, {}, own_votes=True)
    assert [leader.agent_id for leader in vote.list_leaders()] == ["b", "a"]


def test_an_answer_stands_where_the_first_of_its_agents_is_listed():
    listed = {"a": Answer("a", 3, "Rome"), "b": Answer("b", 1, "Oslo"), "c": Answer("c", 2, "Rome")}
    assert [leader.content for leader in Election(listed, {}, own_votes=True).list_leaders()] == ["Rome", "Oslo"]
    tied = {
        "a": Answer("a", 4, "Rome"),
        "b": Answer("b", 1, "Oslo"),
        "c": Answer("c", 2, "Oslo"),
        "d": Answer("d", 3, "Rome"),
    }
    assert [leader.content for leader in Election(tied, {}, own_votes=True).list_leaders()] == ["Rome", "Oslo"]
