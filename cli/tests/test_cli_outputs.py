"""Nothing that the program did not write is removed or replaced, by any command that writes.

The commands and what they write are read off the command line itself, so that a new one is missed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from core.system.outputs import NAMES_OUTPUT
from core_cli.app import InferGroup, build

pytestmark = pytest.mark.whole  # it lists the commands of every plugin

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

# Free texts and paths that name nothing to write, by the name of the parameter.
READ = {
    *(
        "adapter",
        "adapter_dtype",
        "aliases",
        "adapter_path",
        "address",
        "answer_field",
        "answer_prefix",
    ),
    *(
        "aliases",
        "api_key",
        "api_key_file",
        "backend",
        "betas",
        "chat_template_kwargs",
        "choices_field",
        "compare",
        "data",
    ),
    *(
        "directory",
        "dtype",
        "encoding",
        "extract",
        "field",
        "few_shot",
        "file",
        "given",
        "gold",
        "head",
        "heads",
    ),
    *(
        "host",
        "id_field",
        "known",
        "label",
        "label_prefix",
        "label_sentence",
        "labels",
        "labels_file",
        "memory_limit",
    ),
    *("message", "model", "models", "name", "only", "opening", "pairs", "parts", "prompts", "row"),
    *(
        "saved",
        "schedule",
        "sentences",
        "sha256",
        "source",
        "stop",
        "system",
        "targets",
        "task",
        "tasks",
    ),
    *("template", "template_file", "template_list", "templates", "test", "text", "validation"),
    "words",
}
NUMBERS = (click.Choice, *map(type, (click.BOOL, click.INT, click.FLOAT)))
OF_NUMBERS = {"Numbers", "Shard"}  # types of this program
REFUSAL = re.compile(
    r"is not replaced|is not overwritten|is not empty|already contains|is not a job journal"
    r"|is not written to|which no job has written|is not the output of a job|is a file"
)
_JOB = ("-m", "{model}", "--backend", "fake", "-i", "{rows}")
_ASKED = (*_JOB, "--template", "{{text}} is", "--labels", "a,b")
_TOLD = (*_JOB, "--max-tokens", "2")
_BESIDE = (".journal", ".rows")
_TRAINED = ("-m", "{model}", "-i", "{rows}", "--steps", "1")
_CHECKED = ("fake", "-m", "{model}")

# By command and parameter: the arguments, of which {out} is what is written, and what would be
# replaced there: {out} itself, or a file in it or beside it.
WRITTEN: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("classify", "output"): ((*_ASKED, "--to", "parquet", "-o", "{out}"), ("", *_BESIDE)),
    ("classify", "report"): ((*_ASKED, "--report", "{out}"), ("",)),
    ("classify", "plot"): ((*_ASKED, "--gold", "gold", "--plot", "{out}"), ("",)),
    ("generate", "output"): ((*_TOLD, "--to", "parquet", "-o", "{out}"), ("", *_BESIDE)),
    ("generate", "report"): ((*_TOLD, "--report", "{out}"), ("",)),
    ("eval", "output"): ((*_JOB, "--metric", "exact", "-o", "{out}"), ("", ".journal")),
    ("eval", "report"): ((*_JOB, "--metric", "exact", "--report", "{out}"), ("",)),
    ("calibrate", "output"): ((*_ASKED, "-o", "{out}"), ("",)),
    ("tune", "output"): ((*_ASKED, "--gold", "gold", "--level", "raw", "-o", "{out}"), ("",)),
    ("label", "output"): (("-i", "{rows}", "--labels", "a,b", "-o", "{out}.csv"), (".csv",)),
    ("learn", "output"): ((*_JOB, "--gold", "gold", "-o", "{out}"), ("",)),
    ("bench", "output"): (("-m", "{model}", "--backend", "fake", "-o", "{out}"), ("",)),
    ("bench", "plot"): (("-m", "{model}", "--backend", "fake", "--plot", "{out}"), ("",)),
    ("merge", "out"): (("{out}", "{parts}/1.jsonl", "{parts}/2.jsonl"), ("", ".journal")),
    ("conformance", "report"): ((*_CHECKED, "--report", "{out}"), ("",)),
    ("conformance", "badge"): ((*_CHECKED, "--badge", "{out}"), ("",)),
    ("conformance", "html"): ((*_CHECKED, "--html", "{out}"), ("",)),
    ("lora train", "out_dir"): (
        (*_TRAINED, "{out}"),
        ("", "/adapters.safetensors", "/adapter_config.json", "/report.json", "/losses.svg"),
    ),
    ("lora train", "plot"): ((*_TRAINED, "--plot", "{out}", "{parts}/trained"), ("",)),
    ("lora merge", "out_dir"): (("-m", "{model}", "{model}", "{out}"), ("", "/config.json")),
    ("lora export", "out"): (
        ("-m", "{model}", "--peft", "{model}", "{out}"),
        ("", "/adapter_config.json"),
    ),
    ("convert", "words"): (("-m", "{rows}", "{out}"), ("", "/config.json")),
    ("classify --ray", "output"): (
        ("-m", "m", "-i", "{rows}", "--labels", "a,b", "-o", "{out}"),
        ("", "/thesis/1.tex", ".checkpoint/1.tex"),
    ),
}
WHOLE = ("output", "out", "out_dir", "words")  # which --overwrite and --resume are for
RESUMED = ("classify", "generate", "eval", "lora train", "classify --ray")


def flags(command: str, name: str) -> tuple[str, ...]:
    """Return flags that are given as well, to no avail."""
    overwrite = () if command in ("lora train", "bench", "label") else ("--overwrite",)
    resume = ("--resume",) if command in RESUMED else ()
    return ("", *overwrite, *resume) if name in WHOLE else ("",)


CASES = [
    pytest.param(command, arguments, victim, how, more, id=f"{command} {name}{victim} {how} {more}")
    for (command, name), (arguments, victims) in WRITTEN.items()
    for victim in victims
    for how in ("file", "link")
    for more in flags(command, name)
]


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands, those in groups and the other ways of one as well."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command
    if isinstance(group, InferGroup):
        for name, ways in group._ways.items():
            yield from ((f"{name} {flag}", way) for flag, way in ways.items())


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    for name, command in commands(build()):
        yield from ((name, parameter) for parameter in command.params)


def takes_a_name(parameter: click.Parameter) -> bool:
    """Return whether a parameter could name a file to write: it takes any text."""
    kind = parameter.type
    if isinstance(kind, NUMBERS):
        return False
    if type(kind).__name__ in OF_NUMBERS or getattr(parameter, "is_flag", False):
        return False
    return not (isinstance(kind, click.Path) and kind.exists)


def test_whatever_a_command_writes_is_listed_here() -> None:
    marked = {
        (command, str(parameter.name))
        for command, parameter in parameters()
        if getattr(parameter.type, NAMES_OUTPUT, False)
    }
    assert marked == WRITTEN.keys()


def test_no_parameter_names_an_output_without_saying_so() -> None:
    unknown = {
        (command, str(parameter.name))
        for command, parameter in parameters()
        if takes_a_name(parameter) and parameter.name not in READ
    }
    assert unknown <= WRITTEN.keys(), "give the parameter type=output_type(...), or add it to READ"


@pytest.fixture
def places(tmp_path: Path, fake_model: Path, infer_cli: InferCli) -> dict[str, Path]:
    """Make all that the arguments name: rows, a model and the parts of a job."""
    rows, parts = tmp_path / "rows.jsonl", tmp_path / "parts"
    lines = [{"text": "ab"[n % 2] * 2 + f" {n}", "gold": "ab"[n % 2]} for n in range(24)]
    lines = [{"question": line["text"], "answer": line["gold"], **line} for line in lines]
    rows.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    parts.mkdir()
    return {"rows": rows, "parts": parts, "model": fake_model, "out": tmp_path / "out"}


@pytest.fixture
def parts(places: dict[str, Path], infer_cli: InferCli) -> None:
    for part in ("1", "2"):
        asked = [*_ASKED, "--shard", f"{part}/2", "-o", f"{{parts}}/{part}.jsonl"]
        done = infer_cli("classify", *(each.format(**places) for each in asked))
        assert done.exit_code == 0, done.output


def state(folder: Path) -> dict[str, bytes | None]:
    """All files and folders; of each file what is in it."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(("command", "arguments", "victim", "how", "more"), CASES)
def test_what_others_wrote_stays(
    infer_cli: InferCli,
    places: dict[str, Path],
    request: pytest.FixtureRequest,
    command: str,
    arguments: tuple[str, ...],
    victim: str,
    how: str,
    more: str,
) -> None:
    """A file of the user's is where the command would write, itself or after a link."""
    if command == "merge":
        request.getfixturevalue("parts")
    mine = Path(f"{places['out']}{victim}")
    mine.parent.mkdir(parents=True, exist_ok=True)
    real = places["model"].parent / "mine"
    (real if how == "link" else mine).write_text("years of work\n")
    if how == "link":
        mine.symlink_to(real)
    before = state(places["model"].parent)

    words = [*command.split(), *(each.format(**places) for each in arguments), *more.split()]
    refused = infer_cli(*words)
    assert refused.exit_code in (1, 2), refused.output
    assert REFUSAL.search(refused.output.replace("\n", " ")), refused.output
    assert state(places["model"].parent) == before
    assert mine.is_symlink() == (how == "link")


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("command", "name", "beside"),
    [
        *[("classify", "output", ".journal"), ("merge", "out", ".journal")],
        *[("classify", "report", ""), ("calibrate", "output", "")],
        *[("tune", "output", ""), ("learn", "output", "")],
    ],
)
def test_what_holds_texts_is_its_owners_alone(
    infer_cli: InferCli,
    places: dict[str, Path],
    request: pytest.FixtureRequest,
    command: str,
    name: str,
    beside: str,
) -> None:
    os.umask(0o022)
    if command == "merge":
        request.getfixturevalue("parts")
    arguments, _ = WRITTEN[command, name]
    done = infer_cli(command, *(each.format(**places) for each in arguments))
    assert done.exit_code == 0, done.output
    assert mode(places["out"]) == mode(Path(f"{places['out']}{beside}")) == 0o600


def test_a_job_is_not_written_to_stdout(infer_cli: InferCli, places: dict[str, Path]) -> None:
    """Where stdout is a file, the name leads to it, and a journal would be made beside it."""
    places["out"].write_text("before\n")
    for command, name in (("classify", "output"), ("merge", "out")):
        arguments, _ = WRITTEN[command, name]
        words = [each.format(**{**places, "out": "/dev/stdout"}) for each in arguments]
        with open(places["out"], "a") as stdout:
            process = infer_cli.start(command, *words, stdout=stdout)
            _, told = process.communicate()
        assert process.returncode == 2, told
        assert b"-o requires a regular file" in told or command == "merge"
    assert places["out"].read_text() == "before\n"
    assert not [file for file in places["out"].parent.iterdir() if "journal" in file.name]
