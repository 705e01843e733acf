"""What a council makes of open jobs: reviewers and scorers that do not exist, whose skill is known, through the code
that merges, confirms and adds up in a turn. No model is asked.

An issue has a difficulty that is the same for all (a Rasch model), so that reviewers miss the same ones; a trap is a
false alarm that some of them raise together. Each says what it means in its own words, a line or two off. What another
one has listed is checked with chances of its own: to see is easier than to find.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import mean

from massmem.core.decision import CRITERION, add_up
from massmem.core.items import Check, Item, UnionItem, add_checks, sort_items
from massmem.evaluation.evaluate import compare_sets
from massmem.evaluation.tasks import Matches
from massmem.turn.merging import compare_items, merge_items
from scripts.benches.rows import Row, at_least, reported, resample
from scripts.benches.simulated import is_right_by_chance

RUNS = 200
ISSUES, _LINES = 12, 900


@dataclass(frozen=True, slots=True)
class Reviewers:
    name: str
    skills: tuple[float, ...]
    """Share of the issues that each finds, the best first."""
    alarms: tuple[float, ...]
    """False alarms of each, of its own."""
    spread: float = 1.0
    """Of the difficulty, in logits: 0 lets reviewers miss issues independently of one another."""
    traps: int = 0
    """False alarms that each raises with a chance of a half."""
    right: tuple[float, float] = (0.7, 0.08)
    """Chances to confirm and to reject an issue."""
    wrong: tuple[float, float] = (0.3, 0.5)
    """Chances to confirm and to reject a false alarm."""


@dataclass(frozen=True, slots=True)
class Scorers:
    name: str
    noise: tuple[float, ...]
    """Standard deviation of the points of each, the best first; the true ones of options differ by 2."""
    bias: float = 0.0
    """Of an error that all share."""


_THREE = (6.0, 6.0, 6.0)
REVIEWERS = (
    Reviewers("three alike", (0.5, 0.5, 0.5), _THREE),
    Reviewers("the same issues are hard for all", (0.5, 0.5, 0.5), _THREE, spread=3.0),
    Reviewers("traps for all", (0.5, 0.5, 0.5), _THREE, traps=6, wrong=(0.6, 0.2)),
    Reviewers("six alike", (0.5,) * 6, _THREE * 2),
    Reviewers("one strong, two weak", (0.75, 0.3, 0.3), (4.0, 8.0, 8.0)),
    Reviewers("one strong and precise, two that guess", (0.8, 0.25, 0.25), (1.0, 12.0, 12.0)),
    Reviewers("they confirm all", (0.5, 0.5, 0.5), _THREE, right=(0.95, 0.02), wrong=(0.9, 0.05)),
    Reviewers("they reject at random", (0.5, 0.5, 0.5), _THREE, right=(0.4, 0.4), wrong=(0.4, 0.4)),
)
SCORERS = (
    Scorers("three alike", (2.0, 2.0, 2.0)),
    Scorers("five alike", (2.0,) * 5),
    Scorers("an error that all share", (1.0, 1.0, 1.0), bias=2.0),
    Scorers("one sharp, two blunt", (1.0, 2.5, 2.5)),
    Scorers("one very sharp, two that guess", (0.5, 4.0, 4.0)),
)


def run(runs: int = RUNS) -> list[Row]:
    """Return how the rules do on lists of each group of reviewers, then how often scorers choose the best option."""
    rows = [row for reviewers in REVIEWERS for row in _report_lists(reviewers, runs)]
    return rows + [row for scorers in SCORERS for row in _report_choices(scorers, runs)]


RULES: dict[str, Callable[[UnionItem], bool]] = {
    "plain union": lambda _: True,
    "majority: two or more found it": lambda item: len(item.found_by) > 1,
    "confirmed: nobody rejects it": lambda item: not item.list_agents("reject"),
    "confirmed: more stand behind it than reject it": lambda item: (
        len(item.found_by) + len(item.list_agents("confirm")) - 1 > len(item.list_agents("reject"))
    ),
}
"""Which items of the union count; those that nobody rejects stand first in a turn's list, the others apart."""


def _report_lists(reviewers: Reviewers, runs: int) -> list[Row]:
    seen: dict[str, list[Matches]] = {name: [] for name in ("best single", *RULES)}
    for number in range(runs):
        draw = Random(f"{reviewers.name} {number}")
        lists = list_all(reviewers, draw)
        seen["best single"].append(_match(lists["0"]))
        items = merge_items(lists, compare_items(lists)[0])
        for agent in lists:
            checks = [_check(reviewers, item, draw) for item in items if agent not in item.found_by]
            items = add_checks(items, agent, checks)
        for name, counts in RULES.items():
            seen[name].append(_match([item.item for item in sort_items(items) if counts(item)]))
    figures = {name: [compare_sets([one]) for one in matches] for name, matches in seen.items()}
    single = mean(one.f1.value for one in figures["best single"])
    rows: list[Row] = []
    for name, compared in figures.items():
        f1, recall, precision = ([getattr(one, key).value for one in compared] for key in ("f1", "recall", "precision"))
        note = f"F1 {_format(f1)}; recall {_format(recall)}; precision {_format(precision)}"
        row = at_least(f"{reviewers.name}, {name}: F1", mean(f1), "", single, note)
        rows.append(row if name in RULES else reported(row.what, mean(f1), "", note))
    return rows


def list_all(reviewers: Reviewers, draw: Random) -> dict[str, list[Item]]:
    """Return what each reviewer lists. The suggestion of an item is the number of its issue; "": it is none."""
    issues = [(str(number), draw.gauss(0, reviewers.spread), _imagine(draw)) for number in range(1, ISSUES + 1)]
    traps = [_imagine(draw) for _ in range(reviewers.traps)]
    lists: dict[str, list[Item]] = {}
    for agent, (skill, alarms) in enumerate(zip(reviewers.skills, reviewers.alarms, strict=True)):
        own = [
            replace(_write(thing, draw), suggestion=name)
            for name, difficulty, thing in issues
            if is_right_by_chance(skill, reviewers.spread, difficulty, draw)
        ]
        own += [_write(trap, draw) for trap in traps if draw.random() < 0.5]
        own += [_write(_imagine(draw), draw) for _ in range(int(alarms))]
        lists[str(agent)] = own
    return lists


def _imagine(draw: Random) -> tuple[int, list[str]]:
    """Return a line, and eight words for what is wrong there."""
    return draw.randint(1, _LINES), [_make_word(draw) for _ in range(8)]


def _make_word(draw: Random) -> str:
    return "".join(draw.choice("bdfklmnprtvz") + draw.choice("aeiou") for _ in range(4)) + "k"


def _write(thing: tuple[int, list[str]], draw: Random) -> Item:
    """Return it in somebody's words: six of the eight, two others, and its line or one near it; 1 of 20 is far off."""
    line, words = thing
    line = draw.randint(1, _LINES) if draw.random() < 0.05 else line
    first = max(1, line + draw.choice((-2, -1, 0, 0, 0, 1, 2)))
    title = [*draw.sample(words, 6), _make_word(draw), _make_word(draw)]
    return Item(" ".join(title), file="src/app.py", lines=(first, first + draw.randint(0, 2)))


def _check(reviewers: Reviewers, item: UnionItem, draw: Random) -> Check:
    confirm, reject = reviewers.right if item.item.suggestion else reviewers.wrong
    chance = draw.random()
    return Check(item.number, "confirm" if chance < confirm else "reject" if chance < confirm + reject else "abstain")


def _match(items: Sequence[Item]) -> Matches:
    """Return how the items compare with the issues; what names an issue a second time is a false alarm."""
    issues = {item.suggestion for item in items} - {""}
    return Matches(listed=len(items), known=ISSUES, matched=len(issues), uncompared=0)


def _report_choices(scorers: Scorers, runs: int) -> list[Row]:
    """Return how often adding up points finds the best option, and how often the best scorer alone does."""
    together, alone = list[float](), list[float]()
    for number in range(runs):
        decision = add_up(list(_score(scorers, Random(f"{scorers.name} {number}"))))
        together.append(decision.best is not None and decision.best.option.number == 1)
        alone.append("0" in decision.choices and decision.choices["0"].option.number == 1)
    gain = [float(one) - float(other) for one, other in zip(together, alone, strict=True)]
    low, high = resample(gain)
    note = f"{_format(together)}; the best scorer alone {_format(alone)}; "
    note += f"gain {mean(gain):+.2f} ({low:+.2f} to {high:+.2f})"
    return [at_least(f"decide, {scorers.name}: the best option", mean(together), "", mean(alone), note)]


def _score(scorers: Scorers, draw: Random) -> Iterator[UnionItem]:
    """Return five options, the first of which is the best, and four criteria, with everybody's points and weights."""
    options, criteria, agents = range(1, 6), range(6, 10), range(len(scorers.noise))
    truth = {(o, c): draw.gauss(5, 2) for o in options for c in criteria}
    best = max(options, key=lambda o: sum(truth[o, c] for c in criteria))
    order = [best, *(o for o in options if o != best)]
    shared = {key: draw.gauss(0, scorers.bias) for key in truth}
    for number in (*options, *criteria):
        checks: list[Check] = []
        for agent in agents:
            points = {str(number): 5.0}
            if number in options:
                drawn = {c: truth[order[number - 1], c] + shared[order[number - 1], c] for c in criteria}
                noisy = {c: value + draw.gauss(0, scorers.noise[agent]) for c, value in drawn.items()}
                points = {str(c): float(min(10, max(0, round(value)))) for c, value in noisy.items()}
            checks.append(Check(number, "abstain", "", str(agent), points))
        item = Item(f"item {number}", kind=CRITERION if number in criteria else "option")
        yield UnionItem(number, item, ("0",), (item,), tuple(checks))


def _format(values: Sequence[float]) -> str:
    low, high = resample(list(map(float, values)))
    return f"{mean(values):.2f} ({low:.2f} to {high:.2f})"
