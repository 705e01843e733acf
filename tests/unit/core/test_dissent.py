from massmem.core.dissent import Dissent, find_dissent

ANSWERS = {"ann": "Paris, since 987.", "bob": "Lyon.", "eve": "Marseille."}


def dissent_of(ballots: dict[str, str], **more: str) -> Dissent:
    dissent = find_dissent("ann", ANSWERS | more, {voter: (choice, "as it is") for voter, choice in ballots.items()})
    assert dissent is not None
    return dissent


def test_who_gave_or_chose_the_answer_agrees_and_who_preferred_another_does_not():
    dissent = dissent_of({"ann": "eve", "bob": "eve", "eve": "ann"})
    assert [position.agent_id for position in dissent.agreed] == ["ann", "eve"], "ann may not choose its own"
    (bob,) = dissent.minority
    assert (bob.answer, bob.choice, bob.reason) == ("Lyon.", "eve", "as it is")


def test_who_gave_another_answer_and_did_not_vote_is_of_the_minority():
    assert [position.agent_id for position in dissent_of({"bob": "ann"}).minority] == ["eve"]


def test_the_same_answer_agrees_without_a_vote():
    assert [position.agent_id for position in dissent_of({}, eve="paris, since 987").agreed] == ["ann", "eve"]


def test_an_agent_alone_has_no_dissent():
    assert find_dissent("ann", {"ann": "Paris."}, {"ann": ("ann", "mine")}) is None
    assert find_dissent("gone", {"ann": "Paris.", "bob": "Lyon."}, {}) is None


def test_one_line_says_how_many_agree_and_what_the_others_prefer():
    dissent = dissent_of({"bob": "eve", "ann": "bob"})
    assert dissent.summarize(str.upper) == (
        "1 of 3 agents gave or chose this answer; BOB prefers the answer of EVE: as it is; EVE answered: Marseille."
    )


def test_of_a_large_minority_the_line_names_two():
    line = dissent_of({}, ida="Nice.", jan="Lille.", kim="Metz.").summarize(str)
    assert line == (
        "1 of 6 agents gave or chose this answer; bob answered: Lyon.; eve answered: Marseille.; 3 more do not"
    )


def test_json_has_every_agent_once():
    data = dissent_of({"bob": "eve", "eve": "ann"}).to_json()
    assert [entry["agent"] for entry in (*data["agreed"], *data["minority"])] == ["ann", "eve", "bob"]
    assert data["agreed"][0] == {"agent": "ann", "answer": "Paris, since 987.", "choice": None, "reason": None}


def test_vote_against_the_own_result_is_no_agreement():
    answers = {"ann": "Answer: 42", "bob": "Answer: 7", "eve": "6 x 7 makes 42"}
    dissent = find_dissent("ann", answers, {"bob": ("ann", "it is longer")})
    assert dissent is not None
    assert dissent.summarize(str) == "2 of 3 agents gave or chose this answer; bob answered: Answer: 7"
    assert dissent.to_json()["minority"] == [
        {"agent": "bob", "answer": "Answer: 7", "choice": "ann", "reason": "it is longer"}
    ]
