"""The candidates for a kind of model, where several models of several kinds are compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from core.kit.support import compares_sentences
from core.options import LABEL_SENTENCE
from core.protocols import TextModel
from core_tasks.task import Task

TEXT = "{text}"
"""The template of a model of label sentences, which reads texts as they are."""


def suited(tasks: Iterable[Task], model: TextModel) -> list[Task]:
    """Return what a model can try of some tasks: each with the part that its kind uses, once.

    A language model tries their templates, unless they are the text alone and there are others; a
    model of label sentences tries their label sentences.
    """
    listed = [replace(task, calibration=None, threshold=None, model="") for task in tasks]
    if compares_sentences(model):
        own = [replace(task, template=TEXT, label_prefix=" ") for task in listed]
    else:
        prompting = [task for task in listed if task.template != TEXT] or listed
        own = [replace(task, label_sentence=LABEL_SENTENCE) for task in prompting]
    return [task for place, task in enumerate(own) if task not in own[:place]]
