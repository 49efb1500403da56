"""Results of one item, and of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.records import RowResult, error_record, html_table, number, numbers

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """One text of a model: its answer, whether that is right, and why the text ended.

    ``sureness`` is the geometric mean probability of its tokens, if the backend returns them.
    """

    output: str
    said: str | None
    right: bool
    finish_reason: str
    tokens: int
    sureness: float | None = None


@dataclass(frozen=True, slots=True)
class ItemResult(RowResult):
    """One item with its mark.

    ``prediction`` is the chosen choice, or the text's answer; ``right`` is None if the item failed
    with an ``error``. For choices, ``sureness`` is the probability of the chosen one among all, and
    ``right_normalised`` the mark of the likeliest one per character; with label sentences it is
    None, and ``logprobs`` is empty. For texts, ``samples`` are all
    sampled texts, of which the first is the prediction; ``majority`` is their most frequent answer.
    ``again`` has for each further batch size whether the item is right there, and whether the
    answer is the same. ``among_examples``: the prompt contains the answer.
    """

    gold: str
    prediction: str | None = None
    right: bool | None = None
    sureness: float | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)
    logprobs: Mapping[str, float] = field(default_factory=dict)
    right_normalised: bool | None = None
    samples: tuple[Sample, ...] = ()
    majority: str | None = None
    majority_right: bool | None = None
    again: Mapping[int, tuple[bool, bool]] = field(default_factory=dict)
    among_examples: bool = False
    error: Exception | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON: the fields of a line of ``infer-cli eval``."""
        record: dict[str, Any] = {
            "gold": self.gold,
            "prediction": self.prediction,
            "right": self.right,
            "sureness": number(self.sureness),
        }
        if self.probabilities:
            record |= {
                "probabilities": numbers(self.probabilities),
                "logprobs": numbers(self.logprobs or None),
                "right_normalised": self.right_normalised,
            }
        if self.samples:
            record |= {
                "output": self.samples[0].output,
                "finish_reason": self.samples[0].finish_reason,
                "tokens": sum(sample.tokens for sample in self.samples),
            }
        if len(self.samples) > 1:
            record |= {
                "samples": [
                    {"output": one.output, "said": one.said, "right": one.right}
                    for one in self.samples
                ],
                "majority": self.majority,
                "majority_right": self.majority_right,
            }
        if self.again:
            record["batch_sizes"] = {
                str(size): {"right": right, "same": same}
                for size, (right, same) in self.again.items()
            }
        return {**record, "among_examples": self.among_examples, "error": error_record(self.error)}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The marks of all items, and their summary.

    ``accuracy`` is for the items that did not fail, with its ``interval`` (95 %, Wilson);
    ``report`` has all metrics, as `infer-cli eval --report` writes them.
    """

    items: tuple[ItemResult, ...]
    accuracy: float | None
    interval: tuple[float, float] | None
    report: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the report and the items for JSON."""
        return {**self.report, "items": [item.to_dict() for item in self.items]}

    def _repr_html_(self) -> str:
        """Return an HTML table of the metrics for notebooks."""
        rows = [(name, v) for name, v in self.report.items() if not isinstance(v, dict | list)]
        return html_table(("measure", "value"), rows)
