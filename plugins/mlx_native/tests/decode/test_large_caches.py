"""When a step on a GPU waits for the one before, which holds the cache: or MLX copies it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from core.options import GenerateConfig, LoadConfig
from core_mlx_native.decode.batch import DecodeBatch
from core_mlx_native.decode.engine import MlxEngine
from core_mlx_native.loaded import load
from core_runtime.owner import OwnerThread
from core_runtime.request import Request
from core_runtime.waiting import PromptJob

Checkpoint = Callable[..., Path]
WIDE = {"intermediate_size": 4096}  # 3 MB of weights; 256 columns of the cache are 64 KB
STEPS = 5


class Decoding:
    """One text that is decoded with a GPU's operations, and what MLX was told in each step."""

    def __init__(self, directory: Path, on_gpu: bool, patch: pytest.MonkeyPatch) -> None:
        self.told: list[str] = []
        self.places = set[int]()
        model = load(directory, LoadConfig(options={"dtype": "float32"}), on_gpu)
        owner = OwnerThread("caches")
        owner.stop()
        patch.setattr(owner, "post", lambda job: True)
        self._engine = MlxEngine(model, owner)
        config = GenerateConfig(max_tokens=STEPS + 2, temperature=0.0, stop_tokens=())
        ids = list(range(2, 12))
        self._engine.submit([PromptJob(ids, (Request(model, ids, config, lambda _: None),))])

        # Only what a step of decoding says is noted.
        step = DecodeBatch.step
        calls = {"eval": mx.eval, "async_eval": mx.async_eval}

        def noted(batch: DecodeBatch) -> None:
            for name, call in calls.items():

                def tell(*arrays: object, name: str = name, call: object = call) -> None:
                    self.told.append(name)
                    call(*arrays)  # type: ignore[operator]

                patch.setattr(mx, name, tell)
            step(batch)
            for name, call in calls.items():
                patch.setattr(mx, name, call)
            if batch.cache is not None:
                keys = batch.cache.layers[0].keys
                mx.eval(keys)
                self.places.add(int(np.asarray(keys).__array_interface__["data"][0]))

        patch.setattr(DecodeBatch, "step", noted)

    def run(self) -> Decoding:
        while self._engine.step():
            pass
        return self


def test_a_small_cache_is_copied_and_nobody_waits(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Decoding(checkpoint("llama", **WIDE), True, monkeypatch).run().told
    assert set(told) == {"async_eval"}


def test_a_cache_of_a_tenth_of_the_weights_is_waited_for(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then no running step holds it, and it stays where it is."""
    decoding = Decoding(checkpoint("llama"), True, monkeypatch).run()
    assert decoding.told == ["eval", "async_eval"] * (len(decoding.told) // 2)
    assert decoding.told
    assert len(decoding.places) == 1


def test_a_cpu_holds_no_cache_between_steps(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens of a step are handed out before the next begins: there is nothing to wait for."""
    decoding = Decoding(checkpoint("llama", **WIDE), False, monkeypatch).run()
    assert set(decoding.told) == {"async_eval"}
    assert len(decoding.places) == 1
