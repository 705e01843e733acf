"""One suite for every index: in this process, served by another one, on a stub of a server, on a real server.

The last one is the Qdrant server that MASSMEM_QDRANT_URL names.
"""

import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core.errors import InputError, MemoryUnavailable
from massmem.memory.access import may_see, reader_keys, visible_to
from massmem.memory.index import All, Index, between_days, valid_ids
from massmem.memory.index_edge import EdgeIndex
from massmem.memory.index_qdrant import QdrantIndex
from massmem.memory.index_shared import SharedIndex
from massmem.memory.persistent import Memory, Scope, Selection
from tests.support.points import EVERYWHERE, START, point
from tests.support.qdrant_stub import QdrantStub

DAY = START.toordinal()


def server_url() -> str:
    url = os.environ.get("MASSMEM_QDRANT_URL", "")
    if not url:
        pytest.skip("MASSMEM_QDRANT_URL names no Qdrant server")
    try:
        urlopen(f"{url.rstrip('/')}/healthz", timeout=2).close()
    except (URLError, OSError) as e:
        pytest.skip(f"the Qdrant server of MASSMEM_QDRANT_URL is not reachable: {e}")
    return url


def open_index(kind: str, dims: int, folder: Path, stub: QdrantStub | None) -> Index:
    match kind:
        case "embedded":
            return EdgeIndex(folder / "index", dims)
        case "shared":
            return SharedIndex(folder / "index", dims)
        case "stub":
            assert stub
            return QdrantIndex(stub.url, None, "massmem-test", dims)
        case _:
            return QdrantIndex(server_url(), os.environ.get("MASSMEM_QDRANT_KEY"), f"massmem-{uuid.uuid4().hex}", dims)


@pytest.fixture(params=["embedded", "shared", "stub", "server"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def stub(kind: str) -> Iterator[QdrantStub | None]:
    if kind != "stub":
        yield None
        return
    with QdrantStub() as running:
        yield running


@pytest.fixture
def index(kind: str, tmp_path: Path, stub: QdrantStub | None) -> Iterator[Index]:
    with closing(SharedIndex(tmp_path / "index", 3)) if kind == "shared" else nullcontext():  # which serves the other
        opened = open_index(kind, 3, tmp_path, stub)
        yield opened
        opened.close()


def test_words_are_ranked_by_how_rare_they_are(index: Index) -> None:
    index.upsert([point(1, sparse={7: 1.0}), point(2, sparse={7: 1.0, 8: 1.0}), point(3, sparse={9: 1.0})])
    found = index.search_words({7: 1.0, 8: 1.0}, EVERYWHERE, 10)
    assert [number for number, _ in found] == [2, 1]
    assert found[0][1] > found[1][1] > 0
    assert index.search_words({7: 1.0, 8: 1.0}, EVERYWHERE, 1) == found[:1]
    assert index.search_words({}, EVERYWHERE, 10) == []
    assert index.search_words({99: 1.0}, EVERYWHERE, 10) == []


def test_meaning_is_ranked_by_cosine(index: Index) -> None:
    index.upsert([point(1, dense=[2.0, 0, 0]), point(2, dense=[1.0, 1.0, 0]), point(3, dense=None)])
    found = index.search_meaning([1.0, 0, 0], EVERYWHERE, 10)
    assert [number for number, _ in found] == [1, 2]
    assert [score for _, score in found] == pytest.approx([1.0, 0.7071], abs=1e-3)
    assert seen(index, EVERYWHERE, [2, 3, 99]) == {2}
    assert seen(index, EVERYWHERE, []) == set()


def test_without_an_embedder_words_are_found(kind: str, tmp_path: Path, stub: QdrantStub | None) -> None:
    index = open_index(kind, 0, tmp_path, stub)
    index.upsert([point(1, dense=None), point(2, dense=[1.0, 0, 0])])
    assert len(index.search_words({7: 1.0}, EVERYWHERE, 10)) == 2
    assert index.search_meaning([1.0, 0, 0], EVERYWHERE, 10) == []
    index.close()


def test_storing_again_stores_once(index: Index) -> None:
    for text in ("first", "second"):
        index.upsert([point(1, text=text)])
    assert index.count(Selection()) == 1
    assert index.read_payloads([1])[1]["data"] == "second"


def test_payloads_come_back_as_they_were(index: Index) -> None:
    stored = point(2**63 - 1, text="é\u2028 \U0001f600", message_ids=["a", "b"], kind="fact")
    index.upsert([stored])
    found = index.read_payloads([2**63 - 1, 5, -3, 2**64])
    assert found.keys() == {2**63 - 1}
    assert stored.payload.items() <= found[2**63 - 1].items()
    assert index.read_payloads([]) == {}


def seen(index: Index, visible: All, among: Sequence[int]) -> set[int]:
    condition = All((visible, valid_ids(among)))
    return {number for number, _ in index.search_meaning([1.0, 0, 0], condition, 100)}


def test_set_payload_changes_these_fields_of_these_points_only(index: Index) -> None:
    index.upsert([point(1, agent_id="a"), point(2, agent_id="a"), point(3, agent_id="b")])
    later = visible_to(Scope("s1", "me", 3))
    assert seen(index, later, [1, 2, 3]) == set()
    index.set_payload([1], {"won": True, "seen": reader_keys({**point(1, agent_id="a").payload, "won": True})})
    assert seen(index, later, [1, 2, 3]) == {1}
    assert index.read_payloads([1])[1]["won"] is True
    assert index.read_payloads([1])[1]["data"] == "text 1"
    assert index.read_payloads([2])[2]["won"] is False


def test_points_of_a_day_are_listed_in_the_order_of_time(index: Index) -> None:
    index.upsert([point(number, when=START + timedelta(days=number)) for number in range(5)])
    late = START.replace(hour=23, minute=59, second=59) + timedelta(days=2)
    index.upsert([point(9, when=late)])
    assert list_days(index, EVERYWHERE, 10) == [1, 2, 9]
    assert list_days(index, EVERYWHERE, 2) == [1, 2]
    assert list_days(index, visible_to(Scope("other", "me", 1)), 10) == []


def list_days(index: Index, visible: All, limit: int) -> list[int]:
    return index.list_ids(All((visible, between_days(DAY + 1, DAY + 2))), limit, newest_first=False)


def test_pages_are_newest_first_and_miss_nothing(index: Index) -> None:
    index.upsert([point(number, when=START + timedelta(seconds=number // 4)) for number in range(23)])
    pages = [index.page(Selection(session_id="s1"), 5, offset) for offset in range(0, 30, 5)]
    numbers = [number for page in pages for number, _ in page]
    assert sorted(numbers) == list(range(23))
    assert [n // 4 for n in numbers] == sorted((n // 4 for n in numbers), reverse=True)
    assert [len(page) for page in pages] == [5, 5, 5, 5, 3, 0]


SELECTIONS: list[tuple[Selection, set[int]]] = [
    (Selection(session_id="s1"), {1, 2}),
    (Selection(agent_id="b"), {2, 3}),
    (Selection(turn=2), {3}),
    (Selection(kind="fact"), {4}),
    (Selection(session_id="s1", agent_id="b"), {2}),
    (Selection(ids=("1", "4", "77")), {1, 4}),
    (Selection(session_id="s1", ids=("1", "4")), {1}),
    (Selection(ids=("nonsense", "²", "-1", "9" * 30)), set()),
    (Selection(session_id="*"), set()),
]


@pytest.mark.parametrize(("selection", "expected"), SELECTIONS, ids=lambda value: "")
def test_selections(index: Index, selection: Selection, expected: set[int]) -> None:
    index.upsert([
        point(1, agent_id="a"), point(2, agent_id="b"), point(3, run_id="s2", agent_id="b", turn=2),
        point(4, run_id="s2", kind="fact"),
    ])  # fmt: skip
    assert {number for number, _ in index.page(selection, 10)} == expected
    assert index.count(selection) == len(expected)
    assert index.delete(selection) == len(expected)
    assert index.count(selection) == 0
    assert index.read_payloads([1, 2, 3, 4]).keys() == {1, 2, 3, 4} - expected


def test_nothing_is_deleted_by_mistake(index: Index) -> None:
    index.upsert([point(1)])
    with pytest.raises(InputError, match="nothing was selected"):
        index.delete(Selection())
    assert index.count(Selection()) == 1


def test_after_deleting_it_goes_on(index: Index) -> None:
    index.upsert([point(number, sparse={number: 1.0}) for number in range(1, 30)])
    assert index.delete(Selection(ids=("3",))) == 1
    assert index.delete(Selection(ids=("4",)), erase=False) == 1
    index.upsert([point(40, sparse={3: 1.0})])
    assert [number for number, _ in index.search_words({3: 1.0, 4: 1.0, 5: 1.0}, EVERYWHERE, 10)] in ([40, 5], [5, 40])
    assert seen(index, EVERYWHERE, [40]) == {40}
    assert index.count(Selection()) == 28


def test_count_values_counts_the_points_of_each_value(index: Index) -> None:
    index.upsert([point(1), point(2), point(3, run_id="s2")])
    assert index.count_values("run_id") == {"s1": 2, "s2": 1}


def test_several_agents_at_once(index: Index) -> None:
    def work(agent: int) -> list[int]:
        seen: list[int] = []
        for number in range(20):
            index.upsert([point(agent * 100 + number, agent_id=f"a{agent}", sparse={agent: 1.0})])
            seen.append(len(index.search_words({agent: 1.0}, visible_to(Scope("s1", f"a{agent}", 1)), 100)))
        return seen

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(1, 9))) == [list(range(1, 21))] * 8
    assert index.count(Selection()) == 160


def test_after_closing_nothing_works_and_nothing_breaks(index: Index) -> None:
    index.close()
    if isinstance(index, EdgeIndex | SharedIndex):
        with pytest.raises(MemoryUnavailable, match="closed"):
            index.search_words({7: 1.0}, EVERYWHERE, 10)
    index.close()


SESSIONS, AGENTS, GROUPS = ("s1", "s2", "s3"), ("me", "a", "user"), ("", "g", "s1")

stored_points = st.lists(
    st.fixed_dictionaries({
        "run_id": st.sampled_from(SESSIONS), "agent_id": st.sampled_from(AGENTS), "turn": st.integers(1, 4),
        "won": st.booleans(), "group": st.sampled_from(GROUPS),
    }),
    min_size=1, max_size=12,
)  # fmt: skip
scopes = st.builds(
    Scope, st.sampled_from(SESSIONS), st.sampled_from(("me", "a")), st.integers(1, 5), all_sessions=st.booleans(),
    group=st.sampled_from((None, "g", "s1")),
)  # fmt: skip


@given(stored_points, scopes)
def test_one_condition_says_exactly_what_the_rule_says(
    index: Index, stored: list[dict[str, Any]], scope: Scope
) -> None:
    points = [point(number, **fields) for number, fields in enumerate(stored)]
    index.upsert(points)
    allowed = {
        p.id
        for p in points
        if may_see(scope,
            Memory(str(p.id), "episode", p.payload["run_id"], p.payload["turn"], p.payload["agent_id"], "", (), START,
                   group=p.payload["group"]),
            won=p.payload["won"],
        )
    }  # fmt: skip
    visible, ids = visible_to(scope), [p.id for p in points]
    assert {number for number, _ in index.search_words({7: 1.0}, visible, 100) if number in ids} == allowed
    assert seen(index, visible, ids) == allowed
    index.delete(Selection(ids=tuple(map(str, ids))), erase=False)
