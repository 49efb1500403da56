"""A worker that dies, falls silent or talks nonsense: a typed error, and a fresh worker next."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import core
from core_mlx_lm_bridge.model import BridgeModel

pytestmark = pytest.mark.load  # a busy machine can make it fail

Fake = Callable[..., BridgeModel]

FAULTS = {
    "SIGKILL": "was killed by SIGKILL",
    "SIGSEGV": "was killed by SIGSEGV",
    "SIGTERM": "was killed by SIGTERM",
    "exit": "exited with status 3",
    "half": "exited with status 0",
    "flood": "exited with status 4",
    "garbage": "malformed",
    "utf-8": "broke the protocol",
    "other": "an answer to request",
    "unasked": "facts of the model",
    "long": "a line longer than",
}
every_fault = pytest.mark.parametrize("name", FAULTS)


def pid_of(model: BridgeModel) -> int:
    """The process that answers now."""
    return next(model.generate("pid")).id


@contextmanager
def patience(model: BridgeModel, seconds: float) -> Iterator[None]:
    """So long is silence borne meanwhile: a sound worker of a busy machine is silent as well."""
    session = model._line.session
    settings = session._settings
    session._settings = replace(settings, silence_timeout=seconds)
    yield
    session._settings = settings


def end(model: BridgeModel, number: signal.Signals) -> None:
    """Kill the worker behind the model's back, and see it die."""
    worker = model._line.session._worker
    assert worker is not None
    os.kill(worker.pid, number)
    worker._child.popen.wait(300)


def is_gone(pid: int) -> bool:
    """Whether there is no such process, not even as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@every_fault
def test_fault_while_generating(fake: Fake, name: str) -> None:
    model = fake()
    first = pid_of(model)
    stream = model.generate(f"fault {name} 2")
    assert [next(stream).text, next(stream).text] == ["0 ", "1 "]
    with pytest.raises(core.BackendProcessError, match=FAULTS[name]) as caught:
        next(stream)
    assert ("the last line" if name == "flood" else f"about to {name}") in caught.value.stderr_tail
    assert stream.finish_reason == "error"
    assert list(stream) == []
    assert is_gone(first)
    assert pid_of(model) != first


ALL_SIGNALS = sorted(map(int, signal.valid_signals()))
NAMELESS = [number for number in ALL_SIGNALS if number not in map(int, signal.Signals)]
SOME_SIGNALS = [signal.SIGHUP, signal.SIGABRT, signal.SIGALRM, *NAMELESS[:1], ALL_SIGNALS[-1]]


@pytest.mark.parametrize(
    "numbers",
    [SOME_SIGNALS, pytest.param(ALL_SIGNALS, marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_any_signal_that_ends_it(fake: Fake, numbers: list[int]) -> None:
    """Also those that have no name; Python itself or the kernel passes over the others."""
    passed_over = {"SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGPIPE", "SIGXFSZ", "SIGINT"}
    stopping = {"SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU"}
    names = {int(number): number.name for number in signal.Signals}
    model = fake()
    for number in map(int, numbers):
        name = names.get(number, f"signal {number}")
        if name in passed_over | stopping:
            continue
        worker = pid_of(model)
        with pytest.raises(core.BackendProcessError, match=rf"was killed by {name}\b"):
            list(model.generate(f"fault {number} 1"))
        assert is_gone(worker)
    assert pid_of(model) > 0


def test_a_signal_that_the_system_has_and_python_has_not(fake: Fake) -> None:
    """glibc keeps 32 and 33 to itself: no handler, and no name."""
    model = fake()
    worker = model._line.session._worker
    assert worker is not None
    worker._child.popen.kill()
    worker._child.popen.wait()
    worker._child.popen.returncode = -33
    with pytest.raises(core.BackendProcessError, match="was killed by signal 33 while it was idle"):
        pid_of(model)
    assert pid_of(model) > 0


def test_a_message_that_is_no_text(fake: Fake) -> None:
    """As of a file whose name is not UTF-8: shown as escapes, and the worker lives on."""
    model = fake()
    worker = pid_of(model)
    with pytest.raises(core.BackendProcessError, match=r"cannot read caf\\udce9"):
        list(model.generate("fault surrogate 1"))
    assert pid_of(model) == worker


@pytest.mark.parametrize("name", sorted({*FAULTS} - {"unasked"}))
def test_fault_while_loading(fake: Fake, name: str) -> None:
    with pytest.raises(core.BackendProcessError, match=FAULTS[name]) as caught:
        fake(env={"FAKE_LOAD_FAULT": name})
    assert ("the last line" if name == "flood" else f"about to {name}") in caught.value.stderr_tail


@pytest.mark.parametrize("name", ["SIGKILL", "garbage"])
def test_fault_while_loading_again(fake: Fake, tmp_path: Path, name: str) -> None:
    marker = tmp_path / "marker"
    marker.touch()
    model = fake(env={"FAKE_LOAD_FAULT": name, "FAKE_ONCE": str(marker)})
    end(model, signal.SIGKILL)
    marker.unlink()
    with pytest.raises(core.BackendProcessError, match="while it was idle"):
        pid_of(model)
    with pytest.raises(core.BackendProcessError, match=FAULTS[name]):
        pid_of(model)
    assert pid_of(model) > 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_killed_while_idle(fake: Fake, number: signal.Signals) -> None:
    """The next call says so, and the one behind it gets another worker."""
    model = fake()
    first = pid_of(model)
    end(model, number)
    with pytest.raises(core.BackendProcessError, match=f"was killed by {number.name}") as caught:
        pid_of(model)
    assert "while it was idle" in str(caught.value)
    assert pid_of(model) != first
    assert is_gone(first)


def test_killed_while_a_stream_is_open(fake: Fake) -> None:
    model = fake()
    stream = model.generate("count 100000 0.001")
    next(stream)
    end(model, signal.SIGKILL)
    with pytest.raises(core.BackendProcessError, match="was killed by SIGKILL"):
        list(stream)
    assert pid_of(model) > 0


def test_silence(fake: Fake) -> None:
    model = fake()
    stream = model.generate("fault hang 1")
    next(stream)
    silence = pytest.raises(core.BackendProcessError, match=r"wrote nothing for 0\.3 s")
    with patience(model, 0.3), silence as caught:
        next(stream)
    assert "silence_timeout" in str(caught.value)
    assert pid_of(model) > 0


def test_silence_while_loading(fake: Fake) -> None:
    with pytest.raises(core.BackendProcessError, match="while it loaded the model"):
        fake(silence_timeout=1.0, env={"FAKE_LOAD_FAULT": "hang"})


def test_timeout_of_a_hanging_worker(fake: Fake) -> None:
    """The caller's own timeout comes first, and what hangs is found by the next call."""
    model = fake()
    with pytest.raises(core.GenerationTimeout):
        list(model.generate("fault hang 0", timeout=0.1))
    with patience(model, 0.5), pytest.raises(core.BackendProcessError, match="wrote nothing"):
        pid_of(model)
    assert pid_of(model) > 0


def test_stderr_flood_of_a_sound_worker(fake: Fake) -> None:
    """A worker never waits for somebody to read its stderr."""
    model = fake()
    assert [token.text for token in model.generate("noise")] == ["done"]


def test_prints_of_a_sound_worker(fake: Fake) -> None:
    """What libraries and their children print or read does not touch the protocol."""
    model = fake()
    assert [token.text for token in model.generate("print")] == ["done"]
    assert [token.text for token in model.generate("print")] == ["done"]


def test_closing_a_worker_that_does_not_listen(fake: Fake) -> None:
    model = fake()
    pid = pid_of(model)
    stream = model.generate("fault deaf 1")
    next(stream)
    model.close()
    assert is_gone(pid)


def test_interpreter_that_cannot_be_run(fake: Fake, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    with pytest.raises(core.BackendUnavailableError, match="cannot be run"):
        fake(python=str(broken))
    with pytest.raises(core.BackendUnavailableError, match="not an executable interpreter"):
        fake(python=str(tmp_path / "nothing"))
