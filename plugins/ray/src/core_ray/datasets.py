"""`classify` and `generate`: a Dataset in, the same rows with their answers out."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict, Unpack

import ray.data

import core
import core_tasks
from core import validate
from core.options import LABEL_SENTENCE, resolve_generate
from core.secret import refuse_secrets
from core_ray.actor import Actor, load_model
from core_ray.placement import alive, placed
from core_ray.record import Reporter
from core_ray.work import Classifying, Generating, Work
from core_tasks.deciding import Path, Question, question_of
from core_tasks.template import Template

_LOGGER = logging.getLogger("core_ray")

Model = str | os.PathLike[str] | Callable[[], core.TextModel]
"""A path or a name that is valid on every node, or a function that loads a model there."""


class Running(TypedDict, total=False):
    """Keywords of both: the loading of the model, and the distribution of the work.

    ``backend`` and ``options`` are for `core.load_model`. ``concurrency`` is the number of actors,
    each with ``num_gpus`` and ``num_cpus``; by default as many as fit the cluster. ``num_cpus``
    also sets the threads of each model. ``batch_size`` rows (1024) run at once. After ``tries``
    processes (3; at least two) died of a row, it is skipped. A text that is empty or white space is
    an error of its row unless ``allow_blank``.
    """

    backend: str
    options: Mapping[str, Any]
    concurrency: int | None
    num_cpus: float | None
    num_gpus: float | None
    batch_size: int
    tries: int
    allow_blank: bool


def classify(
    dataset: ray.data.Dataset,
    *,
    model: Model,
    text: str = "text",
    labels: Sequence[str] = (),
    template: str = "{text}",
    label_prefix: str = " ",
    label_sentence: str = LABEL_SENTENCE,
    task: core_tasks.Task | Path | None = None,
    head: Question | Path | None = None,
    **running: Unpack[Running],
) -> ray.data.Dataset:
    """Return the rows with a decision on the text of each: lazy, as all of Ray Data is.

    The question is ``labels`` after a ``template``, a ``task``, or a ``head``, the latter as
    objects or as files on the driver. Added columns: ``label``, ``probabilities`` (a struct),
    ``margin``, ``label_mass``, and ``error``, which is null unless the row failed; ``labels`` for a
    task with mode "many", ``value`` with ordinal labels, ``accepted`` with a threshold. For a null
    text they are null. Raises `TaskError` and `OptionError`. Errors while the rows are computed are
    Ray's, caused by an `ActorLoadError` if a model could not be loaded.
    """
    question = question_of(labels, template, label_prefix, task, head, label_sentence)
    return _mapped(dataset, model, text, Classifying(question), running)


def generate(
    dataset: ray.data.Dataset,
    *,
    model: Model,
    text: str = "text",
    template: str = "{text}",
    chat: bool = False,
    config: core.GenerateConfig | None = None,
    **running: Unpack[Running],
) -> ray.data.Dataset:
    """Return the rows with an answer to the text of each.

    ``answer``, ``finish_reason`` and ``error``.

    ``config`` has the options of `batch_generate` except ``cancel``: a job ends with its driver.
    With ``chat``, each filled template is a message in the model's chat template. Raises like
    `classify`.
    """
    Template(template).check({"text"})
    request = resolve_generate(config, {})
    if request.cancel is not None:
        raise core.InvalidOptionError("cancel", request.cancel, "None on a cluster")
    return _mapped(dataset, model, text, Generating(request, template, chat), running)


def _mapped(
    dataset: ray.data.Dataset, model: Model, text: str, work: Work, running: Running
) -> ray.data.Dataset:
    tries = validate.integer("tries", running.get("tries", 3), 2)
    wanted = (running.get(name) for name in ("concurrency", "num_cpus", "num_gpus"))
    placement = placed(alive(), *wanted)  # type: ignore[arg-type]
    _LOGGER.info("%d actors: %s", placement.actors, placement.reason)
    load = _loading(model, running, placement.threads)
    return dataset.map_batches(
        Actor,
        fn_constructor_args=(
            *(work, load, text, Reporter.start(), tries),
            validate.flag("allow_blank", running.get("allow_blank", False)),
        ),
        batch_size=validate.integer("batch_size", running.get("batch_size", 1024), 1),
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=placement.actors),
        num_cpus=placement.num_cpus,
        num_gpus=placement.num_gpus or None,
        udf_modifying_row_count=False,
    )


def _loading(model: Model, running: Running, threads: int | None) -> Callable[[], core.TextModel]:
    """Return the function that loads the model in an actor.

    Raises TypeError for a loaded model, `InvalidOptionError` for an API key in the options.
    """
    if isinstance(model, str | os.PathLike):
        options = dict(running.get("options", {}))
        refuse_secrets(options, "the processes of the cluster")
        return partial(load_model, os.fspath(model), running.get("backend", ""), options, threads)
    if not callable(model):
        raise TypeError(
            f"A {type(model).__name__} cannot be sent to other nodes. Pass the path or the name of "
            "the model, or a function that loads it."
        )
    return model
