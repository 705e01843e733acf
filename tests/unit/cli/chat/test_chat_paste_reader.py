import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.cli.chat.paste_reader import PasteReader
from massmem.cli.chat.pastes import Pastes

START, END = "\x1b[200~", "\x1b[201~"


@given(st.text("ab\n", max_size=30), st.text("cd\n", max_size=30), st.lists(st.integers(6, 80), max_size=8))
def test_small_pastes_and_keys_pass_whatever_pieces_they_come_in(typed: str, pasted: str, cuts: list[int]):
    reader = PasteReader(0, Pastes())
    sent = f"{typed}{START}{pasted}{END}{typed}"
    # The mark that begins a paste is not cut here: the parser behind this knows it, too.
    places = [at for at in sorted({*cuts}) if not len(typed) < at < len(typed) + len(START)]
    pieces = [sent[a:b] for a, b in zip([0, *places], [*places, len(sent)], strict=True)]
    assert "".join(map(reader.passed, pieces)) == sent


def test_a_large_paste_becomes_a_mark():
    pastes = Pastes()
    reader = PasteReader(0, pastes)
    text = "0123456789" * 1_000
    shown = "".join(map(reader.passed, ["see ", START + text[:4_000], text[4_000:] + END[:3], END[3:] + "!"]))
    assert shown == f"see {START}[pasted 10,000 characters #1]{END}!"
    assert pastes.whole("[pasted 10,000 characters #1]") == text


def test_ten_megabytes_take_no_time_to_speak_of():
    reader = PasteReader(0, Pastes())
    began = time.process_time()
    reader.passed(START)
    for _ in range(10_000):
        assert reader.passed("x" * 1_000) == ""
    assert len(reader.passed(END)) < 60
    assert time.process_time() - began < 2


def test_bytes_that_are_no_text_do_no_harm():
    out, into = os.pipe()
    os.write(into, b"\xff\xfe\xc3")
    os.write(into, b"\xa9")
    reader = PasteReader(out, Pastes())
    assert "é" in reader.read()
    os.close(into)
    os.close(out)


@pytest.mark.parametrize("size", [4_000_001, 9_000_000])
def test_of_a_paste_without_end_enough_is_kept_to_refuse_it(size: int):
    pastes = Pastes()
    reader = PasteReader(0, pastes)
    reader.passed(START)
    for _ in range(size // 100_000 + 1):
        reader.passed("x" * 100_000)
    mark = reader.passed(END).removeprefix(START).removesuffix(END)
    assert 1_000_000 < len(pastes.whole(mark)) < 4_200_000
