"""The conformance suite on a small model with SmolLM2's tokenizer, and on the real models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core_conformance.checking.check import Check, all_checks
from core_conformance.checking.subject import Subject
from core_conformance.running.result import Status
from core_conformance.running.runner import run_check
from core_mlx_native.backend import Cpu
from core_mlx_native.capabilities import BACKEND_CAPABILITIES

Certify = Callable[[str, Path], set[str]]
OF_LENGTHS = {"full_context", "lengths", "lengths_ends", "long_chats"}


def test_mlx_cpu_passes_what_neither_sweeps_nor_searches(small_smollm2: Path) -> None:
    """What a change shows in a minute; the broad checks take several and run with the soaks."""
    with closing(Subject(Cpu(), str(small_smollm2))) as subject:
        narrow = [check for check in all_checks().values() if not check.broad]
        found = [run_check(check, subject) for check in narrow]
    assert {each.id: each.reason for each in found if each.status is not Status.PASSED} == {}


@pytest.mark.slow
@pytest.mark.load  # checks of cancels and timeouts reckon with a processor that is free
def test_mlx_cpu_is_certified(certify: Certify, small_smollm2: Path) -> None:
    assert certify("mlx_cpu", small_smollm2) == {each.value for each in BACKEND_CAPABILITIES}


@pytest.mark.long  # its limits reckon with a machine alone: JOBS=1
@pytest.mark.parametrize("model", ["smollm2_dir", "gemma3_dir"])
def test_mlx_cpu_is_certified_with_a_real_model(
    certify: Certify, model: str, request: pytest.FixtureRequest
) -> None:
    directory: Path = request.getfixturevalue(model)
    assert certify("mlx_cpu", directory) == {each.value for each in BACKEND_CAPABILITIES}


@pytest.fixture
def of_context(checkpoint: Callable[..., Path], smollm2_dir: Path) -> Callable[[int], Path]:
    """Random weights under a real tokenizer: what the author's guide says of a model to test."""
    return partial(_of_context, checkpoint, smollm2_dir)


@pytest.mark.slow
def test_a_small_context_is_enough_for_what_fills_it(of_context: Callable[[int], Path]) -> None:
    """Beside what neither sweeps nor searches, the sweeps over lengths."""
    with closing(Subject(Cpu(), str(of_context(128)))) as subject:
        asked = [c for c in all_checks().values() if not c.broad or _area(c) in OF_LENGTHS]
        assert {_area(check) for check in asked} >= OF_LENGTHS
        found = [run_check(check, subject) for check in asked]
    assert {each.id: each.reason for each in found if each.status is not Status.PASSED} == {}


@pytest.mark.long
@pytest.mark.parametrize("context", [128, 512])
def test_a_small_context_is_enough(
    certify: Certify, of_context: Callable[[int], Path], context: int
) -> None:
    assert certify("mlx_cpu", of_context(context)) == {each.value for each in BACKEND_CAPABILITIES}


def _area(check: Check) -> str:
    return check.run.__module__.rpartition(".")[2]


def _of_context(checkpoint: Callable[..., Path], smollm2_dir: Path, context: int) -> Path:
    config: dict[str, Any] = json.loads((smollm2_dir / "config.json").read_text())
    directory = checkpoint(
        vocab_size=config["vocab_size"], max_position_embeddings=context, eos_token_id=2
    )
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(smollm2_dir / name, directory / name)
    return directory
