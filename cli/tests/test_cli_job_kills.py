"""A job that is killed again and again ends as one that nothing disturbed, byte for byte.

Real processes and models, SIGKILL at moments that no handler sees: at random ones, and right behind
a write to the output, which the journal may not know of yet.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks import tiny_models

pytestmark = pytest.mark.load  # a busy machine can make it fail

ROWS = 2000
KILLS = [pytest.param(13, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.long)]
# Else the number of threads follows the machine's load, and a figure's last digits follow that.
ENVIRONMENT = {"MLX_DISABLE_COMPILE": "1", "OPENBLAS_NUM_THREADS": "1"}
WORDS = ("a", "b", "ab", "ba", "aab", "bba")


def rows_of(place: Path) -> Path:
    """Texts of two to thirty words, of which a third repeat; rows whose text is a number fail."""
    draw = random.Random(7)
    texts = [" ".join(draw.choices(WORDS, k=draw.choice((2, 8, 30)))) for _ in range(ROWS)]
    file = place / "rows.jsonl"
    with open(file, "w") as stream:
        for n, text in enumerate(texts):
            text = texts[n // 2] if n % 3 == 0 else text
            stream.write(json.dumps({"id": n, "text": n if n % 211 == 5 else text}) + "\n")
    return file


def command(model: Path, backend: str, rows: Path, out: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "core", "classify", "-m", str(model), "--backend", backend),
        *("--labels", "a,b,ab", "--template", "ab ab {text}", "-i", str(rows), "-o", str(out)),
        *("-O", "n_threads=1") * (backend == "llama_cpp"),
        *more,
    ]


def run(arguments: list[str], *, ends: Callable[[float], bool] | None = None) -> int:
    """Run to the end, or until ``ends`` says so of the seconds that went by: then it is killed."""
    environment = {**os.environ, **ENVIRONMENT}
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL, env=environment) as process:
        start = time.monotonic()
        while ends is not None and process.poll() is None:
            if ends(time.monotonic() - start):
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.0005)
        return process.wait(timeout=300)


def grows(out: Path) -> Callable[[float], bool]:
    """Whether a block has just come to the output."""
    before = out.stat().st_size if out.exists() else 0
    return lambda _: out.exists() and out.stat().st_size > before


def finished(out: Path) -> bool:
    """Whether the job came to its end: a kill may meet it while it leaves."""
    journal = out.with_name(f"{out.name}.journal")
    return journal.exists() and b'\n{"done": ' in journal.read_bytes()


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("backend", ["mlx_cpu", "llama_cpp"])
def test_every_row_once_whatever_kills_it(
    tmp_path: Path, backend: str, form: str, kills: int
) -> None:
    place = tmp_path / "model"
    place.mkdir()
    make = tiny_models.checkpoint if backend == "mlx_cpu" else tiny_models.gguf
    model, rows = make(place), rows_of(tmp_path)

    # Undisturbed: twice, for a backend that is not the same twice could not be told from a fault.
    whole, again, out = (tmp_path / f"{name}.{form}" for name in ("whole", "again", "out"))
    start = time.monotonic()
    assert run(command(model, backend, rows, whole)) == 5
    seconds = time.monotonic() - start
    assert run(command(model, backend, rows, again)) == 5
    assert whole.read_bytes() == again.read_bytes()

    # Killed, and on, and killed; a job that comes to its end is compared, and begins anew.
    draw, killed, runs = random.Random(form + backend), 0, 0
    while killed < kills and runs < 4 * kills:
        runs, done = runs + 1, finished(out)
        moment = draw.uniform(0.2, 0.9) * seconds
        ends = grows(out) if runs % 3 == 0 else lambda passed, moment=moment: passed > moment
        code = run(command(model, backend, rows, out, "--resume"), ends=ends)
        if code == -signal.SIGKILL:
            killed += 1
            continue
        assert code == (0 if done else 5)  # the rows that fail were told when they did
        assert out.read_bytes() == whole.read_bytes()
        for name in (out.name, f"{out.name}.journal"):
            (tmp_path / name).unlink()
    assert killed == kills

    done = finished(out)
    assert run(command(model, backend, rows, out, "--resume")) == (0 if done else 5)
    assert out.read_bytes() == whole.read_bytes()
    lines = out.read_bytes().splitlines()
    assert len(lines) == ROWS + (form == "csv")
