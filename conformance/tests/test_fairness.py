"""What the suite excuses, and what it does not hold against a backend: ties, noise, poor models."""

from __future__ import annotations

import dataclasses
import threading
from array import array
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from core.errors import ChatTemplateError
from core.kit.chat import RenderedPrompt
from core.options import GenerateConfig
from core.protocols import Backend, Capability
from core.types import ClassifyResult, Message, ModelInfo, Token
from core_conformance.checking.applies import CONTEXT
from core_conformance.checking.ask import PLAIN, Answer
from core_conformance.checking.check import Check, all_checks
from core_conformance.checking.compare import difference
from core_conformance.checking.subject import Subject
from core_conformance.proof import selftest
from core_conformance.proof.saboteurs.sampling import OtherOptions
from core_conformance.proof.saboteurs.tasks import _with_logprobs
from core_conformance.reference import write_model
from core_conformance.reference.backend import Reference
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine
from core_conformance.reference.language import Language
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream
from core_conformance.reference.vocabulary import EOS
from core_conformance.running.result import Result, Status
from core_conformance.running.runner import run_check

pytestmark = pytest.mark.load  # a busy machine can make it fail

ONLY_GENERATE = frozenset(Capability) - {Capability.GENERATE, Capability.SEED}
NO_EVIDENCE = {Capability.LOGPROBS, Capability.LOGITS, Capability.SCORING}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A reference model."""
    return str(write_model(tmp_path_factory.mktemp("models") / "reference"))


def reference(off: Collection[Capability] = (), **parts: type) -> Backend:
    """The reference with these parts in the place of its own, and without some capabilities."""
    return cast("Backend", type("Changed", (Reference,), parts)(without=off))


def results(
    backend: Backend, path: str, prefix: str = "", suite: Iterable[Check] | None = None
) -> dict[str, Result]:
    """What each check finds, of those whose id begins so."""
    subject = Subject(backend, path)
    every = all_checks().values() if suite is None else suite
    checks = [check for check in every if check.id.startswith(prefix)]
    by_id = {check.id: run_check(check, subject) for check in checks}
    subject.close()
    return by_id


def ids(outcomes: dict[str, Result], status: Status) -> set[str]:
    return {id for id, result in outcomes.items() if result.status is status}


# --------------------------------------------------------------------------- noise and ties


class Noisy(Language):
    """Logits that are off by up to half the tolerance, differently in every run."""

    scale = 1.0

    def logits(self, ids: Sequence[int]) -> array[float]:
        noise, scale = NOISE.numbers.random, self.scale
        return array("f", (value * scale + 0.05 * (noise() - 0.5) for value in super().logits(ids)))


class Flat(Noisy):
    """Besides, the best logits are so close to one another that many of them are at a tie."""

    scale = 0.125


class NoisyModel(ReferenceModel):
    """Says so."""

    @property
    def info(self) -> ModelInfo:
        return dataclasses.replace(super().info, logit_tolerance=0.05)


class Ties(Language):
    """Logits without fractions: many are the same."""

    def logits(self, ids: Sequence[int]) -> array[float]:
        return array("f", rounded(tuple(super().logits(ids))))


@lru_cache(maxsize=1024)  # as the reference remembers what it rounds
def rounded(values: tuple[float, ...]) -> tuple[float, ...]:
    """Quarters of them, without fractions."""
    return tuple([float(round(value / 4)) for value in values])


class Noise(threading.local):
    """Random numbers of each thread's own, so that they do not depend on who comes first."""

    def __init__(self) -> None:
        self.numbers = Random(7)


NOISE = Noise()


def noisy(
    path: str,
    language: type[Language],
    off: Collection[Capability],
    suite: Iterable[Check] | None = None,
) -> dict[str, str]:
    """Why the checks that a sound backend in low precision fails do so, by id."""
    NOISE.numbers.seed(7)
    backend = reference(off, language_class=language, model_class=NoisyModel)
    outcomes = results(backend, path, suite=suite)
    return {id: outcomes[id].reason for id in ids(outcomes, Status.FAILED)}


@pytest.mark.slow
def test_noise_fails_nothing_where_no_margin_can_be_read(path: str) -> None:
    assert noisy(path, Noisy, NO_EVIDENCE) == {}


def test_noise_fails_nothing_where_the_best_are_close(path: str, suite: list[Check]) -> None:
    assert noisy(path, Flat, (), suite) == {}


@pytest.mark.parametrize(
    "off",
    [
        pytest.param({Capability.LOGPROBS}, marks=pytest.mark.long, id="logits"),
        pytest.param({Capability.LOGPROBS, Capability.LOGITS}, marks=pytest.mark.slow, id="scores"),
    ],
)
def test_nor_where_less_tells_that_they_are(path: str, off: set[Capability]) -> None:
    assert noisy(path, Flat, off) == {}


@pytest.mark.slow
@pytest.mark.parametrize("off", [set(), ONLY_GENERATE], ids=["whole", "generate"])
def test_ties_fail_nothing(path: str, off: set[Capability]) -> None:
    outcomes = results(reference(off, language_class=Ties), path)
    assert {id: outcomes[id].reason for id in ids(outcomes, Status.FAILED)} == {}
    assert ids(outcomes, Status.NOT_TESTABLE) <= {
        "sampling.cold",
        "sampling.coldest",
        "sampling.min-p-one",
        "sampling.repeat-penalty-huge",
        "sampling.typical-p-min-p",  # which asks for two tokens that are nearly alike
    }


def test_the_tolerance_is_that_of_the_model_that_is_open(path: str) -> None:
    """A model with more slots may state more, and what it answers is held to that."""

    class MoreWithSlots(ReferenceModel):
        @property
        def info(self) -> ModelInfo:
            more = 0.5 if self.engine.slots.count > 2 else 0.05
            return dataclasses.replace(super().info, logit_tolerance=more)

    subject = Subject(reference(model_class=MoreWithSlots), path, {"parallel_slots": 1})
    assert subject.tolerance == 0.05
    with subject.loaded(parallel_slots=3):
        assert subject.tolerance == subject.stated_tolerance == 0.5
        with subject.loaded(parallel_slots=2):
            assert subject.tolerance == 0.5
    assert subject.tolerance == 0.05
    subject.close()


def test_a_parting_that_a_stop_string_may_hide_is_no_clear_difference(path: str) -> None:
    """Both drew "X"; then one drew "i", and the stop string "Xi" took both tokens away."""
    subject = Subject(reference(model_class=NoisyModel), path)
    (result,) = subject.model.classify([PLAIN[0]], return_logits=True)
    assert result.logits is not None
    unlikely = result.logits.index(min(result.logits))
    on = Answer((Token(unlikely, "X"), Token(0, ";")), "length", PLAIN[0])
    stopped = Answer((), "stop", PLAIN[0])
    pairs = [(on, stopped), (on, on), (on, on)]
    assert difference(subject, pairs, stops=("Xi",)) is None
    for stops in ((), ("i",), ("iX;",)):
        deviation = difference(subject, pairs, stops=stops)
        assert deviation is not None
        assert deviation.clear
    subject.close()


def test_scores_of_a_text_that_is_another_token_there_are_no_margin(path: str) -> None:
    """The token 300 is spelled like another one, which the score of its text is about."""
    subject = Subject(reference({Capability.LOGITS}, model_class=NoisyModel), path)
    one, twin, far = (Token(id, text) for id, text in ((32, " "), (300, " "), (57, "9")))
    same = [(Answer((one,), None, PLAIN[0]),) * 2] * 2
    read = (Answer((one,), None, PLAIN[0]), Answer((far,), None, PLAIN[0]))
    unread = (Answer((twin,), None, PLAIN[0]), Answer((far,), None, PLAIN[0]))
    deviation = difference(subject, [*same, read])
    assert deviation is not None
    assert deviation.clear
    assert difference(subject, [*same, unread]) is None
    subject.close()


@pytest.mark.parametrize("option", ["min_p", "top_p", "top_k"])
def test_a_filter_that_is_ignored_is_found_among_ties(path: str, option: str) -> None:
    class Ignores(OtherOptions):
        def instead(self, config: GenerateConfig) -> dict[str, Any]:
            return {option: getattr(GenerateConfig(), option)}

    class Ignoring(Engine):
        generation_class = Ignores

    class IgnoringModel(ReferenceModel):
        engine_class = Ignoring

    backend = reference(language_class=Ties, model_class=IgnoringModel)
    outcomes = results(backend, path, "sampling.")
    name = {"min_p": "min-p-one", "top_p": "top-p-tiny", "top_k": "top-k-one"}[option]
    assert f"sampling.{name}" in ids(outcomes, Status.FAILED)


# --------------------------------------------------------------------------- poor models


class Mute(Language):
    """Ends every prompt at once, greedy."""

    def logits(self, ids: Sequence[int]) -> array[float]:
        values = super().logits(ids)
        values[EOS] = 60.0
        return values


def test_a_model_that_ends_at_once_is_not_held_against_its_backend(
    path: str, narrow: list[Check]
) -> None:
    """All checks are asked of such a model in test_tally.py."""
    outcomes = results(reference(language_class=Mute), path, suite=narrow)
    assert {id: outcomes[id].reason for id in ids(outcomes, Status.FAILED)} == {}
    mute = ids(outcomes, Status.NOT_TESTABLE)
    stops = {id for id in outcomes if id.startswith("stop.")}
    assert mute >= stops - {"stop.special"}  # which also asks for stops that never come
    assert mute >= {"streaming.tokens", "streaming.max-tokens", "batch.stop", "cancel.midway"}
    assert "use a model that continues" in outcomes["stop.tokens"].reason


def test_a_backend_that_never_gives_a_token_fails_all_the_same(path: str) -> None:
    class Swallows(ReferenceModel):
        def stream(self, prompt: str, config: GenerateConfig) -> ReferenceStream:
            stream = super().stream(prompt, config)
            list(stream)
            return stream

    outcomes = results(reference(model_class=Swallows), path, "stop.")
    assert ids(outcomes, Status.FAILED) == set(outcomes) - {"stop.long"}  # of other operations


@pytest.mark.parametrize("length", [CONTEXT - 1, pytest.param(CONTEXT, marks=pytest.mark.slow)])
def test_the_context_that_is_named_is_enough(tmp_path: Path, length: int) -> None:
    path = str(write_model(tmp_path / "model", length))
    reasons = selftest.failures(Reference(), path)
    if length == CONTEXT:
        assert reasons == {}
    else:
        assert "stop.tokens (not testable)" in reasons
        assert all(id.endswith(" (not testable)") for id in reasons)
        assert f"holds {length} tokens, but the prompts of the suite need {CONTEXT}" in str(reasons)


class NoTemplate(ReferenceModel):
    """A base model."""

    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        super().rendered(messages, config)
        raise ChatTemplateError("This model has no chat template. Use generate().")


# Among the soaks, all checks are asked of such a model in test_tally.py.
@pytest.mark.parametrize(
    "suite", ["narrow", pytest.param("all", marks=pytest.mark.long)], indirect=True
)
def test_without_a_chat_template_only_chat_is_not_testable(path: str, suite: list[Check]) -> None:
    outcomes = results(reference(model_class=NoTemplate), path, suite=suite)
    assert ids(outcomes, Status.FAILED) == set()
    mute = ids(outcomes, Status.NOT_TESTABLE)
    others = {"pairs.chat", "hidden.rendered", "growth.keywords", "stop.special"}  # render a chat
    assert mute == {id for id in outcomes if id.startswith("chat.") or id in others}
    assert "use a model that has one" in outcomes["chat.answers"].reason


class NearlyCertain(Classifier):
    """Gives nearly all to the first label, and the rest by the prompt."""

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        if len(result.logprobs or ()) < 2:
            return result
        first, *others = result.logprobs or {}
        logprobs = {first: -1e-5, **{name: (result.logprobs or {})[name] - 20 for name in others}}
        return _with_logprobs(result, logprobs)


class NearlyCertainModel(ReferenceModel):
    classifier_class = NearlyCertain


def test_a_prior_is_tested_where_texts_differ_in_unlikely_labels_alone(path: str) -> None:
    [result] = results(reference(model_class=NearlyCertainModel), path, "tasks.prior").values()
    assert result.status is Status.PASSED, result
