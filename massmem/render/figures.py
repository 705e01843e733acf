"""Numbers and one-line sums of a turn, as people read them."""

from datetime import datetime

from massmem.events import AgentFailed, WinnerDecided
from massmem.money import dollars
from massmem.render.board import Board
from massmem.render.printable import one_line

_HOW = {
    "only_answer": "the only answer",
    "consensus": "consensus",
    "plurality": "most votes",
    "tie_earliest": "a tie, the earliest answer wins",
    "no_votes_earliest": "no votes, the earliest answer wins",
}


def duration(seconds: float) -> str:
    """`3.2s`, `48s`, `2m05s`, `1h02m`."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def count(number: int) -> str:
    """`980`, `1.2k`, `34k`, `1.2M`."""
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= limit:
            scaled = number / limit
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
    return str(number)


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def verdict(event: WinnerDecided) -> str:
    """`critic wins: 2 of 3 votes, consensus`."""
    total = sum(event.votes.values())
    votes = f"{event.votes.get(event.agent_id, 0)} of {plural(total, 'vote')}, " if total else ""
    return f"{printable_id(event.agent_id)} wins: {votes}{_HOW[event.by]}"


def failure(event: AgentFailed) -> str:
    """`writer failed: 429 too many requests`, with what to do about it when that is known."""
    hint = f" ({one_line(event.hint)})" if event.hint else ""
    rest = "" if event.out else "; it may act again in the next round"
    return f"{printable_id(event.agent_id)} failed: {one_line(event.message)}{hint}{rest}"


def summary(board: Board, now: datetime) -> str:
    """What the turn took, in one line: rounds, agents, time, tokens, dollars; and how sure the council is."""
    parts = [plural(board.round, "round")] if board.round else []
    failed = len(board.failed_agents)
    parts.append(plural(len(board.agents), "agent") + (f" ({failed} failed)" if failed else ""))
    parts.append(duration(board.seconds(now)))
    usage = board.usage
    about = "" if usage.reported else "~"
    parts.append(f"{about}{count(usage.prompt)} tokens in, {about}{count(usage.completion)} out")
    if usage.cost or (usage.cost is None and usage.completion):  # what runs on this machine costs nothing
        parts.append(f"{'' if usage.cost is None else about}{dollars(usage.cost)}")
    if board.confidence is not None:
        low = ", low: have a look at the answer" if board.escalated else ""
        parts.append(f"confidence {percent(board.confidence)}{low}")
    return " · ".join(parts)


def percent(share: float) -> str:
    """0.667 -> `67%`."""
    return f"{share * 100:.0f}%"


def printable_id(agent_id: str) -> str:
    return one_line(agent_id, 64)
