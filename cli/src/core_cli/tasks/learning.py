"""Trains a classifier head on rows with gold labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.protocols import Capability
from core.system import outputs
from core_cli import output, suggestions, yardsticks
from core_cli.flags import FitFlags, given
from core_cli.progress import working
from core_cli.rows import checks
from core_cli.rows.shortening import shortened
from core_cli.tasks import gold_rows
from core_tasks.agreement.measures import wilson
from core_tasks.heads import learner

_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnFlags(FitFlags):
    """Flags of ``learn``."""

    output: str
    template: str | None = None
    template_file: str | None = None
    layers: tuple[int, ...] = ()
    kinds: tuple[str, ...] = ()
    early_exit: bool = False


def run(flags: LearnFlags) -> None:
    """Train a head and write it.

    Raises `click.UsageError` for wrong flags, and `core_learn.TrainingDataError` for rows that do
    not suffice.
    """
    from core_cli.loading import explain, load

    learn = learner()

    model_name = flags.need_model()
    outputs.check(flags.output, learn.HEAD_KIND, overwrite=flags.overwrite)
    template = _template(flags)
    rows = gold_rows.read(flags)
    assert rows.gold is not None  # --gold is required

    with working(flags, model_name) as work:
        loaded = load(model_name, flags.load_config(), Capability.HIDDEN_STATES)
        with loaded.model as model:
            if flags.verbose:
                explain(loaded)
            chosen = given(layers=flags.layers or None, kinds=flags.kinds or None)
            few = learn.FewShot(model, template=template, early_exit=flags.early_exit, **chosen)
            prompt = [lambda text: template.replace("{text}", text)]
            texts = shortened(loaded, rows.texts, flags.truncate, prompt)
            few.fit(texts, rows.gold, progress=work)
    if flags.verbose:
        _tell_trials(few.trials)
    _tell(few, rows.gold)
    baseline = yardsticks.say(rows.texts, rows.gold)
    if few.head.accuracy is not None:
        right = round(few.head.accuracy * len(rows.texts))
        low, _ = wilson(right, len(rows.texts)) or (0.0, 1.0)
        yardsticks.say_next(baseline, low, flags, of="head")
    few.save(flags.output)
    command = suggestions.classify_command(flags, head=flags.output)
    output.say(f"{flags.output}: classifier head. Use it with:\n{command}")


def _template(flags: LearnFlags) -> str:
    """Return the template of the text that the model reads.

    Raises `click.UsageError` for a template without the text.
    """
    template = checks.template_of(flags.template, flags.template_file, records=False)
    return "{text}" if template is None else template.source


def _tell(few: Any, gold: Sequence[str]) -> None:
    head, counts = few.head, Counter(gold)
    shown = ", ".join(f"{label} {counts[label]}" for label in head.labels[:_SHOWN])
    more = f", and {len(head.labels) - _SHOWN} more labels" if len(head.labels) > _SHOWN else ""
    output.say(f"trained on {output.counted(head.rows, 'row')}: {shown}{more}")
    what = f"{head.kind} on layer {head.layer} of {head.num_layers}, strength {head.strength:g}"
    if head.accuracy is None:
        output.say(f"{what}: accuracy unknown, as some label has a single text")
    else:
        output.say(
            f"{what}: expected accuracy {100 * head.accuracy:.1f} %, estimated by nested "
            "cross-validation"
        )


def _tell_trials(trials: Sequence[Any]) -> None:
    """Print the best strength of each kind on each layer, on the rows used to choose."""
    best: dict[tuple[int, str], Any] = {}
    for trial in trials:
        place = trial.layer, trial.kind
        if place not in best or trial.loss < best[place].loss:
            best[place] = trial
    if best:
        output.say(
            "configurations tried (the best scores are optimistic, as they were used to choose):"
        )
    for trial in best.values():
        output.say(
            f"  layer {trial.layer}, {trial.kind}, strength {trial.strength:g}: "
            f"accuracy {100 * trial.accuracy:.1f} %, NLL {trial.loss:.3f}"
        )
