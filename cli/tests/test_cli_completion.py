"""What the shell offers behind Tab."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli


@pytest.fixture
def offered(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a home with the model ``tiny``."""
    store = tmp_path / ".cache" / "core" / "models" / "tiny"
    store.parent.mkdir(parents=True)
    fake_model.rename(store)
    return {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / ".cache")}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("infer-cli ge", ["plain,generate"]),
        ("infer-cli classify -m ti", ["plain,tiny"]),
        ("infer-cli chat -m ti", ["plain,tiny"]),
        ("infer-cli info ti", ["plain,tiny"]),
        ("infer-cli info ./x", ["file,./x"]),
        ("infer-cli generate --backend fake_pl", ["plain,fake_plain"]),
        ("infer-cli generate --max-t", ["plain,--max-tokens"]),
    ],
)
def test_names_are_completed(
    infer_cli: InferCli, offered: dict[str, str], line: str, wanted: list[str]
) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = infer_cli.finish(env={**offered, **words, "_INFER_CLI_COMPLETE": "bash_complete"})
    assert done.stdout.splitlines() == wanted, done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_takes_the_script(infer_cli: InferCli) -> None:
    script = infer_cli.finish(env={"_INFER_CLI_COMPLETE": "bash_source"}).stdout
    done = subprocess.run(
        ["bash", "-c", f"{script}\ncomplete -p infer-cli"], capture_output=True, text=True
    )
    assert (done.returncode, "infer_cli_completion" in done.stdout) == (0, True), done.stderr
