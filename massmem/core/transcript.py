"""A turn of a session as people read it: what it came to, and its messages."""

from collections.abc import Iterator
from dataclasses import dataclass

from massmem.core.calls import parse_object
from massmem.core.messages import Attachment
from massmem.core.records import MessageRecord
from massmem.core.report import Report
from massmem.core.reporting import Section, list_sections
from massmem.core.turn_result import TurnResult


@dataclass(frozen=True, slots=True)
class LoggedTurn:
    """One turn, or with number 0 the messages before the first one."""

    result: TurnResult
    messages: tuple[MessageRecord, ...]
    """All messages in order, question and final answer included."""
    attachments: tuple[Attachment, ...] = ()
    """Files of the question, where they were loaded."""

    @property
    def is_between_turns(self) -> bool:
        return self.result.turn == 0

    def list_report(self, report: Report | None) -> Iterator[Section]:
        """Yield the parts of a report of this turn."""
        if report is not None:
            yield from list_sections(report, self.result.authors, self.result.name)


def parse_ballot(message: MessageRecord) -> tuple[str, str] | None:
    match parse_object(message.content) if message.kind == "tool_call" else None:
        case {"vote": {"choice": str(choice), "reason": str(reason)}}:
            return choice, reason
        case _:
            return None
