"""Options in pairs where nothing is generated: classify, classify_iter and score.

Each result is compared with that of its prompt without options, and its token with what
its logits, worked out with the options, allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

from core.extensions import ClassifyStreaming
from core.kit.labels import label_texts
from core.options import GenerateConfig
from core.protocols import Capability, TextModel
from core.types import ClassifyResult, Score
from core_conformance.checking import ask, budget
from core_conformance.checking.ask import (
    Answer,
    evidence,
    read,
    row_logits,
    sampled,
    scoring,
    tokenizing,
)
from core_conformance.checking.check import check, must
from core_conformance.checking.compare import (
    LONGEST_LABEL,
    best_label,
    near,
    same_logits,
    same_logprobs,
)
from core_conformance.checking.draws.cases import (
    REQUEST,
    SAMPLING,
    Factors,
    ask_in_form,
    options,
    shown,
    table,
)
from core_conformance.checking.draws.judging import agree, drawn_well, step_cost
from core_conformance.checking.draws.pairwise import pairwise
from core_conformance.checking.subject import Subject

_ASKED = (ask.REPEATING[0], ask.PLAIN[1], ask.LONG, ask.SHORT, ask.PLAIN[4])
_LABELS: Factors = {
    "labels": ((), ask.LABELS[:2], ask.SEVERAL_WORDS),  # of the reference: one token, and several
    "label_prefix": (" ", ": "),
    "labels_only": (False, True),
}
_FOREIGN = {"max_tokens": 1, "stop": ("e",), "stop_tokens": (1, 2, 3)}
_SCORED = ("The weather today is", "Once upon a time there was")
_CONTINUED = (" good and", " a king")
_OF_OTHERS: dict[str, Any] = {
    "temperature": 0.5,
    "repeat_penalty": 1.5,
    "labels": ("good", "bad"),
    "max_tokens": 1,
    "stop": ("e",),
}

Ask = Callable[..., list[ClassifyResult]]
_plain: WeakKeyDictionary[Subject, dict[str, list[ClassifyResult]]] = WeakKeyDictionary()


def classify(
    model: TextModel, prompts: Sequence[str], *config: Any, **settings: Any
) -> list[ClassifyResult]:
    return model.classify(prompts, *config, **settings)


def classify_iter(
    model: TextModel, prompts: Sequence[str], *config: Any, **settings: Any
) -> list[ClassifyResult]:
    streaming = cast("ClassifyStreaming", model)
    return list(streaming.classify_iter(iter(prompts), *config, **settings))


@check(
    "pairs.classify",
    "Options MUST count together as each alone, in classify: token, logprob, logits and labels",
    Capability.CLASSIFY,
    broad=True,
)
def in_classify(subject: Subject) -> None:
    _in_pairs(subject, classify, 0.0)


@check(
    "pairs.classify-iter",
    "Options MUST count together as each alone, in classify_iter",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
    broad=True,
)
def in_classify_iter(subject: Subject) -> None:
    _in_pairs(subject, classify_iter, 0.5)


@check(
    "pairs.score",
    "A config with cancel, timeout and options of other operations MUST change no score",
    Capability.SCORING,
    broad=True,
)
def in_score(subject: Subject) -> None:
    model = scoring(subject)
    plain = ask.score(subject, _SCORED, _CONTINUED)
    for case in pairwise(REQUEST | {"others": ({}, _OF_OTHERS)}, subject.effort.seed):
        request = options(case, "others")
        if case["form"] == "keywords":
            scores = model.score(_SCORED, _CONTINUED, GenerateConfig(**case["others"]), **request)
        else:
            scores = model.score(_SCORED, _CONTINUED, GenerateConfig(**case["others"], **request))
        call = shown("score", _SCORED, case["others"] | request)
        for one, other in zip(plain, scores, strict=True):
            _same_score(subject, call, one, other)


def _same_score(subject: Subject, call: str, plain: Score, scored: Score) -> None:
    must(scored.error is None, f"{call} gave the error {scored.error!r}")
    pairs = list(zip(plain.token_logprobs, scored.token_logprobs, strict=False))
    must(
        len(plain.token_logprobs) == len(scored.token_logprobs)
        and all(near(subject, one, other) for one, other in pairs),
        f"{call} gave {scored!r}, and without options {plain!r}",
    )


def _in_pairs(subject: Subject, call: Ask, part: float) -> None:
    labels = _LABELS if subject.declares(Capability.LABELS) else {}
    logits: Factors = {"return_logits": (False, True)}
    cases = table(subject, SAMPLING, logits, labels, REQUEST, part=part)
    cost = len(_ASKED) * (2 + step_cost(subject))
    for case in budget.within(subject, cases, lambda _: cost, "cases"):
        request = options(case)
        results, request = ask_in_form(
            case["form"], request, _FOREIGN, partial(call, subject.model, _ASKED)
        )
        what = shown(call.__name__, _ASKED, request, case["form"], _FOREIGN)
        must(len(results) == len(_ASKED), f"{what} gave {len(results)} results")
        _judge(subject, what, results, request)


def _judge(
    subject: Subject, call: str, results: Sequence[ClassifyResult], request: dict[str, Any]
) -> None:
    same = {name: request[name] for name in ("labels", "label_prefix") if name in request}
    plain = _without_options(subject, **same)
    for place, (prompt, result) in enumerate(zip(_ASKED, results, strict=True)):
        where = f"{call}: {prompt!r:.60}"
        must(result.error is None, f"{where} has the error {result.error!r}")
        _judge_logits(subject, where, place, result, request)
        _judge_labels(subject, where, prompt, plain[place], result, request)
        if result.token is not None or not request.get("labels_only"):  # then it may stay away
            drawn_well(subject, where, sampled(result, prompt), request)

    if request.get("seed") is not None and subject.declares(Capability.GENERATE):
        pairs = list(_first_tokens(subject, results, request))
        agree(subject, f"{call}, and what generate draws first", pairs, request)


def _without_options(subject: Subject, **extras: Any) -> list[ClassifyResult]:
    """Return the results with these options alone, of which each is checked elsewhere."""
    known = _plain.setdefault(subject, {})
    if repr(extras) not in known:
        known[repr(extras)] = ask.classify(subject, _ASKED, **extras)
    return known[repr(extras)]


def _judge_logits(
    subject: Subject, call: str, place: int, result: ClassifyResult, request: dict[str, Any]
) -> None:
    if not request.get("return_logits"):
        must(result.logits is None, f"{call} has logits, which were not requested")
    elif result.logits is not None or not request.get("labels_only"):
        wanted = _without_options(subject, return_logits=True)[place]
        same_logits(subject, row_logits(wanted), row_logits(result), call)


def _judge_labels(
    subject: Subject,
    call: str,
    prompt: str,
    wanted: ClassifyResult,
    result: ClassifyResult,
    request: dict[str, Any],
) -> None:
    shares, only = result.probabilities, bool(request.get("labels_only"))
    if not request.get("labels"):
        must(result.label is None and shares is None, f"{call} has labels, but none were given")
        return
    best_label(subject, wanted, result, call)

    # What is not given is what labels_only excuses.
    if result.logprobs is not None or not only:
        same_logprobs(subject, wanted.logprobs or {}, result, call)
    must(
        result.label_mass is None
        if wanted.label_mass is None
        else (result.label_mass is None and only)
        or _close(subject, result.label_mass or 0.0, wanted.label_mass),
        f"{call} has the label_mass {result.label_mass}, and without options {wanted.label_mass}",
    )
    if shares is None and only and not _are_tokens(subject, prompt, request):
        must(result.margin is None, f"{call} has the margin {result.margin} without probabilities")
    else:
        _judge_shares(subject, call, wanted.probabilities or {}, result)


def _judge_shares(
    subject: Subject, call: str, expected: Mapping[str, float], result: ClassifyResult
) -> None:
    shares = result.probabilities or {}
    differs = f"{call} has the probabilities {result.probabilities}, and without options {expected}"
    must(list(shares) == list(expected), differs)
    for label, share in shares.items():
        must(_close(subject, share, expected[label]), differs)
    ranked = sorted(shares.values())
    must(
        shares[result.label or ""] >= ranked[-1] - 1e-6
        and abs((result.margin or 0.0) - (ranked[-1] - ranked[-2])) < 1e-4,
        f"{call} has the label {result.label!r} and the margin {result.margin} for {shares}",
    )


def _are_tokens(subject: Subject, prompt: str, request: dict[str, Any]) -> bool:
    """Return True for labels of which each is known to be one token after the prompt."""
    if not subject.declares(Capability.TOKENIZING):
        return False
    encode = tokenizing(subject).encode
    texts = label_texts(prompt, request["labels"], request.get("label_prefix", " "))
    return all([*encode(prompt + text)][:-1] == [*encode(prompt)] for text in texts)


def _close(subject: Subject, one: float, other: float) -> bool:
    """Return True for probabilities whose logarithms are as near as those of labels have to be."""
    reach = 2 * LONGEST_LABEL * subject.tolerance
    return abs(one - other) <= 1e-4 + max(one, other) * -math.expm1(-2 * reach)


def _first_tokens(
    subject: Subject, results: Iterable[ClassifyResult], request: dict[str, Any]
) -> Iterator[tuple[Answer, Answer]]:
    """Yield generate's first draw after each prompt, with classify's draw."""
    same = {name: request[name] for name in SAMPLING if name in request} | evidence(subject)
    for prompt, result in zip(_ASKED[:2], results, strict=False):
        first = read(subject.model.generate(prompt, max_tokens=1, **same), prompt)
        if first.tokens and result.token is not None:  # the end of the text is not a token
            yield Answer(first.tokens, None, prompt), sampled(result, prompt)
