"""The reference backend: it keeps the contract, whole and with each capability switched off."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import core
from core import extensions
from core.extensions import ModelProbe, Scoring, Tokenizing
from core.kit.support import PROTOCOLS
from core.options import LoadConfig
from core.protocols import Capability
from core.registry import Registry
from core_conformance.checking.check import Check
from core_conformance.proof import selftest
from core_conformance.reference import Reference, Sentences, write_adapter, write_model
from core_conformance.reference.language import Language
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.vocabulary import BOS, Detokenizer, decode, encode
from core_conformance.running.target import Target

OFF = [None, *Capability]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reference model."""
    return write_model(tmp_path_factory.mktemp("models") / "reference")


@pytest.fixture
def model(path: Path) -> ReferenceModel:
    """The model, with one slot."""
    return Reference().load_model(path, LoadConfig(parallel_slots=1))


# What others build on, and what authors leave out most often.
IN_THE_SOAKS = (
    *(Capability.GENERATE, Capability.CLASSIFY, Capability.BATCH_GENERATE, Capability.LABELS),
)


@pytest.mark.parametrize(
    "off",
    # test_teeth.py asks what is refused then, test_whole_suite.py certifies it whole, test_tally.py
    # with one operation and nothing else.
    [
        pytest.param(c, marks=pytest.mark.slow if c in IN_THE_SOAKS else pytest.mark.long)
        for c in OFF
    ],
    ids=lambda off: f"without {off}" if off else "whole",
)
def test_it_passes_every_check(path: Path, off: Capability | None) -> None:
    backend = Reference(without={off} if off else ())
    assert selftest.failures(backend, str(path)) == {}


def test_a_model_of_label_sentences_passes_every_check(path: Path, suite: list[Check]) -> None:
    assert selftest.failures(Sentences(), str(path), suite) == {}


def test_every_optional_protocol_has_its_capability() -> None:
    """A protocol without one would be left out of the checks in silence."""
    own = [value for value in vars(extensions).values() if value.__class__ is type(Scoring)]
    named = {value for value in own if value.__module__ == extensions.__name__}
    without = {extensions.AsyncStream, extensions.Deferring}
    assert set(PROTOCOLS.values()) == named - without


def test_without_generate_it_passes_what_neither_sweeps_nor_searches(
    path: Path, narrow: list[Check]
) -> None:
    assert selftest.failures(Reference(without={Capability.GENERATE}), str(path), narrow) == {}


def test_core_finds_and_loads_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    monkeypatch.setattr("core.api.REGISTRY", registry)
    (discovered,) = core.discover(path)
    assert discovered.model_type == "reference"
    core.register(Reference())
    assert core.default_backend(path).name == "reference"
    with core.load_model(path, backend="reference") as model:
        assert model.info.context_length == 1024


def test_it_does_not_stand_beside_the_backends_that_people_use(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry()
    monkeypatch.setattr("core_conformance.running.target.REGISTRY", registry)
    assert "reference" not in registry.names()
    assert Target("reference", str(path)).found() is registry.get("reference")
    assert Target("reference", str(path)).found() is registry.get("reference")


def test_it_refuses_models_of_others(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert "'llama'" in (Reference().refusal(tmp_path) or "")
    with pytest.raises(core.UnsupportedModelError, match="llama"):
        Reference().load_model(tmp_path, LoadConfig())


def test_undeclared_methods_are_not_there(path: Path) -> None:
    off = {Capability.TOKENIZING, Capability.MODEL_PROBE}
    limited = Reference(without=off)
    model: object = limited.load_model(path, LoadConfig())
    assert (isinstance(model, Tokenizing), isinstance(model, Scoring)) == (False, True)
    backends: list[object] = [limited, Reference()]
    assert [isinstance(backend, ModelProbe) for backend in backends] == [False, True]


@given(st.text())
def test_text_goes_through_the_tokenizer_unchanged(text: str) -> None:
    ids = encode(text)
    assert ids[0] == BOS
    assert decode(ids) == text
    detokenizer = Detokenizer()
    assert "".join(map(detokenizer.add, ids)) + detokenizer.finish() == text


@given(st.lists(st.integers(0, 255), min_size=2, max_size=12), st.data())
def test_every_position_of_the_context_counts(ids: list[int], data: st.DataObject) -> None:
    language = Language(12, {})
    position = data.draw(st.integers(0, len(ids) - 1))
    other = [*ids]
    other[position] = (other[position] + 1) % 256
    assert language.logits(ids) != language.logits(other)
    assert language.logits([0] * 12 + ids[-12:]) == language.logits(([0] * 12 + ids)[-12:])


def test_characters_are_split_over_tokens_and_come_out_whole(model: ReferenceModel) -> None:
    stream = model.generate("Hello", max_tokens=200)
    text = "".join(token.text for token in stream)
    assert len(text.encode()) > len(text), "no character of several bytes in 200 tokens"
    assert "\ufffd" not in text.rstrip("\ufffd")


def test_an_adapter_changes_what_it_says(path: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter", {ord("q"): 100.0})
    model = Reference().load_model(path, LoadConfig(adapter_path=adapter))
    assert [token.text for token in model.generate("a", max_tokens=3)] == ["q", "q", "q"]
    (adapter / "adapter_config.json").write_text('{"bias": {"100000": 1}}')
    with pytest.raises(core.InvalidModelError, match=r"adapter_config\.json"):
        Reference().load_model(path, LoadConfig(adapter_path=adapter))


def test_a_second_stream_that_would_wait_for_the_first(model: ReferenceModel) -> None:
    first = model.generate("a", max_tokens=4)
    next(first)
    with pytest.raises(core.ModelBusyError):
        next(model.generate("b"))
    with pytest.raises(core.ModelBusyError):
        next(model.submit("b"))
    first.close()
    assert next(model.generate("b")).id >= 0


@pytest.mark.parametrize("timeout", [None, 0.05], ids=["cancel", "timeout"])
def test_a_batch_that_waits_for_a_slot_can_be_stopped(
    model: ReferenceModel, timeout: float | None
) -> None:
    stream, cancel = model.generate("a", max_tokens=4), threading.Event()
    next(stream)
    if timeout is None:
        cancel.set()
    error = core.GenerationCancelled if timeout is None else core.GenerationTimeout
    config = core.GenerateConfig(cancel=cancel, timeout=timeout)
    errors: list[object] = []

    def wait() -> None:
        errors.extend(row.error for row in model.batch_generate(["b", ""], config))
        errors.extend(row.error for row in model.classify(["b"], config))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(60)
    kinds = [type(each) for each in errors]
    assert kinds == [error, core.EmptyPromptError, error]


class Asked(threading.Event):
    """A cancel token that is never set; ``is_set`` tells that it was looked at."""

    looked = threading.Event()

    def is_set(self) -> bool:
        """Looks."""
        self.looked.set()
        return False


def test_two_threads_that_wait_for_one_another(path: Path) -> None:
    model = Reference().load_model(path, LoadConfig(parallel_slots=2))
    mine, waits = model.generate("a", max_tokens=4), Asked()
    next(mine)
    outcome: list[object] = []

    def other() -> None:
        next(theirs)
        outcome.append(len(list(model.generate("c", max_tokens=2, cancel=waits))))

    theirs = model.generate("b", max_tokens=4)
    thread = threading.Thread(target=other)
    thread.start()
    assert waits.looked.wait(300)  # the other thread holds one slot and wants another
    with pytest.raises(core.ModelBusyError):
        next(model.generate("d"))
    mine.close()
    thread.join(60)
    assert outcome == [2]
