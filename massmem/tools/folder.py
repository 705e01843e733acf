"""A folder that agents may read: which of its files, and how one is opened so that nothing beside them is read.

Each name is opened below the descriptor of its folder, and links are followed by hand, so a name that changes meanwhile
leads to an error and never to a file outside. What git ignores, hidden folders, files that may hold secrets and binary
files are left out, unless the configuration includes them. Paths are those that agents are shown: in one line, with
composed letters (NFC).
"""

import os
import re
import stat
import time
import unicodedata
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import re2  # pyright: ignore[reportMissingTypeStubs]
from pathspec import GitIgnoreSpec

from massmem.config.home import expand_home
from massmem.config.models import FolderConfig
from massmem.core.errors import InputError
from massmem.core.messages import clean_text
from massmem.core.text import make_printable

_MAX_ENTRIES = 500_000
"""Names of one folder that are looked at."""
_MAX_DEPTH, _MAX_LINKS, _MAX_NAMED = 100, 40, 10
_MAX_RULES, _LINES_AT_ONCE = 1_000_000, 1_000
"""Bytes of a .gitignore; lines for which RE2 has room in one set."""

SECRET, HIDDEN, IGNORED, BINARY = "perhaps secret", "hidden", "ignored by git", "binary"
LINK, DEVICE, UNREADABLE = "links elsewhere", "pipes, sockets and devices", "unreadable"
"""What is left out."""

_SECRET_NAMES = """
    .env .env.* .env-* *.env .envrc *.pem *.key *.p8 *.p12 *.pfx *.jks *.keystore *.kdbx *.ppk *.ovpn *.asc *.gpg
    id_rsa* id_dsa* id_ecdsa* id_ed25519* [._]netrc .npmrc .yarnrc* .pypirc .pgpass .my.cnf .htpasswd .dockercfg
    .dockerconfigjson .boto .s3cfg .authinfo* .terraformrc .vault-token *.tfstate *.tfstate.* *.tfvars *.tfvars.json
    kubeconfig* *.kubeconfig service?account*.json *history *.har
"""
_SECRETS = re.compile("|".join(map(translate, _SECRET_NAMES.split())))
_SECRET_WORDS = re.compile(
    r"(?:.*[^a-z])?(?:(?:secret|credential|password|cookie|api[ _-]?key|private[ _-]?key|(?:access|auth)[ _-]?token)s?"
    r"|passwd|tokens?(?=\.|$))(?:[^a-z].*)?"
)
"""In the name of data, or of a folder of data; programs are also called so."""
_PROGRAM_KINDS = """
    bash bat c cc cjs clj cpp cs css dart erl ex exs fish go graphql h hpp hs java jl js jsx kt kts less lua mjs mts php
    pl pm proto ps1 py pyi r rb rs scala scss sh sql svelte swift tf ts tsx vue zsh
"""
_PROGRAMS = frozenset(_PROGRAM_KINDS.split())
_COPY = re.compile(
    r"(?s)(.+)(?:~[0-9]{0,8}|[ ._-](?:bak|backup|copy|old|orig|save|saved|tmp|swp|prev|[0-9]{1,8})| \([0-9]{1,8}\))"
)
"""Names of copies that editors and people make; group 1 is the name of what was copied."""
_HARMLESS = re.compile(r".*\.(?:pub|example|sample|template|dist)")
"""Names among those: public keys, and what a repository gives as an example."""
_PLAIN_HIDDEN = """
    .gitignore .gitattributes .gitmodules .dockerignore .npmignore .editorconfig .pre-commit-config.y*ml .gitlab-ci.yml
    .travis.yml .readthedocs.y*ml .eslintrc* .eslintignore .prettierrc* .stylelintrc* .babelrc* .flake8 .pylintrc
    .coveragerc .rubocop.yml .golangci.y*ml .clang-format .clang-tidy .python-version .nvmrc .node-version
    .ruby-version .tool-versions
"""
_PLAIN = re.compile("|".join(map(translate, _PLAIN_HIDDEN.split())))
"""Hidden files that a project shares."""
_SHOWN_HIDDEN = (".github", ".gitlab", ".circleci")
_BINARY_KINDS = """
    7z a avi avif bin bmp bz2 class db deb dll dmg dylib eot exe flac gguf gif gz heic ico icns iso jar jpeg jpg lib lz4
    m4a mkv mov mp3 mp4 npy npz o obj ogg onnx otf parquet pkl png psd pt pth pyc pyd rar rpm safetensors so sqlite
    sqlite3 tar tgz tif tiff ttf war wasm wav webm webp whl woff woff2 xz zip zst
"""
_BINARY = frozenset(_BINARY_KINDS.split())

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class FolderError(ValueError):
    """Why something of a folder is not read, for the agent."""


class FolderEntry(NamedTuple):
    """A file, while its folder is walked."""

    path: str
    open: Callable[[], int]
    """Returns a descriptor. Raises FolderError, OSError."""


@dataclass(slots=True)
class Walk:
    """The limits of a walk, and what it did not show."""

    seconds: float
    left_out: Counter[str] = field(default_factory=Counter[str])
    """How many files and folders, by the reason."""
    hidden: list[str] = field(default_factory=list[str])
    """The first files and folders that are left out by their names."""
    cut: str = ""
    """Why it did not come to its end; "" when it did."""
    _start: float = field(default_factory=time.monotonic)

    def leave_out(self, reason: str, path: str) -> None:
        self.left_out[reason] += 1
        if reason in (HIDDEN, SECRET) and len(self.hidden) < _MAX_NAMED:
            self.hidden.append(path)

    def stop(self) -> None:
        """End it at the next file, from any thread."""
        self.cut = self.cut or "it was stopped"

    def is_over(self) -> bool:
        if not self.cut and time.monotonic() - self._start > self.seconds:
            self.cut = f"it takes longer than {self.seconds:g} s"
        return bool(self.cut)


class _Rules(NamedTuple):
    """Those of one .gitignore."""

    prefix: str
    """Where the folder stands below the .gitignore."""
    depth: int
    """How many names of a path lead to the .gitignore."""
    specs: Sequence[GitIgnoreSpec]

    def ignore(self, names: Sequence[str], end: str) -> bool | None:
        """Return whether the rules ignore or demand a path; None: they do not mention it."""
        return find_decision(self.specs, f"{self.prefix}{'/'.join(names[self.depth :])}{end}")


class Folder:
    def __init__(self, config: FolderConfig) -> None:
        """Raises InputError: it is not there, is no folder, or cannot be read."""
        self.config = config
        path = expand_home(config.path).absolute()
        self.root = path.resolve()
        if os.open not in os.supports_dir_fd:
            raise InputError("agents cannot read folders on this system", "add single files with -f FILE")
        if path.is_file():
            raise InputError(f"{config.path} is a file, not a folder", "add its text to the question: -f FILE")
        try:
            os.close(self._open_root())
        except OSError as e:
            raise InputError(f"the folder {config.path} cannot be read: {e.strerror}", "check its name") from e
        self._prefixes = tuple(f"{str(place).rstrip('/')}/" for place in {path, self.root})
        self._included = build_specs(config.include)
        self._include_paths = [f"{text.strip('/')}/" for text in config.include]

    @property
    def name(self) -> str:
        return show_name(self.root.name) or "root"

    def walk(self, walk: Walk) -> Generator[FolderEntry]:
        """Yield the files in order, each folder's together. Close the iterator, or take all.

        Raises OSError: the folder is gone. Folders in it that vanish meanwhile are left out.
        """
        return self._walk(self._open_root(), (), self._find_outer_rules(), walk)

    def open_file(self, path: str) -> tuple[int, str]:
        """Return a descriptor of a file, and its path below the folder without links.

        path: as agents write it: with or without the whole path of the folder; letters may be composed otherwise or
        have another case.

        Raises FolderError: it is outside, left out, or no file; OSError: it cannot be opened.
        """
        if "\0" in path:
            raise FolderError("no name of a file has a NUL in it")
        descent = _Descent(self, self._open_root(), self._find_outer_rules(), path)
        try:
            return descent.run(self.strip(path))
        finally:
            descent.close()

    def strip(self, path: str) -> str:
        """Return a path without that of the folder. Raises FolderError: it leads elsewhere."""
        prefixes = [prefix for prefix in self._prefixes if f"{path}/".startswith(prefix)]
        if path.startswith("/") and not prefixes:
            raise explain_outside(path)
        return path[len(prefixes[0]) :] if prefixes else path

    def explain_left_out(self, names: Sequence[str], rules: Sequence[_Rules], *, is_folder: bool) -> str:
        """Return why a file or folder is not shown, "" when it is. names: of the folders down to it, and its own."""
        path, end = "/".join(names), "/" if is_folder else ""
        if self._include_paths and self._includes(path, end):
            return ""
        folders = names if is_folder else names[:-1]
        if any(name.startswith(".") and name not in _SHOWN_HIDDEN for name in folders):
            return HIDDEN
        if not is_folder and (reason := _explain_name(names)):
            return reason
        decisions = (decision for rule in reversed(rules) if (decision := rule.ignore(names, end)) is not None)
        return IGNORED if next(decisions, False) else ""

    def _includes(self, path: str, end: str) -> bool:
        leads_there = bool(end) and any(text.startswith(f"{path}/") for text in self._include_paths)
        return leads_there or find_decision(self._included, path + end) is True

    def _open_root(self) -> int:
        return os.open(self.root, _FOLDER)

    def _walk(self, folder: int, names: tuple[str, ...], rules: Sequence[_Rules], walk: Walk) -> Generator[FolderEntry]:
        """Yield the files of a folder, whose descriptor is closed at the end."""
        try:
            rules = [*rules, *_read_rules(folder, len(names))]
            with os.scandir(folder) as all_entries:
                entries = sorted(islice(all_entries, _MAX_ENTRIES), key=lambda entry: entry.name)
            shown = {name: shown for shown, name in show_names(entry.name for entry in entries).items()}
            for entry in entries:
                if walk.is_over():
                    return
                yield from self._walk_entry(entry, folder, (*names, shown[entry.name]), rules, walk)
        finally:
            os.close(folder)

    def _walk_entry(
        self, entry: "os.DirEntry[str]", folder: int, names: tuple[str, ...], rules: Sequence[_Rules], walk: Walk
    ) -> Generator[FolderEntry]:
        path, is_folder = "/".join(names), entry.is_dir(follow_symlinks=False)
        reason = self.explain_left_out(names, rules, is_folder=is_folder)
        if not reason and not is_folder and not self._includes(path, "") and is_binary(names[-1]):
            reason = BINARY
        if not reason and entry.is_symlink():
            reason = "" if self._is_file(path) else LINK
        elif not reason and not is_folder and not entry.is_file(follow_symlinks=False):
            reason = DEVICE
        if reason:
            walk.leave_out(reason, path)
        elif not is_folder:
            open_link = partial(self._open_only, path)
            yield FolderEntry(path, open_link if entry.is_symlink() else partial(_open_regular, entry.name, folder))
        else:
            try:
                inner = os.open(entry.name, _FOLDER, dir_fd=folder)
                if len(names) > _MAX_DEPTH:
                    os.close(inner)
                    raise OSError
            except OSError:
                walk.left_out[UNREADABLE] += 1
                return
            with suppress(FileNotFoundError):  # it vanishes while it is read
                yield from self._walk(inner, names, rules, walk)

    def _open_only(self, path: str) -> int:
        return self.open_file(path)[0]

    def _is_file(self, link: str) -> bool:
        """Return whether a link leads to a file that may be read."""
        with suppress(OSError, FolderError):
            os.close(self._open_only(link))
            return True
        return False

    def _find_outer_rules(self) -> list[_Rules]:
        """Return the rules of the repository that the folder is in, and of the folders above it."""
        places = [self.root, *self.root.parents]
        top = next((place for place in places if (place / ".git").exists()), None)
        if top is None:
            return []
        rules = [_Rules(_lead(self.root, top), 0, build_specs(_read_lines(_find_exclude(top / ".git"))))]
        for place in reversed(places[1 : places.index(top) + 1]):
            rules.append(_Rules(_lead(self.root, place), 0, build_specs(_read_lines(place / ".gitignore"))))
        return rules


class _Descent:
    """The way down to a file, name by name. `close` it."""

    def __init__(self, folder: Folder, root: int, rules: Sequence[_Rules], path: str) -> None:
        self._folder = folder
        self._path = path
        self._opened = [root]
        self._names: list[str] = []
        self._rules = [[*rules, *_read_rules(root, 0)]]
        self._links = 0

    def run(self, path: str) -> tuple[int, str]:
        """Return what `Folder.open_file` does. path: below the folder."""
        waiting = deque(name for name in path.split("/") if name not in ("", "."))
        while waiting:
            part = waiting.popleft()
            if part == "..":
                if not self._names:
                    raise explain_outside(self._path)
                self._go_up(len(self._names) - 1)
                continue
            name, shown = _find_name(self._opened[-1], part)
            mode = os.stat(name, dir_fd=self._opened[-1], follow_symlinks=False).st_mode
            names = [*self._names, shown]
            is_folder = stat.S_ISDIR(mode)
            if reason := self._folder.explain_left_out(names, self._rules[-1], is_folder=is_folder):
                raise FolderError(f"{self._path} is left out: {reason}; only who offers the folder can include it")
            if stat.S_ISLNK(mode):
                target = self._follow(name)
                waiting.extendleft(part for part in reversed(target.split("/")) if part not in ("", "."))
            elif is_folder:
                self._enter(name, shown)
            elif waiting:
                raise FolderError(f"{'/'.join(names)} is a file, not a folder")
            else:
                return _open_regular(name, self._opened[-1]), "/".join(names)
        raise FolderError(f"{self._path or '.'} is a folder: list_files shows what is in it")

    def close(self) -> None:
        for descriptor in self._opened:
            os.close(descriptor)

    def _enter(self, name: str, shown: str) -> None:
        self._opened.append(os.open(name, _FOLDER, dir_fd=self._opened[-1]))
        self._names.append(shown)
        self._rules.append([*self._rules[-1], *_read_rules(self._opened[-1], len(self._names))])

    def _go_up(self, depth: int) -> None:
        while len(self._names) > depth:
            self._names.pop()
            self._rules.pop()
            os.close(self._opened.pop())

    def _follow(self, name: str) -> str:
        """Return where a link leads, from where the descent stands then."""
        self._links += 1
        if self._links > _MAX_LINKS:
            raise FolderError(f"{self._path} leads in a circle of links")
        target = os.readlink(name, dir_fd=self._opened[-1])
        if target.startswith("/"):
            target = self._folder.strip(target)
            self._go_up(0)
        return target


def _explain_name(names: Sequence[str]) -> str:
    """Return why a file is left out by what it is called, "" when it is not."""
    name = names[-1].lower()
    while copy := _COPY.fullmatch(name):
        name = copy[1]
    if not _HARMLESS.fullmatch(name):
        is_data = not is_program(name) and any(_SECRET_WORDS.fullmatch(part.lower()) for part in (*names[:-1], name))
        if is_data or _SECRETS.fullmatch(name):
            return SECRET
        if name.startswith(".") and not _PLAIN.fullmatch(name):
            return HIDDEN
    return ""


def is_secret(path: str) -> bool:
    """Return whether a file is made for secrets, by its name and that of its folders."""
    return _explain_name(path.split("/")) == SECRET


def is_program(path: str) -> bool:
    """Return whether a file is program code, by its name."""
    return path.rpartition(".")[2].lower() in _PROGRAMS


def show_names(names: Iterable[str]) -> dict[str, str]:
    """Return the names of a folder as agents are shown them: also those that differ in the form of a letter differ."""
    shown = dict[str, str]()
    for name in sorted(names, key=lambda name: (show_name(name) != name, name)):
        plain, number = show_name(name), 1
        stem, dot, end = plain.rpartition(".")
        while (free := plain if number == 1 else f"{stem or end}~{number}{dot + end if stem else ''}") in shown:
            number += 1
        shown[free] = name
    return shown


def show_name(name: str) -> str:
    """Return the name of a file as agents are shown it: one line, composed letters, no half characters."""
    if name.isascii() and name.isprintable():
        return name
    return unicodedata.normalize("NFC", make_printable(clean_text(name)).replace("\n", "␊").replace("\t", "␉"))


def is_binary(name: str) -> bool:
    """Return whether the name is one of a file without text; the content may say so as well."""
    return name.rpartition(".")[2].lower() in _BINARY


def _open_regular(name: str, folder: int) -> int:
    """Return a descriptor of a file in a folder, without waiting. Raises FolderError: it is something else; OSError."""
    descriptor = os.open(name, _FILE, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FolderError(f"{show_name(name)} is no file, but a pipe, a socket or a device")
    return descriptor


def read_start(descriptor: int, most: int) -> bytes:
    """Return the first bytes of a file, which may grow or shrink meanwhile, and close it. Raises OSError."""
    pieces: list[bytes] = []
    try:
        while most > 0 and (piece := os.read(descriptor, most)):
            pieces.append(piece)
            most -= len(piece)
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def build_specs(lines: Sequence[str]) -> list[GitIgnoreSpec]:
    """Return what matches these patterns of a .gitignore, by RE2: several in order, where one would be too large.

    Lines that are no patterns do not count, as in git, nor do those that RE2 has no room for.
    """
    parts = [lines[start : start + _LINES_AT_ONCE] for start in range(0, len(lines), _LINES_AT_ONCE)]
    if len(parts) > 1:
        return [spec for part in parts for spec in build_specs(part)]
    try:
        return [GitIgnoreSpec.from_lines(lines, backend="re2")]
    except (ValueError, cast("Any", re2).error):
        middle = len(lines) // 2
        return [*build_specs(lines[:middle]), *build_specs(lines[middle:])] if middle else []


def find_decision(specs: Sequence[GitIgnoreSpec], path: str) -> bool | None:
    """Return whether the patterns mean or exclude a path, by the last one that matches; None: none does."""
    decisions = (decision for spec in reversed(specs) if (decision := spec.check_file(path).include) is not None)
    return next(decisions, None)


def _read_rules(folder: int, depth: int) -> list[_Rules]:
    """Return the rules of the .gitignore in a folder. depth: how many names lead to the folder."""
    try:
        data = read_start(_open_regular(".gitignore", folder), _MAX_RULES)
    except (OSError, FolderError):
        return []
    return [_Rules("", depth, _parse_rules(data))]


@lru_cache(maxsize=64)
def _parse_rules(data: bytes) -> Sequence[GitIgnoreSpec]:
    """Each read of a file asks for the rules above it; a megabyte of them takes seconds to parse."""
    return build_specs(_split_lines(data))


def explain_outside(path: str) -> FolderError:
    return FolderError(f"{path} is not in the folder; name a file as list_files does")


def _split_lines(data: bytes) -> list[str]:
    return clean_text(data.decode("utf-8-sig", "replace")).splitlines()


def _read_lines(path: Path) -> list[str]:
    try:
        return _split_lines(read_start(os.open(path, _FILE & ~getattr(os, "O_NOFOLLOW", 0)), _MAX_RULES))
    except OSError:
        return []


def _find_exclude(git: Path) -> Path:
    """Return the file with rules beside those of .gitignore. git: `.git`, of another working tree a file."""
    if git.is_file():
        git = git.parent / "".join(_read_lines(git)[:1]).removeprefix("gitdir: ")
        git = git / "".join(_read_lines(git / "commondir")[:1])
    return git / "info" / "exclude"


def _lead(root: Path, place: Path) -> str:
    """Return the path from a folder above to the root, with a slash at its end; "" when they are the same."""
    return "".join(f"{name}/" for name in root.relative_to(place).parts)


def _find_name(folder: int, name: str) -> tuple[str, str]:
    """Return the name on the disk, and as it is shown: the same one, else the only one but for its case.

    Raises FileNotFoundError.
    """
    names = show_names(os.listdir(folder))
    on_disk = {name: shown for shown, name in names.items()}
    if name in on_disk:
        return name, on_disk[name]
    composed = unicodedata.normalize("NFC", name)
    same = [composed] if composed in names else [key for key in names if key.casefold() == composed.casefold()]
    if len(same) != 1:
        raise FileNotFoundError(2, "there is no such file")
    return names[same[0]], same[0]
