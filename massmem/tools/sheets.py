"""Spreadsheets as Markdown: a table for each sheet, with what its cells show."""

import re
import zipfile
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from io import BytesIO
from typing import Any

from massmem.core.errors import InputError
from massmem.tools.office import Reading, list_missing, read_parts

_MAX_SHEETS = 3_000_000  # unpacked bytes of sheets that are read in full: a hundred thousand cells, some seconds
# What openpyxl raises of odd files.
_ODD = (ValueError, TypeError, LookupError, AttributeError, OSError, zipfile.BadZipFile)
_ESCAPES = str.maketrans({"\\": "\\\\", "|": "\\|", "\r": "", "\n": "<br>"})


def read_workbook(name: str, suffix: str, data: bytes) -> Reading:
    """Read a spreadsheet. Raises InputError: it has a password, is damaged, or has too many cells."""
    if suffix in (".xlsx", ".xlsm"):
        with suppress(*_ODD), zipfile.ZipFile(BytesIO(data)) as archive:
            if sum(info.file_size for info in archive.infolist() if "/sheet" in info.filename) <= _MAX_SHEETS:
                return _read_in_full(archive, data)
    note = "values alone are read, not formats, formulas, comments and what is hidden"
    return _read_values(name, suffix, data), [note]


def _read_in_full(archive: zipfile.ZipFile, data: bytes) -> Reading:
    openpyxl = import_module("openpyxl")
    shown, written = (openpyxl.load_workbook(BytesIO(data), data_only=only) for only in (True, False))
    texts, notes, unseen = list[str](), list[str](), 0
    for sheet in shown.worksheets:
        hidden = {c for d in sheet.column_dimensions.values() if d.hidden for c in range(d.min, d.max + 1)}
        rows = list[dict[int, str]]()
        for cells in sheet.iter_rows():
            is_hidden = sheet.row_dimensions[cells[0].row].hidden
            row = {cell.column: _show(cell, written[sheet.title][cell.coordinate].value, shown.epoch) for cell in cells}
            rows.append({place: text for place, text in row.items() if not is_hidden and place not in hidden})
            unseen += sum(map(bool, row.values())) - sum(map(bool, rows[-1].values()))
        texts.append(_write_sheet(sheet.title + " (hidden)" * (sheet.sheet_state != "visible"), rows))
        parts = [part for half in (sheet.oddHeader, sheet.oddFooter) for part in (half.left, half.center, half.right)]
        texts += [f"Printed on each page: {part.text}" for part in parts if part.text]
        notes += [f"hidden sheet, marked: {sheet.title}"] * (sheet.sheet_state != "visible")
    others, places, more = read_parts(archive)
    notes += more + [f"hidden cells, left out: {unseen}"] * (unseen > 0)
    return "\n\n".join((*texts, *list_missing("", others, places))), notes


def _show(cell: Any, written: Any, epoch: Any) -> str:
    """Return what a cell shows; of a formula without a stored value, the formula."""
    value, code = cell.value, cell.number_format
    ground = "FFFFFFFF" if cell.fill.fill_type is None else cell.fill.fgColor.rgb
    if cell.has_style and getattr(cell.font.color, "rgb", "") == ground:
        return ""
    if value is None or isinstance(value, str) or code in ("General", "@"):
        return _write_cell(getattr(written, "text", written) if value is None else value)
    value = value / timedelta(days=1) if isinstance(value, timedelta) else value
    # xlfmt drops the points of 05.03.2024.
    code = re.sub(r"(?i)(?<=[dmyh])\.(?=[ dmyhs])", '"."', code)
    return _write_cell(str(import_module("xlfmt").format_value(value, code, date1904=epoch.year == 1904)).strip())


def _read_values(name: str, suffix: str, data: bytes) -> str:
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        book = CalamineWorkbook.from_filelike(BytesIO(data))
        sheets = {sheet: book.get_sheet_by_name(sheet).to_python() for sheet in book.sheet_names}
    except (CalamineError, OSError, ValueError) as e:
        raise InputError(f"{name} cannot be read as {suffix}: {e}", "save it anew, whole and without a password") from e
    tables = {sheet: [dict(enumerate(map(_write_cell, row))) for row in rows] for sheet, rows in sheets.items()}
    return "\n\n".join(_write_sheet(sheet, rows) for sheet, rows in tables.items())


def _write_sheet(name: str, rows: list[dict[int, str]]) -> str:
    """Return the cells of a sheet as a table, without empty rows and columns."""
    columns = sorted({column for row in rows for column, text in row.items() if text})
    lines = [f"| {' | '.join(row.get(column, '') for column in columns)} |" for row in rows if any(row.values())]
    return "\n".join([f"## {name}\n", *lines[:1], "|" + " --- |" * len(columns) if lines else "(empty)", *lines[1:]])


def _write_cell(value: Any) -> str:
    if isinstance(value, float | bool):
        value = f"{value:.15g}" if isinstance(value, float) else str(value).upper()
    return str("" if value is None else value).translate(_ESCAPES)
