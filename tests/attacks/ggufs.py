"""GGUF files with something wrong in them, loaded and used as far as they let one."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import gguf_file
from .gguf_file import ARRAY, NUMBERS, STRING, GgufFile, Tensor, Value
from .mutations import TEMPLATES, mutate_bytes
from .tiny_models import gguf
from .using import outcome

NUMBER = (
    *(0, 1, 2, 3, 4, 8, 31, 64, 127, 255, 513, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**63, -1, -2),
    *(0.0, -1.0, 1e-30, 1e30, float("nan"), float("inf"), float("-inf")),
)
TEXT = (b"", b"x", b"llama", b"gpt2", b"gemma3", b"qwen2", b"bert", b"a\0b", b"\xff", b"x" * 9999)
# Keys that a file may have and these do not, by their last part where it is the architecture's.
ADDED: tuple[tuple[str, Value], ...] = (
    ("general.alignment", Value(4, 8)),
    ("general.alignment", Value(4, 1)),
    ("general.alignment", Value(4, 0)),
    ("general.architecture", Value(STRING, b"gemma3")),
    ("split.count", Value(2, 3)),
    ("tokenizer.ggml.add_bos_token", Value(7, True)),
    ("tokenizer.ggml.eot_token_id", Value(4, 2**31)),
    ("tokenizer.ggml.pre", Value(STRING, b"nothing-known")),
    ("tokenizer.ggml.precompiled_charsmap", Value(ARRAY, [255, 255, 255, 47], 0)),
    ("{}.attention.causal", Value(7, False)),
    ("{}.attention.key_length", Value(4, 3)),
    ("{}.attention.sliding_window", Value(4, 2**31)),
    ("{}.expert_count", Value(4, 8)),
    ("{}.expert_used_count", Value(4, 9)),
    ("{}.leading_dense_block_count", Value(4, 2**31)),
    ("{}.pooling_type", Value(4, 1)),
    ("{}.rope.freq_base", Value(6, 0.0)),
    ("{}.rope.scaling.factor", Value(6, -1.0)),
    ("{}.rope.scaling.type", Value(STRING, b"yarn")),
    ("{}.rope.scaling.original_context_length", Value(4, 0)),
    ("{}.vocab_size", Value(4, 7)),
)
KINDS = (*range(45), 2**31, 2**32 - 1)  # of tensors
Mutate = Callable[[GgufFile, random.Random], None]


def prepare(place: Path, variant: str) -> Callable[[int], str]:
    """The case's number is the seed of what is wrong; ``variant``: ``llama``, ``sentencepiece``,
    or ``lora``, where the adapter is broken and its model is not."""
    base = gguf(place, "llama" if variant == "lora" else variant)
    source = gguf(place, "lora") if variant == "lora" else base
    assert _outcome(source, base) == "loaded"
    mutant = place / "mutated.gguf"

    def case(number: int) -> str:
        dice = random.Random(f"{variant} {number}")
        mutant.unlink(missing_ok=True)  # a model may have the one before it mapped
        mutant.write_bytes(mutated(source, dice))
        return _outcome(mutant, base if variant == "lora" else mutant)

    return case


def _outcome(file: Path, model: Path) -> str:
    adapter = {} if file == model else {"adapter_path": file}
    options = {"n_threads": 1}
    return outcome(model, "llama_cpp", parallel_slots=2, options=options, **adapter)


def mutated(source: Path, dice: random.Random) -> bytes:
    """The file with one to three things wrong in its parts, its bytes, or both."""
    file = gguf_file.read(source)
    for _ in range(dice.choice((0, 1, 1, 1, 2, 3))):
        dice.choice(MUTATIONS)(file, dice)
    data = file.encoded()
    if data != source.read_bytes() and dice.random() < 0.9:
        return data
    head = len(data) - len(file.data)
    end = head if dice.random() < 0.8 else len(data)
    return mutate_bytes(data[:end], dice) + data[end:]


def _set(file: GgufFile, dice: random.Random) -> None:
    """Another value, mostly of the type that was there."""
    if not file.metadata:
        return
    key, value = dice.choice(file.metadata)
    if key == b"tokenizer.chat_template" and dice.random() < 0.7:
        value.value = dice.choice(TEMPLATES).encode()
    elif value.kind == ARRAY:
        _set_item(value, dice)
    elif dice.random() < 0.2:
        value.kind = dice.choice((*NUMBERS, STRING))
    else:
        value.value = _drawn(value.kind, dice)


def _set_item(value: Value, dice: random.Random) -> None:
    items: list[Any] = value.value
    kind, at = dice.randrange(6), dice.randrange(len(items) or 1)
    if kind == 0:
        del items[at:]
    elif kind == 1:
        items[at : at + 1] = []
    elif kind == 2:
        items.extend(items[at : at + 9])
    elif kind == 3:
        value.items = dice.choice((*NUMBERS, STRING))
    elif items:
        other = dice.choice(items)
        near = other + b"\0b" if isinstance(other, bytes) and kind == 4 else other
        items[at] = dice.choice((near, _drawn(value.items, dice)))


def _drawn(kind: int, dice: random.Random) -> Any:
    return dice.choice(TEXT if kind == STRING else NUMBER)


def _drop(file: GgufFile, dice: random.Random) -> None:
    if file.metadata:
        del file.metadata[dice.randrange(len(file.metadata))]


def _add(file: GgufFile, dice: random.Random) -> None:
    name, value = dice.choice(ADDED)
    places = [i for i, (key, _) in enumerate(file.metadata) if key == name.encode()]
    pair = name.format("llama").encode(), value
    file.metadata[places[0] if places else len(file.metadata) :] = [pair]


def _rename(file: GgufFile, dice: random.Random) -> None:
    """Two keys change their values, or one occurs twice."""
    if len(file.metadata) > 1:
        one, two = dice.sample(range(len(file.metadata)), 2)
        (key, value), (other, _) = file.metadata[one], file.metadata[two]
        file.metadata[two] = (dice.choice((key, other)), value)


def _tensor(file: GgufFile, dice: random.Random) -> None:
    if not file.tensors:
        return
    tensor = dice.choice(file.tensors)
    kind = dice.randrange(7)
    if kind <= 1:
        tensor.kind = dice.choice(KINDS)
    elif kind == 2:
        tensor.shape[dice.randrange(len(tensor.shape))] = dice.choice((0, 1, 32, 2**31, 2**63))
    elif kind == 3:
        tensor.shape = dice.choice((tensor.shape[::-1], tensor.shape[:1], [*tensor.shape, 1, 1, 1]))
    elif kind == 4:
        tensor.offset = dice.choice((0, 1, 32, len(file.data), 2**63, tensor.offset + 4))
    elif kind == 5:
        tensor.name = dice.choice((b"", b"x", dice.choice(file.tensors).name, tensor.name + b"\0"))
    else:
        file.tensors.remove(tensor)


def _counts(file: GgufFile, dice: random.Random) -> None:
    counts = len(file.tensors), len(file.metadata)
    file.counts = dice.choice(((0, counts[1]), (counts[0], 2**40), (2**63, 1), (counts[0] + 1, 0)))
    file.version = dice.choice((1, 2, 3, 3, 4, 2**24))


def _data(file: GgufFile, dice: random.Random) -> None:
    """Fewer bytes than the header says, or numbers that are none."""
    at = dice.randrange(len(file.data))
    file.data = dice.choice((file.data[:at], file.data[:at] + b"\xff" * 64 + file.data[at + 64 :]))


MUTATIONS: tuple[Mutate, ...] = (_set, _set, _set, _tensor, _tensor, _drop, _add, _rename, _counts)
MUTATIONS += (_data,)


__all__ = ["Tensor", "mutated", "prepare"]
