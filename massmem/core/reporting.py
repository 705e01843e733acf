"""Makes reports of a council, from a model's reply or from the votes, and lays them out as headings and lines."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from massmem.core.citations import make_key, merge_citations, number_together, remove_marks
from massmem.core.criticism import name_labels
from massmem.core.messages import Candidate, Citation
from massmem.core.report import Dispute, Preference, Report, Statement
from massmem.core.short_answers import list_keys, read_short_answer
from massmem.core.text import one_line
from massmem.core.voting import Dissent, Position

_MOST = 8
"""Entries of a part of the report."""
_EXCERPT = 300
"""Characters of an answer in a report that is made from votes."""
_LABEL = re.compile(r"(?:answer\s+)?([A-Z]{1,3})", re.IGNORECASE)

_WORD, _NUMBER = re.compile(r"\w{4,}"), re.compile(r"\d+")


class ReportError(ValueError):
    """Why a reply is no report; the model is shown it."""


@dataclass(frozen=True, slots=True)
class Authors:
    agents: Mapping[str, Sequence[str]]
    """Ids of those who gave an answer, or the same one, by its label."""
    name: Callable[[str], str]
    """Returns what people are shown for an agent."""
    team: Sequence[str]
    """Ids of all of them, in the order in which a claim names them: labels are shuffled, and so are a model's lists."""


@dataclass(frozen=True, slots=True)
class WrittenReport:
    report: Report
    answer: str
    """The final answer."""


def build_report_schema(candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Return the JSON Schema of the reply: claims name answers by label, and sources by number."""
    labels = {"type": "string", "enum": [c.label for c in candidates]}
    names = {"type": "array", "items": labels, "maxItems": len(candidates)}
    fields: dict[str, Any] = {"text": {"type": "string"}, "answers": names}
    if sources := list(range(1, len(number_together(candidates)) + 1)):
        fields["sources"] = {"type": "array", "items": {"type": "integer", "enum": sources}, "maxItems": _MOST}
    claim = _build_object(fields)
    positions = {"type": "array", "items": claim, "maxItems": _MOST}
    dispute = _build_object({"text": {"type": "string"}, "positions": positions})
    text = {"type": "string"}
    parts = {"agreed": claim, "disputed": dispute, "single": claim, "missing": text, "depends_on": text}
    lists = {name: {"type": "array", "items": item, "maxItems": _MOST} for name, item in parts.items()}
    return _build_object({**lists, "verdict": text, "answer": text})


def _build_object(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def read_report(data: Mapping[str, Any] | None, candidates: Sequence[Candidate], authors: "Authors") -> WrittenReport:
    """Return the report in a model's reply, with agents in the place of labels.

    data: the reply's JSON object; None: it has none.

    A claim that names no answer is dropped, and so is a source that no answer has. How many agents say something, and
    thereby its place in the report, is counted here.

    Raises ReportError: there is no JSON object, no final answer, or no claim that names an answer.
    """
    if data is None:
        raise ReportError("there is no JSON object in the reply")
    answer = data.get("answer")
    if not isinstance(answer, str) or not answer.strip():
        raise ReportError('the final answer is missing: "answer"')
    reader = _Reader(candidates, authors)
    disputed = tuple(filter(None, map(reader.read_dispute, _list(data, "disputed"))))
    claims = [claim for part in ("agreed", "single") for claim in map(reader.read_claim, _list(data, part)) if claim]
    claims += reader.undisputed
    missing, depends_on = (
        tuple(entry.strip() for entry in _list(data, part) if isinstance(entry, str) and entry.strip())
        for part in ("missing", "depends_on")
    )
    if not claims and not disputed:
        raise ReportError(f'no claim names an answer in "answers": {", ".join(authors.agents)}')
    report = Report(
        made_from="answers",
        agreed=tuple(claim for claim in claims if len(claim.agents) > 1),
        disputed=disputed,
        single=tuple(claim for claim in claims if len(claim.agents) == 1),
        missing=missing,
        verdict=str(data.get("verdict") or "").strip(),
        depends_on=depends_on,
        sources=tuple(number_together(candidates)),
        dropped=reader.dropped,
    )
    return WrittenReport(report, answer.strip())


def _fold(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(". ")


def _list(data: Mapping[str, Any], key: str) -> list[Any]:
    entries = data.get(key)
    return cast("list[Any]", entries)[: 4 * _MOST] if isinstance(entries, list) else []


@dataclass(slots=True)
class _Reader:
    candidates: Sequence[Candidate]
    authors: "Authors"
    undisputed: list[Statement] = field(default_factory=list[Statement])
    """Positions that nobody contradicts."""
    dropped: int = 0

    def read_claim(self, entry: object) -> Statement | None:
        data = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        text = data.get("text")
        labels = [m[1].upper() for label in _list(data, "answers") if (m := _LABEL.fullmatch(str(label).strip()))]
        if isinstance(text, str):
            labels = self._check_quotes(text, labels)
        named = {agent for label in labels for agent in self.authors.agents.get(label, ())}
        agents = tuple(agent for agent in self.authors.team if agent in named)
        if not isinstance(text, str) or not text.strip() or not agents:
            self.dropped += 1
            return None
        return Statement(text=self._name_answers(text), agents=agents, sources=self._read_sources(data, labels))

    def _check_quotes(self, text: str, labels: Sequence[str]) -> list[str]:
        """Return whose words a claim is in, where it quotes: small models take a sentence of one for another's.

        Others that are named stay when they share half of its words and all of its numbers.
        """
        # The marks of sources have other numbers in each answer.
        contents = {c.label: _fold(remove_marks(c.content, len(c.citations))) for c in self.candidates}
        text = remove_marks(text, len(number_together(self.candidates)))
        quoted = [label for label, content in contents.items() if _fold(text) in content]
        if not quoted:
            return list(labels)
        words, numbers = set(_WORD.findall(_fold(text))), set(_NUMBER.findall(text))

        def agrees(content: str) -> bool:
            has_numbers = numbers <= set(_NUMBER.findall(content))
            return has_numbers and 2 * len(words & set(_WORD.findall(content))) >= len(words)

        return [*quoted, *(label for label in labels if agrees(contents.get(label, "")))]

    def read_dispute(self, entry: object) -> Dispute | None:
        data = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        text = data.get("text")
        positions = [claim for claim in map(self.read_claim, _list(data, "positions")) if claim]
        if len({claim.agents for claim in positions}) < 2:
            self.undisputed += positions
            return None
        return Dispute(text=self._name_answers(text) if isinstance(text, str) else "", positions=tuple(positions))

    def _read_sources(self, data: Mapping[str, Any], labels: Sequence[str]) -> tuple[int, ...]:
        """Return the numbers that name a source of one of the answers."""
        keys = [make_key(citation.url) for citation in number_together(self.candidates)]
        own = {make_key(citation.url) for c in self.candidates if c.label in labels for citation in c.citations}
        named = [str(source).strip("[] ") for source in _list(data, "sources")]
        numbers = [int(text) for text in named if re.fullmatch("[0-9]{1,4}", text) and 0 < int(text) <= len(keys)]
        real = [number for number in numbers if keys[number - 1] in own]
        self.dropped += len(named) - len(real)
        return tuple(dict.fromkeys(real))

    def _name_answers(self, text: str) -> str:
        """Put names in the place of labels, which only the model has seen."""
        names = {label: " and ".join(map(self.authors.name, ids)) for label, ids in self.authors.agents.items() if ids}
        return name_labels(text.strip(), names, answers=[c.content for c in self.candidates])


def _excerpt(answer: str) -> str:
    """Return the answer, or the last line of a long one, where most have their conclusion."""
    whole = one_line(answer, len(answer) + 1)
    lines = [line for line in answer.splitlines() if line.strip()]
    return whole if len(whole) <= _EXCERPT or len(lines) < 2 else f"… {one_line(lines[-1], _EXCERPT)}"


def report_votes(dissent: Dissent, winner: str, citations: Mapping[str, Sequence[Citation]] | None = None) -> Report:
    """Return what code can say without a model: who gave the same answer or chose it, and whose texts nobody compared.

    winner: whose answer won. citations: sources of the agents' answers, by agent.
    """
    positions = (*dissent.agreed, *dissent.others)
    answers = {position.agent: position.answer for position in positions}
    sources = merge_citations(citation for cited in (citations or {}).values() for citation in cited)
    keys = [make_key(source.url) for source in sources]

    def claim(author: str, agents: Sequence[Position]) -> Statement:
        numbers = [keys.index(make_key(c.url)) + 1 for c in (citations or {}).get(author, ())]
        ids = tuple(position.agent for position in agents)
        # Its marks have the numbers of its own sources, not of those of all answers.
        text = remove_marks(answers.get(author, ""), len((citations or {}).get(author, ())))
        return Statement(text=_excerpt(text), agents=ids, sources=tuple(dict.fromkeys(numbers)))

    own = claim(winner, [position for position in dissent.agreed if position.is_free or position.agent == winner])
    others: dict[str, list[Position]] = {}
    for position in dissent.minority:
        author = "" if position.is_forced else position.choice
        others.setdefault(author or position.agent, []).append(position)
    opposed = tuple(claim(author, agents) for author, agents in others.items())
    # Who voted for another text than its own may have said something else all the same.
    results = list_keys({agent: read_short_answer(answer) for agent, answer in answers.items()})
    apart = [p for p in dissent.agreed if p.answer and p.choice and results[p.agent] != results.get(winner)]
    singles = [claim(position.agent, [position]) for position in (*apart, *dissent.uncompared)]
    return Report(
        made_from="votes",
        agreed=(own,) if len(own.agents) > 1 and not opposed else (),
        disputed=(Dispute(text="the answer", positions=(own, *opposed)),) if opposed else (),
        single=tuple(singles if opposed or len(own.agents) > 1 else [own, *singles]),
        votes=tuple(Preference(agent_id=p.agent, choice=p.choice, reason=p.reason) for p in positions if p.choice),
        sources=tuple(sources),
    )


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report for people."""

    heading: str
    lines: tuple[str, ...]
    """Without marks of a list; `  ` before those that belong to the line above."""


def list_sections(report: Report, agents: Sequence[str], name: Callable[[str], str]) -> Iterator[Section]:
    """Yield the parts of a report that have content.

    agents: all that answered or voted. name: returns what people are shown for an agent.
    """

    def write(claim: Statement) -> str:
        everybody = len(claim.agents) == len(agents) > 1
        sources = f" [{', '.join(map(str, claim.sources))}]" if claim.sources else ""
        return f"{claim.text}{sources} ({'all' if everybody else ', '.join(map(name, claim.agents))})"

    disputed: list[str] = []
    for dispute in report.disputed:
        disputed += [dispute.text, *(f"  {write(claim)}" for claim in dispute.positions)]
    by_votes = report.made_from == "votes"
    several, only = ("Given or chosen", "Not compared") if by_votes else ("Agreed", "Only one says")
    votes = [f"{name(v.agent_id)} for {name(v.choice)}: {one_line(v.reason, _EXCERPT)}" for v in report.votes]
    sources = [f"[{n}] {' '.join(filter(None, (one_line(c.title), c.url)))}" for n, c in enumerate(report.sources, 1)]
    notes: list[str] = []
    if by_votes:
        notes.append("Made from equal answers and votes, without a request to a model.")
    if report.dropped:
        notes.append(f"Left out: {report.dropped} that named an answer or a source that does not exist.")
    parts = {
        "Verdict": [report.verdict] if report.verdict else [], "Depends on": list(report.depends_on),
        several: [write(claim) for claim in report.agreed], "Disputed": disputed,
        only: [write(claim) for claim in report.single], "Nobody covered": list(report.missing),
        "Votes": votes, "Sources": sources, "About this report": notes,
    }  # fmt: skip
    yield from (Section(heading, tuple(lines)) for heading, lines in parts.items() if lines)
