"""Plot of an agreement report as one SVG: reliability diagram and confusion matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from core.system.terminal import visible
from core_tasks.agreement.gaps import error_text
from core_tasks.svg import bar, document, frame, text

MOST_LABELS = 12
_WIDTH, _SIDE, _TOP = 940, 300, 72  # pixels: all; a panel's square; its upper edge
_LEFT, _RIGHT = 60, 560  # the left edges of both squares
_COUNTS = 60  # the height of the histogram under the diagram
_LONGEST = 16  # characters of a label


def svg(report: Mapping[str, Any], *, labels: int = MOST_LABELS, title: str = "") -> str:
    """Return the plot of `Agreement.to_dict`, also after a round trip through JSON.

    On the left, accuracy over probability in bins, with the number of rows in each below; on the
    right, gold labels (rows) by answers (columns), for the ``labels`` with the most rows.
    """
    height = _TOP + _SIDE + _COUNTS + 62
    drawn = chain(
        [text(_LEFT, 22, title or "Agreement with gold labels", 15, weight="bold")],
        [text(_LEFT, 42, _summary(report), 12)],
        _reliability(report["bins"]),
        _confusion(report, max(1, labels)),
    )
    return document(_WIDTH, height, drawn)


def _summary(report: Mapping[str, Any]) -> str:
    words = [f"{report['rows']:,} rows, {_percent(report['coverage'])} answered"]
    if report["accuracy"] is not None:
        low, high = report["accuracy_interval"]
        interval = f"95 %: {_percent(low)} to {_percent(high)}"
        words.append(f"accuracy {_percent(report['accuracy'])} ({interval})")
    if report["macro_f1"] is not None:
        words.append(f"macro F1 {report['macro_f1']:.3f}")
    if report["calibration_error"] is not None:
        words.append(error_text(report["calibration_error"], report["calibration_error_interval"]))
    if report["brier"] is not None:
        words.append(f"Brier {report['brier']:.3f}")
    return ", ".join(words)


# --------------------------------------------------------------------------- reliability


def _reliability(bins: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the bars of accuracy; on the diagonal, probabilities are calibrated."""
    bottom, base = _TOP + _SIDE, _TOP + _SIDE + _COUNTS + 14
    most = max((bin["count"] for bin in bins), default=0)
    for bin in (bin for bin in bins if bin["count"]):
        x = _LEFT + bin["low"] * _SIDE
        width = (bin["high"] - bin["low"]) * _SIDE - 1
        title = (
            f"probability {bin['low']:.2f} to {bin['high']:.2f}: {bin['count']:,} rows, "
            f"{_percent(bin['accuracy'])} right, {_percent(bin['confidence'])} expected"
        )
        tall = bin["accuracy"] * _SIDE
        yield bar(x, bottom - tall, width, tall, 0.6, title)
        tall = bin["count"] / most * _COUNTS
        yield bar(x, base - tall, width, tall, 0.3, title)

    yield frame(_LEFT, _TOP, _SIDE, _SIDE)
    yield (
        f"<line x1='{_LEFT}' y1='{bottom}' x2='{_LEFT + _SIDE}' y2='{_TOP}' "
        "stroke-dasharray='4 4'/>"
    )
    yield f"<line x1='{_LEFT}' y1='{base}' x2='{_LEFT + _SIDE}' y2='{base}'/>"
    for tick in (0.0, 0.5, 1.0):
        yield text(_LEFT - 6, bottom - tick * _SIDE + 4, f"{tick:g}", 11, "end")
        yield text(_LEFT + tick * _SIDE, base + 14, f"{tick:g}", 11, "middle")
    yield text(_LEFT - 6, base - _COUNTS + 8, f"{most:,}", 11, "end")
    yield text(_LEFT - 6, base, "rows", 11, "end")
    words = "accuracy over the probability of the chosen label" if most else "no probabilities"
    yield text(_LEFT + _SIDE / 2, base + 32, words, 12, "middle")


# --------------------------------------------------------------------------- confusion


def _confusion(report: Mapping[str, Any], most: int) -> Iterator[str]:
    """Yield the cells of the confusion matrix: shares of each gold label's rows, as shades."""
    ranked = sorted(report["labels"], key=lambda label: (-_rows(report, label), label))
    shown = sorted(ranked[:most])
    columns = [*shown, None] if report["unanswered"] else [*shown]
    side = _SIDE / max(len(columns), 1)
    for row, gold in enumerate(shown):
        y = _TOP + row * side
        yield text(_RIGHT - 6, y + side / 2 + 4, _short(gold), 11, "end")
        for column, answer in enumerate(columns):
            yield from _cell(report, gold, answer, _RIGHT + column * side, y, side)
    for column, answer in enumerate(columns):
        x, y = _RIGHT + (column + 0.5) * side, _TOP + len(shown) * side + 12
        word = "no answer" if answer is None else _short(answer)
        yield text(x, y, word, 11, "end", turned=True)

    yield frame(_RIGHT, _TOP, len(columns) * side, len(shown) * side)
    yield text(_RIGHT, _TOP - 6, "gold labels in rows, answers in columns", 12)
    left_out = len(ranked) - len(shown)
    if left_out:
        hidden = sum(report["labels"][label]["support"] for label in ranked[most:])
        words = f"{left_out:,} more labels, with {hidden:,} rows, are not shown"
        yield text(_RIGHT + _SIDE, _TOP + _SIDE + _COUNTS + 46, words, 12, "end")


def _cell(
    report: Mapping[str, Any], gold: str, answer: str | None, x: float, y: float, side: float
) -> Iterator[str]:
    if answer is None:
        rows = report["unanswered"].get(gold, 0)
    else:
        rows = report["confusion"].get(gold, {}).get(answer, 0)
    if not rows:
        return
    of_all = rows / report["labels"][gold]["support"]
    got = "no answer" if answer is None else visible(answer)
    title = f"{visible(gold)} as {got}: {rows:,} rows, {_percent(of_all)}"
    yield bar(x, y, side, side, 0.08 + 0.57 * of_all, title)
    size = 11 if side > 30 else 8
    yield text(x + side / 2, y + side / 2 + 4, _compact(rows), size, "middle")


def _rows(report: Mapping[str, Any], label: str) -> int:
    counts = report["labels"][label]
    rows: int = counts["support"] + counts["answered"]
    return rows


def _short(label: str) -> str:
    plain = " ".join(visible(label).split()) or "(empty)"
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 1]}…"


def _compact(rows: float) -> str:
    """Return a number in at most four characters."""
    for unit in ("", "k", "M", "G"):
        if rows < 999.5:
            return f"{rows:.3g}{unit}" if rows < 99.5 or not unit else f"{rows:.0f}{unit}"
        rows /= 1000
    return "many"


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.1%}"
