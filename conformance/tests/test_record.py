"""The calls that a failure shows: they can be pasted, and show the difference again."""

from __future__ import annotations

import ast
import contextlib
import gc
import io
import os
import re
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import core
from core.extensions import Scoring, Tokenizing
from core.protocols import Backend
from core.registry import REGISTRY
from core_conformance.checking.check import all_checks
from core_conformance.checking.scratch import PREFIX
from core_conformance.checking.script import record
from core_conformance.checking.script.spelling import Named, spelled
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import asked
from core_conformance.proof.registry import all_saboteurs
from core_conformance.reference import Reference, write_model
from core_conformance.running.result import Result, Status
from core_conformance.running.runner import run_check


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A reference model."""
    return str(write_model(tmp_path_factory.mktemp("models") / "reference"))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    record.begin()
    yield
    record.begin()


def failed(name: str, check: str, path: str) -> Result:
    """The result of a check that a saboteur has to fail."""
    with contextlib.closing(Subject(all_saboteurs()[name].backend(), path)) as subject:
        result = run_check(all_checks()[check], subject)
    assert result.status is Status.FAILED
    return result


def printed(call: str, backend: Backend) -> str:
    """What the call prints, with this backend under the name of the reference."""
    lines = [line for line in call.splitlines() if "core.register(" not in line]
    assert len(lines) == len(call.splitlines()) - 1
    REGISTRY.register(backend)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            exec("\n".join(lines), {})
        except Exception as error:  # noqa: BLE001 - shown as what it printed
            out.write(repr(error))
    return out.getvalue()


# Of each kind: batches, labels, drawing, stopping, chat, a tokenizer, scores, what went before,
# two threads, an error at the call, and generated inputs.
SHOWN = {
    "equal-as-far-as-seen": "classify.equal-prompts",
    "labels-of-before": "history.labels",
    "answer-is-kept": "history.speech",
    "scored-after-another": "history.scores",
    "shows-bos": "tokenizing.round-trip",
    "not-a-list": "tokenizing.ids",
    "strips-prompts": "text.odd-prompts",
    "special-for-everyone": "chat.special-text",
    "nul-ends-a-row": "generated.batches",
    "counted-in-utf16": "generated.texts",
    "after-a-closed-request": "generated.calls",
    "after-another-close": "generated.calls",
    "one-label-in-another": "generated.labels",
}


@pytest.mark.load  # some calls cancel requests of other threads, at any of their tokens
@pytest.mark.parametrize("name", SHOWN)
def test_the_call_shows_the_difference_to_a_sound_backend(name: str, path: str) -> None:
    call = failed(name, SHOWN[name], path).call
    compile(call, "pasted", "exec")
    broken = printed(call, all_saboteurs()[name].backend())
    assert broken != printed(call, Reference())
    assert broken == printed(call, all_saboteurs()[name].backend())


def test_pasted_as_it_is_it_runs(path: str) -> None:
    call = failed("shows-bos", "tokenizing.round-trip", path).call
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(call, {})
    assert "The capital of France is" in out.getvalue()


def test_an_answer_is_told_by_row_prompt_and_index(path: str) -> None:
    reason = failed("nul-ends-a-row", "generated.batches", path).reason
    assert "row " in reason
    assert "after '" in reason
    assert ", from token " in reason


# --------------------------------------------------------------------------- the model stays itself


def test_a_model_stays_what_it_is(path: str) -> None:
    given = []

    class Keeping(Reference):
        def load_model(self, *arguments: Any) -> Any:
            given.append(super().load_model(*arguments))
            return given[-1]

    model: Any = Subject(Keeping(without={core.Capability.SCORING}), path).load()
    assert model is given[0]
    with model as entered:
        assert entered is model
    assert [isinstance(model, kind) for kind in (Tokenizing, Scoring)] == [True, False]
    assert type(model).__name__ == "ReferenceModel"


class Slotted:
    __slots__ = ("said",)

    def __init__(self) -> None:
        self.said = 1

    def classify(self, prompts: Sequence[str], **options: Any) -> list[int]:
        return [self.said for _ in prompts]

    def batch_generate(self, prompts: Sequence[str]) -> list[int]:
        return self.classify(prompts)

    def generate(self, prompt: str) -> Iterator[str]:
        raise ValueError(prompt)


class Plain:
    name = "plain"


def recorded(model: Any, *calls: Any) -> str:
    record.begin()
    record.watched(model, record.loading(Plain(), "'path'"))
    for call in calls:
        with contextlib.suppress(ValueError):
            call(model)
    return record.script()


def test_a_load_from_files_that_are_deleted_since_says_so(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.touch()
    record.begin()
    record.loading(Plain(), "'model'", (str(file), None))
    assert record.script().splitlines()[-1] == "model = core.load_model('model')"
    file.unlink()
    comment, again, load = record.script().splitlines()[-3:]
    assert comment == "# The check made these files and has deleted them."
    assert again == "# The command that runs the check alone makes them again."
    assert load == "model = core.load_model('model')"

    record.begin()
    record._loads.clear()
    record.loading(Plain(), "'nothing'", (str(tmp_path / "nothing"), "http://host"))
    assert "#" not in record.script()  # there never was anything


# Of broken files and adapters, of odd paths, and of an adapter that was trained.
OF_OWN_FILES = {
    "wrong-adapter-skipped": "loading.broken-adapter",
    "untyped-broken-file": "loading.incomplete-model",
    "paths-are-ascii": "loading.odd-paths",
    "adapter-read-and-forgotten": "training.saved",
}


def kept(name: str, check: str, path: str, keeps: bool) -> tuple[Result, list[Path]]:
    """The result of a check that a saboteur fails, and the folders that it leaves."""
    before = set(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
    with contextlib.closing(
        Subject(all_saboteurs()[name].backend(), path, keeps_files=keeps)
    ) as subject:
        result = run_check(all_checks()[check], subject)
    assert result.status is Status.FAILED
    return result, sorted({*Path(tempfile.gettempdir()).glob(f"{PREFIX}*")} - before)


@pytest.mark.parametrize(("name", "check"), OF_OWN_FILES.items())
def test_a_call_names_files_that_are_there(
    name: str, check: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result, (folder,) = kept(name, check, path, keeps=True)
    assert str(folder) in result.call
    assert "# The check made these files. They stay there until you delete them." in result.call
    texts = map(ast.literal_eval, re.findall("'[^']*'", result.call))
    assert all(os.path.lexists(text) for text in texts if str(folder) in text)

    assert kept(name, check, path, keeps=False)[1] == []


def test_of_a_check_that_passes_nothing_is_kept(path: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        with contextlib.closing(Subject(Reference(), path, keeps_files=True)) as subject:
            for check in set(OF_OWN_FILES.values()):
                assert run_check(all_checks()[check], subject).status is Status.PASSED
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


def test_a_model_with_slots_is_watched() -> None:
    model = Slotted()
    call = recorded(model, lambda m: m.classify(["a", "é"], labels=("x",)))
    assert isinstance(model, Slotted)
    assert call.splitlines()[-2:] == [
        "model = core.load_model('path')",
        "print(model.classify(['a', '\\xe9'], labels=('x',)))",
    ]


class Free(Slotted):
    """A model that can be watched by a weak reference, and holds no reference to itself."""

    def generate(self, prompt: str) -> Iterator[str]:
        return iter(list(prompt))


def test_nothing_keeps_a_model_or_a_stream_alive() -> None:
    gc.disable()
    try:
        model = Free()
        recorded(model, lambda m: next(m.generate("a")), lambda m: m.classify(["a"]))
        seen = weakref.ref(model)
        del model
        assert seen() is None
    finally:
        gc.enable()


def test_an_operation_made_of_another_is_one_call() -> None:
    call = recorded(Slotted(), lambda m: m.batch_generate(["a"]))
    assert call.count("print(") == 1
    assert "batch_generate" in call


def test_a_call_that_raised_does_not_end_the_script() -> None:
    call = recorded(Slotted(), lambda m: m.generate("a"), lambda m: m.classify(["b"]))
    assert "except Exception as error" in call
    assert call.splitlines()[-1] == "print(model.classify(['b']))"


def test_an_object_of_c_is_left_alone() -> None:
    assert "classify" not in recorded(array := bytearray(b"a"), lambda m: m.find(b"a"))
    assert type(array) is bytearray


def test_of_many_calls_those_about_the_violation_are_shown() -> None:
    def ask(model: Any) -> None:
        for number in range(200):
            model.classify([f"prompt {number % 100} of many"])

    recorded(Slotted(), ask)
    call = record.script("'prompt 97 of many' gave another answer")
    assert call.count("prompt 97 of many") == 2  # both times that it was asked
    assert call.splitlines()[-1] == "print(model.classify(['prompt 99 of many']))"
    assert len(call.splitlines()) < 20


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -3,
        0.5,
        float("inf"),
        "e\u0301\0\U0001f389",
        "ab" * 500,
        "a" * 301,
        ["x"] * 300,
        ("one",),
        [],
        {"role": "user", "content": "\u202e"},
        core.Message("user", "a"),
        core.GenerateConfig(max_tokens=3, stop=("a",), seed=0),
        core.RenderedPrompt("<s>a"),
    ],
    ids=lambda value: spelled(value)[:20],
)
def test_values_are_spelled_so_that_they_come_back(value: object) -> None:
    text = spelled(value)
    again = eval(text, {"core": core})
    assert again == value
    assert type(again) is type(value)
    assert text.isascii()
    assert len(text) < 150


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("count", [11, 20, 1677])
def test_many_prompts_are_spelled_by_their_rule(kind: type, count: int) -> None:
    prompts = kind(asked(count))
    assert eval(spelled(prompts)) == prompts
    assert len(spelled(prompts)) < 400
    assert eval(spelled(kind((*asked(count), "another")))) == kind((*asked(count), "another"))


def test_a_cancel_is_spelled_with_its_state() -> None:
    cancel = core.GenerateConfig(cancel=Named("cancel1"))
    assert spelled(cancel) == "core.GenerateConfig(cancel=cancel1)"
    event = __import__("threading").Event()
    assert not eval(spelled(event)).is_set()
    event.set()
    assert eval(spelled(event)).is_set()


def test_an_iterator_is_not_used_up() -> None:
    rows = iter(["a", "b"])
    next(rows)
    assert spelled(rows) == "iter(['b'])"
    assert list(rows) == ["b"]
