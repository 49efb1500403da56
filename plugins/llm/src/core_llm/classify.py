"""``llm classify``: choose a label for texts, or for the lines of stdin."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

_FAILED_ROWS = 5  # the exit code of infer-cli, where rows have failed and the rest was written


@click.command()
@click.argument("texts", nargs=-1)
@click.option("--model", "-m", "model_id", help="Model. [default: llm's default model]")
@click.option("--labels", "-l", metavar="A,B,C", help="Labels to choose from.")
@click.option("--template", default="{text}", help="Prompt with {text} in it.")
@click.option("--task", type=click.Path(exists=True), help="Task file, in place of --labels.")
@click.option("--plain", "-p", is_flag=True, help="Print only the label, not JSON.")
@click.option("--backend", default="", help="Backend that loads the model.")
def classify(
    texts: Sequence[str],
    model_id: str | None,
    labels: str | None,
    template: str,
    task: str | None,
    plain: bool,
    backend: str,
) -> None:
    """Choose a label for texts, or for each line of stdin.

    Prints a line of JSON for each text: label, probabilities, margin, label_mass, error and the
    other fields of the task. Failed texts have an error, and the exit code is then 5.
    """
    import core
    import core_tasks

    if bool(labels) == bool(task):
        raise click.UsageError("Pass either --labels or --task.")
    try:
        definition = (
            core_tasks.load_task(task)
            if task
            else core_tasks.Task(template, tuple((labels or "").split(",")))
        )
        failed = _answer(_model(model_id, backend), definition, texts, plain)
    except core.CoreError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(_FAILED_ROWS if failed else 0)


def _model(model_id: str | None, backend: str) -> Any:
    import llm

    from core.api import shared_model
    from core_llm.models import CoreModel

    try:
        model = llm.get_model(model_id)
    except llm.UnknownModelError as error:
        raise click.ClickException(str(error.args[0])) from error
    if not isinstance(model, CoreModel):
        raise click.ClickException(
            f"{model.model_id} does not provide label probabilities. Pass a model of core with -m; "
            "llm models -q core/ lists them."
        )
    return shared_model(model.path, backend)


def _answer(model: Any, task: Any, texts: Sequence[str], plain: bool) -> bool:
    """Print the answers as they come; return whether any has failed."""
    failed, inputs = False, texts or _lines()
    pending: list[str] = []

    def noted() -> Iterator[str]:
        for text in inputs:
            pending.append(text)
            yield text

    for decision in task.classify_iter(model, noted()):
        text = pending.pop(0)
        failed = failed or decision.error is not None
        if plain:
            click.echo(decision.label if task.mode != "many" else ",".join(decision.labels))
        else:
            click.echo(json.dumps({"text": text, **decision.to_dict()}, ensure_ascii=False))
    return failed


def _lines() -> Iterator[str]:
    for number, line in enumerate(sys.stdin):
        yield (line if number else line.removeprefix("\ufeff")).rstrip("\r\n")
