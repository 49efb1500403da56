"""What programs hear through ``logging``: loads, calls and closes, and no text of anybody's."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import core
from core import log
from core.kit.base import TextModelBase
from core.registry import REGISTRY
from core.testing import FakeBackend, FakeModel, write_model
from core.types import Choice, GenerateMetrics, MemoryReport

PROMPT, ANSWER = "my private question", "a private answer"


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    fake = FakeBackend(ANSWER)
    monkeypatch.setattr(REGISTRY, "_registered", {fake.name: fake})
    return fake


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_loads_and_closes_are_told(
    backend: FakeBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_model(tmp_path / "model")
    with core.load_model(path, backend="fake"):
        pass
    loaded, closed = said(caplog, logging.INFO)
    assert loaded.startswith(f"loaded {str(path)!r} with fake in ")
    assert loaded.endswith("model_type=fake")
    assert closed == "fake: a model was closed"
    assert {record.name for record in caplog.records} == {"core"}


def test_a_close_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    model = FakeModel()
    model.close()
    model.close()
    assert said(caplog, logging.INFO) == ["fake: a model was closed"]


class Known(FakeModel):
    """A model that knows its device and its memory."""

    def choices(self) -> list[Choice]:
        return [Choice("dtype", "float32", "so"), Choice("device", "gpu 0", "the first")]

    def memory(self) -> MemoryReport:
        return MemoryReport(12345, 0, 0)

    def reset_peak_memory(self) -> None:
        """Nothing."""


class Lost(FakeModel):
    """A model that fails when it is asked about itself."""

    def choices(self) -> list[Choice]:
        raise RuntimeError("no choice")


def test_a_load_tells_device_and_memory_where_they_are_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log.loaded("m", "known", Known(), 1.5)
    log.loaded("m", "lost", Lost(), 1.5)
    assert said(caplog, logging.INFO) == [
        "loaded 'm' with known in 1.50 s, model_type=fake, device=gpu 0, memory=12345 bytes",
        "loaded 'm' with lost in 1.50 s, model_type=fake",
    ]


def test_every_call_is_told_and_no_text(caplog: pytest.LogCaptureFixture) -> None:
    model = FakeModel(ANSWER)
    model.generate(PROMPT).text()
    model.chat([core.Message("user", PROMPT)]).text()
    model.batch_generate([PROMPT, PROMPT])
    model.classify([PROMPT])
    calls = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert len(calls) >= 4
    assert calls[0].startswith("fake: a call took ")
    size = f"{len(PROMPT)} prompt tokens, 0 of them cached, and {len(ANSWER)} generated"
    assert calls[0].endswith(size)
    assert "private" not in caplog.text


def test_slow_calls_are_warnings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quick, slow = GenerateMetrics(total_seconds=2.0), GenerateMetrics(total_seconds=3.0)
    model = TextModelBase("some")
    model.record(slow)
    assert said(caplog, logging.WARNING) == []  # nobody said what is slow
    monkeypatch.setenv(log.SLOW_SECONDS, "2.5")
    model.record(quick)
    model.record(slow)
    (warning,) = said(caplog, logging.WARNING)
    assert warning.startswith("some: a slow call took 3.000 s")


def test_a_wrong_limit_is_told_once_and_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log._limit.cache_clear()
    monkeypatch.setenv(log.SLOW_SECONDS, "soon")
    model = FakeModel(ANSWER)
    for _ in range(2):
        assert model.generate(PROMPT).text() == ANSWER
    (warning,) = said(caplog, logging.WARNING)
    assert warning == "CORE_SLOW_SECONDS='soon' is not a number of seconds: no limit is set"


def test_a_model_speaks_through_the_logger_of_its_package(caplog: pytest.LogCaptureFixture) -> None:
    class Foreign(TextModelBase):
        """A model of somebody else."""

    Foreign.__module__ = "their_backend.model"
    Foreign("theirs").close()
    assert [record.name for record in caplog.records] == ["their_backend"]


def test_logging_is_not_imported_before_there_is_something_to_say() -> None:
    code = "import sys, core; core.load_model; core.discover; print('logging' in sys.modules)"
    run = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(Path(core.__file__).parents[1])!r}); {code}",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == "False"
