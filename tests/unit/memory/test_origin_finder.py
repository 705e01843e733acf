"""Origins of new memories: from their turn, and from what is remembered already."""

from pathlib import Path
from typing import Any

import pytest

from massmem.memory.origins import ToolText, ToolWords
from massmem.memory.persistent import RecallOptions, Selection
from tests.support.memories import asks, fact, make_episode, open_disk_memory

PAGE = ToolWords([ToolText("fetch", "The vault of the Lisbon branch opens with REED-4410.")])
SECRET = "The Lisbon vault opens with REED-4410."


async def list_origins(folder: Path, *batches: list[Any]) -> dict[str, str]:
    """Record the batches; return by text the tool that it rests on, else who said it."""
    memory = open_disk_memory(folder)
    try:
        for batch in batches:
            if hasattr(batch[0], "message_id"):
                await memory.record(batch)
            else:
                await memory.add_facts(batch)
        return {m.text: m.rests_on or m.origin for m in await memory.list(Selection())}
    finally:
        await memory.close()


async def test_each_memory_knows_where_it_is_from(tmp_path: Path):
    batch = [
        make_episode("Where is the key?", 0),
        make_episode(SECRET, 1, by="a", tool_words=PAGE),
        make_episode("I would ask the janitor.", 2, by="a", tool_words=PAGE),
        make_episode("Raw text of a page", 3, by="a", origin="tool:fetch"),
        make_episode("Once upon a time", 4, origin="import"),
    ]
    assert [*(await list_origins(tmp_path, batch)).values()][::-1] == [
        "user",
        "tool:fetch",
        "agent",
        "tool:fetch",
        "import",
    ]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("session", ["s", "another"])
async def test_words_that_an_agent_repeats_later_keep_the_origin(tmp_path: Path, together: bool, session: str):
    first = [make_episode(SECRET, 1, by="a", tool_words=PAGE)]
    later = [make_episode("As I know, REED-4410 opens the vault.", 9, turn=2, by="a", session=session)]
    batches = [[*first, *later]] if together else [first, later]
    assert (await list_origins(tmp_path, *batches))[later[0].text] == "tool:fetch"


async def test_look_alikes_are_recognised_among_many_memories_from_tools(tmp_path: Path):
    pages = [
        make_episode(f"The vault {n} opens with REED-{n}.", n, by="a", origin="tool:fetch") for n in range(100, 160)
    ]
    again = [make_episode("Ιt іs RЕЕD-131, I thіnk: the vаult opens.", 200, turn=2, by="a")]
    assert (await list_origins(tmp_path, pages, again))[again[0].text] == "tool:fetch"


async def test_memories_that_others_may_not_see_do_not_mark_their_words(tmp_path: Path):
    first = [make_episode(SECRET, 1, by="a", tool_words=PAGE, group="0" * 24 + ":")]
    later = [make_episode("REED-4410 opens my own vault.", 9, turn=2, by="b", session="t", group="1" * 24 + ":")]
    assert (await list_origins(tmp_path, first, later))[later[0].text] == "agent"


async def test_facts_have_the_origin_of_their_words(tmp_path: Path):
    words = ToolWords(PAGE.results, ["I live in Porto."])
    facts = [
        fact("The user lives in Porto.", origin="user", tool_words=words),
        fact("Vault: REED-4410.", origin="user", tool_words=words),
        fact("The vault of Lisbon opens with REED-4410.", tool_words=words),
        fact("Janitors are worth asking.", tool_words=words),
    ]
    origins = await list_origins(tmp_path, facts)
    assert [origins[f.text] for f in facts] == ["user", "tool:fetch", "tool:fetch", "agent"]


async def test_a_fact_that_is_stated_again_keeps_the_tool_unless_the_user_states_it(tmp_path: Path):
    text = "The vault opens with REED-4410."
    again = [fact(text, turn=2, sources=("m2",))]
    assert (await list_origins(tmp_path / "a", [fact(text, tool_words=PAGE)], again))[text] == "tool:fetch"
    users = [fact(text, turn=2, sources=("u",), origin="user", tool_words=ToolWords([], [text]))]
    assert (await list_origins(tmp_path / "b", [fact(text, tool_words=PAGE)], users))[text] == "user"


async def test_a_recall_names_the_tool_and_a_filter_asks_for_it(tmp_path: Path):
    memory = open_disk_memory(tmp_path)
    try:
        padding = "It took me a while, and I had to look twice before I could believe what stood there in plain sight."
        own = "I would ask the janitor first, who is on duty until six, then whoever else has had breakfast in Lisbon."
        batch = [
            make_episode("Is there a vault?", 0),
            make_episode(f"{SECRET} {padding} {own}", 1, by="a", tool_words=PAGE),
        ]
        await memory.record(batch)
        options = RecallOptions(1_000)
        recalled = await memory.recall("Lisbon vault", asks("a"), options)
        assert f"You (quoting fetch): {SECRET} {padding}" in recalled.text
        assert "\nYou: I would ask the janitor" in recalled.text
        for origin, texts in {
            "tool": [f"{SECRET} {padding}"],
            "tool:fetch": [f"{SECRET} {padding}"],
            "tool:x": [],
            "user": ["Is there a vault?"],
        }.items():
            hits = await memory.recall("Lisbon vault", asks("a", origin=origin), options)
            assert [m.text for m in hits.memories] == texts, origin
            assert [m.text for m in await memory.list(Selection(origin=origin))] == texts
    finally:
        await memory.close()


async def test_memories_of_older_versions_are_the_users_or_unknown(tmp_path: Path):
    memory = open_disk_memory(tmp_path)
    try:
        await memory.record([make_episode("I like kites.", 0), make_episode("Kites are birds.", 1, by="a")])
        for page in list(memory._index.read_pages()):
            for point_id, _ in page:
                memory._index.set_payload([point_id], {"origin": []})
        assert {m.agent_id: m.origin for m in await memory.list(Selection())} == {"user": "user", "a": ""}
        assert [m.agent_id for m in await memory.list(Selection(origin="user"))] == ["user"]
        assert "You: Kites are birds." in (await memory.recall("kites", asks("a"), RecallOptions(1_000))).text
    finally:
        await memory.close()
