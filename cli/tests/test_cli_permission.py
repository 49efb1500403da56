"""Files and directories that the user may not read. Root may read all, so a child drops that."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

# Runs commands that import everything, gives up root's rights, and runs the one that is meant:
# the interpreter itself may lie where only root can read.
CHILD = """
import contextlib, os, sys
from core_cli.app import build

def run(arguments):
    try:
        build()(arguments, prog_name="infer-cli")
    except SystemExit as error:
        return error.code

place, *meant = sys.argv[1:]
quiet = open(os.devnull, "w")
with contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet):
    run(["info", place + "/nowhere"])
    run(["discover", place])
    run(["classify", "-m", place + "/model", "-i", place + "/nowhere"])
    run(["classify", "-m", place + "/model", "--backend", "fake", "x"])
if os.getuid() == 0:
    os.setuid(65534)
sys.exit(run(meant))
"""


@pytest.fixture
def place(fake_model: Path) -> Iterator[Path]:
    """A directory that everybody may enter; pytest's own is for its user alone."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    shutil.copytree(fake_model, place / "model")
    shutil.copytree(Path(__file__).parent / "fake_backend", place / "site")
    shutil.copytree(fake_model, place / "forbidden" / "model")
    shutil.copytree(fake_model, place / "unreadable")
    (place / "secret.txt").write_text("x")
    for path in ("forbidden", "unreadable/config.json", "secret.txt"):
        (place / path).chmod(0)
    yield place
    (place / "forbidden").chmod(0o700)
    shutil.rmtree(place)


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("classify -m {d}/forbidden x", 1, "No permission to read"),
        ("classify -m {d}/forbidden/model x", 1, "No permission to read"),
        ("classify -m {d}/unreadable x", 1, "No permission to read"),
        ("classify -m {d}/model --backend fake -i {d}/secret.txt", 2, "is not readable"),
        ("classify -m {d}/model --labels-file {d}/secret.txt x", 2, "is not readable"),
        ("info {d}/forbidden", 1, "No permission to read"),
        ("info {d}/unreadable", 1, "No permission to read"),
        ("discover {d}/forbidden", 1, "No permission to read"),
    ],
)
def test_without_permission(
    infer_cli: InferCli, place: Path, line: str, code: int, words: str
) -> None:
    arguments = [part.replace("{d}", str(place)) for part in line.split(" ")]
    path = os.pathsep.join([str(infer_cli.path[0]), str(place / "site")])
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(place), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    assert "Error: " in done.stderr
    assert words in done.stderr
    assert str(place) in done.stderr
    assert "Traceback" not in done.stderr
