"""Results as plain dictionaries that JSON can hold, and as a table in a notebook."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping


def number(value: float | None) -> float | None:
    """The value as Python's own float, or None for what JSON cannot hold: infinities and NaN."""
    return float(value) if value is not None and math.isfinite(value) else None


def numbers(values: Mapping[str, float] | None) -> dict[str, float | None] | None:
    """The same for each of these."""
    if values is None:
        return None
    # A sum is finite where all are, as a rule: looked at one by one, labels are half of a result.
    if math.isfinite(sum(values.values())):
        return dict(zip(values, map(float, values.values()), strict=True))
    return {name: number(value) for name, value in values.items()}


def error_record(error: Exception | None) -> dict[str, str] | None:
    """The type and the message of an error; None for none."""
    return None if error is None else {"type": type(error).__name__, "message": str(error)}


def html_table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table of plain HTML; every cell is escaped, so that no text of a model becomes markup."""
    import html  # a notebook has it; `import core` shall not wait for it

    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
