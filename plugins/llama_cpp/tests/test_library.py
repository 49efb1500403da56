"""The llama_cpp module: imported late, quiet, and its log shown on request."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from core.errors import BackendUnavailableError
from core_llama_cpp import library
from core_llama_cpp.library import load_library, logged_errors, set_log_level


def _load(path: Path) -> object:
    llama = load_library()
    return llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUX" + bytes(64))
    return path


def _run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )


def test_the_backend_module_imports_nothing_heavy() -> None:
    code = (
        "import sys, core_llama_cpp.backend as b\n"
        "backends = b.LlamaCpp(), b.Rocm()\n"
        "print([x.available() for x in backends], [x.devices() for x in backends])\n"
        "print(sorted({'llama_cpp', 'numpy', 'jinja2', 'ctypes'} & set(sys.modules)))"
    )
    assert _run(code).stdout.splitlines()[-1] == "['ctypes']"


QUIET = """
import sys
from core_llama_cpp.library import load_library, set_log_level
llama = load_library()
if sys.argv[2:]:
    set_log_level(sys.argv[2])
model = llama.llama_model_load_from_file(sys.argv[1].encode(), llama.llama_model_default_params())
print("loaded" if model else "failed")
"""


def test_nothing_is_written_by_default(smollm2_gguf: Path, broken: Path) -> None:
    for path, outcome in ((smollm2_gguf, "loaded"), (broken, "failed")):
        done = _run(QUIET, str(path))
        assert (done.stdout, done.stderr) == (f"{outcome}\n", "")


def test_the_log_is_shown_from_a_level_up(smollm2_gguf: Path, broken: Path) -> None:
    assert "invalid magic" in _run(QUIET, str(broken), "error").stderr
    assert _run(QUIET, str(smollm2_gguf), "error").stderr == ""
    assert "llama.context_length" in _run(QUIET, str(smollm2_gguf), "info").stderr


def test_a_handler_gets_whole_lines(broken: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_library()
    set_log_level("error")
    try:
        _load(broken)
    finally:
        set_log_level("off")
    records = [record for record in caplog.records if record.name == "llama.cpp"]
    assert records
    assert {record.levelname for record in records} == {"ERROR"}
    assert not any("\n" in record.getMessage() for record in records)


def test_errors_are_heard_though_nothing_is_shown(
    broken: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with logged_errors() as said:
        assert not _load(broken)
    assert any("invalid magic" in line for line in said)
    assert capfd.readouterr() == ("", "")


def test_each_thread_hears_its_own(broken: Path) -> None:
    with logged_errors() as said:
        other = threading.Thread(target=_load, args=(broken,))
        other.start()
        other.join()
    assert said == []


def test_pieces_become_lines(caplog: pytest.LogCaptureFixture) -> None:
    log = library._Log()
    with caplog.at_level("DEBUG", "llama.cpp"), logged_errors() as said:
        for level, text in [(4, b"half "), (5, b"a line\nnext\n"), (2, b"...\n"), (2, b"fine\n")]:
            log.write(level, text, None)
    assert said == ["half a line", "next"]
    shown = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert shown == [("ERROR", "half a line"), ("ERROR", "next"), ("INFO", "fine")]


def test_a_flood_of_errors_is_not_kept() -> None:
    log = library._Log()
    with logged_errors() as said:
        for _ in range(1000):
            log.write(4, b"again\n", None)
    assert 0 < len(said) <= 20


def test_an_unusable_library_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_module", None)
    monkeypatch.setattr(library, "library_reason", lambda: "it is too old")
    with pytest.raises(BackendUnavailableError, match="'rocm' is not available: it is too old"):
        load_library("rocm")


@pytest.mark.parametrize("name", ["", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_a_note_asks_for_threads_that_sleep(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for variable in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(variable, raising=False)
    if name:
        monkeypatch.setenv(name, "active")
    caplog.set_level("INFO", logger="core_llama_cpp")
    library._note_spinning()
    notes = [record for record in caplog.records if "OMP_WAIT_POLICY" in record.getMessage()]
    assert [(note.name, note.levelname) for note in notes] == (
        [] if name else [("core_llama_cpp", "INFO")]
    )


def test_the_note_is_logged_once() -> None:
    code = (
        "import logging, os; logging.basicConfig(level='INFO')\n"
        "for name in ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT'): os.environ.pop(name, None)\n"
        "from core_llama_cpp.library import load_library\n"
        "load_library(), load_library()"
    )
    assert _run(code).stderr.count("OMP_WAIT_POLICY") == 1
