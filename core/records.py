"""Results as plain dictionaries that JSON can hold, and as a table in a notebook."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping


def number(value: float | None) -> float | None:
    """Return the value as a Python float, or None for infinities and NaN, which JSON lacks."""
    return float(value) if value is not None and math.isfinite(value) else None


def numbers(values: Mapping[str, float] | None) -> dict[str, float | None] | None:
    """Return `number` of each value."""
    if values is None:
        return None
    # Usually the sum is finite if all are; checking each would take half of a result's time.
    if math.isfinite(sum(values.values())):
        return dict(zip(values, map(float, values.values()), strict=True))
    return {name: number(value) for name, value in values.items()}


def error_record(error: Exception | None) -> dict[str, str] | None:
    """Return the type and the message of an error, or None."""
    return None if error is None else {"type": type(error).__name__, "message": str(error)}


def html_table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return an HTML table. Every cell is escaped, so that model output cannot become markup."""
    import html  # notebooks have imported it; `import core` must not wait for it

    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
