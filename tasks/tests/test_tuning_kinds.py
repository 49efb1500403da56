"""What a kind of model tries of mixed candidates, and the best trial of each candidate."""

from __future__ import annotations

import core_tasks
from core.options import LABEL_SENTENCE
from core.testing import FakeEncoder, FakeModel
from core_tasks.tuning import suited

LABELS = ("money", "games")
PROMPT, SENTENCE = "{text} is", "On {label}."
TASKS = [
    core_tasks.Task(PROMPT, LABELS),
    core_tasks.Task(PROMPT, LABELS, label_sentence=SENTENCE, model="m", threshold=0.5),
    core_tasks.Task("{text}", LABELS, label_sentence=SENTENCE),
]


def test_a_language_model_tries_templates_and_an_encoder_sentences() -> None:
    language = FakeModel(labels=lambda prompt, labels: dict.fromkeys(labels, 0.5))
    assert suited(TASKS, language) == [core_tasks.Task(PROMPT, LABELS)]
    assert suited(TASKS[2:], language) == [core_tasks.Task("{text}", LABELS)]
    encoder = suited(TASKS, FakeEncoder())
    assert [task.label_sentence for task in encoder] == [LABEL_SENTENCE, SENTENCE]
    assert {task.template for task in encoder} == {"{text}"}


def test_the_words_of_a_candidate_stay() -> None:
    worded = core_tasks.Task(PROMPT, LABELS, words={"money": ("cash",)}, label_prefix="")
    [task] = suited([worded], FakeEncoder())
    assert (task.words["money"], task.label_prefix) == (("cash",), " ")


def test_each_candidate_has_its_best_trial() -> None:
    texts = [f"{LABELS[n % 2]} {n}" for n in range(20)]
    gold = [LABELS[n % 2] for n in range(20)]
    tasks = suited(TASKS, FakeEncoder())
    tuning = core_tasks.tune(FakeEncoder(), tasks, texts, gold)
    best = tuning.by_candidate
    assert len(tuning.trials) > len(best) == 2
    assert best[0] == tuning.trials[0]
    for trial in best:
        own = [other for other in tuning.trials if other.task == trial.task]
        assert trial == own[0]
