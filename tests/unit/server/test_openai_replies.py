"""The words of an answer: cut at stops and limits, whatever the pieces that they come in."""

from collections.abc import AsyncGenerator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core.messages import Usage
from massmem.server.openai_replies import Finish, Piece, Progress, Words, limit_words


async def yield_pieces(texts: Sequence[str]) -> AsyncGenerator[Piece, None]:
    yield Progress("round 1\n")
    for text in texts:
        yield Words(text)
    yield Finish("stop", Usage(1, 2))


async def cut(texts: Sequence[str], stops: Sequence[str], most: int | None = None) -> tuple[str, str]:
    pieces = [piece async for piece in limit_words(yield_pieces(texts), stops, most)]
    finish = pieces[-1]
    assert isinstance(finish, Finish)
    assert finish.usage == Usage(1, 2)
    assert pieces[0] == Progress("round 1\n")
    return "".join(piece.text for piece in pieces if isinstance(piece, Words)), finish.reason


@pytest.mark.parametrize(
    ("texts", "stops", "most", "expected"),
    [
        (["It is", " blue."], [], None, ("It is blue.", "stop")),
        (["It is", " blue."], ["s b"], None, ("It i", "stop")),
        (["It is", " blue."], ["blue", "is"], None, ("It ", "stop")),
        (["It is", " blue."], ["."], 100, ("It is blue", "stop")),
        (["It is", " blue."], ["never"], 2, ("It is bl", "length")),
        (["äääää"], [], 1, ("ää", "length")),
        (["It"], ["It"], None, ("", "stop")),
        ([], ["x"], 1, ("", "stop")),
    ],
)
async def test_answer_ends_at_its_stop_or_limit(
    texts: list[str], stops: list[str], most: int | None, expected: tuple[str, str]
) -> None:
    assert await cut(texts, stops, most) == expected


@given(st.lists(st.text("abc", max_size=4), max_size=8), st.lists(st.text("abc", min_size=1, max_size=3), max_size=3))
async def test_pieces_do_not_matter(texts: list[str], stops: list[str]) -> None:
    whole = "".join(texts)
    assert await cut(texts, stops) == await cut([whole], stops)
