"""The conformance suite on a small model with SmolLM2's tokenizer, and on the real models."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from core_conformance.checking.check import all_checks
from core_conformance.checking.subject import Subject
from core_conformance.running.result import Status
from core_conformance.running.runner import run_check
from core_openvino.backend import OpenVino
from core_openvino.capabilities import BACKEND_CAPABILITIES

Certify = Callable[..., set[str]]
DECLARED = {capability.value for capability in BACKEND_CAPABILITIES}


def test_openvino_passes_the_checks_that_neither_sweep_nor_search(small_smollm2: Path) -> None:
    with closing(Subject(OpenVino(), str(small_smollm2))) as subject:
        narrow = [check for check in all_checks().values() if not check.broad]
        results = [run_check(check, subject) for check in narrow]
    failures = [result for result in results if result.status is not Status.PASSED]
    assert {result.id: result.reason for result in failures} == {}


@pytest.mark.slow
@pytest.mark.load  # checks of cancels and timeouts reckon with a processor that is free
def test_openvino_is_certified(certify: Certify, small_smollm2: Path) -> None:
    assert certify("openvino", small_smollm2) == DECLARED


@pytest.mark.long  # its limits reckon with a machine alone: JOBS=1
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", ["smollm2_dir", "gemma3_dir"])
def test_openvino_is_certified_with_a_real_model(
    certify: Certify, model: str, dtype: str, request: pytest.FixtureRequest
) -> None:
    directory: Path = request.getfixturevalue(model)
    assert certify("openvino", directory, "-O", f"dtype={dtype}") == DECLARED
