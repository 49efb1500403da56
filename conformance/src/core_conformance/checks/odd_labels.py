"""Labels that differ by a blank or by what follows a NUL, and prompts that take no space."""

from __future__ import annotations

import math

from core.errors import LabelError
from core.protocols import Capability
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.ask import classify, tokenizing
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import label_logprobs, same_logprobs
from core_conformance.checking.subject import Subject

_SPACED = ("good", "  good", "good ", "bad\n", "\tbad")
_NUL = ("good", "good\0bad", "bad")
# A row or more for each kind of ending in the table of docs/options.md.
_UNSPACED_ENDS = (
    *(
        " (",
        " [",
        " {",
        " <",
        ' "',
        ' {"a":"',
        " '",
        " `",
        " \u201e",
        " \u201c",
        " \u2018",
        " \u201a",
    ),
    *(" \u00ab", " \u00bf", " \u00a1", " *", " **", " #", " @", " \\", " ~", " $", " <b>"),
    *(" a=", " a_", " a/", " a&", " a-", " a\u2013"),
    *("\u662f", "\u306f", "\u0e01", "\u0e81", "\u1780"),  # Chinese, Japanese, Thai, Lao, Khmer
    *("\u3002", "\uff1a", "\u300c", "\uff09", "\u662f\u201d", "\u662f)"),
)
_SPACED_ENDS = (
    *(":", ",", ".", ";", "?", "!", ")", "]", ' "a"', " \u201ea\u201c", "'", "</b>"),
    *(" ->", " =>", " \u2192", " =", " -", " \u2013", " \u2014", " /", " &", " \u00bb"),
    *("\n-", "\n*", "\n##", " \u2022", " C#", " 5$", " 5"),
    *(
        " \ud55c",
        "\u1019",
        "\u662f:",
        "\u662fabc",
    ),  # Korean, Burmese; a sign and a word after Chinese
)


@check(
    "labels.blanks",
    "A label MUST be taken as it is given; one that begins with white space takes no label_prefix "
    "of white space",
    Capability.CLASSIFY,
    Capability.LABELS,
    broad=True,
)
def blanks_belong_to_labels(subject: Subject) -> None:
    labels = _told_apart(subject, _SPACED)
    result = classify(subject, [ask.QUESTION], labels=labels)[0]
    logprobs = label_logprobs(result)
    must(tuple(logprobs) == labels, f"labels={labels!r} came back as {list(logprobs)}")
    spelled = tuple(map(_after_a_word, labels))
    other = classify(subject, [ask.QUESTION], labels=spelled, label_prefix="")[0]
    wanted = dict(zip(labels, label_logprobs(other).values(), strict=True))
    same_logprobs(subject, wanted, result, f"{labels}, and spelled with their prefix")
    for label in labels[1:3]:
        alone = classify(subject, [ask.QUESTION], labels=(label,))[0]
        same_logprobs(subject, label_logprobs(alone), result, f"{label!r} among {labels}")


@check(
    "labels.joining",
    "A label_prefix of white space MUST be left out where the text takes no space, and only there: "
    "after every kind of ending that docs/options.md lists",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def a_space_is_left_out_where_none_belongs(subject: Subject) -> None:
    spaced = tuple(f" {label}" for label in ask.LABELS)
    for ends, spelled in ((_UNSPACED_ENDS, ask.LABELS), (_SPACED_ENDS, spaced)):
        prompts = tuple(ask.QUESTION + end for end in ends)
        wanted = classify(subject, prompts, labels=spelled, label_prefix="")
        results = classify(subject, prompts, labels=ask.LABELS)
        for prompt, one, other in zip(prompts, wanted, results, strict=True):
            logprobs = dict(zip(ask.LABELS, label_logprobs(one).values(), strict=True))
            same_logprobs(subject, logprobs, other, f"after {prompt!r}, against {spelled}")


@check(
    "labels.nul",
    "A NUL MUST NOT end a label: what stands after it counts",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def nul_ends_no_label(subject: Subject) -> None:
    try:
        result = classify(subject, [ask.QUESTION], labels=_NUL)[0]
    except LabelError as error:
        must(
            False,
            f"labels={_NUL!r} raised {error!r}: labels that differ only after a NUL are distinct",
        )
        return
    logprobs = label_logprobs(result)
    must(tuple(logprobs) == _NUL, f"labels={_NUL!r} came back as {list(logprobs)}")
    possible = max(logprobs[_NUL[0]], logprobs[_NUL[1]]) > -math.inf
    testable(possible, f"the log-probability of each of {_NUL[:2]!r} is -inf: use another model")
    must(
        abs(logprobs[_NUL[0]] - logprobs[_NUL[1]]) > 1e-9,
        f"the labels {_NUL[:2]!r} have the same logprob, {logprobs[_NUL[0]]}",
    )


def _told_apart(subject: Subject, labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the labels that this model's tokenizer turns into different tokens, or all."""
    left = list[str]()
    if _refusal(subject, labels) is None:
        return labels
    for label in labels:
        error = _refusal(subject, (*left, label))
        if error is None:
            left.append(label)
        elif subject.declares(Capability.TOKENIZING):
            encode = tokenizing(subject).encode
            ids = {tuple(encode(ask.QUESTION + _after_a_word(text))) for text in (*left, label)}
            must(
                len(ids) <= len(left), f"labels of other tokens each, {left}, {label!r}: {error!r}"
            )
    testable(len(left) > 1, f"to the tokenizer {labels!r} are all the same")
    return tuple(left)


def _after_a_word(label: str) -> str:
    return label if label[0].isspace() else f" {label}"


def _refusal(subject: Subject, labels: tuple[str, ...]) -> LabelError | None:
    try:
        subject.model.classify([ask.QUESTION], labels=labels)
    except LabelError as error:
        return error
    return None


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
    (Capability.CLASSIFY, Capability.LABEL_SENTENCES),
    Capability.LABELS,
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
