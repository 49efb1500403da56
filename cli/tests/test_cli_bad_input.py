"""Whatever is wrong: an exit code that says what kind, one ``Error:`` line, never a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

# What the command line says, the exit code, and words of the message. {m}: a sound model,
# {d}: the directory it lies in.
CLASSIFY = [
    ("-m {d}/nowhere x", 3, "Model not found"),
    ("-m {d}/empty x", 3, "is not a model directory"),
    ("-m {d}/plain.txt x", 3, "not a GGUF file"),
    ("-m {d}/bad.gguf x", 1, "is not a GGUF file"),
    ("-m {d}/badconfig x", 1, "cannot be used"),
    ("-m {d}/crash --backend fake x", 1, "RuntimeError: the loader has a bug"),
    ("-m {m} --backend nonsense x", 4, "Unknown backend 'nonsense'"),
    ("-m {m} --backend fak x", 4, "Did you mean 'fake'?"),
    ("-m {m} --backend fake_off x", 4, "Backend 'fake_off' is not available: no abacus"),
    ("-m {m} --backend fake_broken x", 4, "No module named 'core_fake_missing'"),
    ("-m {m} --temperature nan x", 2, "--temperature nan"),
    ("-m {m} --temperature -1 x", 2, "--temperature -1.0"),
    ("-m {m} --temperature hot x", 2, "'hot' is not a valid float"),
    ("-m {m} --top-k -1 x", 2, "--top-k -1"),
    ("-m {m} --top-p 0 x", 2, "--top-p 0.0"),
    ("-m {m} --min-p 2 x", 2, "--min-p 2.0"),
    ("-m {m} --repeat-penalty inf x", 2, "--repeat-penalty inf"),
    ("-m {m} --seed -1 x", 2, "--seed -1"),
    ("-m {m} --timeout 0 x", 2, "--timeout 0.0"),
    ("-m {m} --context-len -1 x", 2, "--context-len -1"),
    ("-m {m} --labels a,,b x", 2, "label 2 of 3 in 'a,,b' is empty"),
    ("-m {m} --labels a,, x", 2, "label 2 of 3 in 'a,,' is empty"),
    ("-m {m} --labels  x", 2, "label 1 of 1 in '' is empty"),
    ("-m {m} --labels a,a x", 2, "Duplicate label 'a'"),
    ("-m {m} --labels a --labels-file {d}/labels x", 2, "not both"),
    ("-m {m} --labels-file {d}/nowhere x", 2, "does not exist"),
    ("-m {m} --labels-file {d} x", 2, "is a directory"),
    ("-m {m} --labels-file {d}/blank x", 2, "contains no labels"),
    ("-m {m} --labels-file {d}/latin1 x", 2, "is not UTF-8"),
    ("-m {m} --template nothing x", 2, "must contain {text}"),
    ("-m {m} -O speed x", 2, "expected NAME=VALUE for option 1"),
    ("-m {m} -O speed=1 -O speed=2 x", 2, "is given twice"),
    (
        "-m {m} -O sped=1 x",
        2,
        "-O 'sped' is not valid: expected one of the options of fake (prefix_cache, speed)",
    ),
    ("-m {m} -i {d}/nowhere", 2, "does not exist"),
    ("-m {m} -i {d}", 2, "is a directory"),
    ("-m {m} -i {d}/plain.txt x", 2, "not both"),
    ("-m {m} -i {d}/bad.jsonl", 5, "is not valid JSON"),
    ("-m {m} -i {d}/latin1 --format text", 5, "is not valid UTF-8"),
    ("-m {m} --format xml x", 2, "'xml' is not one of"),
    ("-m {m} --format text --text-field a x", 2, "--text-field"),
    ("-m {m} --nonsense x", 2, "No such option"),
    ("-m {m} -i {d}/table.csv --text-field texts", 2, "Did you mean --text-field text?"),
    (
        "-m {m} -i {d}/TABLE.TSV",
        2,
        "line 1 has no 'prompt' or 'text'. Available fields: 'text,label'",
    ),
    ("x", 2, "Missing option '-m' / '--model'."),
    ("x y", 2, "or set INFER_MODEL; infer-cli discover lists models"),
]
OTHERS = [
    ("discover {d}/nowhere", 3, "Model not found"),
    ("discover {d} --depth -1", 2, "-1"),
    ("info {d}/nowhere", 3, "Model not found"),
    ("info {d}/empty", 3, "is not a model directory"),
    ("info {m} --backend nonsense", 4, "Unknown backend 'nonsense'"),
    ("info {m} --backend fake_off", 4, "Backend 'fake_off' is not available: no abacus"),
    ("info {m} --backend fake_off --load", 4, "Backend 'fake_off' is not available: no abacus"),
    ("info {d}/crash --load --backend fake", 1, "RuntimeError"),
    ("info", 2, "Missing argument"),
    ("nonsense", 2, "No such command"),
    ("--nonsense", 2, "No such option"),
]
CASES = [(f"classify {line}", code, words) for line, code, words in CLASSIFY] + OTHERS


@pytest.fixture
def rubbish(fake_model: Path) -> Path:
    """A directory with ``fake_model`` and many things that are no model."""
    place = fake_model.parent
    for name in ("empty", "badconfig", "crash"):
        (place / name).mkdir()
    for file in fake_model.iterdir():
        (place / "crash" / file.name).write_bytes(file.read_bytes())
    (place / "badconfig" / "config.json").write_text('{"model_type": ')
    (place / "badconfig" / "model.safetensors").write_bytes(b"")
    (place / "bad.gguf").write_bytes(b"GGML!")
    (place / "bad.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    (place / "plain.txt").write_text("plain\n")
    (place / "blank").write_text(" \n\n")
    (place / "labels").write_text("a\nb\n")
    for name in ("table.csv", "TABLE.TSV"):
        (place / name).write_text("text,label\nplain,a\n")
    (place / "latin1").write_bytes(b"caf\xe9\n")
    return place


@pytest.mark.parametrize(("line", "code", "words"), CASES, ids=[case[0] for case in CASES])
def test_bad_input(
    infer_cli: InferCli, fake_model: Path, rubbish: Path, line: str, code: int, words: str
) -> None:
    arguments = [
        part.replace("{m}", str(fake_model)).replace("{d}", str(rubbish))
        for part in line.split(" ")
    ]
    result = infer_cli(*arguments)
    assert result.exit_code == code, result.output
    assert words in " ".join(result.stderr.split())
    assert sum(text.startswith("Error: ") for text in result.stderr.splitlines()) >= 1
    assert "Traceback" not in result.output


@pytest.mark.parametrize("switch", [{"flag": "--debug"}, {"env": {"INFER_RAISE_ERRORS": "1"}}])
def test_debug_shows_the_traceback_and_keeps_the_exit_code(
    infer_cli: InferCli, rubbish: Path, switch: dict[str, object]
) -> None:
    flags = [str(switch["flag"])] if "flag" in switch else []
    done = infer_cli.finish(*flags, "info", rubbish / "nowhere", env=switch.get("env", {}))
    assert done.exit_code == 3
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: Model not found")


def test_none_of_it_depends_on_running_inside_the_test(infer_cli: InferCli, rubbish: Path) -> None:
    done = infer_cli.finish("classify", "-m", rubbish / "crash", "--backend", "fake", "x")
    assert (done.exit_code, done.stdout) == (1, "")
    message = "Error: RuntimeError: the loader has a bug (--debug shows the traceback)\n"
    assert done.stderr == message
