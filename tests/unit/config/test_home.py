import stat
from pathlib import Path

from massmem.config.home import make_private


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
