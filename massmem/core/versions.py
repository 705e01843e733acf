"""The turns of a session as a tree: those that follow the same one are versions of each other. Pure."""

from collections.abc import Iterable

from massmem.core.errors import InputError
from massmem.core.events import VersionChosen
from massmem.core.records import TurnPlace


class TurnTree:
    def __init__(self, places: Iterable[TurnPlace]) -> None:
        """places: of all turns of a session."""
        self._places = {place.turn: place for place in sorted(places, key=lambda place: place.turn)}
        self._parents: dict[int, int] = {}
        self._children: dict[int, list[int]] = {}
        last = 0
        for number, place in self._places.items():
            parent = self._parents[number] = last if place.parent is None else place.parent
            if place.status != "undone":
                self._children.setdefault(parent, []).append(number)
                last = number

    def list_versions(self) -> dict[int, tuple[int, ...]]:
        """Return all versions of each turn that has several, by its number, the oldest first."""
        return {turn: tuple(turns) for turns in self._children.values() if len(turns) > 1 for turn in turns}

    def plan_version(self, turn: int) -> tuple[int, tuple[int, ...]]:
        """Return what a new version of a turn follows, and which turns it withdraws.

        Raises InputError: the turn is not part of the conversation.
        """
        if turn not in self._places or not self._places[turn].stands:
            raise InputError(f"turn {turn} is not part of the conversation", "ask again in the place of one that is")
        parent = self._parents[turn]
        return parent, tuple(n for n, place in self._places.items() if n > parent and place.stands)

    def plan_choice(self, turn: int) -> VersionChosen:
        """Return what shows a version of a turn, with what followed it last. Raise InputError: there is none."""
        if turn not in self._places or self._places[turn].status == "undone":
            raise InputError(f"there is no version {turn} of a turn", "see them with: massmem sessions show")
        path = {turn}
        end = turn
        while end in self._children:
            path.add(end := self._children[end][-1])
        while turn := self._parents.get(turn, 0):
            path.add(turn)
        withdrawn = tuple(n for n, place in self._places.items() if place.stands and n not in path)
        restored = tuple(n for n in sorted(path) if n in self._places and self._places[n].withdrawn)
        return VersionChosen(turn=end, withdrawn=withdrawn, restored=restored)
