"""Checks of what is kept of long prompts: their cancelled reading, their count, their blocks.

A prompt of several hundred tokens fills the chunks of a prefill and the blocks of a cache, where
the short prompts of other checks fill none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from core.errors import RequestError
from core.extensions import TokenPrompts
from core.protocols import Capability, TextModel
from core.types import Token
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import (
    SPEAKING,
    Answer,
    answer,
    evidence,
    generate,
    hidden,
    logits,
    sampled,
    score,
    tokenizing,
)
from core_conformance.checking.budget import pass_seconds, within
from core_conformance.checking.calls import CancelAfter, encoded_length, unless_refused
from core_conformance.checking.check import check, leave_out, must, testable
from core_conformance.checking.compare import Pair
from core_conformance.checking.compare import same_rows as same_details
from core_conformance.checking.recall import long_story
from core_conformance.checking.sizes import NO_SIZES, reading, sized
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import BATCHES, READERS, run, same_rows, timed, undisturbed
from core_conformance.checking.ways.table import Way, ways

_TOKENS = 2
_LOOKS = (3, 2)
_SHARE = 0.4  # of the passes for one check
_SIZES = (257, 256, 513, 129, 255, 512, 511, 128, 65, 64)
_NEAR = 6  # words from the end
_ALIKE = "the model says the same after every prompt: use a model whose output depends on it"
_COUNTING = (*SPEAKING, *BATCHES, Capability.CLASSIFY, Capability.CLASSIFY_STREAMING)


@check(
    "history.long-stopped",
    "A long prompt whose reading was cancelled at any look MUST get afterwards what it gets in a "
    "new load",
    (*SPEAKING, *BATCHES, *READERS),
    broad=True,
)
def read_in_part(subject: Subject) -> None:
    prompt = long_story(subject, "At length")
    prompts = [prompt, f"{prompt} and so on"]
    with unless_refused("cancel"), subject.loaded() as fresh, subject.loaded() as model:
        for way in ways(subject, *SPEAKING, *BATCHES, *READERS):
            wanted = [run(subject, way, fresh, [text], _TOKENS) for text in prompts]
            undisturbed([row for rows in wanted for row in rows], f"{way.name} of a long prompt")
            _, seconds = timed(subject, way, fresh, prompts[:1], _TOKENS)
            cost = partial(_cost, 3 * seconds / pass_seconds(subject))
            name = f"{way.name} cancelled in a long prompt"
            for looks in within(subject, _LOOKS, cost, name, _SHARE):
                again = _stopped(subject, way, model, prompts, looks)
                for text, own, rows in zip(prompts, wanted, again, strict=True):
                    what = f"{way.name} of {len(text)} characters, after a cancel at look {looks}"
                    same_rows(subject, own, rows, what)


def _cost(passes: float, looks: int) -> float:
    return passes


def _stopped(
    subject: Subject, way: Way, model: TextModel, prompts: Sequence[str], looks: int
) -> list[Any]:
    """Ask the longer prompt after the other was cancelled at a look, and then that one."""
    with suppress(RequestError):
        run(subject, way, model, prompts[:1], _TOKENS, cancel=CancelAfter(looks))
    results = [run(subject, way, model, [prompt], _TOKENS) for prompt in prompts[::-1]]
    return results[::-1]


@check(
    "metrics.long-again",
    "prompt_tokens of a long prompt MUST be the same when it is asked again, those from a cache "
    "included",
    _COUNTING,
)
def counted_again(subject: Subject) -> None:
    prompt = long_story(subject, "To count")
    expected = encoded_length(subject, prompt)
    for way in ways(subject, *_COUNTING):
        chats = way.name is Capability.CHAT  # which has a template's tokens as well
        with subject.loaded() as model:
            counts = []
            for _ in range(2):
                way.ask(model, [prompt], way.options(subject, 1))
                counts.append(model.metrics.prompt_tokens)
        must(counts[0] > 0, f"{way.name} counts no prompt_tokens")
        must(
            len({*counts, counts[0] if expected is None or chats else expected}) == 1,
            f"{way.name} of one prompt of {expected} tokens, asked twice, counts {counts} "
            "prompt_tokens",
        )


@check(
    "lengths.large-blocks",
    "A prompt that fills large blocks, or is one token longer or shorter, MUST be continued alike "
    "by all operations",
    (Capability.CLASSIFY, Capability.BATCH_GENERATE, Capability.TOKEN_PROMPTS),
    Capability.GENERATE,
    Capability.TOKENIZING,
    broad=True,
)
def large_blocks(subject: Subject) -> None:
    room = subject.model.info.context_length - 4
    sizes = [size for size in _SIZES if size <= room]
    testable(bool(sizes), "the context has no room for a prompt of 128 tokens: use a larger one")
    compared = False
    for size in within(subject, sizes, reading(4), "prompts of large blocks", _SHARE):
        prompt = sized(subject, size, turn=9)
        if prompt is None:
            continue
        compared = True
        pairs = list(_first_tokens(subject, prompt))
        same_details(subject, pairs, f"first tokens after a prompt of {size} tokens")
        goes_on(subject, [left.ids for left, _ in pairs])
    testable(compared, NO_SIZES)


def _first_tokens(subject: Subject, prompt: str) -> list[Pair]:
    """Pair what generate begins with, and what other operations say of the same place."""
    own = generate(subject, prompt, 1)
    others = []
    if subject.declares(Capability.CLASSIFY):
        others.append(sampled(ask.classify(subject, [prompt], **evidence(subject))[0]))
    if subject.declares(Capability.BATCH_GENERATE):
        others.append(answer(ask.batch(subject, [prompt], 1)[0]))
    pairs = [(own, other) for other in others if own.ids]
    return pairs + _by_ids(subject, prompt)


def _by_ids(subject: Subject, prompt: str) -> list[Pair]:
    """Pair the second token after all but the last of a prompt's ids with one prefill's.

    The step before the second token reads no prompt, so the borders of a prefill do not matter.
    """
    if not subject.declares(Capability.TOKEN_PROMPTS):
        return []
    ids = tokenizing(subject).encode(prompt)[:-1]
    stepped = _drawn(subject, ids, 2)
    if len(stepped) < 2:
        return []
    prefilled = _drawn(subject, [*ids, stepped[0].id], 1)
    return [(Answer(stepped[1:], None), Answer(prefilled, None))]


def _drawn(subject: Subject, ids: Sequence[int], count: int) -> tuple[Token, ...]:
    model = cast("TokenPrompts", subject.model)
    [row] = model.generate_tokens([ids], max_tokens=count, **evidence(subject))
    new = row.ids[len(ids) :]
    logprobs = row.logprobs or (None,) * len(new)
    return tuple(Token(id, "", logprob) for id, logprob in zip(new, logprobs, strict=True))


# ------------------------------------------------------------------- the beginning of a long prompt


@check(
    "lengths.beginning",
    "A long prompt MUST be read from its first word on by every operation: with another one, its "
    "results are others",
    (Capability.SCORING, Capability.HIDDEN_STATES, Capability.LOGITS),
    broad=True,
)
def read_from_the_beginning(subject: Subject) -> None:
    prompts = [long_story(subject, opening) for opening in ("First", "Other")]
    # A model that looks at the last words alone, or at none, says the same after the third prompt
    # too: its results tell nothing.
    words = prompts[0].split(" ")
    words[-_NEAR] = "Other"
    telling: dict[str, bool] = {}
    for name, (first, other, near) in _results(subject, [*prompts, " ".join(words)]):
        if first == other == near:
            leave_out(f"{name}: {_ALIKE}")
        else:
            telling[name] = first != other
    unread = [name for name, differs in telling.items() if not differs]
    must(
        not unread,
        f"{', '.join(unread)} give the same results, number by number, for two prompts of "
        f"{len(prompts[0])} characters that begin differently: read them from their beginning",
    )


def _results(
    subject: Subject, prompts: Sequence[str]
) -> Iterator[tuple[Capability, list[list[float]]]]:
    """Yield the numbers that each operation gives after every prompt."""
    if subject.declares(Capability.HIDDEN_STATES):
        states = [list(result.states or ()) for result in hidden(subject, prompts)]
        yield Capability.HIDDEN_STATES, states
    if subject.declares(Capability.CLASSIFY, Capability.LOGITS):
        yield Capability.CLASSIFY, [list(row) for row in logits(subject, prompts)]
    if subject.declares(Capability.SCORING):
        scores = score(subject, prompts, [" and so on"] * len(prompts))
        yield Capability.SCORING, [list(row.token_logprobs) for row in scores]
