"""The worth of priors where labels are not equally frequent.

A cell is a model, a set and a template.

At a skew of 0.85 one label has 85 % of the texts, those that a prior is fitted on and those that
are judged, and the others share the rest. Every label is the frequent one in turn, and a figure is
the mean of these. Rows to fit on are drawn at random at that skew from one half of each label's
rows, and judged on the other half; a prior that goes by no texts is judged on all rows.

Shapes: N rows, K labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.label_parts import asking
from benchmarks.label_parts.asking import Said
from benchmarks.label_parts.sets import FITTING, LabelledSet
from core_tasks.calibration import BATCH_STRENGTH, content_free_prior, pmi_prior

Array = np.ndarray[Any, Any]
Figures = dict[str, Any]
Fit = Callable[[Array], Array]

RAW, DEFAULT = "raw", "content-free"
SKEWS = (0.5, 0.7, 0.85, 0.95)  # the first stands for equal shares
DRAWS, _SEED, _STEPS = 20, 0, 50


def all_cells(
    cache: Path, models: Sequence[str], backend: str, sets: Sequence[LabelledSet]
) -> Iterator[Figures]:
    """The figures of all cells that were asked."""
    for model in models:
        for of in sets:
            for template in of.templates:
                said = asking.said(cache, model, backend, of, template)
                names = {"model": model, "backend": backend, "set": of.name, "template": template}
                yield {**names, "part": of.part, "skews": cell(said, of)}


def cell(said: Said, of: LabelledSet) -> Figures:
    """For each skew and method the accuracy, and its gain with the worst label the frequent one."""
    rows, gold = np.array(said.rows), np.array(of.gold)
    found: Figures = {}
    for skew in SKEWS:
        shares = shares_at(skew, len(of.labels))
        fixed = {name: recalls(rows, gold, prior) for name, prior in without_texts(said).items()}
        right = {name: [float(each @ share) for share in shares] for name, each in fixed.items()}
        drawn = [with_texts(rows, gold, share) for share in shares]
        right |= {name: [each[name][0] for each in drawn] for name in drawn[0]}
        before = {name: [each[name][1] for each in drawn] for name in drawn[0]}
        found[f"{skew:g}"] = {
            name: {
                "accuracy": round(fmean(each), 4),
                "gain": round(fmean(gains := _gains(each, before.get(name, right[RAW]))), 4),
                "worst_label": round(min(gains), 4),
            }
            for name, each in right.items()
        }
    return found


def without_texts(said: Said) -> dict[str, Array]:
    """The priors that go by the prompt alone: [K]."""
    labels = len(said.without_text)
    checked = content_free_prior(said.content_free, named=said.named).prior
    return {
        RAW: np.zeros(labels),
        DEFAULT: np.array(checked or [0.0] * labels),
        "content-free, unchecked": np.array(content_free_prior(said.content_free).prior),
        "pmi": np.array(pmi_prior(said.without_text).prior),
    }


def with_texts(rows: Array, gold: Array, share: Array) -> dict[str, tuple[float, float]]:
    """Return the share right with each prior of drawn texts, and raw on the same rows: means."""
    draw = np.random.default_rng(_SEED)
    drawn = [_drawn(gold, share, draw) for _ in range(DRAWS)]
    fitting, judged = (np.array(each) for each in zip(*drawn, strict=True))
    said, right = rows[judged], gold[judged]  # [draws, rows, K], [draws, rows]
    weights = share[right] / np.bincount(right[0])[right]

    def accuracy(priors: Array) -> float:
        hits = (said - priors[:, None]).argmax(2) == right
        return float((weights * hits).sum(1).mean())

    raw = accuracy(np.zeros((DRAWS, len(share))))
    return {name: (accuracy(fit(rows[fitting])), raw) for name, fit in FITS.items()}


def _drawn(gold: Array, share: Array, draw: np.random.Generator) -> tuple[Array, Array]:
    """Numbers of rows to fit on, at these shares, and of the halves that are judged."""
    places = [draw.permutation(np.flatnonzero(gold == label)) for label in range(len(share))]
    halves = [np.array_split(each, 2) for each in places]
    counts = draw.multinomial(FITTING, share)
    fitting = [draw.choice(half, count) for (half, _), count in zip(halves, counts, strict=True)]
    return np.concatenate(fitting), np.concatenate([half for _, half in halves])


def recalls(rows: Array, gold: Array, prior: Array) -> Array:
    """How much of each label is found with a prior off: [K]."""
    right = gold[(rows - prior).argmax(1) == gold]
    found: Array = np.bincount(right, minlength=len(prior)) / np.bincount(gold)
    return found


def shares_at(skew: float, labels: int) -> list[Array]:
    """The labels' shares with each the frequent one: [K]; equal ones for the first skew."""
    if skew == SKEWS[0]:
        return [np.full(labels, 1 / labels)]
    rest = (1 - skew) / (labels - 1)
    return [np.where(np.arange(labels) == frequent, skew, rest) for frequent in range(labels)]


def batch(rows: Array, strength: float) -> Array:
    """The prior of `core_tasks.calibration.batch_prior`, of each draw's rows: [draws, K]."""
    prior: Array = strength * np.log(_shares(rows).mean(-2))
    return prior


def _frequencies(rows: Array) -> Array:
    """The labels' frequencies by expectation and maximisation, as a prior to add: [draws, K].

    M. Saerens, P. Latinne, C. Decaestecker, Adjusting the outputs of a classifier to new a priori
    probabilities, Neural Computation 2002.
    """
    given = _shares(rows)
    shares = np.full((len(rows), rows.shape[-1]), 1 / rows.shape[-1])
    for _ in range(_STEPS):
        each = given * shares[:, None]
        shares = (each / each.sum(-1, keepdims=True)).mean(1)
    prior: Array = -np.log(shares + 1e-12)
    return prior


def _shares(rows: Array) -> Array:
    parts = np.exp(rows - rows.max(-1, keepdims=True))
    shares: Array = parts / parts.sum(-1, keepdims=True)
    return shares


FITS: dict[str, Fit] = {
    "batch": partial(batch, strength=BATCH_STRENGTH),
    "batch, strength 0.25": partial(batch, strength=0.25),
    "frequencies (EM)": _frequencies,
}


def _gains(after: Sequence[float], before: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(after, before, strict=True)]


# ---------------------------------------------------------------------------- Markdown


def markdown(cells: Sequence[Figures]) -> str:
    """Three tables: each method by skew, the default by set, and the default in each cell."""
    return "\n\n".join([methods(cells), by_set(cells), _cells(cells)])


def methods(cells: Sequence[Figures]) -> str:
    """A row for each method and part of the sets."""
    names = [name for name in cells[0]["skews"]["0.5"] if name != RAW]
    lines = [_row(["method, sets", *map(_told_skew, SKEWS)]), _rule(5)]
    for name in names:
        for part in dict.fromkeys(each["part"] for each in cells):
            own = [each for each in cells if each["part"] == part]
            lines.append(_row([f"{name}, {part}", *(_spread(own, skew, name) for skew in SKEWS)]))
    title = "Accuracy gain over raw in points: mean of the cells, worst cell"
    return "\n".join([f"{title}:", "", *lines])


def by_set(cells: Sequence[Figures]) -> str:
    """A row for each model and set: means over the templates, and the worst label of any."""
    worst = [f"worst label at {_told_skew(skew)}" for skew in SKEWS[1:]]
    lines = [_row(["model, set", *map(_told_skew, SKEWS), *worst]), _rule(8)]
    for model, of in dict.fromkeys((each["model"], each["set"]) for each in cells):
        own = [each for each in cells if (each["model"], each["set"]) == (model, of)]
        told = [
            " to ".join(f"{_mean(own, skew, name, 'accuracy'):.1f}" for name in (RAW, DEFAULT))
            for skew in SKEWS
        ]
        least = [
            min(each["skews"][f"{skew:g}"][DEFAULT]["worst_label"] for each in own)
            for skew in SKEWS[1:]
        ]
        lines.append(_row([f"{model}, {of}", *told, *(f"{100 * each:+.1f}" for each in least)]))
    title = (
        f"Accuracy in %, raw and with the default ({DEFAULT}), and the gain for the "
        "frequent label that loses most"
    )
    return "\n".join([f"{title}:", "", *lines])


def _cells(cells: Sequence[Figures]) -> str:
    lines = [_row(["cell", "raw", *(name for name in cells[0]["skews"]["0.5"] if name != RAW)])]
    lines.append(_rule(lines[0].count("|") - 1))
    for each in cells:
        at = each["skews"]["0.85"]
        gains = [f"{100 * at[name]['gain']:+.1f}" for name in at if name != RAW]
        name = f"{each['model']} {each['set']} {each['template']}"
        lines.append(_row([name, f"{100 * at[RAW]['accuracy']:.1f}", *gains]))
    return "\n".join(["Each cell at 85/15, accuracy raw and points more:", "", *lines])


def _spread(cells: Sequence[Figures], skew: float, name: str) -> str:
    gains = [100 * each["skews"][f"{skew:g}"][name]["gain"] for each in cells]
    return f"{fmean(gains):+.1f}, {min(gains):+.1f}"


def _mean(cells: Sequence[Figures], skew: float, name: str, figure: str) -> float:
    return 100 * fmean(each["skews"][f"{skew:g}"][name][figure] for each in cells)


def _told_skew(skew: float) -> str:
    return "equal shares" if skew == SKEWS[0] else f"{100 * skew:.0f}/{100 - 100 * skew:.0f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(count: int) -> str:
    return "|" + "---|" * count
