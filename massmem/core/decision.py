"""A decision: options, criteria with weights, and what each agent's points add up to."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from massmem.core.items import UnionItem, write_item
from massmem.core.text import one_line

CRITERION = "criterion"
_CLOSE = 0.5
"""Points between the first two options, below which the order may be chance."""


@dataclass(frozen=True, slots=True)
class Score:
    option: UnionItem
    points: Mapping[str, float]
    """By the number of a criterion: 0 to 10, the mean of the agents that gave some."""
    total: float | None
    """0 to 10, rounded, so that a tie is one; None: it has no points, or not for each criterion."""


@dataclass(frozen=True, slots=True)
class Decision:
    criteria: Sequence[tuple[UnionItem, float]]
    """With their shares of all weights, from 0 to 1."""
    scores: Sequence[Score]
    """The best one first; those without a total last."""
    agents: Sequence[str]
    """Those that gave points."""
    choices: Mapping[str, Score]
    """What each agent's own weights and points add up to: its best option, with its own total."""

    @property
    def best(self) -> Score | None:
        """None: fewer than two options have points for each criterion, unless it is the only one, or the first two
        have the same total."""
        first, second = [*self.scores, None, None][:2]
        is_open = first and second and second.total in (None, first.total)
        return first if first and first.total is not None and not is_open else None

    @property
    def is_close(self) -> bool:
        totals = [score.total for score in self.scores[:2] if score.total is not None]
        return len(totals) == 2 and totals[0] - totals[1] < _CLOSE

    @property
    def dissent(self) -> Mapping[str, Score]:
        """The choices that differ from what was decided."""
        return {agent: own for agent, own in self.choices.items() if own.option.number != self._best_number}

    @property
    def _best_number(self) -> int | None:
        return self.best.option.number if self.best else None


def add_up(items: Sequence[UnionItem]) -> Decision:
    """Return what the points in the checks of options and criteria add up to."""
    criteria = sorted((item for item in items if item.item.kind == CRITERION), key=lambda item: item.number)
    options = sorted((item for item in items if item.item.kind != CRITERION), key=lambda item: item.number)
    agents = dict.fromkeys(check.agent for item in items for check in item.checks if check.points)
    weights = _share_weights(criteria, agents)
    choices: dict[str, Score] = {}
    for agent in agents:
        own = _rank(options, _share_weights(criteria, [agent]), [agent])
        if own and own[0].total is not None and [score.total for score in own].count(own[0].total) == 1:
            choices[agent] = own[0]
    shares = [(item, weights[str(item.number)]) for item in criteria]
    return Decision(sorted(shares, key=lambda share: -share[1]), _rank(options, weights, agents), [*agents], choices)


def _share_weights(criteria: Sequence[UnionItem], agents: Iterable[str]) -> dict[str, float]:
    """Return each criterion's share of all weights; each agent that gave weights counts the same."""
    lists: list[dict[str, float]] = []
    for agent in agents:
        own = {str(item.number): _read_points(item, agent).get(str(item.number), 0.0) for item in criteria}
        if total := sum(own.values()):
            lists.append({number: weight / total for number, weight in own.items()})
    if not lists:
        return {str(item.number): 1 / len(criteria) for item in criteria}
    return {number: fmean(own[number] for own in lists) for number in lists[0]}


def _rank(options: Sequence[UnionItem], weights: Mapping[str, float], agents: Iterable[str]) -> list[Score]:
    scores = [_score(option, weights, list(agents)) for option in options]
    return sorted(scores, key=lambda score: -1 if score.total is None else score.total, reverse=True)


def _score(option: UnionItem, weights: Mapping[str, float], agents: Sequence[str]) -> Score:
    lists = [_read_points(option, agent) for agent in agents]
    points = {
        number: fmean(values) for number in weights if (values := [own[number] for own in lists if number in own])
    }
    needed = [number for number, weight in weights.items() if weight]
    is_whole = bool(needed) and all(number in points for number in needed)
    return Score(option, points, round(sum(weights[n] * points[n] for n in needed), 6) if is_whole else None)


def _read_points(item: UnionItem, agent: str) -> Mapping[str, float]:
    for check in item.checks:
        if check.agent == agent and check.points:
            return check.points
    return {}


def write_decision(items: Sequence[UnionItem], name: Callable[[str], str], summary: str = "") -> str:
    """Return the decision as Markdown: what won, the summary, the points, who would choose otherwise, the options."""
    decision = add_up(items)
    options = write_options(decision, name)
    texts = [summary, write_table(decision), write_dissent(decision, name), options and f"Options:\n{options}"]
    return "\n\n".join(filter(None, [write_outcome(decision), *texts]))


def write_outcome(decision: Decision) -> str:
    """Return what was decided as a sentence that says so by itself: a memory may show it alone."""
    best, (first, second) = decision.best, [*decision.scores, None, None][:2]
    if best is not None:
        following = f"; next: {second.option.item.title}, {second.total:.1f}" if second and second.total else ""
        close = ". That is close: other weights may change it" if decision.is_close else ""
        return f"**Decided: {best.option.item.title}**, {best.total:.1f} of 10 points{following}{close}."
    if first and second and second.total is not None:
        why = f"{first.option.item.title} and {second.option.item.title} have the same points, {first.total:.1f} of 10"
    else:
        missing = "options" if first is None else "criteria" if not decision.criteria else ""
        why = f"nobody listed {missing}" if missing else "fewer than two options have points for each criterion"
    return f"**Nothing is decided**: {why}."


def write_options(decision: Decision, name: Callable[[str], str]) -> str:
    """Return a list of the options, the best first, with what each agent that scored them says of them."""
    lines: list[str] = []
    for score in decision.scores:
        scored = [check for check in score.option.checks if check.points]
        points = "points are missing" if score.total is None else f"{score.total:.1f} of 10 points"
        points += f" ({', '.join(name(check.agent) for check in scored)})" if scored else ""
        chosen = "" if decision.best is None else "chosen, " if score is decision.best else "not chosen, "
        lines.append(write_item(score.option.number, score.option.item, chosen + points))
        lines += [f"  - {name(check.agent)}: {one_line(check.reason, 500)}" for check in scored if check.reason]
    return "\n".join(lines)


def write_table(decision: Decision) -> str:
    """Return the points as a Markdown table; `-`: nobody gave any. Without any points, the criteria."""
    if not any(score.points for score in decision.scores):
        lines = [write_item(item.number, item.item) for item, _ in decision.criteria]
        return "\n".join(["Criteria:", *lines]) if lines else ""
    titles = [f"{_cell(item.item.title)} ({share:.0%})" for item, share in decision.criteria]
    rows = [["option", *titles, "total"], ["---"] * (len(titles) + 2)]
    for score in decision.scores:
        points = [score.points.get(str(item.number)) for item, _ in decision.criteria]
        numbers = ["-" if value is None else f"{value:.1f}" for value in (*points, score.total)]
        rows.append([_cell(score.option.item.title), *numbers])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(text: str) -> str:
    return one_line(text, 80).replace("\\", "\\\\").replace("|", "\\|")


def write_dissent(decision: Decision, name: Callable[[str], str]) -> str:
    """Return who would choose another option, with its own points and its reason, a line each."""
    lines: list[str] = []
    for agent, own in decision.dissent.items():
        reason = next((check.reason for check in own.option.checks if check.agent == agent), "")
        end = f": {one_line(reason, 500)}" if reason else ""
        instead = f" instead of {decision.best.option.item.title}" if decision.best else ""
        lines.append(f"- {name(agent)} would choose {own.option.item.title} ({own.total:.1f}){instead}{end}")
    return "\n".join(["Dissent:", *lines]) if lines else ""
