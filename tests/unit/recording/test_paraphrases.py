"""Sentences that may say a statement in other words, by the rarity of the words that they share with it."""

from massmem.core.records import MessageRecord
from massmem.recording.paraphrases import ParaphraseFinder
from massmem.recording.redaction import Redactor
from tests.support.sample_turn import START

STATEMENT = "My daughter's name is Xenia."


def message(text: str, number: int) -> MessageRecord:
    return MessageRecord(
        id=str(number), session_id="s", seq=number, turn=1, round=0, kind="user", role="user", content=text,
        created_at=START,
    )  # fmt: skip


def find(*texts: str, limit: int = 9) -> list[str]:
    finder = ParaphraseFinder(STATEMENT, Redactor([STATEMENT]).says)
    for number, text in enumerate(texts):
        finder.add(message(text, number))
    return [paraphrase.sentence for paraphrase in finder.list_best(limit)]


COMMON = [f"What is the name of street {number}?" for number in range(30)]


def test_sentence_with_the_rare_words_is_near_and_one_with_common_words_is_not():
    assert find(*COMMON, "Tea, please. Xenia is nine.", "A kite.") == ["Xenia is nine."]


def test_best_sentence_stands_first_and_the_limit_holds():
    texts = (*COMMON, "Xenia is nine.", "Our daughter Xenia plays chess.")
    assert find(*texts) == ["Our daughter Xenia plays chess.", "Xenia is nine."]
    assert find(*texts, limit=1) == ["Our daughter Xenia plays chess."]


def test_sentence_that_goes_anyway_is_not_named():
    assert find(*COMMON, "I said it: my daughter's name is Xenia!") == []
    assert find() == []
