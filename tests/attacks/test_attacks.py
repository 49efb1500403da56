"""What hostile files, odd calls, signals, forks and loads do to a process: nothing.

Every attack runs in child processes and is seeded. A finding names its case and how to run it
alone; `child` says how an attack is written.
"""

from __future__ import annotations

import sys

import pytest

from .batch import Report, run
from .neighbours import cases
from .saved import KINDS
from .tiny_models import CHECKPOINTS

pytestmark = [
    pytest.mark.load,
    pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what a process holds"),
]

IN_PROCESS = "mlx_cpu", "llama_cpp"
SOME = {  # of the kinds of directories, those whose files are read by code of their own
    **{f"directories.{name}": 8 for name in ("llama", "gemma3", "sharded", "quantised", "unigram")},
    **{"ggufs.llama": 30, "ggufs.sentencepiece": 10, "ggufs.lora": 10},
    "calls.llama_cpp": 20,  # times five
    **{f"saved.{kind}": 40 for kind in KINDS},
}
LIKE_LLAMA = {"llama3", "mistral", "qwen2", "qwen3", "gemma2"}  # read by the code of the others
MANY = {
    **{f"directories.{name}": 60 for name in CHECKPOINTS if name not in LIKE_LLAMA},
    **{"ggufs.llama": 300, "ggufs.sentencepiece": 120, "ggufs.lora": 80},
    **{"calls.mlx_cpu": 40, "calls.llama_cpp": 40, "calls.mlx_lm": 20},
    "calls.smollm2": 2,  # times a hundred
    **{"signals.mlx_cpu": 40, "signals.llama_cpp": 40, "signals.mlx_lm": 10},
    **{"forks.mlx_cpu": 15, "forks.llama_cpp": 15},
    **{"loads.mlx_cpu": 4, "loads.llama_cpp": 4, "loads.mlx_lm": 4},
    **{f"neighbours.{backend}": len(cases(backend)) for backend in IN_PROCESS},
    **{f"saved.{kind}": 1_000 for kind in KINDS},
}
VERY_MANY = {
    **{f"directories.{name}": 1000 for name in CHECKPOINTS},
    **{"ggufs.llama": 5000, "ggufs.sentencepiece": 2000, "ggufs.lora": 1000},
    **{"calls.mlx_cpu": 1000, "calls.llama_cpp": 1000, "calls.smollm2": 10, "calls.gemma3": 10},
    **{"signals.mlx_cpu": 400, "signals.llama_cpp": 400, "forks.llama_cpp": 100},
}


def found_nothing(report: Report) -> bool:
    """A function of its own, so that pytest shows the report once, and whole."""
    if report.findings:
        pytest.fail(str(report), pytrace=False)
    return True


@pytest.mark.parametrize("attack", SOME)
def test_a_few_cases(attack: str) -> None:
    assert found_nothing(run(attack, SOME[attack]))


@pytest.mark.slow
@pytest.mark.parametrize("attack", MANY)
def test_many_cases(attack: str) -> None:
    report = run(attack, MANY[attack])
    assert found_nothing(report)
    if attack.startswith(("directories", "ggufs")):
        # Neither all broken nor all harmless: they reach what they are meant to reach.
        assert {"loaded", "InvalidModelError"} <= set(report.outcomes), report
    if attack.startswith("saved"):
        assert {"loaded", KINDS[attack.partition(".")[2]][1]} <= set(report.outcomes), report


@pytest.mark.long
@pytest.mark.parametrize("attack", VERY_MANY)
def test_very_many_cases(attack: str) -> None:
    assert found_nothing(run(attack, VERY_MANY[attack]))
