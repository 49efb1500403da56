"""``infer-cli classify``: labels, templates, chat, and what comes out."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli


def rows_of(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_json_line_has_everything_that_classify_found(
    infer_cli: InferCli, fake_model: Path
) -> None:
    result = infer_cli("classify", "-m", fake_model, "--json", "--labels", "a,b", "aa b")
    assert result.exit_code == 0
    assert rows_of(result) == [
        {
            "line": 1,
            "text": "aa b",
            "token": {"id": 4, "text": "b", "logprob": -0.5},
            "label": "a",
            "probabilities": {"a": 0.625, "b": 0.375},
            "logprobs": {"a": -0.4, "b": pytest.approx(-1 / 1.5)},
            "label_mass": 0.75,
            "margin": 0.25,
            "error": None,
        }
    ]


def test_no_logprob_is_asked_of_a_backend_that_has_none(
    infer_cli: InferCli, fake_model: Path
) -> None:
    result = infer_cli("classify", "-m", fake_model, "--backend", "fake_plain", "--json", "x y")
    assert rows_of(result)[0]["token"] == {"id": 3, "text": "y", "logprob": None}


def test_without_a_terminal_lines_are_separated_by_tabs(
    infer_cli: InferCli, fake_model: Path
) -> None:
    labelled = infer_cli("classify", "-m", fake_model, "--labels", "a,b", "aa b", "b\tb\nb")
    assert labelled.stdout.splitlines() == [
        "line\ttext\tlabel\tprobability\tmargin\tlabel_mass\terror",
        "1\taa b\ta\t0.6250\t0.2500\t0.7500\t",
        "2\tb\\tb\\nb\tb\t0.8750\t0.7500\t0.7500\t",
    ]
    plain = infer_cli("classify", "-m", fake_model, "one two")
    assert plain.stdout == "line\ttext\ttoken\terror\n1\tone two\ttwo\t\n"


def test_failed_rows_keep_their_place_and_give_exit_code_5(
    infer_cli: InferCli, fake_model: Path
) -> None:
    arguments = ("classify", "-m", fake_model, "--labels", "a, b ", "a", "", "BOOM", "b")
    text = infer_cli(*arguments)
    assert text.exit_code == 5
    rows = [line.split("\t") for line in text.stdout.splitlines()[1:]]
    assert [row[1] for row in rows] == ["a", "", "BOOM", "b"]
    assert [row[-1] != "" for row in rows] == [False, True, True, False]
    assert "Error: prompt 2: The text of prompt 2 is blank." in text.stderr
    assert "Error: 2 of 4 rows failed." in text.stderr
    as_json = infer_cli(*arguments, "--json")
    assert as_json.exit_code == 5
    errors = [row["error"] and row["error"]["type"] for row in rows_of(as_json)]
    assert errors == [None, "EmptyPromptError", "OutOfMemoryError", None]
    assert [row["label"] for row in rows_of(as_json)] == ["a", None, None, "b"]


def test_the_template_is_literal(infer_cli: InferCli, fake_model: Path) -> None:
    text = "{text} {0} {x!r} %s"
    template = "{text} {{other}} {0} | {text} "
    result = infer_cli("classify", "-m", fake_model, "--json", "--template", template, text)
    expected = f"{text} {{other}} {{0}} | {text} "
    row = rows_of(result)[0]
    assert row["token"]["id"] == len(expected)  # the fake's token id is the prompt's length
    assert row["text"] == text


def test_the_first_five_failures_are_explained_and_the_others_counted(
    infer_cli: InferCli, fake_model: Path
) -> None:
    arguments = ("classify", "-m", fake_model)
    lines = "BOOM\n" * 40  # more than one block
    errors = infer_cli(*arguments, stdin=lines).stderr.splitlines()
    explained = [f"Error: line {n}: No beads left for BOOM." for n in range(1, 6)]
    assert errors == [*explained, "and 35 more", "Error: 40 of 40 rows failed."]
    five = infer_cli(*arguments, *["BOOM"] * 5).stderr
    assert (five.count("No beads"), "more" in five) == (5, False)
    assert infer_cli(*arguments, "BOOM").stderr.endswith("Error: 1 of 1 row failed.\n")
    assert infer_cli(*arguments, "--json", stdin=lines).stderr == "Error: 40 of 40 rows failed.\n"


def test_a_single_label_is_warned_of(infer_cli: InferCli, fake_model: Path) -> None:
    one = infer_cli("classify", "-m", fake_model, "--labels", "a", "x")
    assert (one.exit_code, one.stdout.splitlines()[1:]) == (
        0,
        ["1\tx\ta\t1.0000\t1.0000\t0.7500\t"],
    )
    expected = "Warning: only one label is given ('a'), so it gets all the probability.\n"
    assert one.stderr == expected
    assert infer_cli("classify", "-m", fake_model, "--labels", "a,b", "x").stderr == ""
    blank = infer_cli("classify", "-m", fake_model, "--labels", "yes no", "x").stderr
    assert blank.endswith("gets all the probability. Separate labels with commas.\n")


def test_a_model_is_found_by_its_name(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    store = tmp_path / "core" / "models" / "tiny model"
    store.parent.mkdir(parents=True)
    fake_model.rename(store)
    env = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    for name in ("tiny model", "Tiny Model", "tiny"):
        assert "1\tone x\tx\t" in infer_cli("classify", "-m", name, "one x", **env).stdout
        assert json.loads(infer_cli("info", name, "--json", **env).stdout)["path"] == str(store)
    near = infer_cli("classify", "-m", "tiny modle", "x", **env)
    assert (near.exit_code, "Did you mean 'tiny model'?" in near.stderr) == (3, True)
    assert "hf download ORG/NAME" in near.stderr
    for other in ("models/tiny model", str(tmp_path / "tiny model")):
        gone = infer_cli("classify", "-m", other, "x", **env)
        assert (gone.exit_code, "Model not found" in gone.stderr) == (3, True)
    shutil.copytree(store, tmp_path / ".lmstudio" / "models" / "tiny model")
    both = infer_cli("classify", "-m", "tiny model", "x", **env)
    assert (both.exit_code, str(store) in both.stderr, "lmstudio" in both.stderr) == (3, True, True)


@pytest.mark.parametrize(
    ("flags", "prompt"),
    [
        (["--chat"], "<user>hi</user>"),
        (["--system", "be brief"], "<system>be brief</system><user>hi</user>"),
        (["--chat", "--template", "say {text}"], "<user>say hi</user>"),
    ],
)
def test_chat_puts_the_text_through_the_chat_template(
    infer_cli: InferCli, fake_model: Path, flags: list[str], prompt: str
) -> None:
    result = infer_cli("classify", "-m", fake_model, "--json", *flags, "hi")
    assert rows_of(result)[0]["token"]["id"] == len(prompt)


def test_chat_is_refused_for_a_model_without_chat_templates(
    infer_cli: InferCli, fake_model: Path
) -> None:
    result = infer_cli("classify", "-m", fake_model, "--backend", "fake_plain", "--chat", "hi")
    assert result.exit_code == 1
    assert "Error: Backend 'fake_plain' does not support chat templates" in result.stderr
    assert "fake" in result.stderr.split("Supported by:")[1]


def test_labels_from_a_file_may_hold_commas(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "labels.txt"
    file.write_text("yes, of course\n\n no \n", encoding="utf-8-sig")
    result = infer_cli("classify", "-m", fake_model, "--json", "--labels-file", file, "no")
    assert list(rows_of(result)[0]["probabilities"]) == ["yes, of course", "no"]
    assert rows_of(result)[0]["label"] == "no"


def test_a_label_that_is_no_text_is_a_usage_error(infer_cli: InferCli, fake_model: Path) -> None:
    result = infer_cli("classify", "-m", fake_model, "--labels", "a,n\udcffo", "hi")
    assert result.exit_code == 2
    assert "--labels 'n\\udcffo' is not valid" in result.stderr


def test_ten_thousand_labels(infer_cli: InferCli, fake_model: Path) -> None:
    labels = ",".join(f"label-{n}" for n in range(10_000))
    result = infer_cli("classify", "-m", fake_model, "--json", "--labels", labels, "a label-4321")
    assert rows_of(result)[0]["label"] == "label-4321"


def test_options_reach_the_backend(infer_cli: InferCli, fake_model: Path) -> None:
    flags = ["-O", "speed=3", "--context-len", "32", "--seed", "0"]
    result = infer_cli("classify", "-m", fake_model, *flags, "x")
    assert result.exit_code == 0, result.stderr
    loaded = importlib.import_module("core_fake").FAKE.loaded[-1]
    assert (loaded.options, loaded.context_len, loaded.backend) == ({"speed": 3}, 32, "fake")


def test_an_option_that_the_backend_cannot_honour_is_a_usage_error(
    infer_cli: InferCli, fake_model: Path
) -> None:
    result = infer_cli("classify", "-m", fake_model, "--backend", "fake_plain", "--seed", "0", "x")
    assert result.exit_code == 2
    assert "Error: Backend 'fake_plain' does not support the option 'seed'" in result.stderr


def test_the_model_may_come_from_the_environment(infer_cli: InferCli, fake_model: Path) -> None:
    result = infer_cli("classify", "one two", INFER_MODEL=str(fake_model))
    assert result.stdout.splitlines()[1:] == ["1\tone two\ttwo\t"]


def test_verbose_says_what_was_chosen_on_stderr(infer_cli: InferCli, fake_model: Path) -> None:
    quiet = infer_cli("classify", "-m", fake_model, "x")
    verbose = infer_cli("classify", "-m", fake_model, "-v", "x")
    assert quiet.stderr == ""
    assert "backend: fake (" in verbose.stderr
    assert "device: abacus (it was on the desk)" in verbose.stderr
    assert "1 row in" in verbose.stderr
    assert verbose.stdout == quiet.stdout


@pytest.mark.parametrize("flags", [[], ["--backend", "fake"]])
def test_the_backend_is_asked_once_whether_it_can_run(
    infer_cli: InferCli, fake_model: Path, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = type(importlib.import_module("core_fake").FAKE)
    asked: list[object] = []

    def available(self: object) -> bool:
        asked.append(self)
        return True

    monkeypatch.setattr(fake, "available", available)
    result = infer_cli("classify", "-m", fake_model, *flags, "a text")
    assert result.exit_code == 0, result.stderr
    assert len(asked) == 1
