"""Checks of texts that a tool on the way may rewrite: line ends, accents, and labels with these."""

from __future__ import annotations

from core.errors import LabelError
from core.protocols import Capability
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.ask import classify, tokenizing
from core_conformance.checking.check import check, must
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.table import ways

_TEXTS = (
    *ask.ODD.values(),
    "one\r\ntwo",
    "one\rtwo",
    "\ufeffone",
    "one\n",
    " one ",
    "e\u0301\u00e9",
)
_SETS = (
    ("caf\u00e9", "tea", "wine"),
    ("cafe\u0301", "tea", "wine"),
    ("cafe\u0301", "caf\u00e9", "tea"),
    ("\uff34ea", "Tea", "wine"),
    ("tea\r\n", "wine\n", "water "),
)


@check(
    "tokenizing.read",
    "encode() MUST give as many tokens as each operation counts for this text: line ends, marks "
    "and blanks are not rewritten in one of them",
    Capability.TOKENIZING,
    broad=True,
)
def encode_is_what_is_read(subject: Subject) -> None:
    encode, model = tokenizing(subject).encode, subject.model
    for way in ways(subject, *_COUNTED):
        for text in _TEXTS:
            way.ask(model, [text], way.options(subject, 1))
            counted, wanted = model.metrics.prompt_tokens, len(encode(text))
            must(
                counted == wanted,
                f"{way.name} counts {counted} prompt_tokens of {text!r}, and encode() gives "
                f"{wanted}",
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


_COUNTED = (
    Capability.GENERATE,
    Capability.BATCH_GENERATE,
    Capability.CLASSIFY,
    Capability.LABEL_SENTENCES,
)
