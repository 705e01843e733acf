"""What is said in a project is recalled there and nowhere else; what is global, everywhere."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from massmem.config.models import TeamConfig
from massmem.core.events import NoteAdded, now
from massmem.core.records import COMMAND_LINE_USER, Owner, SessionRecord
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import USER, RecallOptions, Scope, Selection
from massmem.recording.forgetting import open_durable_memory
from massmem.recording.worker import Recorder
from massmem.session.memories import Memories, View
from massmem.session.owners import extend_scope, memory_group, restrict_memory, to_stored_id
from massmem.session.recall import recall_by_words
from massmem.store import open_store
from massmem.store.ports import SessionStore

PROJECTS = ("", "/srv/alpha", "/srv/beta", "/home/alpha")
OWNERS = (COMMAND_LINE_USER, Owner("ann"), Owner("bob"))
GROUPS = (None, "zoo", "farm")


def make_config(session_name: str | None) -> TeamConfig:
    memory = {"persistent_memory": {"session_name": session_name, "embedding": {"model": "none"}}}
    return TeamConfig.model_validate({"agents": [{"id": "one", "backend": {"type": "scripted"}}], "memory": memory})


@dataclass(frozen=True)
class Place:
    owner: Owner
    project: str
    group: str | None

    @property
    def secret(self) -> str:
        return f"The heron {PLACES.index(self):03} nests on the roof."

    @property
    def session_id(self) -> str:
        return to_stored_id(self.owner, f"session_{PLACES.index(self)}")

    def is_recalled_in(self, other: "Place") -> bool:
        """The user of the command line without a session_name recalls from all groups."""
        reaches = self.group == other.group or (other.group is None and other.owner == COMMAND_LINE_USER)
        return self.owner == other.owner and reaches and self.project in ("", other.project)


PLACES = [Place(owner, project, group) for owner in OWNERS for project in PROJECTS for group in GROUPS]


@dataclass
class World:
    store: SessionStore
    index: IndexedMemory
    home: Path

    def open(self, place: Place) -> Memories:
        @asynccontextmanager
        async def open_index() -> AsyncGenerator[IndexedMemory]:
            yield self.index

        config = make_config(place.group)
        return Memories(config, self.home, self.store, open_index, place.owner, place.project)

    async def record(self) -> None:
        await Recorder(self.store, self.index).drain()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A conversation in each place, with a sentence of its own."""
    store = await open_store(f"sqlite:///{tmp_path / 'massmem.db'}", tmp_path)
    for place in PLACES:
        time = now()
        record = SessionRecord(
            session_id=place.session_id,
            user_id=place.owner.user_id,
            memory_group=memory_group(make_config(place.group), place.owner),
            project=place.project,
            created_at=time,
            updated_at=time,
        )
        await store.create_session(record)
        await store.append(place.session_id, 0, [NoteAdded(text=place.secret)])
    async with open_durable_memory(make_config(None).memory, tmp_path) as index:
        world = World(store, index, tmp_path)
        await world.record()
        yield world
    await store.close()


async def look(world: World, place: Place, query: str, rng: Random) -> set[str]:
    """Return what somebody there is shown, in one of the ways to look."""
    memories = world.open(place)
    options = RecallOptions(100_000, abstain=False)
    scope = Scope(
        rng.choice(("", place.session_id, "session_new")), rng.choice(("one", USER)), 2, project=place.project
    )
    scope = await extend_scope(
        world.store, scope, restrict_memory(make_config(place.group).memory, place.owner), place.owner
    )
    match rng.randrange(3):
        case 0:
            return await find(memories, query, shows_all=True)
        case 1:
            recalled = await world.index.recall(query, scope, options)
        case _:
            recalled = await recall_by_words(world.store, query, scope, options)
    return {memory.text for memory in (*recalled.memories, *recalled.pinned)}


@pytest.mark.parametrize("looks", [60, pytest.param(2_000, marks=pytest.mark.full)])
async def test_nothing_leaks_between_projects_users_and_groups(world: World, looks: int) -> None:
    """Two users of the service and that of this machine, three projects and none, two groups and none."""
    rng, leaks = Random(41), list[tuple[Place, str]]()
    for _ in range(looks):
        here, there = rng.choices(PLACES, k=2)
        texts = await look(world, here, f"Which heron nests on the roof, {PLACES.index(there):03}?", rng)
        allowed = {place.secret for place in PLACES if place.is_recalled_in(here)}
        leaks += [(here, text) for text in texts - allowed]
    assert leaks == []


async def test_all_of_a_project_and_what_is_global_is_recalled_there(world: World) -> None:
    for here in PLACES:
        allowed = {place.secret for place in PLACES if place.is_recalled_in(here)}
        assert await find(world.open(here), "heron nests roof", shows_all=True) == allowed


async def find(memories: Memories, query: str, *, shows_all: bool = False) -> set[str]:
    """Return what an agent would be shown. shows_all: and what it would not."""
    hits = await memories.search(query, View(), 1_000, 100_000, shows_all=shows_all)
    return {memory.text for memory in (*hits.recalled.memories, *(hits.beyond if shows_all else ()))}


@pytest.mark.parametrize("owner", [COMMAND_LINE_USER, Owner("ann")])
async def test_memory_is_made_global_and_given_back_and_a_rebuild_knows(world: World, owner: Owner) -> None:
    alpha, beta = (Place(owner, project, None) for project in PROJECTS[1:3])
    query, memories = alpha.secret, world.open(alpha)
    (memory,) = [m for m in (await memories.search(query, View())).recalled.memories if m.text == alpha.secret]
    assert (memory.project, memory.is_global) == ("/srv/alpha", False)
    assert alpha.secret not in await find(world.open(beta), query)
    promoted = await memories.change(memory.id, "promote")
    assert (promoted.project, promoted.is_global) == ("", True)
    assert alpha.secret in await find(world.open(beta), query)
    await world.store.requeue_recordings(None, done=True)
    await world.index.forget(Selection(alpha.session_id))
    await world.record()
    assert alpha.secret in await find(world.open(beta), query)
    given_back = await memories.change(memory.id, "demote")
    assert given_back.project == "/srv/alpha"
    assert alpha.secret not in await find(world.open(beta), query)
    assert len(await memories.read_changes(given_back)) == 2


async def test_note_that_is_added_globally_is_recalled_in_groups_and_projects_and_another_is_not(world: World) -> None:
    for owner in OWNERS:
        group, other = Place(owner, "/srv/alpha", "zoo"), Place(owner, "/srv/beta", "farm")
        await world.open(group).add("I prefer metric units.", everywhere=True)
        await world.open(group).add("Our units are in the cellar.")
        assert await find(world.open(group), "Which units?") == {
            "I prefer metric units.",
            "Our units are in the cellar.",
        }
        assert await find(world.open(other), "Which units?") == {"I prefer metric units."}
        assert "Our units are in the cellar." not in await find(
            world.open(Place(owner, "/srv/beta", "zoo")), "Which units?"
        )


async def test_session_that_is_called_like_the_notes_is_recalled_in_no_other_project(world: World) -> None:
    time, owner = now(), Owner("ann")
    stored = to_stored_id(owner, "notes")
    group = memory_group(make_config(None), owner)
    posing = SessionRecord(session_id=stored, user_id="ann", memory_group=group, created_at=time, updated_at=time)
    await world.store.create_session(posing.model_copy(update={"project": "alpha"}))
    await world.store.append(stored, 0, [NoteAdded(text="The units are in the attic.")])
    await world.record()
    assert await find(world.open(Place(owner, "beta", "zoo")), "Where are the units?") == set()


async def test_session_that_a_session_name_names_is_recalled_in_its_own_project_only(world: World) -> None:
    named = PLACES[3]
    assert (named.project, named.group) == ("/srv/alpha", None)
    for project, is_shown in (("/srv/alpha", True), ("/srv/beta", False), ("", False)):
        texts = await find(world.open(Place(COMMAND_LINE_USER, project, named.session_id)), named.secret)
        assert (named.secret in texts) == is_shown
