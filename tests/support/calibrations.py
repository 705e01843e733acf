"""Writes calibrations of scripted teams."""

from collections.abc import Mapping
from pathlib import Path

from massmem.config.calibrations import compute_fingerprint, store_calibration
from massmem.config.load import load_config
from massmem.core.events import now
from massmem.core.verdict import Calibration, Member, Outcomes, Pattern


def write_calibration(
    home: Path, team: Path, counts: Mapping[tuple[str, ...], tuple[int, int]], members: Mapping[str, int] | None = None
) -> Path:
    """Write how often numbers of the team in the file were right, and return the file of that.

    home: the HOME of who asks. counts: questions and right answers by the agents behind the answer, on which nobody
    voted. members: right answers of each agent, of a hundred.
    """
    config = load_config(str(team))[0]
    agents = tuple(sorted(agent.id for agent in config.agents))
    outcomes = tuple(
        Outcomes(
            group="",
            first=Pattern(agents[:2], 0, 0, voted=False, cut=False, kind="number"),
            full=Pattern(behind, len(agents) - len(behind), 0, voted=False, cut=False, kind="number"),
            asked=asked,
            right_first=right,
            right=right,
        )
        for behind, (asked, right) in counts.items()
    )
    calibration = Calibration(
        fingerprint=compute_fingerprint(config),
        team="team",
        data="data.jsonl",
        at=now(),
        outcomes=outcomes,
        members={agent: Member(asked=100, right=right) for agent, right in (members or {}).items()},
    )
    return store_calibration(home / ".massmem", calibration)
