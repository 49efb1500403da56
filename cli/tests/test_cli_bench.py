"""``infer-cli bench``: forms, files, turns, and what cannot be measured."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import core
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model
from tests.attacks.tiny_models import checkpoint, gguf

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

SMALL = ("--pp", "16", "--tg", "8", "--batch-size", "1,3", "-r", "2")
TESTS = [
    *("pp16", "tg8", "tg8+chain", "ttft16", "classify@1", "classify@3", "generate@1"),
    "generate@3",
]


@pytest.fixture
def model(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    core.register(FakeBackend("word " * 9, labels=lambda p, labels: labels[0], name="scripted"))
    yield "-m", str(write_model(tmp_path / "scripted")), "--backend", "scripted"
    REGISTRY._registered.pop("scripted")


def benched(infer_cli: InferCli, *flags: str | Path) -> Result:
    done = infer_cli("bench", *flags)
    assert "Traceback" not in done.output
    return done


def test_a_table_has_all_tests(infer_cli: InferCli, model: tuple[str, ...]) -> None:
    done = benched(infer_cli, *model, *SMALL)
    assert done.exit_code == 0, done.output
    head, *rows = (line.split("\t") for line in done.stdout.splitlines())
    assert head[:5] == ["MODEL", "BACKEND", "TEST", "RATE", "UNIT"]
    assert [row[2] for row in rows] == TESTS


def test_every_form_is_written(infer_cli: InferCli, model: tuple[str, ...], tmp_path: Path) -> None:
    out, plot = tmp_path / "out.json", tmp_path / "out.svg"
    done = benched(infer_cli, *model, *SMALL, "-o", out, "--plot", plot)
    assert done.exit_code == 0, done.output
    [first, *_] = found = json.loads(out.read_text())
    assert [each["test"] for each in found] == TESTS
    assert (first["model_filename"], first["n_prompt"], first["n_gen"]) == ("scripted", 16, 0)
    assert len(first["samples_ts"]) == 2
    assert first["load_seconds"] >= 0
    assert plot.read_text().startswith("<svg")

    lines = benched(infer_cli, *model, *SMALL, "--to", "jsonl").stdout.splitlines()
    assert [json.loads(line)["test"] for line in lines] == TESTS
    table = benched(infer_cli, *model, *SMALL, "--to", "csv").stdout
    assert [row["test"] for row in csv.DictReader(io.StringIO(table))] == TESTS
    assert benched(infer_cli, *model, *SMALL, "--to", "md").stdout.startswith("| model |")


def test_what_is_compared_has_a_ratio(
    infer_cli: InferCli, model: tuple[str, ...], tmp_path: Path
) -> None:
    other = str(write_model(tmp_path / "other"))
    done = benched(infer_cli, *model, "--compare", other, *SMALL, "--only", "tg", "--to", "jsonl")
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["model_filename"], each["test"]) for each in found] == [
        ("scripted", "tg8"),
        ("other", "tg8"),
    ]


def test_one_model_twice_is_told_apart(infer_cli: InferCli, model: tuple[str, ...]) -> None:
    flags = ("--compare", "backend=scripted", *SMALL, "--only", "tg", "--to", "jsonl")
    found = [json.loads(line) for line in benched(infer_cli, *model, *flags).stdout.splitlines()]
    names = [each["model_filename"] for each in found]
    assert names == ["scripted", "scripted backend=scripted"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--batch-size", "0"), "with N from 1"),
        (("--only", "speed"), "'speed' is not one of"),
        (("--repetitions", "0"), "0 is not in the range"),
        (("--compare", "speed=3"), "Pass a model, or one of model="),
        (("-o", "nowhere/out.json"), "nowhere/out.json cannot be written: the folder"),
    ],
)
def test_what_makes_no_sense_is_told(
    infer_cli: InferCli, model: tuple[str, ...], flags: tuple[str, ...], told: str
) -> None:
    done = benched(infer_cli, *model, *flags)
    assert done.exit_code == 2
    assert told in " ".join(done.output.split())


def test_a_prompt_beyond_the_context_is_a_note(infer_cli: InferCli, model: tuple[str, ...]) -> None:
    done = benched(infer_cli, *model, "--pp", "5000", "--only", "pp", "--to", "jsonl")
    assert done.exit_code == 1
    assert "No test could be measured" in done.stderr
    assert "4096" in json.loads(done.stdout)["note"]


@pytest.mark.whole
def test_real_backends_are_measured(infer_cli: InferCli, tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("mlx", "gguf")]
    for place in places:
        place.mkdir()
    mlx, llama = checkpoint(places[0]), gguf(places[1])
    done = benched(infer_cli, "-m", mlx, "--compare", llama, *SMALL, "-r", "1", "--to", "jsonl")
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["test"] for each in found] == [test for test in TESTS for _ in range(2)]
    default, second = [each["backend"] for each in found[:2]]
    assert default in ("openvino", "mlx_cpu")  # the processor decides
    assert second == "llama_cpp"  # openvino does not know this file's pre-tokenizer
    assert all(each["samples_ns"] for each in found)
