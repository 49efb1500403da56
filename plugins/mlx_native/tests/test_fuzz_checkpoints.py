"""Checkpoints mutated at random: each is a `core.CoreError` or a model that still answers.

Every family's mutations run in a child process, so that a crash or a hang is seen and named: the
child prints the seed of a mutation before it tries it. One mutation again, with its traceback::

    python plugins/mlx_native/tests/test_fuzz_checkpoints.py DIRECTORY SEED 1
"""

from __future__ import annotations

import faulthandler
import json
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_native.backend import Cpu

Checkpoint = Callable[..., Path]

PER_CHECKPOINT = 112  # times nine checkpoints: a bit over 1,000
HANG_SECONDS = 20  # a load here takes 0.01
MEMORY_BYTES = 16 * 2**30  # of addresses: what asks for more has believed a lying size
FILES = ("config.json", "model.safetensors", "tokenizer.json", "model.safetensors.index.json")
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
CHECKPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama3": ("llama", {"rope_scaling": LLAMA3_ROPE}),
    "mistral": ("llama", {"model_type": "mistral", "sliding_window": 8}),
    "qwen2": (
        "llama",
        {
            "model_type": "qwen2",
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 1,
        },
    ),
    "qwen3": ("llama", {"model_type": "qwen3", "head_dim": 8, "tie_word_embeddings": True}),
    "gemma2": (
        "gemma3",
        {
            "model_type": "gemma2",
            "rope_local_base_freq": None,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
    ),
    "gemma3": ("gemma3", {}),
    "sharded": ("llama", {}),
    "quantised": ("llama", {"hidden_size": 64, "intermediate_size": 64}),
}


# ------------------------------------------------------------ mutations

WEIRD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 2**15, 2**31 - 2, 2**31, 2**32, 2**63, 10**400),
    *(0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        "x",
        "x" * 5000,
        "llama",
        "gemma2",
        "gemma3_text",
        "qwen3",
        "linear",
        "llama3",
        "F32",
        "\ud800",
    ),
    *([], {}, [[]], [0], {"a": 1}, [None] * 3, [2**40, 2**40], [-1, 4], ["full_attention"] * 2),
)
# Keys that a config may have and these do not, with values that lie.
EXTRA: tuple[tuple[str, Any], ...] = (
    ("quantization", {"bits": 4, "group_size": 64}),
    ("quantization", {"bits": 4, "group_size": 32, "lm_head": {"bits": 3}}),
    ("quantization_config", {"quant_method": "awq"}),
    ("text_config", {"hidden_size": 16}),
    ("rope_parameters", {"full_attention": {"rope_theta": 5.0}, "sliding_attention": None}),
    ("rope_parameters", {"rope_type": "llama3", "factor": 1e300, "low_freq_factor": 1}),
    ("rope_scaling", {"type": "linear", "factor": 1e-300}),
    ("sliding_window", 2**31 - 1),
    ("layer_types", ["sliding_attention", "full_attention"]),
    ("head_dim", 2**31 - 2),
    ("query_pre_attn_scalar", 1e-320),
    ("attn_logit_softcapping", -1.0),
    ("final_logit_softcapping", float("inf")),
)


def mutated(data: bytes, name: str, dice: random.Random) -> bytes:
    """The file's content with one to three things wrong with it."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        data = (mutate_json if name.endswith(".json") else mutate_tensors)(data, dice)
    return data


def mutate_json(data: bytes, dice: random.Random) -> bytes:
    if dice.random() < 0.25:
        return mutate_bytes(data, dice)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):  # an earlier mutation broke it
        return mutate_bytes(data, dice)
    return json.dumps(mutate_value(value, dice)).encode()


def mutate_value(value: Any, dice: random.Random) -> Any:
    """Change one thing somewhere in a parsed JSON value, in place where that is possible."""
    places = list(containers(value))
    if not places:
        return dice.choice(WEIRD)
    place = dice.choice(places)
    if isinstance(place, dict) and (not place or dice.random() < 0.3):
        name, extra = dice.choice(EXTRA)
        place[name] = extra
        return value
    keys = list(place) if isinstance(place, dict) else range(len(place))
    if not keys:
        place.append(dice.choice(WEIRD))
        return value
    key, other = dice.choice(keys), dice.choice(keys)
    kind = dice.randrange(5)
    if kind == 0:
        del place[key]
    elif kind == 1:
        place[key] = place[other]
    elif kind == 2 and isinstance(place[key], int | float):
        place[key] = place[key] * dice.choice((-1, 2, 1000)) + dice.choice((-1, 0, 1))
    elif kind == 3 and isinstance(place, dict):
        place[dice.choice(("", "x", str(key) + "s"))] = place.pop(key)
    else:
        place[key] = dice.choice(WEIRD)
    return value


def containers(value: Any) -> Iterator[Any]:
    """The objects and lists inside a JSON value, itself included, down to long lists' first."""
    if isinstance(value, dict | list):
        yield value
        for inside in list(value.values() if isinstance(value, dict) else value)[:40]:
            yield from containers(inside)


def mutate_tensors(data: bytes, dice: random.Random) -> bytes:
    """A safetensors file: its header's JSON, its length field, or any of its bytes."""
    kind = dice.random()
    size = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else len(data)
    if kind < 0.1 or size > len(data) - 8:
        return mutate_bytes(data, dice)
    if kind < 0.2:
        return struct.pack("<Q", dice.choice((0, 1, size - 1, size + 8, 2**40, 2**63))) + data[8:]
    header = mutate_json(data[8 : 8 + size], dice)
    length = len(header) if dice.random() < 0.9 else size
    return struct.pack("<Q", length) + header + data[8 + size :]


def mutate_bytes(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data) + 1)
    end = min(len(data), at + dice.choice((1, 1, 4, 100)))
    kind = dice.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[end:]
    if kind == 2:
        return data[:at] + dice.randbytes(end - at) + data[end:]
    if kind == 3:
        return data[:at] + dice.choice((b"[" * 5000, b'{"a":' * 500, b"\0", b"9" * 400)) + data[at:]
    return data[:end] + data[at:]


# ------------------------------------------------------------ the child


def attempt(source: Path, seed: int) -> str:
    """Load one mutation of a checkpoint and ask it something; what came of it."""
    dice = random.Random(f"{source.name} {seed}")
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "model"
        shutil.copytree(source, directory)
        file = dice.choice([path for path in sorted(directory.iterdir()) if is_target(path)])
        file.write_bytes(mutated(file.read_bytes(), file.name, dice))
        try:
            with Cpu().load_model(directory, core.LoadConfig()) as model:
                model.classify(["ab abc no ab"])
        except core.CoreError as error:
            return type(error).__name__
    return "loaded"


def is_target(path: Path) -> bool:
    return path.name in FILES or path.suffix == ".safetensors"


def limit_memory() -> None:
    """On Linux alone: elsewhere a GPU's driver may reserve more addresses than that."""
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def main() -> None:
    """Try ``count`` mutations from ``first`` on."""
    source, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    limit_memory()
    for seed in range(first, first + count):
        print(seed, end=" ", flush=True)  # noqa: T201
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        print(attempt(source, seed), flush=True)  # noqa: T201
    faulthandler.cancel_dump_traceback_later()


# ------------------------------------------------------------ the tests


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_no_mutation_ends_in_anything_but_a_core_error(name: str, checkpoint: Checkpoint) -> None:
    family, changes = CHECKPOINTS[name]
    directory = checkpoint(family, name, **changes)
    PREPARATIONS.get(name, lambda _: None)(directory)
    command = [sys.executable, __file__, str(directory), "0", str(PER_CHECKPOINT)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=600)
    lines = child.stdout.splitlines()
    assert child.returncode == 0, f"{name}: seed {lines[-1:]}\n{child.stderr[-3000:]}"
    outcomes = [line.split()[1] for line in lines]
    assert len(outcomes) == PER_CHECKPOINT
    # Neither all broken nor all harmless: the mutations reach what they are meant to reach.
    assert {"loaded", "InvalidModelError"} <= set(outcomes)


def shard(directory: Path) -> None:
    import mlx.core as mx

    whole = directory / "model.safetensors"
    tensors = mx.load(str(whole))
    assert isinstance(tensors, dict)
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in shards.items():
        mx.save_safetensors(str(directory / file), {name: tensors[name] for name in held})
    whole.unlink()
    weight_map = {name: file for file, held in shards.items() for name in held}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def quantize(directory: Path) -> None:
    import mlx.core as mx

    whole = directory / "model.safetensors"
    tensors = mx.load(str(whole))
    assert isinstance(tensors, dict)
    packed: dict[str, mx.array] = {}
    for name, tensor in tensors.items():
        if tensor.ndim < 2:
            packed[name] = tensor
            continue
        layer = name.removesuffix(".weight")
        parts = mx.quantize(tensor, group_size=32, bits=4)
        packed |= dict(zip((name, f"{layer}.scales", f"{layer}.biases"), parts, strict=True))
    mx.eval(packed)  # before the file that they come from is written over
    mx.save_safetensors(str(whole), packed)
    config = json.loads((directory / "config.json").read_text())
    config["quantization"] = {"bits": 4, "group_size": 32}
    config["quantization"]["model.layers.0.mlp.up_proj"] = {"bits": 4, "group_size": 32}
    (directory / "config.json").write_text(json.dumps(config))


PREPARATIONS = {"sharded": shard, "quantised": quantize}


if __name__ == "__main__":
    main()
