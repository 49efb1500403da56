"""Options of one operation, each held against another operation that has to give the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from core.errors import UnsupportedOptionError
from core.kit.support import REFUSABLE
from core.protocols import Capability
from core.sampling_options import FILTERS
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import EVEN, Answer, seeds
from core_conformance.checking.check import Violation, leave_out, must
from core_conformance.checking.compare import near, same_answers, same_draws
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.agreeing import with_texts

Options = dict[str, Any]
_LENGTH, _FEW = 6, 2  # tokens
_HOT = 20.0  # a filter that is left out lets something through at this temperature
_HOTTER = 1e4  # the logits of any model are near even here
_PENALTIES = (0.01, 8.0)  # the first makes likelier what was seen: few answers stay as they are
_STOPS = {"stop", "stop_tokens"}
_given: WeakKeyDictionary[Subject, dict[str, list[Answer]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Operation:
    """``ask(max_tokens, options)`` gives an answer to each of several prompts, always the same."""

    name: str
    ask: Callable[[int, Options], list[Answer]]
    generates: bool = True  # more than one token
    textless: bool = False  # its answers are ids alone


@dataclass(frozen=True, slots=True)
class Trial:
    """Options under which two operations have to agree; ``drawn``: as draws of one seed do."""

    options: Options
    max_tokens: int = _FEW
    drawn: bool = False

    @property
    def free(self) -> bool:
        """True if two draws of one operation may differ."""
        return "temperature" in self.options and "seed" not in self.options

    @property
    def penalised(self) -> bool:
        """True if the noise in the logits is scaled."""
        return "repeat_penalty" in self.options


def honours(subject: Subject, operation: Operation, base: Operation) -> None:
    """Raise `Violation` unless ``operation`` honours each option as ``base`` does.

    The options are such that the answers of ``base`` are other ones without them. One that may be
    refused, and is, is left out.
    """
    plain = _of_base(subject, base, Trial({}, _LENGTH))
    goes_on(subject, [answer.tokens for answer in plain])
    for trial in _trials(subject, base, plain):
        try:
            _agree(subject, trial, operation, base)
        except UnsupportedOptionError as error:
            if error.option not in REFUSABLE.intersection(trial.options):
                raise
    _draws_when_hot(subject, operation, plain)


def _trials(subject: Subject, base: Operation, plain: Sequence[Answer]) -> Iterator[Trial]:
    if base.generates:
        yield from _stops(plain)

    # Filters that leave the best token alone, or change what a seed draws.
    for option in FILTERS:
        if option.only_best is not None:
            yield Trial({"temperature": _HOT, option.name: option.only_best} | seeds(subject, 1)[0])
        elif subject.declares(Capability.SEED):
            yield Trial(EVEN | {option.name: option.telling, "seed": 0}, _LENGTH, drawn=True)

    for penalty in _PENALTIES:
        trial = Trial({"repeat_penalty": penalty}, _LENGTH // 2, drawn=True)
        if _changes(subject, base, trial, plain):
            yield trial
            break
    else:
        leave_out("repeat_penalty, which is refused, or changes no answer")

    if subject.declares(Capability.SEED):
        for seed in (0,) if base.generates else (0, 21, 22):
            yield Trial(EVEN | {"seed": seed}, _LENGTH, drawn=True)


def _stops(plain: Sequence[Answer]) -> Iterator[Trial]:
    longest = max(plain, key=lambda answer: len(answer.text.partition("\ufffd")[0]))
    text = longest.text.partition("\ufffd")[0]
    if text:
        yield Trial({"stop": (text[len(text) // 2 :][:2],)}, _LENGTH)
    else:
        leave_out("stop, for the model says no text that could be stopped")
    if longest.ids:
        yield Trial({"stop_tokens": (longest.ids[len(longest.ids) // 2],)}, _LENGTH)


def _changes(subject: Subject, base: Operation, trial: Trial, plain: Sequence[Answer]) -> bool:
    """Return whether most answers are others with these options."""
    try:
        answers = _of_base(subject, base, trial)
    except UnsupportedOptionError:
        return False
    changed = [a.ids != b.ids[: trial.max_tokens] for a, b in zip(answers, plain, strict=True)]
    return sum(changed) > len(changed) / 2


def _of_base(subject: Subject, base: Operation, trial: Trial) -> list[Answer]:
    """Return the base's answers, cached by subject, as several operations share one base."""
    given = _given.setdefault(subject, {})
    key = repr((base.name, trial))
    if key not in given:
        given[key] = base.ask(trial.max_tokens, trial.options)
    return given[key]


def _agree(subject: Subject, trial: Trial, operation: Operation, base: Operation) -> None:
    expected = _of_base(subject, base, trial)
    answers = operation.ask(trial.max_tokens, trial.options)
    if operation.textless:
        answers = list(map(with_texts, expected, answers))
    if _STOPS.intersection(trial.options):
        for answer in answers:
            _is_stopped(answer, operation.name, trial.options)

    # The same tokens, as far as the numbers tell.
    pairs = list(zip(expected, answers, strict=True))
    both = f"{base.name} and {operation.name} with {trial.options}"
    try:
        if trial.drawn:
            same_draws(subject, pairs, both)
        else:
            same_answers(subject, pairs, both, trial.options.get("stop", ()))
    except Violation:
        if not trial.free or _repeats(base, trial, expected):
            raise
        return  # at a tie the base itself draws now one token, now the other

    # The same ending and numbers, where the tokens are the same.
    what = f"{operation.name} with {trial.options}"
    for left, right in pairs:
        if left.ids == right.ids:  # not parted at a tie
            _same_ending(left, right, what)
            if subject.declares(Capability.LOGPROBS) and not trial.penalised:
                _same_logprobs(subject, left, right, what)


def _repeats(base: Operation, trial: Trial, before: Sequence[Answer]) -> bool:
    again = base.ask(trial.max_tokens, trial.options)
    return [answer.ids for answer in again] == [answer.ids for answer in before]


def _is_stopped(answer: Answer, name: str, options: Options) -> None:
    """Check that no stop string is in the text and no stop token among the ids, ties or not."""
    leaked = [text for text in options.get("stop", ()) if text in answer.text]
    leaked += [token for token in options.get("stop_tokens", ()) if token in answer.ids]
    must(not leaked, f"{name} with {options} gave {answer.text!r}, ids {list(answer.ids)}")


def _same_ending(left: Answer, right: Answer, what: str) -> None:
    reasons = {left.finish_reason, right.finish_reason} - {None}
    must(
        left.text == right.text and len(reasons) < 2,
        f"{what} gave {right.text!r} ({right.finish_reason}), not {left.text!r} "
        f"({left.finish_reason})",
    )


def _draws_when_hot(subject: Subject, operation: Operation, plain: Sequence[Answer]) -> None:
    # One seed may mean one rank for all prompts, and that may be the first.
    hot = [{"temperature": _HOTTER} | seed for seed in seeds(subject, 2)]
    try:
        draws = any(_are_others(operation.ask(_FEW, options), plain) for options in hot)
    except UnsupportedOptionError as error:
        if error.option != "temperature":
            raise
        return
    must(
        draws,
        f"{operation.name} with temperature={_HOTTER:g} gave the greedy tokens of {len(plain)} "
        "prompts, twice: temperature must have an effect",
    )


def _are_others(answers: Sequence[Answer], plain: Sequence[Answer]) -> bool:
    return any(a.ids != b.ids[:_FEW] for a, b in zip(answers, plain, strict=True))


def _same_logprobs(subject: Subject, left: Answer, right: Answer, what: str) -> None:
    for one, other in zip(left.tokens, right.tokens, strict=True):
        must(
            isinstance(other.logprob, float),
            f"{what} and return_logprobs=True gave {other!r}, without a logprob",
        )
        must(
            near(subject, one.logprob or 0.0, other.logprob or 0.0),
            f"{what} gave {other!r}; the expected logprob is {one.logprob}",
        )
