import shutil
import stat
import threading
from pathlib import Path

from massmem.config.home import make_private, measure_disk_usage


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_file_made_by_a_library_becomes_private(tmp_path: Path):
    folder, beside = tmp_path / "index", tmp_path / "beside"
    inner = folder / "segments"
    inner.mkdir(parents=True)
    beside.write_text("")
    for file in (folder / "config", inner / "data"):
        file.write_text("")
        file.chmod(0o644)
    (inner / "link").symlink_to(beside)
    (inner / "dead").symlink_to(tmp_path / "nowhere")
    program = inner / "program"
    program.write_text("")
    for path, given in ((folder, 0o755), (inner, 0o775), (beside, 0o644), (program, 0o500)):
        path.chmod(given)
    make_private(folder)
    assert [mode(path) for path in (folder, inner)] == [0o700, 0o700]
    assert [mode(path) for path in (folder / "config", inner / "data")] == [0o600, 0o600]
    assert mode(program) == 0o500, "what the owner may not do stays so"
    assert mode(beside) == 0o644, "a link leads elsewhere"
    make_private(tmp_path / "nowhere")


def test_disk_usage_is_measured_while_files_come_and_go(tmp_path: Path):
    (tmp_path / "stays").write_bytes(b"x" * 100_000)
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            for number in range(20):
                (tmp_path / f"folder{number}").mkdir()
                (tmp_path / f"folder{number}" / "file").touch()
            for number in range(20):
                shutil.rmtree(tmp_path / f"folder{number}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert all(measure_disk_usage(tmp_path) >= 100_000 for _ in range(300))
    finally:
        ended.set()
        writer.join()
