"""``eval --task`` and ``--head``: the accuracy of a file, as ``classify --gold`` reports it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from core_cli import exits
from core_cli.jobs.run import run
from core_cli.rows import checks, gold_labels
from core_cli.tasks import question as questions
from core_tasks.evaluation.items import ANSWERS

if TYPE_CHECKING:
    from core_cli.evaluation.items import EvalFlags
    from core_cli.jobs.gold import Gold, ManyGold

_OF_ITEMS = frozenset(
    {
        *("choices_field", "few_shot", "shots", "template", "template_file", "answer_prefix"),
        *("label_sentence", "letters", "chat", "system", "chat_template_kwargs", "thinking"),
        *("opening", "continue_final_message", "metric", "extract", "ignore_case", "max_tokens"),
        *("ignore_punctuation", "gen_batch_size", "num_samples", "pass_at", "saved", "compare"),
        *("stop", "stop_tokens", "temperature", "seed", "top_k", "top_p", "min_p", "typical_p"),
        *("repeat_penalty",),
    }
)
"""Parameters of ``eval`` that a task or head sets, or that only affect generated answers."""


def evaluate_file(flags: EvalFlags) -> None:
    """Classify the rows of ``-i`` and print how many labels are correct.

    Raises `click.UsageError` for flags that cannot be combined, and `CommandFailed` if rows failed
    or the accuracy is below ``--fail-under``.
    """
    _refuse_of_items("--task" if flags.task else "--head")
    if flags.head:
        question = questions.question_of(flags)
    else:
        task = questions.task_of(flags)
        question = questions.of_task(task)
        flags = replace(flags, model=flags.model or task.model or None)
    flags = replace(flags, gold=flags.answer_field or _usual_answer(flags))
    checks.refuse(flags)
    gold_labels.warn(flags, question.labels, many=question.mode == "many")

    work = questions.work_of(question, None)
    comparisons: list[Gold | ManyGold] = []

    def gold(field: str) -> Gold | ManyGold:
        comparisons.append(work.gold(field))
        return comparisons[0]

    run(flags, replace(work, command="eval", gold=gold))
    if flags.fail_under is not None and comparisons:
        exits.check_accuracy(comparisons[0].accuracy, flags.fail_under)


def _refuse_of_items(file: str) -> None:
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if given and parameter.name in _OF_ITEMS:
            flag = max(parameter.opts, key=len)
            raise click.UsageError(
                f"{flag} cannot be combined with {file}, which sets the question."
            )


def _usual_answer(flags: EvalFlags) -> str:
    """Return the first usual name of a gold label that the first row has."""
    from core_cli.rows import input

    if flags.file in (None, "-"):
        raise click.UsageError("eval --task and --head need a file with gold labels: pass -i FILE.")
    with input.opened(flags, None) as source:
        first = next(iter(source.rows), None)
    names = [name for name in ANSWERS if first is not None and first.value(name) is not None]
    if not names:
        raise click.UsageError(
            f"{flags.file} has no gold label in {', '.join(ANSWERS)}. Select its field with --gold."
        )
    return names[0]
