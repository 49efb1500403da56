"""The losses of a training, drawn as one SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from core_tasks.svg import document, frame, text

_WIDTH, _HEIGHT = 640, 360
_LEFT, _TOP, _RIGHT, _BOTTOM = 60, 50, 620, 310  # pixels
_MOST = 400  # points of a line: more than there are pixels to tell apart
_TRAINED, _MEASURED = "#3b82f6", "#d97706"

Losses = Sequence[tuple[int, float]]


def svg(losses: Losses, measured: Losses = (), title: str = "") -> str:
    """Draw the loss of each step, (step, loss), and the measured validation losses.

    Many steps are drawn as means of neighbouring steps.
    """
    points = _thinned(losses)
    every = [*points, *measured]
    if not every:
        return document(_WIDTH, _HEIGHT, [text(_LEFT, 24, title or "No training steps", 15)])
    last, top = max(step for step, _ in every), max(loss for _, loss in every) or 1.0
    drawn = chain(
        [text(_LEFT, 24, title or "Loss per learned token, in nats", 15, weight="bold")],
        [frame(_LEFT, _TOP, _RIGHT - _LEFT, _BOTTOM - _TOP)],
        _axes(last, top),
        _line(points, last, top, _TRAINED),
        _line(measured, last, top, _MEASURED, dots=True),
        _legend(bool(measured)),
    )
    return document(_WIDTH, _HEIGHT, drawn)


def _thinned(losses: Losses) -> list[tuple[int, float]]:
    size = -(-len(losses) // _MOST) or 1
    groups = [losses[start : start + size] for start in range(0, len(losses), size)]
    return [(group[-1][0], sum(loss for _, loss in group) / len(group)) for group in groups]


def _at(step: float, loss: float, last: int, top: float) -> tuple[float, float]:
    x = _LEFT + (_RIGHT - _LEFT) * step / last
    return x, _BOTTOM - (_BOTTOM - _TOP) * loss / top


def _axes(last: int, top: float) -> Iterator[str]:
    for share in (0.0, 0.5, 1.0):
        x, y = _at(share * last, share * top, last, top)
        yield text(_LEFT - 6, y + 4, f"{share * top:.3g}", 11, "end")
        yield text(x, _BOTTOM + 16, f"{share * last:.0f}", 11, "middle")
    yield text((_LEFT + _RIGHT) / 2, _BOTTOM + 34, "step", 12, "middle")


def _line(
    points: Losses, last: int, top: float, colour: str, *, dots: bool = False
) -> Iterator[str]:
    places = [_at(step, loss, last, top) for step, loss in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    if len(places) > 1:
        yield f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='1.5'/>"
    for (x, y), (step, loss) in (
        zip(places, points, strict=True) if dots or len(places) == 1 else ()
    ):
        tooltip = f"<title>step {step}: {loss:.4f}</title>"
        yield f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{colour}'>{tooltip}</circle>"


def _legend(measured: bool) -> Iterator[str]:
    shown = [("learned", _TRAINED), *([("validation", _MEASURED)] if measured else [])]
    for place, (name, colour) in enumerate(shown):
        y = _TOP + 16 + 16 * place
        yield f"<circle cx='{_RIGHT - 90}' cy='{y - 4}' r='4' fill='{colour}'/>"
        yield text(_RIGHT - 80, y, name, 12)
