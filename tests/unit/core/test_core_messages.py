import pytest

from massmem.core.messages import (
    TOKENS_PER_PAGE,
    Usage,
    add_description,
    add_text,
    clean_name,
    cut_title,
    detect_media_type,
    has_end,
    make_attachment,
    name_attachments,
    remove_description,
    split_question,
    split_texts,
)
from tests.support.pictures import PNG


@pytest.mark.parametrize(
    ("beginning", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n...", "image/png"),
        (b"\xff\xd8\xff\xe0...", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\x10\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"%PDF-1.7", "application/pdf"),
        (b"From: ann\n%PDF-1.7 1 0 obj endobj", "application/pdf"),
        (b"From: ann\n%PDF-1.7 is what it begins with", None),
        (b"obj endobj", None),
        (b"RIFF\x10\x00\x00\x00WAVEfmt ", None),
        (b"BM6...", None),
        (b"plain text", None),
        (b"", None),
    ],
)
def test_file_is_known_by_how_it_begins(beginning: bytes, media_type: str | None):
    assert detect_media_type(beginning) == media_type


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("/home/ann/plan.png", "plan.png"),
        ("C:\\ann\\plan.png", "plan.png"),
        ("a]\n[attached: b.png", "a) (attached: b.png"),
        ("folder/", "folder"),
        ("/ann/DOC X/", "DOC X"),
        ("pl\x00an\x1b\u202e\udc80.png", "plan.png"),
        ("", "file"),
        ("x" * 500, "x" * 200),
    ],
)
def test_name_is_one_short_line_that_names_nothing_else(name: str, clean: str):
    assert clean_name(name) == clean


def test_question_names_its_files_once():
    files = [
        make_attachment("a.png", "image/png", b"a"),
        make_attachment("b.pdf", "application/pdf", b"b", 3),
    ]
    named = name_attachments("What is it?", files)
    assert named == "What is it?\n\n[attached: a.png]\n[attached: b.pdf]"
    assert name_attachments(named, files) == named
    assert name_attachments("Why?", ()) == "Why?"
    hidden = make_attachment("n.ipynb picture 1", "image/png", b"c", optional=True)
    assert name_attachments("Why?", [hidden]) == "Why?"


def test_description_is_added_and_removed():
    described = add_description("What is it?\n\n[attached: a.png]", "A cat.")
    assert described.endswith("\n\nA cat.")
    assert remove_description(described, "A cat.") == "What is it?\n\n[attached: a.png]"
    assert add_description("Why?", "") == remove_description("Why?", "") == "Why?"


def test_document_has_the_tokens_of_its_pages():
    assert make_attachment("b.pdf", "application/pdf", b"b", 3).tokens == 3 * TOKENS_PER_PAGE


def test_attachments_are_the_same_when_their_files_are():
    picture = make_attachment("a.png", "image/png", b"a")
    assert picture == make_attachment("a.png", "image/png", b"a")
    assert picture != make_attachment("a.png", "image/png", b"b")
    assert (picture.data, picture.optional) == (b"a", False)
    assert (picture.file.media_type, picture.file.size, picture.file.pages) == ("image/png", 1, 1)
    assert "b'a'" not in repr(picture)


HEAD = b"\xff\xd8\xff\xe1\x00\x08\xff\xda\xff\xd9ab"
"""How a JPEG begins: its header holds a small picture with a beginning and an end of its own."""
LARGE_HEAD = HEAD[:2] + b"\xff\xe1\x01\x04" + b"\xff\xd9" * 129 + HEAD[2:]
PIXELS = b"\xff\xda\x00\x02pixels"
WEBP = b"RIFF\x0c\x00\x00\x00WEBPVP8 1234"


@pytest.mark.parametrize(
    ("media_type", "data", "whole"),
    [
        ("image/png", PNG, True),
        ("image/png", PNG + b"more", True),
        ("image/png", PNG[:-12], False),
        ("image/jpeg", HEAD + PIXELS + b"\xff\xd9", True),
        ("image/jpeg", HEAD + b"\xff" + PIXELS + b"\xff\xd9 a film \xff\xda", True),
        ("image/jpeg", HEAD + PIXELS, False),
        ("image/jpeg", HEAD[:8], False),
        ("image/jpeg", LARGE_HEAD + PIXELS, False),
        ("image/jpeg", LARGE_HEAD + PIXELS + b"\xff\xd9", True),
        ("image/webp", WEBP, True),
        ("image/webp", WEBP[:-1], False),
        ("image/gif", b"GIF89a...\0;", True),
        ("image/gif", b"GIF89a...", False),
        ("application/pdf", b"%PDF-1.7", True),
    ],
)
def test_picture_that_is_cut_off_has_no_end(media_type: str, data: bytes, whole: bool):
    assert has_end(media_type, data) == whole


def test_texts_below_a_question_are_split_off_with_their_names():
    question = add_text(add_text("Why?", "a.txt", "one\n--\ntwo"), "b.txt", "\n")
    assert question == "Why?\n\n--- a.txt ---\none\n--\ntwo\n\n--- b.txt (empty) ---"
    names = [(name, text.strip()) for name, text in split_texts(question)]
    assert names == [("", "Why?"), ("a.txt", "one\n--\ntwo"), ("b.txt (empty)", "")]
    assert split_texts("Why?") == [("", "Why?")]


@pytest.mark.parametrize(
    ("text", "stands_as"),
    [
        ("--- b.txt ---\nnot a file", " --- b.txt ---\nnot a file"),
        ("```python\nopen()", "```python\nopen()\n```"),
        ("~~~~\n```\n~~~", "~~~~\n```\n~~~\n~~~~"),
        ("```\nclosed\n````\n", "```\nclosed\n````"),
        ("```\n```still open", "```\n```still open\n```"),
        ("```a`b``` in a line", "```a`b``` in a line"),
        ("```\nclosed\n```\n~~~\nopen", "```\nclosed\n```\n~~~\nopen\n~~~"),
    ],
)
def test_nothing_in_a_text_ends_it(text: str, stands_as: str):
    question = add_text("Why?", "a.txt", text)
    assert question == f"Why?\n\n--- a.txt ---\n{stands_as}"
    assert split_question(question) == ("Why?", [("a.txt", stands_as)], "")


def test_question_keeps_blanks_at_its_end_and_the_last_names_count():
    files = [make_attachment(name, "image/png", PNG).file for name in ("a.png", "b.png")]
    names = "[attached: a.png]\n[attached: b.png]"
    question = f"Is it\n\n{names}\n\nor? \n\n{names}\n\n A cat. "
    assert split_question(question, files) == (f"Is it\n\n{names}\n\nor? ", [], " A cat. ")


def test_question_is_parted_from_what_it_came_with():
    attachment = make_attachment("dot.png", "image/png", PNG)
    in_text = make_attachment("cell.png", "image/png", PNG, optional=True)
    picture = attachment.file
    asked = add_text(add_text("What is it?\n\n\n", "a.txt", "One.\n\nTwo.\n"), "empty.txt", "")
    assert split_question(asked) == ("What is it?", [("a.txt", "One.\n\nTwo."), ("empty.txt (empty)", "")], "")
    named = name_attachments(asked, [attachment, in_text])
    assert split_question(named, [picture, in_text.file]) == split_question(asked)
    described = add_description(named, "It shows\n\na dot.")
    assert split_question(described, [picture]) == (*split_question(asked)[:2], "It shows\n\na dot.")
    assert split_question("Why?", [picture]) == ("Why?", [], "")
    assert split_question("") == ("", [], "")


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("What is it? --- server.log --- 12:00 worker started", "What is it?"),
        ("What is it? --- server.log ---", "What is it?"),
        ("What is it? --- server.lo", "What is it?"),
        ("What is it? [attached: my plan.png]", "What is it?"),
        ("--- server.log --- 12:00", "--- server.log --- 12:00"),
        ("What is it? --- a.log --- one --- b.log --- two", "What is it?"),
        ("Lisbon --- and then", "Lisbon --- and then"),
        ("", ""),
    ],
)
def test_title_ends_before_the_text_of_a_file(title: str, shown: str):
    assert cut_title(title) == shown


STEPS = Usage(70, 20, 10, 2, cost=0.2, reasoning=5, cache_written=3, saved=0.01)
PRESENTATION = Usage(30, 10, 20, 1, cost=0.1, reasoning=4, cache_written=2, saved=0.02)


def test_sum_less_one_part_is_the_other_part():
    assert (STEPS + PRESENTATION) - STEPS == PRESENTATION
    assert STEPS - Usage() == STEPS


def test_rest_of_an_estimated_sum_is_an_estimate():
    assert not (Usage(5, reported=False) - Usage(2)).reported


def test_rest_has_a_cost_only_when_it_is_known():
    assert (Usage(9) - Usage(4, cost=0.1)).cost is None
    assert (Usage(9, cost=0.3) - Usage(4)).cost is None
    assert (Usage(9, cost=0.3) - Usage()).cost == 0.3
