"""``core_tasks.evaluate``: run items on a model and mark the answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from core import validate
from core.errors import EvaluationError
from core.options import GenerateConfig, GenerateOptions, resolve_generate
from core.protocols import TextModel
from core_tasks.evaluation.asking import ALL, Asker, checked_samples
from core_tasks.evaluation.items import Item
from core_tasks.evaluation.marking import METRICS, Marking, Metric
from core_tasks.evaluation.prompts import Prompting
from core_tasks.evaluation.result import Evaluation
from core_tasks.evaluation.tally import Tally

_ENDS = {"exact": ("\n",), "numeric": ("\n\n",)}


def evaluate(
    model: TextModel,
    items: Sequence[Item],
    config: GenerateConfig | None = None,
    /,
    *,
    metric: Metric | None = None,
    prompting: Prompting | None = None,
    extract: str | None = None,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    batch_sizes: Sequence[int] = (ALL,),
    num_samples: int = 1,
    pass_at: Sequence[int] = (),
    **options: Unpack[GenerateOptions],
) -> Evaluation:
    """Run all items on a model, mark its answers, and count the marks.

    ``metric``: ``choice`` takes the likeliest choice, ``exact`` compares texts, ``numeric`` the
    numbers in them; by default ``choice`` if the items have choices, else ``exact``. ``prompting``
    turns items into prompts; ``extract`` is a pattern for the answer within a text. All items run
    at each batch size, and the first one's answers are marked. Texts end at a line break, numeric
    ones at an empty line, a chat's where the model ends them, unless ``stop`` is set.

    A failure of one item is its ``error``. Raises `EvaluationError` without any items, TypeError
    and `OptionError` for invalid options, and the model's errors.
    """
    listed = [*items]
    if not listed:
        raise EvaluationError("The evaluation has no items. Pass at least one.")
    put = prompting or Prompting()
    kind = metric or ("choice" if put.letters else metric_of(listed[0]))
    validate.one_of("metric", kind, METRICS)
    request = with_ends(resolve_generate(config, options), kind, put)
    if put.chat and request.chat_template_kwargs and put.chat_template_kwargs is None:
        put = replace(put, chat_template_kwargs=request.chat_template_kwargs)
    sizes = tuple(validate.integer("batch_sizes", size, 0) for size in batch_sizes)
    samples = validate.integer("num_samples", num_samples, 1)
    checked_samples(samples, sizes, request, pass_at)

    pattern = None if extract is None else re.compile(extract)
    marking = Marking(kind, not ignore_case, not ignore_punctuation, pattern)
    asker = Asker(model, put, marking, batch_sizes=sizes, samples=samples)
    results = tuple(asker.answered(listed, request))
    tally = Tally(pass_at)
    for result in results:
        tally.add(result.to_dict())
    report = tally.to_dict()
    interval = report["accuracy_interval"]
    return Evaluation(results, tally.accuracy, interval and tuple(interval), report)


def metric_of(item: Item) -> Metric:
    """Return the usual metric of items like this one."""
    return "choice" if item.choices else "exact"


def with_ends(config: GenerateConfig, metric: Metric, prompting: Prompting) -> GenerateConfig:
    """Return the options with the usual end of an answer, unless they set ``stop``."""
    if config.stop or prompting.chat or metric not in _ENDS:
        return config
    return replace(config, stop=_ENDS[metric])
