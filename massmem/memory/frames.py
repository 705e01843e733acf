"""Frames: what the user's words stand in when they do not speak for the user. Pure.

A joke, a story, a quotation, a text to translate, a role: what is said there is remembered and found, with the name of
its frame in its label, but it claims nothing. The signs are cheap: quotation marks, and the wordings of a few languages
in frame_wordings.txt. What no sign tells is taken as it stands.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from massmem.memory.words import is_question, read_wordings, split_sentences

ROLE = "in a role"
QUOTED, SUPPOSED, JOKE, FICTION = "quoted", "hypothetical", "as a joke", "fiction"
TASK, LETTER, CODE = "in a text to work on", "in a letter", "in code"
FRAMES = frozenset({ROLE, QUOTED, SUPPOSED, JOKE, FICTION, TASK, LETTER, CODE})
"""The notes of memories that claim nothing."""

_LONGEST = 20_000
"""Characters: a longer message is material, and no frames are looked for in it."""
_LONGEST_WITH_WISHES, _LONGEST_WISH = 1_000, 200
"""Characters of a message, and of a sentence: longer ones are material as often as the user's own words."""
_MARKS = "“”„«»\"' "
_LEAST_QUOTED = 3
"""Words: fewer are a name or a title."""
_FIRST_PERSON = re.compile(
    r"\b(?:i|my|me|we|our|ich|mein\w*|wir|unser\w*|je|mon|ma|mes|nous|yo|mi|mis|io|mio|mia)\b|\bj['’]", re.IGNORECASE
)
_SPEAKS_FOR_USER = re.compile(
    r"(?:\b(?:i|we|i've|we've|ich|wir|je|nous|yo|let me)|\bj['’]ai)(?: \w+)?\s*$", re.IGNORECASE
)
_BEHIND_REQUEST = re.compile(r"[^.!?:\n]{0,80}(?::|[.!?]?[ \t]*\n|\?|(?=[\"“„«]))\s*(?P<text>\S.*)", re.DOTALL)
_OF_TEXT = re.compile(r"\b(?:this|that|it|above|das|diesen?|dies|ça|ceci|esto|questo)\b", re.IGNORECASE)
_QUOTATION = re.compile(r"“[^”]*”?|„[^“”\"]*[“”\"]?|«[^»]*»?|\"[^\"]*\"?|(?<!\w)'[^'\n]{12,}?'(?!\w)")
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_TRANSCRIPT = re.compile(r"(?:^|\n)[ \t]*[A-Z]\w{1,20}:[^\n]+\n+[ \t]*[A-Z]\w{1,20}:")


def find_frame(message: str, text: str) -> str:
    """Return the frame that a passage, or a sentence, of one of the user's messages stands in; "" when in none."""
    if len(message) > _LONGEST:
        return ""
    frames = _frame_sentences(message)
    inside = {sentence: frame for sentence, frame in frames.items() if sentence in text or text in sentence}
    statements = {sentence: frame for sentence, frame in inside.items() if not is_question(sentence)} or inside
    size = sum(len(sentence) for sentence, frame in statements.items() if frame)
    return next(filter(None, statements.values()), "") if 2 * size >= sum(map(len, statements)) else ""


def find_wishes(message: str) -> list[str]:
    """Return the sentences in which the user asks for something of every answer; beside a text that is wanted, none."""
    plain = (sentence for sentence in _list_plain_sentences(message) if not is_question(sentence))
    return [sentence for sentence in plain if _says("wish", sentence) and not _says("no wish", sentence)]


def find_statement_to_forget(message: str) -> str:
    """Return what the user asks to forget, in the user's words; "" when the message asks for no such thing."""
    for sentence in _list_plain_sentences(message):
        if request := _read_wordings()["forget"].search(sentence.replace("’", "'")):
            return sentence[request.end() :].strip()
    return ""


def _list_plain_sentences(message: str) -> list[str]:
    """Return the short sentences that the user says in earnest; none of a message that is material or has some."""
    is_material = len(message) > _LONGEST_WITH_WISHES or _says("wants a text", message)
    frames = _frame_sentences("" if is_material else message)
    return [text for text, frame in frames.items() if not (frame or len(text) > _LONGEST_WISH)]


def ends_role(message: str) -> bool:
    """Return whether the message leaves the role that the conversation was in."""
    return _says("role ends", message)


@lru_cache(256)
def _frame_sentences(message: str) -> Mapping[str, str]:
    """Return the frame of each sentence; "" for what the user says in earnest."""
    sentences = split_sentences(message)
    if _says("role", message):
        return dict.fromkeys(sentences, ROLE)
    code = _join_lines(" ".join(_FENCE.findall(message)))
    quotations = [_join_lines(match).strip(_MARKS) for match in _QUOTATION.findall(_FENCE.sub(" ", message))]
    is_transcript = _TRANSCRIPT.search(message) is not None
    is_about_text = len(sentences) > 1 and _says("task", sentences[-1]) and _OF_TEXT.search(sentences[-1]) is not None
    frames = dict.fromkeys(sentences, TASK if is_about_text else "")
    rest = ""
    for i, sentence in enumerate(sentences):
        rest = _find_rest(message, sentence, rest)
        if _join_lines(sentence) in code or "```" in sentence:
            frames[sentence] = CODE
        elif sentence.startswith(">") or is_transcript or _quotes(sentence, quotations):
            frames[sentence] = QUOTED
        elif _says("joke", sentence):
            frames |= dict.fromkeys(sentences[max(0, i - 1) : i + 1], JOKE)
        else:
            frames[sentence] = rest or (SUPPOSED if _says("if", sentence) else frames[sentence])
    return frames


def _find_rest(message: str, sentence: str, rest: str) -> str:
    """Return the frame of what follows in the message, from this sentence on. rest: that of the sentence before."""
    if rest == LETTER and _says("letter ends", sentence):
        return ""
    if rest:
        return rest
    if _says("letter begins", sentence) and _says("letter ends", message):
        return LETTER
    if (request := _read_wordings()["task"].search(sentence)) and _begins(sentence, request.start()):
        behind = _BEHIND_REQUEST.match(message, message.index(sentence) + request.end())
        if behind and len(behind["text"].split()) >= _LEAST_QUOTED:
            return TASK
    return FICTION if _says("fiction", sentence) else SUPPOSED if _says("supposed", sentence) else ""


def _begins(sentence: str, position: int) -> bool:
    """Return whether a request begins the sentence: "I translate novels: ..." asks for nothing."""
    before = re.split(r"[,:;]", sentence[:position])[-1]
    return len(before.split()) <= 4 and not _FIRST_PERSON.search(before)


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _quotes(sentence: str, quotations: list[str]) -> bool:
    """Return whether somebody else speaks in the sentence."""
    for match in _read_wordings()["says"].finditer(sentence):
        behind = re.match(r"[^.!?:\"“„«]{0,40}:\s*(.+)", sentence[match.end() :], re.DOTALL)
        if behind and _FIRST_PERSON.search(behind[1]) and not _SPEAKS_FOR_USER.search(sentence[: match.start()]):
            return True
    plain = _join_lines(sentence)
    own = plain.strip(_MARKS)
    spoken = [text for text in quotations if len(text.split()) >= _LEAST_QUOTED and not _is_title(text)]
    return any(own in text or (text in plain and _FIRST_PERSON.search(text)) for text in spoken)


def _is_title(text: str) -> bool:
    """Return whether most words have a capital: a name, whatever it says."""
    words = [word for word in text.split() if word[0].isalpha()]
    return 2 * sum(word[0].isupper() for word in words) > len(words)


def _says(name: str, text: str) -> bool:
    return _read_wordings()[name].search(text.replace("’", "'")) is not None


def _read_wordings() -> Mapping[str, re.Pattern[str]]:
    return read_wordings(Path(__file__).with_name("frame_wordings.txt"))
