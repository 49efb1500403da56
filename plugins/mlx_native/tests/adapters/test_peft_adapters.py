"""PEFT's adapters here and ours in PEFT: stored adapters and logits, see ``oracle_peft``."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest

from core_mlx_native.adapters.files import read_adapter
from core_mlx_native.adapters.loading import adapted
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.loaded import load_decoder
from core_mlx_native.network.prefill import prefill

TESTS = Path(__file__).parents[1]
CASES = sorted((TESTS / "oracle_peft" / "data").glob("*/reference.json"))
TOLERANCE = 1e-4
VISIBLE = 0.1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.parent.name)
def test_logits_are_peft_s(case: Path, tmp_path: Path) -> None:
    found = json.loads(case.read_text())
    checkpoint, variant = found["checkpoint"].split("/")
    source = TESTS / "oracle" / "data" / checkpoint
    for file in (*(source / "weights").iterdir(), source / variant / "config.json"):
        (tmp_path / file.name).symlink_to(file)

    base = load_decoder(tmp_path, ops=CpuOps(with_numpy=True, few_tokens=True))
    decoder, _ = adapted(base, read_adapter(case.parent, base.config))
    prompts = json.loads((TESTS / "oracle" / "data" / "prompts.json").read_text())
    ends = [len(prompt) - 1 for prompt in prompts]

    logits, plain = (
        network.logits(prefill(network, prompts).hidden_at(ends)) for network in (decoder, base)
    )
    wanted = mx.array(found["logits"])
    assert wanted.shape == logits.shape
    assert float(mx.abs(logits - wanted).max()) < TOLERANCE
    assert float(mx.abs(plain - wanted).max()) > VISIBLE


def test_there_are_cases_of_every_kind() -> None:
    names = {case.parent.name for case in CASES}
    assert names == {"plain", "patterns", "dora", "eva", "ours", "ours-dora"}
