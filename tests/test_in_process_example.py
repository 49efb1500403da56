"""The example of an in-process backend is certified; docs/in_process_engines.md shows its code."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import core
from core.registry import REGISTRY

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "in_process_backend"
PAGE = (ROOT / "docs" / "in_process_engines.md").read_text("utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)
SHOWN = [text for kind, text in BLOCKS if kind == "python" and "import core\n" not in text]
[USED] = [text for kind, text in BLOCKS if kind == "python" and "import core\n" in text]


def before_others(*folders: Path) -> str:
    """A PYTHONPATH with these folders first."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The package, found as if it were installed."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    return importlib.import_module(EXAMPLE.name)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model, with the config.json that the page shows."""
    [config] = [text for kind, text in BLOCKS if kind == "json"]
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(config)
    return folder


@pytest.mark.slow
def test_it_is_certified_with_all_that_it_declares(
    certify: Callable[[str, Path], set[str]],
    example: ModuleType,
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = tmp_path / "core_toy-0.1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: core-toy\nVersion: 0.1.0\n")
    (installed / "entry_points.txt").write_text("[core.backends]\ntoy = in_process_backend:Toy\n")
    monkeypatch.setenv("PYTHONPATH", before_others(tmp_path, EXAMPLE.parent))
    assert certify("toy", path) == {each.value for each in example.Toy.capabilities}


def test_the_code_that_is_shown_is_the_examples() -> None:
    files = [file.read_text("utf-8") for file in EXAMPLE.glob("*.py")]
    assert len(SHOWN) >= 3
    for text in SHOWN:
        assert any(text in file for file in files), text


def test_the_use_that_is_shown_prints_what_is_said(
    example: ModuleType,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(REGISTRY, "_registered", {})  # taken out again behind this test
    core.register(example.Toy())
    namespace: dict[str, Any] = {"path": path}
    exec(USED, namespace)
    printed = re.findall(r"print\(.*\)  # (.*)", USED)
    assert capsys.readouterr().out.splitlines() == printed


def test_a_model_of_another_type_is_refused(example: ModuleType, tmp_path: Path) -> None:
    for config, error in (
        ({"model_type": "llama"}, core.UnsupportedModelError),
        ({"model_type": "toy", "max_position_embeddings": 0, "seed": 0}, core.InvalidModelError),
        ({"model_type": "toy", "max_position_embeddings": 64}, core.InvalidModelError),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(error):
            example.Toy().load_model(tmp_path, core.LoadConfig())


def test_memory_that_runs_out_is_the_error_of_the_rows_that_met_it(
    example: ModuleType, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = example.Toy().load_model(path, core.LoadConfig())
    language = importlib.import_module(f"{EXAMPLE.name}.language").Language
    read = language.read

    def scarce(self: Any, state: Any, ids: Any) -> Any:
        if ord("!") in ids:
            raise MemoryError
        return read(self, state, ids)

    monkeypatch.setattr(language, "read", scarce)
    with model:
        for results in (
            model.batch_generate(["one", "two!", "three"], max_tokens=3, stop_tokens=[ord("!")]),
            model.classify(["one", "two!", "three"]),
        ):
            errors = [type(result.error) for result in results]
            assert errors == [type(None), core.OutOfMemoryError, type(None)]


def test_every_file_that_the_page_names_is_there() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
    for name in re.findall(r"`(core_runtime(?:\.\w+)+)`", PAGE):
        parts = name.split(".")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(".".join(parts[:-1])), parts[-1]), name


def test_every_module_of_the_runtime_is_listed() -> None:
    _, table = PAGE.split("| module | purpose |\n|---|---|\n")
    cells = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines()]
    listed = {name for cell in cells for name in re.findall(r"`(\w+)/?`", cell)}
    modules = {path.stem for path in (ROOT / "runtime" / "src" / "core_runtime").glob("[!_]*")}
    assert listed == modules - {"py"}


_AROUND_A_FORK = """
import gc, os, sys, threading
import core
from in_process_backend import Toy

core.register(Toy())
model = core.load_model(sys.argv[1], backend="toy")
stream = model.submit("a")
child = os.fork()
if child == 0:
    for call in (
        lambda: next(model.generate("a")),
        lambda: model.classify(["a"]),
        lambda: model.batch_generate(["a"]),
    ):
        try:
            call()
        except core.ModelClosedError as error:
            assert "fork" in str(error)
        else:
            os._exit(1)
    model.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
list(stream)
assert stream.finish_reason in ("stop", "length")
(owner,) = [thread for thread in threading.enumerate() if thread.name == "core-toy"]
del model, stream
gc.collect()
owner.join(60)
assert not owner.is_alive()
"""


def test_a_fork_refuses_to_compute_and_a_dropped_model_ends_its_thread(path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": before_others(EXAMPLE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", _AROUND_A_FORK, str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
