"""Deletion of sessions: what is left of them on the disk."""

from pathlib import Path

from massmem.config.models import TeamConfig
from massmem.session.delete import SessionDeleter
from massmem.store import open_store
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import answer, begin

TURNS = 60


def read_files(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


async def test_deletion_leaves_no_words_of_a_long_conversation_in_the_files(home: Path, tmp_path: Path) -> None:
    """Of so many messages, deletion of the rows alone leaves words in the search index and in the write-ahead log."""
    folder = home / ".massmem"
    url = f"sqlite:///{folder}/massmem.db"
    config = TeamConfig.model_validate(
        {
            "agents": [{"id": "ann", "backend": {"type": "scripted", "script": {"answer": "hi"}}}],
            "store": {"url": url},
            "memory": {"persistent_memory": {"enabled": False}},
        }
    )
    store = await open_store(url, folder)
    for name, word in (("session_a", "xylophone"), ("session_b", "marimba")):
        await store.create_session(session(name))
        for turn in range(1, TURNS + 1):
            text = " ".join(f"{word}{turn}x{number}" for number in range(100))
            await store.append(name, turn, [begin("ann", question=text), answer(1, "ann", text), done(text=text)])
    record = await store.get_session("session_a")
    assert record is not None
    deleter = SessionDeleter(config, folder, store, tmp_path, {})
    result = await deleter.delete([record], lambda *_: None)
    assert result.erased
    contents = read_files(folder)
    assert b"xylophone" not in contents
    assert b"marimba" in contents
    await store.close()
