"""The programs whose exports are read: each form, and what of it a person saw."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from massmem.session.imports.conversations import ImportedConversation
from massmem.session.imports.files import Export, parse_export
from massmem.session.imports.programs import read_chatgpt, read_deepseek, replace_citations

ZERO = "00000000-0000-0000-0000-000000000000"


def parse(data: Any, lines: bool = False) -> Export:
    text = "\n".join(map(json.dumps, data)) if lines else json.dumps(data)
    return parse_export(text.encode(), "talk.json", "talk.json")


def list_texts(conversations: Iterable[ImportedConversation]) -> list[str]:
    return [text for one in conversations for turn in one.turns for text in (turn.question, turn.answer)]


def write_claude(*messages: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [{"uuid": "c", "name": "Talk", "chat_messages": list(messages), **fields}]


OPEN_WEBUI = {
    "id": "w",
    "chat": {
        "title": "Talk",
        "history": {
            "currentId": "3",
            "messages": {
                "1": {"parentId": None, "role": "user", "content": "Where?", "files": [
                    {"type": "file", "name": "a.txt", "file": {"data": {"content": "Inside."}}},
                    {"type": "file", "name": "b.zip"}, {"type": "image", "url": "data:"}]},
                "2": {"parentId": "1", "role": "assistant", "content": "Old."},
                "3": {"parentId": "1", "role": "assistant", "model": "llama3",
                      "content": '<details type="reasoning" done="true"><summary>Thought</summary>Hm</details>\nHere.'},
            },
        },
    },
}  # fmt: skip
LIBRECHAT_MESSAGES = [
    {"messageId": "1", "parentMessageId": ZERO, "isCreatedByUser": True, "sender": "User", "text": "Where?"},
    {"messageId": "2", "parentMessageId": "1", "isCreatedByUser": False, "text": "Old.", "createdAt": "2026-01-01"},
    {"messageId": "3", "parentMessageId": "1", "isCreatedByUser": False, "sender": "GPT", "createdAt": "2026-01-02",
     "content": [{"type": "think", "think": "Hm"}, {"type": "text", "text": {"value": "Here."}}]},
]  # fmt: skip
LIBRECHAT = {"conversationId": "l", "messages": LIBRECHAT_MESSAGES}
LIBRECHAT_NESTED = {
    "conversationId": "l", "messages": [{**LIBRECHAT_MESSAGES[0], "children": LIBRECHAT_MESSAGES[1:]}]
}  # fmt: skip
SHAREGPT = [{"conversations": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "Where?"},
                               {"from": "gpt", "value": "Here."}]}]  # fmt: skip
GROK = {"conversations": [{"conversation": {"id": "g"}, "responses": [
    {"response": {"_id": "1", "sender": "human", "message": "Where?"}},
    {"response": {"_id": "2", "sender": "ASSISTANT", "message": "Here.",
                  "create_time": {"$date": {"$numberLong": "1700000000000"}}}}]}]}  # fmt: skip
CLAUDE_CODE = [
    {"type": "summary", "summary": "Pump", "leafUuid": "2"},
    {"type": "file-history-snapshot", "snapshot": {}},
    {"type": "user", "uuid": "0", "parentUuid": None, "sessionId": "s", "isMeta": True, "message": {"content": "Hm"}},
    {"type": "user", "uuid": "1", "parentUuid": "0", "sessionId": "s", "message": {"content": "Where?"}},
    {"type": "assistant", "uuid": "2", "parentUuid": "1", "sessionId": "s",
     "message": {"content": [{"type": "thinking", "thinking": "Hm"}, {"type": "tool_use", "name": "Bash"}]}},
    {"type": "user", "uuid": "3", "parentUuid": "2", "sessionId": "s",
     "message": {"content": [{"type": "tool_result", "content": "out"}]}},
    {"type": "user", "uuid": "x", "parentUuid": "1", "sessionId": "s", "isSidechain": True,
     "message": {"content": "Look there"}},
    {"type": "user", "uuid": "4", "parentUuid": "3", "sessionId": "s",
     "message": {"content": "<command-name>/cost</command-name>"}},
    {"type": "assistant", "uuid": "5", "parentUuid": "4", "sessionId": "s",
     "message": {"content": [{"type": "text", "text": "Here."}]}},
]  # fmt: skip
CODEX = [
    {"type": "session_meta", "payload": {"id": "x"}},
    {"type": "response_item", "payload": {"type": "message", "role": "user", "content": []}},
    {"type": "event_msg", "payload": {"type": "user_message", "message": "Where?"}},
    {"type": "event_msg", "payload": {"type": "agent_reasoning", "text": "Hm"}},
    {"type": "event_msg", "payload": {"type": "agent_message", "message": "Here."}},
]
ACTIVITY = [{"header": "Gemini Apps", "title": "Prompted Where?", "time": "2026-03-02T09:15:00Z",
             "safeHtmlItem": [{"html": "<p>He<b>re</b>.</p>"}]}]  # fmt: skip
GEMINI_CLI = {"sessionId": "g", "messages": [
    {"type": "user", "content": [{"text": "Where?"}]}, {"type": "info", "content": "Hm"},
    {"type": "gemini", "content": "Here.", "thoughts": [{"subject": "Hm"}]}]}  # fmt: skip
GEMINI_API = {"contents": [
    {"role": "user", "parts": [{"text": "Where?"}]},
    {"role": "model", "parts": [{"text": "Hm", "thought": True}, {"text": "Here."}]}]}  # fmt: skip
AI_STUDIO = {"chunkedPrompt": {"chunks": [{"role": "user", "text": "Where?"}, {"role": "model", "text": "Hm",
             "isThought": True}, {"role": "model", "text": "Here."}]}}  # fmt: skip
LM_STUDIO = {"name": "Talk", "createdAt": 1700000000000, "messages": [
    {"versions": [{"role": "user", "content": [{"type": "text", "text": "Where?"}]}], "currentlySelected": 0},
    {"versions": [{"role": "assistant", "steps": [
        {"style": {"type": "thinking"}, "content": [{"type": "text", "text": "Hm"}]},
        {"content": [{"type": "text", "text": "Here."}]}]}], "currentlySelected": 0}]}  # fmt: skip
JAN = [{"thread_id": "t", "role": "user", "content": [{"type": "text", "text": {"value": "Where?"}}]},
       {"thread_id": "t", "role": "assistant", "content": [{"type": "text", "text": {"value": "Here."}}]}]  # fmt: skip
TYPINGMIND = {"data": {"chats": [{"chatID": "t", "messages": [{"role": "user", "content": "Where?"},
              {"role": "assistant", "content": "<think>Hm</think>Here."}]}]}}  # fmt: skip
EXPORTS: dict[str, tuple[Any, str, str]] = {
    "Open WebUI": ([OPEN_WEBUI], "Where?\n\n--- a.txt ---\nInside.\n[picture]\n\n[attached: b.zip]", "llama3"),
    "LibreChat": (LIBRECHAT, "Where?", "GPT"),
    "LibreChat, nested": (LIBRECHAT_NESTED, "Where?", "GPT"),
    "ShareGPT": (SHAREGPT, "Where?", "assistant"),
    "Grok": (GROK, "Where?", "grok"),
    "Gemini, activity": (ACTIVITY, "Where?", "gemini"),
    "Gemini, sessions": (GEMINI_CLI, "Where?", "gemini"),
    "Gemini, requests": (GEMINI_API, "Where?", "assistant"),
    "AI Studio": (AI_STUDIO, "Where?", "gemini"),
    "LM Studio": (LM_STUDIO, "Where?", "assistant"),
    "Typingmind": (TYPINGMIND, "Where?", "assistant"),
}
LINES: dict[str, tuple[Any, str]] = {
    "Claude Code": (CLAUDE_CODE, "claude"),
    "Codex": (CODEX, "codex"),
    "Jan": (JAN, "assistant"),
}


@pytest.mark.parametrize(("data", "question", "agent"), EXPORTS.values(), ids=EXPORTS)
def test_program_is_read_as_a_person_saw_it(data: Any, question: str, agent: str):
    export = parse(data)
    assert (list_texts(export.conversations), export.left_out) == ([question, "Here."], {})
    assert export.conversations[0].turns[0].agent == agent


@pytest.mark.parametrize(("data", "agent"), LINES.values(), ids=LINES)
def test_program_that_writes_lines_is_read_as_a_person_saw_it(data: Any, agent: str):
    export = parse(data, lines=True)
    assert (list_texts(export.conversations), export.left_out) == (["Where?", "Here."], {})
    assert export.conversations[0].turns[0].agent == agent


def test_title_of_claude_code_is_the_one_of_its_session():
    assert parse(CLAUDE_CODE, lines=True).conversations[0].title == "Pump"
    assert (
        parse([{**CLAUDE_CODE[0], "leafUuid": "other"}, *CLAUDE_CODE[1:]], lines=True).conversations[0].title
        == "Where?"
    )


def test_activities_are_conversations_of_their_own():
    activities = [{**ACTIVITY[0], "time": f"2026-03-0{day}T09:15:00Z"} for day in (3, 2)]
    others = [{"header": "Gemini Apps", "title": "Used Gemini Apps"}, {"header": "Gemini Apps", "title": "Prompted Hm"}]
    export = parse([*activities, *others])
    assert len(export.conversations) == 2
    assert export.left_out == {"activity without a prompt": 1, "question without an answer": 1}


def test_html_of_an_activity_keeps_its_lines():
    html = "<p>Two &lt;b&gt;:</p><ul><li>one</li><li>two</li></ul><pre><code>a  b\nc</code></pre>"
    answer = list_texts(parse([{**ACTIVITY[0], "safeHtmlItem": [{"html": html}]}]).conversations)[1]
    assert [line for line in answer.split("\n") if line] == ["Two <b>:", "- one", "- two", "a  b", "c"]


# Claude

PLACEHOLDER = "Let me look.\n```\nThis block is not supported on your current device yet.\n```\nIt is deep."
QUESTION = {"uuid": "1", "sender": "human", "text": "Where?"}


@pytest.mark.parametrize(
    ("message", "seen"),
    [
        ({"text": PLACEHOLDER, "content": []}, "Let me look.\nIt is deep."),
        ({"text": PLACEHOLDER, "content": [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "Deep."},
          {"type": "tool_result", "content": [{"type": "text", "text": "page"}]}]}, "Deep."),
        ({"text": "<antThinking>Hm</antThinking>Here: <antArtifact identifier='a'>One</antArtifact>"}, "Here: One"),
        ({"content": [{"type": "voice_note", "text": "Spoken."}]}, "Spoken."),
        ({"content": [{"type": "hologram"}]}, "[not read: hologram]"),
        ({"content": [{"type": "hologram"}, {"type": "text", "text": "Here."}]}, "Here."),
    ],
)  # fmt: skip
def test_answers_of_claude_are_what_was_shown(message: dict[str, Any], seen: str):
    export = parse(write_claude(QUESTION, {"uuid": "2", "sender": "assistant", **message}))
    assert list_texts(export.conversations) == ["Where?", seen]
    assert len(export.left_out) == ("hologram" in str(message))


def test_files_of_a_question_to_claude():
    texts = {"a.csv": "x,1\n", "": "pasted", "b.pdf": ""}
    attachments = [{"file_name": name, "extracted_content": text} for name, text in texts.items()]
    files = [{"file_name": "a.csv"}, {"file_name": "c.png"}]
    question = {"sender": "human", "text": "", "attachments": attachments, "files": files}
    (seen, _) = list_texts(parse(write_claude(question, {"sender": "assistant", "text": "Here."})).conversations)
    assert seen == "--- a.csv ---\nx,1\n\n--- pasted text ---\npasted\n\n[attached: b.pdf]\n[attached: c.png]"


def test_artifacts_are_there_as_each_answer_left_them():
    def change(uuid: str, **fields: str) -> dict[str, Any]:
        tool = {"type": "tool_use", "name": "artifacts", "input": {"id": "a", "title": "Page", **fields}}
        return {"uuid": uuid, "sender": "assistant", "content": [{"type": "text", "text": "Here."}, tool]}

    export = parse(write_claude(
        QUESTION, change("2", command="create", content="<b>One</b>"),
        {**QUESTION, "uuid": "3"}, change("4", command="update", old_str="One", new_str="Two"),
        {**QUESTION, "uuid": "5"}, change("6", command="update", old_str="gone", new_str="Three"),
    ))  # fmt: skip
    pages = ["Here.\n--- Page ---\n<b>One</b>", "Here.\n--- Page ---\n<b>Two</b>", "Here."]
    assert list_texts(export.conversations)[1::2] == pages
    assert export.left_out == {"part of unknown kind 'artifacts'": 1}


def test_open_branch_of_claude():
    messages = [
        {"uuid": "1", "sender": "human", "text": "Where?", "parent_message_uuid": "root"},
        {"uuid": "2", "sender": "assistant", "text": "Old.", "parent_message_uuid": "1", "created_at": "2026-01-01"},
        {"uuid": "4", "sender": "human", "text": "When?", "parent_message_uuid": "root"},
        {"uuid": "5", "sender": "assistant", "text": "Now.", "parent_message_uuid": "4", "created_at": "2026-01-03"},
        {"uuid": "3", "sender": "assistant", "text": "Here.", "parent_message_uuid": "1", "created_at": "2026-01-02"},
    ]
    assert list_texts(parse(write_claude(*messages)).conversations) == ["When?", "Now."]
    assert list_texts(parse(write_claude(*messages, current_leaf_message_uuid="2")).conversations) == ["Where?", "Old."]
    without_parents = [{**message, "parent_message_uuid": None} for message in messages[:2]]
    assert list_texts(parse(write_claude(*without_parents)).conversations) == ["Where?", "Old."]


# massmem and lists of messages


def test_own_export_leaves_out_what_was_undone():
    turns = [
        {"question": "Where?", "answer": "Here.", "winner": "ann", "status": "completed"},
        {"question": "Wrong", "answer": "No.", "winner": "ann", "status": "undone"},
        {"question": "Cut off", "answer": None, "status": "interrupted"},
    ]
    export = parse({"session": {"session_id": "s"}, "turns": turns})
    assert (list_texts(export.conversations), export.left_out) == (
        ["Where?", "Here."],
        {"question without an answer": 1},
    )


@pytest.mark.parametrize(
    ("messages", "texts", "left_out"),
    [
        ([{"role": "assistant", "content": "Welcome!"}], [], {"answer without a question": 1}),
        ([{"role": "narrator", "content": "It rained."}], [], {"message of unknown role 'narrator'": 1}),
        ([{"content": "It rained."}], [], {"message without an author": 1}),
        ([{"role": "developer", "content": "Be brief."}], [], {}),
        ([{"role": "user", "content": [{"type": "tool_result", "content": "page"}]}], [], {}),
        ([{"role": "user", "content": [{"type": "image_url"}]}, {"role": "assistant", "content": "A cat."}],
         ["[picture]", "A cat."], {}),
        ([{"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf"}}]},
          {"role": "assistant", "content": "Read."}], ["[attached: a.pdf]", "Read."], {}),
        ([{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": ""}}]},
          {"role": "assistant", "content": [{"type": "audio", "audio": {"transcript": "Heard."}}]}],
         ["[voice message]", "Heard."], {}),
    ],
)  # fmt: skip
def test_parts_of_messages(messages: list[Any], texts: list[str], left_out: dict[str, int]):
    end = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Here."}]
    export = parse([*messages, *end])
    assert (list_texts(export.conversations), export.left_out) == ([*texts, "Where?", "Here."], left_out)


# ChatGPT, and DeepSeek, which took over its tree


def say(role: str, content: Any, kind: str = "text", to: str = "all", **metadata: Any) -> dict[str, Any]:
    """Return a message. content: its text, its parts, or what stands in `text`."""
    field = "parts" if kind in ("text", "multimodal_text") else "text"
    parts = content if isinstance(content, list) or field == "text" else [content]
    written = {"content_type": kind, field: parts}
    return {"author": {"role": role}, "content": written, "recipient": to, "metadata": metadata}


def read_chain(*messages: dict[str, Any]) -> ImportedConversation:
    """Read a conversation with these messages, one below the other, between a question and an answer."""
    chain = [say("user", "Where?"), *messages]
    mapping = {str(n): {"parent": str(n - 1) if n else None, "message": m} for n, m in enumerate(chain)}
    return read_chatgpt({"id": "c", "mapping": mapping, "current_node": str(len(chain) - 1)}, "")


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
    conversation = read_chain(unseen, say("assistant", "Here."))
    assert (list_texts([conversation]), conversation.left_out) == (["Where?", "Here."], {})


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
    conversation = read_chain(say("assistant", "Go on."), message, say("assistant", "I see."))
    assert list_texts([conversation]) == ["Where?", "Go on.", seen, "I see."]
    assert len(conversation.left_out) == seen.startswith("[not read")


def test_picture_that_a_tool_made_is_part_of_the_answer():
    drawing = say("tool", [PICTURE], "multimodal_text")
    assert list_texts([read_chain(drawing, say("assistant", "Here."))]) == ["Where?", "[picture]\n\nHere."]


def test_documents_beside_the_chat_are_there_as_each_answer_left_them():
    update = '{"updates": [{"pattern": "%s", "replacement": "%s"}]}'
    conversation = read_chain(
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
    assert list_texts([conversation])[1::2] == [
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
    assert list_texts([read_chatgpt({"mapping": TREE, **end}, "")]) == ["Where?", "New."]
    assert list_texts([read_chatgpt({"mapping": TREE, "current_node": "old"}, "")]) == ["Where?", "Old."]
    assert list_texts([read_chatgpt({"mapping": TREE, "current_node": "root"}, "")]) == ["Where?", "New."]


def test_links_to_children_stand_in_for_missing_parents():
    nodes = {"q": {"message": say("user", "Where?"), "children": ["a"]}, "a": {"message": say("assistant", "Here.")}}
    assert list_texts([read_chatgpt({"mapping": nodes, "current_node": "a"}, "")]) == ["Where?", "Here."]


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
    assert list_texts([conversation]) == ["Where?\n\n[attached: a.pdf]", "Here."]
    assert conversation.turns[0].agent == "deepseek"


def test_folder_of_a_conversation_is_the_first_that_is_named():
    code = [*CLAUDE_CODE[:3], {**CLAUDE_CODE[3], "cwd": "/srv/alpha"}, *({**e, "cwd": "/x"} for e in CLAUDE_CODE[4:])]
    codex = [{"type": "session_meta", "payload": {"id": "x", "cwd": r"C:\alpha"}}, *CODEX[1:]]
    odd = [{"type": "session_meta", "payload": {"id": "x", "cwd": ["/alpha"]}}, *CODEX[1:]]
    folders = [parse(lines, lines=True).conversations[0].folder for lines in (code, codex, odd, CODEX)]
    assert folders == ["/srv/alpha", r"C:\alpha", "", ""]
