"""Tables of options in pairs, and the forms in which a call takes them.

The values are such that each filter takes something away, and leaves something, on most rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from core.errors import UnsupportedOptionError
from core.kit.support import OPTION_NEEDS
from core.options import GenerateConfig
from core.sampling_options import SAMPLING_OPTIONS, SamplingOption
from core_conformance.checking.draws.pairwise import Case, pairwise
from core_conformance.checking.subject import Subject

Factors = dict[str, Sequence[Any]]
Call = Callable[..., Any]

_HOT = 20.0  # a temperature at which a filter that is left out lets something through
_MIDDLING: Factors = {"top_k": (4,), "top_p": (0.6,), "min_p": (0.25,), "typical_p": (0.7,)}
_MORE: Factors = {"temperature": (_HOT,), "repeat_penalty": (0.6,), "seed": (0,)}
_LONG = 600.0  # seconds: a timeout that is never reached
_DEEP = 12  # tables, where time does not matter
_ELSEWHERE = 9.0  # a temperature in a config that a keyword replaces


def _levels(option: SamplingOption) -> Sequence[Any]:
    """Return the values of an option; a filter is off in two of three, so that few hide another."""
    off = (option.default,) * (1 + option.filters)
    return (*off, *_MIDDLING.get(option.name, (option.telling,)), *_MORE.get(option.name, ()))


SAMPLING: Factors = {option.name: _levels(option) for option in SAMPLING_OPTIONS} | {
    "return_logprobs": (False, True)
}
"""The options of a draw, and whether its logprob is wanted."""

REQUEST: Factors = {
    "cancel": (None, threading.Event()),
    "timeout": (None, _LONG),
    "form": ("keywords", "config", "both"),
}
"""What every call may carry. ``form``: how the options are given."""

_DEFAULTS = GenerateConfig()


def table(subject: Subject, *factors: Factors, part: float = 0.0) -> list[Case]:
    """Return a covering table of all these factors that the backend declares, and one of hot draws.

    ``part`` of it comes last, so that where a slow model cuts the tables of several operations
    short, each begins at another place.
    """
    known = {name: levels for group in factors for name, levels in group.items()}
    declared = {name: known[name] for name in known if _declared(subject, name)}
    cases = pairwise(declared, subject.effort.seed)
    for number in range(_DEEP if subject.effort.deep else 1):
        cases += pairwise(declared | {"temperature": (_HOT,)}, subject.effort.seed + 1 + number)
    start = int(part * len(cases))
    return cases[start:] + cases[:start]


def _declared(subject: Subject, name: str) -> bool:
    return name not in OPTION_NEEDS or subject.declares(OPTION_NEEDS[name])


def options(case: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """Return the options of a case that are not at their defaults; ``others`` are not options."""
    return {
        name: value
        for name, value in case.items()
        if name not in ("form", *others) and value != getattr(_DEFAULTS, name)
    }


def ask_in_form(
    form: str, requested: Mapping[str, Any], foreign: Mapping[str, Any], call: Call
) -> tuple[Any, dict[str, Any]]:
    """Call with these options: as keywords, as a config, or as a config that keywords correct.

    Such a config also carries fields of other operations, ``foreign``. Returns what came and the
    options that counted: one without a capability, which a backend refuses, is omitted.
    """
    requested = dict(requested)
    while True:
        try:
            return _in_form(form, requested, foreign, call), requested
        except UnsupportedOptionError as error:
            if error.option not in requested or error.option in OPTION_NEEDS:
                raise
            del requested[error.option]


def _in_form(
    form: str, requested: Mapping[str, Any], foreign: Mapping[str, Any], call: Call
) -> Any:
    if form == "keywords":
        return call(**requested)
    if form == "config":
        return call(GenerateConfig(**requested))
    corrected = {"temperature": requested.get("temperature", _DEFAULTS.temperature)}
    return call(GenerateConfig(**{**foreign, **requested, "temperature": _ELSEWHERE}), **corrected)


def shown(
    call: str,
    prompt: object,
    requested: Mapping[str, Any],
    form: str = "keywords",
    foreign: Mapping[str, Any] | None = None,
) -> str:
    """Return a call as it can be pasted."""
    where = prompt if isinstance(prompt, str) else list(cast("Sequence[str]", prompt))
    if form == "keywords":
        return f"{call}({', '.join([repr(where), *_words(requested)])})"
    if form == "config":
        return f"{call}({where!r}, GenerateConfig({', '.join(_words(requested))}))"
    config = ", ".join(_words({**(foreign or {}), **requested, "temperature": _ELSEWHERE}))
    heat = requested.get("temperature", _DEFAULTS.temperature)
    return f"{call}({where!r}, GenerateConfig({config}), temperature={heat})"


def _words(requested: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}={'threading.Event()' if name == 'cancel' else repr(value)}"
        for name, value in requested.items()
    ]
