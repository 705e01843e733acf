"""The record of a decision in Markdown, with the headings of MADR (adr.github.io/madr)."""

from massmem.core.decision import add_up, write_decision, write_dissent, write_table
from massmem.core.items import write_item
from massmem.core.messages import split_question
from massmem.core.text import one_line
from massmem.core.turn_result import TurnResult


def write_record(result: TurnResult) -> str:
    """Return the record of a turn of shape decide. A person accepts it: until then it is proposed."""
    decision, items = add_up(result.items or ()), {item.number: item for item in result.items or ()}
    asked = split_question(result.question, result.files)[0]
    title = decision.best.option.item.title if decision.best else "Nothing is decided"
    when = result.ended_at or result.started_at
    agents = ", ".join(result.name(agent) for agent in decision.choices)
    outcome = (
        f'Chosen option: "{title}", with {decision.best.total:.1f} of 10 points.' if decision.best else f"{title}."
    )
    options = sorted((score.option for score in decision.scores), key=lambda option: option.number)
    sections = {
        "Context and Problem Statement": asked,
        "Considered Options": "\n".join(write_item(option.number, option.item) for option in options),
        "Decision Drivers": "\n".join(
            write_item(number, items[number].item, f"{share:.0%} of the weight")
            for number, share in sorted((item.number, share) for item, share in decision.criteria)
        ),
        "Decision Outcome": "\n\n".join(filter(None, (outcome, _read_summary(result), write_table(decision)))),
        "More Information": "\n\n".join(
            filter(
                None,
                (
                    write_dissent(decision, result.name),
                    "The first two are close: other weights may change the order." if decision.is_close else "",
                    f"Session {result.session_id}, turn {result.turn}.",
                ),
            )
        ),
    }
    head = f"---\nstatus: proposed\ndate: {when:%Y-%m-%d}\ndecision-makers: {agents or 'none'}\n---\n" if when else ""
    body = "\n\n".join(f"## {name}\n\n{text}" for name, text in sections.items() if text)
    return f"{head}\n# {one_line(title, 200)}\n\n{body}\n"


def _read_summary(result: TurnResult) -> str:
    """Return what one agent wrote above the points; "": nobody wrote anything."""
    return (result.answer or "").removesuffix(write_decision(result.items or (), result.name)).strip()
