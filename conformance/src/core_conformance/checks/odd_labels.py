"""Labels that differ by a blank or by what stands behind a NUL are labels of their own."""

from __future__ import annotations

from core.errors import LabelError
from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.ask import classify, tokenizing
from core_conformance.checking.check import must, testable
from core_conformance.checking.compare import label_logprobs, same_logprobs
from core_conformance.checking.registry import check
from core_conformance.checking.subject import Subject

_SPACED = ("good", " good", "good ", "bad\n", "\tbad")
_NUL = ("good", "good\0bad", "bad")


@check(
    "labels.blanks",
    "A label MUST be taken as it is given, blanks in front and behind included",
    Capability.CLASSIFY,
    Capability.LABELS,
    broad=True,
)
def blanks_belong_to_labels(subject: Subject) -> None:
    for prefix in (" ", ""):
        labels = _told_apart(subject, _SPACED, prefix)
        result = classify(subject, [ask.QUESTION], labels=labels, label_prefix=prefix)[0]
        found = label_logprobs(result)
        must(tuple(found) == labels, f"labels={labels!r} came back as {list(found)}")
        for label in labels:
            spelled = classify(subject, [ask.QUESTION], labels=(prefix + label,), label_prefix="")[
                0
            ]
            wanted = {label: label_logprobs(spelled)[prefix + label]}
            same_logprobs(subject, wanted, result, f"{label!r} among {labels}, and spelled alone")


@check(
    "labels.nul",
    "A NUL MUST NOT end a label: what stands behind it counts",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def nul_ends_no_label(subject: Subject) -> None:
    try:
        result = classify(subject, [ask.QUESTION], labels=_NUL)[0]
    except LabelError as error:
        must(False, f"labels={_NUL!r} raised {error!r}: text behind a NUL tells labels apart")
        return
    found = label_logprobs(result)
    must(tuple(found) == _NUL, f"labels={_NUL!r} came back as {list(found)}")
    must(
        abs(found[_NUL[0]] - found[_NUL[1]]) > 1e-9,
        f"the labels {_NUL[:2]!r} have the same logprob, {found[_NUL[0]]}",
    )


def _told_apart(subject: Subject, labels: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    """The first label, and those of which this model's tokenizer makes other tokens."""
    shown = subject.declares(Capability.TOKENIZING)
    left = [labels[0]]
    for label in labels[1:]:
        try:
            subject.model.classify([ask.QUESTION], labels=[*left, label], label_prefix=prefix)
        except LabelError as error:
            texts = [f"{ask.QUESTION}{prefix}{each}" for each in (*left, label)]
            ids = {tuple(tokenizing(subject).encode(text)) for text in texts if shown}
            must(len(ids) < len(texts), f"labels of other tokens each, {texts}, raised {error!r}")
            continue
        left.append(label)
    testable(len(left) > 1, f"to the tokenizer {labels!r} are all the same")
    return tuple(left)
