"""One training from its first step to its last, as the caller's thread sees it.

Every step is a job of the owner thread; between two of them the model answers whoever asks it, with
the adapter as it is. The network that is trained is another one over the same weights, so that the
model's own keeps its fast ways.
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
from core.system.svg import KIND as DRAWING
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
from core_mlx_native.adapters.opening import changes
from core_mlx_native.chosen import DTYPES
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.ops import Ops
from core_mlx_native.train.checkpoints import Checkpoints, Progress
from core_mlx_native.train.curve import svg
from core_mlx_native.train.objective import Objective
from core_mlx_native.train.rows import TokenRow, token_numbers
from core_mlx_native.train.steps import Stepped, Steps
from core_runtime.owner import OwnerThread
from core_runtime.request import forget_frames

LOSSES = "losses.svg"

# What decides the numbers of a run, and so must be the same where it goes on.
_DECIDES = (
    *("rank", "adapter_scale", "dropout", "num_layers", "targets", "dora", "adapter_dtype"),
    *("learning_rate", "batch_size", "accumulate", "seed", "betas", "eps", "weight_decay"),
    *("bias_correction", "schedule", "warmup", "final_learning_rate", "clip_norm", "patience"),
    "validate_every",
)


@dataclass(frozen=True, slots=True)
class Served:
    """The network that a model answers with, and its adapter, which a training moves.

    ``ops`` are the operations to train with. ``changed`` is called on the owner thread whenever the
    adapter was: what the model keeps of earlier passes is then another model's.
    """

    decoder: Decoder
    adapter: Adapter
    ops: Ops
    changed: Callable[[], object]

    def take(self, parameters: Mapping[str, mx.array], dtype: mx.Dtype) -> None:
        """Answer with these from now on."""
        values = {name: value.astype(dtype) for name, value in parameters.items()}
        mx.eval(values)
        self.adapter.update(values)
        self.adapter.settle()
        self.changed()

    def to_train(self, dropout: Dropout) -> tuple[Decoder, Adapter]:
        """Another network over the same weights, with an adapter of the same numbers."""
        network = without_adapter(twin(self.decoder, self.ops))
        added = {name: layer.low_rank for name, layer in self.adapter.layers.items()}
        return network, attach(network, added, dropout)


class Training:
    """Rows, a network to train, and where checkpoints go; `steps` trains.

    Make it on the owner thread.
    """

    def __init__(
        self,
        served: Served,
        rows: Sequence[TokenRow],
        validation: Sequence[TokenRow],
        config: TrainConfig,
        owner: OwnerThread,
    ) -> None:
        self._served, self._config, self._owner = served, config, owner
        self._validation, self._dtype = validation, DTYPES[config.adapter_dtype]
        self._progress = Progress()
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
        """Raise `TrainingError` where the directory is not one that this training may use.

        Raises `core.OutputError` where there is a file that it would replace and did not write.
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
        """Train; what is raised, or an iterator that is closed, leaves the adapter as it was."""
        try:
            yield from self._all_steps()
        except BaseException as error:
            forget_frames(error)  # else whoever keeps the error keeps the network
            raise
        finally:
            self.forget()

    def forget(self) -> None:
        """Let go of the networks and of what AdamW keeps; twice is fine, and nothing runs then."""
        for held in ("_steps", "_served", "_best"):
            self.__dict__.pop(held, None)

    def _all_steps(self) -> Iterator[TrainStep]:
        with self._checkpoints.held() if self._checkpoints else nullcontext():
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
        """Run a step, with what is due behind it."""
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
            values = f"the loss is {stepped.loss:g} and the gradient's length {stepped.norm:g}"
            raise self._not_sound(step, values, good=step - 2)
        self._progress.step = step
        self._progress.losses.append((step, stepped.loss))
        self._served.take(self._steps.parameters, self._dtype)
        return stepped

    def _not_sound(self, step: int, values: str, good: int) -> TrainingError:
        """Return to the parameters of step ``good``; the error of values that are not finite."""
        self._served.take(self._steps.sound, self._dtype)
        last = None
        if self._checkpoints:
            self._checkpoints.drop(good + 1)  # its loss is what this step has found
            last = self._checkpoints.last()
        kept = f"The last good checkpoint is {last}." if last else "There is no good checkpoint."
        return TrainingError(
            f"At step {step} {values}: training cannot continue from NaN or infinity. The model "
            f"has the adapter of step {max(0, good)}, the last one whose loss was finite. {kept} "
            f"Lower the learning rate ({self._config.learning_rate:g}), or shorten gradients "
            "(clip_norm).",
            step,
            last,
        )

    def _measure(self, step: int) -> float:
        """Measure the validation's loss, and keep the adapter if none was better."""
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
        """Answer with the best adapter, where an early stop was asked for."""
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
        kept = f"The last good one is {last}" if last else "There is none before it"
        return TrainingError(
            f"The checkpoint of step {step} could not be written: {error}. {kept}; the model has "
            "the adapter of this step. Make room, and go on with resume.",
            step,
            last,
        )

    def _resume(self) -> None:
        """Go on from the last checkpoint: the same parameters, by name and shape."""
        assert self._checkpoints is not None
        found = self._checkpoints.load(self._expected())
        self._steps.parameters = {
            name: found.arrays["parameters"][name] for name in self._steps.parameters
        }
        self._steps.optimiser.restore(found.arrays["optimiser"])
        self._best = dict(found.arrays.get("best", {}))
        self._progress = found.progress
        self._served.take(self._steps.parameters, self._dtype)

    def _expected(self) -> dict[str, Mapping[str, mx.array]]:
        """Return the arrays that a checkpoint of this training holds, by kind."""
        own = self._steps.parameters
        return {"parameters": own, "optimiser": self._steps.optimiser.arrays(), "best": own}

    def _run(self, rows: Sequence[TokenRow]) -> dict[str, Any]:
        """What a run that goes on must have been begun with."""
        said = {name: getattr(self._config, name) for name in _DECIDES}
        if self._config.schedule != "constant":
            said["iterations"] = self._config.iterations
        said["data"] = _fingerprint(rows)
        said["validation"] = _fingerprint(self._validation)
        return said


def adapter_for(decoder: Decoder, config: TrainConfig) -> Adapter:
    """The adapter to train: the one that the network has, or a new one, put into it.

    Raises `TrainingError` where it has one of another shape, `InvalidOptionError` for targets that
    are none.
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
        existing.remove()  # of a training that never took a step
        existing = None
    if existing is None:
        adapter = new_adapter(decoder, settings)
        adapter.settle()
        return adapter

    wanted = _described(new_adapter(without_adapter(twin(decoder)), settings))
    odd = sorted(wanted ^ _described(existing))
    if odd:
        raise TrainingError(
            "The model has an adapter already, of another kind than this training's: "
            f"{'; '.join(odd[:4])}. Train with its rank, scale, targets and num_layers, or load "
            "the model without it."
        )
    return existing


def _changes(layer: LoRALinear) -> bool:
    return changes(layer.linear.matrix.dense(), layer.low_rank)


def without_adapter(decoder: Decoder) -> Decoder:
    """The network itself, whose adapter is taken out if it has one."""
    found = adapter_in(decoder)
    if found is not None:
        found.remove()
    return decoder


def _described(adapter: Adapter) -> set[str]:
    """What one adapter has to have in common with another, to be trained in its place."""
    shapes = {f"{name} {value.shape}" for name, value in adapter.parameters().items()}
    return shapes | {f"{name} scale {layer.scale:g}" for name, layer in adapter.layers.items()}


def _fingerprint(rows: Sequence[TokenRow]) -> str:
    """What tells one set of rows from another."""
    return hashlib.sha256(array("q", token_numbers(rows)).tobytes()).hexdigest()[:16]
