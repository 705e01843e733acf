"""Notebooks as text, with their pictures apart."""

import json
from base64 import b64encode
from typing import Any

from massmem.tools.documents import read_document
from tests.support.pictures import PNG


def make_notebook(*cells: dict[str, Any]) -> bytes:
    """Return a notebook of these cells."""
    return json.dumps({"nbformat": 4, "metadata": {}, "cells": list(cells)}).encode()


def show(data: dict[str, Any]) -> dict[str, Any]:
    """Return a cell of code with one output."""
    output = {"output_type": "display_data", "data": data}
    return {"cell_type": "code", "source": ["plot()\n", "print('```')"], "outputs": [output]}


def test_cells_and_what_they_printed_are_read_in_their_order():
    printed = [
        {"output_type": "stream", "text": ["3.4\n"]},
        {"output_type": "error", "traceback": ["\x1b[0;31mValueError\x1b[0m: no"]},
    ]
    document = read_document(
        "tides.ipynb",
        make_notebook(
            {"cell_type": "markdown", "source": ["# Tides\n", "Hourly."]},
            {"cell_type": "code", "source": "print(max(h))", "outputs": printed},
            show({"text/html": "<table>", "text/plain": ["   a\n0  1"]}),
        ),
    )
    assert document.text == (
        "# Tides\nHourly.\n\n```python\nprint(max(h))\n```\n\n```\n3.4\n```\n\n```\nValueError: no\n```\n\n"
        "````python\nplot()\nprint('```')\n````\n\n```\n   a\n0  1\n```"
    )
    assert document.attachments == ()


def test_pictures_are_shown_beside_the_text_that_names_them():
    damaged, whole = {"image/png": "AAAA"}, {"image/png": b64encode(PNG).decode(), "text/plain": "<Figure>"}
    document = read_document("tides.ipynb", make_notebook(show(whole), show(damaged)))
    (picture,) = document.attachments
    assert (picture.data, picture.optional, picture.file.name) == (PNG, True, "tides.ipynb picture 1")
    assert "[picture of cell 1: tides.ipynb picture 1]" in document.text
    assert "[picture of cell 2: image/png, not shown]" in document.text
    assert b64encode(PNG).decode()[:40] not in document.text


def test_file_that_is_no_notebook_is_read_as_text():
    assert read_document("odd.ipynb", b'{"cells": 3}').text == '{"cells": 3}'
