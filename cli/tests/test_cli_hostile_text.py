"""Text of a model, a file's name or a user never reaches the terminal as more than text."""

from __future__ import annotations

import json
import re
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import core_cli

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

pytest.importorskip("pty", reason="there are no pseudo-terminals on this system")

# A title, a colour, a C1 control, a direction, a line separator.
EVIL = "\x1b]0;pwned\x07\x1b[31m\x9b2J\u202e\u2066\u2028\x85\x7f"


def config(model: Path, **more: object) -> None:
    file = model / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **more}))


def named(model: Path) -> Path:
    return model.rename(model.with_name(f"m{EVIL}"))


def tokenless(model: Path) -> Path:
    evil = model.with_name(f"e{EVIL}")
    evil.mkdir()
    return evil


def says(model: Path, words: str) -> Path:
    (model / "error.txt").write_text(words)
    return model


def typed(model: Path) -> Path:
    config(model, model_type=EVIL)
    return model


def listed(model: Path, words: str) -> Path:
    file = model.with_name("rows.jsonl")
    file.write_text(words)
    return file


WAYS: dict[str, Callable[[Path], tuple[str | Path, ...]]] = {
    "a directory that is no model": lambda m: ("info", tokenless(m)),
    "a directory that is not there": lambda m: ("classify", "-m", m / EVIL, "x"),
    "a directory's name in a table": lambda m: ("discover", named(m).parent),
    "a directory's name in info": lambda m: ("info", named(m)),
    "a model type in a table": lambda m: ("discover", typed(m).parent),
    "a model type in info": lambda m: ("info", typed(m)),
    "an error of the load": lambda m: ("classify", "-m", says(m, EVIL), "x"),
    "an error of several lines": lambda m: ("info", "--load", says(m, f"a\n{EVIL}\n")),
    "a text in a table": lambda m: ("classify", "-m", m, f"some {EVIL} text"),
    "a token in a table": lambda m: ("classify", "-m", m, f"x {EVIL}"),
    "a label in a table": lambda m: ("classify", "-m", m, "--labels", f"a{EVIL},b", f"a{EVIL}"),
    "a label in a warning": lambda m: ("classify", "-m", m, "--labels", f"a{EVIL}", "x"),
    "a label that is there twice": lambda m: (
        "classify",
        "-m",
        m,
        "--labels",
        f"{EVIL},{EVIL}",
        "x",
    ),
    "a row that failed": lambda m: ("classify", "-m", m, f"BOOM {EVIL}"),
    "a row's id": lambda m: (
        *("classify", "-m", m, "--json", "-i"),
        listed(m, json.dumps({"id": EVIL, "text": EVIL}, ensure_ascii=False)),
    ),
    "a field of a row": lambda m: (
        *("classify", "-m", m, "-i"),
        listed(m, json.dumps({EVIL: 1})),
    ),
    "a field that is asked for": lambda m: (
        *("classify", "-m", m, "--text-field", EVIL, "-i"),
        listed(m, "{}"),
    ),
    "a backend's name": lambda m: ("classify", "-m", m, "--backend", EVIL, "x"),
    "an option": lambda m: ("classify", "-m", m, "-O", f"{EVIL}=1", "x"),
    "an option of another form": lambda m: ("classify", "-m", m, "-O", EVIL, "x"),
    "an option's value in info": lambda m: ("info", m, "--load", "-O", f"speed={EVIL}"),
    "a choice of the load": lambda m: ("classify", "-v", "-m", m, "-O", f"speed={EVIL}", "x"),
    "a file for -i": lambda m: ("classify", "-m", m, "-i", EVIL),
    "a number": lambda m: ("classify", "-m", m, "--top-k", EVIL, "x"),
    "a flag": lambda m: ("classify", f"--{EVIL}", "x"),
    "a command": lambda m: (EVIL,),
    "json of a model": lambda m: ("info", named(typed(m)), "--json"),
    "json of models": lambda m: ("discover", named(typed(m)).parent, "--json"),
    "json of a row": lambda m: ("classify", "-m", m, "--json", "--labels", f"a{EVIL},b", EVIL),
    "json of a failed row": lambda m: ("classify", "-m", m, "--json", f"BOOM {EVIL}"),
}


def unsafe(shown: str) -> str:
    """The characters that a terminal would obey."""
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(c for c in shown if c not in "\n\t" and unicodedata.category(c) in hidden)


ALL_OF_THEM = """
import json, sys
from core_cli import exits
from core_cli.app import build

exits.prepare()
for arguments in json.loads(sys.stdin.readline()):
    try:
        build()(arguments, prog_name="infer-cli")
    except SystemExit:
        print("=====", flush=True)
"""


def test_nothing_that_a_terminal_obeys(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    commands = []
    for number, way in enumerate(WAYS.values()):
        place = tmp_path / str(number)
        place.mkdir()
        shutil.copytree(fake_model, place / "model")
        commands.append([str(argument) for argument in way(place / "model")])
    _, shown = infer_cli.on_terminal(
        script=ALL_OF_THEM, stdin=json.dumps(commands) + "\n", NO_COLOR="1", COLUMNS="1000"
    )
    parts = dict(zip(WAYS, shown.split("=====\n"), strict=False))
    assert len(parts) == len(WAYS)
    assert {way: unsafe(part) for way, part in parts.items() if unsafe(part)} == {}
    assert {way: part for way, part in parts.items() if "Traceback" in part} == {}
    unshown = {way for way, part in parts.items() if "pwned" not in part}
    assert unshown == {"an option of another form"}  # which may be a key, and is not repeated
    for name, part in parts.items():
        if name.startswith("json"):  # valid, and what is read from it is what was there
            assert EVIL in strings(json.loads(part.splitlines()[0])), name


def strings(value: object) -> str:
    """All the text in it."""
    if isinstance(value, dict):
        return "".join(map(strings, value.items()))
    return "".join(map(strings, value)) if isinstance(value, list | tuple) else str(value)


def test_debug_keeps_to_it(infer_cli: InferCli, fake_model: Path) -> None:
    arguments = ("--debug", "classify", "-m", says(fake_model, EVIL), "x")
    _, shown = infer_cli.on_terminal(*arguments, NO_COLOR="1")
    assert "Traceback" in shown
    assert unsafe(shown) == ""


@pytest.mark.parametrize("speak", ["warnings.warn(said)", "logging.getLogger('x').error(said)"])
def test_warnings_and_logs_of_a_backend_keep_to_it(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, speak: str
) -> None:
    folder = tmp_path / "plugin"
    info = folder / "loud-1.dist-info"
    info.mkdir(parents=True)
    (folder / "loud.py").write_text(
        "import logging, warnings\nimport pluggy\n\nsaid = "
        f"{EVIL!r}\n\n@pluggy.HookimplMarker('core')\n"
        f"def core_model_loaded(path, backend, seconds):\n    {speak}\n"
    )
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[core.hooks]\nloud = loud\n")
    _, shown = infer_cli.beside(folder).on_terminal("classify", "-m", fake_model, "x")
    assert "pwned" in shown
    assert unsafe(shown.replace("\x1b[1m", "").replace("\x1b[0m", "")) == ""


def test_there_is_one_way_out() -> None:
    """What is shown to people goes through `output.say`, data through the writers beside it."""
    folder = Path(core_cli.__file__).parent
    speaking = [
        f"{file.name}: {line.strip()}"
        for file in folder.glob("*.py")
        if file.name not in ("output.py", "__init__.py")
        for line in file.read_text().splitlines()
        if re.search(r"click\.echo|\bprint\(|std(out|err)\.(buffer|write)|print_exc", line)
    ]
    assert speaking == []
