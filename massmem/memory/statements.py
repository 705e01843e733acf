"""Finds the memories in an index that say given statements: among those that share most words with them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from massmem.memory.index import ALL_POINTS, Index, Payloads, matching
from massmem.memory.persistent import Memory, Selection
from massmem.memory.points import to_memory
from massmem.memory.text_analysis import build_query_vector, extract_query_forms

_BY_WORDS = 10_000
"""Memories that are looked at for each statement, those that share most words with it."""


@dataclass(frozen=True, slots=True)
class StatementQuery:
    """What memories are looked for."""

    statements: Sequence[str]
    is_said_in: Callable[[str], bool]
    """Whether a text says one of the statements."""
    among: Selection
    message_ids: tuple[str, ...] = ()
    """Passages of these messages are meant as well, whatever they say."""


def find_statements(index: Index, query: StatementQuery) -> list[Memory]:
    """Return the memories that say a statement, or are of one of the messages. Raises MemoryUnavailable."""
    points = dict(
        point for statement in query.statements for point in find_by_words(index, statement, query.among, _BY_WORDS)
    )
    memories = [to_memory(point_id, payload) for point_id, payload in points.items()]
    meant = {memory.id: memory for memory in memories if any(map(query.is_said_in, (memory.text, memory.call)))}
    if query.message_ids:
        of_messages = replace(query.among, message_ids=query.message_ids, kind="episode")
        passages = [to_memory(*point) for point in index.page(of_messages, ALL_POINTS)]
        meant |= {memory.id: memory for memory in passages}
    return [*meant.values()]


def find_by_words(index: Index, text: str, among: Selection, limit: int) -> Payloads:
    """Return what shares words with a text, best first; everything when the text has no word to look for."""
    words = build_query_vector(extract_query_forms(text))
    if not words:
        return index.page(among, ALL_POINTS)
    ids = [point_id for point_id, _ in index.search_words(words, matching(among), limit)]
    payloads = index.read_payloads(ids)
    return [(point_id, payloads[point_id]) for point_id in ids if point_id in payloads]
