"""What ``infer-cli lora train`` and ``lora eval`` do."""

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
from core.models.names import locate
from core.protocols import Capability
from core.registry import REGISTRY
from core.system import outputs
from core.system.svg import KIND as DRAWING
from core.system.visible import visible, visible_lines
from core.training import TrainConfig, TrainingExample
from core_mlx_native.adapters.files import CONFIG, refuse_foreign
from core_mlx_native.adapters.mlx_lm import WEIGHTS
from core_mlx_native.lora import evaluation
from core_mlx_native.lora.perplexity import token_loss
from core_mlx_native.lora.progress import Progress
from core_mlx_native.model import MlxModel
from core_mlx_native.train.data import Fields, read_examples, shared_texts, split_by_label
from core_mlx_native.train.notes import read_notes
from core_mlx_native.train.rows import labels_of
from core_mlx_native.train.training import LOSSES

REPORT = "report.json"
_KIND = "core.training_report"
_REPORT_KIND = outputs.Kind("a report", re.compile(rb'\{\s*"kind": "%b"' % _KIND.encode()))
_ESCAPES = re.compile(r"\\(\\|n)")

Examples = list[TrainingExample]


def train(out_dir: str, given: Mapping[str, Any], fields: Sequence[str]) -> None:
    """Train, and write the adapter and the report beside the checkpoints.

    ``fields`` are the fields of `core.TrainConfig` among what was given. Raises `core.OutputError`
    for a directory with an adapter or a report that --resume does not continue.
    """
    _refuse_outputs(Path(out_dir), given)
    learned, validation, test = _all_examples(given)
    config = _config(_typed(given), fields, directory=out_dir, validation=tuple(validation))
    config = replace(config, labels=labels_of([*learned, *validation, *test], config))

    with _loaded(given) as model:
        steps = model.train(learned, config)
        before = _judged(model, config, test, ())
        with Progress() as progress:
            for step in steps:
                progress.show(step)
        model.save_adapter(out_dir)
        after = _judged(model, config, test, validation)

    report = {"before": before, "after": after}
    figures = {name: found.to_dict() for name, found in report.items() if found}
    written = {"kind": _KIND, "format": 1, **figures}
    outputs.write(f"{out_dir}/{REPORT}", json.dumps(written, indent=1) + "\n", _REPORT_KIND)
    if given["plot"]:
        outputs.write(given["plot"], (Path(out_dir) / LOSSES).read_bytes(), DRAWING)
    _tell(report)
    click.echo(visible(out_dir))


def _refuse_outputs(directory: Path, given: Mapping[str, Any]) -> None:
    """Raise `OutputError` before the work for what the training would replace."""
    refuse_foreign(directory)
    files = {CONFIG: None, WEIGHTS: None, REPORT: _REPORT_KIND, LOSSES: DRAWING}
    for name, kind in files.items():
        file = directory / name
        if os.path.lexists(file) and not given["resume"]:
            raise OutputError(
                f"{directory} has {name} in it already. Give another OUT_DIR, or continue the "
                "training that wrote it with --resume."
            )
        if os.path.lexists(file) and kind is not None:
            outputs.check(file, kind)
    if given["plot"]:
        outputs.check(given["plot"], DRAWING)


def evaluate(given: Mapping[str, Any]) -> None:
    """Tell what a model makes of examples without the adapter, and with it."""
    examples = read_examples(_file(given["data"], "test.jsonl"), _fields(given))
    validation = read_examples(given["validation"], _fields(given)) if given["validation"] else []
    noted = read_notes(given["adapter"]) if given["adapter"] else {}
    config = _config({**noted, **_typed(given)}, ())
    labels = labels_of(examples, config)
    config = replace(config, labels=labels)

    found: dict[str, Any] = {}
    with _loaded(given) as model:
        models = {"without adapter": model}
        if given["adapter"]:
            models["with adapter"] = model.with_adapter(given["adapter"])
        for name, each in models.items():
            if labels:
                found[name] = _judged(each, config, examples, validation)
            else:
                found[name] = token_loss(each, examples, config)

    if given["as_json"]:
        click.echo(json.dumps({name: each.to_dict() for name, each in found.items()}))
    else:
        _tell(found)


def _all_examples(given: Mapping[str, Any]) -> tuple[Examples, Examples, Examples]:
    """What is learned, what is measured on the way, and what is judged."""
    fields, data = _fields(given), Path(given["data"])
    files = {"validation": given["validation"], "test": given["test"]}
    if data.is_dir():  # as mlx-lm lays its data out
        for name, file in (("validation", data / "valid.jsonl"), ("test", data / "test.jsonl")):
            files[name] = files[name] or (str(file) if file.exists() else None)
    learned = read_examples(_file(given["data"], "train.jsonl"), fields)
    validation = read_examples(files["validation"], fields) if files["validation"] else []
    test = read_examples(files["test"], fields) if files["test"] else []
    if given["hold_out"] is not None:
        if test:
            raise click.UsageError("Give --test or --hold-out, not both.")
        learned, test = split_by_label(learned, given["hold_out"], given["seed"] or 0)
    if any(example.label is None for example in test):
        raise TrainingError(
            "What is judged has to have labels, and not all of it has. Use lora eval."
        )
    _warn_of_shared(test, learned, "learned")
    _warn_of_shared(test, validation, "used for validation")
    return learned, validation, test


def _warn_of_shared(test: Examples, others: Examples, use: str) -> None:
    if count := shared_texts(test, others):
        click.echo(
            f"warning: {count} of {len(test)} rows that are judged have texts that are {use} too, "
            "so that the accuracy is too high. Leave those texts out of one of the two.",
            err=True,
        )


def _file(path: str, name: str) -> Path:
    place = Path(path)
    return place / name if place.is_dir() else place


def _fields(given: Mapping[str, Any]) -> Fields:
    return Fields(given["text"], given["gold"])


def _config(given: Mapping[str, Any], fields: Sequence[str], **more: Any) -> TrainConfig:
    """The options of a training. Raises `core.OptionError`."""
    asked = {name: given[name] for name in fields if given.get(name) is not None}
    for name in ("labels", "targets"):
        if given.get(name):
            value = given[name]
            asked[name] = tuple(_parts(value)) if isinstance(value, str) else tuple(value)
    if given.get("betas"):
        asked["betas"] = tuple(_number(part) for part in _parts(given["betas"]))
    for name in ("template", "label_prefix"):
        if given.get(name) is not None:
            asked[name] = given[name]
    if given.get("no_mask_prompt"):
        asked["mask_prompt"] = False
    return TrainConfig(**asked, **more)


def _typed(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given; in a template that was typed, ``\\n`` is a break, ``\\\\`` one."""
    asked = {name: value for name, value in given.items() if value is not None}
    if "template" in asked:
        breaks = {"n": "\n", "\\": "\\"}
        asked["template"] = _ESCAPES.sub(lambda found: breaks[found[1]], asked["template"])
    return asked


def _parts(commas: str) -> list[str]:
    return [part.strip() for part in commas.split(",")]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number.", param_hint="'--betas'") from None


def _loaded(given: Mapping[str, Any]) -> MlxModel:
    """The model, by the backend that is asked for, or the best one that trains."""
    location = locate(given["model"])
    name = given["backend"] or REGISTRY.choose(location, Capability.TRAINABLE).backend.name
    options = {"dtype": given["dtype"]} if given["dtype"] else {}
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
) -> evaluation.Evaluation | None:
    if not examples:
        return None
    labelled = [example for example in validation if example.label is not None]
    task = evaluation.task_of(config, config.labels)
    return evaluation.evaluate(model, task, examples, labelled)


def _tell(found: Mapping[str, Any]) -> None:
    for name, each in found.items():
        if each is not None:
            click.echo(visible_lines("\n".join(each.lines(name))))
