"""Conversations of ChatGPT, and of DeepSeek, which took over its tree."""

from typing import Any

import pytest

from massmem.session.imports.chatgpt import read_chatgpt, read_deepseek, replace_citations
from massmem.session.imports.conversations import ImportedConversation


def say(role: str, content: Any, kind: str = "text", to: str = "all", **metadata: Any) -> dict[str, Any]:
    """Return a message. content: its text, its parts, or what stands in `text`."""
    field = "parts" if kind in ("text", "multimodal_text") else "text"
    parts = content if isinstance(content, list) or field == "text" else [content]
    written = {"content_type": kind, field: parts}
    return {"author": {"role": role}, "content": written, "recipient": to, "metadata": metadata}


def read(*messages: dict[str, Any]) -> ImportedConversation:
    """Read a conversation with these messages, one below the other, between a question and an answer."""
    chain = [say("user", "Where?"), *messages]
    mapping = {str(n): {"parent": str(n - 1) if n else None, "message": m} for n, m in enumerate(chain)}
    return read_chatgpt({"id": "c", "mapping": mapping, "current_node": str(len(chain) - 1)}, "")


def list_texts(conversation: ImportedConversation) -> list[str]:
    return [text for turn in conversation.turns for text in (turn.question, turn.answer)]


@pytest.mark.parametrize(
    "unseen",
    [
        say("system", "Be brief."),
        say("assistant", "print(1)", "code", "python"),
        say("tool", "1", "execution_output"),
        say("tool", "Found three pages."),
        say("assistant", "Let me see.", "thoughts"),
        say("assistant", "search(1)", to="browser"),
        say("assistant", "Draft", is_visually_hidden_from_conversation=True),
        say("user", "About me", "user_editable_context"),
        {**say("assistant", "Think first"), "channel": "analysis"},
    ],
)
def test_unseen_messages_are_left_out_without_a_word(unseen: dict[str, Any]):
    conversation = read(unseen, say("assistant", "Here."))
    assert (list_texts(conversation), conversation.left_out) == (["Where?", "Here."], {})


PICTURE = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_1"}
TRANSCRIPT = {"content_type": "audio_transcription", "text": "Spoken."}
VOICE = {"content_type": "audio_asset_pointer"}


@pytest.mark.parametrize(
    ("message", "seen"),
    [
        (say("user", [PICTURE, ""], "multimodal_text"), "[picture]"),
        (say("user", [PICTURE], "multimodal_text", attachments=[{"name": "a.jpg", "mime_type": "image/jpeg"}]),
         "[attached: a.jpg]"),
        (say("user", "Sum?", attachments=[{"name": "a.xlsx"}, {"name": "b.csv"}]),
         "Sum?\n\n[attached: a.xlsx]\n[attached: b.csv]"),
        (say("user", [TRANSCRIPT, VOICE], "multimodal_text"), "Spoken."),
        (say("user", [VOICE], "multimodal_text"), "[voice message]"),
        (say("user", "x", "hologram"), "[not read: hologram]"),
        (say("user", [{"content_type": "scent"}], "multimodal_text"), "[not read: scent]"),
    ],
)  # fmt: skip
def test_question_that_is_no_text_has_an_answer_of_its_own(message: dict[str, Any], seen: str):
    conversation = read(say("assistant", "Go on."), message, say("assistant", "I see."))
    assert list_texts(conversation) == ["Where?", "Go on.", seen, "I see."]
    assert len(conversation.left_out) == seen.startswith("[not read")


def test_picture_that_a_tool_made_is_part_of_the_answer():
    drawing = say("tool", [PICTURE], "multimodal_text")
    assert list_texts(read(drawing, say("assistant", "Here."))) == ["Where?", "[picture]\n\nHere."]


def test_documents_beside_the_chat_are_there_as_each_answer_left_them():
    update = '{"updates": [{"pattern": "%s", "replacement": "%s"}]}'
    conversation = read(
        say("assistant", '{"name": "Poem", "content": "Green hills"}', "code", "canmore.create_textdoc"),
        say("assistant", "It is there."),
        say("user", "Blue ones."),
        say(
            "assistant", '{"updates": [{"pattern": "Green", "replacement": "Blue"}]}', "code", "canmore.update_textdoc"
        ),
        say("user", "Anew."),
        say("assistant", update % (".*", "Sea"), "code", "canmore.update_textdoc"),
        say("assistant", update % ("S.a", "Sky"), "code", "canmore.update_textdoc"),
        say("assistant", '{"name": "cut o', "code", "canmore.create_textdoc"),
    )
    assert list_texts(conversation)[1::2] == [
        "--- Poem ---\nGreen hills\n\nIt is there.",
        "--- Poem ---\nBlue hills",
        "--- Poem ---\nSea",
    ]
    assert sum(conversation.left_out.values()) == 2


TREE: dict[str, Any] = {
    "old": {"parent": "q", "message": {**say("assistant", "Old."), "create_time": 2}},
    "new": {"parent": "q", "message": {**say("assistant", "New."), "create_time": 3}},
    "q": {"parent": "root", "message": {**say("user", "Where?"), "create_time": 1}},
    "root": {"parent": None, "message": None},
}


@pytest.mark.parametrize("end", [{}, {"current_node": None}, {"current_node": "gone"}, {"current_node": ["x"]}])
def test_newest_leaf_is_the_open_end_where_none_is_named(end: dict[str, Any]):
    assert list_texts(read_chatgpt({"mapping": TREE, **end}, "")) == ["Where?", "New."]
    assert list_texts(read_chatgpt({"mapping": TREE, "current_node": "old"}, "")) == ["Where?", "Old."]
    assert list_texts(read_chatgpt({"mapping": TREE, "current_node": "root"}, "")) == ["Where?", "New."]


def test_links_to_children_stand_in_for_missing_parents():
    nodes = {"q": {"message": say("user", "Where?"), "children": ["a"]}, "a": {"message": say("assistant", "Here.")}}
    assert list_texts(read_chatgpt({"mapping": nodes, "current_node": "a"}, "")) == ["Where?", "Here."]


@pytest.mark.parametrize(
    ("text", "references", "seen"),
    [
        ("At nine. \ue200cite\ue202t0\ue201 At ten.", [], "At nine. At ten."),
        ("Nine \ue200cite\ue202t0\ue201.", [{"matched_text": "\ue200cite\ue202t0\ue201", "alt": "([a](b))"}],
         "Nine ([a](b))."),
        ("Nine \ue200cite\ue202t0\ue201.",
         [{"matched_text": "\ue200cite\ue202t0\ue201", "items": [{"title": "Tides", "url": "https://t"}]}],
         "Nine ([Tides](https://t))."),
        ('In \ue200entity\ue202["city","Ulm",0]\ue201, \ue203yes\ue204.', [], "In Ulm, yes."),
        ("See \ue200url\ue202Ulm\ue202https://u\ue201.", [], "See [Ulm](https://u)."),
        ("Old style\u30104\u2020source\u3011.", [{"matched_text": " ", "alt": None}], "Old style."),
        ("Cut off \ue200cite\ue202t0", [], "Cut off"),
    ],
)  # fmt: skip
def test_marks_of_citations_become_what_they_show(text: str, references: list[Any], seen: str):
    assert " ".join(replace_citations(text, references).split()) == seen


def test_deepseek_has_fragments():
    question = {"fragments": [{"type": "REQUEST", "content": "Where?"}], "files": [{"file_name": "a.pdf"}]}
    answer = {"fragments": [{"type": "THINK", "content": "Hm"}, {"type": "RESPONSE", "content": "Here."}]}
    mapping = {"1": {"parent": None, "message": question}, "2": {"parent": "1", "message": answer}}
    conversation = read_deepseek({"id": "d", "title": "Talk", "mapping": mapping}, "")
    assert list_texts(conversation) == ["Where?\n\n[attached: a.pdf]", "Here."]
    assert conversation.turns[0].agent == "deepseek"
