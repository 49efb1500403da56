"""Memory and cores that this process may use, from files as Linux writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core_runtime.machine import available_bytes, usable_cores

GIB = 2**30
MEMINFO = "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\nHugeTLB: x\n"


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _available(root: Path) -> int | None:
    return available_bytes(root / "proc", root / "cgroup")


def test_the_machine_itself(tmp_path: Path) -> None:
    _write(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/\n"})
    assert _available(tmp_path) == 8 * GIB


def test_a_limit_of_cgroup_v2_less_what_can_be_reclaimed(tmp_path: Path) -> None:
    own = "cgroup/pods/one"
    _write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/pods/one\n",
            f"{own}/memory.max": f"{4 * GIB}\n",
            f"{own}/memory.current": f"{3 * GIB}\n",
            f"{own}/memory.stat": f"anon 1\nfile {GIB}\ninactive_file {GIB}\n",
            "cgroup/pods/memory.max": "max\n",
            "cgroup/pods/memory.current": f"{3 * GIB}\n",
        },
    )
    assert _available(tmp_path) == 2 * GIB


def test_a_tighter_limit_of_a_parent(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/pods/one\n",
            "cgroup/pods/one/memory.max": f"{4 * GIB}\n",
            "cgroup/pods/one/memory.current": "0\n",
            "cgroup/pods/memory.max": f"{GIB}\n",
            "cgroup/pods/memory.current": "0\n",
        },
    )
    assert _available(tmp_path) == GIB


def test_a_container_sees_its_own_cgroup_as_the_root(tmp_path: Path) -> None:
    """The path that proc tells is the host's, and is not there."""
    _write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/../docker/abc\n",
            "cgroup/memory.max": f"{GIB}\n",
            "cgroup/memory.current": "0\n",
        },
    )
    assert _available(tmp_path) == GIB


def test_a_limit_of_cgroup_v1(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "4:cpu,memory:/one\n0::/\n",
            "cgroup/memory/one/memory.limit_in_bytes": f"{2 * GIB}\n",
            "cgroup/memory/one/memory.usage_in_bytes": f"{GIB}\n",
            "cgroup/memory/one/memory.stat": "inactive_file 5\ntotal_inactive_file 7\n",
            "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "cgroup/memory/memory.usage_in_bytes": "0\n",
        },
    )
    assert _available(tmp_path) == GIB + 7


def test_more_used_than_the_limit_is_nothing_left(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "cgroup/memory.max": "100\n",
            "cgroup/memory.current": "200\n",
        },
    )
    assert _available(tmp_path) == 0


def test_without_proc_physical_memory_counts(tmp_path: Path) -> None:
    assert _available(tmp_path) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cpuinfo(*cores: tuple[int, int]) -> str:
    """Blocks of (physical id, core id), one for each CPU."""
    return "\n\n".join(
        f"processor\t: {number}\nmodel name\t: X: y\nphysical id\t: {socket}\ncore id\t: {core}"
        for number, (socket, core) in enumerate(cores)
    )


@pytest.fixture
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def _cores(root: Path) -> int:
    return usable_cores(root, root)


@pytest.mark.usefixtures("eight_cpus")
class TestCores:
    """With eight CPUs that the process may use."""

    def test_hyperthreads_count_once(self, tmp_path: Path) -> None:
        pairs = [(socket, core) for socket in (0, 1) for core in (0, 1)] * 2
        _write(tmp_path, {"cpuinfo": _cpuinfo(*pairs)})
        assert _cores(tmp_path) == 4

    def test_without_core_ids_cpus_count(self, tmp_path: Path) -> None:
        _write(tmp_path, {"cpuinfo": "processor\t: 0\nBogoMIPS\t: 50.00\n"})
        assert _cores(tmp_path) == 8

    @pytest.mark.parametrize(
        ("quota", "cores"),
        [
            ("150000 100000", 2),
            ("50000 100000", 1),
            ("max 100000", 8),
            ("9900000 100000", 8),
            ("", 8),
        ],
    )
    def test_a_quota_of_cpu_time(self, tmp_path: Path, quota: str, cores: int) -> None:
        _write(tmp_path, {"cpu.max": f"{quota}\n"})
        assert _cores(tmp_path) == cores


def test_cores_that_the_process_may_not_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1}, raising=False)
    _write(tmp_path, {"cpuinfo": _cpuinfo((0, 0), (0, 1), (0, 2))})
    assert _cores(tmp_path) == 1
