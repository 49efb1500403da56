"""Flags of the commands ``infer-cli lora train`` and ``lora eval``, without heavy imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.system.outputs import output_type
from core_mlx_native.adapter_commands import lora_group

if TYPE_CHECKING:
    import click

# Flags that are fields of `core.TrainConfig`: flag, field, type, help. Those not given arrive as
# None, so that the library's defaults are the command's.
_CONFIG: tuple[tuple[str, str, Any, str], ...] = (
    ("--rank", "rank", int, "Rank of the adapter matrices. [default: 8]"),
    ("--scale", "scale", float, "Multiplier of the adapter's output. [default: 20]"),
    ("--alpha", "alpha", float, "Set the scale as alpha / rank (PEFT convention)."),
    ("--dropout", "dropout", float, "Dropout rate on the adapter's input. [default: 0]"),
    ("--num-layers", "num_layers", int, "Train adapters in the last N layers. [default: 16]"),
    (
        "--adapter-dtype",
        "adapter_dtype",
        str,
        "Data type of the adapter weights: float32, bfloat16 or float16.",
    ),
    ("--steps", "iterations", int, "Maximum number of optimiser steps. [default: 1000]"),
    ("--batch-size", "batch_size", int, "Examples per batch. [default: 4]"),
    ("--accumulate", "accumulate", int, "Gradient accumulation: batches per step. [default: 1]"),
    ("--learning-rate", "learning_rate", float, "AdamW learning rate. [default: 1e-5]"),
    (
        "--schedule",
        "schedule",
        str,
        "Learning-rate schedule: constant or cosine. [default: constant]",
    ),
    ("--warmup", "warmup", int, "Warm-up steps. [default: 0]"),
    (
        "--final-learning-rate",
        "final_learning_rate",
        float,
        "Final learning rate of the cosine schedule. [default: 0]",
    ),
    ("--weight-decay", "weight_decay", float, "AdamW weight decay. [default: 0.01]"),
    ("--eps", "eps", float, "AdamW epsilon. [default: 1e-8]"),
    ("--clip-norm", "clip_norm", float, "Clip the gradient norm to this. [default: off]"),
    (
        "--max-tokens",
        "max_tokens",
        int,
        "Maximum example length in tokens; longer ones are an error. [default: 2048]",
    ),
    ("--validate-every", "validate_every", int, "Steps between validations. [default: 100]"),
    (
        "--patience",
        "patience",
        int,
        "Stop after N validations without improvement. [default: never]",
    ),
    ("--save-every", "save_every", int, "Steps between checkpoints. [default: 100]"),
    ("--seed", "seed", int, "Random seed (data order, dropout, initialisation). [default: 0]"),
)
_SWITCHES: tuple[tuple[str, str, str], ...] = (
    ("--rslora", "rank_stabilised", "Use rank-stabilised scaling, alpha / sqrt(rank)."),
    ("--dora", "dora", "Train magnitudes too (DoRA)."),
    ("--grad-checkpoint", "gradient_checkpointing", "Checkpoint activations: less memory, slower."),
    ("--resume", "resume", "Resume from the last checkpoint in OUT_DIR."),
)


def add_training_commands(cli: click.Group) -> None:
    """Add both to the group ``lora``."""
    group = lora_group(cli)
    _add_train(group)
    _add_eval(group)


def _add_train(group: click.Group) -> None:
    import click

    @group.command(
        "train",
        epilog="\b\nExample:\n  infer-cli lora train -m MODEL -i news.jsonl --steps 100 news.lora",
    )
    @click.argument("out_dir", metavar="OUT_DIR", type=output_type(click.Path(file_okay=False)))
    @_model_flags
    @click.option(
        *("-i", "--input", "data"),
        required=True,
        metavar="FILE",
        help="File of examples (JSON Lines, CSV, TSV, Parquet, Excel) with messages, prompt and "
        "completion, text, or text and label; or a directory with train.jsonl, valid.jsonl and "
        "test.jsonl.",
    )
    @click.option(
        "--validation", metavar="FILE", help="Validation examples, evaluated during training."
    )
    @click.option(
        "--test", metavar="FILE", help="Labelled examples, evaluated before and after training."
    )
    @click.option(
        "--hold-out",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        metavar="SHARE",
        help="Fraction of each label's examples to hold out as test set, instead of --test.",
    )
    @_label_flags
    @click.option(
        "--targets",
        metavar="A,B",
        help="Projections to adapt, comma-separated: q_proj, ..., down_proj. [default: all-linear]",
    )
    @click.option("--betas", metavar="A,B", help="AdamW betas. [default: 0.9,0.999]")
    @click.option("--no-mask-prompt", is_flag=True, help="Include prompt tokens in the loss.")
    @click.option(
        "--plot",
        metavar="FILE",
        type=output_type(click.Path(dir_okay=False)),
        help="Plot the losses to FILE (SVG), in addition to OUT_DIR/losses.svg.",
    )
    @_config_flags
    def train(out_dir: str, **given: Any) -> None:
        """Train a LoRA adapter and write it to OUT_DIR.

        Labels are trained at the tokens where classify reads them. Use the adapter in classify,
        generate and others with --adapter OUT_DIR. Checkpoints go to OUT_DIR; --resume continues
        an interrupted run from the last one, with the same losses.
        """
        from core_mlx_native.lora.command import train

        train(out_dir, given, config_fields())


def _add_eval(group: click.Group) -> None:
    import click

    @group.command(
        "eval",
        epilog="\b\nExample:\n  infer-cli lora eval -m MODEL --adapter news.lora -i test.jsonl",
    )
    @_model_flags
    @click.option(
        "--adapter",
        "--adapter-path",
        metavar="DIR",
        help="Adapter directory written by lora train.",
    )
    @click.option(
        *("-i", "--input", "data"),
        required=True,
        metavar="FILE",
        help="File of examples, as for lora train.",
    )
    @click.option("--validation", metavar="FILE", help="Examples to fit a temperature on.")
    @_label_flags
    @click.option("--json", "as_json", is_flag=True, help="Print all metrics as JSON.")
    def evaluate(**given: Any) -> None:
        """Compare a model with and without an adapter.

        With labels: accuracy, per-label metrics, confusion matrix and calibration error. Without:
        the loss per trained token.
        """
        from core_mlx_native.lora.command import evaluate

        evaluate(given)


def _model_flags(command: Any) -> Any:
    import click

    flags = [
        click.option(
            *("-m", "--model"),
            envvar="INFER_MODEL",
            required=True,
            metavar="MODEL",
            help="Model path, or a name listed by discover. [env: INFER_MODEL]",
        ),
        click.option(
            "--backend",
            metavar="NAME",
            help="Backend to use. [default: best one that can train]",
        ),
        click.option("--dtype", help="Compute data type. [default: best for the device]"),
    ]
    return _decorated(command, flags)


def _label_flags(command: Any) -> Any:
    import click

    flags = [
        click.option(
            *("--text-field", "text"),
            metavar="FIELD",
            default="text",
            help="Input field with the text. [default: text]",
        ),
        click.option(
            "--gold",
            metavar="FIELD",
            default="label",
            help="Input field with the gold (true) label. [default: label]",
        ),
        click.option(
            "--template", help=r'Prompt template, such as "{text}\nTopic:". [default: {text}]'
        ),
        click.option(
            "--labels", metavar="A,B,C", help="Comma-separated labels. [default: all in the data]"
        ),
        click.option(
            "--label-prefix", help="Text between prompt and label. [default: a space, if it fits]"
        ),
    ]
    return _decorated(command, flags)


def _config_flags(command: Any) -> Any:
    import click

    flags = [click.option(flag, field, type=kind, help=text) for flag, field, kind, text in _CONFIG]
    flags += [click.option(flag, field, is_flag=True, help=text) for flag, field, text in _SWITCHES]
    flags += [
        click.option(
            "--bias-correction/--no-bias-correction",
            default=True,
            help="Apply AdamW bias correction. [default: on]",
        )
    ]
    return _decorated(command, flags)


def _decorated(command: Any, flags: list[Any]) -> Any:
    for flag in reversed(flags):
        command = flag(command)
    return command


def config_fields() -> tuple[str, ...]:
    """Return the fields of `core.TrainConfig` that have a flag of their own."""
    named = (field for _, field, _, _ in _CONFIG)
    return (*named, *(field for _, field, _ in _SWITCHES), "bias_correction")
