"""Which BLAS is in front of MLX: each case in a process of its own, since it cannot be undone."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import core_mlx_native
from core_mlx_native.cpu import blas, blas_libraries

PACKAGE = Path(core_mlx_native.__file__).parent
SHIM = PACKAGE / "cpu" / "shim"
SHIM_NAME = "libcore_cblas_shim.so"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="MLX brings a fast BLAS of its own on this platform"
)

REPORT = """
import dataclasses, json
from core_mlx_native.cpu.blas import blas_report, ensure_blas
planned = blas_report()
first, second = ensure_blas(), ensure_blas()
assert first is second is blas_report()
"""
PRINT = """
from core_mlx_native.cpu.linker import global_owner
facts = {"planned": dataclasses.asdict(planned), "owner": global_owner("cblas_sgemm")}
print(json.dumps(facts | dataclasses.asdict(first)))
"""
# What would be found on this machine is hidden, so that every machine gives the same answer.
HIDE = """
import sys
from pathlib import Path
from core_mlx_native.cpu import blas_libraries
blas_libraries._SYSTEM_DIRECTORIES, sys.prefix = (), "/nowhere"
path, sys.path = sys.path, [p for p in sys.path if not Path(p, "scipy_openblas32").exists()]
"""
UNHIDE = "sys.path = path\n"
PRODUCTS = """
import mlx.core as mx
import numpy as np
random = np.random.default_rng(0)
worst = 0.0
for m, k, n in [(1, 1, 1), (1, 7, 3), (2, 31, 5), (17, 129, 33), (64, 64, 64), (3, 640, 257)]:
    a = random.standard_normal((m, k)).astype("float32")
    b = random.standard_normal((k, n)).astype("float32")
    c = random.standard_normal((m, n)).astype("float32")
    x, y, z = mx.array(a), mx.array(b), mx.array(c)
    xt, yt = mx.array(np.ascontiguousarray(a.T)), mx.array(np.ascontiguousarray(b.T))
    want = a.astype("float64") @ b.astype("float64")
    for got in (x @ y, x @ yt.T, xt.T @ y, xt.T @ yt.T):
        worst = max(worst, np.abs(np.array(got) - want).max() / k**0.5)
    added = np.array(mx.addmm(z, x, y, 2.0, 0.5)) - want * 2 - c / 2
    worst = max(worst, np.abs(added).max() / k**0.5)
stack = random.standard_normal((2, 3, 4, 5)).astype("float32")
got = mx.array(stack) @ mx.array(stack).transpose(0, 1, 3, 2)
worst = max(worst, np.abs(np.array(got) - stack @ stack.transpose(0, 1, 3, 2)).max())
doubles = random.standard_normal((9, 11))
with mx.stream(mx.cpu):
    got = mx.array(doubles, mx.float64) @ mx.array(doubles.T, mx.float64)
    exact = np.abs(np.array(got) - doubles @ doubles.T).max()
    z = (doubles + 1j * doubles[::-1]).astype("complex64")
    turned = np.abs(np.array(mx.array(z) @ mx.array(z.T)) - z @ z.T).max()
assert worst < 2e-5, worst
assert exact < 1e-12, exact
assert turned < 1e-4, turned
from core_mlx_native.cpu import blas
from core_mlx_native.cpu.linker import global_owner
bound = blas.binds_before_mlx(global_owner("cblas_sgemm"))
assert bound == first.active, (bound, first)
"""


def run(*parts: str, **environment: str) -> dict[str, Any]:
    """Run the parts as one script; what it prints last is JSON."""
    clean = {k: v for k, v in os.environ.items() if k not in (blas.ENVIRONMENT, "LD_PRELOAD")}
    done = subprocess.run(
        [sys.executable, "-c", "".join(parts)],
        env={**clean, "MLX_DISABLE_COMPILE": "1", "OPENBLAS_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def scipy_openblas() -> str:
    """The library that the extra ``cpu`` installs."""
    found = [each.path for each in blas_libraries.candidates() if each.package]
    assert found, "install the extra: pip install 'infercore-mlx-native[cpu]'"
    return found[0]


def test_auto_puts_openblas_in_front_and_products_are_right() -> None:
    facts = run(REPORT, PRODUCTS, PRINT)
    assert facts["active"]
    assert facts["name"].startswith("OpenBLAS 0.")
    assert "scipy-openblas32" in facts["name"]
    assert facts["path"] == facts["planned"]["path"] == scipy_openblas()
    assert facts["owner"] == str(SHIM / platform.machine() / SHIM_NAME)
    assert not facts["planned"]["active"]


def test_openblas_num_threads_is_respected() -> None:
    assert "1 thread)" in run(REPORT, PRINT, OPENBLAS_NUM_THREADS="1")["name"]


@pytest.mark.parametrize(
    ("given", "wanted"), [({}, "14"), ({"OPENBLAS_THREAD_TIMEOUT": "20"}, "20")]
)
def test_openblas_spins_briefly_unless_told_otherwise(given: dict[str, str], wanted: str) -> None:
    spin = "import os; print(json.dumps({'spin': os.environ['OPENBLAS_THREAD_TIMEOUT']}))"
    without = "import os; os.environ.pop('OPENBLAS_THREAD_TIMEOUT', None)\n" if not given else ""
    assert run(without, REPORT, spin, **given) == {"spin": wanted}


def test_bundled_leaves_mlx_as_it_is() -> None:
    facts = run(REPORT, PRODUCTS, PRINT, CORE_MLX_BLAS="bundled")
    assert not facts["active"]
    assert facts["owner"] == ""
    assert facts["reason"] == "CORE_MLX_BLAS=bundled selects it"


def test_nothing_found_says_how_to_get_one() -> None:
    facts = run(HIDE, REPORT, UNHIDE, PRODUCTS, PRINT, LD_LIBRARY_PATH="")
    assert not facts["active"]
    assert facts["name"] == "MLX's bundled BLAS"
    assert "no OpenBLAS or MKL was found" in facts["reason"]
    assert "pip install scipy-openblas32" in facts["reason"]
    assert facts["planned"]["reason"] == facts["reason"]


def test_the_systems_openblas_is_next(tmp_path: Path) -> None:
    library = tmp_path / "libopenblas.so.0"
    library.symlink_to(scipy_openblas())
    facts = run(HIDE, REPORT, UNHIDE, PRODUCTS, PRINT, LD_LIBRARY_PATH=str(tmp_path))
    assert facts["active"]
    assert facts["path"] == str(library)
    assert facts["name"].startswith("OpenBLAS 0.")


def test_a_broken_one_is_passed_over_and_named(tmp_path: Path) -> None:
    (tmp_path / "libmkl_rt.so.2").write_text("not a library")
    (tmp_path / "libopenblas.so.0").symlink_to(scipy_openblas())
    facts = run(HIDE, REPORT, PRINT, LD_LIBRARY_PATH=str(tmp_path))
    assert facts["active"]
    assert facts["path"].endswith("libopenblas.so.0")
    assert "libmkl_rt.so.2 cannot be used" in facts["reason"]


def test_a_library_of_ones_own() -> None:
    facts = run(REPORT, PRODUCTS, PRINT, CORE_MLX_BLAS=scipy_openblas())
    assert facts["active"]
    assert facts["path"] == scipy_openblas()


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("/nowhere/libopenblas.so", "/nowhere/libopenblas.so does not exist"),
        ("openblas", "'openblas' is neither auto, bundled nor an absolute path"),
        (str(PACKAGE / "cpu" / "blas.py"), "cannot be used"),
        (str(SHIM / platform.machine() / SHIM_NAME), "undefined symbol"),
    ],
)
def test_a_wrong_setting_falls_back(setting: str, complaint: str) -> None:
    facts = run(REPORT, PRODUCTS, PRINT, CORE_MLX_BLAS=setting)
    assert not facts["active"]
    assert facts["owner"] == ""
    assert complaint in facts["reason"]
    assert "pip install scipy-openblas32" in facts["reason"]


def test_too_late_says_what_to_do() -> None:
    facts = run("import mlx.core\n", REPORT, PRODUCTS, PRINT)
    assert not facts["active"]
    assert facts["owner"] == ""
    assert "mlx.core was imported before" in facts["reason"]
    assert "ensure_blas()" in facts["reason"]


LOAD = """
import ctypes, os
from core_mlx_native.cpu import blas_libraries
for path in (os.environ["LIBRARY"], blas_libraries.shim_path()):
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
"""


@pytest.mark.parametrize("mlx", ["", "import mlx.core\n"])
def test_what_the_program_put_there_first_is_reported(mlx: str) -> None:
    facts = run(LOAD, mlx, REPORT, PRODUCTS, PRINT, LIBRARY=scipy_openblas())
    assert facts["active"]
    assert facts["path"] == facts["owner"] == blas_libraries.shim_path()
    assert "before MLX" in facts["reason"]


def test_what_the_program_loaded_after_mlx_is_not_taken_for_active() -> None:
    facts = run("import mlx.core\n", LOAD, REPORT, PRODUCTS, PRINT, LIBRARY=scipy_openblas())
    assert not facts["active"]
    assert "mlx.core was imported before" in facts["reason"]


def test_asking_for_the_report_loads_nothing() -> None:
    facts = run(
        "import json\nfrom core_mlx_native.cpu.blas import blas_report\n",
        "from core_mlx_native.cpu.linker import load_order\nblas_report()\n",
        "print(json.dumps({'blas': [p for p in load_order() if 'blas' in p]}))",
    )
    assert facts == {"blas": []}


# --------------------------------------------------------------------------- wrong libraries

WRONG = """
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                 int lda, const float *b, int ldb, float beta, float *c, int ldc) {
  for (int i = 0; i < m * n; i++) c[i] = 8;
}
"""


def need(*tools: str) -> None:
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        pytest.skip(f"{', '.join(missing)} not installed here")


def test_a_library_that_multiplies_wrongly_is_refused(tmp_path: Path) -> None:
    need("gcc")
    source, library = tmp_path / "wrong.c", tmp_path / "libwrong.so"
    source.write_text(WRONG)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    facts = run(REPORT, PRODUCTS, PRINT, CORE_MLX_BLAS=str(library))
    assert not facts["active"]
    assert facts["owner"] == ""
    assert "computes a wrong product" in facts["reason"]


# --------------------------------------------------------------------------- the shim


def symbols(library: Path) -> set[tuple[str, str]]:
    """(kind, name) of a library's dynamic symbols: T is defined there, U is left open."""
    listing = subprocess.run(
        ["nm", "--dynamic", library], check=True, capture_output=True, text=True
    ).stdout
    return {(line.split()[-2], line.split()[-1]) for line in listing.splitlines()}


EXPECTED = {
    (kind, f"{prefix}cblas_{type_}gemm")
    for kind, prefix in (("T", ""), ("U", "scipy_"))
    for type_ in "sdc"
} | {("U", "scipy_cblas_sgemv")}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_committed_shim_forwards_three_functions_and_needs_nothing_else(machine: str) -> None:
    need("nm")
    assert symbols(SHIM / machine / SHIM_NAME) == EXPECTED


def test_the_shim_can_be_rebuilt_from_its_source(tmp_path: Path) -> None:
    need("gcc", "nm")
    subprocess.run([SHIM / "build.sh", tmp_path], check=True, capture_output=True)
    built = tmp_path / platform.machine() / SHIM_NAME
    assert symbols(built) == symbols(SHIM / platform.machine() / SHIM_NAME)


@pytest.mark.parametrize(("machine", "code"), [("x86_64", 62), ("aarch64", 183)])
def test_each_shim_is_for_its_machine(machine: str, code: int) -> None:
    header = (SHIM / machine / SHIM_NAME).read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == code  # e_machine


def test_no_shim_for_a_machine_is_an_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match="needs a shim, which was not built for riscv64"):
        blas_libraries.shim_path()
