"""Which of a model's files a load opens, and how often."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

Checkpoint = Callable[..., Path]

_LOAD = """
import json, os, sys
import core
opened, announced = [], None
def note(event, args):
    global announced
    if event == "open" and isinstance(args[0], str) and args[0].endswith(".json"):
        path, mode = args[:2]
        if mode or path != announced:  # what open() announced is opened by its opener: once
            opened.append(os.path.basename(path))
        announced = path if mode else None
sys.addaudithook(note)
with core.load_model(sys.argv[1], backend=sys.argv[2]):
    print(json.dumps(opened))
"""


def opened(directory: Path, backend: str) -> Counter[str]:
    """How often a load opens each JSON file, in a process of its own: audit hooks stay."""
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, directory, backend],
        capture_output=True,
        text=True,
        check=True,
    )
    return Counter(json.loads(done.stdout))


@pytest.mark.parametrize(("backend", "before"), [("mlx_cpu", 0), ("", 2)])
def test_a_load_opens_each_file_once(checkpoint: Checkpoint, backend: str, before: int) -> None:
    """Choosing a backend comes before: config.json is checked, and shown to the backend."""
    directory = checkpoint()
    for name in ("generation_config.json", "tokenizer_config.json"):
        if not (directory / name).exists():
            (directory / name).write_text("{}")
    counts = opened(directory, backend)
    assert counts.pop("config.json") == 1 + before
    assert counts["tokenizer_config.json"] == 1
    assert set(counts.values()) == {1}
