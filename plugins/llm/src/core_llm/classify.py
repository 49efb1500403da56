"""``llm classify``: which of these labels, for texts or for the lines of stdin."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

_FAILED_ROWS = 5  # the exit code of infer-cli, where rows have failed and the rest was written


@click.command()
@click.argument("texts", nargs=-1)
@click.option("--model", "-m", "model_id", help="The model; by default that of llm.")
@click.option("--labels", "-l", metavar="A,B,C", help="The labels to choose from.")
@click.option("--template", default="{text}", help="What is asked, with {text} in it.")
@click.option("--task", type=click.Path(exists=True), help="A task file instead, as for infer-cli.")
@click.option("--plain", "-p", is_flag=True, help="The label alone, and no JSON.")
@click.option("--backend", default="", help="Which backend loads the model.")
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

    A line of JSON for each text, as the answers come: label, probabilities, margin, label_mass,
    error and what else a task says. What goes wrong with one text is its error, and the exit code
    is then 5.
    """
    import core

    if bool(labels) == bool(task):
        raise click.UsageError("Give --labels or --task, and not both.")
    try:
        asked = (
            core.load_task(task) if task else core.Task(template, tuple((labels or "").split(",")))
        )
        failed = _answer(_model(model_id, backend), asked, texts, plain)
    except core.CoreError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(_FAILED_ROWS if failed else 0)


def _model(model_id: str | None, backend: str) -> Any:
    import llm

    from core.shared_models import shared_model
    from core_llm.models import CoreModel

    try:
        model = llm.get_model(model_id)
    except llm.UnknownModelError as error:
        raise click.ClickException(str(error.args[0])) from error
    if not isinstance(model, CoreModel):
        raise click.ClickException(
            f"{model.model_id} shows no probabilities of labels: give a model of core with -m. "
            "llm models -q core/ lists them."
        )
    return shared_model(model.path, backend)


def _answer(model: Any, task: Any, texts: Sequence[str], plain: bool) -> bool:
    """Print the answers as they come; whether any has failed."""
    failed, asked = False, texts or _lines()
    kept: list[str] = []

    def noted() -> Iterator[str]:
        for text in asked:
            kept.append(text)
            yield text

    for decision in task.classify_iter(model, noted()):
        text = kept.pop(0)
        failed = failed or decision.error is not None
        if plain:
            click.echo(decision.label if task.mode != "many" else ",".join(decision.labels))
        else:
            click.echo(json.dumps({"text": text, **decision.to_dict()}, ensure_ascii=False))
    return failed


def _lines() -> Iterator[str]:
    for number, line in enumerate(sys.stdin):
        yield (line if number else line.removeprefix("\ufeff")).rstrip("\r\n")
