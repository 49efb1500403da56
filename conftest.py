"""Fixtures for every test of the workspace: the real models, made once per machine; the wheels,
built once per run.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import core
import core.aio
from core_runtime.chat.pool import shared_processes

try:
    from hypothesis import settings
except ImportError:  # with an editable install, others' conformance tests read this file as well
    pass
else:
    # A busy machine is no failure, and in CI the examples are the same in every run.
    settings.register_profile("core", deadline=None, derandomize="CI" in os.environ)
    settings.load_profile("core")

if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    # Threads of a BLAS that wait for a core which another worker holds spin, and both are slow.
    # Before the first import of numpy or of a backend, which read it once; children inherit it.
    share = max(1, (os.cpu_count() or 1) // int(workers))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(share))

# A job in the background ignores Ctrl-C, or a hang-up; so would every process that a test starts.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# The files with the longest soaks, longest first: one that began last would leave a worker idle.
_LONGEST = (
    *("test_teeth.py", "test_attacks.py", "test_conformance.py", "test_tally.py"),
    "test_ray_faults.py",
    *("test_greedy_reference.py", "test_fairness.py", "test_kernels.py", "test_reference.py"),
    *("test_guide.py", "test_cli_job_kills.py", "test_classify_benchmark.py", "test_engine.py"),
    *("test_truth.py", "test_fast_paths.py", "test_midway.py", "test_engine_truth.py"),
)
_REAL_MODELS = frozenset({"smollm2_dir", "smollm2_gguf", "gemma3_dir", "gemma3_gguf", "minilm_dir"})
_ROOT = Path(__file__).parent
_FETCH = _ROOT / "tools" / "fetch_models.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files; mark the tests that need a real model."""
    for item in items:
        if _REAL_MODELS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("whole")
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """SmolLM2-135M-Instruct as converted to float32 safetensors."""
    return _fetched("smollm2-135m-instruct", "directory")


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, the Q4_1 GGUF file it was converted from."""
    return _fetched("smollm2-135m-instruct", "gguf")


@pytest.fixture(scope="session")
def gemma3_dir() -> Path:
    """Gemma-3-270M (base) as converted to float32 safetensors."""
    return _fetched("gemma-3-270m", "directory")


@pytest.fixture(scope="session")
def gemma3_gguf() -> Path:
    """Gemma-3-270M (base), the Q4_K_M GGUF file it was converted from."""
    return _fetched("gemma-3-270m", "gguf")


@pytest.fixture(scope="session")
def minilm_dir() -> Path:
    """all-MiniLM-L6-v2, an encoder in float32 safetensors."""
    return _fetched("all-minilm-l6-v2", "directory")


@pytest.fixture(scope="session", autouse=True)
def _template_processes() -> Iterator[None]:
    """Keep those that render chats: else each test that renders starts one."""
    kept = shared_processes()
    yield
    del kept


@pytest.fixture
def interrupted_behind() -> Callable[[int], AbstractContextManager[None]]:
    """A block in which KeyboardInterrupt is raised behind that many calls, as a handler may do.

    Where a function of Python's begins, or one of C's has returned. Import before what the block
    imports: an import that is interrupted keeps its lock.
    """

    @contextmanager
    def interrupted(calls: int) -> Iterator[None]:
        passed = 0

        def look(frame: FrameType, event: str, argument: object) -> None:
            nonlocal passed
            passed += event in ("call", "c_return")
            if passed > calls:
                raise KeyboardInterrupt  # which unsets the profile function

        sys.setprofile(look)
        try:
            yield
        finally:
            sys.setprofile(None)

    return interrupted


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels and the requirements files, as ``make dist`` makes them.

    The first worker that asks builds them, others wait for it.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # each worker has a folder of its own in that of the run
    with (shared / "wheels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder := shared / "wheels").exists():
            _build_wheels(partial := shared / "wheels.partial")
            partial.rename(folder)
            tool = _ROOT / "tools" / "requirement_files.py"
            subprocess.run([sys.executable, str(tool), str(folder)], check=True)
    return folder


def _build_wheels(folder: Path) -> None:
    folders = ("*", "plugins/*")
    members = [path.parent for f in folders for path in _ROOT.glob(f"{f}/pyproject.toml")]
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    sources = (_ROOT, *members)
    command = [*pip, "-w", str(folder), *map(str, sources)]
    # Nothing of make or of this interpreter may reach what is built.
    ours = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(command, cwd=folder.parent, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture(scope="session")
def stock_llama_cpp() -> bool:
    """True if llama.cpp runs with its own settings: 0.3.36 crashes in its AMX buffers.

    The plugin does without these buffers.
    """
    facts = Path("/proc/cpuinfo")
    return not (facts.exists() and "amx_int8" in facts.read_text())


def _without_passed(report: str) -> str:
    return "\n".join(line for line in report.splitlines() if "\tpassed\t" not in line)


@pytest.fixture
def certify(tmp_path: Path) -> Callable[..., set[str]]:
    """Runs the conformance suite as a backend's author does: certified, with no known failures.

    Returns the capabilities that the backend declares; more words go to the command.
    """

    def run(backend: str, model: Path | str, *more: str) -> set[str]:
        file = tmp_path / "report.json"
        code = "from core_cli import main; main()"
        arguments = ("conformance", backend, "-m", str(model), "--certify", "--report", str(file))
        done = subprocess.run([sys.executable, "-c", code, *arguments, *more], capture_output=True)
        assert done.returncode == 0, _without_passed((done.stdout + done.stderr).decode())
        report = json.loads(file.read_text())
        assert report["certified"] is True
        declared = set(report["backend"]["capabilities"])
        refused = {check["refused"] for check in report["checks"]} - {""}
        assert not refused & declared
        return declared

    return run


@pytest.fixture
def left_of_streams() -> Callable[..., dict[str, int]]:
    """Counts the streams of a model that are still there, of some that ended in each way."""
    return _left_of_streams


def _left_of_streams(model: Any, prompt: str = "ab", tokens: int = 8) -> dict[str, int]:
    loop = core.aio.of(model)
    streams = dict[str, list[weakref.ref[Any]]]()

    def opened(way: str, text: str = prompt, **options: Any) -> Any:
        stream = loop.generate(text, max_tokens=tokens, **options)
        streams.setdefault(way, []).extend(map(weakref.ref, (stream, stream._stream)))
        return stream

    async def cancelled() -> None:
        await opened("cancelled").text()

    async def each() -> None:
        await opened("read to the end").text()
        for way, text, options in (("failed", "", {}), ("timed out", prompt, {"timeout": 1e-9})):
            failed = opened(way, text, **options)
            for _ in range(2):  # the second time it is the error that was kept
                with suppress(core.CoreError):
                    await failed.text()
        task = asyncio.ensure_future(cancelled())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        closed = opened("closed early")
        await anext(closed)
        await closed.aclose()
        await opened("closed unread").aclose()
        await anext(opened("abandoned"))
        opened("never begun")

    async def run() -> dict[str, int]:
        for _ in range(3):
            await each()
        end = time.monotonic() + 20.0
        while True:
            await asyncio.sleep(0.01)  # threads end
            gc.collect()
            alive = {way: sum(ref() is not None for ref in refs) for way, refs in streams.items()}
            if not any(alive.values()) or time.monotonic() > end:
                return alive

    return asyncio.run(run())


def _fetched(name: str, kind: str) -> Path:
    try:
        return Path(_paths(name)[kind])
    except subprocess.CalledProcessError as error:
        pytest.fail(
            f"The model {name} is not here and could not be made: {error.stderr.strip()}\n"
            f"Run `make models`, or: {sys.executable} {_FETCH} {name}",
            pytrace=False,
        )


@functools.cache
def _paths(name: str) -> dict[str, str]:
    # In a process of its own, where mlx may be imported without harm to a later test.
    command = [sys.executable, str(_FETCH), "--json", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found[name]
