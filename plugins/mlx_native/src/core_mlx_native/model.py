"""The public model class: checks and bookkeeping around the engine."""

from __future__ import annotations

import os
import uuid
import weakref
from array import array
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Unpack

import mlx.core as mx

from core.errors import ModelClosedError
from core.kit.base import Check, RequestClock, stopping
from core.kit.support import checked_prompts
from core.models.fingerprint import known_as, remember_adapter
from core.options import GenerateConfig, RequestOptions
from core.protocols import Capability
from core.training import (
    Examples,
    TrainConfig,
    TrainingExample,
    TrainingRun,
    TrainStep,
    checked_examples,
    resolve_train,
)
from core.types import AttentionSnapshot, HiddenResult, MemoryReport, Score
from core_mlx_native import memory
from core_mlx_native.capabilities import MODEL_CAPABILITIES
from core_mlx_native.classify.hidden import HiddenTask
from core_mlx_native.classify.microbatch import ClassifyTask
from core_mlx_native.classify.scheduler import Scheduler
from core_mlx_native.classify.scoring import ScoreTask
from core_mlx_native.decode.engine import MlxEngine
from core_mlx_native.failures import not_finite, of_request
from core_mlx_native.loaded import LoadedModel, with_adapter, with_own_base
from core_mlx_native.network.prefill import prefill
from core_mlx_native.sampling.sampling import HONOURED
from core_mlx_native.to_python import bools, float_array
from core_mlx_native.train.beginning import begin, save, training_rows
from core_mlx_native.train.rows import TokenRow
from core_mlx_native.train.training import Training
from core_runtime.classifying import Classifier
from core_runtime.equal_rows import RowComputation
from core_runtime.owner import OwnerThread
from core_runtime.reading import ReadingModel
from core_runtime.request import forget_frames
from core_runtime.rows import PromptRow, ScoreRow, checked_ids


def _another_at_each(
    steps: Generator[TrainStep, None, None], model: weakref.ref[MlxModel]
) -> Iterator[TrainStep]:
    """Yield the steps of a training; each one changes the model, so calibrations no longer fit."""

    def note() -> None:
        if (trained := model()) is not None:
            known_as(trained, uuid.uuid4().hex)

    with closing(steps):
        try:
            for step in steps:
                note()
                yield step
        finally:
            note()  # its end may restore an earlier adapter


def inspect(model: LoadedModel, ids: list[int], check: Check) -> AttentionSnapshot:
    """Read the keys of all layers and KV heads, after RoPE, in the order of positions.

    Run this on the owner thread; ``check`` may raise. Sliding layers are complete too: a window
    hides keys from later tokens, but every token has a key.
    """
    config = model.config
    cache = prefill(model.decoder, [ids], check).cache
    if not all(bools(mx.stack([mx.isfinite(keys).all() for keys, _ in cache]))):
        raise not_finite("attention keys")

    return AttentionSnapshot(
        num_layers=config.num_layers,
        num_heads=config.num_kv_heads,
        seq_len=len(ids),
        head_dim=config.head_dim,
        architecture=config.model_type,
        keys=tuple(_heads(keys[0]) for keys, _ in cache),
    )


def _heads(keys: mx.array) -> tuple[array[float], ...]:
    """Return one flat array per head from [kv heads, T, D]."""
    heads = [mx.contiguous(head.astype(mx.float32)).reshape(-1) for head in keys]
    mx.eval(heads)
    return tuple(float_array(head) for head in heads)


class MlxModel(ReadingModel):
    """A model on one MLX device. `core.TextModel` documents the methods."""

    honours = HONOURED
    _engine: MlxEngine

    def __init__(self, backend: str, loaded: LoadedModel, owner: OwnerThread) -> None:
        super().__init__(backend, loaded, MlxEngine(loaded, owner), MODEL_CAPABILITIES)
        self._loaded, self._owner = loaded, owner
        self.equal_rows = loaded.fast.equal_rows
        self._trained: TrainConfig | None = None  # the configuration that trained the adapter
        self._training: weakref.ref[Training] | None = None  # the last one, if it still runs
        self._finalizer = weakref.finalize(self, owner.stop)  # without a call of close()

    @property
    def model_type(self) -> str:
        """The ``model_type`` of config.json."""
        return self._loaded.config.model_type

    def classifier(self, request: GenerateConfig, clock: RequestClock) -> Classifier:
        """See `ClassifyingModel`."""
        task = ClassifyTask(self._loaded, request)
        return Scheduler(self._loaded, self._owner, task, clock.check)

    def scorer(self, clock: RequestClock) -> RowComputation[ScoreRow, Score]:
        """See `ReadingModel`."""
        return Scheduler(self._loaded, self._owner, ScoreTask(self._loaded), clock.check)

    def state_reader(
        self, layers: tuple[int, ...], clock: RequestClock
    ) -> RowComputation[PromptRow, HiddenResult]:
        """See `ReadingModel`; layers above the highest requested one are not run."""
        task = HiddenTask(self._loaded, layers)
        return Scheduler(self._loaded, self._owner, task, clock.check)

    def inspect_attention(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> AttentionSnapshot:
        """Read the keys that one prefill of this prompt computes, in float32.

        Raises `RequestError` for a prompt that cannot run, or was stopped.
        """
        request = self.checked_request(Capability.ATTENTION_INSPECTOR, config, options)
        (text,) = checked_prompts("inspect_attention", [prompt])

        with stopping(RequestClock(request)) as clock:
            clock.check()
            ids = checked_ids(self._loaded, text, clock.check)
            try:
                return self._owner.run(lambda: inspect(self._loaded, ids, clock.check), clock.check)
            except (MemoryError, RuntimeError) as error:
                raise of_request(error, len(ids)) from error

    def train(self, examples: Examples, config: TrainConfig | None = None, /) -> TrainingRun:
        """Train a LoRA adapter in place while its steps are iterated; see `core.Trainable`.

        Raises for wrong options and examples at the call.
        """
        self.check_open()
        options, rows = resolve_train(config), checked_examples(examples)
        self._loaded = self._owner.run(lambda: with_own_base(self._loaded))
        training = begin(self._loaded, self._owner, rows, options)
        self._trained, self._training = options, weakref.ref(training)
        return TrainingRun(_another_at_each(training.steps(), weakref.ref(self)), self)

    def training_rows(
        self, examples: Sequence[TrainingExample], config: TrainConfig
    ) -> list[TokenRow]:
        """Return the tokens of examples, and which of them `train` learns. Raises like `train`."""
        self.check_open()
        return training_rows(self._loaded, examples, config, "Example")

    def save_adapter(self, directory: str | os.PathLike[str], /) -> None:
        """Write the model's adapter in mlx-lm's layout; see `core.Trainable`."""
        self.check_open()
        self._owner.run(lambda: save(self._loaded, directory, self._trained))
        remember_adapter(self, self, directory)

    def with_adapter(self, path: str | os.PathLike[str] | None, /) -> MlxModel:
        """Load another adapter, or none, over the same weights; see `core.Adapting`.

        Raises `core.ModelError` for an adapter that cannot be read, or does not fit the model.
        """
        self.check_open()
        owner = self._owner.another()
        try:
            loaded = self._owner.run(lambda: with_adapter(self._loaded, path))
        except BaseException as error:
            owner.stop()
            forget_frames(error)  # else a reference to the error keeps the weights alive
            raise
        model = MlxModel(self._backend, loaded, owner)
        remember_adapter(model, self, path)
        return model

    def memory(self) -> MemoryReport:
        """Return the device memory of MLX in this process, for all models together."""
        self.check_open()
        return self._owner.run(
            lambda: MemoryReport(
                memory.get_active_memory(), memory.get_peak_memory(), memory.get_cache_memory()
            )
        )

    def reset_peak_memory(self) -> None:
        """Reset the memory peak."""
        self.check_open()
        self._owner.run(mx.reset_peak_memory)

    def release(self) -> None:
        """Free the weights after the queued work."""
        self._loaded.tokenizer.close()
        self._owner.close(self._free)
        self._finalizer.detach()  # afterwards: if an interrupt comes before, it is still needed

    def _free(self) -> None:
        self._engine.shutdown(ModelClosedError())
        self._loaded.prefixes.clear()
        if self._training and (training := self._training()):
            training.forget()
        self._loaded.decoder.clear()  # references to the model do not keep the weights
        self._loaded.base.clear()
        memory.clear_cache()
