"""A job that is told to stop: it ends its block, writes it, and says how to go on."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.tests.conftest import MAIN

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

pytestmark = pytest.mark.load  # a busy machine can make it fail

FIRST, SECOND = 32, 96  # rows behind the first block, and behind the second


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Rows of which one, in the second block, waits for the test."""
    file = tmp_path / "rows.txt"
    file.write_text("".join("PAUSE a\n" if n == 40 else f"row {n} a\n" for n in range(300)))
    return file


def started(infer_cli: InferCli, *arguments: str | Path, pause: Path) -> subprocess.Popen[bytes]:
    """The job, once it computes the second block."""
    process = infer_cli.start(*arguments, env={"FAKE_PAUSE": str(pause)})
    end = time.monotonic() + 120
    while not pause.exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.01)
    return process


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, said = process.communicate(timeout=120)
    return process.returncode, said.decode()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_job_behind_its_block(
    infer_cli: InferCli, fake_model: Path, rows: Path, tmp_path: Path, number: int, code: int
) -> None:
    whole, out, pause = tmp_path / "whole.csv", tmp_path / "a file.csv", tmp_path / "pause"
    command = ("classify", "-m", fake_model, "--labels", "a,b", "-i", rows)
    with started(infer_cli, *command, "-o", out, pause=pause) as process:
        process.send_signal(number)
        time.sleep(0.2)
        assert process.poll() is None  # the block is not done
        pause.unlink()
        found, said = ended(process)
    assert found == code, said
    assert len(out.read_text().splitlines()) == SECOND + 1
    assert f"Interrupted: {SECOND} rows written to {out}. Resume with:" in said

    # What it says can be pasted, and ends as a job that nothing disturbed.
    [line] = [line for line in said.splitlines() if line.startswith("infer-cli ")]
    on = infer_cli.finish(*shlex.split(line)[1:])
    assert on.exit_code == 0, on.stderr
    assert infer_cli.finish(*command, "-o", whole).exit_code == 0
    assert out.read_bytes() == whole.read_bytes()


def test_a_signal_in_the_last_block_ends_nothing(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    """All rows are written: nothing was broken off, and there is nothing to go on with."""
    rows, out, pause = tmp_path / "rows.txt", tmp_path / "out.json", tmp_path / "pause"
    rows.write_text("row a\n" * 40 + "PAUSE a\n")
    command = ("classify", "-m", fake_model, "--labels", "a,b", "-i", rows, "-o", out)
    with started(infer_cli, *command, pause=pause) as process:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        pause.unlink()
        found, said = ended(process)
    assert found == 0, said
    assert "Interrupted" not in said
    assert len(json.loads(out.read_text())) == 41


def test_what_is_said_to_go_on_can_be_pasted(
    infer_cli: InferCli, fake_model: Path, rows: Path, tmp_path: Path
) -> None:
    """Whatever stands in the arguments, and into a shell of another language."""
    folder, pause = tmp_path / "größe & '☃'", tmp_path / "pause"
    folder.mkdir()
    out = folder / "aus\tgabe.csv"
    asked = ("--template", "{text}\n\\'is'\x1b[1m", "-i", rows, "-o", out, "--overwrite", "--")
    command = ("classify", "-m", fake_model, "--labels", "a,b", *asked)
    with started(infer_cli, *command, pause=pause) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        pause.unlink()
        found, said = ended(process)
    assert found == 130, said
    [line] = [line for line in said.splitlines() if line.startswith("infer-cli ")]
    assert line.isprintable()

    program = tmp_path / "infer-cli"
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-c", MAIN])} "$@"\n')
    program.chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    environment = infer_cli._environment(path)
    pasted = subprocess.run(["bash", "-c", line], env=environment, capture_output=True)
    assert pasted.returncode == 0, (line, pasted.stderr)
    assert len(out.read_text().splitlines()) == 301


def test_a_second_signal_does_not_wait(
    infer_cli: InferCli, fake_model: Path, rows: Path, tmp_path: Path
) -> None:
    out, pause = tmp_path / "out.csv", tmp_path / "pause"
    command = ("classify", "-m", fake_model, "--labels", "a,b", "-i", rows, "-o", out)
    with started(infer_cli, *command, pause=pause) as process:
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        said = b""
        # Two that come at once are one, and one that meets Python's end is no Ctrl-C any more.
        while process.poll() is None and b"Interrupted" not in said:
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
            said += process.stderr.read() or b""
        found = process.wait(timeout=120)
    assert found == 130, said.decode()
    assert len(out.read_text().splitlines()) == FIRST + 1
    pause.unlink()
    assert infer_cli.finish(*command, "--resume").exit_code == 0
    assert len(out.read_text().splitlines()) == 301


def test_a_closed_stderr_and_a_reader_that_leaves_do_not_end_a_job(
    infer_cli: InferCli, fake_model: Path, rows: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    command = ("classify", "-m", fake_model, "--labels", "a,b", "-i", rows, "-o", out)
    with infer_cli.start(*command) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()
        assert process.wait(timeout=120) == 0
    assert len(out.read_text().splitlines()) == 301


def test_a_file_that_may_not_grow_keeps_whole_blocks(
    infer_cli: InferCli, fake_model: Path, rows: Path, tmp_path: Path
) -> None:
    """What a full disk does, by the limit that a process has for its files."""
    out = tmp_path / "out.csv"
    command = ("classify", "-m", fake_model, "--labels", "a,b", "-i", rows, "-o", out)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

    with infer_cli.start(*command, preexec_fn=limit) as process:
        found, said = ended(process)
    assert found == 1, said
    assert "File too large" in said
    assert f"Interrupted: {SECOND} rows written" in said
    assert len(out.read_text().splitlines()) == SECOND + 1
    assert infer_cli.finish(*command, "--resume").exit_code == 0
    assert len(out.read_text().splitlines()) == 301
