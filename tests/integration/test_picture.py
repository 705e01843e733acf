"""The picture in README.md can be drawn again."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_picture_is_drawn_from_the_real_program(tmp_path: Path):
    target = tmp_path / "live.svg"
    subprocess.run([sys.executable, str(ROOT / "scripts" / "picture.py"), str(target)], check=True, timeout=60)
    svg = target.read_text()
    for seen in ("engineer", "critic", "voted", "final"):
        assert seen in svg
    assert "http" not in svg.replace("http://www.w3.org/", "").replace("https://www.textualize.io", "")
