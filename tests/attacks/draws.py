"""What the arguments of random calls are drawn from: valid values at their limits, and odd ones."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import core

HUGE, BIG = 10**400, 2**63
NAN, INF = float("nan"), float("inf")


class After:
    """Cancels when it was asked a few times."""

    def __init__(self, left: int) -> None:
        self.left = left

    def is_set(self) -> bool:
        """As an event does."""
        self.left -= 1
        return self.left < 0


class Vague:
    """Answers with something that is no bool."""

    def is_set(self) -> Any:
        """A list, which is falsy."""
        return []


def event(is_set: bool) -> threading.Event:
    found = threading.Event()
    if is_set:
        found.set()
    return found


WEIRD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 2**31 - 1, 2**31, 2**32, BIG, -BIG, 2**64, HUGE, -HUGE),
    *(0.0, -0.0, 0.5, 5e-324, 1e-320, 1e308, -1e308, NAN, INF, -INF, 1j, np.float32(0.5)),
    *("", "x", "0", "x" * 5000, "\ud800", "\0", b"", b"x", np.int64(3), np.zeros(3), object),
    *((), [], {}, set(), {"a": 1}, [[]], [None], ["a", "a"], [""], [HUGE], [-1], range(3), ...),
)
TEXTS: tuple[str, ...] = (
    *("The capital of France is", "a", " ", "\n\n", "ab ab", "It is fin", "2 + 2 =", "Hello, "),
    *(
        "½ é ü ß",
        "日本語のテキスト",
        "👩‍👩‍👧‍👦🏳️‍🌈",
        "e\u0301" * 9,
        "\u202eabc\u200f",
        "\u0000nul\u0000",
        "\ufeffx",
    ),
    *("<|im_start|>user\nhi<|im_end|>", "<bos><eos><pad>", "<start_of_turn>model\n", "<s></s>"),
    *(
        "\U0010ffff\ufdd0\U000f0000",
        "a\ud800b",
        "",
        "word " * 90,
        "!" * 5000,
        "\t" * 200,
        "\x7f\x80",
    ),
    *("The cat sat on the mat and", "The cat sat on the mat but", "The cat sat on the mat"),
)
LABELS: tuple[str, ...] = (
    "finance",
    "sports",
    "a",
    "b",
    "ab",
    "science fiction",
    "é",
    "日本",
    "👍",
)

# What each option may be: valid, however far from what anybody would ask for.
CALL: dict[str, tuple[Any, ...]] = {
    "max_tokens": (1, 2, 3, 5, 8, 40, np.int64(4)),
    "temperature": (0, 0.7, 1.0, 5e-324, 1e-30, 1e30, 1e308, np.float32(1)),
    "top_k": (0, 1, 2, 50, 10**6, 2**31, BIG, 10**30),
    "top_p": (1.0, 0.9, 0.1, 5e-324, 1 - 1e-16),
    "typical_p": (1.0, 0.9, 0.1, 5e-324, 1 - 1e-16),
    "min_p": (0.0, 0.05, 1.0, 5e-324, 1 - 1e-16),
    "repeat_penalty": (1.0, 1.3, 0.5, 5e-324, 1e-30, 1e30, 1e308),
    "seed": (None, 0, 1, 2**32, 2**64 - 1),
    "return_logprobs": (True, False),
    "cancel": (None, event(False), event(True), After(2), After(6), Vague()),
    "timeout": (None, 5e-324, 1e-3, 0.05, 1e9, 1e308),
}
GENERATE: dict[str, tuple[Any, ...]] = {
    **CALL,
    "max_tokens": (*CALL["max_tokens"], *CALL["max_tokens"], 10**6, BIG, HUGE),
    "stop": ((), "a", ".", ("\n", " the"), ("é", "👍", "x" * 3000), "\0", "\ud800"),
    "stop_tokens": ((), (0, 1, 2), [5] * 9, (10**9, BIG), range(200)),
}
CLASSIFY: dict[str, tuple[Any, ...]] = {
    **{name: values for name, values in CALL.items() if name != "max_tokens"},
    "return_logits": (True, False),
    "labels": ((), LABELS[:2], LABELS, ["a"], ("ab", "a", "b"), tuple("abcdefghijklmnopqrst")),
    "label_prefix": (" ", "", "\n", "Label: ", "é", "\ud800"),
    "labels_only": (True, False),
}
LOAD: dict[str, tuple[Any, ...]] = {
    "context_len": (0, 1, 2, 31, 64, 256, 512),
    "context_overflow": ("stop", "rotate"),
    "gpu_layers": (-1, 0),
    "parallel_slots": (0, 1, 3, 192),
    "adapter_path": (None,),
}
OWN: dict[str, dict[str, tuple[Any, ...]]] = {
    "llama_cpp": {
        "cache_cells": (None, 256, 512, 4096, 5000),
        "flash_attn": (None, True, False),
        "log_level": ("off", "error"),
        "n_batch": (None, 32, 192, 512, 2**20),
        "n_threads": (1, 1, 2, 3, 512),
        "n_ubatch": (None, 1, 31, 32),
    },
    "mlx_cpu": {
        "dequantize": (True, False),
        "dtype": ("float32", "float16", "bfloat16"),
        "length_step": (1, 8, 2**40),
        "prefill_chunk": (1, 16, 2**40),
        "prefix_cache": (0, 1, 2**16, 2**40),
        "token_budget": (1, 64, 2**40),
    },
    "mlx_lm": {
        "env": ({}, {"A": "b"}, {"A=": "b"}, {"": "b"}, {"A": "\0"}, {"\ud800": "\ud800"}),
        "prefill_step_size": (1, 512, 2**63),
        "silence_timeout": (5e-324, 30, 1e308),
    },
}


def some(dice: random.Random, known: dict[str, tuple[Any, ...]], odd: float = 0.04) -> Any:
    """A few of the options; now and then one of another kind, or one that nobody knows."""
    names = dice.sample(sorted(known), dice.choice((0, 1, 1, 2, 3, 5)) % (len(known) + 1))
    found = {name: dice.choice(WEIRD if dice.random() < odd else known[name]) for name in names}
    if dice.random() < odd / 2:
        found[dice.choice(("max_token", "backend", "labels", "self", ""))] = dice.choice(WEIRD)
    return found


def text(dice: random.Random) -> str:
    kind = dice.random()
    if kind < 0.7:
        return dice.choice(TEXTS)
    if kind < 0.85:
        return dice.choice(TEXTS) + dice.choice(TEXTS)
    points = dice.choice(((0, 128), (0, 0x3000), (0, 0x110000), (0x1F300, 0x1FAFF)))
    return "".join(chr(dice.randrange(*points)) for _ in range(dice.randrange(20)))


def several(dice: random.Random, make: Callable[[random.Random], Any]) -> Any:
    """A batch, sometimes in a shape that is none."""
    rows = [make(dice) for _ in range(dice.choice((0, 1, 2, 3, 5, 9)))]
    kind = dice.random()
    if kind < 0.03:
        return dice.choice(WEIRD)
    if kind < 0.06:
        return [*rows, dice.choice(WEIRD)]
    return rows if kind < 0.8 else tuple(rows) if kind < 0.9 else iter(rows)


def ids(dice: random.Random) -> list[Any]:
    pool: tuple[Any, ...] = (0, 1, 2, 5, 40, 100, 101, 49151, 49152, 262143, 262144)
    found = [
        dice.choice(pool[: dice.choice((6, 6, 11))]) for _ in range(dice.choice((0, 1, 4, 80)))
    ]
    return [*found, dice.choice(WEIRD)] if dice.random() < 0.1 else found


def message(dice: random.Random) -> Any:
    role: Any = dice.choice(("system", "user", "assistant", "user"))
    content: Any = text(dice)
    kind = dice.random()
    if kind < 0.03:
        return {"role": role, "content": content}
    if kind < 0.06:
        return core.Message(dice.choice(WEIRD), content)
    return core.Message(role, dice.choice(WEIRD) if kind < 0.09 else content)


def bounded(dice: random.Random, options: dict[str, Any]) -> dict[str, Any]:
    """The options, with an end to what would go on for long."""
    most = options.setdefault("max_tokens", dice.choice((1, 2, 4)))
    if isinstance(most, int) and most > 100:
        options["timeout"] = dice.choice((0.01, 0.1))
    return options
