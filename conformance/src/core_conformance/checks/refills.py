"""Checks of slots that are used again: a row owes nothing to the one that had its slot before.

Two slots, and rows of unequal lengths that end at different times, so that each slot is given away
at least twice. A row's own state is its tokens, its random numbers, what its penalty has seen,
the text that its stop strings hold back, and the details requested.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from typing import Any, cast

from core.errors import UnsupportedOptionError
from core.extensions import Submitting
from core.options import GenerateConfig
from core.protocols import Capability, TextModel, TokenStream
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import (
    EVEN,
    Answer,
    answer,
    batch,
    evidence,
    read,
    seeds,
    speaks,
)
from core_conformance.checking.budget import within
from core_conformance.checking.calls import unless_refused
from core_conformance.checking.check import check, must
from core_conformance.checking.compare import same_draws, same_rows
from core_conformance.checking.sizes import room, sized
from core_conformance.checking.subject import Subject

Options = dict[str, Any]
_SLOTS = 2
_SHARE = 0.7  # of the passes for one check
_LENGTHS = (4, 17, 6, 36, 5, 9, 12)  # tokens of the prompts: three times the slots, and one more
_MOST, _LONG, _ENDLESS = 6, 24, 600  # tokens of an answer
_SEEN: Options = {"repeat_penalty": 0.01}  # what was seen becomes likely: of another row, too
_DRAWN = {"seed", "repeat_penalty"}  # where noise may change more than ties
_LATER = 3  # places further on in a batch is the row that may get a row's slot


@check(
    "refills.batch",
    "A row MUST get what it gets alone, whichever row had its slot before: tokens, stops, penalty "
    "and seed",
    Capability.BATCH_GENERATE,
    Capability.PARALLEL,
    broad=True,
)
def rows_in_used_slots(subject: Subject) -> None:
    given = _prompts(subject)
    free = _alone(subject, given, {})
    goes_on(subject, [answer.tokens for answer in free], Capability.BATCH_GENERATE)
    cases = _cases(subject, free)

    def cost(name: str) -> float:
        return len(given) * _MOST / 2

    with subject.loaded(parallel_slots=_SLOTS) as model:
        for name in within(subject, cases, cost, "used slots, with options", _SHARE):
            with unless_refused(name):
                _as_alone(subject, model, given, cases[name])


@check(
    "refills.submitted",
    "A submitted request MUST keep its own options in a slot that another one had before",
    Capability.SUBMITTING,
    Capability.PARALLEL,
    broad=True,
)
def requests_in_used_slots(subject: Subject) -> None:
    speaks(subject, Capability.SUBMITTING)
    given, kinds = _prompts(subject), list(_kinds(subject))
    requests = [(prompt, kinds[place % len(kinds)]) for place, prompt in enumerate(given)]
    alone = [_submitted(subject.model, [request])[0] for request in requests]
    goes_on(subject, [answer.tokens for answer in alone], Capability.SUBMITTING)
    with subject.loaded(parallel_slots=_SLOTS) as model:
        # All wait until the requests that occupy the slots are interrupted.
        endless = {"max_tokens": min(_ENDLESS, subject.model.info.context_length)}
        endless |= _SEEN if _taken(subject, _SEEN) else {}
        holding = [_submit(model, prompt, endless) for prompt in ask.PLAIN[:_SLOTS]]
        refilled = _submitted(model, requests, holding)

        for (_, options), left, right in zip(requests, alone, refilled, strict=True):
            what = f"a request with {options} alone, and one of {len(given)} in {_SLOTS} slots"
            compare = same_draws if options.keys() & _DRAWN else same_rows
            compare(subject, [(left, right)], what)
            with_logprob = {token.logprob is not None for token in right.tokens}
            must(
                with_logprob <= {"return_logprobs" in options}
                and len(right.tokens) <= options["max_tokens"],
                f"{what}: {right.tokens!r:.300}",
            )


def _prompts(subject: Subject) -> list[str]:
    longest = room(subject, spare=_LONG)
    sizes = [min(length, longest) for length in _LENGTHS]
    prompts = [sized(subject, size, turn=5 + place) for place, size in enumerate(sizes)]
    return [prompt or ask.PLAIN[place % 6] for place, prompt in enumerate(prompts)]


def _alone(subject: Subject, given: Sequence[str], options: Options) -> list[Answer]:
    return [answer(batch(subject, [prompt], _MOST, **options)[0], prompt) for prompt in given]


def _cases(subject: Subject, free: Sequence[Answer]) -> dict[str, Options]:
    """Return options by the name of the one that a backend may refuse; each shows leftovers."""
    ends = tuple(
        {
            answer.ids[(2 * row + 1) % len(answer.ids)]
            for row, answer in enumerate(free)
            if answer.ids
        }
    )
    cases = {"stop": {"stop_tokens": ends, "stop": _joins(free, ends)}, "repeat_penalty": _SEEN}
    if subject.declares(Capability.SEED):
        cases["temperature"] = EVEN | {"seed": 7}
    return cases


def _joins(free: Sequence[Answer], ends: Collection[int]) -> tuple[str, ...]:
    """Stop strings that begin in one row and end in a later one: no row alone has one of them."""
    texts = [_until(item, ends) for item in free]
    joins = [
        one[-2:] + other[:2]
        for place, one in enumerate(texts)
        for other in texts[place + 1 : place + 1 + _LATER]
        if one and other
    ]
    return tuple(dict.fromkeys(item for item in joins if not any(item in text for text in texts)))


def _until(free: Answer, ends: Collection[int]) -> str:
    texts = [token.text for token in takewhile(lambda token: token.id not in ends, free.tokens)]
    return "".join(texts)


def _as_alone(subject: Subject, model: TextModel, given: Sequence[str], options: Options) -> None:
    alone = _alone(subject, given, options)
    request: Options = evidence(subject) | options | {"max_tokens": _MOST}
    results = model.batch_generate(given, **request)
    must(len(results) == len(given), f"{len(given)} prompts gave {len(results)} results")
    pairs = list(zip(alone, map(answer, results), strict=True))
    what = f"a row alone, and one of {len(given)} in {_SLOTS} slots, with {options}"
    if options.keys() & _DRAWN:
        same_draws(subject, pairs, what)
    else:
        same_rows(subject, pairs, what, options["stop"])


def _kinds(subject: Subject) -> Iterator[Options]:
    """Yield options for one request each, all of which the backend accepts."""
    yield {"max_tokens": 3} | evidence(subject)
    for options in (EVEN | seeds(subject, 1)[0], _SEEN):
        drawn = options is _SEEN or subject.declares(Capability.SEED)
        if drawn and _taken(subject, options):
            yield {"max_tokens": _MOST} | options
    yield {"max_tokens": _LONG}
    yield {"max_tokens": 1}


def _taken(subject: Subject, options: Options) -> bool:
    try:
        _submit(subject.model, ask.QUESTION, {"max_tokens": 1} | options).close()
    except UnsupportedOptionError as error:
        must(error.option in options, f"submit with {options} raised {error!r}")
        return False
    return True


def _submitted(
    model: TextModel, requests: Sequence[tuple[str, Options]], holding: Sequence[TokenStream] = ()
) -> list[Answer]:
    """Submit all requests, close the streams that run before them, and read the last one first."""
    streams = [_submit(model, prompt, options) for prompt, options in requests]
    for stream in holding:
        stream.close()
    both = list(zip(streams, requests, strict=True))
    return [read(stream, prompt) for stream, (prompt, _) in both[::-1]][::-1]


def _submit(model: TextModel, prompt: str, options: Options) -> TokenStream:
    return cast("Submitting", model).submit(prompt, GenerateConfig(**options))
