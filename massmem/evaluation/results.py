"""The file that keeps what an evaluation has paid for: one line of JSON per answer, on disk before it counts."""

import contextlib
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from massmem.config.home import explain_write_error, make_folder, open_private
from massmem.core.errors import InputError
from massmem.core.messages import Usage
from massmem.core.voting import Decision


class Result(BaseModel):
    """How a team answered a question."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["result"] = "result"
    team: str
    """Key of the team: what it is configured to, see `Entrant`."""
    item: str
    """Key of the question, see `Item`."""
    seed: int
    sample: int = 0
    """Counts independent answers of one agent to the same question."""
    answer: str = ""
    winner: str = ""
    by: Decision | None = None
    confidence: float | None = None
    members: dict[str, str] = {}
    """The answer of each agent, as the others were last shown it."""
    ballots: dict[str, str] = {}
    """Standing ballots: voter to the agent that it voted for."""
    usage: Usage = Usage()
    seconds: float = 0.0
    error: str = ""
    """Why there is no answer; the question is asked again by the next run."""

    @property
    def tokens(self) -> int:
        return self.usage.prompt + self.usage.completion


class Verdict(BaseModel):
    """What the judge said of an answer."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["verdict"] = "verdict"
    key: str
    """Of the judge, the question and the answer."""
    right: bool
    usage: Usage = Usage()


_LINE: TypeAdapter[Result | Verdict] = TypeAdapter(Annotated[Result | Verdict, Field(discriminator="kind")])


class ResultFile:
    """The results so far, and the file that new ones are appended to. Open it with `open_results`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._results: dict[tuple[str, str, int, int], Result] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._load()

    def get(self, team: str, item: str, seed: int, sample: int = 0) -> Result | None:
        """Return what is known of an answer; None when it has to be asked for."""
        return self._results.get((team, item, seed, sample))

    def get_verdict(self, key: str) -> Verdict | None:
        return self._verdicts.get(key)

    def add(self, entry: Result | Verdict) -> None:
        """Append an entry and wait until it is on disk. Raises MassmemError when the file cannot be written."""
        line = json.dumps({"kind": entry.kind, **entry.model_dump(mode="json", exclude_defaults=True)})
        try:
            with open_private(self.path, "ab") as file:
                size = file.tell()
                try:
                    file.write(f"{line}\n".encode())
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(size)  # half a line would spoil the next one
                    raise
        except OSError as e:
            raise explain_write_error(self.path, e) from e
        self._keep(entry)

    def _keep(self, entry: Result | Verdict) -> None:
        match entry:
            case Verdict(key=key):
                self._verdicts[key] = entry
            case Result():
                self._results[entry.team, entry.item, entry.seed, entry.sample] = entry

    def _load(self) -> None:
        """Read the file. A last line that a kill has cut is dropped."""
        try:
            lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        except OSError as e:
            raise InputError(f"{self.path} cannot be read: {e.strerror or e}", "name another file: --results") from e
        whole, rest = lines[:-1], lines[-1] if lines else b""
        for number, line in enumerate(whole, start=1):
            try:
                self._keep(_LINE.validate_json(line))
            except ValidationError as e:
                raise InputError(
                    f"{self.path}:{number} is no result of an evaluation", "name another file: --results FILE"
                ) from e
        if rest:
            with self.path.open("r+b") as file:
                file.truncate(sum(len(line) + 1 for line in whole))


@contextlib.contextmanager
def open_results(path: Path) -> Generator[ResultFile]:
    """Open the file for the block; it is made when missing.

    Raises:
        InputError: another evaluation writes to it, or it holds something else.
        MassmemError: it cannot be written.
    """
    make_folder(path.parent)
    lock = FileLock(f"{path}.lock", timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout as e:
        hint = "wait for it, or name another file: --results FILE"
        raise InputError(f"another evaluation writes to {path}", hint) from e
    except OSError as e:
        raise explain_write_error(path, e) from e
    try:
        yield ResultFile(path)
    finally:
        lock.release()
