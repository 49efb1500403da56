"""Models loaded with an adapter: every operation, and several adapters over one base."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import core
from core.models.fingerprint import fingerprint, fingerprint_of
from core_mlx_native.model import MlxModel
from plugins.mlx_native.tests.adapters.conftest import TARGETS, Write, drawn
from runtime.tests.tiny import Checkpoint

PROMPTS = ["a ab abc", "no ab", "abc no no no a b ab"]
LABELS = ("a", "no")
TOLERANCE = 1e-4
VISIBLE = 1e-2


def load(path: Path, adapter: Path | None = None, **options: Any) -> MlxModel:
    model = core.load_model(path, backend="mlx_cpu", adapter_path=adapter, options=options)
    assert isinstance(model, MlxModel)
    return model


def merge(model: Path, adapter: Path, target: Path) -> Path:
    """The model with the adapter in its weights, by plain arithmetic."""
    target.mkdir()
    for file in model.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    tensors = mx.load(str(model / "model.safetensors"))
    added = mx.load(str(adapter / "adapters.safetensors"))
    assert isinstance(tensors, dict)
    assert isinstance(added, dict)
    for name in [name for name in added if name.endswith("lora_a")]:
        stem = name.removesuffix(".lora_a")
        delta = 2.0 * (added[name] @ added[f"{stem}.lora_b"]).T
        tensors[f"{stem}.weight"] = tensors[f"{stem}.weight"] + delta
    mx.save_safetensors(str(target / "model.safetensors"), tensors)
    return target


def classified(model: core.TextModel) -> list[float]:
    rows = model.classify(PROMPTS, return_logits=True, labels=LABELS)
    return [x for row in rows for x in (*(row.logits or ()), *(row.logprobs or {}).values())]


def scored(model: core.TextModel) -> list[float]:
    assert isinstance(model, core.Scoring)
    return [score.logprob for score in model.score(PROMPTS, [" ab"] * len(PROMPTS))]


def hidden(model: core.TextModel) -> list[float]:
    assert isinstance(model, core.HiddenStates)
    rows = model.hidden_states(PROMPTS, layers=(0, 1, -1))
    return [x for row in rows for state in row.vectors for x in state]


def generated(model: core.TextModel) -> list[float]:
    rows = model.batch_generate(PROMPTS, max_tokens=6, return_logprobs=True)
    return [x for row in rows for token in row.tokens for x in (token.id, token.logprob or 0)]


def attended(model: core.TextModel) -> list[float]:
    assert isinstance(model, core.AttentionInspector)
    seen = model.inspect_attention(PROMPTS[0])
    return [x for layer in seen.keys for head in layer for x in head]


OPERATIONS: dict[str, Callable[[core.TextModel], list[float]]] = {
    "classify": classified,
    "score": scored,
    "hidden_states": hidden,
    "batch_generate": generated,
    "inspect_attention": attended,
}


def distance(one: list[float], other: list[float]) -> float:
    assert len(one) == len(other) > 0
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen2"])
def test_every_operation_is_that_of_the_merged_model(
    family: str, checkpoint: Checkpoint, lora: Write, tmp_path: Path
) -> None:
    path = checkpoint(family)
    adapter = lora(drawn(path))
    merged = merge(path, adapter, tmp_path / "merged")
    with load(path) as base, load(path, adapter) as model, load(merged) as wanted:
        for name, operation in OPERATIONS.items():
            found, right = operation(model), operation(wanted)
            assert distance(found, right) < TOLERANCE, name
            changed = operation(base)
            assert changed != right, f"{name} does not tell"


def test_what_was_chosen_names_the_adapter(checkpoint: Checkpoint, lora: Write) -> None:
    path = checkpoint()
    adapter = lora(drawn(path))
    with load(path, adapter) as model:
        [choice] = [choice for choice in model.choices() if choice.name == "adapter"]
        assert choice.value == "adapter"
        assert choice.reason == "LoRA of rank 2 on 6 linear maps, mlx-lm layout"
        with model.with_adapter(None) as plain:
            assert "adapter" not in [choice.name for choice in plain.choices()]


@pytest.fixture
def several(checkpoint: Checkpoint, lora: Write) -> tuple[Path, list[Path]]:
    """A model and two adapters of it."""
    path = checkpoint("llama")
    return path, [lora(drawn(path, seed), f"adapter{seed}") for seed in (1, 2)]


def test_handles_have_their_own_adapters(several: tuple[Path, list[Path]]) -> None:
    path, (one, two) = several
    with load(path) as base, load(path, one) as first, load(path, two) as second:
        wanted = [classified(model) for model in (base, first, second)]
        assert min(distance(wanted[a], wanted[b]) for a, b in ((0, 1), (0, 2), (1, 2))) > VISIBLE

        handles = [base.with_adapter(one), base.with_adapter(two), first.with_adapter(two)]
        handles += [first.with_adapter(None)]
        for handle, right in zip(handles, (1, 2, 2, 0), strict=True):
            assert distance(classified(handle), wanted[right]) < TOLERANCE
        assert distance(classified(base), wanted[0]) == 0
        for handle in handles:
            handle.close()


def test_nothing_kept_between_calls_is_anothers(several: tuple[Path, list[Path]]) -> None:
    """The same long prompt, asked of each in turn: prefixes and recalls would be found."""
    path, adapters = several
    prompt = " ".join(["ab abc no"] * 12)
    prompts = [f"{prompt} a", f"{prompt} b", f"{prompt} no"]

    def asked(model: core.TextModel) -> list[float]:
        found = [x for row in model.classify(prompts, return_logits=True) for x in row.logits or ()]
        rows = model.batch_generate(prompts, max_tokens=3, return_logprobs=True)
        return [*found, *(token.logprob or 0 for row in rows for token in row.tokens)]

    wanted = []
    for adapter in (None, *adapters):
        with load(path, adapter) as model:
            wanted.append(asked(model))

    with load(path) as base:
        models = [base, *(base.with_adapter(adapter) for adapter in adapters)]
        for _ in range(3):
            for model, right in zip(models, wanted, strict=True):
                assert distance(asked(model), right) < TOLERANCE
        assert all(model.metrics.cached_prompt_tokens for model in models), "nothing was kept"
        for model in models:
            model.close()


def test_handles_are_used_at_once_from_several_threads(several: tuple[Path, list[Path]]) -> None:
    path, (one, two) = several
    with load(path) as base, base.with_adapter(one) as first, base.with_adapter(two) as second:
        models = [base, first, second]
        wanted = [OPERATIONS["batch_generate"](model) for model in models]
        classes = [classified(model) for model in models]
        problems: list[str] = []

        def work(index: int) -> None:
            for _ in range(4):
                if distance(generated(models[index]), wanted[index]) > TOLERANCE:
                    problems.append(f"generate of {index}")
                if distance(classified(models[index]), classes[index]) > TOLERANCE:
                    problems.append(f"classify of {index}")

        threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1, 2, 0, 1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
        assert not problems


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_closing_in_any_order_closes_one_alone(
    order: tuple[int, int, int], several: tuple[Path, list[Path]]
) -> None:
    path, (one, two) = several
    gc.collect()  # models of other tests may still be cyclic garbage
    before = mx.get_active_memory()
    base = load(path)
    models = [base, base.with_adapter(one), base.with_adapter(two)]
    wanted = [classified(model) for model in models]
    thread = next(t for t in threading.enumerate() if t.name == f"core-{path.name}")
    held = mx.get_active_memory() - before
    for place, index in enumerate(order):
        assert thread.is_alive()
        models[index].close()
        models[index].close()
        with pytest.raises(core.ModelClosedError):
            models[index].classify(PROMPTS)
        with pytest.raises(core.ModelClosedError):
            models[index].with_adapter(one)
        for other in order[place + 1 :]:
            assert distance(classified(models[other]), wanted[other]) < TOLERANCE
    thread.join(60)
    assert not thread.is_alive()
    assert mx.get_active_memory() - before < held / 2, "closed models hold weights"


def test_a_stream_of_a_closed_handle_ends_and_the_others_go_on(
    several: tuple[Path, list[Path]],
) -> None:
    path, (one, two) = several
    with load(path) as base, base.with_adapter(two) as other:
        handle = base.with_adapter(one)
        stream, going = handle.generate("ab", max_tokens=40), other.generate("ab", max_tokens=40)
        next(stream), next(going)
        handle.close()
        with pytest.raises(core.ModelClosedError):
            list(stream)
        assert len(list(going)) > 0 or going.finish_reason == "stop"


def test_a_dropped_handle_lets_go_of_the_thread(several: tuple[Path, list[Path]]) -> None:
    path, (one, _) = several
    base = load(path)
    handle = base.with_adapter(one)
    gone = weakref.ref(handle)
    thread = next(t for t in threading.enumerate() if t.name == f"core-{path.name}")
    del handle
    gc.collect()
    assert gone() is None
    assert classified(base)
    base.close()
    thread.join(60)
    assert not thread.is_alive()


def test_the_weights_are_in_memory_once(checkpoint: Checkpoint, lora: Write) -> None:
    path = checkpoint("llama", hidden_size=256, intermediate_size=512)
    adapter = lora(drawn(path))
    with load(path, prefix_cache=0) as base:
        base.classify(PROMPTS)
        before = mx.get_active_memory()
        with base.with_adapter(adapter) as handle:
            handle.classify(PROMPTS)
            assert mx.get_active_memory() - before < before / 4


def test_a_handle_that_cannot_be_made_leaves_the_model_as_it_was(
    several: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    path, _ = several
    with load(path) as base:
        wanted = classified(base)
        with pytest.raises(core.ModelNotFoundError, match="Adapter not found"):
            base.with_adapter(tmp_path / "nothing")
        assert classified(base) == wanted
    thread = [t for t in threading.enumerate() if t.name == f"core-{path.name}"]
    assert not any(t.is_alive() for t in thread)


def test_each_has_its_own_fingerprint(several: tuple[Path, list[Path]]) -> None:
    """Calibrations and heads are keyed by it: one adapter's must not serve another."""
    path, (one, two) = several
    with load(path, one) as model, model.with_adapter(two) as handle:
        assert fingerprint_of(model) == fingerprint(path, one)
        assert fingerprint_of(handle) == fingerprint(path, two)
        with handle.with_adapter(None) as plain:
            assert fingerprint_of(plain) == fingerprint(path)


def test_packed_weights_and_low_precision(checkpoint: Checkpoint, lora: Write) -> None:
    path = checkpoint("llama")
    adapter = lora(drawn(path))
    with load(path, adapter) as model, load(path, adapter, dtype="bfloat16") as low:
        assert distance(classified(model), classified(low)) < 2
        assert low.info.logit_tolerance > model.info.logit_tolerance


def test_without_fast_paths_it_computes_the_same(checkpoint: Checkpoint, lora: Write) -> None:
    path = checkpoint("gemma3")
    adapter = lora(drawn(path, targets=(*TARGETS, "k_proj", "o_proj", "gate_proj", "up_proj")))
    names = ("host_math", "few_tokens", "lanes", "prefix", "last_layer", "label_rows")
    with load(path, adapter) as fast, load(path, adapter, without=names) as slow:
        for operation in OPERATIONS.values():
            assert distance(operation(fast), operation(slow)) < TOLERANCE
