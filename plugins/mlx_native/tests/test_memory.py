"""MLX's memory controls: each case in a process of its own, since they are process-wide."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core_mlx_native
from core.options import LoadConfig
from core_mlx_native import memory
from core_mlx_native.cpu import blas
from core_mlx_native.loaded import load

CONTROLS = sorted(core_mlx_native.__all__)
SETTERS = [name for name in CONTROLS if name.startswith("set_")]
# Arrays of a megabyte: well below the 32 MiB that MLX keeps by itself.
PRELUDE = """
import json
import core_mlx_native as c
from core.errors import InvalidOptionError
def array(megabytes=1):
    import mlx.core as mx
    made = mx.ones(megabytes * 2**18)
    mx.eval(made)
    return made
"""
MEGABYTE = 2**20


def run(script: str, **environment: str) -> Any:
    """What a script leaves in ``found``."""
    clean = {k: v for k, v in os.environ.items() if k not in (blas.ENVIRONMENT, "LD_PRELOAD")}
    done = subprocess.run(
        [sys.executable, "-c", f"{PRELUDE}{script}\nprint(json.dumps(found))\n"],
        env={**clean, "OPENBLAS_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# ------------------------------------------------------------ what a first call loads


def test_the_controls_carry_mlx_names() -> None:
    mlx = run("import mlx.core as mx\nfound = dir(mx)")
    # MLX has no call that reads a limit without setting it, nor one for every device.
    own = {"get_cache_limit", "get_memory_limit", "get_wired_limit"}
    assert set(CONTROLS) - own <= set(mlx)
    assert len(SETTERS) == len(own) == 3


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = """
import sys
[getattr(c, name) for name in c.__all__]
found = sorted({name.partition(".")[0] for name in sys.modules})
"""
    heavy = {"gguf", "jinja2", "mlx", "numpy", "safetensors", "tokenizers"}
    assert not heavy & set(run(script))


@pytest.mark.skipif(sys.platform != "linux", reason="MLX brings a fast BLAS on this platform")
@pytest.mark.parametrize("name", CONTROLS)
def test_a_first_call_puts_the_blas_in_front(name: str) -> None:
    arguments = "2**30" if name in SETTERS else ""
    script = f"""
import sys
before = "mlx.core" in sys.modules
c.{name}({arguments})
after = "mlx.core" in sys.modules
from core_mlx_native.cpu import blas, linker
report = blas.blas_report()
bound = blas.binds_before_mlx(linker.global_owner(blas.SYMBOL))
found = [before, after, report.active, bound]
"""
    assert run(script) == [False, True, True, True]


@pytest.mark.skipif(sys.platform != "linux", reason="MLX brings a fast BLAS on this platform")
def test_a_program_that_imported_mlx_first_is_told() -> None:
    script = """
import mlx.core
c.get_active_memory()
from core_mlx_native.cpu import blas
found = [blas.blas_report().active, blas.blas_report().reason]
"""
    active, reason = run(script)
    assert not active
    assert "mlx.core was imported before" in reason


# ------------------------------------------------------------ what is read


def test_active_memory_is_what_arrays_hold() -> None:
    script = """
found = [c.get_active_memory()]
kept = array(3)
found.append(c.get_active_memory())
other = array(2)
found.append(c.get_active_memory())
del kept
found.append(c.get_active_memory())
"""
    before, three, five, two = run(script)
    assert [three - before, five - before, two - before] == [
        pytest.approx(megabytes * MEGABYTE, abs=4096) for megabytes in (3, 5, 2)
    ]


def test_the_peak_outlives_its_arrays_and_falls_on_reset() -> None:
    script = """
def look():
    found.append([c.get_peak_memory(), c.get_active_memory()])
found = []
kept = array(1)
array(8)
look()
c.reset_peak_memory()
found.append([c.get_peak_memory(), 0])
other = array(2)
look()
array(4)
look()
"""
    first, reset, second, third = run(script)
    for peak, active in (first, second, third):
        assert peak >= active > 0
    assert first[0] >= 9 * MEGABYTE
    assert reset[0] <= 1.1 * MEGABYTE  # no more than what is still held
    assert 3 * MEGABYTE <= second[0] < 4 * MEGABYTE
    assert third[0] >= 7 * MEGABYTE


def test_the_cache_holds_what_arrays_leave_until_it_is_cleared() -> None:
    script = """
kept = array(2)
array(5)
found = [c.get_cache_memory()]
held = c.get_active_memory()
c.clear_cache()
found += [c.get_cache_memory(), c.get_active_memory() - held]
"""
    cached, cleared, freed = run(script)
    assert cached >= 5 * MEGABYTE
    assert cleared == 0
    assert freed == 0  # arrays in use are no cache


def test_device_info_is_that_of_the_default_device() -> None:
    script = """
first, second = c.device_info(), c.device_info()
first["device_name"] = "changed"
import mlx.core as mx
found = [second, mx.device_info(), c.device_info()]
"""
    ours, mlx, again = run(script)
    assert ours == mlx == again
    assert ours["device_name"]


# ------------------------------------------------------------ what is set


def test_a_cache_limit_of_0_keeps_nothing() -> None:
    script = """
array(5)
found = [c.get_cache_memory()]
c.set_cache_limit(0)
for megabytes in (1, 5, 3):
    array(megabytes)
    found.append(c.get_cache_memory())
"""
    without_limit, *with_limit = run(script)
    assert without_limit >= 5 * MEGABYTE
    assert with_limit == [0, 0, 0]


def test_a_cache_limit_bounds_the_cache_and_can_be_taken_back() -> None:
    script = """
found = []
before = c.set_cache_limit(4 * 2**20)
for limit in (None, before):
    if limit is not None:
        c.set_cache_limit(limit)
    arrays = [array(1) for _ in range(10)]
    arrays.clear()
    found.append(c.get_cache_memory())
"""
    small, large = run(script)
    assert 0 < small < 6 * MEGABYTE
    assert large >= 10 * MEGABYTE


@pytest.mark.parametrize("name", ["cache", "memory"])
def test_a_set_limit_is_read_back_and_reading_changes_nothing(name: str) -> None:
    script = f"""
get, set = c.get_{name}_limit, c.set_{name}_limit
original = get()
found = [[original, get(), set(3 * 2**30)], [get(), get(), set(7)], [get(), set(0), get()]]
found.append([set(2**62), get(), set(original), get()])
"""
    first, second, third, fourth = run(script)
    original = first[0]
    assert original > 0
    assert first == [original] * 3
    assert second == [3 * 2**30] * 3
    assert third == [7, 7, 0]
    assert fourth == [0, 2**62, 2**62, original]


@pytest.mark.parametrize(
    ("metal", "held", "before", "limit"),
    [
        (True, 60, 0, 100),
        (True, 40, 0, 0),  # a small model is not paged out
        (True, 60, 70, 70),  # the user's own
        (False, 60, 0, 0),
    ],
)
def test_large_models_are_wired_on_metal(
    metal: bool, held: int, before: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [before]

    def set_limit(value: int) -> int:
        limits.append(value)
        return limits[-2]

    mx = memory._mlx()
    monkeypatch.setattr(mx.metal, "is_available", lambda: metal)
    monkeypatch.setattr(mx, "device_info", lambda _: {"max_recommended_working_set_size": 100})
    monkeypatch.setattr(mx, "get_active_memory", lambda: held)
    monkeypatch.setattr(mx, "set_wired_limit", set_limit)
    memory.wire_large_models()
    assert limits[-1] == limit


def test_a_load_on_a_gpu_wires_them(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    wired: list[bool] = []
    monkeypatch.setattr(memory, "wire_large_models", lambda: wired.append(True))
    directory = checkpoint()
    load(directory, LoadConfig(), on_gpu=False)
    assert not wired
    load(directory, LoadConfig(), on_gpu=True)
    assert wired


def test_the_wired_limit_is_for_macos_only() -> None:
    if sys.platform == "darwin":
        pytest.skip("written for machines where there is none")
    script = "found = [c.get_wired_limit(), c.set_wired_limit(2**30), c.get_wired_limit()]"
    assert run(script) == [0, 0, 0]


def test_reading_a_limit_does_not_empty_the_cache() -> None:
    script = """
array(5)
found = [c.get_cache_memory()]
c.get_cache_limit(), c.get_memory_limit(), c.get_wired_limit()
found.append(c.get_cache_memory())
"""
    before, after = run(script)
    assert before == after > 0


def test_arrays_are_computed_under_the_lowest_limits() -> None:
    script = """
c.set_memory_limit(1)
c.set_cache_limit(0)
total = array(1) + array(1)
found = total.sum().item()
"""
    assert run(script) == 2 * 2**18


@pytest.mark.parametrize("name", SETTERS)
def test_a_wrong_limit_is_refused_and_sets_nothing(name: str) -> None:
    script = f"""
found = []
before = c.{name.replace("set", "get")}()
for wrong in (-1, 2**62 + 1, 2**70, 1.0, True, "1", None, float("nan"), [1]):
    try:
        c.{name}(wrong)
    except InvalidOptionError as error:
        found.append([error.option, str(error)])
found.append(c.{name.replace("set", "get")}() == before)
"""
    *errors, unchanged = run(script)
    assert unchanged
    assert len(errors) == 9
    for option, message in errors:
        assert option == name
        assert message.startswith(f"{name}=")
        assert "0" in message  # where the range begins


def test_threads_that_read_a_limit_see_the_one_that_was_set() -> None:
    script = """
import sys, threading
sys.setswitchinterval(1e-6)
limits = (c.set_cache_limit, c.get_cache_limit), (c.set_memory_limit, c.get_memory_limit)
for setter, _ in limits:
    setter(12345678)
seen = set()
def read():
    for _ in range(2000):
        seen.update(getter() for _, getter in limits)
threads = [threading.Thread(target=read) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
found = sorted(seen)
"""
    assert run(script) == [12345678]
