"""Results as plain dictionaries that JSON can hold, and errors that can be stored with them.

The traceback of an error references the frames that raised it, with their locals and their callers:
streams, models, texts. Storing it with the error would keep all of them alive.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from typing import Self

from core.errors import CoreError


def without_frames(error: Exception) -> Exception:
    """Return a copy, for storage, of an error that is being raised."""
    try:
        return copy.copy(error)
    except Exception:  # noqa: BLE001 - its class takes other arguments than it stores
        return CoreError(f"{type(error).__name__}: {error}")


def drop_frames(error: BaseException) -> None:
    """Remove the tracebacks of an error that is not being raised, and of its causes.

    The context is removed as well: it may be a caller's error that is still being raised.
    """
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = link.__context__ = None
        link = link.__cause__


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


def html_labels(
    error: Exception | None, probabilities: Mapping[str, float] | None, column: str = "probability"
) -> str:
    """Return the table of a labelled row: the labels, most probable first, or its error."""
    if error is not None or probabilities is None:
        return html_table(["error"], [[f"{type(error).__name__}: {error}"]])
    ranked = sorted(probabilities.items(), key=lambda pair: -pair[1])
    return html_table(["label", column], [(label, f"{share:.4f}") for label, share in ranked])


class RowResult:
    """Base class of the results of one row: ``error`` is None, or the failure of that row alone."""

    __slots__ = ()
    error: Exception | None

    def __post_init__(self) -> None:
        if self.error is not None:
            drop_frames(self.error)

    def raise_for_error(self) -> Self:
        """Return the result itself. Raises its error if the row failed."""
        if self.error is not None:
            raise self.error
        return self
