"""The command line with a real model: sentences in, labels out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import InferCli

HEADLINES = Path(__file__).parents[2] / "examples" / "headlines.jsonl"
TEMPLATE = "{text} This news is about"
LABELS = "finance,sports,science,technology"


@pytest.fixture
def real(infer_cli: InferCli) -> InferCli:
    """``infer-cli`` without the fake backend, as a user has it."""
    return type(infer_cli)(infer_cli.path[:1])


def test_a_real_model_labels_real_sentences(real: InferCli, smollm2_dir: Path) -> None:
    truth = [json.loads(line) for line in HEADLINES.read_text(encoding="utf-8").splitlines()]
    flags = ("--backend", "mlx_cpu", "--labels", LABELS, "--template", TEMPLATE, "--json")
    done = real.finish("classify", "-m", smollm2_dir, "-i", HEADLINES, *flags)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 0, done.stderr
    assert [row["text"] for row in rows] == [line["text"] for line in truth]
    right = sum(row["label"] == line["label"] for row, line in zip(rows, truth, strict=True))
    assert right / len(truth) >= 0.9
    for row in rows:
        assert sum(row["probabilities"].values()) == pytest.approx(1.0, abs=1e-5)
        assert 0.0 < row["label_mass"] <= 1.0
        assert row["token"]["logprob"] <= 0.0


def test_the_chat_template_changes_what_the_model_reads(real: InferCli, smollm2_dir: Path) -> None:
    arguments = ("classify", "-m", smollm2_dir, "--backend", "mlx_cpu", "--json", "Say yes.")
    plain = json.loads(real.finish(*arguments).stdout)
    chat = json.loads(real.finish(*arguments, "--chat").stdout)
    assert plain["error"] is None
    assert chat["error"] is None
    assert plain["token"] != chat["token"]


def test_an_empty_prompt_and_one_that_is_too_long(real: InferCli, smollm2_dir: Path) -> None:
    flags = ("--backend", "mlx_cpu", "--json", "--context-len", "64")
    done = real.finish("classify", "-m", smollm2_dir, *flags, "", "word " * 100, "fine")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 5
    kinds = [row["error"] and row["error"]["type"] for row in rows]
    assert kinds == ["EmptyPromptError", "PromptTooLongError", None]


def test_info_of_a_real_model(real: InferCli, smollm2_dir: Path) -> None:
    done = real.finish("info", smollm2_dir, "--backend", "mlx_cpu", "--load", "--json")
    facts = json.loads(done.stdout)
    assert (facts["model_type"], facts["format"]) == ("llama", "safetensors")
    assert (facts["num_layers"], facts["hidden_size"], facts["vocab_size"]) == (30, 576, 49152)
    assert facts["loaded"]["info"]["num_layers"] == 30
    assert {"backend", "blas"} <= {choice["name"] for choice in facts["loaded"]["choices"]}


def test_discover_finds_it(real: InferCli, smollm2_dir: Path) -> None:
    done = real.finish("discover", smollm2_dir, "--json")
    assert [model["path"] for model in json.loads(done.stdout)] == [str(smollm2_dir)]


def test_backends_names_the_blas(real: InferCli) -> None:
    statuses = json.loads(real.finish("backends", "--json").stdout)
    status = next(status for status in statuses if status["name"] == "mlx_cpu")
    assert status["available"] is True, status["reason"]
    assert status["devices"][0]["kind"] == "cpu"
    assert status["devices"][0]["detail"]
