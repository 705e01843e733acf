"""The record of a decision in Markdown, with the headings of MADR (adr.github.io/madr)."""

import json

from massmem.core.decision import add_up, write_decision, write_dissent, write_options, write_outcome, write_table
from massmem.core.items import write_item
from massmem.core.messages import split_question
from massmem.core.text import one_line
from massmem.core.turn_result import TurnResult


def write_record(result: TurnResult) -> str:
    """Return the record of a turn of shape decide. A person accepts it: until then it is proposed."""
    decision = add_up(result.items or ())
    title = decision.best.option.item.title if decision.best else "Nothing is decided"
    when = result.ended_at or result.started_at
    outcome = write_outcome(decision).replace(f"**Decided: {title}**, ", f'Chosen option: "{title}", with ')
    drivers = [
        write_item(criterion.number, criterion.item, f"{share:.0%} of the weight")
        for criterion, share in decision.criteria
    ]
    sections = {
        "Context and Problem Statement": [split_question(result.question, result.files)[0]],
        "Decision Drivers": ["\n".join(drivers)],
        "Considered Options": [write_options(decision, result.name)],
        "Decision Outcome": [outcome, _read_summary(result), write_table(decision)],
        "More Information": [
            write_dissent(decision, result.name),
            f"Session {result.session_id}, turn {result.turn}.",
        ],
    }
    makers = json.dumps([*map(result.name, decision.agents)], ensure_ascii=False)  # which is YAML, whatever the names
    head = f"---\nstatus: proposed\ndate: {when:%Y-%m-%d}\ndecision-makers: {makers}\n---\n\n" if when else ""
    texts = {name: "\n\n".join(filter(None, parts)) for name, parts in sections.items()}
    body = "\n\n".join(f"## {name}\n\n{text}" for name, text in texts.items() if text)
    return f"{head}# {one_line(title, 200)}\n\n{body}\n"


def _read_summary(result: TurnResult) -> str:
    """Return what one agent wrote between what was decided and the points; "": nobody wrote anything."""
    items = result.items or ()
    outcome = write_outcome(add_up(items))
    points = write_decision(items, result.name).removeprefix(outcome)
    return (result.answer or "").removeprefix(outcome).removesuffix(points).strip()
