"""An evaluation for programs: one JSON object, or one line per answer."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from massmem.evaluation.evaluate import Evaluation
from massmem.evaluation.report import Comparison, CouncilReport, EntrantReport, Share
from massmem.evaluation.scorers import score


def evaluation_to_dict(evaluation: Evaluation) -> dict[str, Any]:
    """Return the reports and comparisons; shares are from 0 to 1, intervals are those of 95 %."""
    return {
        "questions": evaluation.questions,
        "teams": [_entrant_to_dict(entrant) for entrant in evaluation.entrants],
        "comparisons": [_comparison_to_dict(comparison) for comparison in evaluation.comparisons],
        "judging": asdict(evaluation.judging),
    }


def list_answers(evaluation: Evaluation) -> Iterator[str]:
    """Yield a line of JSON for every answer of every team."""
    for answers in evaluation.answers:
        for item, result, is_right in zip(answers.items, answers.results, answers.right, strict=True):
            row = {
                "team": answers.name,
                "id": item.id,
                "group": item.group,
                "right": is_right,
                "value": score(item, result.answer).value,
                "expected": list(item.expected),
                **result.model_dump(mode="json", exclude={"kind", "team", "item"}),
            }
            yield json.dumps(row, ensure_ascii=False) + "\n"


def _entrant_to_dict(entrant: EntrantReport) -> dict[str, Any]:
    return {
        "name": entrant.name,
        "accuracy": _share_to_dict(entrant.accuracy),
        "groups": {name: _share_to_dict(share) for name, share in entrant.groups.items()},
        "failed": entrant.failed,
        "per_question": {"tokens": entrant.tokens, "seconds": entrant.seconds, "requests": entrant.requests},
        "cost": entrant.cost,
        "council": None if entrant.council is None else _council_to_dict(entrant.council),
    }


def _council_to_dict(council: CouncilReport) -> dict[str, Any]:
    return {
        "members": {agent_id: _share_to_dict(share) for agent_id, share in council.members.items()},
        "agreement": council.agreement,
        "oracle": _share_to_dict(council.oracle),
        "chosen": _share_to_dict(council.chosen),
        "rules": {name: _share_to_dict(share) for name, share in council.rules.items()},
        "presentation": {"mended": council.presentation_mended, "spoiled": council.presentation_spoiled},
        "calibration_error": council.calibration_error,
        "bins": [asdict(part) for part in council.bins],
    }


def _comparison_to_dict(comparison: Comparison) -> dict[str, Any]:
    return {**asdict(comparison), "interval": list(asdict(comparison.interval).values())}


def _share_to_dict(share: Share) -> dict[str, Any]:
    return {
        "count": share.count,
        "total": share.total,
        "value": share.value,
        "interval": [share.interval.low, share.interval.high],
    }
