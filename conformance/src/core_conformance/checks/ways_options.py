"""Clauses over the table of ways: options in a config, and stop strings that begin alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from core.errors import OptionError
from core.kit.support import OPTION_NEEDS
from core.protocols import Capability, TextModel
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.budget import within
from core_conformance.checking.calls import unless_refused
from core_conformance.checking.check import check, must
from core_conformance.checking.draws.judging import stopped
from core_conformance.checking.subject import OPERATIONS, Subject
from core_conformance.checking.ways.agreeing import alike, gives, wanted
from core_conformance.checking.ways.forms import Configured
from core_conformance.checking.ways.oddities import BROKEN
from core_conformance.checking.ways.table import Row, Way, every_way

_TOKENS, _LONG = 3, 10
_PROMPTS = ask.PLAIN[:2]
_OF_LABELS = {"labels": ("a", "b"), "label_prefix": "", "return_logits": True}
_OF_GENERATION = {"max_tokens": 1, "stop": ("e", "a", "o")}
_OF_DRAWS = {"temperature": 9.0, "return_logprobs": True}

_NUL = "\0never"


@check(
    "errors.config",
    "A config's own fields MUST count where no keyword is given, keywords MUST win over it, and "
    "its fields of other operations MUST NOT apply, in every operation",
    OPERATIONS,
    broad=True,
)
def configs_count(subject: Subject) -> None:
    with unless_refused("timeout"):
        for way in within(subject, every_way(subject), lambda _: 6.0, "operations", 0.5):
            options = way.options(subject, _TOKENS)
            expected = wanted(subject, way, _PROMPTS, options)
            drawn = {token for row in expected for token in row.answer.ids}
            foreign = _OF_LABELS if way.generates else _OF_GENERATION | {"stop_tokens": (*drawn,)}
            foreign = foreign | _OF_LABELS | _OF_DRAWS if way.bare else foreign
            known = {name: foreign[name] for name in foreign if _is_declared(subject, name)}
            model = cast("TextModel", Configured(subject.model, **known))
            rows = gives(subject, way, model, _PROMPTS, options)
            what = f"{way.name} with {options} as keywords, and in a config of other fields too"
            alike(subject, way, expected, rows, what)


def _is_declared(subject: Subject, option: str) -> bool:
    return option not in OPTION_NEEDS or subject.declares(OPTION_NEEDS[option])


@check(
    "stop.ways",
    "Stop strings that begin alike, that hold one another or a NUL MUST each be found where they "
    "come first, in every operation; one that is not valid Unicode MUST raise OptionError at the "
    "call, or change nothing",
    (Capability.GENERATE, Capability.CHAT, Capability.SUBMITTING, Capability.BATCH_GENERATE),
    broad=True,
)
def stops_that_resemble(subject: Subject) -> None:
    callers = [way for way in every_way(subject) if way.generates]
    spoken = list[tuple[int, ...]]()
    for way in within(subject, callers, lambda _: 40.0, "operations", 0.8):
        options = way.options(subject, _LONG)
        expected = wanted(subject, way, _PROMPTS, options)
        spoken += [row.answer.ids for row in expected]
        for number, (prompt, free) in enumerate(zip(_PROMPTS, expected, strict=True)):
            for stops in _alike(free.answer.text):
                request = options | {"stop": stops}
                rows = gives(subject, way, subject.model, [prompt], request)
                cut = Row(stopped(free.answer, request))
                what = f"{way.name} of {prompt!r} with stop={stops!r}"
                alike(subject, way, [cut], rows, what)
            if number == 0:
                _refuses_what_is_no_text(subject, way, prompt, free)
    if callers:
        goes_on(subject, spoken)


def _alike(text: str) -> Iterator[tuple[str, ...]]:
    """Yield stop strings of which one comes in the text, and others begin as it does."""
    if not text.isascii() or len(text) < 6:
        return
    middle = len(text) // 2
    stop = text[middle : middle + 3]
    yield f"{stop[:2]}\0", stop, f"{stop[:1]}~", f"{stop}~"
    yield f"{stop}~", stop[1:], stop, _NUL
    yield (f"{text[-2:]}~", f"{text[-1:]}~~")


def _refuses_what_is_no_text(subject: Subject, way: Way, prompt: str, free: Row) -> None:
    request = way.options(subject, _LONG) | {"stop": (BROKEN,)}
    try:
        rows = gives(subject, way, subject.model, [prompt], request)
    except OptionError:
        must(True, "")
        return
    alike(subject, way, [free], rows, f"{way.name} with stop={BROKEN!r}, and without")
