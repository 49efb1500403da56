"""``infer-cli lora merge`` and ``lora export`` as the hook adds them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import core
from core_mlx_native import hooks
from core_mlx_native.adapters.files import read_adapter
from core_runtime.checkpoint.config import load_config
from plugins.mlx_native.tests.adapters.conftest import Write, drawn
from runtime.tests.tiny import Checkpoint

HEAVY = "mlx numpy gguf tokenizers jinja2 click"


@pytest.fixture
def cli() -> click.Group:
    group = click.Group()
    hooks.core_register_commands(group)
    return group


def run(cli: click.Group, *words: object) -> str:
    done = CliRunner().invoke(cli, ["lora", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    return done.stdout.removesuffix("\n")


def test_merge(checkpoint: Checkpoint, lora: Write, tmp_path: Path, cli: click.Group) -> None:
    path = checkpoint()
    adapter, out = lora(drawn(path)), tmp_path / "merged"
    assert run(cli, "merge", "-m", path, adapter, out) == str(out)
    core.load_model(out, backend="mlx_cpu").close()
    with pytest.raises(core.ConversionError, match="--overwrite"):
        run(cli, "merge", "-m", path, adapter, out)
    run(cli, "merge", "-m", path, "--overwrite", adapter, out)


@pytest.mark.parametrize(("form", "layout"), [("--peft", "PEFT"), ("--mlx-lm", "mlx-lm")])
def test_export_of_a_directory(
    form: str, layout: str, checkpoint: Checkpoint, lora: Write, tmp_path: Path, cli: click.Group
) -> None:
    path = checkpoint()
    adapter, out = lora(drawn(path)), tmp_path / "new" / "out"
    assert run(cli, "export", form, "-m", path, adapter, out) == str(out)
    found = read_adapter(out, load_config(path))
    assert found.layout == layout
    assert found.layers.keys() == read_adapter(adapter, load_config(path)).layers.keys()
    with pytest.raises(core.ConversionError, match="not empty"):
        run(cli, "export", form, "-m", path, adapter, out)
    run(cli, "export", form, "-m", path, "--overwrite", adapter, out)
    with pytest.raises(core.ConversionError, match="the adapter itself"):
        run(cli, "export", form, "-m", path, "--overwrite", out, out)
    with pytest.raises(core.ConversionError, match="is not an adapter written by this program"):
        run(cli, "export", form, "-m", path, "--overwrite", adapter, adapter)


def test_export_of_a_file(
    checkpoint: Checkpoint, lora: Write, tmp_path: Path, cli: click.Group
) -> None:
    path = checkpoint()
    adapter, out = lora(drawn(path)), tmp_path / "lora.gguf"
    assert run(cli, "export", "--gguf", "-m", path, adapter, out) == str(out)
    size = out.stat().st_size
    run(cli, "export", "--gguf", "--dtype", "float16", "--overwrite", "-m", path, adapter, out)
    assert out.stat().st_size < size


def test_what_is_missing_is_asked_for(tmp_path: Path, cli: click.Group) -> None:
    for words, message in [
        (["merge", "a", "b"], "Missing option '-m'"),
        (["export", "-m", str(tmp_path), "a", "b"], "--gguf, --peft or --mlx-lm"),
    ]:
        done = CliRunner().invoke(cli, ["lora", *words])
        assert done.exit_code == 2
        assert message in done.stderr


def test_the_hook_imports_nothing_heavy() -> None:
    code = (
        "import sys, core_mlx_native.hooks, core_mlx_native.adapter_commands;"
        f"sys.exit(' '.join(n for n in '{HEAVY}'.split() if n in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
