"""Checks of draws against the distribution that the logits give."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import (
    SPEAKING,
    classify,
    generate,
    logits,
    row_logits,
    seeds,
    token,
    tokenizing,
)
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import (
    later_steps,
    log_softmax,
    log_total,
    near,
    rarely_different,
)
from core_conformance.checking.subject import Subject

_ASKED = ask.PLAIN[:4]
_WARM = 3.0  # so warm that a filter which is left out lets something through
_DRAWS = 24
_SIGMAS = 6.0
_NO_LEAD = "use a model some of whose tokens are clearly likelier than others"


@check(
    "sampling.top-k",
    "top_k=k MUST leave the k likeliest tokens and no other",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def top_k_excludes(subject: Subject) -> None:
    def allowed(row: Sequence[float], drawn: int, slack: float) -> bool:
        return row[drawn] >= sorted(row, reverse=True)[2] - slack

    _excludes(subject, {"top_k": 3}, allowed)


@check(
    "sampling.top-p",
    "top_p=p MUST leave the smallest set of likeliest tokens with probability p, at temperature 1",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def top_p_excludes(subject: Subject) -> None:
    def allowed(row: Sequence[float], drawn: int, slack: float) -> bool:
        total, least = log_total(row), row[drawn] + slack
        likelier = math.fsum(math.exp(value - total) for value in row if value > least)
        return likelier < 0.3 + slack

    _excludes(subject, {"top_p": 0.3}, allowed)


@check(
    "sampling.min-p",
    "min_p=m MUST leave no token less than m times as likely as the best, at temperature 1",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def min_p_excludes(subject: Subject) -> None:
    def allowed(row: Sequence[float], drawn: int, slack: float) -> bool:
        return row[drawn] >= max(row) + math.log(0.3) - slack

    _excludes(subject, {"min_p": 0.3}, allowed)


@check(
    "sampling.frequencies",
    "Draws MUST follow the softmax of logits / temperature",
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def draws_follow_the_logits(subject: Subject) -> None:
    prompt = _ASKED[1]
    row = logits(subject, [prompt])[0]
    testable(max(row) > min(row), _NO_LEAD)
    for temperature in (1.0, 4.0):
        drawn = [
            token(classify(subject, [prompt], temperature=temperature, **options)[0]).id
            for options in seeds(subject, _DRAWS)
        ]
        _is_typical(subject, [value / temperature for value in row], drawn, temperature)


@check(
    "sampling.repeat-penalty",
    "repeat_penalty MUST divide the positive logits of the prompt's tokens, multiply the negative",
    Capability.CLASSIFY,
    Capability.LOGITS,
    Capability.TOKENIZING,
)
def penalty_is_exact(subject: Subject) -> None:
    prompts = (*ask.REPEATING, ask.LONG)
    rows, changed = logits(subject, prompts), 0
    for penalty in (0.02, 0.5, 1.3, 8.0):  # below 1, it makes what was seen likelier
        results = classify(subject, prompts, repeat_penalty=penalty)

        for prompt, row, result in zip(prompts, rows, results, strict=True):
            scores = list(row)
            for seen in set(tokenizing(subject).encode(prompt)):
                scores[seen] *= penalty if scores[seen] < 0 else 1 / penalty

            chosen, best = scores[token(result).id], max(scores)
            changed += row[scores.index(best)] < max(row)
            must(
                chosen >= best - 2 * subject.tolerance * max(penalty, 1 / penalty),
                f"repeat_penalty={penalty:g} on {prompt!r}: token {token(result)!r} has the "
                f"penalised logit {chosen:.4g}, and the best is {best:.4g}",
            )

    testable(changed > 0, f"no penalty changes what the model says greedily: {_NO_LEAD}")


@check(
    "sampling.repeat-penalty-output",
    "repeat_penalty MUST also count the tokens generated so far",
    Capability.GENERATE,
    Capability.CLASSIFY,
    Capability.TOKENIZING,
)
def output_counts(subject: Subject) -> None:
    for prompt, penalty in ((ask.REPEATING[0], 1.5), (ask.PLAIN[2], 0.2)):
        answer = generate(subject, prompt, 12, repeat_penalty=penalty)
        goes_on(subject, [answer.tokens])
        pairs = later_steps(subject, prompt, answer, repeat_penalty=penalty)
        what = f"repeat_penalty={penalty:g} after {prompt!r}: generate, and classify step by step"
        rarely_different(subject, pairs, what)


@check(
    "sampling.repeat-penalty-huge",
    "A huge repeat_penalty MUST keep every token from being generated twice",
    SPEAKING,
)
def huge_penalty_forbids(subject: Subject) -> None:
    prompt = ask.REPEATING[0]
    testable(
        _has_room(subject, prompt),
        "fewer than 20 tokens have a positive logit, so that a penalised one may be the best: take "
        "another model",
    )
    ids = generate(subject, prompt, 20, repeat_penalty=1e6).ids
    goes_on(subject, [ids[1:]])
    must(
        len(set(ids)) == len(ids),
        f"repeat_penalty=1e6 on {prompt!r}, and tokens repeat: {list(ids)}",
    )


@check(
    "sampling.logprobs",
    "return_logprobs MUST give each token the natural-log probability that the model gave it",
    SPEAKING,
    Capability.LOGPROBS,
)
def logprobs_are_logprobs(subject: Subject) -> None:
    answers = [generate(subject, prompt, 4, return_logprobs=True).tokens for prompt in _ASKED[:2]]
    for drawn in itertools.chain(*answers):
        must(
            isinstance(drawn.logprob, float) and drawn.logprob <= 1e-6,
            f"return_logprobs=True, and {drawn!r} has no logarithm of a probability",
        )
    goes_on(subject, answers)


@check(
    "sampling.logprobs-of-logits",
    "A logprob MUST be the log-softmax of the logits",
    Capability.CLASSIFY,
    Capability.LOGITS,
    Capability.LOGPROBS,
)
def logprobs_agree_with_logits(subject: Subject) -> None:
    results = classify(subject, _ASKED, return_logits=True, return_logprobs=True)
    for prompt, result in zip(_ASKED, results, strict=True):
        drawn, row = token(result), row_logits(result)
        expected = row[drawn.id] - log_total(row)
        must(
            drawn.logprob is not None and near(subject, drawn.logprob, expected),
            f"classify({prompt!r}): {drawn!r}; the log-softmax of its logit is {expected:.5f}",
        )

        if subject.declares(Capability.GENERATE):
            for first in generate(subject, prompt, 1).tokens:
                wanted = row[first.id] - log_total(row)
                must(
                    first.logprob is not None and near(subject, first.logprob, wanted),
                    f"generate({prompt!r}): {first!r}; the log-softmax is {wanted:.5f}",
                )


def _excludes(
    subject: Subject,
    filters: dict[str, float],
    allowed: Callable[[Sequence[float], int, float], bool],
) -> None:
    """Check that draws from several prompts with several seeds stay within ``allowed``."""
    rows = logits(subject, _ASKED)
    slack = 2 * subject.tolerance + 1e-4
    for options in seeds(subject, 6):
        results = classify(subject, _ASKED, temperature=_WARM, **filters, **options)
        for prompt, row, result in zip(_ASKED, rows, results, strict=True):
            drawn = token(result)
            must(
                allowed(row, drawn.id, slack),
                f"{filters} at temperature {_WARM:g} allowed {drawn!r} after {prompt!r}: "
                f"its logit is {row[drawn.id]:.4g}, the best is {max(row):.4g}. The filters look "
                "at the distribution at temperature 1",
            )

    # Unless the filter keeps out the least likely token, it has nothing to do.
    shut = [row for row in rows if not allowed(row, row.index(min(row)), slack)]
    testable(bool(shut), f"{filters} would leave every token: {_NO_LEAD}")


def _is_typical(
    subject: Subject, row: Sequence[float], drawn: Sequence[int], temperature: float
) -> None:
    """Check that the mean log-probability of draws is near the negative entropy."""
    logprobs = [value for value in log_softmax(row) if value > -math.inf]
    mean = math.fsum(math.exp(value) * value for value in logprobs)
    variance = math.fsum(math.exp(value) * (value - mean) ** 2 for value in logprobs)
    total = log_total(row)
    seen = math.fsum(row[i] - total for i in drawn) / len(drawn)
    bound = _SIGMAS * math.sqrt(variance / len(drawn)) + 4 * subject.tolerance + 1e-3
    must(
        abs(seen - mean) <= bound,
        f"{len(drawn)} draws at temperature {temperature:g} have the mean log-probability "
        f"{seen:.3f}; {mean:.3f} is expected, give or take {bound:.3f}",
    )


def _has_room(subject: Subject, prompt: str) -> bool:
    """Return whether enough logits are positive, where that can be known.

    Where every token but those seen has a negative logit, a penalised one may still be the best.
    """
    if not subject.declares(Capability.CLASSIFY, Capability.LOGITS):
        return True
    # Far above what such a penalty leaves of any logit, and above noise.
    least = 0.1 + min(0.5, 2 * subject.tolerance)
    return sum(value > least for value in logits(subject, [prompt])[0]) > 20
