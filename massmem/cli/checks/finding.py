"""What a check has found, and what it is told."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from massmem.config.models import TeamConfig
from massmem.errors import ConfigError
from massmem.redact import redact

Status = Literal["ok", "failed", "skipped"]

_SHOWN = 7


@dataclass(frozen=True, slots=True)
class Situation:
    """What is checked. config None: it could not be read, and problem says why. offline: ask no server."""

    home: Path
    environ: Mapping[str, str]
    config: TeamConfig | None = None
    warnings: tuple[str, ...] = ()
    problem: ConfigError | None = None
    offline: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """text: what is so. fix: what to do, for what failed. details: a line each."""

    status: Status
    text: str
    fix: str = ""
    details: tuple[str, ...] = ()
    check: str = ""

    def of(self, check: str) -> Self:
        """The same, of the check with this name; what a server said may hold a secret, our own advice does not."""
        return replace(self, check=check, text=redact(self.text), details=tuple(map(redact, self.details)))

    def row(self) -> dict[str, Any]:
        """As JSON."""
        found: dict[str, Any] = {"check": self.check, "status": self.status, "text": self.text}
        return found | {"fix": self.fix or None, "details": list(self.details)}


def ok(text: str, *details: str) -> Finding:
    return Finding("ok", text, details=details)


def failed(text: str, fix: str = "", *details: str) -> Finding:
    return Finding("failed", text, fix, details)


def skipped(text: str) -> Finding:
    return Finding("skipped", text)


def without_config() -> list[Finding]:
    return [skipped("the configuration has to be right first")]


def beginning(secret: str) -> str:
    """The first characters of a secret, a quarter of it at most."""
    return f"{secret[: min(_SHOWN, len(secret) // 4)]}..."
