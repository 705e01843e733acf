import asyncio
import http.client
import json
import math
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from massmem.session.registry import Registry
from massmem.store import open_store
from scripts.benches import main as bench
from scripts.benches import session, teams
from scripts.benches.played import QUESTION, idle, play, watched
from scripts.benches.process import BenchError, Command, environment, in_turn, measure
from scripts.benches.rows import as_object, as_table, at_most, exactly, missing, ratio, reported
from scripts.benches.startup import fill_registry
from scripts.benches.stub import ANSWER, characters_sent, stub

QUESTION_TO_STUB = {
    "messages": [{"role": "system", "content": "short"}, {"role": "user", "content": "four"}], "stream": True,
}  # fmt: skip


def command(folder: Path, code: str) -> Command:
    return Command((sys.executable, "-c", code), environment(folder), folder)


# The command line


def test_without_a_name_every_bench_is_listed(capsys: pytest.CaptureFixture[str]):
    assert bench.main([]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [*bench.BENCHES, "all"]


@pytest.mark.parametrize("name", bench.BENCHES)
def test_every_bench_in_the_table_has_its_module(name: str):
    assert find_spec(f"scripts.benches.{name}") is not None


def test_an_unknown_name_is_wrong_usage(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        bench.main(["startpu"])
    assert "startpu" in capsys.readouterr().err


def test_a_report_of_several_benches_has_a_table_for_each_and_says_where_it_was_measured():
    report = as_object("all", [at_most("a", 3, "ms", 2), reported("b", 1, "s")])
    for row, name in zip(report["rows"], ("startup", "turn"), strict=True):
        row["bench"] = name
    text = bench.as_text(report)
    assert text.index("startup: ") < text.index("short") < text.index("turn: ") < text.index("python ")


# Rows


def test_a_bound_is_kept_when_it_is_reached_exactly():
    assert at_most("a", 2.0, "x", 2.0).ok is True
    assert at_most("a", 2.001, "x", 2.0).ok is False
    assert exactly("a", 7, "", 7).ok is True
    assert exactly("a", 6, "", 7).ok is False
    assert reported("a", 1, "s").ok is None
    assert missing("a", "why").value is None


def test_a_table_says_plainly_what_is_short_and_what_was_not_measured():
    rows = [at_most("wall", 1.5, "x", 2, "note"), exactly("requests", 8, "", 7), missing("model", "it is not there")]
    _, wall, requests, model = as_table(rows).splitlines()
    assert wall.split() == ["wall", "1.5", "x", "<=", "2", "x", "ok", "note"]
    assert requests.split() == ["requests", "8", "=", "7", "short"]
    assert model.split() == ["model", "-", "not", "measured", "it", "is", "not", "there"]


def test_json_has_name_rows_and_machine():
    report = json.loads(json.dumps(as_object("turn", [at_most("wall", 1.5, "x", 2)])))
    assert report["bench"] == "turn"
    assert report["rows"][0] == {
        "what": "wall", "value": 1.5, "unit": "x", "bound": 2, "relation": "<=", "ok": True, "note": "",
    }  # fmt: skip
    assert report["machine"]["cores"] >= 1


def test_a_ratio_is_the_median_of_the_pairs_so_that_one_slow_pair_changes_nothing():
    times = ratio([2.0, 20.0, 200.0], [1.0, 10.0, 10.0])
    assert (times.middle, times.low, times.high) == (2.0, 2.0, 20.0)


# Whole processes


def test_a_process_is_measured(tmp_path: Path):
    sample = measure(command(tmp_path, "import time; time.sleep(0.3); print('y' * 99)"))
    assert sample.wall >= 0.3
    assert sample.cpu < sample.wall


def test_the_size_of_the_measuring_process_is_not_counted(tmp_path: Path):
    ballast = bytearray(150 << 20)
    ballast[:: 1 << 12] = b"x" * len(ballast[:: 1 << 12])
    assert measure(command(tmp_path, "pass")).peak_mb < 60
    assert measure(command(tmp_path, "b = b'x' * (80 << 20)")).peak_mb > 80


def test_a_failing_command_is_an_error_with_its_words(tmp_path: Path):
    with pytest.raises(BenchError, match=r"ended with 3: .*no luck"):
        measure(command(tmp_path, "import sys; print('no luck', file=sys.stderr); sys.exit(3)"))


def test_a_command_that_hangs_is_ended(tmp_path: Path):
    start = time.perf_counter()
    with pytest.raises(BenchError, match="longer than"):
        measure(command(tmp_path, "import time; time.sleep(60)"), limit=0.5)
    assert time.perf_counter() - start < 30


def test_commands_run_in_turn_after_a_warm_up(tmp_path: Path):
    log = tmp_path / "log"
    a, b = (command(tmp_path, f"open('{log}', 'a').write('{name}')") for name in "ab")
    samples = in_turn([a, b], runs=2)
    assert log.read_text() == "ab" + "abab"
    assert [len(each) for each in samples] == [2, 2]


def test_the_environment_has_no_keys_and_no_proxies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("OPENAI_API_KEY", "HTTPS_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "x")
    env = environment(tmp_path, MORE="y")
    assert {"OPENAI_API_KEY", "HTTPS_PROXY", "no_proxy"}.isdisjoint(env)
    assert (env["HOME"], env["MORE"]) == (str(tmp_path), "y")


# Servers


def ask(connection: http.client.HTTPConnection, body: dict[str, object]) -> str:
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    return connection.getresponse().read().decode()


def test_the_stub_answers_after_its_latency_and_counts_what_it_was_sent():
    with stub(0.1) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        start = time.perf_counter()
        answer = ask(connection, QUESTION_TO_STUB)
        assert time.perf_counter() - start >= 0.1
        vote = ask(connection, QUESTION_TO_STUB | {"tools": [{"a": 1}]})
        connection.close()
        seen, after = server.seen(), server.seen()
    assert ANSWER[:40] in answer
    assert '"tool_calls"' in vote
    assert (seen.connections, seen.requests, seen.characters) == (1, 2, 2 * len("shortfour") + len('[{"a":1}]'))
    assert (after.connections, after.requests) == (0, 0)


def test_the_stub_says_how_many_requests_followed_one_another_and_how_long_they_took():
    with stub(0.1) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        whole = json.loads(ask(connection, QUESTION_TO_STUB | {"stream": False}))
        ask(connection, QUESTION_TO_STUB)
        connection.request("POST", "/down/v1/chat/completions", "{}")
        assert connection.getresponse().status == 500
        connection.close()
        seen = server.seen()
    assert whole["choices"][0]["message"]["content"].startswith(ANSWER[:40])
    assert seen.waves == seen.requests == 2
    assert seen.seconds >= 0.2


def test_characters_are_counted_as_prompts_are_billed():
    body = QUESTION_TO_STUB | {"model": "not counted", "response_format": {"type": "text"}}
    assert characters_sent(json.dumps(body).encode()) == len("shortfour") + len('{"type":"text"}')
    assert characters_sent(b'{"messages": [{"role": "assistant", "content": null}]}') == 0


# In this process


async def test_a_loop_that_is_held_up_is_seen():
    with watched() as stalls:
        await asyncio.sleep(0.02)
        time.sleep(0.1)
        await asyncio.sleep(0.02)
    assert 0.09 <= stalls.longest < 5
    assert (await idle(0.05)).longest >= 0


@pytest.mark.parametrize("agents", [1, 3])
async def test_a_played_turn_is_the_one_that_the_bounds_are_about(tmp_path: Path, agents: int):
    assert len(QUESTION) == 32
    played = await play(teams.config(teams.scripted(agents, tmp_path, latency=0.01)), tmp_path)
    assert played.requests == (2 * agents + 1 if agents > 1 else 1)
    assert played.wall >= 0.01
    assert math.isfinite(played.cpu)


async def test_a_turn_over_http_is_the_same_turn(tmp_path: Path):
    with stub(0) as server:
        played = await play(teams.config(teams.over_http(2, tmp_path, server)), tmp_path)
        assert (await asyncio.to_thread(server.seen)).requests == played.requests == 5


async def test_a_filled_session_has_the_messages_it_claims(tmp_path: Path):
    async with session.filled(tmp_path, 100) as store:
        messages = await store.read_messages(session.ID)
        last = await store.get_last_turn(session.ID)
    assert len(messages) == 100
    assert last is not None
    assert last.status == "completed"
    again = await open_store(f"sqlite:///{tmp_path / 'massmem.db'}", tmp_path)
    await again.append(session.ID, 99, session.turn_events(99, session.TEAM))
    assert len(await again.read_messages(session.ID)) == 108
    await again.close()


def test_a_filled_registry_lists_its_sessions(tmp_path: Path):
    fill_registry(tmp_path, 5)
    entries = Registry(tmp_path / ".massmem").read_entries()
    assert len({entry.session_id for entry in entries}) == 5
