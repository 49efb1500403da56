"""A tiny random Llama in GGUF, written to disk as a user's model would be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

# Threads that wait for one another without sleeping take minutes where other programs run.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import gguf
import numpy as np
import pytest

import core

if TYPE_CHECKING:
    from core_llama_cpp.model import LlamaModel

LAYERS, HIDDEN, HEADS, KV_HEADS, FEED_FORWARD, CONTEXT = 2, 64, 4, 2, 96, 512
WORDS = ["<s>", "</s>", *map(chr, range(33, 127)), "Ġ", "Ġa", "Ġb", "ab", "Ġab"]
MERGES = ["Ġ a", "Ġ b", "a b", "Ġa b"]

TEMPLATE = "{% for message in messages %}{{ message.content | trim }}!{% endfor %}"

TinyGguf = Callable[..., Path]


def _as_they_are(weights: dict[str, np.ndarray]) -> None:
    """Change nothing."""


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> TinyGguf:
    """Writes a model of under 1 MB and returns its (first) file.

    ``change``: metadata by key, None leaves a key out; ``shards``: files to split it into;
    ``added``: what to add to weights, by their names; ``words``: what the embedding has rows for;
    ``edit`` changes the weights in place.
    """

    def write(
        name: str = "tiny",
        architecture: str = "llama",
        change: Mapping[str, object] | None = None,
        shards: int = 1,
        tensors: bool = True,
        added: Mapping[str, np.ndarray] | None = None,
        words: Sequence[str] = WORDS,
        edit: Callable[[dict[str, np.ndarray]], None] = _as_they_are,
    ) -> Path:
        path = tmp_path / f"{name}.gguf"
        path.parent.mkdir(parents=True, exist_ok=True)
        weights = _weights(len(words), architecture) if tensors else {}
        edit(weights)
        limit = -(-len(weights) // shards) if shards > 1 else 0
        writer = gguf.GGUFWriter(path, architecture, split_max_tensors=limit)
        for key, value in {**_metadata(architecture), **(change or {})}.items():
            if value is not None:
                _add(writer, key, value)
        writer.data_alignment = _alignment(change)
        for tensor, values in weights.items():
            writer.add_tensor(tensor, values + (added or {}).get(tensor, np.float32(0)))
        _finish(writer)
        return path if shards == 1 else min(tmp_path.glob(f"{name}-*-of-*.gguf"))

    return write


LoraGguf = Callable[..., Path]


@pytest.fixture
def lora_gguf(tmp_path: Path) -> LoraGguf:
    """Writes a LoRA adapter as llama.cpp's convert_lora_to_gguf.py does, and returns its file.

    ``tensors``: A [rank, in] and B [out, rank] by the weight's name, which becomes
    W + ``alpha`` / rank * B A. Without them, an adapter of the tiny model. ``more``: metadata.
    """

    def write(
        name: str = "lora",
        tensors: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
        alpha: float = 4.0,
        architecture: str = "llama",
        more: Mapping[str, object] | None = None,
    ) -> Path:
        writer = gguf.GGUFWriter(tmp_path / f"{name}.gguf", architecture)
        for key, value in (more or {}).items():
            _add(writer, key, value)
        writer.add_string("general.type", "adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", alpha)
        if tensors is None:
            random = np.random.default_rng(3).normal(0.0, 0.5, (2, HIDDEN)).astype(np.float32)
            tensors = {"blk.1.attn_output.weight": (random, random.T.copy())}
        for weight, pair in tensors.items():
            for letter, values in zip("ab", pair, strict=True):
                writer.add_tensor(f"{weight}.lora_{letter}", values)
        _finish(writer)
        return tmp_path / f"{name}.gguf"

    return write


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _metadata(architecture: str) -> dict[str, object]:
    sizes = {
        "context_length": CONTEXT,
        "embedding_length": HIDDEN,
        "block_count": LAYERS,
        "feed_forward_length": FEED_FORWARD,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": HIDDEN // HEADS,
    }
    return {
        **{f"{architecture}.{name}": value for name, value in sizes.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": WORDS,
        "tokenizer.ggml.token_type": [3, 3, *[1] * (len(WORDS) - 2)],
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, str(value))


def _alignment(change: Mapping[str, object] | None) -> int:
    """What the file says, where that can be written."""
    asked = (change or {}).get("general.alignment", 32)
    return asked if isinstance(asked, int) and asked > 0 else 32


def _weights(words: int, architecture: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    kv, head = HIDDEN * KV_HEADS // HEADS, (words, HIDDEN)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": head, "output_norm": (HIDDEN,)}
    for layer in range(LAYERS):
        block = {
            "attn_norm": (HIDDEN,),
            "attn_q": (HIDDEN, HIDDEN),
            "attn_k": (kv, HIDDEN),
            "attn_v": (kv, HIDDEN),
            "attn_output": (HIDDEN, HIDDEN),
            "ffn_norm": (HIDDEN,),
            "ffn_gate": (FEED_FORWARD, HIDDEN),
            "ffn_up": (FEED_FORWARD, HIDDEN),
            "ffn_down": (HIDDEN, FEED_FORWARD),
        }
        if architecture == "gemma3":
            block |= dict.fromkeys(("attn_q_norm", "attn_k_norm"), (HIDDEN // HEADS,))
            block |= dict.fromkeys(("post_attention_norm", "post_ffw_norm"), (HIDDEN,))
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    shapes["output"] = head
    return {
        f"{name}.weight": random.normal(0.0, 0.2, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


@pytest.fixture
def windowed_gguf(tiny_gguf: TinyGguf) -> Path:
    """A tiny Gemma 3 whose first layer sees the last 24 tokens, and whose second one sees all."""
    own = {
        "attention.sliding_window": 24,
        "attention.sliding_window_pattern": 2,
        "attention.key_length": HIDDEN // HEADS,
        "attention.value_length": HIDDEN // HEADS,
    }
    change = {f"gemma3.{key}": value for key, value in own.items()}
    return tiny_gguf("windowed", "gemma3", {**change, "tokenizer.chat_template": TEMPLATE})


@pytest.fixture(scope="session")
def smollm2_model(smollm2_gguf: Path) -> Iterator[LlamaModel]:
    """SmolLM2 on one thread, with few slots and a short context."""
    yield from _opened(smollm2_gguf)


@pytest.fixture(scope="session")
def gemma3_model(gemma3_gguf: Path) -> Iterator[LlamaModel]:
    """Gemma 3, likewise."""
    yield from _opened(gemma3_gguf)


@pytest.fixture(params=["smollm2", "gemma3"])
def real_model(request: pytest.FixtureRequest) -> LlamaModel:
    """Both, one after the other."""
    return cast("LlamaModel", request.getfixturevalue(f"{request.param}_model"))


@pytest.fixture
def tiny_model(tiny_gguf: TinyGguf) -> Iterator[LlamaModel]:
    """The tiny model with two slots."""
    yield from _opened(tiny_gguf(), slots=2, context_len=0)


@pytest.fixture
def plain_llama(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path, LlamaModel], Any]]:
    """Opens llama-cpp-python's own model, with the kernels that the given one has.

    It has no option for unpacked weights, so its parameters get them where they are made.
    """
    import llama_cpp

    params = llama_cpp.llama_cpp.llama_model_default_params

    def unpacked() -> Any:
        found = params()
        found.use_extra_bufts = False
        return found

    opened: list[Any] = []

    def open_llama(path: Path, model: LlamaModel) -> Any:
        session = model._loaded.session
        llama = llama_cpp.Llama(
            str(path),
            n_ctx=512,
            n_ubatch=session.settings.n_ubatch,
            n_threads=1,
            n_threads_batch=1,
            flash_attn=True,
            logits_all=True,
            swa_full=True,
            verbose=False,
        )
        opened.append(llama)
        return llama

    monkeypatch.setattr(llama_cpp.llama_cpp, "llama_model_default_params", unpacked)
    yield open_llama
    for llama in opened:
        llama.close()


def _opened(path: Path, slots: int = 4, context_len: int = 1024) -> Iterator[LlamaModel]:
    model = core.load_model(
        path,
        backend="llama_cpp",
        context_len=context_len,
        parallel_slots=slots,
        options={"n_threads": 1},
    )
    with model:
        yield cast("LlamaModel", model)
