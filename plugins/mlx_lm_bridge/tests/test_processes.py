"""What stays behind in the system: processes, descriptors, and the caller's own stdout."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import core
from core_mlx_lm_bridge.loading import WORKER
from core_mlx_lm_bridge.model import BridgeModel
from core_mlx_lm_bridge.process import WorkerProcess

pytestmark = pytest.mark.load  # a busy machine can make it fail

Fake = Callable[..., BridgeModel]

LOAD = """
import os, sys
from pathlib import Path
from core.options import LoadConfig
from core_mlx_lm_bridge import loading
from core_mlx_lm_bridge.backend import MlxLm
loading.WORKER = Path(sys.argv[2])
model = MlxLm().load_model(sys.argv[1], LoadConfig(options={"python": sys.executable}))
stream = model.generate("fault hang 1")  # silent: it must hear of its caller's end, not feel it
next(stream)
"""
SAY = "os.write(int(sys.argv[3]), b'%d' % model._line.session._worker.pid)\n"


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def caller(fake_dir: Path, code: str) -> tuple[subprocess.Popen[bytes], int]:
    """A process that has an open stream, and the worker's process id."""
    reading, writing = os.pipe()
    script = Path(__file__).with_name("fake_worker.py")
    command = [sys.executable, "-W", "error", "-c", LOAD + SAY + code]
    process = subprocess.Popen(
        [*command, str(fake_dir), str(script), str(writing)],
        pass_fds=[writing],
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read(1)
        while data and not (more := pipe.read(1)).isspace() and more:
            data += more
    if not data:
        pytest.fail(process.communicate()[1].decode())
    return process, int(data)


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + 60
    while not is_gone(pid):
        assert time.monotonic() < end, "the worker outlived its parent"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_no_orphan_when_the_caller_is_killed(fake_dir: Path, number: signal.Signals) -> None:
    process, worker = caller(fake_dir, "os.write(int(sys.argv[3]), b' '); next(iter(int, 1))")
    process.send_signal(number)
    process.communicate(timeout=60)
    wait_until_gone(worker)


def test_no_orphan_while_a_fork_holds_the_pipes(fake_dir: Path) -> None:
    """The worker sees no end of its requests then, but another parent."""
    code = (
        "import time\n"
        "if os.fork() == 0: os.close(2); time.sleep(90); os._exit(0)\n"
        "os.write(int(sys.argv[3]), b' '); time.sleep(90)\n"
    )
    process, worker = caller(fake_dir, code)
    process.kill()
    process.communicate(timeout=60)
    wait_until_gone(worker)


def test_a_program_that_ends_without_closing(fake_dir: Path) -> None:
    """Its worker ends with it, at once, and nothing is said about it."""
    process, worker = caller(fake_dir, "os.write(int(sys.argv[3]), b' ')")
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, b"")
    wait_until_gone(worker)


@pytest.mark.parametrize("closed", ["0", "1", "2", "02", "012"])
def test_caller_without_standard_streams(fake_dir: Path, tmp_path: Path, closed: str) -> None:
    """The pipes get the numbers 0 to 2 then."""
    out = tmp_path / "out.json"
    code = (
        "".join(f"os.close({number})\n" for number in closed)
        + LOAD.replace("fault hang 1", "count 9")
        + f"open({str(out)!r}, 'w').write(str([next(stream).id for _ in range(3)])); model.close()"
    )
    script = str(Path(__file__).with_name("fake_worker.py"))
    command = [sys.executable, "-c", "import os\n" + code, str(fake_dir), script]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0
    assert json.loads(out.read_text()) == [1, 2, 3]


def test_a_working_directory_that_is_gone(fake_dir: Path, tmp_path: Path) -> None:
    """Neither the caller's side nor the real worker, which starts in the same place, needs it."""
    (tmp_path / "gone").mkdir()
    code = (
        "import os; os.rmdir(os.getcwd())\n"
        + LOAD
        + "model.close()\n"
        + "import core\n"
        + "loading.WORKER = Path(sys.argv[3])\n"
        + "try: MlxLm().load_model(sys.argv[1], LoadConfig())\n"
        + "except core.InvalidModelError as error: print(error)\n"
    )
    script = Path(__file__).with_name("fake_worker.py")
    command = [sys.executable, "-c", code, str(fake_dir), str(script), str(WORKER)]
    done = subprocess.run(command, cwd=tmp_path / "gone", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "with mlx-lm: RuntimeError" in done.stdout  # it came as far as the model, which is none


def test_a_fork_cannot_use_the_model(fake: Fake) -> None:
    model = fake()
    next(model.generate("count 1"))
    pid = os.fork()
    if pid == 0:
        try:
            next(model.generate("count 1"))
        except core.ModelClosedError as error:
            model.close()
            os._exit(0 if "fork" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert next(model.generate("count 1")).text == "0 "


@pytest.mark.parametrize("cycles", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_cycles_leave_nothing(fake: Fake, cycles: int) -> None:
    """Loads and closes, deaths and restarts: no descriptor, no zombie, no child."""
    fake().close()
    before, workers = descriptors(), set[int]()
    for _ in range(cycles // 2):
        with fake() as model:
            workers.add(next(model.generate("pid")).id)
            with pytest.raises(core.BackendProcessError):
                list(model.generate("fault SIGKILL 1"))
            workers.add(next(model.generate("pid")).id)
    assert descriptors() == before
    assert len(workers) == cycles
    for pid in workers:
        with pytest.raises(ProcessLookupError):  # a zombie would still be there
            os.kill(pid, 0)


def test_ctrl_c_is_the_callers_alone(fake: Fake) -> None:
    """The worker is in a session of its own, which the terminal's signals do not reach."""
    worker = next(fake().generate("pid")).id
    assert os.getsid(worker) == worker


def test_the_caller_keeps_its_limits(fake: Fake) -> None:
    before, imported = resource.getrlimit(resource.RLIMIT_NOFILE), {*sys.modules}
    list(fake().generate("count 3"))
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
    assert "mlx_lm" not in {*sys.modules} - imported  # other tests import it here


def test_a_line_for_a_worker_that_does_not_read_yet() -> None:
    """What the pipe does not hold is written while the answer is waited for."""
    code = (
        "import os, sys, time; time.sleep(0.3)\nrequests, answers = map(int, sys.argv[1:])\n"
        "os.write(answers, b'%d\\n' % len(open(requests, 'rb').readline()))"
    )
    worker = WorkerProcess([sys.executable, "-c", code], {})
    worker.send(b"x" * 1_000_000 + b"\n")
    while (line := worker.line(0.1)) is None:
        assert not worker.ended, worker.stderr_tail()
    assert line == b"1000001"
    worker.kill()
