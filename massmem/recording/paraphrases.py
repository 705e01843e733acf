"""Finds what may say a statement in other words: the user decides. Pure."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from massmem.core.records import MessageRecord
from massmem.recording.forgetting import list_stems
from massmem.recording.redaction import list_sentences

_MIN_SHARE = 0.35
"""Of the weight of a statement's words: with less in common a sentence is about something else."""
_MAX_OF_A_KIND = 50
"""Sentences with the same words of a statement that are kept."""


@dataclass(frozen=True, slots=True)
class Paraphrase:
    """A sentence that may say a statement in other words."""

    message: MessageRecord
    sentence: str
    share: float
    """Of the weight of the statement's words; rare words weigh most."""


class ParaphraseFinder:
    """Looks at message after message for sentences that share words with one statement."""

    def __init__(self, statement: str, says: Callable[[str], bool]) -> None:
        """says: whether a sentence says what is to be forgotten anyway."""
        self._stems = list_stems(statement)
        self._says = says
        self._counts: Counter[str] = Counter()
        self._messages = 0
        self._sentences: dict[frozenset[str], list[tuple[MessageRecord, str]]] = {}

    def add(self, message: MessageRecord) -> None:
        """Look at a message."""
        self._messages += 1
        folded = message.content.casefold()
        shared = [stem for stem in self._stems if stem in folded]
        self._counts.update(shared)
        for sentence in list_sentences(message.content) if shared else ():
            same = self._stems & list_stems(sentence)
            similar = self._sentences.setdefault(same, [])
            if same and len(similar) < _MAX_OF_A_KIND and not self._says(sentence):
                similar.append((message, sentence))

    def list_best(self, limit: int) -> Sequence[Paraphrase]:
        """Return the sentences that share most, best first."""
        weights = {stem: log(1 + self._messages / (1 + self._counts[stem])) for stem in self._stems}
        whole = sum(weights.values()) or 1.0
        paraphrases = [
            Paraphrase(message, sentence, sum(weights[stem] for stem in same) / whole)
            for same, sentences in self._sentences.items()
            for message, sentence in sentences
        ]
        near = [paraphrase for paraphrase in paraphrases if paraphrase.share >= _MIN_SHARE]
        return sorted(near, key=lambda paraphrase: -paraphrase.share)[:limit]
