"""What the process costs that renders chat templates: milliseconds a prompt, by template.

Prints one JSON object. ``ms`` is a rendering as ``chat`` does it (special tokens defused, through
the process); ``jinja_ms`` is the same template in jinja alone, in this process; ``first_ms`` is a
program's first rendering, which starts the process. The marks are 5 ms and 250 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from core.kit.chat import FORMATS
from core.types import Message
from core_runtime.chat.prompts import ChatPrompts

TEMPLATES = Path(__file__).parents[1] / "plugins/mlx_native/tests/chat_templates/templates"
FIRST = """
import time
from core.types import Message
start = time.perf_counter()
from core_runtime.chat.prompts import ChatPrompts
ChatPrompts({template!r}, {{}}, {{}}).render([Message("user", "Hello")])
print(1000 * (time.perf_counter() - start))
"""
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}"
)  # as in Mistral-7B-Instruct-v0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--runs", type=int, default=201, help="runs of each; default 201")
    parser.add_argument("--turns", type=int, default=9, help="messages; default 9")
    parser.add_argument("--characters", type=int, default=2000, help="of each; default 2000")
    arguments = parser.parse_args()
    turns = [
        Message(
            "assistant" if turn % 2 else "user", "A <b>word</b>. " * (arguments.characters // 15)
        )
        for turn in range(arguments.turns)
    ]
    found = {
        name: measured(template, turns, arguments.runs) for name, template in templates().items()
    }
    print(json.dumps({"first_ms": first(), "templates": found}, indent=1))


def templates() -> dict[str, str]:
    """By name: the published ones that the tests hold, the built-in formats, Mistral's."""
    published = {path.stem: path.read_text("utf-8") for path in sorted(TEMPLATES.glob("*.jinja"))}
    built_in = {f"format {known.mark}": known.template for known in FORMATS}
    return published | built_in | {"mistral": MISTRAL}


def measured(template: str, turns: list[Message], runs: int) -> dict[str, float]:
    """Medians, taken in turns, so that a slow moment of the machine falls on both."""
    variables = {"bos_token": "<s>", "eos_token": "</s>"}
    special = {f"<unused{number}>": number for number in range(6400)}  # as many as Gemma 3 has
    chat = ChatPrompts(template, variables, special)
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.globals["strftime_now"] = time.strftime
    plain = environment.from_string(template)
    rows = [{"role": turn.role, "content": turn.content} for turn in turns]

    def in_jinja() -> str:
        return plain.render(messages=rows, add_generation_prompt=True, tools=None, **variables)

    assert chat.render(turns) == in_jinja()
    pairs = [(taken(lambda: chat.render(turns)), taken(in_jinja)) for _ in range(runs)]
    ours, jinja = (statistics.median(column) for column in zip(*pairs, strict=True))
    worst = max(pair[0] for pair in pairs)
    return {
        name: round(value, 3)
        for name, value in (
            ("ms", ours), ("worst_ms", worst), ("jinja_ms", jinja), ("ratio", ours / jinja)
        )
    }  # fmt: skip


def taken(work: Callable[[], object]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


def first() -> float:
    """The median of seven programs' first renderings, imports included."""
    command = [sys.executable, "-c", FIRST.format(template=FORMATS[0].template)]
    runs = [float(subprocess.check_output(command, text=True)) for _ in range(7)]
    return round(statistics.median(runs), 1)


if __name__ == "__main__":
    main()
