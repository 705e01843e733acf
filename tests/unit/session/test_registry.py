import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from massmem.core.errors import HomeError, StoreError
from massmem.session.registry import (
    Registry,
    RegistryEntry,
    build_entry,
    read_lease_owner,
    read_sessions,
    register_sessions,
    require_database,
    without_password,
)
from massmem.store import open_store
from tests.contract.test_session_store import session
from tests.support.sample_turn import begin, whole_turn
from tests.support.small_disk import mount_small_disk


def entry(number: int) -> RegistryEntry:
    day = f"2025-10-{number:02}T14:30:00+00:00"
    return RegistryEntry(
        f"session_{number}", day, day, "completed", "team.yaml", "gpt-4o", "about it", "sqlite:///x.db"
    )


@pytest.fixture
def registry(home: Path) -> Registry:
    return Registry(home / ".massmem")


def test_empty_without_a_file(registry: Registry) -> None:
    assert registry.read_entries() == []
    assert not registry.path.parent.exists()


def test_entries_come_back_newest_first(registry: Registry) -> None:
    for number in (2, 9, 4):
        registry.upsert(entry(number))
    assert registry.read_entries() == [entry(9), entry(4), entry(2)]
    changed = replace(entry(4), status="failed", end_time=None)
    registry.upsert(changed)
    registry.remove("session_9", "session_of_nobody")
    assert registry.read_entries() == [changed, entry(2)]


def test_sessions_of_the_same_second_come_in_the_order_of_their_ids(registry: Registry) -> None:
    same = [replace(entry(1), session_id=name) for name in ("a", "c", "b")]
    registry.upsert(*same)
    assert [one.session_id for one in registry.read_entries()] == ["c", "b", "a"]


def test_registry_that_cannot_be_read_or_written_is_reported(registry: Registry) -> None:
    registry.path.mkdir(parents=True)
    with pytest.raises(HomeError, match=r"sessions\.json cannot be read: Is a directory") as refusal:
        registry.read_entries()
    assert refusal.value.hint == "check its owner and permissions"
    with pytest.raises(HomeError, match=r"sessions\.json cannot be written: Is a directory"):
        registry.path.rmdir()
        registry.path.with_name("sessions.json.new").mkdir()
        registry.upsert(entry(1))


def test_full_disk_leaves_the_list_as_it_was(tmp_path: Path) -> None:
    with mount_small_disk(tmp_path / "disk", "64k") as disk:
        registry = Registry(disk)
        registry.upsert(entry(1))
        many = [entry(1), *(replace(entry(2), session_id=f"s{number}") for number in range(1000))]
        with pytest.raises(StoreError, match=r"the disk is full: .*/sessions\.json cannot be written"):
            registry.upsert(*many)
        assert registry.read_entries() == [entry(1)]


def test_the_fields_are_those_of_the_seed_and_the_store(registry: Registry) -> None:
    registry.upsert(entry(1))
    (stored,) = json.loads(registry.path.read_text())["sessions"]
    assert list(stored) == [
        "session_id", "start_time", "end_time", "status", "config_path", "model", "description", "store"
    ]  # fmt: skip


def test_only_the_owner_may_read_and_nothing_is_left_behind(registry: Registry) -> None:
    registry.path.parent.mkdir(mode=0o755)
    temporary = registry.path.with_name("sessions.json.new")
    temporary.write_text("left by a writer that was killed")
    registry.upsert(entry(1))
    assert registry.path.parent.stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in registry.path.parent.iterdir()} == {0o600}
    assert not temporary.exists()


GOOD = json.dumps({"sessions": [{"session_id": "s", "start_time": "2025-10-28T14:30:00+00:00"}]})


def test_a_byte_order_mark_and_missing_fields_are_fine(registry: Registry) -> None:
    registry.path.parent.mkdir()
    registry.path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert registry.read_entries() == [RegistryEntry("s", "2025-10-28T14:30:00+00:00")]


@pytest.mark.parametrize(
    "content",
    [GOOD[:-9], "", "\0" * 64, GOOD.encode().replace(b"28T", b"\xff8T"), GOOD + GOOD, "[]", '{"sessions": {}}', "null",
     "[" * 100_000],
    ids=["truncated", "empty", "zeroed", "bad byte", "two documents", "a list", "no list", "nothing", "deep"],
)  # fmt: skip
def test_damaged_file_lists_nothing_until_it_is_written_again(registry: Registry, content: str | bytes) -> None:
    registry.path.parent.mkdir()
    registry.path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert registry.read_entries() == []
    registry.upsert(entry(1))
    assert registry.read_entries() == [entry(1)]


@pytest.mark.parametrize(
    "damage",
    [("session_id", "sessioo_id"), ('"s"', "7"), ('"s"', '"../../s"'), ('"s"', f'"{"s" * 4096}"'),
     ('"session_id": "s", ', ""), ("2025-10-28T14:30:00+00:00", "yesterday"), ('"s",', '"s", "end_time": 5,')],
    ids=["a flipped bit", "a number", "a path", "a long id", "no id", "no time", "an odd end"],
)  # fmt: skip
def test_damaged_entry_leaves_the_others(registry: Registry, damage: tuple[str, str]) -> None:
    registry.upsert(entry(1))
    damaged = json.loads(GOOD.replace(*damage))["sessions"]
    stored = json.loads(registry.path.read_text())["sessions"]
    registry.path.write_text(json.dumps({"sessions": [*damaged, 7, *stored]}))
    assert registry.read_entries() == [entry(1)]
    registry.remove("unknown")
    assert json.loads(registry.path.read_text())["sessions"] == stored


def test_texts_are_cut_and_cleaned(registry: Registry) -> None:
    registry.upsert(replace(entry(1), description="x" * 10_000 + "\ud800", model="\ud800m\0"))
    (found,) = registry.read_entries()
    assert len(found.description) == 200
    assert found.model == "�m�"


def test_an_entry_that_would_damage_the_file_is_refused(registry: Registry) -> None:
    for bad in (replace(entry(1), session_id="../x"), replace(entry(1), start_time="now")):
        with pytest.raises(ValueError, match=r"session id|isoformat"):
            registry.upsert(bad)
    assert registry.read_entries() == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////home/a:b/m@x.db", "sqlite:////home/a:b/m@x.db"),
        ("postgresql://ann:s3cr:e/t?@db:5432/m?password=x", "postgresql://ann@db:5432/m"),
        ("redis://:secret@h", "redis://@h"),
        ("postgresql://db/m", "postgresql://db/m"),
    ],
)
def test_urls_are_shown_without_a_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


NAMED = "The sky, whatever it was described as"


async def test_sessions_are_read_from_the_store(home: Path) -> None:
    database = home / ".massmem" / "massmem.db"
    assert read_sessions(database) == []
    store = await open_store(f"sqlite:///{database}", home / ".massmem")
    await store.create_session(session("a", 1))
    await store.create_session(session("b", 2).model_copy(update={"description": ""}))
    await store.append("a", 1, whole_turn())
    await store.append("b", 1, [begin("ann")])
    await store.rename_session("a", NAMED)
    url = f"sqlite:///{database}"
    start = "2025-10-28T14:30:0"
    assert read_sessions(database) == [
        RegistryEntry("b", f"{start}2+00:00", None, "active", "team.yaml", "m", "Why is the sky blue?", url),
        RegistryEntry("a", f"{start}1+00:00", f"{start}5+00:00", "completed", "team.yaml", "m", NAMED, url),
    ]
    await store.close()


async def test_sessions_of_other_users_are_not_listed_and_secrets_are_hidden(home: Path):
    database = home / ".massmem" / "massmem.db"
    url = f"sqlite:///{database}"
    store = await open_store(url, home / ".massmem")
    await store.create_session(session("a", 1).model_copy(update={"description": "my password is hunter2hunter2"}))
    await store.create_session(session("b", 2).model_copy(update={"user_id": "alice"}))
    await register_sessions(home / ".massmem", f"{url}?password=x", await store.list_sessions())
    (own,) = Registry(home / ".massmem").read_entries()
    assert own.session_id == "a"
    assert "hunter2" not in own.description
    assert own.store == url
    assert [own] == read_sessions(database)
    running = build_entry(session("a", 1), url)
    ended = build_entry(session("a", 1).model_copy(update={"status": "failed"}), url)
    assert (running.end_time, ended.end_time) == (None, "2025-10-28T14:30:01+00:00")
    assert (running.status, ended.status) == ("active", "failed")
    titled = build_entry(session("a").model_copy(update={"description": "", "title": "Pump"}), url)
    assert titled.description == "Pump"
    await store.close()


async def test_holder_of_a_lease_is_read_without_the_store(home: Path):
    database = home / ".massmem" / "massmem.db"
    assert read_lease_owner(database, "a") is None
    assert not database.exists()
    store = await open_store(f"sqlite:///{database}", home / ".massmem")
    await store.create_session(session("a"))
    assert read_lease_owner(database, "a") is None
    await store.acquire_lease("a", "somebody", 60)
    assert read_lease_owner(database, "a") == "somebody"
    await store.close()


@pytest.mark.parametrize("empty", [True, False], ids=["empty", "missing"])
def test_database_that_the_registry_knows_must_be_there(registry: Registry, empty: bool):
    database = registry.path.parent / "massmem.db"
    url = f"sqlite:///{database}"
    require_database(registry.path.parent, url)
    registry.upsert(replace(entry(1), store="sqlite:////elsewhere.db"))
    registry.upsert(replace(entry(2), store="postgresql://localhost/x"))
    require_database(registry.path.parent, url)
    registry.upsert(replace(entry(3), store=url))
    registry.upsert(replace(entry(4), store=url))
    require_database(registry.path.parent, "postgresql://localhost/x")
    if empty:
        database.touch()
    word = "empty" if empty else "missing"
    with pytest.raises(StoreError, match=f"massmem.db is {word}, but .*sessions.json lists 2 of its sessions") as e:
        require_database(registry.path.parent, url)
    assert e.value.hint == "put massmem.db back from a copy; or begin anew with: massmem --new-home"
    database.write_text("anything")
    require_database(registry.path.parent, url)
    database.unlink()
    registry.path.write_text("damaged")
    require_database(registry.path.parent, url)


def test_registry_that_is_set_aside_is_kept(registry: Registry):
    registry.set_aside()
    registry.upsert(entry(1))
    content = registry.path.read_bytes()
    registry.set_aside()
    assert not registry.path.exists()
    (copy,) = registry.path.parent.glob("sessions.json.before-*")
    assert copy.read_bytes() == content
    assert re.fullmatch(r"sessions\.json\.before-\d{8}T\d{12}", copy.name)
    assert registry.read_entries() == []


def test_registry_that_another_process_writes_for_long_is_left_alone(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
):
    registry.upsert(entry(1))
    monkeypatch.setattr("massmem.config.home.LOCK_SECONDS", 0.05)
    with FileLock(f"{registry.path}.lock"), pytest.raises(StoreError, match="is locked: another process"):
        registry.upsert(entry(2))
    assert registry.read_entries() == [entry(1)]


def test_a_store_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "m.db").write_text("no database " * 1000)
    with pytest.raises(StoreError, match=r"the sessions in .*m\.db cannot be read: file is not a database") as refusal:
        read_sessions(tmp_path / "m.db")
    assert refusal.value.hint == "check it with: massmem doctor"
    assert read_lease_owner(tmp_path / "m.db", "a") is None


def test_reading_the_list_loads_nothing_heavy(registry: Registry) -> None:
    registry.upsert(entry(1))
    program = (
        "import sys; from pathlib import Path; from massmem.session.registry import Registry; "
        f"assert len(Registry(Path({str(registry.path.parent)!r})).read_entries()) == 1; "
        "print({'pydantic', 'sqlalchemy', 'asyncio', 'filelock'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
