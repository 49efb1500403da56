"""The commands ``infer-cli lora train`` and ``lora eval``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import core
from core.errors import OutputError, TrainingError, UnsupportedOperationError
from core.models.locating import locate
from core.protocols import Capability
from core.registry import REGISTRY
from core.system import outputs
from core.system.terminal import visible, visible_lines
from core.training import TrainConfig, TrainingExample
from core_mlx_native.adapters.files import CONFIG, refuse_foreign
from core_mlx_native.adapters.mlx_lm import WEIGHTS
from core_mlx_native.lora import evaluation
from core_mlx_native.model import MlxModel
from core_mlx_native.progress import TrainingProgress, progress_bar
from core_mlx_native.train.data import ExampleFields, read_examples, shared_texts, split_by_label
from core_mlx_native.train.notes import read_notes
from core_mlx_native.train.rows import labels_of
from core_mlx_native.train.training import LOSSES
from core_tasks.svg import KIND as DRAWING

REPORT = "report.json"
_KIND = "core.training_report"
_REPORT_KIND = outputs.Kind("a report", re.compile(rb'\{\s*"kind": "%b"' % _KIND.encode()))
_ESCAPES = re.compile(r"\\(\\|n)")

Examples = list[TrainingExample]


def train(out_dir: str, given: Mapping[str, Any], fields: Sequence[str]) -> None:
    """Train, and write the adapter and the report next to the checkpoints.

    ``fields`` are the given fields of `core.TrainConfig`. Raises `core.OutputError` for a directory
    with an adapter or a report that --resume does not continue.
    """
    _refuse_outputs(Path(out_dir), given)
    learned, validation, test = _all_examples(given)
    config = _config(_typed(given), fields, directory=out_dir, validation=tuple(validation))
    config = replace(config, labels=labels_of([*learned, *validation, *test], config))

    with _loaded(given) as model:
        steps = model.train(learned, config)
        before = _judged(model, config, test, ())
        with TrainingProgress() as progress:
            for step in steps:
                progress.show(step)
        model.save_adapter(out_dir)
        after = _judged(model, config, test, validation)

    report = {"before": before, "after": after}
    figures = {name: result.to_dict() for name, result in report.items() if result}
    written = {"kind": _KIND, "format": 1, **figures}
    outputs.write(f"{out_dir}/{REPORT}", json.dumps(written, indent=1) + "\n", _REPORT_KIND)
    if given["plot"]:
        outputs.write(given["plot"], (Path(out_dir) / LOSSES).read_bytes(), DRAWING)
    _print(report)
    click.echo(visible(out_dir))


def _refuse_outputs(directory: Path, given: Mapping[str, Any]) -> None:
    """Raise `OutputError` early for files that the training would replace."""
    refuse_foreign(directory)
    files = {CONFIG: None, WEIGHTS: None, REPORT: _REPORT_KIND, LOSSES: DRAWING}
    for name, kind in files.items():
        file = directory / name
        if os.path.lexists(file) and not given["resume"]:
            raise OutputError(
                f"{directory} already contains {name}. Choose another OUT_DIR, or continue that "
                "training with --resume."
            )
        if os.path.lexists(file) and kind is not None:
            outputs.check(file, kind)
    if given["plot"]:
        outputs.check(given["plot"], DRAWING)


def evaluate(given: Mapping[str, Any]) -> None:
    """Print metrics of a model on examples without the adapter, and with it."""
    examples = _examples(_file(given["data"], "test.jsonl"), given)
    validation = _examples(given["validation"], given) if given["validation"] else []
    noted = read_notes(given["adapter"]) if given["adapter"] else {}
    config = _config({**noted, **_typed(given)}, ())
    labels = labels_of(examples, config)
    config = replace(config, labels=labels)

    report: dict[str, Any] = {}
    with _loaded(given) as model:
        models = {"without adapter": model}
        if given["adapter"]:
            models["with adapter"] = model.with_adapter(given["adapter"])
        for name, variant in models.items():
            if labels:
                report[name] = _judged(variant, config, examples, validation)
            else:
                report[name] = evaluation.token_loss(variant, examples, config)

    if given["as_json"]:
        click.echo(json.dumps({name: result.to_dict() for name, result in report.items()}))
    else:
        _print(report)


def _all_examples(given: Mapping[str, Any]) -> tuple[Examples, Examples, Examples]:
    """Return the training, validation and test examples."""
    data = Path(given["data"])
    files = {"validation": given["validation"], "test": given["test"]}
    if data.is_dir():  # mlx-lm's data layout
        for name, file in (("validation", data / "valid.jsonl"), ("test", data / "test.jsonl")):
            files[name] = files[name] or (str(file) if file.exists() else None)
    learned = _examples(_file(given["data"], "train.jsonl"), given)
    validation = _examples(files["validation"], given) if files["validation"] else []
    test = _examples(files["test"], given) if files["test"] else []
    if given["hold_out"] is not None:
        if test:
            raise click.UsageError("--test and --hold-out cannot be combined.")
        learned, test = split_by_label(learned, given["hold_out"], given["seed"] or 0)
    if any(example.label is None for example in test):
        raise TrainingError(
            "Some test examples have no label. Label all of them, or measure the loss with lora "
            "eval."
        )
    _warn_of_shared(test, learned, "used for training")
    _warn_of_shared(test, validation, "used for validation")
    return learned, validation, test


def _warn_of_shared(test: Examples, others: Examples, use: str) -> None:
    if count := shared_texts(test, others):
        click.echo(
            f"Warning: {count} of {len(test)} test rows have texts that are also {use}, so the "
            "accuracy is too high. Remove those texts from one of the two.",
            err=True,
        )


def _file(path: str, name: str) -> Path:
    place = Path(path)
    return place / name if place.is_dir() else place


def _examples(path: str | Path, given: Mapping[str, Any]) -> Examples:
    """Return the examples of a file; the command line reads tables as for its own commands."""
    hooks = click.get_current_context().find_root().obj
    fields = ExampleFields(given["text"], given["gold"])
    return read_examples(path, fields, getattr(hooks, "records", None))


def _config(given: Mapping[str, Any], fields: Sequence[str], **more: Any) -> TrainConfig:
    """Return the options of a training. Raises `core.OptionError`."""
    options = {name: given[name] for name in fields if given.get(name) is not None}
    for name in ("labels", "targets"):
        if given.get(name):
            value = given[name]
            options[name] = tuple(_parts(value)) if isinstance(value, str) else tuple(value)
    if given.get("betas"):
        options["betas"] = tuple(_number(part) for part in _parts(given["betas"]))
    for name in ("template", "label_prefix"):
        if given.get(name) is not None:
            options[name] = given[name]
    if given.get("no_mask_prompt"):
        options["mask_prompt"] = False
    return TrainConfig(**options, **more)


def _typed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options; in a template, ``\\n`` is a line break and ``\\\\`` a backslash."""
    options = {name: value for name, value in given.items() if value is not None}
    if "template" in options:
        breaks = {"n": "\n", "\\": "\\"}
        options["template"] = _ESCAPES.sub(lambda match: breaks[match[1]], options["template"])
    return options


def _parts(commas: str) -> list[str]:
    return [part.strip() for part in commas.split(",")]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number.", param_hint="'--betas'") from None


def _loaded(given: Mapping[str, Any]) -> MlxModel:
    """Return the model, loaded by the requested backend or the best one that trains."""
    location = locate(given["model"])
    name = given["backend"] or REGISTRY.choose(location, Capability.TRAINABLE).backend.name
    options = {"dtype": given["dtype"]} if given["dtype"] else {}
    with progress_bar(f"loading {given['model']}"):
        model = core.load_model(location, backend=name, options=options)
    if not isinstance(model, MlxModel):
        model.close()
        raise UnsupportedOperationError("train", name, ("metal", "mlx_cuda", "mlx_cpu"))
    return model


def _judged(
    model: MlxModel,
    config: TrainConfig,
    examples: Sequence[TrainingExample],
    validation: Examples | tuple[()],
) -> evaluation.AdapterEvaluation | None:
    if not examples:
        return None
    labelled = [example for example in validation if example.label is not None]
    task = evaluation.task_of(config, config.labels)
    with progress_bar("judging") as show:
        return evaluation.evaluate(model, task, examples, labelled, show)


def _print(report: Mapping[str, Any]) -> None:
    for name, result in report.items():
        if result is not None:
            click.echo(visible_lines("\n".join(result.lines(name))))
