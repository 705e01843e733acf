"""The report of an evaluation, in the one shape that JSON on stdout, HTTP and the page have."""

from pydantic import AwareDatetime, BaseModel, ConfigDict

from massmem.core.messages import Usage

Interval = tuple[float, float]
"""In which the true value lies, with 95 %."""


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True)


class Share(_Figures):
    """How many of how many."""

    count: int
    total: int
    value: float
    interval: Interval
    """In which the true share lies, with 95 %."""


class PerQuestion(_Figures):
    """Means of a question."""

    tokens: float
    """Sent and received."""
    seconds: float
    """From question to answer."""
    requests: float


class Presentation(_Figures):
    """Effects of writing the final answer on the winner's answer."""

    mended: int
    """The winner's answer was wrong, the final one right."""
    spoiled: int
    """The winner's answer was right, the final one wrong."""


class RiskPoint(_Figures):
    """The questions whose answers have at least so much agreement."""

    answered: int
    wrong: int
    coverage: float
    """Share of all questions."""
    error: float
    """Share that is wrong."""


class Variant(_Figures):
    """What the same answers and ballots would have come to with other voices."""

    right: Share
    difference: float
    """Of the accuracy from that of the winners' answers, as the team voted."""
    interval: Interval
    """In which the true difference lies, with 95 % (paired bootstrap)."""
    tokens: float
    """That the answers and ballots of agents without a voice took of a question, a mean."""
    weights: dict[str, float]
    """Of the agents' voices; those by past accuracy from all questions, though each question is voted on without it."""


class Council(_Figures):
    """Outcomes of the members' answers. Shares are of the questions that fit."""

    members: dict[str, Share]
    """Right answers of each agent with its own model; those of a fallback count apart, as `agent (model)`."""
    agreement: float
    """Mean share of pairs of agents whose answers come to the same."""
    oracle: Share
    """Questions that at least one agent answered rightly: no way to choose among their answers does better."""
    chosen: Share
    """Of the questions with right and wrong answers: the winner's was right."""
    rules: dict[str, Share]
    """Right answers of each rule on the same answers and ballots."""
    presentation: Presentation
    risk: list[RiskPoint] = []
    """From the surest answers to all: how much is answered, and how much of it is wrong."""
    without: dict[str, Variant] = {}
    """The team without this agent; empty: of fewer than three agents, or not all were asked."""
    weighed: Variant | None = None
    """The vote by past accuracy; null: as `without`."""


class ItemFigures(_Figures):
    """Items that a team listed, as a set, against those that are known."""

    precision: Share
    recall: Share
    f1: Share
    uncompared: int
    """Listed items that may be known ones: code cannot tell, and they count as none."""


class OpenFigures(_Figures):
    """How a team did tasks that have no right answer."""

    score: float | None
    """Weight of the criteria that are met, of those that are graded; null: none is."""
    criteria: Share
    ungraded: int
    items: dict[str, ItemFigures]
    """Of `all` that were listed, and those that are `uncontested`; empty: no task has known ones."""


class EvaluatedTeam(_Figures):
    """How a team did."""

    name: str
    accuracy: Share
    """Right answers; of a question that the team was unsure of the answer that it would have given counts."""
    selective: Share | None = None
    """Right answers among those that were given; null: the team was never unsure."""
    coverage: Share | None = None
    """Questions that were answered; null: as for `selective`."""
    groups: dict[str, Share]
    """Right answers by part of the data; empty: it has no parts."""
    failed: int
    """Questions without an answer, which count as wrong."""
    ungraded: int = 0
    """Answers and criteria of which the judge did not say whether they are right; they count as neither."""
    open: OpenFigures | None = None
    """null: all questions have answers."""
    fallbacks: dict[str, int] = {}
    """Questions that a fallback answered, by `agent (model)`."""
    per_question: PerQuestion
    """Means of all questions."""
    cost: float | None
    """US dollars for all questions; null: no known price."""
    council: Council | None
    """null: one agent alone."""


class TeamComparison(_Figures):
    """Two teams on the same questions."""

    first: str
    second: str
    total: int
    """Questions that both were asked."""
    only_first: int
    """Questions that only the first team answered rightly."""
    only_second: int
    """Questions that only the second team answered rightly."""
    difference: float
    """Of the accuracies, first - second."""
    interval: Interval
    """In which the true difference lies, with 95 % (paired bootstrap)."""
    p: float
    """McNemar, exact, two-sided."""


class EvaluationReport(_Figures):
    """Results of teams on questions with known answers."""

    questions: int
    teams: list[EvaluatedTeam]
    """In the order of the command."""
    comparisons: list[TeamComparison]
    """The first team against each of the others; with equal budgets, each team against what its tokens buy else."""
    judging: Usage
    """Of the judge."""


class SavedReport(EvaluationReport):
    """A report that `massmem eval` has left."""

    data: str
    """The file with the questions."""
    at: AwareDatetime
    seed: int
    """Of the evaluation."""
