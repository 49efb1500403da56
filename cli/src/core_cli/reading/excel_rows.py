"""Rows of the first sheet of an Excel workbook, .xlsx (openpyxl, the extra ``xlsx``)."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from typing import IO, Any

import click

from core_cli.reading.row import Fields, InputError, Row
from core_cli.reading.table_rows import names_of


def rows_of_excel(stream: IO[bytes], name: str, fields: Fields) -> Iterator[Row]:
    """Yield one row per row after the header, with its number in the sheet.

    Cells become texts, as if the sheet were saved as CSV. Raises `click.UsageError` for a file that
    is not a workbook, and for a bad header.
    """
    sheet = _first_sheet(stream, name)
    numbered = enumerate(sheet.iter_rows(values_only=True), 1)
    records = ((number, cells) for number, cells in numbered if any(map(_is_filled, cells)))
    place, header = next(records, (0, ()))
    if not header:
        return
    width = max(number for number, cell in enumerate(header, 1) if _is_filled(cell))
    columns = names_of(name, [_text(cell) for cell in header[:width]])
    fields.check(place, dict.fromkeys(columns, ""), "row")
    for number, cells in records:
        yield _row(number, columns, cells, fields)


def _row(number: int, columns: Sequence[str], cells: Sequence[object], fields: Fields) -> Row:
    if any(map(_is_filled, cells[len(columns) :])):
        problem = f"row {number} has cells to the right of the header. Name their columns."
        return Row(number, error=InputError(problem), unit="row")
    texts = [_text(cell) for cell in cells[: len(columns)]]
    texts += [""] * (len(columns) - len(texts))
    size = sum(map(len, texts))
    return fields.row(number, dict(zip(columns, texts, strict=True)), "row", size)


def _first_sheet(stream: IO[bytes], name: str) -> Any:
    try:
        import openpyxl
    except ImportError:
        from core.plugins import install_command

        command = install_command("xlsx")
        raise click.UsageError(f"Excel requires openpyxl. Install it with: {command}") from None
    try:
        workbook = openpyxl.load_workbook(stream, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise click.UsageError(
            f"{name} is not a complete .xlsx workbook ({error}). Save the table as CSV."
        ) from None
    if not workbook.worksheets:
        raise click.UsageError(f"{name} has no sheet of cells. Save the table as CSV.")
    return workbook.worksheets[0]


def _is_filled(cell: object) -> bool:
    return cell not in (None, "")


def _text(cell: object) -> str:
    """Return a cell's value as text: dates as in ISO 8601, whole numbers without a fraction."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime) and cell.time() == time():
        return cell.date().isoformat()
    return cell.isoformat() if isinstance(cell, date | datetime | time) else str(cell)
