"""``infer-cli`` as a process: terminals, pipes, Ctrl-C, and what it imports."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import core

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

pytestmark = pytest.mark.load  # a busy machine can make it fail

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals on this system")
termios = pytest.importorskip("termios", reason="there are no pseudo-terminals on this system")


def test_a_terminal_gets_a_table(infer_cli: InferCli, fake_model: Path) -> None:
    prompt = "a [red]markup[/red] \x1b[31m" + "long " * 40
    arguments = ("classify", "-m", fake_model, "--labels", "a,b", prompt)
    code, shown = infer_cli.on_terminal(*arguments, NO_COLOR="1")
    header, row, *rest = shown.splitlines()
    assert (code, rest) == (0, [])
    assert header.split() == ["TEXT", "LABEL", "PROBABILITY", "MARGIN"]
    assert row.startswith("a [red]markup[/red] \\x1b[31mlong")
    assert "…" in row  # the long text is cut, the numbers are not
    assert row.split()[-3] == "a"
    assert len(row) <= 100


def test_a_path_can_be_copied_from_a_narrow_terminal(infer_cli: InferCli, fake_model: Path) -> None:
    narrow = {"COLUMNS": "40", "NO_COLOR": "1"}
    _, shown = infer_cli.on_terminal("discover", fake_model.parent, "--paths", **narrow)
    header, row, *_ = shown.splitlines()
    assert row.split()[-1] == str(fake_model)
    assert header.endswith(" PATH")  # spaces after it would show as an empty line
    _, styled = infer_cli.on_terminal("discover", fake_model.parent, "-v", COLUMNS="40")
    assert styled.splitlines()[0].endswith(" \x1b[1mPATH\x1b[0m")


def test_capabilities_stand_on_lines_of_their_own(infer_cli: InferCli) -> None:
    _, shown = infer_cli.on_terminal("backends", "-v", COLUMNS="60", NO_COLOR="1")
    assert (
        "\nfake\n"
        "    classify, device_reporting, explaining, hidden_states,\n"
        "    labels, logprobs, seed, tokenizing\n"
    ) in shown
    assert "CAPABILITIES" not in shown
    _, brief = infer_cli.on_terminal("backends", COLUMNS="60", NO_COLOR="1")
    assert "tokenizing" not in brief


def test_no_color_is_honoured(infer_cli: InferCli) -> None:
    _, styled = infer_cli.on_terminal("backends")
    _, plain = infer_cli.on_terminal("backends", NO_COLOR="1")
    assert "\x1b[1m" in styled
    assert "\x1b" not in plain


def test_json_is_neither_wrapped_nor_coloured_on_a_terminal(
    infer_cli: InferCli, fake_model: Path
) -> None:
    prompt = "word " * 100
    _, shown = infer_cli.on_terminal("classify", "-m", fake_model, "--json", prompt)
    assert json.loads(shown)["text"] == prompt
    assert shown.count("\n") == 1
    _, shown = infer_cli.on_terminal("discover", fake_model.parent, "--json", FORCE_COLOR="1")
    assert json.loads(shown)[0]["model_type"] == "fake"


def test_no_prompt_at_all_on_a_terminal_is_a_usage_error(
    infer_cli: InferCli, fake_model: Path
) -> None:
    code, shown = infer_cli.on_terminal("classify", "-m", fake_model)
    assert code == 2
    assert "Error: No prompts." in shown


def test_progress_is_shown_on_a_terminal_only(infer_cli: InferCli, fake_model: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = ("classify", "-m", fake_model, "x", "y")
    with infer_cli.start(*arguments, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while chunk := infer_cli.read(ours):
            shown += chunk
        assert process.stdout is not None
        assert process.stdout.read().splitlines()[1:] == [b"1\tx\tx\t", b"2\ty\ty\t"]
    os.close(ours)
    assert b"2 rows, " in shown
    assert shown.endswith(b"\x1b[2K")  # and it is removed at the end
    assert b"\x1b[?25l" not in shown.replace(b"\x1b[?25l\x1b[?25h", b"")  # the cursor stays
    assert infer_cli.finish(*arguments).stderr == ""


def test_progress_on_a_terminal_that_cannot_redraw_is_lines(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("x\n")
    arguments = ("classify", "-m", fake_model, "-i", texts, "-o", tmp_path / "out.csv")
    code, shown = infer_cli.on_terminal(*arguments, TERM="dumb")
    assert code == 0
    assert "1 row, 100 %" in shown
    assert "\x1b" not in shown
    assert "\n\n" not in shown


def test_progress_has_the_width_of_its_own_terminal(infer_cli: InferCli, fake_model: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 12))
    environment = {"COLUMNS": "", "TERM": "xterm"}
    arguments = ("classify", "-m", fake_model, "x", "y")
    with infer_cli.start(*arguments, stderr=theirs, env=environment):
        os.close(theirs)
        shown = b""
        while chunk := infer_cli.read(ours):
            shown += chunk
    os.close(ours)
    assert b"2 rows, " in shown
    lines = re.sub(rb"\x1b\[[?0-9]*[A-Za-z]", b"\r", shown)
    assert max(map(len, re.split(rb"[\r\n]+", lines))) <= 12


def test_interrupt_prints_what_is_done_and_exits_with_130(
    infer_cli: InferCli, fake_model: Path
) -> None:
    with infer_cli.start("classify", "-m", fake_model, "--json", "-i", "-") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"x\n" * 32 + b"one\nSLOW\ntwo\n")
        process.stdin.close()
        first = process.stdout.readline()  # the first block is out
        wait_until_asleep(process.pid)  # the second is at work
        process.send_signal(signal.SIGINT)
        rows = [json.loads(line) for line in (first, *process.stdout)]
        errors = process.stderr.read()
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert [row["line"] for row in rows] == [*range(1, 34)]  # up to the slow one
    assert all(row["error"] is None for row in rows)


def test_the_rows_of_an_interrupted_block_that_are_done_are_printed(
    infer_cli: InferCli, fake_model: Path
) -> None:
    with infer_cli.start("classify", "-m", fake_model, "-v", "one", "SLOW", "two") as process:
        assert process.stderr is not None
        assert process.stdout is not None
        while not process.stderr.readline().startswith(b"loaded in"):
            pass
        wait_until_asleep(process.pid)
        process.send_signal(signal.SIGINT)
        # "two" is done too, and stands behind a row that is not: a join would shift.
        assert process.stdout.read().splitlines()[1:] == [b"1\tone\tone\t"]
        assert b"Interrupted: 1 row written" in process.stderr.read()
    assert process.returncode == 130


def wait_until_asleep(pid: int) -> None:
    """Until the process waits in the fake's loop, whose naps are its only ones."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        pytest.fail("This test reads /proc, which this system has not.")
    while stat.read_text().rsplit(") ")[1][0] != "S":
        time.sleep(0.01)


def test_a_reader_that_leaves_is_no_error(infer_cli: InferCli, fake_model: Path) -> None:
    with infer_cli.start("classify", "-m", fake_model, "--json", "-i", "-") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(b"x\n" * 5000)
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_output_starts_before_the_input_ends(infer_cli: InferCli, fake_model: Path) -> None:
    with infer_cli.start("classify", "-m", fake_model, "-i", "-") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"x\n" * 32)
        process.stdin.flush()
        process.stdout.readline()
        assert process.stdout.readline() == b"1\tx\tx\t\n"  # or this waits for ever
        process.stdin.close()


def test_no_block_is_computed_for_a_reader_that_has_left(
    infer_cli: InferCli, fake_model: Path
) -> None:
    with infer_cli.start("classify", "-m", fake_model, "-i", "-") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"x\n" * 32)
        process.stdin.flush()
        process.stdout.readline()
        assert process.stdout.readline() == b"1\tx\tx\t\n"
        process.stdout.close()
        process.stdin.write(b"SLOW\n")  # to compute this would take for ever
        process.stdin.close()
        try:
            assert process.wait(timeout=300) == 1
        finally:
            process.kill()
        assert process.stderr.read() == b""


def test_text_that_the_terminal_cannot_show(infer_cli: InferCli, fake_model: Path) -> None:
    env = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = infer_cli.finish("classify", "-m", fake_model, "snow ☃", env=env)
    assert (done.exit_code, done.stdout) == (
        0,
        "line\ttext\ttoken\terror\n1\tsnow \\u2603\t\\u2603\t\n",
    )
    code, shown = infer_cli.on_terminal("classify", "-m", fake_model, "snow ☃", **env)
    assert (code, "\\u2603" in shown) == (0, True)
    as_json = infer_cli.finish("classify", "-m", fake_model, "--json", "snow ☃", env=env)
    assert json.loads(as_json.stdout)["text"] == "snow ☃"


@pytest.mark.parametrize("name", ["click", "pluggy", "rich", "msgspec"])
def test_a_missing_package_is_answered_with_the_pip_command(infer_cli: InferCli, name: str) -> None:
    without = (
        "import importlib.util as u; find = u.find_spec\n"
        f"u.find_spec = lambda name, *a: None if name == {name!r} else find(name, *a)\n"
        f"import sys; sys.modules[{name!r}] = None\n"
        "from core_cli import main; main()"
    )
    done = infer_cli.finish("--help", script=without)
    assert done.exit_code == 1
    assert done.stderr.startswith(
        f"Error: infer-cli requires {name}, not installed here. "
        "Install it with: pip install -r DIST/cli.txt "
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("given", "seen"), [(None, "passive"), ("active", "active")])
def test_threads_of_openmp_sleep_while_they_wait(
    infer_cli: InferCli, given: str | None, seen: str
) -> None:
    script = (
        "import os, sys\n"
        f"given = {given!r}; os.environ.pop('OMP_WAIT_POLICY', None)\n"
        "if given: os.environ['OMP_WAIT_POLICY'] = given\n"
        "from core_cli import main\n"
        "try: main()\n"
        "finally: print(os.environ['OMP_WAIT_POLICY'], file=sys.stderr)"
    )
    assert infer_cli.finish("--version", script=script).stderr.split()[-1] == seen


def test_help_imports_nothing_that_it_does_not_need(infer_cli: InferCli) -> None:
    listing = (
        "import sys; from core_cli import main\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    done = infer_cli.finish("--help", script=listing)
    imported = set(done.stderr.split())
    assert {"click", "core_cli.app", "core_fake_hooks"} <= imported
    heavy = {"rich", "msgspec", "numpy", "mlx", "core_fake", "core.registry", "core.options"}
    assert not heavy & imported


def test_version(infer_cli: InferCli) -> None:
    import core

    first, *backends = infer_cli("--version").stdout.splitlines()
    assert first == f"infer-cli, version {core.__version__}"
    assert "core-fake 0.1" in backends


def test_it_is_a_module_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "core", "--version"], capture_output=True, text=True, timeout=60
    )
    first, *_ = done.stdout.splitlines()
    assert (done.returncode, first) == (0, f"infer-cli, version {core.__version__}")
