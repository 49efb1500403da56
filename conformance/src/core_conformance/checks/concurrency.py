"""Checks of several threads, several streams, and requests submitted concurrently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

from core.errors import ModelBusyError, OptionError, OutOfMemoryError
from core.extensions import Submitting
from core.options import GenerateConfig
from core.protocols import Capability, TextModel, TokenStream
from core.types import Token
from core_conformance.checking import ask
from core_conformance.checking.ask import Answer, evidence, generate, read, speaks, submitting
from core_conformance.checking.calls import (
    PROMPTS,
    Meeting,
    close_quietly,
    elsewhere,
    ending,
    greedy,
    greedy_options,
    promptly,
    talkative,
    together,
)
from core_conformance.checking.check import check, must, well_formed
from core_conformance.checking.compare import apart, same_answers, same_speech
from core_conformance.checking.subject import Subject

_COUNT = 5  # tokens


@check(
    "concurrency.streams",
    "Streams of several threads MUST NOT mix: each gives what it gives alone.",
    Capability.GENERATE,
)
def streams(subject: Subject) -> None:
    alone = [greedy(subject, subject.model, prompt, _COUNT) for prompt in PROMPTS]
    outputs = together(*_readers(subject, subject.model, PROMPTS))
    _must_match(subject, PROMPTS, alone, outputs, "read by threads at once")


@check(
    "concurrency.waiting-turn",
    "With fewer slots than threads, every call MUST wait its turn and then be served.",
    Capability.GENERATE,
)
def waiting_turn(subject: Subject) -> None:
    prompts = PROMPTS[:3]
    alone = [greedy(subject, subject.model, prompt, _COUNT) for prompt in prompts]
    with subject.loaded(parallel_slots=1) as model:
        outputs = together(*_readers(subject, model, prompts))
    _must_match(subject, prompts, alone, outputs, "read by three threads of a model with one slot")


@check(
    "concurrency.classify",
    "classify() called by several threads at once MUST give each its own rows.",
    Capability.CLASSIFY,
)
def classify(subject: Subject) -> None:
    options: dict[str, Any] = {}
    if subject.declares(Capability.LOGPROBS):
        options["return_logprobs"] = True

    def rows(prompts: tuple[str, ...]) -> list[Token]:
        results = subject.model.classify(prompts, **options)
        tokens = [row.token for row in results if row.error is None and row.token is not None]
        well_formed(
            len(tokens) == len(prompts), f"classify() alongside other threads gave {results}"
        )
        return tokens

    parts = [PROMPTS[index:] + PROMPTS[:index] for index in range(3)]
    alone = [rows(part) for part in parts]
    results = together(*(lambda part=part: rows(part) for part in parts))
    pairs = [
        (Answer((a,), None, prompt), Answer((b,), None))
        for part, own, seen in zip(parts, alone, results, strict=True)
        for prompt, a, b in zip(part, own, seen, strict=True)
    ]
    same_answers(subject, pairs, "classify() alone, and alongside other threads")
    apart([left.ids for left, _ in pairs])


@check(
    "concurrency.classify-while-streaming",
    "classify() in one thread MUST work while another reads a stream, and change nothing in it.",
    Capability.GENERATE,
    Capability.CLASSIFY,
)
def classify_while_streaming(subject: Subject) -> None:
    model, prompt = subject.model, talkative(subject)
    alone = greedy(subject, model, prompt, _COUNT)

    meeting = Meeting(2)

    def read() -> list[Token]:
        return meeting.each(model.generate(prompt, **greedy_options(subject, _COUNT)))

    def ask() -> list[Token]:
        meeting.wait()
        row = model.classify([PROMPTS[1]])[0]
        must(row.error is None, f"classify() while another thread streams gave {row.error!r}")
        meeting.wait()
        return []

    tokens = together(read, ask)[0]
    _must_match(subject, [prompt], [alone], [tokens], "read while another thread classifies")


@check(
    "concurrency.second-stream",
    "A second open stream in one thread MUST work, or raise ModelBusyError; it never hangs.",
    Capability.GENERATE,
)
def second_stream(subject: Subject) -> None:
    prompt = talkative(subject)
    with subject.loaded(parallel_slots=1) as model:
        alone = greedy(subject, model, prompt, _COUNT)
        first = model.generate(prompt, **greedy_options(subject, _COUNT))
        outputs = [token for token in (next(first, None),) if token is not None]

        second = ending(lambda: model.generate(PROMPTS[1], max_tokens=2))
        must(
            second.error is None or isinstance(second.error, ModelBusyError),
            f"a second stream alongside an open one raised {second.error!r}: it must work, or to "
            "be ModelBusyError",
        )

        # The first continues where it was.
        rest = ending(lambda: first)
        must(rest.error is None, f"the first stream then ended with {rest.error!r}")
        outputs += rest.tokens
        _must_match(subject, [prompt], [alone], [outputs], "interrupted by a second stream")


@check(
    "concurrency.parallel-slots",
    "With parallel_slots=n, n streams MUST run side by side, in one thread too; where so many are "
    "too many, n is refused.",
    Capability.PARALLEL,
    Capability.GENERATE,
)
def parallel_slots(subject: Subject) -> None:
    for slots in (2, 6):
        with ExitStack() as loads:
            try:
                model = loads.enter_context(subject.loaded(parallel_slots=slots))
            except (OptionError, OutOfMemoryError) as error:
                must(slots > 2, f"parallel_slots=2 raised {error!r}, and PARALLEL is declared")
                continue
            _side_by_side(subject, model, slots)


def _side_by_side(subject: Subject, model: TextModel, slots: int) -> None:
    prompts = (PROMPTS * slots)[:slots]
    alone = [greedy(subject, model, prompt, _COUNT) for prompt in prompts]
    open_streams = [model.generate(prompt, **greedy_options(subject, _COUNT)) for prompt in prompts]

    outputs: list[list[Token]] = [[] for _ in prompts]
    try:
        for _ in range(_COUNT):  # by turns
            for stream, tokens in zip(open_streams, outputs, strict=True):
                tokens += [token for token in (next(stream, None),) if token is not None]
    except ModelBusyError as error:
        must(False, f"of {slots} streams of parallel_slots={slots}, one raised {error!r}")
    finally:
        for stream in open_streams:
            close_quietly(stream)

    how = f"read by turns with parallel_slots={slots}"
    _must_match(subject, prompts, alone, outputs, how)


@check(
    "concurrency.crossed-streams",
    "Threads that each have a stream open and begin another MUST get it or ModelBusyError; they "
    "never wait for one another",
    Capability.PARALLEL,
    Capability.GENERATE,
)
def crossed_streams(subject: Subject) -> None:
    prompt = talkative(subject)
    meeting = Meeting(2)

    def second(model: TextModel) -> Exception | None:
        """Return how a stream ended that began after both threads had one open."""
        first = model.generate(prompt, **greedy_options(subject, _COUNT))
        try:
            next(first, None)
            meeting.wait()
            return ending(lambda: model.generate(PROMPTS[1], max_tokens=2)).error
        finally:
            close_quietly(first)

    with subject.loaded(parallel_slots=2) as model:
        what = "second streams of two threads that have one of two slots each"
        errors = promptly(subject, lambda: together(*[partial(second, model)] * 2), what)
        wrong = [e for e in errors if e is not None and not isinstance(e, ModelBusyError)]
        must(not wrong, f"{what} raised {wrong}: they must work, or to be ModelBusyError")


@check(
    "concurrency.submit",
    "submit() MUST take requests from any thread while others run, each with its own tokens.",
    Capability.SUBMITTING,
    Capability.GENERATE,
)
def submit(subject: Subject) -> None:
    model: Any = subject.model
    config = GenerateConfig(**greedy_options(subject, _COUNT))
    alone = [greedy(subject, model, prompt, _COUNT) for prompt in PROMPTS]
    queued = [elsewhere(partial(model.submit, prompt, config)) for prompt in PROMPTS]
    outputs = [list(stream) for stream in reversed(queued)][::-1]  # read here, in another order
    _must_match(subject, PROMPTS, alone, outputs, "submitted by threads of their own")


def _readers(
    subject: Subject, model: TextModel, prompts: Sequence[str]
) -> list[Callable[[], list[Token]]]:
    """Return calls that each read one stream, all at the same pace as far as slots allow."""
    meeting = Meeting(len(prompts))

    def read(prompt: str) -> list[Token]:
        return meeting.each(model.generate(prompt, **greedy_options(subject, _COUNT)))

    return [partial(read, prompt) for prompt in prompts]


def _must_match(
    subject: Subject,
    prompts: Sequence[str],
    alone: list[list[Token]],
    outputs: list[list[Token]],
    how: str,
) -> None:
    pairs = [
        (Answer(tuple(own), None, prompt), Answer(tuple(seen), None))
        for prompt, own, seen in zip(prompts, alone, outputs, strict=True)
    ]
    same_speech(subject, pairs, f"streams alone, and {how}")
    if len(pairs) > 1:
        apart([left.ids for left, _ in pairs])


@check(
    "submitting.equals-generate",
    "Requests submitted together MUST each get what generate gives, in whatever order read",
    Capability.SUBMITTING,
    Capability.GENERATE,
)
def submitted_equals_generate(subject: Subject) -> None:
    prompts = ask.PLAIN[:4]
    alone = [generate(subject, prompt, 5) for prompt in prompts]
    streams = [_submit(subject, prompt, 5) for prompt in prompts]
    answers = [read(stream) for stream in reversed(streams)]
    pairs = list(zip(alone, reversed(answers), strict=True))
    same_speech(subject, pairs, "generate alone and one of four submitted requests")
    apart([left.ids for left, _ in pairs])


@check(
    "submitting.close",
    "Closing one submitted request MUST leave the others running",
    Capability.SUBMITTING,
)
def closing_one_leaves_the_others(subject: Subject) -> None:
    alone = read(_submit(subject, ask.PLAIN[0], 5), ask.PLAIN[0])
    closed, remaining = (_submit(subject, prompt, 5) for prompt in (ask.LONG, ask.PLAIN[0]))
    closed.close()
    extra = next(closed, None)
    must(extra is None, f"a closed request still gave {extra!r}")
    same_speech(
        subject, [(alone, read(remaining))], "alone and alongside a request that was closed"
    )


@check(
    "submitting.after-own-stream",
    "A submitted request that waits for a stream which its reader has open MUST raise "
    "ModelBusyError where it is read, or be answered; it never hangs",
    Capability.SUBMITTING,
    Capability.GENERATE,
)
def submitted_after_the_own_stream(subject: Subject) -> None:
    prompt = talkative(subject)
    config = GenerateConfig(**greedy_options(subject, 2))

    def both(model: TextModel) -> tuple[Exception | None, Exception | None]:
        """Return how a request after an open stream ended, and how the stream did."""
        first = model.generate(prompt, **greedy_options(subject, _COUNT))
        next(first, None)
        second = ending(lambda: cast("Submitting", model).submit(PROMPTS[1], config))
        return second.error, ending(lambda: first).error

    with subject.loaded(parallel_slots=1) as model:
        what = "a submitted request that was read alongside an open stream of its reader"
        second, first = promptly(subject, lambda: both(model), what)
        must(
            second is None or isinstance(second, ModelBusyError),
            f"{what} raised {second!r}: expected an answer or ModelBusyError",
        )
        must(first is None, f"the open stream then ended with {first!r}")


def _submit(subject: Subject, prompt: str, max_tokens: int) -> TokenStream:
    speaks(subject, Capability.SUBMITTING)
    config = GenerateConfig(max_tokens=max_tokens, **evidence(subject))
    return submitting(subject).submit(prompt, config)
