"""Checks of texts that a tool on the way may rewrite: line ends, accents, and labels with these."""

from __future__ import annotations

from core.errors import LabelError
from core.protocols import Capability
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.ask import classify
from core_conformance.checking.check import check, must
from core_conformance.checking.subject import Subject

_SETS = (
    ("caf\u00e9", "tea", "wine"),
    ("cafe\u0301", "tea", "wine"),
    ("cafe\u0301", "caf\u00e9", "tea"),
    ("\uff34ea", "Tea", "wine"),
    ("tea\r\n", "wine\n", "water "),
)


@check(
    "labels.as-given",
    "A label MUST be named in the results as it was given, whatever its accents, width and blanks; "
    "labels with the same tokens are a LabelError",
    Capability.LABELS,
    (Capability.CLASSIFY, Capability.LABEL_SENTENCES),
    broad=True,
)
def labels_are_named_as_given(subject: Subject) -> None:
    for labels in _SETS:
        rows: list[ClassifyResult] = []
        try:
            rows += classify(subject, [ask.PLAIN[0]], labels=labels)
        except LabelError:
            must(True, "labels that the tokenizer cannot tell apart were refused")
        for row in rows:
            must(
                row.label in labels and list(row.probabilities or {}) == list(labels),
                f"classify with labels={labels!r} gave {row.label!r} of {row.probabilities}",
            )
