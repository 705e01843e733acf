import re
from pathlib import Path

import pytest

from massmem.core.errors import HomeError, InputError, MissingModelError
from massmem.providers.weights import (
    DEFAULT,
    LARGER,
    SMALL,
    find_known_weights,
    models_folder,
    record_verified,
    require_weights,
    strip_secrets,
    weights_from_url,
)

ROOT = Path(__file__).parents[3]


URL = "https://ann:secret@example.org/m.gguf?token=hunter2"
USED_FIELD = "check `model:` of the backend"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of weights."""
    monkeypatch.setenv("MASSMEM_MODELS", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("model", "name", "command"),
    [
        ("", DEFAULT.name, "massmem models fetch"),
        (URL, "https://example.org/m.gguf", "massmem models fetch https://example.org/m.gguf"),
    ],
)
def test_missing_weights_name_the_command_that_fetches_them(model: str, name: str, command: str, folder: Path) -> None:
    with pytest.raises(MissingModelError) as error:
        require_weights(model)
    assert error.value.message == f"the weights of {name} are not on this machine"
    assert error.value.hint == f"run: {command}"


def test_weights_are_used_once_they_were_checked_against_the_right_hash(folder: Path) -> None:
    path = folder / DEFAULT.file
    path.write_bytes(b"GGUF")
    for record in (lambda: None, lambda: record_verified(path, DEFAULT, "another hash")):
        record()
        with pytest.raises(MissingModelError) as error:
            require_weights("")
        assert error.value.message == f"{path} was never checked, or has changed since"
        assert error.value.hint == "run: massmem models fetch"
    assert DEFAULT.sha256 is not None
    record_verified(path, DEFAULT, DEFAULT.sha256)
    assert require_weights("") == path


def test_a_note_of_the_check_that_is_damaged_counts_as_none(folder: Path) -> None:
    path = folder / DEFAULT.file
    path.write_bytes(b"GGUF")
    path.with_name(f"{path.name}.verified").write_text("[1, 2]")
    with pytest.raises(MissingModelError, match="was never checked"):
        require_weights("")


def test_weights_at_a_url_are_used_whatever_their_hash(folder: Path) -> None:
    weights = weights_from_url(URL)
    path = folder / weights.file
    path.write_bytes(b"GGUF")
    record_verified(path, weights, "any")
    assert require_weights(URL) == path


def test_model_file_of_the_user_must_be_one(tmp_path: Path) -> None:
    none, text, model = (tmp_path / name for name in ("none.gguf", "text.gguf", "mine.gguf"))
    text.write_text("hello")
    model.write_bytes(b"GGUF...")
    messages = {
        none: f"model file {str(none)!r}: No such file or directory",
        text: f"model file {str(text)!r} is not a GGUF file",
    }
    for path, message in messages.items():
        with pytest.raises(MissingModelError) as error:
            require_weights(str(path))
        assert (error.value.message, error.value.hint) == (message, USED_FIELD)
    assert require_weights(str(model)) == model


def test_folder_that_cannot_be_found_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASSMEM_MODELS", "~nobody-of-this-name/models")
    with pytest.raises(HomeError) as error:
        models_folder()
    assert error.value.message == "your home folder cannot be found"
    assert error.value.hint == "set HOME or MASSMEM_MODELS"


def test_the_models_folder_is_configured_by_the_environment(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.delenv("MASSMEM_MODELS", raising=False)
    assert models_folder() == home / ".massmem" / "models"
    monkeypatch.setenv("MASSMEM_MODELS", "~/elsewhere")
    assert models_folder() == home / "elsewhere"


def test_known_weights_have_hash_size_and_parts() -> None:
    for weights in (DEFAULT, SMALL):
        assert weights.parts and weights.size and weights.sha256
        assert len(weights.sha256) == 64
        assert (weights.parts.count - 1) * weights.parts.size < weights.size <= weights.parts.count * weights.parts.size


def test_larger_models_are_known_by_name_in_any_case(folder: Path) -> None:
    weights = LARGER[0]
    assert find_known_weights(weights.name.upper()) == weights
    with pytest.raises(MissingModelError) as error:
        require_weights(weights.name)
    assert error.value.hint == f"run: massmem models fetch {weights.name}"
    (folder / weights.file).write_bytes(b"GGUF")
    record_verified(folder / weights.file, weights, "what the hub says")
    assert require_weights(weights.name) == folder / weights.file
    assert len({known.file for known in (DEFAULT, SMALL, *LARGER)}) == 2 + len(LARGER)


def test_the_run_script_uses_the_default_weights() -> None:
    assert f"/{DEFAULT.file}" in (ROOT / "scripts" / "run").read_text("utf-8")


def test_secrets_are_stripped_from_a_url() -> None:
    assert strip_secrets("https://user:pw@host/m.gguf?token=x") == "https://host/m.gguf"


def test_weights_from_two_urls_never_share_a_file() -> None:
    one, two = weights_from_url("https://a/m.gguf?token=x"), weights_from_url("https://b/m.gguf")
    assert one.name == "https://a/m.gguf"
    assert one.file != two.file
    assert re.fullmatch(r"[0-9a-f]{8}-m\.gguf", one.file)
    assert weights_from_url("https://a/").file.endswith("-model.gguf")
    with pytest.raises(InputError, match=r"'http://\[::1' is not a URL"):
        weights_from_url("http://[::1")
