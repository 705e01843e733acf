import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.cli.chat.paste import MAX_INLINE_CHARACTERS, PasteReader, Pastes

START, END = "\x1b[200~", "\x1b[201~"


def test_short_paste_is_inserted_with_unix_line_ends():
    assert Pastes().add("one\r\ntwo\rthree") == "one\ntwo\nthree"


@pytest.mark.parametrize("text", ["x" * (MAX_INLINE_CHARACTERS + 1), "line\n" * 40])
def test_long_paste_gets_a_placeholder(text: str):
    pastes = Pastes()
    placeholder = pastes.add(text)
    assert len(placeholder) < 40
    assert pastes.expand(f"see {placeholder}!") == f"see {text}!"


def test_every_paste_has_its_own_placeholder():
    pastes = Pastes()
    first, second = pastes.add("a" * 5_000), pastes.add("b" * 5_000)
    assert first != second
    assert pastes.expand(second + first) == "b" * 5_000 + "a" * 5_000


def test_edited_and_typed_placeholders_stay_text():
    pastes = Pastes()
    placeholder = pastes.add("a" * 5_000)
    edited = placeholder.replace("5,000", "5,001")
    assert pastes.expand(edited) == edited
    assert pastes.expand("[pasted 5,000 characters #2]") == "[pasted 5,000 characters #2]"
    pastes.clear()
    assert pastes.expand(placeholder) == placeholder


@given(st.text("ab\n", max_size=30), st.text("cd\n", max_size=30), st.lists(st.integers(6, 80), max_size=8))
def test_small_pastes_and_keys_pass_in_any_pieces(typed: str, pasted: str, cuts: list[int]):
    reader = PasteReader(0, Pastes())
    data = f"{typed}{START}{pasted}{END}{typed}"
    # The start mark is not cut: prompt_toolkit parses a paste that was not recognised.
    positions = [cut for cut in sorted({*cuts}) if not len(typed) < cut < len(typed) + len(START)]
    pieces = [data[a:b] for a, b in zip([0, *positions], [*positions, len(data)], strict=True)]
    assert "".join(map(reader.replace_pastes, pieces)) == data


def test_large_paste_in_pieces_becomes_a_placeholder():
    pastes = Pastes()
    reader = PasteReader(0, pastes)
    text = "0123456789" * 1_000
    pieces = ["see ", START + text[:4_000], text[4_000:] + END[:3], END[3:] + "!"]
    output = "".join(map(reader.replace_pastes, pieces))
    assert output == f"see {START}[pasted 10,000 characters #1]{END}!"
    assert pastes.expand("[pasted 10,000 characters #1]") == text


def test_paste_of_ten_megabytes_takes_less_than_two_seconds():
    reader = PasteReader(0, Pastes())
    started = time.process_time()
    reader.replace_pastes(START)
    for _ in range(10_000):
        assert reader.replace_pastes("x" * 1_000) == ""
    assert len(reader.replace_pastes(END)) < 60
    assert time.process_time() - started < 2


def test_invalid_utf8_is_read():
    out, into = os.pipe()
    os.write(into, b"\xff\xfe\xc3")
    os.write(into, b"\xa9")
    reader = PasteReader(out, Pastes())
    assert "é" in reader.read()
    os.close(into)
    os.close(out)


@pytest.mark.parametrize("size", [4_000_001, 9_000_000])
def test_endless_paste_is_cut_but_still_too_long_for_a_question(size: int):
    pastes = Pastes()
    reader = PasteReader(0, pastes)
    reader.replace_pastes(START)
    for _ in range(size // 100_000 + 1):
        reader.replace_pastes("x" * 100_000)
    placeholder = reader.replace_pastes(END).removeprefix(START).removesuffix(END)
    assert 1_000_000 < len(pastes.expand(placeholder)) < 4_200_000
