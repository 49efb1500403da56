"""Tasks on core's models: labels and prompts, calibration, tuning and evaluation.

Everything public is here; it is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from core_hidden import check_import

if TYPE_CHECKING:
    from core_tasks.calibration.value import Calibration, load_calibration
    from core_tasks.decision import Decision
    from core_tasks.evaluation.evaluate import evaluate
    from core_tasks.evaluation.items import Item
    from core_tasks.evaluation.prompts import Prompting
    from core_tasks.evaluation.result import Evaluation, ItemResult
    from core_tasks.explaining import Explanation, explain
    from core_tasks.files import load_task
    from core_tasks.task import Task
    from core_tasks.tuning.trial import Trial, Tuning
    from core_tasks.tuning.tune import tune

__all__ = [
    "Calibration",
    "Decision",
    "Evaluation",
    "Explanation",
    "Item",
    "ItemResult",
    "Prompting",
    "Task",
    "Trial",
    "Tuning",
    "evaluate",
    "explain",
    "load_calibration",
    "load_task",
    "tune",
]
_HOMES = {
    "calibration.value": "Calibration load_calibration",
    "decision": "Decision",
    "evaluation.evaluate": "evaluate",
    "evaluation.items": "Item",
    "evaluation.prompts": "Prompting",
    "evaluation.result": "Evaluation ItemResult",
    "explaining": "Explanation explain",
    "files": "load_task",
    "task": "Task",
    "tuning.trial": "Trial Tuning",
    "tuning.tune": "tune",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

check_import()


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        from core_tasks.guesses import OF_PACKAGE

        if advice := OF_PACKAGE.get(name):
            raise AttributeError(f"core_tasks has no {name!r}: {advice}.", name=name)
        raise AttributeError(f"module 'core_tasks' has no attribute {name!r}", name=name)
    value = getattr(import_module(f"core_tasks.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
