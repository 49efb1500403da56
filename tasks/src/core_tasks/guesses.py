"""Names that people try on a task or on this package, each with what there is instead."""

from __future__ import annotations

OF_TASKS = {
    "predict": "classify(model, texts) returns decisions",
    "fit_temperature": "fit(model, texts, gold) fits a temperature, and calibrate(...) a prior too",
    "fit_isotonic": 'fit(model, texts, gold, "isotonic") does that',
    "tune": "core_tasks.tune(model, tasks, texts, gold) compares tasks",
    "evaluate": "core_tasks.tune measures tasks on held-out rows",
    "from_file": "core_tasks.load_task(path) reads one",
    "to_file": "save(path) writes it",
}
OF_PACKAGE = {
    "load": "load_task(path) reads a task, and load_calibration(path) a calibration",
    "calibrate": "Task(...).calibrate(model, texts, gold) calibrates a task",
    "classify": "Task(...).classify(model, texts) returns decisions",
    **dict.fromkeys(
        ("FewShot", "Head"), "core_learn has it, of the extra core[learn]: FewShot(model).fit(...)"
    ),
}
