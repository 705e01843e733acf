"""The first run: when nothing on this machine could answer, say so at once, and how to change that."""

import os
import shlex
from pathlib import Path

from massmem.cli.ask import RunOptions
from massmem.cli.team import read_dotenv
from massmem.config.load import KEYED, own_config
from massmem.errors import InputError
from massmem.home import massmem_home
from massmem.weights import DEFAULT, FETCH, models_folder, state


def check_first_run(options: RunOptions) -> None:
    """Nothing is made and nobody is asked; what the other modules would find missing later is told here, all of it.

    Raises:
        InputError: no configuration, no key and no model.
    """
    if options.config is not None:
        return
    own = own_config(massmem_home())
    if os.path.lexists(own):
        return
    read_dotenv(Path(".env"))
    if any(os.environ.get(variable) for variable, _, _ in KEYED):
        return
    if state(models_folder() / DEFAULT.file, DEFAULT.sha256) == "missing":
        raise InputError(
            f"nothing is set up that could answer: there is no {own}, no API key in the environment, and no model on "
            "this machine",
            _ways(options.question),
        )


def _ways(question: str | None) -> str:
    asked = shlex.quote(question) if question and len(question) <= 60 else '"your question"'
    ways = (
        ("massmem init", "finds keys and model servers (Ollama, LM Studio, ...) here, and writes the file"),
        ("export OPENAI_API_KEY=...", "or ANTHROPIC_API_KEY, GEMINI_API_KEY, GROQ_API_KEY, ..."),
        (FETCH, "1.1 GB, once: a model inside massmem; nothing leaves this machine"),
        (f"massmem --config @examples/scripted {asked}", "a demonstration without any model"),
    )
    lines = [f"  {command:<28}  {what}" for command, what in ways]
    return "\n".join(["any one of these changes that:", *lines])
