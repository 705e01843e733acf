from pathlib import Path

import pytest

from massmem.core.errors import InputError, MissingModelError
from massmem.providers.weights import (
    DEFAULT,
    KNOWN,
    models_folder,
    require_weights,
    strip_secrets,
    weights_from_url,
)

ROOT = Path(__file__).parents[3]


def test_missing_weights_name_the_command_that_fetches_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MASSMEM_MODELS", str(tmp_path))
    with pytest.raises(MissingModelError) as e:
        require_weights("")
    assert e.value.hint == "run: massmem models fetch"
    with pytest.raises(MissingModelError) as e:
        require_weights("https://example.org/m.gguf?token=hunter2")
    assert e.value.hint == "run: massmem models fetch https://example.org/m.gguf"
    (tmp_path / DEFAULT.file).write_bytes(b"GGUF")
    with pytest.raises(MissingModelError, match="not checked"):
        require_weights("")
    with pytest.raises(MissingModelError, match="No such file"):
        require_weights(str(tmp_path / "nothing.gguf"))
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(MissingModelError, match="not a GGUF"):
        require_weights(str(tmp_path / "text.gguf"))
    (tmp_path / "mine.gguf").write_bytes(b"GGUF...")
    assert require_weights(str(tmp_path / "mine.gguf")) == tmp_path / "mine.gguf"


def test_the_models_folder_is_configured_by_the_environment(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.delenv("MASSMEM_MODELS", raising=False)
    assert models_folder() == home / ".massmem" / "models"
    monkeypatch.setenv("MASSMEM_MODELS", "~/elsewhere")
    assert models_folder() == home / "elsewhere"


def test_known_weights_have_hash_size_and_parts() -> None:
    for weights in KNOWN:
        assert weights.parts and weights.size and weights.sha256
        assert len(weights.sha256) == 64
        assert (weights.parts.count - 1) * weights.parts.size < weights.size <= weights.parts.count * weights.parts.size


def test_the_run_script_uses_the_default_weights() -> None:
    assert f"/{DEFAULT.file}" in (ROOT / "scripts" / "run").read_text("utf-8")


def test_secrets_are_stripped_from_a_url() -> None:
    assert strip_secrets("https://user:pw@host/m.gguf?token=x") == "https://host/m.gguf"


def test_weights_from_two_urls_never_share_a_file() -> None:
    one, two = weights_from_url("https://a/m.gguf"), weights_from_url("https://b/m.gguf")
    assert one.file != two.file
    assert one.file.endswith("-m.gguf")
    with pytest.raises(InputError):
        weights_from_url("http://[::1")
