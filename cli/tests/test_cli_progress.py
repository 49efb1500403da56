"""Progress of the commands that fit something to rows, and their answer to Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core_cli.progress import Work

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

ASKED = ("--template", "{text} is", "--gold", "kind")
COMMANDS: dict[str, tuple[str, ...]] = {
    "tune": (*ASKED, "--level", "raw"),
    "calibrate": ASKED,
    "learn": ("--gold", "kind"),
}


def rows_of(tmp_path: Path, count: int, pause: int | None = None) -> Path:
    file = tmp_path / "rows.csv"
    words = ("PAUSE " if n == pause else "" for n in range(count))
    lines = [f"{word}{'a ' * (1 + n % 3)}{n},{'ab'[n % 2]}\n" for n, word in enumerate(words)]
    file.write_text("text,kind\n" + "".join(lines))
    return file


@pytest.mark.parametrize("command", COMMANDS)
def test_counts_the_rate_and_the_time_left_are_shown_on_a_terminal(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, command: str
) -> None:
    rows, out = rows_of(tmp_path, 60), tmp_path / "out"
    flags: list[str | Path] = [command, *COMMANDS[command], "-m", fake_model, "-i", rows, "-o", out]
    code, shown = infer_cli.on_terminal(*flags)
    assert code == 0, shown
    assert f"loading {fake_model}, " in shown
    assert re.search(r"8 of \d+ prompts, \d+\.\d prompts/s, 0:0\d left", shown)
    assert " prompts done; fitting, " in shown
    quiet = infer_cli.on_terminal(*flags, "--overwrite", "--no-progress")
    assert quiet[0] == 0
    assert "loading" not in quiet[1]
    logged = infer_cli(*flags, "--overwrite", "--progress")
    assert f"loading {fake_model}, " in logged.stderr
    assert "loading" not in infer_cli(*flags, "--overwrite").output


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_says_at_once_that_nothing_is_saved(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, command: str, number: int, code: int
) -> None:
    rows, out, pause = rows_of(tmp_path, 60, pause=40), tmp_path / "out", tmp_path / "pause"
    flags: list[str | Path] = [command, *COMMANDS[command], "-m", fake_model, "-i", rows, "-o", out]
    process = infer_cli.start(*flags, env={"FAKE_PAUSE": str(pause)})
    with process:
        _wait_for(pause, process)
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    assert process.returncode == code, said
    assert said.decode().endswith("Interrupted: nothing was saved.\n")
    assert not out.exists()


def test_a_job_says_at_once_when_it_stops(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    rows, out, pause = rows_of(tmp_path, 120, pause=40), tmp_path / "out.csv", tmp_path / "pause"
    flags = ("classify", "--labels", "a,b", "-m", fake_model, "-i", rows, "-o", out)
    with infer_cli.start(*flags, env={"FAKE_PAUSE": str(pause)}) as process:
        _wait_for(pause, process)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        line = process.stderr.readline().decode()  # while the block is running
        assert line == "Stopping after this block of rows; Ctrl-C again leaves at once.\n"
        assert process.poll() is None
        pause.unlink()
        assert process.wait(timeout=120) == 130


def test_the_figures_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    work = Work("M", wanted=False)
    now += 3
    assert work.text() == "loading M, 3 s"
    work(0, 80)
    now += 2
    assert work.text() == "0 of 80 prompts, 2 s"
    work(8, 80)
    now += 5  # within a block
    assert work.text() == "8 of 80 prompts, 4.0 prompts/s, 0:13 left"
    work(80, 80)
    now += 5
    assert work.text() == "80 prompts done; fitting, 5 s"
    work(0, 80)  # a head reads the same texts
    assert work.text() == "0 of 80 prompts, 0 s"


def _wait_for(pause: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while not pause.exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.01)
