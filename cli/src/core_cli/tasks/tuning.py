"""Compares candidate prompts on rows: a table of their quality, and a task file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from core.errors import PromptTooLongError
from core.kit.support import compares_sentences
from core.protocols import Capability
from core.system import outputs
from core_cli import output
from core_cli.flags import FitFlags, given, parse_labels
from core_cli.jobs.identity import quoted
from core_cli.rows import checks
from core_cli.tasks import gold_rows
from core_cli.tasks.gold_rows import Texts
from core_tasks import Task, load_task
from core_tasks.agreement.measures import wilson
from core_tasks.calibration import quality
from core_tasks.files import FILE
from core_tasks.heads import installed_learner, learner
from core_tasks.template import Template
from core_tasks.tuning import SENTENCES

if TYPE_CHECKING:
    from core.protocols import TextModel
    from core_tasks.tuning import Trial, Tuning

_SHOWN = 20  # trials on a terminal
_HEAD = (
    *("TEMPLATE", "LABEL SENTENCE", "WORDS", "METHOD", "ACCURACY", "INTERVAL"),
    *("CAL. ERROR", "BRIER", "NLL", "COVERAGE", "MASS", "MARGIN", "STABLE", "ROWS/S"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneFlags(FitFlags):
    """Flags of ``tune``."""

    output: str | None = None
    templates: tuple[str, ...] = ()
    template_list: str | None = None
    tasks: tuple[str, ...] = ()
    labels: str | None = None
    labels_file: str | None = None
    label_prefix: str | None = None
    sentences: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    error_rate: float | None = None
    as_json: bool = False


def run(flags: TuneFlags) -> None:
    """Try all candidates, show the table, write the best one.

    Raises `click.UsageError` for flags that cannot be combined, and what `core_tasks.tune` raises.
    """
    candidates = _candidates(flags)
    named = next((task.model for task in candidates.tasks), None)
    flags = replace(flags, model=flags.model or named or None)
    model_name = flags.need_model()
    if flags.output:
        outputs.check(flags.output, FILE, overwrite=flags.overwrite)
    levels = _levels(flags)
    rows = gold_rows.read(flags, candidates.labels)

    from core_cli.loading import explain, load
    from core_tasks.tuning import tune

    loaded = load(model_name, flags.load_config(), Capability.LABELS)
    with loaded.model as model:
        if flags.verbose:
            explain(loaded)
        candidates.check([model])
        tuning = tune(
            model,
            candidates.for_model(model),
            rows.texts,
            rows.gold,
            levels=levels,
            error_rate=flags.error_rate,
        )
        head = _head(model, rows, candidates.labels, "L2" in flags.levels, flags)
    _show(tuning, head, flags.as_json)
    _tell(tuning)
    if tuning.threshold is not None:
        gold_rows.warn_of_repeats(rows.texts)
        gold_rows.threshold_value(tuning.threshold, flags.error_rate or 0.0)
    if head is not None:
        _tell_of_head(head, flags)
    if flags.output:
        replace(tuning.best, model=model_name).save(flags.output)
        output.say(
            f"{flags.output}: {tuning.trials[0].method}, level {tuning.best.level}. Use it with: "
            "classify --task"
        )


# ----------------------------------------------------------------- candidates


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tasks to try: with each model ``tasks``, then those of its kind.

    ``of_templates`` are for models that read labels after a prompt, ``of_sentences`` for models
    that compare the text with label sentences, ``usual`` for these if no sentence is given.
    """

    labels: tuple[str, ...]
    tasks: tuple[Task, ...]
    of_templates: tuple[Task, ...]
    of_sentences: tuple[Task, ...]
    usual: tuple[Task, ...]

    def check(self, models: Sequence[TextModel]) -> None:
        """Raise `click.UsageError` for templates or label sentences that no model uses."""
        kinds = {compares_sentences(model) for model in models}
        if self.of_templates and kinds == {True}:
            raise click.UsageError(
                "An encoder compares the text with label sentences, without a template. Use "
                "--label-sentence instead of --template."
            )
        if self.of_sentences and kinds == {False}:
            raise click.UsageError(
                "A language model reads labels after a prompt. Use --template instead of "
                "--label-sentence."
            )

    def for_model(self, model: TextModel) -> list[Task]:
        """Return the tasks to try with a model. Raises `click.UsageError` for none."""
        tasks = [*self.tasks, *self.of_templates]
        if compares_sentences(model):
            tasks = [*self.tasks, *(self.of_sentences or self.usual)]
        if not tasks:
            raise click.UsageError("--labels and --words require --template.")
        return tasks


def _candidates(flags: TuneFlags) -> Candidates:
    """Return all candidates. Raises `click.UsageError` for none, and `TaskError` for a bad one."""
    tasks = tuple(load_task(name) for name in flags.tasks)
    templates = [Template.typed(source).source for source in flags.templates]
    if flags.template_list:
        lines = checks.read_text(flags.template_list).split("\n")
        templates += [Template.typed(line).source for line in lines if line.strip()]

    labels = parse_labels(flags.labels, flags.labels_file)
    if tasks and not (templates or flags.sentences) and (flags.words or labels):
        raise click.UsageError("--labels and --words require --template or --label-sentence.")
    if not (tasks or templates or flags.sentences or labels):
        raise click.UsageError(
            "Nothing to try. Pass --template, --templates or --task. For an encoder, pass --labels."
        )
    labels = labels or (tasks[0].labels if tasks else ())
    if not labels:
        raise click.UsageError("Pass --labels, or a --task that has them.")

    words = _words(flags.words)
    prefix = given(label_prefix=flags.label_prefix)
    return Candidates(
        labels,
        tasks,
        _with_words(words, (Task(template, labels, **prefix) for template in templates)),
        _with_words(words, _of_sentences(labels, flags.sentences)),
        () if tasks else _with_words(words, _of_sentences(labels, SENTENCES)),
    )


def _of_sentences(labels: tuple[str, ...], sentences: Iterable[str]) -> Iterator[Task]:
    return (Task("{text}", labels, label_sentence=sentence) for sentence in sentences)


def _with_words(words: Mapping[str, tuple[str, ...]], tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Return each task once, with the labels as they are, and with their words, if given."""
    several = dict.fromkeys(tasks)
    return tuple(
        task
        for plain in several
        for task in ((plain, replace(plain, words=words)) if words else (plain,))
    )


def _words(pairs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the words of each label from repeated ``LABEL=A,B``.

    Raises `click.UsageError` for any other form.
    """
    words_of: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        label, equals, words = pair.partition("=")
        named = tuple(word.strip() for word in words.split(",") if word.strip())
        if not (label and equals and named):
            raise click.UsageError(f"Expected --words LABEL=A,B, got {pair!r}.")
        words_of[label] = (*words_of.get(label, ()), *named)
    return words_of


def _levels(flags: TuneFlags) -> list[Any] | None:
    """Return the calibration levels to try on prompts.

    Raises `click.UsageError` for L2 alone, or without gold labels.
    """
    prompts = [level for level in flags.levels if level != "L2"]
    if "L2" in flags.levels:
        if not prompts:
            raise click.UsageError(
                "--level L2 requires another level next to it. To train a classifier head alone, "
                "use infer-cli learn."
            )
        if flags.gold is None:
            raise click.UsageError("--level L2 requires --gold FIELD.")
    return prompts or None


def _head(
    model: TextModel, rows: Texts, labels: Sequence[str], wanted: bool, flags: TuneFlags
) -> dict[str, float | list[float]] | None:
    """Return the quality of a classifier head on held-out rows, chosen in each fold separately.

    None if it cannot be trained and is not ``wanted`` by name.
    """
    from core.extensions import HiddenStates
    from core_tasks.folds import folds_of
    from core_tasks.tuning.judging import coverage

    learn = learner() if wanted else installed_learner()
    wants_head = wanted or (not flags.levels and isinstance(model, HiddenStates))
    if learn is None or rows.gold is None or not wants_head:
        return None
    sound = [(text, label) for text, label in zip(rows.texts, rows.gold, strict=True) if text]
    texts, gold = [text for text, _ in sound], [label for _, label in sound]
    right = [labels.index(label) for label in gold]
    try:
        shares = learn.FewShot(model).out_of_fold(texts, gold, folds_of(texts, right), labels)
    except (learn.TrainingDataError, PromptTooLongError) as error:
        if wanted:
            raise
        output.warn(f"no classifier head was tried: {error}")
        return None
    logs = [[math.log(share) if share else -math.inf for share in row] for row in shares.tolist()]
    head_quality = quality(logs, right)
    return {
        "accuracy": head_quality.accuracy,
        "accuracy_interval": [
            *(wilson(round(head_quality.accuracy * head_quality.rows), head_quality.rows) or ())
        ],
        "calibration_error": head_quality.calibration_error,
        "brier": head_quality.brier,
        "nll": head_quality.nll,
        "coverage": coverage(logs, right),
    }


# ----------------------------------------------------------------- messages


def _show(tuning: Tuning, head: Mapping[str, Any] | None, as_json: bool) -> None:
    if as_json:
        output.write_bytes(output.json_lines([{**tuning.to_dict(), "head": head}]))
        return
    rows = [_cells(trial) for trial in tuning.trials]
    columns = [place for place in range(len(_HEAD)) if any(row[place] for row in rows)]
    lines = [[row[place] for place in columns] for row in rows]
    names = [_HEAD[place] for place in columns]
    if output.is_terminal():
        output.draw(names, lines[:_SHOWN], cut=True)
        if len(lines) > _SHOWN:
            output.say(f"and {len(lines) - _SHOWN} more; --json has all")
    else:
        output.write_lines([names, *lines])


def _cells(trial: Trial) -> list[str]:
    own = [f"{label}={'|'.join(words)}" for label, words in trial.task.words.items()]
    plain = all(words == (label,) for label, words in trial.task.words.items())
    low_high, sentence = trial.interval, trial.label_sentence
    template = trial.task.template.replace("\n", "\\n")
    return [
        "" if sentence is not None and template == "{text}" else template,
        sentence or "",
        "" if plain else " ".join(own),
        f"{trial.method} ({trial.level})" if trial.level != "raw" else "raw",
        _figure(trial.accuracy),
        f"{low_high[0]:.3f}-{low_high[1]:.3f}" if low_high else "",
        _figure(trial.calibration_error),
        _figure(trial.brier),
        _figure(trial.nll),
        _figure(trial.coverage),
        "" if trial.label_mass is None else f"{trial.label_mass:.2g}",
        _figure(trial.margin),
        _figure(trial.stability),
        f"{trial.rows_per_second:.1f}",
    ]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _tell(tuning: Tuning) -> None:
    best = tuning.trials[0]
    if tuning.left_out:
        output.warn(f"{output.counted(tuning.left_out, 'row')} skipped: empty, or too long")
    if tuning.expected is None:
        signals = "stability, label mass and margin"
        if best.label_mass is None:
            signals = "stability and margin"
        output.say(
            f"The best of {len(tuning.trials)} by {signals}, which are weak signals. A few dozen "
            "rows with gold labels (--gold) give a better choice."
        )
        return

    assert best.accuracy is not None
    low, high = (100 * end for end in tuning.expected.interval)
    output.say(
        f"The best of {len(tuning.trials)} has an accuracy of {100 * best.accuracy:.1f} % on the "
        f"{output.counted(tuning.rows, 'row')} it was chosen on. On new rows expect "
        f"{100 * tuning.expected.accuracy:.1f} % ({low:.1f} to {high:.1f}), by nested "
        "cross-validation."
    )


def _tell_of_head(head: Mapping[str, Any], flags: TuneFlags) -> None:
    low, high = (100 * end for end in head["accuracy_interval"])
    command = ["infer-cli", "learn", "-m", str(flags.model), "-i", str(flags.file)]
    command += ["--gold", str(flags.gold), "-o", "head.safetensors"]
    output.say(
        f"A classifier head (L2) needs no prompt. Its accuracy on held-out rows is "
        f"{100 * head['accuracy']:.1f} % ({low:.1f} to {high:.1f}), its calibration error "
        f"{head['calibration_error']:.3f}. Train it with:\n"
        f"{' '.join(map(quoted, command))}"
    )
