"""Checks of LoRA adapters: with one, without, next to another, with a wrong one; and of handles."""

from __future__ import annotations

from functools import partial
from typing import cast

from core.errors import CoreError, ModelClosedError, ModelError
from core.extensions import Adapting
from core.protocols import Capability, TextModel
from core_conformance.checking.adapters import adapters
from core_conformance.checking.calls import raised
from core_conformance.checking.check import check, must
from core_conformance.checking.recall import long_story, story
from core_conformance.checking.said import must_be, must_differ, says, unless_raised
from core_conformance.checking.subject import Subject


@check(
    "adapters.changes",
    "A model loaded with an adapter MUST say something else than without it, and than with another",
    Capability.ADAPTERS,
)
def changes(subject: Subject) -> None:
    plain = says(subject, subject.model)
    with adapters(subject) as paths:
        with subject.loaded(adapter_path=paths.one) as model:
            one = says(subject, model)
        with subject.loaded(adapter_path=paths.two) as model:
            two = says(subject, model)
    must_differ(subject, plain, one, "a model with an adapter says what it says without")
    must_differ(subject, one, two, "a model says the same with two different adapters")


@check(
    "adapters.alone",
    "A model without an adapter MUST say the same before, while and after another load has one",
    Capability.ADAPTERS,
)
def no_trace(subject: Subject) -> None:
    plain = says(subject, subject.model)
    with adapters(subject) as paths:
        with subject.loaded(adapter_path=paths.one) as other:
            wanted = says(subject, other)
            must_be(
                subject,
                plain,
                partial(says, subject, subject.model),
                "alongside one with an adapter",
            )
            must_be(subject, wanted, partial(says, subject, other), "with an adapter, asked again")
        must_be(subject, plain, partial(says, subject, subject.model), "when that one was closed")
    with subject.loaded() as again:
        must_be(subject, plain, partial(says, subject, again), "loaded after one with an adapter")


@check(
    "adapters.wrong",
    "An adapter of another model MUST raise a ModelError, not load the model without it",
    Capability.ADAPTERS,
)
def wrong(subject: Subject) -> None:
    with adapters(subject) as paths:
        error = raised(lambda: subject.load(adapter_path=paths.wrong).close())
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
    plain = says(subject, subject.model)
    with adapters(subject) as paths:
        with subject.loaded(adapter_path=paths.one) as model:
            one = says(subject, model)
            with _with(model, None) as none:
                must_be(subject, plain, partial(says, subject, none), "with_adapter(None)")
            with _with(model, paths.two) as two:
                outputs = says(subject, two)
        with _with(subject.model, paths.one) as handle:
            must_be(
                subject, one, partial(says, subject, handle), "with_adapter(), and a load with it"
            )
            with _with(subject.model, paths.two) as another:
                must_be(
                    subject, outputs, partial(says, subject, another), "two handles of one adapter"
                )
            must_be(subject, one, partial(says, subject, handle), "a handle alongside another")
        must_be(
            subject, plain, partial(says, subject, subject.model), "the model that handles are of"
        )
    must_differ(subject, plain, one, "a handle's adapter changes nothing")


@check(
    "adapting.kept",
    "State kept between calls MUST NOT go from one adapter to another, nor to none",
    Capability.ADAPTING,
    Capability.ADAPTERS,
)
def kept(subject: Subject) -> None:
    prompts = [story(subject, "By and by"), long_story(subject, "Much later")]
    with adapters(subject) as paths:
        wanted = []
        for path in (None, paths.one, paths.two):
            with subject.loaded(adapter_path=path) as model:
                wanted.append(says(subject, model, prompts))
        with (
            subject.loaded() as base,
            _with(base, paths.one) as one,
            _with(base, paths.two) as two,
        ):
            for model, right in zip((base, one, two), wanted, strict=True):
                must_be(
                    subject,
                    right,
                    partial(says, subject, model, prompts),
                    "asked one after another",
                )


@check(
    "adapting.closing",
    "A model and its handles MUST close in any order, and each leave the others as they were",
    Capability.ADAPTING,
    Capability.ADAPTERS,
)
def any_order(subject: Subject) -> None:
    with adapters(subject) as paths:
        for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
            base = subject.load()
            models = [base, _with(base, paths.one), _with(base, paths.two)]
            wanted = [says(subject, model) for model in models]
            still = list(order)
            try:
                while still:
                    models[still.pop(0)].close()
                    for index in still:
                        say = partial(says, subject, models[index])
                        what = "a model whose other handle was closed"
                        must_be(subject, wanted[index], partial(unless_raised, say, what), what)
            finally:
                for index in still:
                    models[index].close()


@check(
    "adapting.wrong",
    "with_adapter() of what is not an adapter of the model MUST raise a ModelError, and change "
    "nothing; of a closed model it MUST raise ModelClosedError",
    Capability.ADAPTING,
    Capability.ADAPTERS,
)
def wrong_handle(subject: Subject) -> None:
    plain = says(subject, subject.model)
    with adapters(subject) as paths:
        for path in (paths.wrong, f"{paths.wrong}-is-not-there"):
            error = raised(lambda path=path: _with(subject.model, path).close())  # type: ignore[misc]
            must(isinstance(error, ModelError), f"with_adapter({path!r}): {_raised(error)}")
        with subject.loaded() as model:
            pass
        error = raised(lambda: _with(model, paths.one).close())
        must(isinstance(error, ModelClosedError), f"with_adapter(), closed: {_raised(error)}")
    must_be(
        subject, plain, partial(says, subject, subject.model), "after an adapter that was refused"
    )


def _with(model: TextModel, path: str | None) -> TextModel:
    return cast("Adapting", model).with_adapter(path)


def _raised(error: CoreError | Exception | None) -> str:
    return "it was loaded in silence" if error is None else f"it raised {error!r}"
