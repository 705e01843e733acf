"""Attachments: what kind of file it is, and how a question names it."""

import pytest

from massmem.core.attachments import (
    TOKENS_PER_PAGE,
    add_description,
    clean_name,
    detect_media_type,
    make_attachment,
    name_attachments,
    remove_description,
)


@pytest.mark.parametrize(
    ("beginning", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n...", "image/png"),
        (b"\xff\xd8\xff\xe0...", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\x10\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"%PDF-1.7", "application/pdf"),
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
        ("", "file"),
        ("x" * 500, "x" * 200),
    ],
)
def test_name_is_one_short_line_that_names_nothing_else(name: str, clean: str):
    assert clean_name(name) == clean


def test_question_names_its_files_once():
    files = [
        make_attachment("a.png", "image/png", b"a").file,
        make_attachment("b.pdf", "application/pdf", b"b", 3).file,
    ]
    named = name_attachments("What is it?", files)
    assert named == "What is it?\n\n[attached: a.png]\n[attached: b.pdf]"
    assert name_attachments(named, files) == named
    assert name_attachments("Why?", ()) == "Why?"


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
    assert "b'a'" not in repr(picture)
