"""The command line with a real model: sentences in, labels out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

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


@pytest.mark.whole
@pytest.mark.parametrize(
    ("model", "backend"),
    [("smollm2_dir", "mlx_cpu"), pytest.param("smollm2_gguf", "llama_cpp", marks=pytest.mark.slow)],
)
def test_a_head_is_learned_and_asked_alike_among_any_neighbours(
    real: InferCli, model: str, backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Four headlines of each label are learned; others come in two orders, and one comes alone."""
    lines = HEADLINES.read_text(encoding="utf-8").splitlines()
    of_each: dict[str, list[str]] = {}
    for line in lines:
        of_each.setdefault(json.loads(line)["label"], []).append(line)
    gold = [line for own in of_each.values() for line in own[:4]]
    judged = [line for own in of_each.values() for line in own[4:7]]
    for name, rows in {"gold": gold, "judged": judged, "turned": judged[::-1]}.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")

    head = tmp_path / "head.safetensors"
    common = ("-m", request.getfixturevalue(model), "--backend", backend)
    flags = ("-i", tmp_path / "gold.jsonl", "--gold", "label", "-o", head)
    learned = real.finish("learn", *common, *flags)
    assert learned.exit_code == 0, learned.stderr
    assert "expected accuracy 1" in learned.stderr or "expected accuracy 9" in learned.stderr

    asked = ("classify", *common, "--head", head, "--json")
    texts = [json.loads(line)["text"] for line in judged]
    whole = real.finish(*asked, "-i", tmp_path / "judged.jsonl")
    turned = real.finish(*asked, "-i", tmp_path / "turned.jsonl", "-o", tmp_path / "out.jsonl")
    alone = real.finish(*asked, texts[0])
    assert (whole.exit_code, turned.exit_code, alone.exit_code) == (0, 0, 0), turned.stderr

    told = {row["text"]: row for row in map(json.loads, whole.stdout.splitlines())}
    right = sum(
        told[json.loads(line)["text"]]["label"] == json.loads(line)["label"] for line in judged
    )
    assert right >= 11
    others = [*(tmp_path / "out.jsonl").read_text().splitlines(), *alone.stdout.splitlines()]
    for row in map(json.loads, others):
        first = told[row["text"]] if "text" in row else told[texts[0]]
        assert (row["label"], row["level"]) == (first["label"], "head")
        assert row["probabilities"] == pytest.approx(first["probabilities"], abs=1e-4)
