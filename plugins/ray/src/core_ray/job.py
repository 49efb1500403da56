"""``infer-cli classify --ray``: Parquet in, Parquet out, each row once, even if the driver dies.

Ray's checkpoint records the written rows: files of ids in ``OUT.checkpoint``, each written before
its rows, and valid once these are complete (two-phase commit). ``OUT/_job.json`` identifies the
job, and whether it is finished.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pyarrow.dataset
import pyarrow.fs
import ray
from ray.data.checkpoint import CheckpointConfig

import core
from core.models.fingerprint import fingerprint
from core_ray import folders
from core_ray.datasets import classify
from core_tasks.deciding import question_of
from core_tasks.files import to_toml

_ROW = "row_hash"  # which Ray makes of a row's file and place
_FAILED = 5  # the exit code of infer-cli where rows failed


def run(flags: Mapping[str, Any]) -> None:
    """Classify all rows and write the results.

    Raises `click.UsageError` for another job's OUT, `click.ClickException` with the reason if an
    actor failed, and `click.exceptions.Exit` if rows failed.
    """
    labels = tuple(label.strip() for label in flags["labels"].split(",")) if flags["labels"] else ()
    names = ("template", "label_prefix", "task", "head", "label_sentence")
    question = question_of(labels, **{name: flags[name] for name in names})
    source, out = _address(flags["source"]), _address(flags["output"]).rstrip("/")
    folders.refuse_inside(out, source)
    files, folder = pyarrow.fs.FileSystem.from_uri(out)
    content = to_toml(question) if not flags["head"] else Path(flags["head"]).read_bytes().hex()
    reading = (source, flags["field"], flags["id_field"], flags["allow_blank"])
    facts = (*reading, folders.listing(source), _model_facts(flags["model"]), content)
    job = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    if _finished(files, folder, job, flags):
        click.echo(f"{out} is already complete.", err=True)
        return

    _connect(flags)
    context = ray.data.DataContext.get_current()
    identity = flags["id_field"] or _ROW
    context.checkpoint_config = CheckpointConfig(
        identity, folders.checkpoint_of(out), delete_checkpoint_on_success=False
    )
    rows = ray.data.read_parquet(source, include_row_hash=identity == _ROW)
    rows = rows.repartition(target_num_rows_per_block=flags["rows_per_file"])
    placing = ("backend", "concurrency", "num_gpus", "num_cpus", "batch_size", "allow_blank")
    try:
        answers = classify(
            rows,
            model=flags["model"],
            text=flags["field"],
            **{"head" if flags["head"] else "task": question},
            **{name: flags[name] for name in placing},
        )
        if flags["overwrite"]:
            folders.clear(files, folder)
        folders.note(files, folder, job, finished=False)
        answers.write_parquet(out)
    except core.CoreError as error:
        # Raised in an actor: Ray adds its traceback around it, and advice below.
        reason, _, _ = str(getattr(error, "cause", error)).partition("\nFailed to apply UDF")
        raise click.ClickException(reason) from None
    finally:
        context.checkpoint_config = None

    # In this order: a job that is not noted as finished is resumed from the checkpoint.
    folders.note(files, folder, job, finished=True)
    folders.clear_checkpoint(files, folder)
    _tell(files, folder, out)


def _model_facts(model: str) -> str:
    """Return the fingerprint of a model's files; its name if they are not on this machine."""
    try:
        return fingerprint(model)
    except core.ModelError:
        return model


def _address(place: str) -> str:
    """Return the place as a URL or an absolute path, valid on all nodes."""
    return place if "://" in place else os.path.abspath(place)


def _connect(flags: Mapping[str, Any]) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # of a cluster that is started here
    level = logging.INFO if flags["verbose"] else logging.WARNING
    logging.getLogger("core_ray").setLevel(level)
    address = flags["address"] or None
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, logging_level=level)
    logging.getLogger("ray.data").setLevel(logging.INFO if flags["verbose"] else logging.CRITICAL)
    warnings.filterwarnings("ignore", message="The minimum number of concurrent actors")
    context = ray.data.DataContext.get_current()
    context.raise_original_map_exception = True  # and not one of Ray's
    context.print_on_execution_start = flags["verbose"]
    context.enable_progress_bars = sys.stderr.isatty()


def _finished(files: Any, folder: str, job: str, flags: Mapping[str, Any]) -> bool:
    """Return whether OUT has the complete job.

    Raises `click.UsageError` for an OUT that must not be changed.
    """
    noted = folders.check(files, folder, overwrite=flags["overwrite"])
    if noted is None or flags["overwrite"]:
        return False
    if not flags["resume"]:
        raise click.UsageError(
            f"{folder} already exists. Use --resume to continue it, or --overwrite to start over."
        )
    if noted["job"] != job:
        raise click.UsageError(
            f"Cannot resume {folder}: the input (its files, sizes and times), model, field or "
            "question has changed. Restore the original, or choose another OUT."
        )
    if noted["finished"]:
        folders.clear_checkpoint(files, folder)
    return bool(noted["finished"])


def _tell(files: Any, folder: str, out: str) -> None:
    """Report the number of rows. Raises `click.exceptions.Exit` if some failed."""
    answers = pyarrow.dataset.dataset(folder, filesystem=files, format="parquet")
    count = answers.count_rows()
    failed = answers.count_rows(filter=~pyarrow.dataset.field("error").is_null()) if count else 0
    click.echo(f"{out}: {count} rows, {failed} failed", err=True)
    if failed:
        raise click.exceptions.Exit(_FAILED)
