"""What a hostile checkpoint makes ``infer-cli`` say: text, whatever a terminal would obey."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import mlx.core as mx
import pytest

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals on this system")

EVIL = "\x1b]0;pwned\x07\x1b[31m\x9b2J\u202e\u2066\u2028\x85\x7f"
SCRIPT = """
import json, sys
from core_cli import exits
from core_cli.app import build

exits.prepare()
for arguments in json.loads(sys.argv[1]):
    try:
        build()(arguments, prog_name="infer-cli")
    except SystemExit:
        print("=====", flush=True)
"""


def on_terminal(commands: list[list[str]]) -> list[str]:
    """What a terminal showed of each command, all run by one process."""
    ours, theirs = pty.openpty()
    settings = {**os.environ, "NO_COLOR": "1", "COLUMNS": "500"}
    command = [sys.executable, "-c", SCRIPT, json.dumps(commands)]
    with Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=settings):
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
    os.close(ours)
    return shown.decode().replace("\r\n", "\n").split("=====\n")[:-1]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's way to say that the other side is closed
        return b""


def unsafe(shown: str) -> str:
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(c for c in shown if c not in "\n\t" and unicodedata.category(c) in hidden)


def tensor(directory: Path) -> None:
    file = str(directory / "model.safetensors")
    tensors = mx.load(file)
    assert isinstance(tensors, dict)
    mx.save_safetensors(file, tensors | {f"model.{EVIL}.weight": mx.zeros((2,))})


def template(directory: Path) -> None:
    (directory / "chat_template.jinja").write_text("{{ raise_exception(" + repr(EVIL) + ") }}")


def token(directory: Path) -> None:
    file = directory / "tokenizer.json"
    file.write_text(json.dumps({"model": EVIL, "version": EVIL}))


WAYS: dict[str, tuple[dict[str, Any], Callable[[Path], None]]] = {
    "a tensor": ({}, tensor),
    "a chat template": ({}, template),
    "a tokenizer": ({}, token),
    "an activation": ({"hidden_act": EVIL}, lambda _: None),
    "a rope type": ({"rope_scaling": {"rope_type": EVIL, "factor": 2.0}}, lambda _: None),
    "an architecture": ({"model_type": EVIL}, lambda _: None),
}


def test_nothing_of_a_checkpoint_is_obeyed(checkpoint: Callable[..., Path]) -> None:
    commands, places = [], {}
    for number, (way, (changes, spoil)) in enumerate(WAYS.items()):
        directory = checkpoint(name=f"model{number}")
        config = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps(config | changes))
        spoil(directory)
        places[way] = directory
        backend = ["--backend", "mlx_cpu"]
        commands.append(["classify", "-m", str(directory), *backend, "--chat", "hello"])
    shown = dict(zip(places, on_terminal(commands), strict=True))
    assert {way: unsafe(text) for way, text in shown.items() if unsafe(text)} == {}
    assert [way for way, text in shown.items() if "Error: " not in text] == []
    assert [way for way, text in shown.items() if "Traceback" in text] == []
    named = {way for way, text in shown.items() if "pwned" in text}
    assert named >= {"a tensor", "a chat template", "an architecture"}
