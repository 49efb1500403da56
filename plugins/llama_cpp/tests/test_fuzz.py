"""Public calls drawn at random: each returns, or raises a `core.CoreError` or a TypeError.

They run in child processes, so that a crash of the C library or a hang is seen and named.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from core_llama_cpp.model import LlamaModel

SLICE = 100
CHUNK = 200  # calls of one child
CHUNKS = [
    (name, first)
    for name, first in zip(
        ["smollm2"] * 5 + ["gemma3"] + ["tiny"] * 4, range(0, 2000, CHUNK), strict=True
    )
]
CHILD_SECONDS = 900  # of which it takes one minute


@pytest.fixture
def fuzz(tiny_gguf: Callable[..., Path], lora_gguf: Callable[..., Path]) -> Callable[..., None]:
    """Makes calls on a model in a child process, which has to end well."""
    tiny, adapter = tiny_gguf(), lora_gguf()

    def run(path: Path, first: int, count: int) -> None:
        places = [str(place) for place in (path, tiny, adapter)]
        watch([sys.executable, "-m", "fuzz.calls", *places, str(first), str(count)])

    return run


def watch(command: list[str]) -> None:
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=Path(__file__).parent,
    )
    try:
        said, complaints = child.communicate(timeout=CHILD_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        said, complaints = child.communicate()
    last = "\n".join(said.splitlines()[-3:])
    assert child.returncode == 0, f"{command}: {child.returncode}\n{last}\n{complaints[-3000:]}"
    # Neither all refused nor all harmless: the calls reach what they are meant to reach.
    assert said.count("-> returned") > said.count("->") / 3
    assert {"InvalidOptionError", "TypeError"} <= kinds(said.split())


def kinds(words: Iterable[str]) -> set[str]:
    return {after for before, after in itertools.pairwise(words) if before == "->"}


def test_no_call_ends_the_process(fuzz: Callable[..., None], smollm2_gguf: Path) -> None:
    fuzz(smollm2_gguf, 0, SLICE)


@pytest.mark.parametrize("value", [5, b"ab", None, 1.5, ["ab"]])
def test_only_strings_have_tokens(tiny_model: LlamaModel, value: Any) -> None:
    with pytest.raises(TypeError, match="strings"):
        tiny_model.encode(value)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "first"), CHUNKS)
def test_none_of_two_thousand_calls_ends_the_process(
    name: str, first: int, fuzz: Callable[..., None], request: pytest.FixtureRequest
) -> None:
    tiny = request.getfixturevalue("tiny_gguf")
    path = tiny("fuzzed") if name == "tiny" else request.getfixturevalue(f"{name}_gguf")
    fuzz(path, first, CHUNK)
