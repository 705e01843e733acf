"""Clients of OpenAI's API that nobody here wrote: its Node SDK, `llm`, aider. Its Python SDK: test_server_openai.py.

They are installed in `.clients`; CONTRIBUTING.md says how.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import Service, StartService, make_agent, make_config, make_token

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".clients"
LLM = CLIENTS / "llm" / "bin" / "llm"
AIDER = CLIENTS / "aider" / "bin" / "aider"
AIDER_OPTIONS = (
    "--no-git", "--no-gitignore", "--no-analytics", "--no-check-update", "--no-show-release-notes", "--no-pretty",
    "--no-show-model-warnings", "--yes-always", "--edit-format", "whole",
)  # fmt: skip

pytestmark = pytest.mark.slow

NODE_PROGRAM = """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.env.URL, apiKey: process.env.KEY, maxRetries: 0 });
const models = [];
for await (const model of client.models.list()) models.push(model.id);
const messages = [{ role: "system", content: "Be brief." }, { role: "user", content: "Why is the sky blue?" }];
const first = await client.chat.completions.create({ model: "massmem", messages });
messages.push(first.choices[0].message, { role: "user", content: "And at night?" });
const stream = await client.chat.completions.create({ model: "massmem", messages, stream: true });
let words = "", progress = "";
for await (const chunk of stream) {
  words += chunk.choices[0]?.delta?.content ?? "";
  progress += chunk.choices[0]?.delta?.reasoning_content ?? "";
}
const runner = client.responses.stream({ model: "massmem", input: "Why?" });
const response = await runner.finalResponse();
let code = "";
try { await client.chat.completions.create({ model: "none", messages }); }
catch (error) { code = `${error.constructor.name} ${error.status} ${error.code}`; }
console.log(JSON.stringify({ models, first: first.choices[0].message.content, words, progress, code,
                             response: response.output_text, usage: first.usage.total_tokens }));
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    agents = [make_agent("ann", "It is blue.", chunk_size=3), make_agent("bob", "It is blue.")]
    service = Service(tmp_path_factory.mktemp("clients"), make_config(*agents)).start()
    yield service
    service.stop()


def test_node_sdk_lists_asks_and_streams(service: Service) -> None:
    node = shutil.which("node")
    if node is None or not (CLIENTS / "node_modules" / "openai").exists():
        pytest.skip("OpenAI's Node SDK is not installed: npm install --prefix .clients openai")
    environment = os.environ | {"URL": f"{service.url}/v1", "KEY": make_token("node")}
    run = subprocess.run(
        [node, "--input-type=module", "-e", NODE_PROGRAM],
        cwd=CLIENTS, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["models"] == ["massmem", "massmem/default", "massmem/default/ann", "massmem/default/bob"]
    assert (result["first"], result["words"], result["response"]) == ("It is blue.",) * 3
    assert "ann answers" in result["progress"]
    assert result["usage"] > 0
    assert result["code"] == "NotFoundError 404 model_not_found"
    sessions = service.client("node").list_sessions()
    assert sorted(len(service.client("node").read_history(name)) for name in sessions) == [2, 4]


def test_llm_asks_streams_and_continues(service: Service, tmp_path: Path) -> None:
    if not LLM.exists():
        pytest.skip("llm is not installed: python -m venv .clients/llm && .clients/llm/bin/pip install llm")
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- {{model_id: council, model_name: massmem, api_base: '{service.url}/v1', api_key_name: massmem}}\n"
    )
    (tmp_path / "keys.json").write_text(json.dumps({"massmem": make_token("llm")}))

    def run_llm(*arguments: str) -> str:
        environment = os.environ | {"LLM_USER_PATH": str(tmp_path)}
        run = subprocess.run(
            [LLM, *arguments], env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()

    assert run_llm("-m", "council", "Why is the sky blue?") == "It is blue."
    assert run_llm("-m", "council", "--no-stream", "-c", "And at night?") == "It is blue."
    (session_id,) = service.client("llm").list_sessions()
    questions = [text for role, text in service.client("llm").read_history(session_id) if role == "user"]
    assert questions == ["Why is the sky blue?", "And at night?"]


def test_aider_shows_its_files_and_writes_what_the_council_answers(start_service: StartService, tmp_path: Path) -> None:
    if not AIDER.exists():
        pytest.skip(
            "aider is not installed: python -m venv .clients/aider && .clients/aider/bin/pip install aider-chat"
        )
    edit = "sky.py\n```python\nCOLOUR = 'blue'\n```\n"
    service = start_service(make_config(*(make_agent(name, edit, chunk_size=3) for name in ("ann", "bob"))))
    (tmp_path / "sky.py").write_text("COLOUR = 'grey'\n")
    url, key = f"{service.url}/v1", make_token("aider")
    models = ("--model", "openai/massmem", "--weak-model", "openai/massmem/default/ann")
    run = subprocess.run(
        [AIDER, *models, "--openai-api-base", url, "--openai-api-key", key, *AIDER_OPTIONS,
         "--message", "Make the sky blue.", "sky.py"],
        env=os.environ | {"HOME": str(tmp_path), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}, cwd=tmp_path,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "sky.py").read_text() == "COLOUR = 'blue'\n", run.stdout
    assert "ann answers" in run.stdout, "the council's progress is shown as thoughts"
    (session_id,) = service.client("aider").list_sessions()
    history = service.client("aider").read_history(session_id)
    assert any("COLOUR = 'grey'" in text for _, text in history), "the file belongs to the conversation"
    assert "Make the sky blue." in history[-2][1]
