"""Tasks: a template, its labels, and how finished their probabilities are; see `core.Task`."""

from core.tasks.decision import Decision
from core.tasks.files import load_task
from core.tasks.task import Task

__all__ = ["Decision", "Task", "load_task"]
