"""Short forms of ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.memory.persistent import SHORT_ID_LENGTH, find_ids, is_short_id, shorten_id
from massmem.memory.points import session_base


@given(st.integers(0, 2**63 - 1))
def test_short_form_finds_its_id(number: int):
    short = shorten_id(str(number))
    assert len(short) == SHORT_ID_LENGTH
    assert is_short_id(short)
    assert find_ids(short, [number]) == find_ids(short[:5].upper(), [number]) == [str(number)]


def test_neighbours_begin_differently():
    numbers = [session_base(name, 0) + position for name in ("a", "b") for position in range(200)]
    assert len({shorten_id(str(number))[:4] for number in numbers}) > 390
    assert all(find_ids(shorten_id(str(n)), numbers) == [str(n)] for n in numbers)


@pytest.mark.parametrize("text", ["4607214409180250112", "ab5aa97074c454a00000000000000001", "abc", "a_b_c", "o1il"])
def test_other_names_are_no_short_forms(text: str):
    assert not is_short_id(text)
    assert shorten_id("ab5aa97074c454a00000000000000001") == "ab5aa97074c454a00000000000000001"
