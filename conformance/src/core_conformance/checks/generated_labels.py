"""Checks with generated labels and continuations: their scores are those of their tokens anywhere.

No score is known beforehand. Each is compared with that of a second load, run once and alone, and
with the log-probabilities of its tokens, one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from core.protocols import Capability
from core.types import ClassifyResult, Score
from core_conformance.checking.ask import (
    tokenizing,
)
from core_conformance.checking.check import check, must
from core_conformance.checking.compare import logprobs_by_steps, near, steps
from core_conformance.checking.generated import strategies
from core_conformance.checking.generated.lazily import st
from core_conformance.checking.generated.search import search
from core_conformance.checking.generated.world import (
    World,
    classify,
    same_error,
    score,
)
from core_conformance.checking.recall import telling
from core_conformance.checking.subject import Subject

_STEPS = 6


@check(
    "generated.labels",
    "Any labels MUST be judged by themselves: in whatever order, and as score says",
    Capability.CLASSIFY,
    Capability.LABELS,
    broad=True,
)
def any_labels(subject: Subject) -> None:
    inputs = st.tuples(
        st.lists(strategies.texts(3), min_size=1, max_size=3),
        strategies.labels(),
        strategies.prefixes(),
        st.randoms(use_true_random=False),
    )
    search(subject, inputs, _labelled, _labels_cost, most=16)


@check(
    "generated.scores",
    "Any continuation MUST be scored among others as alone: the sum of its tokens, step by step",
    Capability.SCORING,
    broad=True,
)
def any_scores(subject: Subject) -> None:
    pair = st.tuples(strategies.texts(3), strategies.texts(2).map(lambda text: text[:16]))
    inputs = st.lists(pair, min_size=1, max_size=5)
    search(subject, inputs, _scored, lambda pairs: 8 * len(pairs), most=30)


def _labels_cost(case: tuple[list[str], tuple[str, ...], str, Any]) -> float:
    prompts, labels, *_ = case
    return 3.0 * len(prompts) * (1 + len(labels))


def _labelled(world: World, case: tuple[list[str], tuple[str, ...], str, Any]) -> None:
    prompts, labels, prefix, random = case
    options = telling(world.subject) | {"labels": labels, "label_prefix": prefix}
    results = classify(world.model, prompts, options)
    world.same_rows(prompts, results, options, f"labels {labels!r} alone, and in")

    # Another order, and the numbers are the same.
    turned = tuple(random.sample(labels, len(labels)))
    others = classify(world.model, prompts, options | {"labels": turned})
    for prompt, result, other in zip(prompts, results, others, strict=True):
        what = f"labels {labels!r} with label_prefix={prefix!r} after {prompt!r:.80}"
        if not same_error(result.error, other.error, f"{what}, in another order"):
            continue
        _is_sound(world, labels, result, what)
        for label in labels:
            one, same = (result.logprobs or {})[label], (other.logprobs or {}).get(label, math.nan)
            must(
                near(world.subject, one, same, _most_tokens(label)),
                f"{what}: {label!r} has the logprob {one}, and in another order {same}",
            )
        if world.subject.declares(Capability.SCORING):
            _as_scored(world, prompt, labels, prefix, result, what)


def _is_sound(world: World, labels: Sequence[str], result: ClassifyResult, what: str) -> None:
    """Check that the numbers of a result are consistent."""
    logprobs, probabilities = result.logprobs or {}, result.probabilities or {}
    must(
        list(logprobs) == list(labels) == list(probabilities),
        f"{what}: logprobs of {list(logprobs)}, and probabilities of {list(probabilities)}",
    )

    top = max(logprobs.values())
    must(
        logprobs[result.label or ""] == top if result.label in logprobs else False,
        f"{what}: the label is {result.label!r}, and the logprobs are {logprobs}",
    )

    # The probabilities are shares of what the labels have together.
    weights = {  # where all are impossible, they are equally so
        label: 1.0 if value == top else math.exp(value - top) for label, value in logprobs.items()
    }
    total = math.fsum(weights.values())
    apart = max(abs(weights[label] / total - probabilities[label]) for label in labels)
    must(apart <= 1e-3, f"{what}: the probabilities are {probabilities}, of logprobs {logprobs}")

    # What they have together lies between the likeliest of them and their sum.
    mass, joint = result.label_mass or 0.0, [math.exp(value) for value in logprobs.values()]
    must(
        max(joint) - 1e-3 <= mass <= min(1.0, math.fsum(joint)) + 1e-3,
        f"{what}: label_mass is {mass}, and the labels' probabilities are {joint}",
    )


def _as_scored(
    world: World,
    prompt: str,
    labels: Sequence[str],
    prefix: str,
    result: ClassifyResult,
    what: str,
) -> None:
    if not world.subject.declares(Capability.TOKENIZING) or not _lead_is_known(prompt, prefix):
        return

    # Only where no token lies across the border: else all labels begin where the first one does.
    lead = "" if prompt[-1:].isspace() else prefix
    bare = lead.isspace()
    texts = {word: word if bare and word[0].isspace() else lead + word for word in labels}
    encode = tokenizing(world.subject).encode
    head = encode(prompt)
    if any(encode(prompt + text)[: len(head)] != head for text in texts.values()):
        return

    for label in labels[:2]:
        scored = world.scored(prompt, texts[label])
        one = (result.logprobs or {})[label]
        must(
            scored.error is None
            and near(world.subject, one, scored.logprob, len(scored.token_logprobs) + 1),
            f"{what}: {label!r} has the logprob {one}, and score() gives {scored!r}",
        )


def _lead_is_known(prompt: str, prefix: str) -> bool:
    """Return whether the prefix is surely written; labels.joining has ends without."""
    end = prompt[-1:]
    return not prefix.isspace() or end.isspace() or (end.isascii() and end.isalnum())


def _scored(world: World, pairs: list[tuple[str, str]]) -> None:
    prompts, continuations = [prompt for prompt, _ in pairs], [text for _, text in pairs]
    scores = score(world.model, prompts, continuations)
    for place, ((prompt, text), result) in enumerate(zip(pairs, scores, strict=True)):
        what = f"{text!r} after {prompt!r:.80}, pair {place} of {len(pairs)}"

        wanted = world.scored(prompt, text)
        if not same_error(wanted.error, result.error, what):
            continue

        parts = result.token_logprobs
        must(bool(parts) and max(parts) <= 1e-6, f"{what}: the token_logprobs are {parts}")
        total = math.fsum(parts)
        must(
            result.logprob == total or abs(result.logprob - total) <= 1e-3,
            f"{what}: logprob is {result.logprob}, and its tokens sum to {total}",
        )
        _same_score(world, wanted.token_logprobs, result, f"{what}, alone and here")

    for (prompt, text), result in list(zip(pairs, scores, strict=True))[:2]:
        _by_steps(world, prompt, text, result)


def _same_score(world: World, wanted: Sequence[float], scored: Score, what: str) -> None:
    parts = scored.token_logprobs
    must(
        len(wanted) == len(parts)
        and all(near(world.subject, *both) for both in zip(wanted, parts, strict=True)),
        f"{what}: {[*wanted]} against {[*parts]}",
    )


def _by_steps(world: World, prompt: str, text: str, scored: Score) -> None:
    subject = world.subject
    if scored.error or not subject.declares(
        Capability.CLASSIFY, Capability.LOGITS, Capability.TOKENIZING
    ):
        return
    steps_of = steps(subject, prompt, text)
    if steps_of is not None and len(steps_of) <= _STEPS:
        expected = logprobs_by_steps(subject, steps_of)
        _same_score(world, expected, scored, f"{text!r} after {prompt!r:.80}, step by step")


def _most_tokens(label: str) -> int:
    return len(label.encode()) + 2
