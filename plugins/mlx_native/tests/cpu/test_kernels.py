"""The numerical tests on each of OpenBLAS's kernels that this processor can run.

OpenBLAS sums in another order on another processor, with another number of threads, and for
another shape: what holds on one machine by luck shows here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
NUMERICAL = (
    *("checkpoint/test_quantised_checkpoints.py", "classify/test_classify.py"),
    *("classify/test_scoring.py", "cpu/test_lanes.py", "decode/test_engine_truth.py"),
    *("decode/test_generate_tokens.py", "decode/test_greedy_reference.py"),
    *("decode/test_kv_cache.py", "network/test_fast_paths.py", "network/test_inspection.py"),
    "network/test_reference_logits.py",
)
NEEDS = {
    "Nehalem": {"sse4_2"},
    "Haswell": {"avx2", "fma"},
    "Zen": {"avx2", "fma"},
    "SkylakeX": {"avx512f", "avx512vl"},
}
NAME = "from core_mlx_native.cpu.blas import ensure_blas; print(ensure_blas().name)"


def instructions() -> set[str]:
    """What the processor has, where Linux tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


@pytest.fixture
def kernel(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a process whose products run on this kernel."""
    name: str = request.param
    if lacking := NEEDS[name] - instructions():
        pytest.skip(f"the processor has no {', '.join(sorted(lacking))}, which {name} needs")
    environment = {**os.environ, "OPENBLAS_CORETYPE": name}
    found = library(environment)
    if name.lower() not in found.lower():  # it was built without, or it is no OpenBLAS
        pytest.skip(f"products run on {found} when {name} is asked for")
    if found == library(dict(os.environ)):
        pytest.skip(f"{name} is the kernel that all other tests run on here")
    return environment


def library(environment: dict[str, str]) -> str:
    """What products run on in a process with this environment."""
    done = subprocess.run(
        [sys.executable, "-c", NAME], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def assert_passes(environment: dict[str, str], *files: str) -> None:
    # A session of its own: not this worker's, and with the markers of its own command line.
    own = {name: value for name, value in environment.items() if "PYTEST" not in name}
    options = ("-q", "-n0", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *options, *(str(HERE / file) for file in files)]
    done = subprocess.run(command, env=own, cwd=HERE.parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", NEEDS, indirect=True)
def test_numbers_are_right_on_each_kernel(kernel: dict[str, str]) -> None:
    assert_passes(kernel, *NUMERICAL)


@pytest.mark.slow
def test_numbers_are_right_with_two_threads_a_product() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    assert_passes(environment, "decode/test_greedy_reference.py", "cpu/test_lanes.py")
