"""A check with generated sequences of calls: no answer depends on earlier or open calls.

A program is a list of steps over few prompts and options. Each step's answer is that of the
yardstick, which was asked the same once, alone: streams stay open, are read on, closed, cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from core.errors import ModelBusyError, RequestError
from core.extensions import BatchStreaming, ClassifyStreaming
from core.protocols import Capability
from core.types import ClassifyResult, Token
from core_conformance.checking import ask
from core_conformance.checking.applies import has_template, usable
from core_conformance.checking.ask import Answer, speaks
from core_conformance.checking.check import check, must
from core_conformance.checking.compare import near
from core_conformance.checking.generated import strategies
from core_conformance.checking.generated.lazily import st
from core_conformance.checking.generated.machine import MOST, Machine, Program, Step, reading
from core_conformance.checking.generated.search import search
from core_conformance.checking.generated.world import (
    Options,
    World,
    batch,
    classify,
    same_error,
    score,
)
from core_conformance.checking.recall import telling
from core_conformance.checking.script import record
from core_conformance.checking.script.spelling import Named
from core_conformance.checking.subject import OPERATIONS, Subject

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_AGAIN = 2  # steps
_OPEN = 2  # streams: more may be more than there are slots
_LABELS = (ask.LABELS, ("good", "good day", "bad"))


@check(
    "generated.calls",
    "No answer MUST depend on the calls before it, nor on what is open beside it",
    OPERATIONS,
    broad=True,
)
def any_calls(subject: Subject) -> None:
    for name in usable(subject):
        if name is not Capability.CLASSIFY:
            speaks(subject, name)
    kinds = [kind for kind, need in _KINDS.items() if _applies(subject, need)]
    search(subject, _programs(subject, kinds), _run, _cost, most=30)


def _programs(subject: Subject, kinds: Sequence[str]) -> SearchStrategy[Program]:
    small = st.integers(0, 3)
    step = st.builds(Step, st.sampled_from(kinds), small, small, st.integers(0, MOST))
    options = st.tuples(st.just({}), strategies.sampling(subject, plain=False))
    return st.builds(
        Program,
        st.lists(strategies.texts(3), min_size=1, max_size=3).map(tuple),
        options,
        st.lists(step, min_size=2, max_size=12).map(tuple),
    )


def _applies(subject: Subject, need: Capability | None) -> bool:
    if need is Capability.CHAT:
        return subject.declares(need) and has_template(subject)
    if need is None:
        return any(subject.declares(name) for name in (Capability.GENERATE, Capability.SUBMITTING))
    if need is Capability.LABELS and not subject.declares(Capability.CLASSIFY):
        return False  # the step asks `classify` for them
    return subject.declares(need)


def _cost(program: Program) -> float:
    return 6.0 * (len(program.steps) + _AGAIN)


def _run(world: World, program: Program) -> None:
    machine = Machine(world, program)

    # First the yardstick: what the calls leave in this process shall not reach it.
    for step in program.steps:
        _ASKED.get(step.kind, _nothing)(machine, step)
    try:
        _do(machine, program.steps)
        machine.finish()
        _do(machine, program.steps[:_AGAIN])  # which give the same as they did
    finally:
        machine.close()


def _do(machine: Machine, steps: Sequence[Step]) -> None:
    for step in steps:
        with suppress(ModelBusyError):  # this thread holds what it would wait for
            _STEPS[step.kind](machine, step)


def _generate(machine: Machine, step: Step) -> None:
    _stream(machine, step, Capability.GENERATE)


def _submit(machine: Machine, step: Step) -> None:
    _stream(machine, step, Capability.SUBMITTING)


def _chat(machine: Machine, step: Step) -> None:
    _stream(machine, step, Capability.CHAT)


def _stream(machine: Machine, step: Step, operation: Capability) -> None:
    if len(machine.open) >= _OPEN:
        _close(machine, step)
    machine.begin(step, operation)


def _more(machine: Machine, step: Step) -> None:
    if machine.open:
        machine.read(machine.open[step.first % len(machine.open)], step.take)


def _close(machine: Machine, step: Step) -> None:
    if machine.open:
        stream = machine.open.pop(step.first % len(machine.open))
        record.note(f"{stream.name}.close()")
        stream.stream.close()
        extra = next(stream.stream, None)
        must(extra is None, f"{stream.name} was closed, and still gave {extra!r}")


def _cancel(machine: Machine, step: Step) -> None:
    names = (Capability.GENERATE, Capability.SUBMITTING)
    declared = [name for name in names if machine.world.subject.declares(name)]
    cancel = Named(machine.name("cancel"))
    record.note(f"import threading; {cancel.name} = threading.Event()")
    stream = machine.begin(step, declared[step.second % len(declared)], cancel)
    if stream is not None:
        record.note(f"{cancel.name}.set()")
        cancel.set()
        machine.read(stream, MOST)


def _classify(machine: Machine, step: Step) -> None:
    rows, options = machine.rows(step), telling(machine.world.subject)
    _same_rows(machine, rows, classify(machine.model, rows, options), options, "classify")


def _labels(machine: Machine, step: Step) -> None:
    rows = machine.rows(step)
    options = _labelled(machine, step)
    _same_rows(machine, rows, classify(machine.model, rows, options), options, "classify")


def _labelled(machine: Machine, step: Step) -> Options:
    return telling(machine.world.subject) | {"labels": _LABELS[step.second % 2]}


def _iterate(machine: Machine, step: Step) -> None:
    rows, options = machine.rows(step), telling(machine.world.subject)
    results = cast("ClassifyStreaming", machine.model).classify_iter(iter(rows), **options)
    _named(machine, "results", step.second)
    read = list(islice(results, step.second))
    _same_rows(machine, rows[: step.second], read, options, "classify_iter")


def _same_rows(
    machine: Machine, rows: list[str], results: list[ClassifyResult], options: Options, by: str
) -> None:
    machine.world.same_rows(rows, results, options, f"alone, and by {by} among other calls,")


def _batch(machine: Machine, step: Step) -> None:
    rows, options = machine.rows(step), machine.options(step)
    for place, result in enumerate(batch(machine.model, rows, options)):
        what = f"by batch_generate among other calls, row {place}: {rows[place]!r:.80}"
        wanted, error = machine.world.answered(Capability.BATCH_GENERATE, rows[place], options)
        if same_error(error, result.error, f"alone, and {what}"):
            seen = Answer(result.tokens, result.finish_reason, rows[place])
            machine.world.same_answer(wanted, seen, f"alone, and {what}", machine.drawn(step))


def _batch_stream(machine: Machine, step: Step) -> None:
    rows = machine.rows(step)
    pairs: Any = cast("BatchStreaming", machine.model).batch_stream(rows, **machine.options(step))
    _named(machine, "pairs", step.take)
    streamed: list[list[Token]] = [[] for _ in rows]
    with suppress(StopIteration, RequestError):
        for _ in range(step.take):
            row, token = next(pairs)
            streamed[row].append(token)
    for place, (prompt, tokens) in enumerate(zip(rows, streamed, strict=True)):
        if tokens:
            what = f"batch_stream among other calls, row {place}"
            machine.same_beginning(prompt, tokens, step, what)


def _named(machine: Machine, kind: str, count: int) -> None:
    """Give the last call's answer a name, and write down that so much of it is read."""
    name = machine.name(kind)
    record.named(name)
    record.note(reading(name, count))


def _score(machine: Machine, step: Step) -> None:
    prompt, text = machine.pair(step)
    wanted, (scored,) = machine.world.scored(prompt, text), score(machine.model, [prompt], [text])
    what = f"{text!r} after {prompt!r:.80} scored alone, and among other calls"
    same_error(wanted.error, scored.error, what)
    one, same = wanted.token_logprobs, scored.token_logprobs
    must(
        len(one) == len(same)
        and bool(same) is (scored.error is None)
        and all(near(machine.world.subject, *both) for both in zip(one, same, strict=True)),
        f"{what}: {one} against {same}",
    )


def _other(machine: Machine, step: Step) -> None:
    """Load another model of the same files, ask it something, and close it."""
    with machine.world.subject.loaded() as other:
        if machine.world.subject.declares(Capability.CLASSIFY):
            other.classify([machine.prompt(step.first)])
        elif machine.world.subject.declares(Capability.GENERATE):
            next(iter(other.generate(machine.prompt(step.first), max_tokens=2)), None)


def _ask_rows(machine: Machine, step: Step) -> None:
    for prompt in machine.rows(step):
        machine.world.classified(prompt, telling(machine.world.subject))


def _ask_labels(machine: Machine, step: Step) -> None:
    for prompt in machine.rows(step):
        machine.world.classified(prompt, _labelled(machine, step))


def _ask_batch(machine: Machine, step: Step) -> None:
    for prompt in machine.rows(step):
        _ask_answer(machine, step, Capability.BATCH_GENERATE, prompt)


def _ask_answer(
    machine: Machine, step: Step, operation: Capability = Capability.GENERATE, prompt: str = ""
) -> None:
    text = prompt or machine.prompt(step.first)
    machine.world.answered(operation, text, machine.options(step))


def _ask_chat(machine: Machine, step: Step) -> None:
    _ask_answer(machine, step, Capability.CHAT)


def _ask_score(machine: Machine, step: Step) -> None:
    machine.world.scored(*machine.pair(step))


def _nothing(machine: Machine, step: Step) -> None:
    """A step that asks nothing new."""


_ASKED: dict[str, Callable[[Machine, Step], None]] = {
    "generate": _ask_answer,
    "submit": _ask_answer,
    "cancel": _ask_answer,
    "chat": _ask_chat,
    "classify": _ask_rows,
    "iterate": _ask_rows,
    "labels": _ask_labels,
    "batch": _ask_batch,
    "batch stream": _ask_batch,
    "score": _ask_score,
}
_KINDS: dict[str, Capability | None] = {
    "generate": Capability.GENERATE,
    "classify": Capability.CLASSIFY,
    "batch": Capability.BATCH_GENERATE,
    "submit": Capability.SUBMITTING,
    "more": None,
    "close": None,
    "cancel": None,
    "labels": Capability.LABELS,
    "iterate": Capability.CLASSIFY_STREAMING,
    "batch stream": Capability.BATCH_STREAMING,
    "score": Capability.SCORING,
    "chat": Capability.CHAT,
    "other": Capability.CLASSIFY,
}
_STEPS: dict[str, Callable[[Machine, Step], None]] = {
    "generate": _generate,
    "classify": _classify,
    "batch": _batch,
    "submit": _submit,
    "more": _more,
    "close": _close,
    "cancel": _cancel,
    "labels": _labels,
    "iterate": _iterate,
    "batch stream": _batch_stream,
    "score": _score,
    "chat": _chat,
    "other": _other,
}
