"""``infer-cli explain``: a table of the parts of one row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

TEXT = "a a a. b b. nothing!"


def test_the_part_that_moves_the_label_comes_first(infer_cli: InferCli, fake_model: Path) -> None:
    done = infer_cli("explain", "-m", fake_model, "--labels", "a,b", TEXT)
    assert done.exit_code == 0, done.output
    header, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert header == ["PART", "WITHOUT IT", "CHANGE", "LABEL"]
    assert [row[0] for row in rows] == ["a a a.", "b b.", "nothing!"]
    assert rows[0][3] == "b"
    assert rows[0][2].startswith("+")
    assert rows[1][2].startswith("-")
    assert "a: 0." in done.stderr
    assert "with all parts (level raw)" in done.stderr


def test_it_is_json_on_request(infer_cli: InferCli, fake_model: Path) -> None:
    asked = ("explain", "-m", fake_model, "--labels", "a,b", TEXT)
    done = infer_cli(*asked, "--json", "--by", "words", "--label", "b")
    found = json.loads(done.stdout)
    assert found["label"] == "b"
    assert [part["text"] for part in found["parts"]] == TEXT.split()
    whole = found["probabilities"]["b"]
    assert found["parts"][0]["change"] == pytest.approx(whole - found["parts"][0]["probability"])


def test_a_row_of_a_file_is_named_by_its_number(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,body\n1,x\n2,a a. b.\n3, \n")
    asked = ("explain", "-m", fake_model, "-i", rows, "--text-field", "body", "--labels", "a,b")
    assert infer_cli(*asked, "2").stdout.splitlines()[1].startswith("a a.\t")
    for row, message in (
        ("1", "fewer than two sentences"),
        ("3", "blank"),
        ("4", "has fewer than 4 rows"),
        ("0", "a row's number, from 1"),
        ("x", "a row's number, from 1"),
    ):
        done = infer_cli(*asked, row)
        assert done.exit_code != 0
        assert message in done.stderr
    assert "No labels." in infer_cli("explain", "-m", fake_model, TEXT).stderr


def test_tasks_and_heads_are_explained(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "text,gold\n" + "".join(f"{'ab'[n % 2]} x{n},{'ab'[n % 2]}\n" for n in range(40))
    )
    made = ("-m", fake_model, "-i", rows, "--gold", "gold")
    head, task = tmp_path / "head.safetensors", tmp_path / "task.toml"
    assert infer_cli("learn", *made, "-o", head).exit_code == 0
    asked = ("--labels", "a,b", "--template", "{text} is")
    assert infer_cli("calibrate", *made, *asked, "-o", task).exit_code == 0
    for flag, file, level in (("--head", head, "head"), ("--task", task, "temperature")):
        done = infer_cli("explain", "-m", fake_model, flag, file, TEXT)
        assert f"level {level}" in done.stderr, done.output
    refused = infer_cli("explain", "-m", fake_model, "--task", task, "--labels", "a,b", TEXT)
    assert "--labels cannot be combined with --task" in refused.stderr
