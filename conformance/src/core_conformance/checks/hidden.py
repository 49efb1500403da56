"""Checks of hidden states: each is its own prompt's and its own layer's, whatever else is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any, cast

from core.errors import (
    EmptyPromptError,
    InvalidOptionError,
    PromptTooLongError,
    UnsupportedOptionError,
)
from core.extensions import HiddenStates
from core.protocols import Capability
from core.types import HiddenResult
from core_conformance.checking import ask
from core_conformance.checking.ask import hidden, logits, showing, tokenizing
from core_conformance.checking.calls import must_raise, raised
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import same_states
from core_conformance.checking.recall import relatives
from core_conformance.checking.sizes import overlong, short_context
from core_conformance.checking.subject import Subject

_FEW_TOKENS = 4096
_PROMPTS = (ask.LONG, ask.SHORT, ask.QUESTION, ask.HOSTILE[1], *ask.PLAIN[1:4])


@check(
    "hidden.results",
    "There MUST be one result per prompt in order, with finite float32 states of the model's "
    "hidden_size for every layer, which is named by its number from 0",
    Capability.HIDDEN_STATES,
)
def results_have_states(subject: Subject) -> None:
    info = subject.model.info
    last, size = info.num_layers, info.hidden_size
    for result in hidden(subject, _PROMPTS):
        count = len(result.states or ())
        must(count == size, f"a state has {count} numbers, and the model's hidden_size is {size}")
        must(
            result.layers == (last,),
            f"the states of layers=(-1,), of {last} layers, are reported as {result.layers}",
        )
    must(showing(subject).hidden_states([]) == [], "hidden_states([]) is not []")


@check(
    "hidden.neighbours",
    "Other prompts of the same call MUST NOT change a state, nor its place",
    Capability.HIDDEN_STATES,
)
def neighbours_change_nothing(subject: Subject) -> None:
    for prompts in (_PROMPTS, _PROMPTS[::-1]):
        for prompt, together in zip(prompts, hidden(subject, prompts), strict=True):
            [alone] = hidden(subject, [prompt])
            _same(subject, together, alone, f"the state of {prompt!r:.60} among others, and alone,")


@check(
    "hidden.prompts",
    "Prompts after which the model has other logits MUST have other states, though they end alike",
    Capability.HIDDEN_STATES,
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def prompts_have_their_own(subject: Subject) -> None:
    prompts = (*_PROMPTS, *(f"{prompt} {ask.SHORT}" for prompt in ask.PLAIN[:4]))
    largest = 0.0
    rows = zip(prompts, logits(subject, prompts), hidden(subject, prompts), strict=True)
    for (prompt, likely, state), (other, its, another) in combinations(rows, 2):
        apart = max(map(abs, map(float.__sub__, likely, its)))
        largest = max(largest, apart)
        if apart <= 2 * subject.tolerance:
            continue
        must(
            state.states != another.states,
            f"{prompt!r:.60} and {other!r:.60} have different logits and the same hidden state",
        )
    least = 2 * subject.tolerance
    testable(
        largest > least,
        f"the logits after {len(prompts)} different prompts differ by at most {largest:.1g}, and "
        f"less than {least:.1g} is tolerance, so that swapped states would not show: use a model "
        "whose output depends on the prompt",
    )


@check(
    "hidden.embeddings",
    "Layer 0 MUST be the embedding of the prompt's last token: the same in prompts that end in "
    "this token after as many others. A backend that does not show it refuses it",
    Capability.HIDDEN_STATES,
    Capability.TOKENIZING,
)
def embeddings_are_of_one_token(subject: Subject) -> None:
    shown = 0 in _shown(subject)
    words = dict.fromkeys(" ".join(ask.PLAIN).split())
    comparable = False
    for end in (
        f" {ask.QUESTION}",
        ask.SHORT,
    ):  # words at the beginning, and next to the last token
        alike = _alike(subject, [f"{word}{end}" for word in words])
        comparable = comparable or len(alike) > 1
        states = hidden(subject, alike[:4], [0]) if shown else []
        for prompt, state in zip(alike, states, strict=False):
            _same(subject, state, states[0], f"layer 0 after {prompt!r:.60} and {alike[0]!r:.60}")
    testable(comparable, "no two words have as many tokens: use another model")


def _alike(subject: Subject, prompts: Sequence[str]) -> list[str]:
    """Return the most of these prompts that have as many tokens, and end in the same one."""
    ends: dict[tuple[int, int], list[str]] = {}
    for prompt in prompts:
        ids = tokenizing(subject).encode(prompt)
        ends.setdefault((len(ids), ids[-1]), []).append(prompt)
    return max(ends.values(), key=len)


@check(
    "hidden.again",
    "Earlier requests MUST NOT change a state, whatever beginning the prompts share",
    Capability.HIDDEN_STATES,
)
def asked_before(subject: Subject) -> None:
    prompts = relatives(subject, "Some day")
    with subject.loaded() as fresh:
        model = cast("HiddenStates", fresh)
        forth = [model.hidden_states([prompt])[0] for prompt in prompts]
    back = [hidden(subject, [prompt])[0] for prompt in prompts[::-1]][::-1]
    for prompt, one, other in zip(prompts, forth, back, strict=True):
        must(one.error is None, f"hidden_states() gave {prompt!r:.60} the error {one.error!r}")
        _same(subject, one, other, f"the state of {prompt!r:.60}, asked in two orders,")


@check(
    "hidden.layers",
    "A layer MUST have one state, its own, under its number and its negative one, in the order in "
    "which layers are asked for; one that the backend does not show is refused at the call, and "
    "the last is not.",
    Capability.HIDDEN_STATES,
)
def layers_have_their_own(subject: Subject) -> None:
    last, shown = subject.model.info.num_layers, list(_shown(subject))
    must(last in shown, f"the last layer, {last}, is refused: every model has it")
    prompts = [ask.QUESTION, ask.LONG]

    # In one call, backwards and by negative numbers; and each by itself.
    negative = [layer - last - 1 for layer in shown[::-1]]
    together = hidden(subject, prompts, negative)
    for place, layer in enumerate(shown[::-1]):
        for result, alone in zip(together, hidden(subject, prompts, [layer]), strict=True):
            must(
                result.layers == tuple(shown[::-1]),
                f"layers={negative} are reported as {result.layers}, but are {tuple(shown[::-1])}",
            )
            what = f"the state of layer {layer} in layers={negative}, and of layers=[{layer}],"
            same_states(subject, result.vectors[place], alone.vectors[0], what)

    for result in together:
        distinct = {vector.tobytes() for vector in result.vectors}
        must(len(distinct) == len(shown), f"of the layers {shown} some have the same state")


@check(
    "hidden.no-layers",
    "Nonexistent layers, none at all, one twice, and anything but a number MUST raise "
    "InvalidOptionError at the call",
    Capability.HIDDEN_STATES,
)
def wrong_layers_are_refused(subject: Subject) -> None:
    last, model = subject.model.info.num_layers, cast("Any", subject.model)
    for wrong in ((), (last + 1,), (-last - 2,), (-1, last), (0.5,), ("0",), "0"):
        call = partial(model.hidden_states, [ask.SHORT], layers=wrong)
        must_raise(InvalidOptionError, call, f"hidden_states(layers={wrong!r})")


@check(
    "hidden.error-rows",
    "An error in one prompt MUST be its result's error; the others finish",
    Capability.HIDDEN_STATES,
)
def errors_stay_in_their_rows(subject: Subject) -> None:
    [alone] = hidden(subject, [ask.QUESTION])
    rows = showing(subject).hidden_states(["", ask.QUESTION])
    must(len(rows) == 2, f"two prompts gave {len(rows)} results")
    must(
        isinstance(rows[0].error, EmptyPromptError) and rows[0].states is None,
        f"the result of an empty prompt has error={rows[0].error!r}, and not an EmptyPromptError "
        "without states",
    )
    must(rows[1].error is None, f"next to an empty prompt, one has the error {rows[1].error!r}")
    _same(subject, rows[1], alone, "a state next to an empty prompt, and alone,")


@check(
    "hidden.too-long",
    "A prompt that the context does not hold MUST be its row's PromptTooLongError, and hurt no "
    "other",
    Capability.HIDDEN_STATES,
    broad=True,
)
def prompts_without_room(subject: Subject) -> None:
    with short_context(subject, _FEW_TOKENS) as model:
        results = cast("HiddenStates", model).hidden_states([overlong(model), ask.PLAIN[0]])
    must(
        isinstance(results[0].error, PromptTooLongError),
        f"a prompt longer than the context has the error {results[0].error!r}: expected "
        "PromptTooLongError",
    )
    must(
        results[1].error is None and bool(results[1].states),
        f"alongside a prompt that is too long, a short one got {results[1]!r}",
    )


def _shown(subject: Subject) -> Iterator[int]:
    """Yield those of the first, middle and last layers that the backend does not refuse."""
    last = subject.model.info.num_layers
    for layer in sorted({0, 1, last // 2, last - 1, last}):
        error = raised(partial(showing(subject).hidden_states, [ask.SHORT], layers=(layer,)))
        if isinstance(error, UnsupportedOptionError):
            must(error.option == "layers", f"layers=({layer},) is refused as {error.option!r}")
        else:
            must(error is None, f"hidden_states(layers=({layer},)) raised {error!r}")
            yield layer


def _same(subject: Subject, left: HiddenResult, right: HiddenResult, what: str) -> None:
    same_states(subject, left.states or (), right.states or (), what)
