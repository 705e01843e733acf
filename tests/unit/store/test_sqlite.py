import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from massmem.errors import InputError
from massmem.store import sqlite
from massmem.store.schema import chat_messages
from massmem.store.words import MOST_WORDS


def test_urls_and_their_files(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sqlite.path_of("sqlite:///~/.massmem/m.db") == home / ".massmem" / "m.db"
    assert sqlite.path_of("sqlite:////var/x.db") == Path("/var/x.db")
    assert sqlite.path_of("sqlite:///x y%20.db") == tmp_path / "x y%20.db"


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:x.db", "sqlite:///~nobody_/x"]
)
def test_urls_without_a_file(url: str) -> None:
    with pytest.raises(InputError, match=r"store\.url"):
        sqlite.path_of(url)


@given(query=st.text(max_size=200))
def test_a_query_becomes_quoted_words_only(query: str) -> None:
    built = sqlite.dialect(Path("m.db")).search(sa.select(chat_messages), query, None, 5)
    if built is None:
        return
    words = json.loads(built.compile().params["words"])
    for word in words:
        assert word[0] == word[-1] == '"'
        assert word[1:-1].replace("_", "a").isalnum()
    assert 0 < len(words) <= MOST_WORDS
