"""Answers held against the oracle, token by token, and against the answer without stops.

The oracle is queried with the text before each token, if the tokenizer reads that text as the
very tokens of the answer. Verdicts are cached: the same tokens after the same prompt, drawn with
the same options, come from many operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from core.options import GenerateConfig, SamplingOptions
from core.protocols import Capability
from core.types import Token
from core_conformance.checking.ask import Answer, logits, tokenizing
from core_conformance.checking.budget import pass_seconds
from core_conformance.checking.check import must
from core_conformance.checking.compare import difference, near
from core_conformance.checking.draws.oracle import Luck, Step
from core_conformance.checking.subject import Subject

SURE = 25.0
"""The natural logarithm of the odds against luck that count as proof: once in 10**11."""

_OF_A_DRAW = frozenset(SamplingOptions.__annotations__) & {
    field.name for field in fields(GenerateConfig)
} - {"cancel", "timeout", "seed", "return_logprobs"}
_MANY = 4096  # tokens of a vocabulary, from which on the oracle takes as long as a pass does
_SPARSE = (0, 2, 5)  # the places of an answer that are then looked at
_SECONDS = 1.5e-6  # that the oracle takes for a token of the vocabulary
_SMALL = 1e-4  # a tolerance at which a draw from the whole vocabulary is repeatable


class Verdict(NamedTuple):
    """The oracle's verdict on one token; ``head`` is None if options exclude tokens.

    ``logprob`` is None where the token has none.
    """

    why_not: str
    logprob: float | None
    tail: float
    head: float | None


class _Place(NamedTuple):
    """One token of an answer, with the text and the tokens before it."""

    front: str
    seen: tuple[int, ...]
    token: Token


_judged: WeakKeyDictionary[Subject, dict[object, Verdict]] = WeakKeyDictionary()


def judged(subject: Subject) -> int:
    """Return the number of tokens of an answer that are worked out again."""
    return len(_SPARSE) if subject.model.info.vocab_size > _MANY else 2 * len(_SPARSE)


def step_cost(subject: Subject) -> float:
    """Return the passes that the oracle takes the time of, for one token."""
    return subject.model.info.vocab_size * _SECONDS / pass_seconds(subject)


def draws(requested: Mapping[str, Any]) -> GenerateConfig:
    """Return the options by which a token is drawn, and none else."""
    return GenerateConfig(**{name: requested[name] for name in requested if name in _OF_A_DRAW})


def drawn_well(subject: Subject, call: str, answer: Answer, requested: Mapping[str, Any]) -> None:
    """Raise `Violation` for tokens that these options forbid, for draws that are too (un)likely
    together, and for a logprob that is missing, wrong or not requested."""
    config = draws(requested)
    for token in answer.tokens:
        must(
            (token.logprob is not None) == bool(requested.get("return_logprobs")),
            f"{call} gave {token!r}: return_logprobs=True, and nothing else, asks for a logprob",
        )

    tails, heads = Luck(), Luck()
    for place, verdict in _verdicts(subject, answer, config):
        where = f"{call} gave {place.token!r} after {place.front!r:.200}"
        must(not verdict.why_not, f"{where}: {verdict.why_not}")
        must(
            place.token.logprob is None
            or near(subject, place.token.logprob, verdict.logprob or 0.0),
            f"{where}: its logprob, from the logits without options, is {verdict.logprob}",
        )
        if config.temperature:
            tails.add(verdict.tail)
            heads.add(1.0 if verdict.head is None else verdict.head)
    for luck, what in ((tails, "unlikely"), (heads, "likely")):
        must(
            luck.logarithm > -SURE,
            f"{call} drew {list(answer.ids)}: tokens so {what} come once in "
            f"e**{-luck.logarithm:.0f} times at temperature={config.temperature:g}",
        )


def _verdicts(
    subject: Subject, answer: Answer, config: GenerateConfig
) -> list[tuple[_Place, Verdict]]:
    judged = _judged.setdefault(subject, {})
    places = _places(subject, answer, config)
    keys = [_key(place, config) for place in places]
    new = [place for place, key in zip(places, keys, strict=True) if key not in judged]
    rows = logits(subject, [place.front for place in new]) if new else []
    for place, row in zip(new, rows, strict=True):
        step = Step(row, place.seen, config, subject.tolerance)
        judged[_key(place, config)] = _verdict(step, place.token)
    return [(place, judged[key]) for place, key in zip(places, keys, strict=True)]


def _key(place: _Place, config: GenerateConfig) -> object:
    return str(place.front), place.seen, place.token.id, place.token.logprob is None, config


def _verdict(step: Step, drawn: Token) -> Verdict:
    token, config = drawn.id, step.config
    option = step.forbids(token)
    why_not = option and (
        f"{option} does not leave it, with the logit {step.scores[token]:.4g} where the best is "
        f"{max(step.scores):.4g}"
    )
    logprob = None if drawn.logprob is None else step.logprob(token)
    if not config.temperature:
        return Verdict(why_not, logprob, 1.0, None)
    return Verdict(why_not, logprob, step.tail(token), step.head(token) if step.free else None)


def _places(subject: Subject, answer: Answer, config: GenerateConfig) -> list[_Place]:
    """Return the tokens of an answer of which the oracle can tell something."""
    if not answer.prompt or not subject.declares(Capability.CLASSIFY, Capability.LOGITS):
        return []
    if not subject.declares(Capability.TOKENIZING):
        first = [] if config.repeat_penalty != 1.0 else answer.tokens[:1]
        return [_Place(answer.prompt, (), token) for token in first]

    encode, places = tokenizing(subject).encode, []
    sparse = subject.model.info.vocab_size > _MANY
    head, text = tuple(encode(answer.prompt)), ""
    for place, token in enumerate(answer.tokens):
        front = answer.prompt + text if place else answer.prompt  # a rendered one stays so
        seen = (*head, *answer.ids[:place])
        wanted = not sparse or place in _SPARSE
        if wanted and (not place or tuple(encode(front)) == seen):
            places.append(_Place(front, seen, token))
        text += token.text
    return places


def ended_well(call: str, answer: Answer, requested: Mapping[str, Any]) -> None:
    """Raise `Violation` for a stop that was passed, or an end that cannot be."""
    limit, count, reason = requested["max_tokens"], len(answer.tokens), answer.finish_reason
    passed = [text for text in requested.get("stop", ()) if text in answer.text]
    passed += [token for token in requested.get("stop_tokens", ()) if token in answer.ids]
    must(not passed, f"{call} passed {passed}: {answer.text!r}, ids {list(answer.ids)}")
    must(count <= limit, f"{call} gave {count} tokens")
    must(
        reason in (None, "stop", "length") and not (reason == "length" and count < limit),
        f"{call} ended with {reason!r} after {count} tokens",
    )
    must(
        not (reason == "stop" and count == limit) or bool(requested.get("stop")),
        f"{call} ended with 'stop' after {count} tokens, which is max_tokens",
    )


def stopped(free: Answer, requested: Mapping[str, Any]) -> Answer:
    """Return an answer without stops, cut by these stops and this ``max_tokens``."""
    tokens, text = list[Token](), ""
    for token in free.tokens:
        if len(tokens) == requested["max_tokens"]:
            break
        if token.id in requested.get("stop_tokens", ()):
            return replace(free, tokens=tuple(tokens), finish_reason="stop")
        tokens.append(token)
        text += token.text
        ends = [text.find(stop) for stop in requested.get("stop", ()) if stop in text]
        if ends:
            return replace(free, tokens=_cut(tokens, min(ends)), finish_reason="stop")
    full = len(tokens) == requested["max_tokens"]  # also where the model would have ended next
    return replace(
        free, tokens=tuple(tokens), finish_reason="length" if full else free.finish_reason
    )


def _cut(tokens: Sequence[Token], end: int) -> tuple[Token, ...]:
    """Return the tokens of the first ``end`` characters."""
    shortened, start = list[Token](), 0
    for token in tokens:
        if start < end:
            shortened.append(replace(token, text=token.text[: end - start]))
        start += len(token.text)
    return tuple(shortened)


def agree(
    subject: Subject,
    call: str,
    pairs: Sequence[tuple[Answer, Answer]],
    requested: Mapping[str, Any],
) -> None:
    """Raise `Violation` unless answers are the expected ones, up to ties.

    Each pair is an expected answer and the one that came. Where most tokens are allowed, the least
    noise changes a draw: such draws are compared only where the tolerance is small.
    """
    config = draws(requested)
    few = config.temperature <= 1.0 or config.top_k > 0
    if few or subject.tolerance < _SMALL:
        drawn = config.temperature > 0 or config.repeat_penalty != 1.0
        deviation = difference(subject, pairs, drawn=drawn, stops=requested.get("stop", ()))
        must(
            deviation is None,
            f"{call}, against the expected answer: {deviation.text if deviation else ''}",
        )


def end_alike(call: str, expected: Answer, answer: Answer) -> None:
    """Raise `Violation` unless an answer has the expected text and end, if it has the tokens."""
    if answer.ids != expected.ids:  # parted at a tie
        return
    text, reason = expected.text.rstrip("\ufffd"), expected.finish_reason
    must(
        answer.text.rstrip("\ufffd") == text and answer.finish_reason in (reason, None),
        f"{call} gave {answer.text!r} ({answer.finish_reason}); {text!r} ({reason}) was expected",
    )
