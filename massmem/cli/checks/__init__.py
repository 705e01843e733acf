"""The checks of `massmem doctor`: functions that take a DoctorContext and return results."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

from massmem.config.models import TeamConfig
from massmem.core.errors import ConfigError
from massmem.core.redact import redact

Status = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class DoctorContext:
    home: Path
    environ: Mapping[str, str]
    config: TeamConfig | None = None
    """None when it cannot be read."""
    warnings: tuple[str, ...] = ()
    """Of the configuration."""
    config_error: ConfigError | None = None
    """Why the configuration cannot be read."""
    offline: bool = False
    """Contact no server."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    status: Status
    text: str
    fix: str = ""
    """What the user should do about a failure."""
    details: tuple[str, ...] = ()
    check: str = ""
    """The name of the check."""

    def of_check(self, name: str) -> Self:
        """Return the result of the check `name`, redacted: text of a server may contain a secret."""
        return replace(self, check=name, text=redact(self.text), details=tuple(map(redact, self.details)))

    def to_dict(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "status": self.status,
            "text": self.text,
            "fix": self.fix or None,
            "details": list(self.details),
        }


def ok(text: str, *details: str) -> CheckResult:
    return CheckResult("ok", text, details=details)


def fail(text: str, fix: str = "", *details: str) -> CheckResult:
    return CheckResult("failed", text, fix, details)


def skip(text: str) -> CheckResult:
    return CheckResult("skipped", text)


def skip_without_config() -> list[CheckResult]:
    return [skip("needs a valid configuration")]
