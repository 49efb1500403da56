"""The commands ``infer-cli lora train`` and ``lora eval``: their flags, and nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.system.outputs import output_type
from core_mlx_native.adapter_commands import lora_group

if TYPE_CHECKING:
    import click

# Flags that are fields of `core.TrainConfig`: flag, field, type, help. Those not given arrive as
# None, so that the library's defaults are the command's.
_CONFIG: tuple[tuple[str, str, Any, str], ...] = (
    ("--rank", "rank", int, "Numbers between A and B; default: 8."),
    ("--scale", "scale", float, "What the adapter adds is multiplied by this; default: 20."),
    ("--alpha", "alpha", float, "Instead of a scale: alpha / rank, as PEFT has it."),
    ("--dropout", "dropout", float, "The share of inputs that A does not see; default: 0."),
    ("--num-layers", "num_layers", int, "In so many of the last layers; default: 16."),
    ("--adapter-dtype", "adapter_dtype", str, "Of A and B: float32, bfloat16 or float16."),
    ("--steps", "iterations", int, "Steps, at most; default: 1000."),
    ("--batch-size", "batch_size", int, "Examples that run together; default: 4."),
    ("--accumulate", "accumulate", int, "Batches of a step; default: 1."),
    ("--learning-rate", "learning_rate", float, "AdamW's; default: 1e-5."),
    ("--schedule", "schedule", str, "constant or cosine; default: constant."),
    ("--warmup", "warmup", int, "Steps over which the rate rises; default: 0."),
    ("--final-learning-rate", "final_learning_rate", float, "Where a cosine ends; default: 0."),
    ("--weight-decay", "weight_decay", float, "Decoupled; default: 0.01."),
    ("--eps", "eps", float, "AdamW's; default: 1e-8."),
    ("--clip-norm", "clip_norm", float, "Shorten longer gradients to this; default: leave them."),
    ("--max-tokens", "max_tokens", int, "A longer example is refused; default: 2048."),
    ("--validate-every", "validate_every", int, "Steps between two measurements; default: 100."),
    ("--patience", "patience", int, "Stop after so many without a better one; default: never."),
    ("--save-every", "save_every", int, "Steps between two checkpoints; default: 100."),
    ("--seed", "seed", int, "Decides order, dropout and where A begins; default: 0."),
)
_SWITCHES: tuple[tuple[str, str, str], ...] = (
    ("--rslora", "rank_stabilised", "alpha / sqrt(rank) instead of alpha / rank."),
    ("--dora", "dora", "Train magnitudes too (DoRA)."),
    ("--grad-checkpoint", "gradient_checkpointing", "Less memory, more time."),
    ("--resume", "resume", "Go on from the last checkpoint in OUT_DIR."),
)


def add_training_commands(cli: click.Group) -> None:
    """Add both to the group ``lora``."""
    group = lora_group(cli)
    group.add_command(_train_command())
    group.add_command(_eval_command())


def _train_command() -> click.Command:
    import click

    @click.command("train")
    @click.argument("out_dir", metavar="OUT_DIR", type=output_type(click.Path(file_okay=False)))
    @_model_flags
    @click.option(
        *("-i", "--data"),
        required=True,
        metavar="FILE",
        help="JSON lines: messages, prompt and completion, text, or text and label. Of a "
        "directory train.jsonl, valid.jsonl and test.jsonl.",
    )
    @click.option("--validation", metavar="FILE", help="Measured on the way, and not learned.")
    @click.option("--test", metavar="FILE", help="With labels: judged before and after.")
    @click.option(
        "--hold-out",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        metavar="SHARE",
        help="A share of the examples of each label to judge, in place of --test.",
    )
    @_label_flags
    @click.option("--targets", metavar="A,B", help="q_proj, ..., down_proj; default: all-linear.")
    @click.option("--betas", metavar="A,B", help="AdamW's; default: 0.9,0.999.")
    @click.option("--no-mask-prompt", is_flag=True, help="Learn the prompts as well.")
    @click.option(
        "--plot",
        metavar="FILE",
        type=output_type(click.Path(dir_okay=False)),
        help="The losses as SVG in FILE as well as in OUT_DIR/losses.svg.",
    )
    @_config_flags
    def train(out_dir: str, **given: Any) -> None:
        """Train a LoRA adapter, and write it to OUT_DIR.

        With labels, each is learned at the tokens where classify reads it. classify, generate and
        the others take the adapter with --adapter OUT_DIR. What was learned by a killed run is in
        OUT_DIR's checkpoints: --resume goes on with the same losses.
        """
        from core_mlx_native.lora.command import train

        train(out_dir, given, config_fields())

    return train


def _eval_command() -> click.Command:
    import click

    @click.command("eval")
    @_model_flags
    @click.option("--adapter", "--adapter-path", metavar="DIR", help="What lora train has written.")
    @click.option("-i", "--data", required=True, metavar="FILE", help="JSON lines, as for train.")
    @click.option("--validation", metavar="FILE", help="Fit a temperature to these first.")
    @_label_flags
    @click.option("--json", "as_json", is_flag=True, help="All figures as one JSON object.")
    def evaluate(**given: Any) -> None:
        """Tell what a model makes of examples, with an adapter and without it.

        With labels: how many are right, figures of each label, what was taken for what, and how
        far probabilities hold. Of other examples, the loss of each token that would be learned.
        """
        from core_mlx_native.lora.command import evaluate

        evaluate(given)

    return evaluate


def _model_flags(command: Any) -> Any:
    import click

    flags = [
        click.option(
            *("-m", "--model"),
            envvar="INFER_MODEL",
            required=True,
            metavar="MODEL",
            help="A path, or a name that discover shows; or set INFER_MODEL.",
        ),
        click.option("-b", "--backend", metavar="NAME", help="Default: the best one that trains."),
        click.option("--dtype", help="What the model computes in; default: the device's best."),
    ]
    return _decorated(command, flags)


def _label_flags(command: Any) -> Any:
    import click

    flags = [
        click.option("--text", metavar="FIELD", default="text", help="The field with the text."),
        click.option(
            *("--gold", "--label"),
            metavar="FIELD",
            default="label",
            help="The field with the label.",
        ),
        click.option(
            "--template", help=r'What a text stands in: "{text}\nTopic:"; default: {text}.'
        ),
        click.option("--labels", metavar="A,B,C", help="The labels; default: those that occur."),
        click.option("--label-prefix", help="Text before a label. [default: a space, if it fits]"),
    ]
    return _decorated(command, flags)


def _config_flags(command: Any) -> Any:
    import click

    flags = [click.option(flag, field, type=kind, help=told) for flag, field, kind, told in _CONFIG]
    flags += [click.option(flag, field, is_flag=True, help=told) for flag, field, told in _SWITCHES]
    flags += [
        click.option(
            "--bias-correction/--no-bias-correction",
            default=True,
            help="Correct AdamW's moments for their zeros at the start. [default: yes]",
        )
    ]
    return _decorated(command, flags)


def _decorated(command: Any, flags: list[Any]) -> Any:
    for flag in reversed(flags):
        command = flag(command)
    return command


def config_fields() -> tuple[str, ...]:
    """The fields of `core.TrainConfig` that have a flag of their own."""
    named = (field for _, field, _, _ in _CONFIG)
    return (*named, *(field for _, field, _ in _SWITCHES), "bias_correction")
