"""Turns the flags of ``eval`` into a run over items."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from core.errors import EvaluationError
from core.protocols import Capability
from core_cli import exits
from core_cli.evaluation import items
from core_cli.evaluation.asker import ItemAsker, Marks, kind
from core_cli.evaluation.items import EvalFlags
from core_cli.flags import given
from core_cli.jobs.run import RowJob, run
from core_cli.rows import checks
from core_cli.rows.asker import answering
from core_tasks.evaluation.asking import ALL, Asker, checked_samples
from core_tasks.evaluation.evaluate import metric_of, with_ends
from core_tasks.evaluation.marking import Marking, Metric
from core_tasks.evaluation.prompts import Prompting, fingerprint
from core_tasks.template import Template

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core_cli.loading import Loaded

_BLOCK, _LARGEST = 32, 1024


def evaluate(flags: EvalFlags) -> Marks:
    """Run, score and write all items of ``-i``, then print a summary.

    Raises `click.UsageError` for flags that cannot be combined, and `CommandFailed` if items failed
    or the accuracy is below ``--fail-under``.
    """
    _refuse(flags)
    prompting = prompting_of(flags)
    metric = _metric(flags)
    marking = _marking(flags, metric)
    sizes, samples = flags.gen_batch_size or (ALL,), flags.num_samples
    config = with_ends(flags.answer_config(), metric, prompting)
    checked_samples(samples, sizes, config, flags.pass_at)
    items.warn_of_examples(flags, prompting.examples)

    askers: list[Asker] = []

    def asker(loaded: Loaded) -> ItemAsker:
        if prompting.chat:
            _need_templates(loaded, config)
        askers.append(
            Asker(
                loaded.model,
                prompting,
                marking,
                batch_sizes=sizes,
                samples=samples,
                generate=answering(loaded),
            )
        )
        return ItemAsker(
            loaded, askers[0], items.names_of(flags), _answer_config(loaded, config, metric)
        )

    marks = Marks(flags.pass_at, lambda: askers[0].speeds if askers else {})
    row_job = RowJob(
        command="eval",
        needed=Capability.SCORING if metric == "choice" else Capability.GENERATE,
        instead=Capability.LABEL_SENTENCES if metric == "choice" else None,
        config=config,
        kind=kind(),
        ask=answering,
        generate=answering,
        question=_question(flags, prompting, marking, sizes),
        marks=marks,
        fields=items.fields_of(flags),
        asker=asker,
        block=_block(sizes),
        steady=len(sizes) > 1,
    )
    # The prompts of items already include these flags.
    unused: dict[str, Any] = {"chat": False, "system": None, "opening": None}
    run(replace(flags, template=None, template_file=None, **unused), row_job)
    if flags.fail_under is not None:
        exits.check_accuracy(marks.tally.accuracy, flags.fail_under)
    return marks


def prompting_of(flags: EvalFlags) -> Prompting:
    """Return the settings that turn items into prompts. Raises `click.UsageError`."""
    template = None
    if flags.template_file is not None:
        template = checks.read_text(flags.template_file)
    elif flags.template is not None:
        template = Template.typed(flags.template).source

    prompting = Prompting(
        template=template,
        examples=items.examples_of(flags),
        letters=flags.letters,
        chat=flags.uses_template(),
        system=flags.system,
        chat_template_kwargs=flags.template_config().get("chat_template_kwargs"),
        opening=flags.opening or "",
        **given(prefix=flags.answer_prefix, label_sentence=flags.label_sentence),
    )
    try:
        prompting.check()
    except EvaluationError as error:
        raise click.UsageError(str(error)) from None
    return prompting


def _refuse(flags: EvalFlags) -> None:
    checks.refuse(flags, flags.few_shot)
    if flags.output and flags.output_form not in ("jsonl", "json"):
        raise click.UsageError(
            f"Cannot write an evaluation to {flags.output}: only JSON holds complete items. Use "
            "-o OUT.jsonl, or --to csv on stdout for a table."
        )


def _metric(flags: EvalFlags) -> Metric:
    """Return the metric; without ``--metric`` the first item decides."""
    requested = flags.metric
    first = items.first_of(flags)
    if requested is None and first is None and not flags.letters:
        raise click.UsageError("Items from stdin require --metric choice, exact or numeric.")
    if requested is not None or flags.letters:
        return requested or "choice"
    assert first is not None
    return metric_of(first)


def _marking(flags: EvalFlags, metric: Metric) -> Marking:
    try:
        extract = None if flags.extract is None else re.compile(flags.extract)
    except re.error as error:
        raise click.BadParameter(
            f"{flags.extract!r} is not a valid regular expression: {error}.",
            param_hint="'--extract'",
        ) from None
    return Marking(metric, not flags.ignore_case, not flags.ignore_punctuation, extract)


def _answer_config(loaded: Loaded, config: GenerateConfig, metric: Metric) -> GenerateConfig:
    """Return the config with log-probabilities, if available: they give the confidence."""
    with_logprobs = metric != "choice" and Capability.LOGPROBS in loaded.capabilities
    return replace(config, return_logprobs=True) if with_logprobs else config


def _need_templates(loaded: Loaded, config: GenerateConfig) -> None:
    from core_cli.rows.prompts import PromptMaker

    PromptMaker(loaded.model, loaded.backend.name, chat=True, config=config).check()


def _block(sizes: Sequence[int]) -> int | None:
    """Return the rows per block, so that each batch size fills its batches."""
    if [*sizes] == [ALL]:
        return None
    least = math.lcm(*(size or 1 for size in sizes))
    if least > _LARGEST:
        return max(sizes)
    return least * max(1, _BLOCK // least)


def _question(
    flags: EvalFlags, prompting: Prompting, marking: Marking, sizes: Sequence[int]
) -> str:
    """Return the facts that the scores depend on, besides the flags that every job records."""
    extract = None if marking.extract is None else marking.extract.pattern
    return json.dumps(
        {
            "prompt": fingerprint(prompting),
            "metric": [marking.metric, marking.case, marking.punctuation, extract],
            "fields": [flags.answer_field, flags.choices_field],
            "batch sizes": [*sizes],
            "samples": flags.num_samples,
        }
    )
