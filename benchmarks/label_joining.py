"""Label mass and accuracy with and without a space between prompt and label, by the prompt's end.

Each prompt of benchmarks/labelled/joining.toml is classified with its labels joined both ways, by
the tests' two models::

    make models
    python benchmarks/label_joining.py --json benchmarks/results/label_joining.json

Prints Markdown: for each kind of end and each model, how many times the label mass without the
space is that with it (geometric mean over the rows), and how many of the labels are right. The
last column is what `core.kit.labels` does by default. With ``--known FILE`` only those prompts are run
whose figures that file does not have.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")  # no g++ may be here

import core
from benchmarks.classify_parts import machine
from core.kit.labels import unspaced

_PROMPTS = Path(__file__).parent / "labelled" / "joining.toml"
_MODELS = {"smollm2": "smollm2-135m-instruct", "gemma3": "gemma-3-270m"}
_WAYS = {"with": " ", "without": ""}
_LEAST = 1e-30  # a mass of zero has no logarithm


@dataclass(frozen=True, slots=True)
class End:
    """Prompts that end alike: text i has label i modulo their number."""

    texts: str
    kind: str
    templates: tuple[str, ...]
    labels: tuple[str, ...]


def main() -> None:
    """Measure, or read what was measured; print, and write it where that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=_MODELS, default=[*_MODELS])
    parser.add_argument("--only", default="", metavar="WORD", help="Only kinds with this in them.")
    parser.add_argument("--json", type=Path, help="Write the figures.")
    parser.add_argument("--known", type=Path, help="Figures of an earlier run.")
    given = parser.parse_args()

    known = json.loads(given.known.read_text(encoding="utf-8"))["ends"] if given.known else []
    figures = measured(given.models, given.only, known)
    if given.json:
        given.json.write_text(_in_lines(figures), encoding="utf-8")
    print(markdown(figures["ends"]))


def _in_lines(figures: dict[str, Any]) -> str:
    """JSON with a line for each kind of end."""
    lines = (json.dumps(end, ensure_ascii=False) for end in figures["ends"])
    ends = ",\n".join(lines)
    return f'{{"machine": {json.dumps(figures["machine"])},\n"ends": [\n{ends}\n]}}\n'


def measured(models: Sequence[str], only: str, known: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All figures: for each kind of end, for each template, by model and way."""
    texts, ends = read()
    earlier = {
        (end["texts"], *end["labels"], prompt["template"], name): prompt[name]
        for end in known
        for prompt in end["prompts"]
        for name in _MODELS
        if name in prompt
    }
    ends = [end for end in ends if only in f"{end.texts} {end.kind}"]
    rows: list[dict[str, Any]] = [
        {
            "texts": end.texts,
            "kind": end.kind,
            "labels": [*end.labels],
            "prompts": [{"template": template} for template in end.templates],
        }
        for end in ends
    ]
    for name in models:
        with core.load_model(_MODELS[name], backend="mlx_cpu") as model:
            for end, row in zip(ends, rows, strict=True):
                for prompt in row["prompts"]:
                    key = end.texts, *end.labels, prompt["template"], name
                    prompt[name] = earlier.get(key) or _both_ways(
                        model, prompt["template"], texts[end.texts], end
                    )
    return {"machine": machine.describe(os.cpu_count() or 1), "ends": rows}


def read() -> tuple[dict[str, list[str]], list[End]]:
    """The texts of each language, and all ends."""
    described = tomllib.loads(_PROMPTS.read_text(encoding="utf-8"))
    crossed = described.pop("crossed")
    ends = [
        End(language, kind, tuple(templates), tuple(facts["labels"]))
        for language, facts in described.items()
        for kind, templates in facts["ends"].items()
    ]
    ends += [
        End(each["texts"], each["kind"], tuple(each["templates"]), tuple(each["labels"]))
        for each in crossed
    ]
    return {language: facts["texts"] for language, facts in described.items()}, ends


def _both_ways(
    model: core.TextModel, template: str, texts: Sequence[str], end: End
) -> dict[str, Any]:
    """The label mass, and how many labels are right, with the space and without.

    ``mass`` is the mean over the texts, ``geometric`` their geometric mean.
    """
    prompts = [template.replace("{text}", text) for text in texts]
    found: dict[str, Any] = {"rows": len(prompts)}
    for way, space in _WAYS.items():
        labels = [space + label for label in end.labels]
        rows = model.classify(prompts, labels=labels, label_prefix="")
        gold = (labels[place % len(labels)] for place in range(len(rows)))
        masses = [max(row.label_mass or 0.0, _LEAST) for row in rows]
        found[way] = {
            "mass": float(f"{fmean(masses):.3g}"),
            "geometric": float(f"{geometric_mean(masses):.3g}"),
            "right": sum(row.label == right for row, right in zip(rows, gold, strict=True)),
        }
    return found


def markdown(ends: Sequence[dict[str, Any]]) -> str:
    """One line for each kind of end."""
    texts, _ = read()
    names = [name for name in _MODELS if name in ends[0]["prompts"][0]]
    columns = [f"{name} {what}" for name in names for what in ("mass", "right")]
    head = ["texts", "end", *columns, "default"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for end in ends:
        cells = [cell for name in names for cell in _cells(end["prompts"], name)]
        kind = end["kind"].replace("|", "\\|")
        lines.append(f"| {end['texts']} | {kind} | {' | '.join(cells)} | {default(end, texts)} |")
    return "\n".join(lines)


def _cells(prompts: Sequence[dict[str, Any]], name: str) -> Iterator[str]:
    found = [prompt[name] for prompt in prompts]
    right = [sum(both[way]["right"] for both in found) for way in _WAYS]
    yield f"{ratio(found):.2g}"
    yield f"{right[0]} -> {right[1]} of {sum(both['rows'] for both in found)}"


def ratio(found: Sequence[dict[str, Any]]) -> float:
    """How many times the mass without the space is that with it: the geometric mean over rows."""
    return geometric_mean(
        both["without"]["geometric"] / both["with"]["geometric"] for both in found
    )


def default(end: dict[str, Any], texts: dict[str, list[str]]) -> str:
    """Return how labels are joined where nothing is said: ``space``, ``none``, or ``both``."""
    found = {
        bool(unspaced(prompt["template"].replace("{text}", text)))
        for prompt in end["prompts"]
        for text in texts[end["texts"]]
    }
    return "both" if len(found) == 2 else "none" if found.pop() else "space"


if __name__ == "__main__":
    main()
