"""Write what mlx-lm's own trainer makes of one and ten steps (README.md)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import optimizers
from mlx.utils import tree_flatten
from mlx_lm.tuner.callbacks import TrainingCallback
from mlx_lm.tuner.trainer import TrainingArgs, train
from mlx_lm.tuner.utils import linear_to_lora_layers
from mlx_lm.utils import load_model

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "steps"
CHECKPOINT = HERE.parent / "oracle" / "data" / "llama-2-kv-heads-biased"
ROWS: list[tuple[list[int], int]] = json.loads((HERE / "rows.json").read_text())
RATE, RANK, SCALE, LAYERS = 1e-3, 4, 2.0, 2


class Told(TrainingCallback):  # type: ignore[misc, unused-ignore]
    """Keeps the losses."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_train_loss_report(self, train_info: Mapping[str, Any]) -> None:
        self.losses.append(float(train_info["train_loss"]))


def with_adapter(directory: Path, start: Mapping[str, mx.array] | None) -> Any:
    """The tiny model with mlx-lm's LoRA on it, which begins with ``start`` or its own draws."""
    mx.random.seed(3)
    (directory / "config.json").write_text((CHECKPOINT / "default" / "config.json").read_text())
    for file in (CHECKPOINT / "weights").glob("*"):
        (directory / file.name).write_bytes(file.read_bytes())
    model, _ = load_model(directory)
    model.set_dtype(mx.float32)
    model.freeze()
    linear_to_lora_layers(model, LAYERS, {"rank": RANK, "scale": SCALE, "dropout": 0.0})
    if start is not None:
        model.load_weights([*start.items()], strict=False)
    return model


def stepped(start: Mapping[str, mx.array], steps: int) -> tuple[dict[str, mx.array], list[float]]:
    with tempfile.TemporaryDirectory() as place:
        model = with_adapter(Path(place), start)
        told = Told()
        args = TrainingArgs(
            batch_size=len(ROWS),
            iters=steps,
            steps_per_report=1,
            steps_per_save=10**6,
            adapter_file=f"{place}/adapters.safetensors",
        )
        train(model, optimizers.AdamW(RATE), ROWS, args=args, training_callback=told)
        return dict(tree_flatten(model.trainable_parameters())), told.losses


def main() -> None:
    mx.set_default_device(mx.cpu)
    DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        start = dict(tree_flatten(with_adapter(Path(place), None).trainable_parameters()))
    mx.save_safetensors(str(DATA / "start.safetensors"), start)
    for steps in (1, 10):
        found, losses = stepped(start, steps)
        mx.save_safetensors(str(DATA / f"{steps}.safetensors"), found)
    (DATA / "losses.json").write_text(json.dumps(losses) + "\n")


if __name__ == "__main__":
    main()
