"""Labels by their texts and tokens: prefixes, like tokens, and what labels_only gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

from core.errors import LabelError
from core.extensions import ClassifyStreaming
from core.kit.labels import label_texts
from core.protocols import Capability
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.ask import classify, tokenizing
from core_conformance.checking.calls import must_raise
from core_conformance.checking.check import check, must
from core_conformance.checking.compare import label_logprobs, near, same_logprobs
from core_conformance.checking.subject import Subject

_PREFIXES = ("\n", ": ", "")
_ENDS = (":", " (", " ")  # after which a space is written, and is not, and is there
_ALIKE = (
    ("Good", "good"),
    ("caf\u00e9", "cafe\u0301"),
    ("\ufb01ne", "fine"),
    ("good\u00a0day", "good day"),
)  # to a tokenizer that folds case, composes or maps characters, or white space
_FIELDS = ("label", "probabilities", "logprobs", "label_mass", "margin", "token", "logits")


@check(
    "labels.prefixes",
    "label_prefix MUST be inserted as given, and left out after white space; one of white space is "
    "also left out where the text takes no space, and before a label that begins with white space; "
    "an empty one inserts nothing",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def prefixes_are_inserted(subject: Subject) -> None:
    labels = (*ask.LABELS[:2], f" {ask.LABELS[2]}")
    prompts = [ask.QUESTION + end for end in _ENDS]
    for prefix in _PREFIXES:
        results = classify(subject, prompts, labels=labels, label_prefix=prefix)
        for end, prompt, result in zip(_ENDS, prompts, results, strict=True):
            spelled = [_lead(end, prefix, label) + label for label in labels]
            (wanted,) = classify(subject, [prompt], labels=spelled, label_prefix="")
            logprobs = dict(zip(labels, label_logprobs(wanted).values(), strict=True))
            what = f"after {prompt!r} with label_prefix={prefix!r}, against the labels {spelled}"
            same_logprobs(subject, logprobs, result, what)

    prompt = f"{ask.QUESTION}:"
    spaced, bare = (
        label_logprobs(classify(subject, [prompt], labels=ask.LABELS, label_prefix=prefix)[0])
        for prefix in (" ", "")
    )
    must(
        any(not near(subject, bare[label], spaced[label]) for label in ask.LABELS),
        "label_prefix='' gives every label the logprob that ' ' gives it",
    )


@check(
    "labels.same-tokens",
    "Labels with the same tokens after a prompt MUST raise LabelError for the whole call, in "
    "classify_iter when it takes that prompt; labels of other tokens, such as those that differ in "
    "case, MUST each have their own logprob",
    Capability.CLASSIFY,
    Capability.LABELS,
    Capability.TOKENIZING,
)
def like_labels(subject: Subject) -> None:
    encode = tokenizing(subject).encode
    prompts = (f"{ask.PLAIN[1]}:", f"{ask.QUESTION}:")
    for labels in _ALIKE:
        ids = [[list(encode(f"{prompt} {label}")) for label in labels] for prompt in prompts]
        if any(one == other for one, other in ids):
            call = partial(subject.model.classify, prompts, labels=labels)
            must_raise(LabelError, call, f"classify with {labels}, which have the same tokens,")
            if subject.declares(Capability.CLASSIFY_STREAMING):
                streaming = cast("ClassifyStreaming", subject.model)
                stream = streaming.classify_iter(iter(prompts), labels=labels)
                must_raise(LabelError, partial(list, stream), f"classify_iter with {labels}")
        else:
            _have_their_own(subject, prompts, labels)


def _have_their_own(subject: Subject, prompts: Sequence[str], labels: Sequence[str]) -> None:
    together = classify(subject, prompts, labels=labels)
    for label in labels:
        alone = classify(subject, prompts, labels=(label,))
        for wanted, result in zip(alone, together, strict=True):
            what = f"alone, and among {labels}"
            same_logprobs(subject, label_logprobs(wanted), result, what)


@check(
    "labels.only-fields",
    "With labels_only, probabilities and margin MUST be given where each label is one token after "
    "the prompt; the fields that are given depend on the tokens, never on numbers or neighbours; "
    "with return_logprobs or return_logits it changes nothing",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def fields_of_labels_only(subject: Subject) -> None:
    for labels in (ask.LABELS[:2], ask.SEVERAL_WORDS):  # of the reference: one token, and several
        only: dict[str, Any] = {"labels": labels, "labels_only": True}
        together = classify(subject, ask.PLAIN, **only)
        for prompt, result in zip(ask.PLAIN[:2], together, strict=False):
            (alone,) = classify(subject, [prompt], **only)
            must(
                _given(alone) == _given(result),
                f"labels_only gives {_given(alone)} after {prompt!r}, and in a batch "
                f"{_given(result)}",
            )
        for group in _of_like_tokens(subject, labels):
            fields = [_given(together[place]) for place in group]
            must(
                len(set(fields)) == 1,
                f"labels={labels} have the same tokens after {[ask.PLAIN[i] for i in group]}, and "
                f"labels_only gives {fields}",
            )
            _has_shares(subject, labels, [together[place] for place in group], group[0])

    for option, need in (
        ("return_logprobs", Capability.LOGPROBS),
        ("return_logits", Capability.LOGITS),
    ):
        if subject.declares(need):
            _changes_nothing(subject, {option: True})


def _lead(end: str, prefix: str, label: str) -> str:
    """Return what stands between a prompt that ends so and a label, by docs/options.md."""
    left_out = prefix.isspace() and (end == " (" or label[:1].isspace())
    return "" if end == " " or left_out else prefix


def _given(result: ClassifyResult) -> tuple[str, ...]:
    return tuple(name for name in _FIELDS if getattr(result, name) is not None)


def _paths(subject: Subject, prompt: str, labels: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return each label's tokens after a prompt; none where one joins the prompt's end."""
    encode = tokenizing(subject).encode
    head = list(encode(prompt))
    whole = [list(encode(prompt + text)) for text in label_texts(prompt, labels, " ")]
    if any(ids[: len(head)] != head for ids in whole):
        return ()
    return tuple(tuple(ids[len(head) :]) for ids in whole)


def _of_like_tokens(subject: Subject, labels: Sequence[str]) -> Iterator[list[int]]:
    """Yield the numbers of the prompts after which the labels have the same tokens."""
    if not subject.declares(Capability.TOKENIZING):
        return
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for place, prompt in enumerate(ask.PLAIN):
        if paths := _paths(subject, prompt, labels):
            groups.setdefault(paths, []).append(place)
    yield from groups.values()


def _has_shares(
    subject: Subject, labels: Sequence[str], results: Sequence[ClassifyResult], place: int
) -> None:
    """Check that labels of one token each have probabilities and a margin."""
    if any(len(path) > 1 for path in _paths(subject, ask.PLAIN[place], labels)):
        return
    for result in results:
        must(
            result.probabilities is not None and result.margin is not None,
            f"each of labels={labels} is one token, and labels_only gives {result!r}",
        )


def _changes_nothing(subject: Subject, option: dict[str, Any]) -> None:
    prompts, labels = ask.PLAIN[:3], ask.SEVERAL_WORDS
    whole = classify(subject, prompts, labels=labels, **option)
    only = classify(subject, prompts, labels=labels, labels_only=True, **option)
    for wanted, result in zip(whole, only, strict=True):
        must(
            _given(result) == _given(wanted),
            f"labels_only with {option} gives {_given(result)}, and without it {_given(wanted)}",
        )
        same_logprobs(subject, label_logprobs(wanted), result, f"labels_only with {option}")
