"""What a command line asks for, with the configuration that it stands for."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from massmem.cli.ask import Output, RunOptions
from massmem.config.models import TeamConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """question None: finish the turn that was cut off, or talk. debug_log: where --debug writes."""

    options: RunOptions
    output: Output
    config: TeamConfig
    home: Path
    question: str | None
    debug_log: Path | None

    def command(self, session_id: str) -> str:
        """The command line that goes on with this session."""
        config = f" --config {shlex.quote(self.options.config)}" if self.options.config else ""
        return f"massmem --session-id {session_id}{config}"
