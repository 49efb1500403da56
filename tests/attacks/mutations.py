"""One to three things wrong with a file of a model directory: its JSON, its tensors, its bytes."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from typing import Any

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
    ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "/////w=="}),
    ("chat_template", "{{ raise_exception('no') }}"),
    ("bos_token", "\ud800"),
)
# Templates that ask for more time or memory than a conversation is worth.
TEMPLATES = (
    "{% for i in range(99999) %}{% if (messages|list|sort)[0] %}{% endif %}{% endfor %}",
    "{% set x = 'a ' * 2500000 %}{{ x|wordwrap(1)|length }}",
    "{{ [1]|slice(10**9)|list|length }}",
    "{{ lipsum(n=1, min=10**7, max=10**7 + 1)|length }}",
    "{% set x = 'a' * 9000000 %}{% for i in range(99999) %}{{ x.count('aa') }}{% endfor %}",
    "{% for i in range(447) %}{% for j in range(446) %}{{ i * j }}{% endfor %}{% endfor %}",
    "{% set x = ('a' * 999999) %}{{ [x, x, x, x]|map('list')|list|length }}",
    "{{ messages|map(attribute='content')|join('x' * 5000000)|length }}",
    "{{ raise_exception('\x1b[31m' ~ messages[0].content) }}",
)


def mutated(data: bytes, name: str, dice: random.Random) -> bytes:
    """The file's content with one to three things wrong with it."""
    kinds = {".json": mutate_json, ".safetensors": mutate_tensors, ".jinja": mutate_template}
    mutate = next(kind for suffix, kind in kinds.items() if name.endswith(suffix))
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        data = mutate(data, dice)
    return data


def mutate_template(data: bytes, dice: random.Random) -> bytes:
    return dice.choice(TEMPLATES).encode() if dice.random() < 0.4 else mutate_bytes(data, dice)


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
