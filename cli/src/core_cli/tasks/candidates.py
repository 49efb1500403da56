"""The candidates of ``tune``: prompts for language models, label sentences for encoders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from core.kit.support import compares_sentences
from core_cli.flags import FitFlags, given, parse_labels
from core_cli.rows import checks, gold_labels
from core_tasks import Task, load_task
from core_tasks.template import Template
from core_tasks.tuning import SENTENCES

if TYPE_CHECKING:
    from core.protocols import TextModel


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneFlags(FitFlags):
    """Flags of ``tune``; ``model`` is the one of ``models`` that is tried."""

    models: tuple[str, ...] = ()
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

    def check(self, model: TextModel) -> None:
        """Raise `click.UsageError` for templates or label sentences that a model does not use."""
        sentences = compares_sentences(model)
        if self.of_templates and sentences:
            raise click.UsageError(
                "An encoder compares the text with label sentences, without a template. Use "
                "--label-sentence instead of --template."
            )
        if self.of_sentences and not sentences:
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
            raise click.UsageError("With a language model, tune requires --template.")
        return tasks


def candidates_of(flags: TuneFlags) -> Candidates:
    """Return all candidates. Raises `click.UsageError` for none, and `TaskError` for a bad one."""
    tasks = tuple(load_task(name) for name in flags.tasks)
    templates = [Template.typed(source).source for source in flags.templates]
    if flags.template_list:
        lines = checks.read_text(flags.template_list).split("\n")
        templates += [Template.typed(line).source for line in lines if line.strip()]

    labels = parse_labels(flags.labels, flags.labels_file)
    if not (labels or tasks):
        labels = gold_labels.labels_of_rows(flags)
    if tasks and not (templates or flags.sentences) and (flags.words or labels):
        raise click.UsageError("--labels and --words require --template or --label-sentence.")
    if not (tasks or templates or flags.sentences or labels):
        raise click.UsageError(
            "Nothing to try. Pass --template, --templates or --task. For an encoder, pass --labels "
            "or --gold."
        )
    labels = labels or (tasks[0].labels if tasks else ())
    if not labels:
        raise click.UsageError("Pass --labels, a --task that has them, or --gold.")

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
