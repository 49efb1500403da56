"""The implementation of `MlxModel.train` and `save_adapter`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from core.errors import TrainingError
from core.training import TrainConfig, TrainingExample
from core_mlx_native.adapters.apply import adapter_in
from core_mlx_native.adapters.files import write_adapter
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.cpu.training_ops import DifferentiableOps, TrainingOps
from core_mlx_native.loaded import LoadedModel
from core_mlx_native.network.ops import Ops
from core_mlx_native.train.notes import notes_of
from core_mlx_native.train.rows import RowBuilder, TokenRow, labels_of
from core_mlx_native.train.training import ServedNetwork, Training, adapter_for
from core_runtime.owner import OwnerThread


def begin(
    model: LoadedModel,
    owner: OwnerThread,
    examples: Sequence[TrainingExample],
    config: TrainConfig,
) -> Training:
    """Check options and examples, tokenise them, and attach an adapter if necessary.

    Raises `core.OptionError`, `core.TrainingError` and `core.TaskError`.
    """
    if not examples:
        raise TrainingError("No training examples given. Pass at least one.")
    config = replace(config, labels=labels_of([*examples, *config.validation], config))
    rows = training_rows(model, examples, config, "Example")
    validation = training_rows(model, config.validation, config, "Validation example")

    def prepared() -> Training:
        adapter = adapter_for(model.decoder, config)
        served = ServedNetwork(model.decoder, adapter, _training_ops(model), model.prefixes.clear)
        training = Training(served, rows, validation, config, owner)
        training.check()
        return training

    return owner.run(prepared)


def training_rows(
    model: LoadedModel, examples: Sequence[TrainingExample], config: TrainConfig, name: str
) -> list[TokenRow]:
    """Return the tokens of examples, and which of them are learned.

    ``name`` is their name in errors.

    Raises like `begin`.
    """
    labels = labels_of(examples, config)
    return RowBuilder(model.tokenizer, config, labels, model.info).of(examples, name)


def save(model: LoadedModel, directory: str | os.PathLike[str], config: TrainConfig | None) -> None:
    """Write the model's adapter with its training notes; runs on the owner thread.

    Raises `TrainingError` without an adapter, and OSError.
    """
    adapter = adapter_in(model.decoder)
    if adapter is None:
        raise TrainingError(
            "The model has no adapter to save. Train one, or load the model with adapter_path."
        )
    layers = {name: layer.low_rank for name, layer in adapter.layers.items()}
    notes = None if config is None else notes_of(config)
    dropout = 0.0 if config is None else config.dropout
    write_adapter(directory, layers, model.config, dropout=dropout, notes=notes)


def _training_ops(model: LoadedModel) -> Ops:
    """Return the differentiable operations of the model's device."""
    ops = model.decoder.ops
    if not isinstance(ops, CpuOps):
        return ops
    return TrainingOps() if ops.with_numpy else DifferentiableOps()
