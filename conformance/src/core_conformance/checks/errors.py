"""Checks of wrong calls, and of how config and keywords join."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from core.errors import (
    InvalidOptionError,
    UnsupportedOptionError,
)
from core.kit.support import REFUSABLE
from core.options import GenerateConfig
from core.protocols import Capability
from core.sampling_options import SAMPLING_OPTIONS
from core_conformance.checking.applies import usable
from core_conformance.checking.calls import (
    CHAT,
    OPERATIONS,
    PROMPTS,
    ROW_OPERATIONS,
    call,
    declared,
    ending,
    must_raise,
    raised,
)
from core_conformance.checking.check import check, must
from core_conformance.checking.subject import Subject

_FOREIGN = {
    Capability.GENERATE: ("labels", ("a", "b")),
    Capability.CHAT: ("return_logits", False),
    Capability.CLASSIFY: ("max_tokens", 4),
    Capability.BATCH_GENERATE: ("label_prefix", " "),
}
_WRONG: dict[str, object] = {
    **{option.name: option.wrong for option in SAMPLING_OPTIONS if option.name in REFUSABLE},
    "timeout": 0.0,
    "cancel": object(),
}
_WRONG_OF_GENERATION: dict[str, object] = {"max_tokens": 0, "stop": ("",), "stop_tokens": (-1,)}
_NO_TEXTS: tuple[tuple[Any, str], ...] = (
    (PROMPTS[0], "one string instead of a list"),
    ([PROMPTS[0], 7], "a number among the prompts"),
    ([PROMPTS[0], None], "None among the prompts"),
)


@check(
    "errors.unknown-keyword",
    "An unknown keyword MUST raise TypeError at the call.",
    OPERATIONS,
)
def unknown_keyword(subject: Subject) -> None:
    for name in declared(subject):
        what = f"{name}(no_such_option=1)"
        must_raise(TypeError, partial(call, subject.model, name, no_such_option=1), what)


@check(
    "errors.foreign-keyword",
    "A keyword of another operation MUST raise TypeError at the call.",
    OPERATIONS,
)
def foreign_keyword(subject: Subject) -> None:
    for name in declared(subject):
        option, value = _FOREIGN[name]
        what = f"{name}({option}={value!r}), an option of another operation,"
        must_raise(TypeError, partial(call, subject.model, name, **{option: value}), what)


@check(
    "errors.config-type",
    "A config that is not a GenerateConfig MUST raise TypeError at the call.",
    OPERATIONS,
)
def config_type(subject: Subject) -> None:
    for name in declared(subject):
        what = f"{name}() with a dict as its config"
        must_raise(TypeError, partial(call, subject.model, name, {"top_k": 1}), what)


@check(
    "errors.option-values",
    "A wrong option value MUST raise InvalidOptionError at the call, before any token is read.",
    OPERATIONS,
)
def option_values(subject: Subject) -> None:
    for name in declared(subject):
        wrong = dict(_WRONG) if name is Capability.CLASSIFY else _WRONG | _WRONG_OF_GENERATION
        if subject.declares(Capability.SEED):
            wrong |= {"seed": -1}
        for option, value in wrong.items():
            _must_be_invalid(subject, name, option, value)


@check(
    "errors.inputs-unchanged",
    "A call MUST NOT change what it is given.",
    OPERATIONS,
)
def inputs_unchanged(subject: Subject) -> None:
    config = GenerateConfig(max_tokens=2, top_k=3, stop=("\n",), stop_tokens=(0,))
    for name in usable(subject):
        # Unsorted, with a blank and a double: what a backend might tidy up in place.
        prompts: Any = [PROMPTS[1], PROMPTS[0], PROMPTS[1], " " + PROMPTS[3]]
        given: Any = {Capability.GENERATE: PROMPTS[0], Capability.CHAT: list(CHAT)}.get(
            name, prompts
        )
        before = copy.deepcopy((given, config))
        answers = getattr(subject.model, name.value)(given, config)
        if name not in ROW_OPERATIONS:
            list(answers)
        must(given == before[0], f"{name}() changed its input from {before[0]!r} to {given!r}")
        must(config == before[1], f"{name}() changed its config from {before[1]} to {config}")


@check(
    "errors.prompt-types",
    "Prompts that are not texts MUST raise TypeError at the call.",
    OPERATIONS,
)
def prompt_types(subject: Subject) -> None:
    for name in declared(subject, *ROW_OPERATIONS):
        ask = getattr(subject.model, name.value)
        for given, what in _NO_TEXTS:
            must_raise(TypeError, partial(ask, given), f"{what}, given to {name}(),")
    single: dict[Capability, Any] = {
        Capability.GENERATE: 7,
        Capability.CHAT: [("user", "a tuple is not a message")],
    }
    for name in declared(subject, *single):
        given, ask = single[name], getattr(subject.model, name.value)
        error = ending(partial(ask, given)).error
        must(isinstance(error, TypeError), f"{name}({given!r}) gave {error!r}, not a TypeError")


def _must_be_invalid(subject: Subject, name: Capability, option: str, value: object) -> None:
    error = raised(lambda: call(subject.model, name, **{option: value}))
    named = getattr(error, "option", None) == option
    must(
        isinstance(error, InvalidOptionError | UnsupportedOptionError) and named,
        f"{name}({option}={value!r}) gave {error!r} at the call: it must raise "
        f"InvalidOptionError for {option} there, not later",
    )
