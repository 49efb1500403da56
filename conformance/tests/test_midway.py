"""Stopping on the way: what sound backends of other designs do is held against none of them."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from core.errors import GenerationCancelled, InvalidOptionError
from core.kit.base import RequestClock
from core.options import GenerateConfig, LoadConfig
from core.protocols import Backend, Capability, TokenStream
from core.types import ClassifyResult, Token
from core_conformance.checking.calls import CancelAfter, promptly
from core_conformance.checking.check import Check, Violation, all_checks
from core_conformance.checking.subject import Subject
from core_conformance.checking.watching import Holdings, growing
from core_conformance.checking.ways.rows import asked, same_rows
from core_conformance.checking.ways.table import WAYS, Row
from core_conformance.proof import selftest
from core_conformance.reference import Reference, write_model
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream, SubmittedStream

pytestmark = pytest.mark.load  # a busy machine can make it fail

AREAS = {"cancel_midway", "prefill_midway", "timeout_midway", "looks", "closing", "abandoned"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A reference model."""
    return str(write_model(tmp_path_factory.mktemp("models") / "reference"))


@pytest.fixture
def subject(path: str) -> Iterator[Subject]:
    """The reference."""
    reference = Subject(Reference(), path)
    yield reference
    reference.close()


def midway() -> list[Check]:
    """The checks of these areas."""
    return [c for c in all_checks().values() if c.run.__module__.rpartition(".")[2] in AREAS]


def judged(path: str, base: type = ReferenceModel, **parts: type) -> dict[str, str]:
    """Why these checks fail a reference with other parts, by id."""
    model = type("Model", (base,), parts)
    backend = type("Odd", (Reference,), {"model_class": model})()
    return selftest.failures(cast("Backend", backend), path, midway())


# --------------------------------------------------------------------------- odd, and legal


class Lumps(Batch):
    """Makes eight tokens of each row between two looks."""

    _steps = 0

    def _wanted(self, active: list[int]) -> list[int]:
        self._steps += 1
        return super()._wanted(active) if self._steps % 8 == 1 else active


class Polls(Engine):
    """Looks at most a hundred times a second."""

    _last = 0.0

    def check(self, row: Generation) -> None:
        self.check_open()
        if row.drawn and time.monotonic() - self._last < 0.01:
            return
        self._last = time.monotonic()
        row.clock.check()


class Wide(Classifier):
    """Looks at every eighth micro-batch, until it is stopped."""

    _reads, _over = 0, False

    def read(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        self._reads += 1
        clock = self._clock
        if self._reads % 8 and not self._over:
            self._clock = RequestClock(GenerateConfig())
        results = super().read(prompts)
        self._clock, self._over = clock, any(result.error for result in results)
        return results


class Ahead(SubmittedStream):
    """Begins with the first token that is asked for, and does not wait for its reader then."""

    def __init__(self, stream: ReferenceStream, record: Any) -> None:
        self._stream, self._begin = stream, partial(super().__init__, stream, record)
        self._begun = self._ended = False

    def next_token(self) -> Token:
        if not self._begun:
            self._begun = True
            self._begin()
        return super().next_token()

    def close(self) -> None:
        if self._begun:
            super().close()
        else:
            self._stream.close()
            self._begun = self._ended = True


class RunsAhead(ReferenceModel):
    """An engine that makes tokens as fast as it can."""

    def generate(self, *arguments: Any, **options: Any) -> TokenStream:
        stream = cast("ReferenceStream", super().generate(*arguments, **options))
        return Ahead(stream, self.record)


class Remembers(ReferenceModel):
    """Keeps its last call, and no other."""

    _last: object = None

    def classify(self, *arguments: Any, **options: Any) -> list[ClassifyResult]:
        self._last = super().classify(*arguments, **options)
        return list(self._last)

    def stream(self, prompt: str, config: GenerateConfig) -> ReferenceStream:
        stream_of_before = super().stream(prompt, config)
        self._last = weakref.ref(stream_of_before)
        return stream_of_before


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"batch_class": Lumps}, marks=pytest.mark.slow, id="lumps"),
        pytest.param({"engine_class": Polls}, marks=pytest.mark.slow, id="polls"),
        pytest.param({"classifier_class": Wide}, marks=pytest.mark.slow, id="wide"),
        pytest.param({"base": RunsAhead}, marks=pytest.mark.slow, id="ahead"),
        pytest.param({"base": Remembers}, marks=pytest.mark.slow, id="remembers"),
    ],
)
def test_a_sound_backend_of_another_design_passes(path: str, parts: dict[str, type]) -> None:
    assert judged(path, **parts) == {}


# --------------------------------------------------------------------------- the instruments


def test_a_call_that_hangs_is_a_violation_and_one_that_raises_raises(subject: Subject) -> None:
    never = threading.Event()
    with pytest.raises(Violation, match=r"reading did not end within .* it hangs"):
        promptly(subject, never.wait, "reading", 0.05)
    never.set()
    with pytest.raises(KeyError):
        promptly(subject, partial(dict[str, int]().__getitem__, "nothing"), "reading")
    assert promptly(subject, lambda: 3, "reading") == 3


def test_a_cancel_knows_who_was_first_told_that_it_is_set() -> None:
    cancel = CancelAfter(3)
    assert [cancel.is_set() for _ in range(4)] == [False, False, True, True]
    assert (cancel.seen, cancel.heard) == (4, 3)
    assert not CancelAfter().is_set()


def test_rows_that_are_lost_moved_or_cut_without_a_reason_are_seen(subject: Subject) -> None:
    way, prompts = WAYS[Capability.BATCH_GENERATE], asked(3)
    rows = way.ask(subject.model, prompts, way.options(subject, 4))
    same_rows(subject, rows, rows, "the same")
    short = replace(rows[1].answer, tokens=rows[1].answer.tokens[:2], finish_reason="cancelled")
    stopped = Row(short, GenerationCancelled())
    same_rows(subject, rows, [rows[0], stopped, rows[2]], "one stopped", GenerationCancelled)
    complete = Row(replace(short, finish_reason="stop"), GenerationCancelled())
    for wrong in (
        rows[:2],
        [rows[0], Row(short), rows[2]],
        [rows[0], stopped, rows[1]],
        [rows[0], complete, rows[2]],
        [rows[0], Row(short, KeyError("x")), rows[2]],
    ):
        with pytest.raises(Violation):
            same_rows(subject, rows, wrong, "rows", GenerationCancelled)


def test_what_grows_in_every_round_is_told_from_what_fills_up() -> None:
    least, leaked = Holdings(1 << 20, 1 << 20, 1 << 40, 1), list[int]()
    assert growing(3, lambda: leaked.append(1), least, lambda: len(leaked)) == ["active_bytes"]
    leaked.clear()
    few = lambda: leaked.append(1) if len(leaked) < 3 else None  # noqa: E731
    assert growing(3, few, least, lambda: len(leaked)) == []


# --------------------------------------------------------------------------- a large context


class Fixed(Reference):
    """Cannot make its context smaller."""

    def load_model(self, path: Any, config: LoadConfig) -> ReferenceModel:
        if config.context_len:
            raise InvalidOptionError("context_len", config.context_len, "nothing")
        return super().load_model(path, config)


class Beyond(Engine):
    """Generates beyond its context."""

    def generation(self, prompt: str, config: GenerateConfig) -> Generation:
        row = super().generation(prompt, config)
        row.limit = config.max_tokens
        return row


class BeyondModel(ReferenceModel):
    engine_class = Beyond


class FixedBeyond(Fixed):
    model_class = BeyondModel


def test_a_context_that_cannot_be_made_small_is_filled_all_the_same(tmp_path: Path) -> None:
    large = str(write_model(tmp_path / "large", 2048))
    asked_for = [all_checks()["context.length"]]
    assert selftest.failures(Fixed(), large, asked_for) == {}
    (why,) = selftest.failures(FixedBeyond(), large, asked_for).values()
    assert "a context of 2048 ended a generation after 60 tokens" in why
