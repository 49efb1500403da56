"""Checks of LoRA adapters: with one, without, beside another, with a wrong one; and of handles.

What a model says is compared as `classify` tells it, or by greedy answers where that is not
declared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import cast

from core.errors import CoreError, ModelError
from core.extensions import Adapting
from core.protocols import Capability, TextModel
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.adapters import adapters
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import PLAIN, Answer, sampled
from core_conformance.checking.calls import greedy, raised
from core_conformance.checking.check import must, testable
from core_conformance.checking.compare import same_rows
from core_conformance.checking.recall import alone, relatives, same_results, telling
from core_conformance.checking.registry import check
from core_conformance.checking.subject import Subject

_PROMPTS = PLAIN[:4]
_TOKENS = 4
_BLANK = (
    "the model gives every token the same logit, with an adapter and without: take a model that "
    "has weights"
)

Said = Sequence[ClassifyResult] | Sequence[Answer]


@check(
    "adapters.changes",
    "A model loaded with an adapter MUST say something else than without it, and than with another",
    Capability.ADAPTERS,
)
def changes(subject: Subject) -> None:
    plain = _says(subject, subject.model)
    with adapters(subject) as found:
        with subject.loaded(adapter_path=found.one) as model:
            one = _says(subject, model)
        with subject.loaded(adapter_path=found.two) as model:
            two = _says(subject, model)
    _must_differ(subject, plain, one, "a model with an adapter says what it says without")
    _must_differ(subject, one, two, "a model says the same with two different adapters")


@check(
    "adapters.operations",
    "Every operation MUST say what the adapter makes of the model: one does as another",
    Capability.ADAPTERS,
)
def operations(subject: Subject) -> None:
    with adapters(subject) as found, closing(subject.adapted(found.one)) as with_one:
        _agree(with_one)


@check(
    "adapters.alone",
    "A model without an adapter MUST say the same before, while and after another load has one",
    Capability.ADAPTERS,
)
def no_trace(subject: Subject) -> None:
    plain = _says(subject, subject.model)
    with adapters(subject) as found:
        with subject.loaded(adapter_path=found.one) as other:
            wanted = _says(subject, other)
            _must_be(subject, plain, _says(subject, subject.model), "beside one with an adapter")
            _must_be(subject, wanted, _says(subject, other), "with an adapter, asked again")
        _must_be(subject, plain, _says(subject, subject.model), "when that one was closed")
    with subject.loaded() as again:
        _must_be(subject, plain, _says(subject, again), "loaded behind one with an adapter")


@check(
    "adapters.wrong",
    "An adapter of another model MUST raise a ModelError, not load the model without it",
    Capability.ADAPTERS,
)
def wrong(subject: Subject) -> None:
    with adapters(subject) as found:
        error = raised(lambda: subject.load(adapter_path=found.wrong).close())
    must(isinstance(error, ModelError), f"an adapter of another model: {_raised(error)}")


# --------------------------------------------------------------------------- handles


@check(
    "adapting.handles",
    "with_adapter(path) MUST say what a load with that adapter says, and with_adapter(None) what "
    "one without does",
    Capability.ADAPTING,
    Capability.ADAPTERS,
)
def handles(subject: Subject) -> None:
    plain = _says(subject, subject.model)
    with adapters(subject) as found:
        with subject.loaded(adapter_path=found.one) as model:
            one = _says(subject, model)
            with _with(model, None) as none:
                _must_be(subject, plain, _says(subject, none), "with_adapter(None)")
            with _with(model, found.two) as two:
                said = _says(subject, two)
        with _with(subject.model, found.one) as handle:
            _must_be(subject, one, _says(subject, handle), "with_adapter(), and a load with it")
            with _with(subject.model, found.two) as another:
                _must_be(subject, said, _says(subject, another), "two handles of one adapter")
            _must_be(subject, one, _says(subject, handle), "a handle beside another")
        _must_be(subject, plain, _says(subject, subject.model), "the model that handles are of")
    _must_differ(subject, plain, one, "a handle's adapter changes nothing")


@check(
    "adapting.kept",
    "What is kept between calls MUST NOT go from one adapter to another, nor to none",
    Capability.ADAPTING,
    Capability.ADAPTERS,
)
def kept(subject: Subject) -> None:
    prompts = relatives(subject, "By and by")[:4]
    with adapters(subject) as found:
        wanted = []
        for path in (None, found.one, found.two):
            with subject.loaded(adapter_path=path) as model:
                wanted.append(_says(subject, model, prompts))
        with (
            subject.loaded() as base,
            _with(base, found.one) as one,
            _with(base, found.two) as two,
        ):
            for model in (base, one, two, one, base, two):
                right = wanted[(base, one, two).index(model)]
                _must_be(subject, right, _says(subject, model, prompts), "asked by turns")


@check(
    "adapting.closing",
    "A model and its handles MUST close in any order, and each leave the others as they were",
    Capability.ADAPTING,
    Capability.ADAPTERS,
)
def any_order(subject: Subject) -> None:
    with adapters(subject) as found:
        for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
            base = subject.load()
            models = [base, _with(base, found.one), _with(base, found.two)]
            try:
                wanted = [_says(subject, model) for model in models]
                for place, closed in enumerate(order):
                    models[closed].close()
                    for other in order[place + 1 :]:
                        said = partial(_says, subject, models[other])
                        what = "a model whose other handle was closed"
                        _must_be(subject, wanted[other], _unless_raised(said, what), what)
            finally:
                for model in models:
                    model.close()


@check(
    "adapting.wrong",
    "with_adapter() of what is no adapter of the model MUST raise a ModelError, and change nothing",
    Capability.ADAPTING,
    Capability.ADAPTERS,
)
def wrong_handle(subject: Subject) -> None:
    plain = _says(subject, subject.model)
    with adapters(subject) as found:
        for path in (found.wrong, f"{found.wrong}-is-not-there"):
            error = raised(lambda path=path: _with(subject.model, path).close())  # type: ignore[misc]
            must(isinstance(error, ModelError), f"with_adapter({path!r}): {_raised(error)}")
    _must_be(subject, plain, _says(subject, subject.model), "behind an adapter that was refused")


# --------------------------------------------------------------------------- what is said


def _with(model: TextModel, path: str | None) -> TextModel:
    return cast("Adapting", model).with_adapter(path)


def _says(subject: Subject, model: TextModel, prompts: Sequence[str] = _PROMPTS) -> Said:
    """What a model says behind prompts, in all detail that the backend gives."""
    if subject.declares(Capability.CLASSIFY):
        return alone(subject, model, prompts, **telling(subject))
    if any(map(subject.declares, ask.SPEAKING)):
        return [Answer(tuple(greedy(subject, model, prompt, _TOKENS)), None) for prompt in prompts]
    options = {"max_tokens": _TOKENS, **ask.evidence(subject)}
    return [ask.answer(row) for row in model.batch_generate(prompts, **options)]


def _must_be(subject: Subject, wanted: Said, found: Said, what: str) -> None:
    """Raise `Violation` unless both are the same, as far as `compare` asks for it."""
    if isinstance(wanted[0], Answer):
        pairs = list(zip(wanted, found, strict=True))
        same_rows(subject, cast("Sequence[tuple[Answer, Answer]]", pairs), what)
        return
    rows, others = cast("list[ClassifyResult]", wanted), cast("list[ClassifyResult]", found)
    same_results(subject, _PROMPTS[: len(rows)], rows, others, what)


def _must_differ(subject: Subject, one: Said, other: Said, what: str) -> None:
    numbers, others = _numbers(one), _numbers(other)
    apart = len(numbers) != len(others) or any(
        abs(a - b) > 2 * subject.tolerance for a, b in zip(numbers, others, strict=True)
    )
    same = not apart and [_ids(each) for each in one] == [_ids(each) for each in other]
    blank = same and len(numbers) > 1 and min(numbers) == max(numbers)
    testable(not blank, _BLANK)
    must(not same, f"{what}, behind {len(one)} prompts and to {subject.tolerance:g}")


def _numbers(said: Said) -> list[float]:
    """Logits, or log-probabilities, of all that was said."""
    found: list[float] = []
    for each in said:
        if isinstance(each, ClassifyResult):
            found += each.logits or [ask.token(each).logprob or 0.0]
        else:
            found += [token.logprob or 0.0 for token in each.tokens]
    return found


def _ids(each: ClassifyResult | Answer) -> tuple[int, ...]:
    return sampled(each).ids if isinstance(each, ClassifyResult) else each.ids


def _agree(subject: Subject) -> None:
    """Raise `Violation` unless the operations of a subject give the same greedy tokens.

    One that is alone is asked twice.
    """
    said = [(name, ask_by(subject)) for name, ask_by in _WAYS.items() if subject.declares(name)]
    if len(said) == 1:
        said += [(name, ask_by(subject)) for name, ask_by in _WAYS.items() if name == said[0][0]]
    if not said:  # it chats alone
        said = [(Capability.CHAT, _generated(subject)) for _ in range(2)]

    (first, wanted), *others = said
    for name, found in others:
        what = f"with an adapter, {first} and {name}"
        size = 1 if name is Capability.CLASSIFY else None
        pairs = [
            (Answer(one.tokens[:size], None if size else one.finish_reason, one.prompt), other)
            for one, other in zip(wanted, found, strict=True)
            if one.tokens or not size
        ]
        same_rows(subject, pairs, what)
    goes_on(subject, [answer.ids for answer in wanted])


def _generated(subject: Subject) -> list[Answer]:
    return [ask.generate(subject, prompt, _TOKENS) for prompt in _PROMPTS]


def _batched(subject: Subject) -> list[Answer]:
    rows = ask.batch(subject, _PROMPTS, _TOKENS)
    return [ask.answer(row, prompt) for row, prompt in zip(rows, _PROMPTS, strict=True)]


def _classified(subject: Subject) -> list[Answer]:
    results = ask.classify(subject, _PROMPTS, **ask.evidence(subject))
    return [sampled(result, prompt) for result, prompt in zip(results, _PROMPTS, strict=True)]


_WAYS: dict[Capability, Callable[[Subject], list[Answer]]] = {
    Capability.GENERATE: _generated,
    Capability.BATCH_GENERATE: _batched,
    Capability.CLASSIFY: _classified,
}


def _unless_raised(run: Callable[[], Said], what: str) -> Said:
    found: list[Said] = []
    error = raised(lambda: found.append(run()))
    must(error is None, f"{what} raised {error!r}")
    return found[0]


def _raised(error: CoreError | Exception | None) -> str:
    return "it was loaded in silence" if error is None else f"it raised {error!r}"
