"""A worker in which other code prints: before the protocol begins, meanwhile, and below Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import core
from core.options import LoadConfig
from core_mlx_lm_bridge.backend import MlxLm
from core_mlx_lm_bridge.model import BridgeModel

pytestmark = pytest.mark.load  # a busy machine can make it fail

Fake = Callable[..., BridgeModel]

PRINTS = r"""
import ctypes, os
print("from Python", flush=True)
print("from Python, without a flush")
os.write(1, b"raw bytes \xff\x00 without an end")
ctypes.CDLL(None).puts(b"from C")
ctypes.CDLL(None).fflush(None)
os.system("echo from a child; cat")
"""
LOUD = {
    "in lines and raw bytes": PRINTS,
    "more than a pipe holds": "import os\nfor _ in range(40): os.write(1, b'x' * 100_000)",
    "a message of the protocol": 'print(\'{"type":"error","error":"OSError"}\', flush=True)',
    "at any time": "import os, threading, time\n"
    "def without_end():\n"
    "    while True: os.write(1, b'noise' * 99); time.sleep(0.001)\n"
    "threading.Thread(target=without_end, daemon=True).start()\n",
}


@pytest.fixture
def site(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The environment of an interpreter that runs this code when it starts."""

    def of(code: str, name: str = "sitecustomize.py") -> dict[str, str]:
        folder = tmp_path / "site"
        folder.mkdir()
        (folder / name).write_text(code)
        path = [str(folder), *filter(None, sys.path)]
        return {"PYTHONPATH": os.pathsep.join(path)}

    return of


@pytest.mark.parametrize("code", LOUD.values(), ids=LOUD.keys())
def test_noise_is_no_part_of_the_protocol(
    fake: Fake, site: Callable[..., dict[str, str]], code: str
) -> None:
    model = fake(env=site(code))
    assert [token.text for token in model.generate("count 3")] == ["0 ", "1 ", "2 "]
    assert [token.text for token in model.generate("print")] == ["done"]
    assert model.generate("say a b").text() == "ab"


def test_printed_text_is_among_the_last_words(
    fake: Fake, site: Callable[..., dict[str, str]]
) -> None:
    with pytest.raises(core.BackendProcessError) as error:
        fake(env={**site(PRINTS), "FAKE_LOAD_FAULT": "exit"})
    for words in ("from Python\n", "raw bytes \ufffd\x00 without an end", "from C", "from a child"):
        assert words in error.value.stderr_tail
    assert "about to exit" in error.value.stderr_tail


def test_interpreter_messages_are_no_part_of_the_protocol(fake: Fake) -> None:
    model = fake(
        env={"PYTHONVERBOSE": "1", "PYTHONWARNINGS": "always", "PYTHONDONTWRITEBYTECODE": ""}
    )
    assert [token.text for token in model.generate("count 2")] == ["0 ", "1 "]


def test_an_interpreter_that_closes_the_descriptors_is_named(
    fake_dir: Path, tmp_path: Path
) -> None:
    """As ``conda run`` and the like do, which start a process of their own."""
    wrapper = tmp_path / "python"
    wrapper.write_text(
        f"#!{sys.executable}\nimport subprocess, sys\n"
        "sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))\n"
    )
    wrapper.chmod(0o755)
    with pytest.raises(core.BackendProcessError, match="does not pass them on") as error:
        MlxLm().load_model(fake_dir, LoadConfig(options={"python": wrapper}))
    assert "exec python" in str(error.value)


def test_a_script_that_starts_the_interpreter_in_its_place(fake: Fake, tmp_path: Path) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\necho starting\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    model = fake(python=str(wrapper))
    assert [token.text for token in model.generate("count 2")] == ["0 ", "1 "]
