"""A training from its first step to its last, on the caller's thread.

Every step is a job of the owner thread; between steps the model serves calls with the current
adapter. The trained network is another one over the same weights, so the model's own keeps its fast
paths.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from core.errors import TrainingError
from core.system import outputs
from core.training import TrainConfig, TrainStep
from core_mlx_native import memory
from core_mlx_native.adapters.apply import (
    Adapter,
    LoraSettings,
    adapter_in,
    attach,
    new_adapter,
    twin,
)
from core_mlx_native.adapters.layers import Dropout, LoRALinear
from core_mlx_native.adapters.loading import changes
from core_mlx_native.chosen import DTYPES
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.ops import Ops
from core_mlx_native.train.checkpoints import Checkpoints, RunState
from core_mlx_native.train.curve import svg
from core_mlx_native.train.objective import Objective
from core_mlx_native.train.rows import TokenRow, token_numbers
from core_mlx_native.train.steps import Stepped, Steps
from core_runtime.owner import OwnerThread
from core_runtime.request import forget_frames
from core_tasks.svg import KIND as DRAWING

LOSSES = "losses.svg"

# The options that determine a run's numbers, and so must be the same when it is resumed.
_DECIDES = (
    *("rank", "adapter_scale", "dropout", "num_layers", "targets", "dora", "adapter_dtype"),
    *("learning_rate", "batch_size", "accumulate", "seed", "betas", "eps", "weight_decay"),
    *("bias_correction", "schedule", "warmup", "final_learning_rate", "clip_norm", "patience"),
    "validate_every",
)


@dataclass(frozen=True, slots=True)
class ServedNetwork:
    """The network that serves a model's calls, and its adapter, which a training changes.

    ``ops`` are the operations to train with. ``changed`` is called on the owner thread after each
    change of the adapter, because the model's caches are then invalid.
    """

    decoder: Decoder
    adapter: Adapter
    ops: Ops
    changed: Callable[[], object]

    def take(self, parameters: Mapping[str, mx.array], dtype: mx.Dtype) -> None:
        """Serve calls with these parameters from now on."""
        values = {name: value.astype(dtype) for name, value in parameters.items()}
        mx.eval(values)
        self.adapter.update(values)
        self.adapter.settle()
        self.changed()

    def to_train(self, dropout: Dropout) -> tuple[Decoder, Adapter]:
        """Return another network over the same weights, with an adapter of the same values."""
        network = without_adapter(twin(self.decoder, self.ops))
        added = {name: layer.low_rank for name, layer in self.adapter.layers.items()}
        return network, attach(network, added, dropout)


class Training:
    """A training: its rows, network and checkpoints. `steps` runs it.

    Create it on the owner thread.
    """

    def __init__(
        self,
        served: ServedNetwork,
        rows: Sequence[TokenRow],
        validation: Sequence[TokenRow],
        config: TrainConfig,
        owner: OwnerThread,
    ) -> None:
        self._served, self._config, self._owner = served, config, owner
        self._validation, self._dtype = validation, DTYPES[config.adapter_dtype]
        self._progress = RunState()
        self._best: dict[str, mx.array] = {}

        dropout = Dropout(config.dropout, config.seed, len(served.adapter.layers))
        network, adapter = served.to_train(dropout)
        objective = Objective(
            network, adapter, self._dtype, checkpointing=config.gradient_checkpointing
        )
        self._steps = Steps(objective, adapter, rows, config)
        self._checkpoints: Checkpoints | None = None
        if config.directory is not None:
            self._checkpoints = Checkpoints(config.directory, self._run(rows))

    def check(self) -> None:
        """Raise `TrainingError` if this training may not use the directory.

        Raises `core.OutputError` for a file that it would replace and did not write.
        """
        if self._checkpoints is None:
            return
        if (losses := self._checkpoints.directory / LOSSES).exists():
            outputs.check(losses, DRAWING)
        if self._config.resume:
            self._checkpoints.load(self._expected())
        else:
            self._checkpoints.check_new()

    def steps(self) -> Generator[TrainStep, None, None]:
        """Train, yielding each step; an error or early close keeps the adapter of the last one."""
        try:
            yield from self._all_steps()
        except BaseException as error:
            forget_frames(error)  # else a reference to the error keeps the network alive
            raise
        finally:
            self.forget()

    def forget(self) -> None:
        """Release the networks and AdamW's state; may be called twice, but not during a step."""
        for name in ("_steps", "_served", "_best"):
            self.__dict__.pop(name, None)

    def _all_steps(self) -> Iterator[TrainStep]:
        with self._checkpoints.locked() if self._checkpoints else nullcontext():
            if self._config.resume:
                self._owner.run(self._resume)
            elif self._checkpoints:
                self._checkpoints.check_new()
            first = self._progress.step + 1
            for step in range(first, self._config.iterations + 1):
                if self._is_over:
                    break
                yield self._reported(step)
            self._owner.run(self._take_best)

    # ----------------------------------------------------------------------- one step

    def _reported(self, step: int) -> TrainStep:
        """Run a step and the work due after it."""
        stepped = self._owner.run(lambda: self._step(step))
        last = step == self._config.iterations
        measured = None
        if self._validation and (last or step % self._config.validate_every == 0):
            measured = self._owner.run(lambda: self._measure(step))
        if self._checkpoints and (last or self._is_over or step % self._config.save_every == 0):
            self._owner.run(self._save)
        return TrainStep(
            step=step,
            loss=stepped.loss,
            tokens=stepped.tokens,
            seconds=stepped.seconds,
            learned=stepped.learned,
            learning_rate=stepped.rate,
            gradient_norm=stepped.norm,
            validation_loss=measured,
            steps=self._config.iterations,
            peak_memory_bytes=self._owner.run(memory.get_peak_memory),
        )

    def _step(self, step: int) -> Stepped:
        stepped = self._steps.run(step)
        if not stepped.is_sound:
            values = f"the loss is {stepped.loss:g} and the gradient norm {stepped.norm:g}"
            raise self._not_sound(step, values, good=step - 2)
        self._progress.step = step
        self._progress.losses.append((step, stepped.loss))
        self._served.take(self._steps.parameters, self._dtype)
        return stepped

    def _not_sound(self, step: int, values: str, good: int) -> TrainingError:
        """Restore the parameters of step ``good``; return the error of non-finite values."""
        self._served.take(self._steps.sound, self._dtype)
        last = None
        if self._checkpoints:
            self._checkpoints.drop(good + 1)  # this step has shown its loss not to be finite
            last = self._checkpoints.last()
        fallback = (
            f"The last good checkpoint is {last}." if last else "No good checkpoint was written."
        )
        return TrainingError(
            f"At step {step} {values}: training cannot continue. The model has the adapter of "
            f"step {max(0, good)}, the last one with a finite loss. {fallback} Lower the learning "
            f"rate ({self._config.learning_rate:g}), or clip gradients (clip_norm).",
            step,
            last,
        )

    def _measure(self, step: int) -> float:
        """Measure the validation loss, and keep the adapter if it is the best one."""
        progress = self._progress
        loss = self._steps.measured(self._validation)
        if not math.isfinite(loss):
            raise self._not_sound(step, f"the validation loss is {loss:g}", good=step - 1)
        progress.measured.append((step, loss))
        if progress.best is None or loss < progress.best:
            progress.best, progress.best_step, progress.waited = loss, step, 0
            self._best = dict(self._steps.parameters)
        else:
            progress.waited += 1
        return loss

    @property
    def _is_over(self) -> bool:
        return 0 < self._config.patience <= self._progress.waited

    def _take_best(self) -> None:
        """Serve calls with the best adapter, if early stopping is enabled."""
        if self._config.patience and self._best:
            self._served.take(self._best, self._dtype)

    # ----------------------------------------------------------------------- checkpoints

    def _save(self) -> None:
        assert self._checkpoints is not None
        arrays = {"parameters": self._steps.parameters, "optimiser": self._steps.optimiser.arrays()}
        if self._config.patience and self._best:
            arrays["best"] = self._best
        try:
            self._checkpoints.save(self._progress, arrays)
            drawn = svg(self._progress.losses, self._progress.measured)
            outputs.write(self._checkpoints.directory / LOSSES, drawn, DRAWING)
        except OSError as error:
            raise self._not_written(error) from error

    def _not_written(self, error: OSError) -> TrainingError:
        assert self._checkpoints is not None
        last, step = self._checkpoints.last(), self._progress.step
        fallback = (
            f"The last good checkpoint is {last}" if last else "There are no earlier checkpoints"
        )
        return TrainingError(
            f"Cannot write the checkpoint of step {step}: {error}. {fallback}; the model has "
            "the adapter of this step. Free disk space, and resume (resume=True).",
            step,
            last,
        )

    def _resume(self) -> None:
        """Resume from the last checkpoint, with the same parameters by name and shape."""
        assert self._checkpoints is not None
        checkpoint = self._checkpoints.load(self._expected())
        self._steps.parameters = {
            name: checkpoint.arrays["parameters"][name] for name in self._steps.parameters
        }
        self._steps.optimiser.restore(checkpoint.arrays["optimiser"])
        self._best = dict(checkpoint.arrays.get("best", {}))
        self._progress = checkpoint.progress
        self._served.take(self._steps.parameters, self._dtype)

    def _expected(self) -> dict[str, Mapping[str, mx.array]]:
        """Return the arrays in a checkpoint of this training, by kind."""
        own = self._steps.parameters
        return {"parameters": own, "optimiser": self._steps.optimiser.arrays(), "best": own}

    def _run(self, rows: Sequence[TokenRow]) -> dict[str, Any]:
        """Return the values that a resumed run must match."""
        values = {name: getattr(self._config, name) for name in _DECIDES}
        if self._config.schedule != "constant":
            values["iterations"] = self._config.iterations
        values["data"] = _fingerprint(rows)
        values["validation"] = _fingerprint(self._validation)
        return values


def adapter_for(decoder: Decoder, config: TrainConfig) -> Adapter:
    """Return the adapter to train: the network's own, or a new one attached to it.

    Raises `TrainingError` if its adapter has another shape, `InvalidOptionError` for unknown
    targets.
    """
    settings = LoraSettings(
        rank=config.rank,
        scale=config.adapter_scale,
        dropout=config.dropout,
        targets=config.targets,
        num_layers=config.num_layers,
        dora=config.dora,
        dtype=DTYPES[config.adapter_dtype],
        seed=config.seed,
    )
    existing = adapter_in(decoder)
    if existing is not None and not any(_changes(layer) for layer in existing.layers.values()):
        existing.remove()  # from a training without any steps
        existing = None
    if existing is None:
        adapter = new_adapter(decoder, settings)
        adapter.settle()
        return adapter

    wanted = _described(new_adapter(without_adapter(twin(decoder)), settings))
    odd = sorted(wanted ^ _described(existing))
    if odd:
        raise TrainingError(
            f"The model already has an adapter with other settings: {'; '.join(odd[:4])}. Train "
            "with the same rank, scale, targets and num_layers, or load the model without the "
            "adapter."
        )
    return existing


def _changes(layer: LoRALinear) -> bool:
    return changes(layer.linear.matrix.dense(), layer.low_rank)


def without_adapter(decoder: Decoder) -> Decoder:
    """Remove the network's adapter, if any, and return the network."""
    adapter = adapter_in(decoder)
    if adapter is not None:
        adapter.remove()
    return decoder


def _described(adapter: Adapter) -> set[str]:
    """Return the properties that adapters must share to be trained in each other's place."""
    shapes = {f"{name} {value.shape}" for name, value in adapter.parameters().items()}
    return shapes | {f"{name} scale {layer.scale:g}" for name, layer in adapter.layers.items()}


def _fingerprint(rows: Sequence[TokenRow]) -> str:
    """Return a fingerprint of the rows."""
    return hashlib.sha256(array("q", token_numbers(rows)).tobytes()).hexdigest()[:16]
