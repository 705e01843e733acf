import pytest

from massmem.recording.forgetting import fingerprint_fact, is_forgotten

DAUGHTER = "The user's daughter is named Xenia."
WRITES = "Postgres 16 took 1,200 writes per second on the staging server on 4 March 2025."


@pytest.mark.parametrize(
    ("text", "forgotten"),
    [
        (DAUGHTER, True),
        (DAUGHTER.upper(), True),
        ("Xenia is the daughter of the user.", True),
        ("The user's daughter plays the violin.", False),
        ("The user lives in Cobham.", False),
        ("", False),
    ],
)
def test_most_of_its_words_make_it_the_same(text: str, forgotten: bool):
    assert is_forgotten(text, [fingerprint_fact(WRITES), fingerprint_fact(DAUGHTER)]) is forgotten


@pytest.mark.parametrize(
    "other",
    [
        "Postgres 16 took 300 reads per second on the staging server.",
        "Postgres 16 runs on the staging server.",
        "Redis 7 lost the last second of writes when its server was killed.",
    ],
)
def test_another_fact_about_the_same_thing_stays(other: str):
    assert not is_forgotten(other, [fingerprint_fact(WRITES)])


def test_nothing_of_the_text_is_kept():
    numbers = fingerprint_fact(DAUGHTER)
    assert len(numbers) == 4
    assert all(0 <= number < 2**32 for number in numbers)
    assert not is_forgotten(DAUGHTER, [])
    assert not is_forgotten("", [()])
