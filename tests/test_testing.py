"""`core.testing`: the fake says what it was told, and ends where the options say."""

from __future__ import annotations

import inspect
import math
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import core
from core.registry import REGISTRY
from core.testing import Call, FakeBackend, FakeEncoder, FakeModel, write_model
from core.testing.script import Answers

ROOT = Path(core.__file__).parents[1]
PAGE = (ROOT / "docs" / "testing_your_application.md").read_text("utf-8")

letters = st.text(alphabet="ab", max_size=12)  # few letters, so that stop strings are found
stops = st.lists(st.text(alphabet="ab", min_size=1, max_size=3), max_size=3)


@pytest.fixture(autouse=True)
def _registered_again_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGISTRY, "_registered", dict(REGISTRY._registered))


def text_of(stream: core.TokenStream) -> str:
    return "".join(token.text for token in stream)


# --------------------------------------------------------------------------- the page


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(block, namespace)
    tests = [value for name, value in namespace.items() if name.startswith("test_")]
    assert len(tests) == PAGE.count("\ndef test_") == 5
    for test in tests:
        test(*([tmp_path] if inspect.signature(test).parameters else []))


def test_it_is_there_after_import_core_and_not_before_it_is_used() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import core; core.load_model; "
        "print('core.testing' in sys.modules); print(core.testing.FakeModel.__name__); "
        "print('testing' in dir(core))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "FakeModel", "True"]


# --------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    "answers", ["yes", {"a?": "yes"}, ["yes"], lambda prompt: "yes" * (prompt == "a?")]
)
def test_answers_are_given_in_any_form(answers: Answers) -> None:
    model = FakeModel(answers)
    assert model.classify(["a?"])[0].token == core.Token(ord("y"), "y")  # and uses none up
    assert text_of(model.generate("a?")) == "yes"


def test_a_list_is_used_up_by_generations_as_they_begin() -> None:
    model = FakeModel(["one", "two", "three"])
    late, early = model.generate("x"), model.generate("y")
    assert [text_of(early), text_of(late)] == ["one", "two"]
    [empty, row] = model.batch_generate(["", "z"])  # a row that does not begin takes none
    assert isinstance(empty.error, core.EmptyPromptError)
    assert row.text == "three"
    assert model.classify(["z"])[0].token == core.Token(0x110000, "")  # the end at once
    with pytest.raises(AssertionError, match="no answer left for 'z'"):
        list(model.generate("z"))


def test_a_function_may_ask_the_fake_again() -> None:
    model = FakeModel(
        lambda prompt: prompt if len(prompt) > 3 else text_of(model.generate("again"))
    )
    assert text_of(model.generate("p")) == "again"


def test_what_was_not_written_down_is_an_assertion_error() -> None:
    model = FakeModel({"a": "b"}, labels={"a": "x"})
    with pytest.raises(AssertionError, match=r"no answer for 'z'\. It has answers for: 'a'"):
        model.batch_generate(["z"])
    with pytest.raises(AssertionError, match=r"no label for 'z'\. It has labels for: 'a'"):
        model.classify(["z"], labels=["x"])
    with pytest.raises(AssertionError, match="labels 'a' as 'x', which is not one of"):
        model.classify(["a"], labels=["y"])


def test_arguments_of_a_wrong_type_are_refused() -> None:
    with pytest.raises(TypeError, match="answers must be a string, a mapping"):
        FakeModel(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="The answer to 'a' is a int, not a string"):
        list(FakeModel({"a": 1}).generate("a"))  # type: ignore[dict-item]
    with pytest.raises(core.InvalidOptionError, match="context_length"):
        FakeModel(context_length=0)


def test_a_conversation_is_known_by_its_last_message() -> None:
    model = FakeModel({"bye": "later", "<user>bye": "literally"})
    turns = [core.Message("system", "s"), core.Message("user", "bye")]
    assert text_of(model.chat(turns)) == "later"
    assert text_of(model.generate(model.render_chat(turns))) == "later"
    assert text_of(model.chat([core.Message("user", "<user>bye")])) == "literally"
    assert model.calls[0] == Call("chat", (), tuple(turns), core.GenerateConfig())


def test_a_conversation_may_be_continued() -> None:
    model = FakeModel({"Yes, ": "we can"})
    turns = [core.Message("user", "Can we?"), core.Message("assistant", "Yes, ")]
    prompt = model.render_chat(turns, continue_final_message=True)
    assert prompt == "<user>Can we?<end><assistant>Yes, "
    assert model.chat(turns, continue_final_message=True).text() == "we can"
    assert model.generate(prompt).text() == "we can"
    with pytest.raises(core.ChatTemplateError, match="the user's"):
        model.chat(turns[:1], continue_final_message=True)
    with pytest.raises(core.InvalidOptionError, match="'tone' is not valid"):
        model.chat(turns, chat_template_kwargs={"tone": 1})
    with pytest.raises(core.ChatTemplateError, match="no place for a message's name"):
        model.chat([core.Message("user", "a", "ann")])


@given(letters, stops, st.integers(1, 14))
def test_an_answer_ends_where_the_options_say(answer: str, stop: list[str], limit: int) -> None:
    model = FakeModel(answer)
    whole = answer[:limit]
    ends = [whole.find(each) for each in stop if each in whole]
    expected = whole[: min(ends)] if ends else whole
    [row] = model.batch_generate(["p"], stop=stop, max_tokens=limit)
    stream = model.generate("p", stop=stop, max_tokens=limit)
    submitted = model.submit("p", core.GenerateConfig(stop=tuple(stop), max_tokens=limit))
    assert text_of(stream) == row.text == text_of(submitted) == expected
    assert stream.finish_reason == row.finish_reason == submitted.finish_reason
    if not ends:
        assert row.finish_reason == ("length" if len(answer) >= limit else "stop")


@given(st.text(min_size=1, max_size=20), st.text(max_size=20), st.integers(1, 40))
def test_a_context_holds_prompt_and_answer(prompt: str, answer: str, length: int) -> None:
    [row] = FakeModel(answer, context_length=length).batch_generate([prompt])
    if len(prompt) > length:
        assert isinstance(row.error, core.PromptTooLongError)
    else:
        room = max(1, length - len(prompt))
        assert (row.text, row.error) == (answer[:room], None)
        [row] = FakeModel(answer, context_length=length, context_overflow="rotate").batch_generate(
            [prompt]
        )
        assert row.text == answer


@given(st.text(max_size=20), st.integers(0, 2**64 - 1), st.floats(0.0, 2.0), st.floats(0.1, 10.0))
def test_options_of_sampling_leave_the_answer(
    answer: str, seed: int, temperature: float, penalty: float
) -> None:
    model = FakeModel(answer)
    options = core.GenerateConfig(
        seed=seed, temperature=temperature, repeat_penalty=penalty if penalty < 2 else 1.0
    )
    tokens = list(model.generate("p", options, return_logprobs=True))
    assert [token.id for token in tokens] == list(map(ord, answer))
    assert all(token.logprob == pytest.approx(0.0) for token in tokens)
    if answer:
        assert model.classify(["p"], options)[0].token == core.Token(ord(answer[0]), answer[0])


def test_options_of_sampling_count() -> None:
    model = FakeModel("x" * 40)
    hot = [text_of(model.generate("p", temperature=100.0, seed=seed)) for seed in (1, 1, 2)]
    assert hot[0] == hot[1] != hot[2]
    assert hot[0] != "x" * 40
    assert text_of(model.generate("p", temperature=100.0, seed=1, top_k=1)) == "x" * 40
    assert len(set(text_of(model.generate("p", repeat_penalty=1e9)))) == 40  # each one once
    with pytest.raises(core.UnsupportedOptionError, match="return_logits"):
        model.classify(["p"], return_logits=True)


# --------------------------------------------------------------------------- streams and errors


def test_a_stream_ends_by_close_cancel_timeout_and_closed_model() -> None:
    model = FakeModel("abc")
    stream = model.generate("p")
    assert (next(stream).text, stream.finish_reason) == ("a", None)
    stream.close()
    assert (list(stream), stream.finish_reason) == ([], "cancelled")
    assert stream.metrics.generated_tokens == model.metrics.generated_tokens == 1

    cancel = threading.Event()
    stream = model.generate("p", cancel=cancel)
    next(stream)
    cancel.set()
    with pytest.raises(core.GenerationCancelled):
        next(stream)
    with pytest.raises(core.GenerationTimeout):
        next(model.generate("p", timeout=1e-9))

    stream = model.generate("p")
    model.close()
    with pytest.raises(core.ModelClosedError):
        next(stream)


def test_a_submitted_request_waits_for_its_reader() -> None:
    model = FakeModel(["abc", "def"])
    first, second = model.submit("p"), model.submit("q")
    assert (first.finish_reason, first.metrics.generated_tokens) == (None, 0)
    second.close()
    assert (list(second), second.finish_reason) == ([], "cancelled")
    assert second.metrics.generated_tokens == 3  # it ran to its end all the same
    assert (text_of(first), first.finish_reason) == ("abc", "stop")
    assert first.metrics.generated_tokens == 3


def test_errors_are_those_of_their_prompts() -> None:
    memory = core.OutOfMemoryError("no memory was left")
    model = FakeModel("ok", labels=lambda prompt, labels: labels[0], errors={"big": memory})
    assert [row.error for row in model.batch_generate(["a", "big", "b"])] == [None, memory, None]
    assert [row.error for row in model.classify(["a", "big"], labels=["x"])] == [None, memory]
    pairs = model.batch_stream(["big", "a"])
    assert [next(pairs), next(pairs)] == [(1, core.Token(111, "o")), (1, core.Token(107, "k"))]
    with pytest.raises(core.OutOfMemoryError):
        next(pairs)

    broken = FakeModel("ok", errors=lambda prompt: core.BackendProcessError("it died"))
    with pytest.raises(core.BackendProcessError):  # of no row: it leaves the call
        broken.batch_generate(["a"])


# --------------------------------------------------------------------------- labels


def test_labels_are_those_of_the_function() -> None:
    seen: list[tuple[str, tuple[str, ...]]] = []

    def weather(prompt: str, labels: Any) -> dict[str, float]:
        seen.append((prompt, tuple(labels)))
        return {"rain": 0.6, "sun": 0.2, "snow": 0.1}

    model = FakeModel(labels=weather)
    [result] = model.classify(["Today:"], labels=["sun", "rain"])
    assert seen == [("Today:", ("sun", "rain"))]
    assert result.label == "rain"
    assert result.probabilities == pytest.approx({"sun": 0.25, "rain": 0.75})
    assert result.label_mass == pytest.approx(0.8)
    assert result.margin == pytest.approx(0.5)

    [other] = model.classify(["Today:"], labels=["sun", "rain"], label_prefix="")
    assert other.probabilities == pytest.approx(result.probabilities)
    assert other.label_mass == pytest.approx(0.08)  # "Today:rain" is no likely text


def test_only_the_blank_in_the_place_of_the_prefix_is_no_part_of_a_label() -> None:
    seen: list[list[str]] = []

    def first(prompt: str, labels: Any) -> dict[str, float]:
        seen.append(list(labels))
        return {"rain": 0.5, " rain": 0.25, "sun": 0.25}

    model = FakeModel(labels=first)
    for prompt, labels, prefix, names, mass in (
        ("Today:", [" rain", "sun"], " ", ["rain", "sun"], 0.75),
        ("Today (", ["rain", " rain"], " ", ["rain", " rain"], 0.75),
        ("Today:", [" rain", "  rain", "\n"], "", ["rain", " rain", "\n"], 0.75),
        ("Today: ", ["rain", " rain"], " ", ["rain", " rain"], 0.75),
        ("Today:", ["rain", " rain"], "", ["rain", "rain"], 0.55),
    ):
        [result] = model.classify([prompt], labels=labels, label_prefix=prefix)
        assert seen.pop() == names
        assert result.label_mass == pytest.approx(mass)
        assert list(result.probabilities or ()) == labels


def test_a_label_without_room_is_its_rows_error() -> None:
    model = FakeModel(labels=lambda prompt, labels: labels[0], context_length=10)
    rows = model.classify(["123456", "1234567", "1234567 "], labels=["no", "rain"])
    assert [row.label for row in rows] == ["no", None, None]
    errors = [row.error for row in rows[1:]]
    assert all(isinstance(error, core.PromptTooLongError) for error in errors)
    assert [(e.length, e.limit) for e in errors] == [(11, 10), (11, 10)]  # type: ignore[union-attr]


def test_a_label_by_its_name_is_certain() -> None:
    [result] = FakeModel(labels={"p": "b"}).classify(["p"], labels=["a", "b"])
    assert (result.label, result.probabilities) == ("b", {"a": 0.0, "b": 1.0})
    assert (result.label_mass, result.margin) == (1.0, 1.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": 0.9, "b": 0.9},
        {"a": -0.1},
        {"a": math.nan},
        {"a": 0.5, "b": math.nan},
        {"a": math.inf},
    ],
)
def test_what_are_no_probabilities_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(AssertionError, match="are invalid"):
        FakeModel(labels={"p": wrong}).classify(["p"], labels=["a", "b"])


def test_labels_are_refused_where_the_test_gives_none() -> None:
    with pytest.raises(core.UnsupportedOptionError, match="labels"):
        FakeModel("x").classify(["p"], labels=["a"])


def test_states_are_alike_where_words_are() -> None:
    model = FakeModel(errors={"no": core.RequestError("Not this one.")})
    texts = ["the cat sat", "the cat ran", "a dog barked", "no", ""]
    found = model.hidden_states(texts, layers=(1, -2))
    assert [type(result.error) for result in found[3:]] == [
        core.RequestError,
        core.EmptyPromptError,
    ]
    assert [result.layers for result in found[:3]] == [(1, 0)] * 3

    def alike(left: int, right: int) -> float:
        pairs = zip(found[left].vectors[0], found[right].vectors[0], strict=True)
        return sum(a * b for a, b in pairs)

    assert alike(0, 0) == pytest.approx(1.0)
    assert alike(0, 1) > alike(0, 2) + 0.3
    assert len(found[0].vectors[0]) == model.info.hidden_size
    assert model.metrics.prompt_tokens == sum(map(len, texts[:3]))
    assert model.calls[0].operation == "hidden_states"

    with pytest.raises(core.InvalidOptionError, match="layers"):
        model.hidden_states(texts, layers=(2,))
    with pytest.raises(TypeError, match="temperature"):
        model.hidden_states(texts, temperature=1.0)  # type: ignore[call-arg]
    assert len(model.calls) == 1


def test_a_stream_of_prompts_is_read_one_by_one() -> None:
    def prompts() -> Iterator[str]:
        yield from ("a", "", "b")
        raise RuntimeError("the source ended")

    model = FakeModel(labels=lambda prompt, labels: labels[0])
    results = model.classify_iter(prompts(), labels=["x"])
    assert [next(results).label for _ in range(3)] == ["x", None, "x"]
    assert [call.prompts for call in model.calls] == [("a",), ("",), ("b",)]
    with pytest.raises(RuntimeError):
        next(results)


# --------------------------------------------------------------------------- label sentences


def test_an_encoder_compares_words_with_those_of_the_sentence() -> None:
    model = FakeEncoder()
    texts = ["A lot of RAIN today.", "The sun is out."]
    rows = model.classify(texts, labels=["rain", "sun"])
    assert [row.label for row in rows] == ["rain", "sun"]
    assert (rows[0].token, rows[0].logprobs, rows[0].label_mass) == (None, None, None)
    assert rows[0].probabilities is not None
    assert rows[0].margin == pytest.approx(abs(1 - 2 * rows[0].probabilities["sun"]))
    about = FakeEncoder().classify(texts, labels=["rain", "sun"], label_sentence="{label} is out")
    assert about[0].probabilities != rows[0].probabilities

    [text, same] = model.hidden_states(["the sun", "Sun, the!"])
    assert text.vectors[0].tolist() == same.vectors[0].tolist()
    assert len(text.vectors[0]) == model.info.hidden_size
    assert [call.operation for call in model.calls] == ["classify", "hidden_states"]


def test_an_encoder_gives_the_scripted_labels_and_errors() -> None:
    broken = core.RequestError("Not this one.")
    model = FakeEncoder(
        {"a": "x", "b": {"x": 0.2, "y": 0.6}, "c": {}}, errors={"broken": broken}, context_length=8
    )
    rows = model.classify(["a", "b", "c", "broken", "", "far too long"], labels=["x", "y"])
    assert [row.probabilities for row in rows[:3]] == [
        {"x": 1.0, "y": 0.0},
        pytest.approx({"x": 0.25, "y": 0.75}),
        {"x": 0.5, "y": 0.5},
    ]
    errors = [row.error for row in rows[3:]]
    assert errors[0] is broken
    assert [type(e) for e in errors[1:]] == [core.EmptyPromptError, core.PromptTooLongError]


def test_an_encoder_has_no_next_token() -> None:
    model = FakeEncoder()
    assert core.Capability.CLASSIFY not in model.capabilities
    assert not isinstance(model, core.Submitting | core.BatchStreaming)
    with pytest.raises(core.UnsupportedOperationError, match="classify"):
        model.classify(["a"])
    with pytest.raises(core.UnsupportedOperationError, match="generate"):
        model.generate("a")
    with pytest.raises(core.UnsupportedOptionError, match="label_sentence"):
        model.classify(["a"], labels=["x"], label_prefix="")
    with pytest.raises(core.ChatTemplateError, match="no chat template"):
        model.render_chat([core.Message("user", "a")])
    with pytest.raises(core.UnsupportedOptionError, match="label_sentence"):
        FakeModel(labels={}).classify(["a"], labels=["x"], label_sentence="{label}!")


def test_an_encoder_is_loaded_by_name(tmp_path: Path) -> None:
    backend = FakeBackend(labels={"p": "y"}, name="encoder", encoder=True)
    core.register(backend)
    path = write_model(tmp_path / "model", context_length=64)
    with core.load_model(path, backend="encoder") as model:
        assert model.classify(["p"], labels=["x", "y"])[0].label == "y"
        assert model.info.context_length == 64
    assert backend.models == [model]
    with pytest.raises(core.UnsupportedOptionError, match="context_overflow"):
        core.load_model(path, backend="encoder", context_overflow="rotate")


# --------------------------------------------------------------------------- the backend


def test_it_is_loaded_by_name(tmp_path: Path) -> None:
    backend = FakeBackend(["one", "two"])
    core.register(backend)
    path = write_model(tmp_path / "model", context_length=64)
    with core.load_model(path, backend="fake") as first, core.load_model(path) as second:
        assert (first.info.context_length, first.model_type) == (64, "fake")
        assert [text_of(model.generate("p")) for model in (first, second)] == ["one", "one"]
    assert backend.models == [first, second]
    assert [call.operation for call in backend.calls] == ["generate", "generate"]


def _break(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink() if not text else _write(folder / name, text)


def _write(file: Path, text: str) -> None:
    file.write_text(text)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (_break("config.json", '{"model_type": "llama"}'), core.UnsupportedModelError),
        (_break("config.json", '{"model_type": "fake"}'), core.InvalidModelError),
        (_break("model.safetensors", ""), core.ModelNotFoundError),
    ],
)
def test_it_loads_nothing_else(
    tmp_path: Path, spoil: Callable[[Path], None], error: type[Exception]
) -> None:
    path = write_model(tmp_path)
    spoil(path)
    core.register(FakeBackend())
    with pytest.raises(error, match="write_model"):
        core.load_model(path, backend="fake")
