"""`CoreProvider` in queries of Daft's own, on this machine's runner."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import daft
import pytest
from daft.ai.protocols import TextClassifier, TextClassifierDescriptor
from daft.functions import classify_text

import core
import core_tasks
from core.api import close_shared_models
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model
from core_daft import CoreProvider

LABELS = ["good", "bad"]


def said(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    counts = [prompt.count(label) + 0.5 for label in labels]
    return {label: count / sum(counts) for label, count in zip(labels, counts, strict=True)}


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBackend]:
    """A backend of this process, whose calls can be looked at."""
    made = FakeBackend(labels=said)
    monkeypatch.setattr(REGISTRY, "_registered", {**REGISTRY._registered, made.name: made})
    close_shared_models()
    yield made
    close_shared_models()


@pytest.fixture
def model(tmp_path: Path, backend: FakeBackend) -> Path:
    return write_model(tmp_path / "model")


def labels(provider: CoreProvider, texts: Sequence[str | None], **options: Any) -> list[Any]:
    frame = daft.from_pydict({"text": [*texts]})
    label = classify_text(daft.col("text"), LABELS, provider=provider, **options)
    found: list[Any] = frame.with_column("label", label).to_pydict()["label"]
    return found


def test_a_query_is_labelled_as_the_task_would(model: Path, backend: FakeBackend) -> None:
    texts = [f"{n} {LABELS[n % 2]}" for n in range(100)]
    provider = CoreProvider(model, backend="fake", template="{text} It is")
    assert labels(provider, texts) == [LABELS[n % 2] for n in range(100)]
    assert len(backend.models) == 1
    asked = [prompt for call in backend.calls for prompt in call.prompts]
    assert sorted(asked) == sorted(f"{text} It is" for text in texts)
    assert labels(provider, texts[:3]) == ["good", "bad", "good"]
    assert len(backend.models) == 1  # which is kept


def test_an_encoder_is_asked_with_the_label_sentence(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = FakeBackend(encoder=True, name="encoder")
    monkeypatch.setattr(REGISTRY, "_registered", {**REGISTRY._registered, "encoder": encoder})
    provider = CoreProvider(model, backend="encoder", label_sentence="{label} news")
    assert labels(provider, ["good day", "bad day"]) == ["good", "bad"]
    assert {call.config.label_sentence for call in encoder.calls} == {"{label} news"}


def test_nulls_stay_null_and_a_text_that_fails_has_no_label(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider = CoreProvider(model, backend="fake")
    with caplog.at_level(logging.WARNING, "core_daft"):
        assert labels(provider, ["good", None, " ", "bad"]) == ["good", None, None, "bad"]
    assert "1 texts failed; the first error: The text is blank." in caplog.text
    caplog.clear()
    assert labels(provider, ["good", ""], on_error="ignore") == ["good", None]
    assert not caplog.text
    with pytest.raises(Exception, match="The text is blank"):
        labels(provider, ["good", ""], on_error="raise")
    allowing = CoreProvider(model, backend="fake", template="{text} good", allow_blank=True)
    assert labels(allowing, ["", " "]) == ["good", "good"]


def test_texts_are_asked_batch_by_batch(model: Path, backend: FakeBackend) -> None:
    texts = [f"{n} {LABELS[n % 2]}" for n in range(10)]
    labels(CoreProvider(model, backend="fake"), texts, batch_size=4)
    assert max(len(call.prompts) for call in backend.calls) <= 4
    assert sum(len(call.prompts) for call in backend.calls) == 10


def test_a_task_of_a_file_is_asked_and_other_labels_are_refused(
    model: Path, tmp_path: Path
) -> None:
    core_tasks.Task("{text} It is", ("bad", "good")).save(tmp_path / "task.toml")
    provider = CoreProvider(model, backend="fake", task=tmp_path / "task.toml")
    assert labels(provider, ["good", "bad"]) == ["good", "bad"]
    other = core_tasks.Task("{text}", ("a", "b"))
    with pytest.raises(Exception, match="differ from those of the task or head"):
        labels(CoreProvider(model, backend="fake", task=other), ["good"])


def test_a_head_is_asked(model: Path) -> None:
    learn = pytest.importorskip("core_learn")
    few = learn.FewShot(core.load_model(model, backend="fake"))
    few.fit(["good good", "good day", "bad bad", "bad day"], ["good", "good", "bad", "bad"])
    provider = CoreProvider(model, backend="fake", head=few.head)
    assert labels(provider, ["good good", "bad bad"]) == ["good", "bad"]


def test_the_protocol(model: Path) -> None:
    provider = CoreProvider(backend="fake", concurrency=2, num_gpus=1)
    with pytest.raises(core.InvalidOptionError, match="model"):
        provider.get_text_classifier()
    with pytest.raises(core.InvalidOptionError, match="batch_size"):
        provider.get_text_classifier(str(model), batch_size=0)
    told = provider.get_text_classifier(str(model), batch_size=8)
    assert isinstance(told, TextClassifierDescriptor)
    assert (told.get_provider(), told.get_model()) == ("core", str(model))
    assert told.get_options()["batch_size"] == 8
    placed = told.get_udf_options()
    assert (placed.concurrency, placed.num_gpus, placed.max_retries) == (2, 1, 0)
    assert isinstance(told.instantiate(), TextClassifier)


def test_a_key_is_not_part_of_a_plan() -> None:
    with pytest.raises(core.InvalidOptionError, match="CORE_REMOTE_API_KEY") as refused:
        CoreProvider("m", options={"options": {"api_key": "sk-MARKED"}})
    assert "sk-MARKED" not in str(refused.value)
