"""Standard streams that are closed, full or of an odd encoding, and odd environments."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

CLOSED = [c for n in (1, 2, 3) for c in combinations((0, 1, 2), n)]


def run(
    infer_cli: InferCli, closing: str, *arguments: str | bytes | Path, **env: str
) -> subprocess.CompletedProcess[bytes]:
    """``infer-cli`` under a shell's redirections."""
    script = "from core_cli import main; main()"
    path = {"PYTHONPATH": os.pathsep.join(map(str, infer_cli.path))}
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-c", script, *arguments],
        env={**os.environ, **path, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("closed", CLOSED, ids=lambda c: "".join(map(str, c)))
def test_closed_streams(infer_cli: InferCli, fake_model: Path, closed: tuple[int, ...]) -> None:
    closing = " ".join(f"{number}>&-" for number in closed)
    done = run(infer_cli, closing, "classify", "-m", fake_model, "--debug"[:0] or "x")
    assert done.returncode == (1 if 1 in closed else 0)
    assert done.stdout == (b"" if 1 in closed else b"line\ttext\ttoken\terror\n1\tx\tx\t\n")
    if 1 in closed and 2 not in closed:
        assert done.stderr.startswith(b"Error: stdout is closed.")
        assert done.stderr.count(b"\n") == 1
    else:
        assert done.stderr == b""


def test_no_file_takes_the_place_of_a_closed_stream(infer_cli: InferCli, tmp_path: Path) -> None:
    script = (
        "import os\nfrom core_cli import exits, output\nexits.prepare()\n"
        "output.write_text(f'{os.open(\"/\", 0) > 2}\\n')"
    )
    done = infer_cli.finish(script=script, preexec_fn=lambda: os.closerange(2, 3))
    assert done.stdout == "True\n"


def test_closed_stdin_is_empty(infer_cli: InferCli, fake_model: Path) -> None:
    done = run(infer_cli, "0<&-", "classify", "-m", fake_model)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"Warning: no prompts in stdin\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("line", ["--help", "--version", "classify --help", "backends", "hello"])
def test_a_full_disk_is_one_line(infer_cli: InferCli, line: str) -> None:
    done = run(infer_cli, "> /dev/full", *line.split())
    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: OSError: [Errno 28] No space left on device")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_error_that_nobody_hears_keeps_its_exit_code(infer_cli: InferCli) -> None:
    for target in ("/dev/full", "&-"):
        assert run(infer_cli, f"2>{target}", "info", "/nowhere").returncode == 3
        assert run(infer_cli, f"2>{target}", "nonsense").returncode == 2


def test_help_for_a_reader_that_has_left(infer_cli: InferCli) -> None:
    with infer_cli.start("--help") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_a_deleted_working_directory(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = (
        "import os, sys\nfrom core_cli import main\n"
        "os.chdir(sys.argv.pop(1)); os.rmdir(os.getcwd()); main()"
    )

    def there(*arguments: str | Path) -> tuple[int, str]:
        gone.mkdir(exist_ok=True)
        done = infer_cli.finish(gone, *arguments, script=script)
        assert "Traceback" not in done.stderr
        return done.exit_code, done.stdout + done.stderr

    assert there("classify", "-m", fake_model, "--to", "text", "x") == (0, "x\n")
    assert there("backends")[0] == 0
    for command in (("info", "model"), ("classify", "-m", "model", "x"), ("discover", "models")):
        code, said = there(*command)
        assert code == 3
        assert "working directory" in said
    code, said = there("conformance", "fake", "-m", "model")
    assert code in (2, 3)
    assert "working directory" in said


ODD = {
    "COLUMNS": ("abc", "0", "-1", "1", str(10**9), "9" * 5000, "²", ""),
    "LINES": ("abc", "-1", "9" * 5000),
    "TERM": ("", "dumb", "nonsense", "\x1b[31m", "xterm-256color"),
    "LANG": ("C", "nonsense", "de_DE.ISO-8859-1", "\udcff"),
    "LC_ALL": ("C", "POSIX", "nonsense", "\udcff"),
    "PYTHONIOENCODING": ("ascii", "latin-1:strict", "utf-16", "utf-7", "cp037"),
    "NO_COLOR": ("", "1"),
    "FORCE_COLOR": ("1",),
    "INFER_MODEL": ("\udcff", "\x1b"),
    "CORE_DISABLE_PLUGINS": (",,,", "\udcff"),
    "HOME": ("", "/nowhere", "\udcff"),
    "TMPDIR": ("/nowhere",),
    "XDG_CACHE_HOME": ("", "relative", "\udcff"),
    "HF_HUB_CACHE": ("", "\udcff"),
}
TOGETHER = """
import json, os, sys
from core_cli import exits
from core_cli.app import build

exits.prepare()
usual = dict(os.environ)
for name, value, arguments in json.loads(sys.stdin.readline()):
    os.environ.clear()
    os.environ.update({**usual, name: value})
    try:
        build()(arguments, prog_name="infer-cli")
    except SystemExit as error:
        print("=====", error.code, name, ascii(value)[:80], *arguments[:1], flush=True)
"""


@pytest.mark.slow
def test_odd_environments_on_a_terminal(infer_cli: InferCli, fake_model: Path) -> None:
    import json

    model = str(fake_model)
    commands = [
        *(["--help"], ["backends", "-v"], ["discover"], ["info", model]),
        ["classify", "-m", model, "--labels", "a,b", "a longer text, and \u202e"],
    ]
    rounds = [
        (name, value, command)
        for name, values in ODD.items()
        if name != "PYTHONIOENCODING"  # read when Python starts
        for value in values
        for command in commands
    ]
    code, shown = infer_cli.on_terminal(script=TOGETHER, stdin=json.dumps(rounds) + "\n")
    ends = [line for line in shown.splitlines() if line.startswith("===== ")]
    assert code == 0, shown[-2000:]
    assert len(ends) == len(rounds)
    assert [line for line in ends if line.split()[1] != "0"] == []


@pytest.mark.parametrize("name", ["PYTHONIOENCODING", "LC_ALL", "LANG"])
def test_odd_encodings(infer_cli: InferCli, fake_model: Path, name: str) -> None:
    more = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for value in ODD[name]:
        env = {**more, name: value}
        done = run(infer_cli, "", "classify", "-m", fake_model, "snow ☃", b"\xff", **env)
        assert done.returncode == 5, (value, done.stderr)
        assert b"Traceback" not in done.stderr


def test_names_and_arguments_that_are_not_utf8(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    model = odd + b"-model"
    os.rename(fake_model, model)
    for name, content in ((b".txt", b"x\n"), (b".csv", b"x,x\n"), (b".labels", b"a\nb\n")):
        with open(odd + name, "wb") as file:
            file.write(content)
    commands: dict[int, list[tuple[str | bytes | Path, ...]]] = {
        0: [
            ("info", model),
            ("discover", tmp_path),
            ("discover", model, "--json"),
            ("classify", "-m", model, "-i", odd + b".txt"),
            ("classify", "-m", model, "--labels-file", odd + b".labels", "x"),
        ],
        2: [
            ("classify", "-m", model, "-i", odd + b".csv"),
            ("classify", "-m", model, "-i", odd + b".none"),
            ("classify", "-m", model, "-O", b"a\xe9=\xe9", "x"),
            ("classify", "-m", model, b"--\xe9", "x"),
            ("classify", "-m", model, "--format", b"\xe9", "x"),
            (b"\xe9",),
        ],
        3: [
            ("convert", odd + b".gguf", odd + b"-out"),
            ("info", odd + b"-nothing"),
            ("classify", "-m", odd + b"-nothing", "x"),
        ],
        4: [("classify", "-m", model, "--backend", b"\xe9", "x")],
        5: [("classify", "-m", model, b"\xe9")],
    }
    for code, lines in commands.items():
        for line in lines:
            done = run(infer_cli, "", *line)
            assert b"Traceback" not in done.stderr, line
            assert done.returncode == code, (line, done.stderr)
            assert (done.stdout + done.stderr).decode()
            if code:
                assert b"Error: " in done.stderr
