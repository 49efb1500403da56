"""Checks of the context's end, of attention keys, and of the memory that a model reports."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from core.errors import UnsupportedOptionError
from core.extensions import MemoryReporting
from core.protocols import Capability, TextModel
from core.types import AttentionSnapshot, MemoryReport, Message
from core_conformance.checking import ask
from core_conformance.checking.applies import has_template
from core_conformance.checking.ask import Answer, classify, is_floats, read, speaks, tokenizing
from core_conformance.checking.budget import within
from core_conformance.checking.calls import (
    PROMPTS,
    ROW_OPERATIONS,
    declared,
    encoded_length,
    ending,
)
from core_conformance.checking.check import (
    NotTestable,
    Violation,
    check,
    leave_out,
    must,
    testable,
)
from core_conformance.checking.compare import same_answers
from core_conformance.checking.sizes import SMALL_CONTEXT, must_be_too_long, overlong, small
from core_conformance.checking.subject import Subject

_SMALL = 32  # positions
_LARGE = 1024  # more than this would take too long to fill
_TOO_LARGE = (
    f"the context cannot be made smaller, and filling it would take too long: use a model whose "
    f"context holds at most {_LARGE} tokens"
)
_FILLER, _ROOM = "So it is. ", 48  # fills a large context but for this many tokens
_UNIFORM = 1e4  # a temperature
_ENDS = (
    "the model ends before the context is full after every prompt tried, and temperature is not "
    "available to prevent that: use a model that continues"
)
_NEVER_AGAIN = 1e9  # a penalty after which every token comes once
_BEYOND = 12  # tokens asked for that the context has no place for
_NEAR = 0.02  # of the largest key: two runs may differ in rounding only


@check(
    "context.length",
    'A generation that reaches the end of the context MUST end there, with "length", and not a '
    "token earlier: the last one drawn may need no place",
    Capability.GENERATE,
)
def context_ends_generation(subject: Subject) -> None:
    with small(subject, _SMALL) as model:
        limit = model.info.context_length
        is_small = limit <= _LARGE
        prompts = ask.PLAIN if is_small else _nearly_full(subject, limit)
        many = _BEYOND + (limit if is_small else _ROOM)
        prompt, answer = _fill(subject, model, prompts, many)
        _ends_within(subject, prompt, limit, answer, many)


@check(
    "context.rotate",
    'With context_overflow="rotate" a generation MUST continue past the context; until that is '
    "full, its tokens are the same as without, and a stop string that comes later still ends it",
    Capability.GENERATE,
    Capability.ROTATE,
)
def rotation_goes_on(subject: Subject) -> None:
    with subject.loaded(context_len=_SMALL, context_overflow="rotate") as model:
        limit = model.info.context_length
        testable(limit <= _LARGE, _TOO_LARGE)
        many = limit + _BEYOND
        prompt, answer = _fill(subject, model, ask.PLAIN, many)
        must(
            len(answer.tokens) == many,
            f"with a rotating context of {limit}, max_tokens={many} gave "
            f"{len(answer.tokens)} tokens and {answer.finish_reason!r}",
        )
        greedy = read(model.generate(prompt, max_tokens=many, **ask.evidence(subject)), prompt)
        if len(greedy.tokens) == many:
            _stops_beyond(subject, model, greedy, many)
    with subject.loaded(context_len=_SMALL) as model:
        before = read(model.generate(prompt, max_tokens=many, **ask.evidence(subject)), prompt)
        begun = Answer(greedy.tokens[: len(before.tokens)], before.finish_reason)
        same_answers(subject, [(before, begun)], f"a context of {limit}, and a rotating one")


def _stops_beyond(subject: Subject, model: TextModel, greedy: Answer, many: int) -> None:
    """Stop an answer at a text that first comes when the context is full."""
    text, full = greedy.text, len("".join(token.text for token in greedy.tokens[:-_BEYOND]))
    places = {end: text[end : end + 3] for end in range(full, len(text) - 2)}
    ends = [end for end, stop in places.items() if "\ufffd" not in stop and text.find(stop) == end]
    if not ends:
        leave_out("a stop string after the context is full: no text comes first there")
        return
    stop = places[ends[0]]
    again = read(
        model.generate(greedy.prompt, max_tokens=many, stop=(stop,), **ask.evidence(subject))
    )
    if again.ids == greedy.ids[: len(again.ids)]:  # not parted at a tie
        must(
            again.text == text[: ends[0]] and again.finish_reason == "stop",
            f"stop={stop!r}, which comes after the context of {model.info.context_length} is full, "
            f"left {again.text!r} ({again.finish_reason}) of {text!r}",
        )


@check(
    "context.rotate-penalty",
    "repeat_penalty MUST see the whole text where the context rotates: positions that were "
    "dropped, too",
    Capability.GENERATE,
    Capability.ROTATE,
)
def rotation_forgets_no_penalty(subject: Subject) -> None:
    options: Any = {"repeat_penalty": _NEVER_AGAIN}
    with subject.loaded(context_len=_SMALL, context_overflow="rotate") as model:
        limit = model.info.context_length
        testable(limit <= _LARGE, _TOO_LARGE)
        many, tokens, repeats = 2 * limit, 0, list[int]()
        for prompt in ask.PLAIN[:3]:
            for one in (subject.model, model):  # the shared one has room for the whole answer
                try:
                    answer = read(one.generate(prompt, max_tokens=many, **options), prompt)
                except UnsupportedOptionError as error:
                    must(error.option == "repeat_penalty", f"a generation raised {error!r}")
                    return
                tokens += len(answer.ids)
                repeats.append(len(answer.ids) - len(set(answer.ids)))
    free, rotated = repeats[::2], repeats[1::2]
    testable(tokens > 0, "the model ends at once: use one that continues")
    testable(not any(free), "the model repeats tokens whatever the penalty is")
    must(
        sum(rotated) <= len(rotated),
        f"with repeat_penalty={_NEVER_AGAIN:g} and a rotating context of {limit}, answers of "
        f"{many} tokens have {rotated} tokens again, and none where the context holds them",
    )


@check(
    "context.rotate-too-long",
    'A prompt longer than the context MUST be refused with context_overflow="rotate" all the same',
    Capability.ROTATE,
    broad=True,
)
def rotation_takes_no_longer_prompts(subject: Subject) -> None:
    with subject.loaded(context_len=SMALL_CONTEXT, context_overflow="rotate") as model:
        long = overlong(model)
        length = encoded_length(subject, long)
        for name in declared(subject):
            if name in ROW_OPERATIONS:
                few = {"max_tokens": 1} if name is Capability.BATCH_GENERATE else {}
                ask_rows: Any = getattr(model, name.value)
                rows = ask_rows([PROMPTS[0], long, PROMPTS[1]], **few)
                errors = [row.error for row in rows]
                must(errors[::2] == [None, None], f"{name} alongside a prompt too long: {errors}")
                must_be_too_long(model, errors[1], length)
            elif name is Capability.GENERATE:
                end = ending(partial(model.generate, long, max_tokens=1))
                must_be_too_long(model, end.error, length)
            elif has_template(subject):
                end = ending(partial(model.chat, [Message("user", long)], max_tokens=1))
                must_be_too_long(model, end.error, None)


def _nearly_full(subject: Subject, limit: int) -> list[str]:
    """Return prompts after so much filler that some twenty tokens fit after them."""
    cost = limit / 20
    tokenizes = subject.declares(Capability.TOKENIZING)
    for _ in within(subject, [limit] if tokenizes else [], lambda _: cost, "filling a context of"):
        tokens_a_filler = len(tokenizing(subject).encode(_FILLER * _LARGE)) / _LARGE
        front = _FILLER * int((limit - _ROOM) / tokens_a_filler)
        return [front + prompt for prompt in ask.PLAIN]
    raise NotTestable(
        f"the context cannot be made smaller than {limit} tokens, and filling it takes too long"
    )


def _fill(
    subject: Subject, model: TextModel, prompts: Sequence[str], many: int
) -> tuple[str, Answer]:
    """Return a prompt that the model continues to the end of its context, and the answer.

    Where every greedy answer ends by itself, tokens are drawn with about the same probability each,
    so that the end-of-text token is rare.
    """
    speaks(subject, Capability.GENERATE)
    ways: tuple[dict[str, Any], ...] = ({}, {"temperature": _UNIFORM})

    for options in ways:
        for prompt in prompts:
            try:
                answer = read(model.generate(prompt, max_tokens=many, **options), prompt)
            except UnsupportedOptionError as error:
                must(error.option in options, f"a plain generation raised {error!r}")
                raise NotTestable(_ENDS) from None
            if answer.finish_reason != "stop":
                return prompt, answer

    raise Violation(
        f"every generation with max_tokens={many} ended with 'stop', even at a temperature of "
        f"{_UNIFORM:g}: expected finish_reason 'length' if the context or max_tokens ends it"
    )


def _ends_within(subject: Subject, prompt: str, limit: int, answer: Answer, many: int) -> None:
    count, reason = len(answer.tokens), answer.finish_reason
    must(
        reason == "length" and 0 < count < many,
        f"a context of {limit} ended a generation after {count} tokens with {reason!r}; with "
        "'length', and before max_tokens, was expected",
    )
    if subject.declares(Capability.TOKENIZING):
        # Same tokens for any context length. The last token drawn may need no position.
        used = len(tokenizing(subject).encode(prompt)) + count
        must(
            limit <= used <= limit + 1,
            f"prompt and answer are {used} tokens; the context holds {limit}",
        )


@check(
    "inspection.sizes",
    "A snapshot MUST hold seq_len * head_dim float32 numbers per layer and head, as many as it "
    "says",
    Capability.ATTENTION_INSPECTOR,
)
def sizes_agree(subject: Subject) -> None:
    seen = ask.inspect(subject, ask.PLAIN[0])
    must(
        len(seen.keys) == seen.num_layers and all(len(k) == seen.num_heads for k in seen.keys),
        f"{seen!r} holds {len(seen.keys)} layers with {[len(k) for k in seen.keys]} heads",
    )

    # Each head holds one vector for each position.
    size = seen.seq_len * seen.head_dim
    for values in (values for layer in seen.keys for values in layer):
        must(
            is_floats(values, size),
            f"a head's keys are a {type(values).__name__} of {len(values)}, not an array('f') of "
            f"{seen.seq_len} * {seen.head_dim}",
        )

    # Its sizes are those of the model and of the prompt.
    info = subject.model.info
    must(
        (seen.num_layers, seen.architecture) == (info.num_layers, info.architecture),
        f"the snapshot {seen!r} is of another model than {info!r}",
    )

    if subject.declares(Capability.TOKENIZING):
        length = len(tokenizing(subject).encode(ask.PLAIN[0]))
        must(seen.seq_len == length, f"the prompt has {length} tokens, and seq_len={seen.seq_len}")


@check(
    "inspection.prefix",
    "Keys MUST depend on what stands before them alone: a longer prompt has the shorter one's",
    Capability.ATTENTION_INSPECTOR,
    Capability.TOKENIZING,
)
def longer_prompts_begin_alike(subject: Subject) -> None:
    prompt = ask.PLAIN[0]
    longer, other = f"{prompt} a city of light", ask.PLAIN[3]
    short, long = ask.inspect(subject, prompt), ask.inspect(subject, longer)
    shared = _common(subject, prompt, longer)
    must(
        _apart(short, long, shared) <= _NEAR,
        f"the first {shared} tokens of {prompt!r} and {longer!r} are the same, and their keys "
        "are not",
    )
    must(
        _apart(short, ask.inspect(subject, other), min(2, len(other))) > 0
        or _common(subject, prompt, other) >= 2,
        f"{prompt!r} and {other!r} have the same keys, so the keys do not depend on the prompt",
    )
    testable(shared > 0, f"{prompt!r} and {longer!r} share no token: use another model")


def _common(subject: Subject, left: str, right: str) -> int:
    encode = tokenizing(subject).encode
    pairs = list(zip(encode(left), encode(right), strict=False))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))


def _apart(left: AttentionSnapshot, right: AttentionSnapshot, positions: int) -> float:
    """Return the largest difference over the first positions, as a fraction of the largest key."""
    size = positions * left.head_dim
    ends = [
        (ours[:size], theirs[:size])
        for one, other in zip(left.keys, right.keys, strict=True)
        for ours, theirs in zip(one, other, strict=True)
    ]
    largest = max((_largest(ours) for ours, _ in ends), default=0.0)
    apart = max((abs(a - b) for pair in ends for a, b in zip(*pair, strict=False)), default=0.0)
    return apart / largest if largest else apart


def _largest(values: Sequence[float]) -> float:
    return max(map(abs, values), default=0.0)


@check(
    "memory.report",
    "memory() MUST report whole bytes, and the peak since the last reset_peak_memory()",
    Capability.MEMORY_REPORTING,
    Capability.CLASSIFY,
)
def memory_is_reported(subject: Subject) -> None:
    model = cast("MemoryReporting", subject.model)
    classify(subject, [ask.LONG])
    before = model.memory()
    must(isinstance(before, MemoryReport), f"memory() is {before!r}, not a MemoryReport")

    for name in ("active_bytes", "peak_bytes", "cache_bytes"):
        value = getattr(before, name)
        must(isinstance(value, int) and value >= 0, f"{name} is {value!r}, not a count of bytes")

    # Another loaded model uses more memory, and afterwards the peak still includes it.
    with subject.loaded() as other:
        _begun(other)
        most = max(before.active_bytes, cast("MemoryReporting", other).memory().active_bytes)
    remembered = model.memory()
    must(
        remembered.peak_bytes >= most,
        f"{most} bytes were active, and the peak of {remembered} is less",
    )

    # A reset lowers the peak to the memory in use, and later work raises it again.
    model.reset_peak_memory()
    after = model.memory()
    must(
        after.peak_bytes <= max(after.active_bytes, (after.active_bytes + most) // 2),
        f"reset_peak_memory() left the peak at {after.peak_bytes}, where {after.active_bytes} are "
        f"held, and {most} were",
    )

    classify(subject, [ask.SHORT])
    worked = model.memory()
    must(
        worked.peak_bytes >= worked.active_bytes,
        f"after a call the peak is {worked.peak_bytes} bytes, and {worked.active_bytes} are held",
    )


def _begun(model: TextModel) -> None:
    """Run a small request, so that the model allocates the memory it needs."""
    [result] = model.classify([ask.SHORT])
    must(result.error is None, f"classify() of another model gave the error {result.error!r}")
