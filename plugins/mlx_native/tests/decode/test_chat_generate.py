"""``chat``: the model's own template or its family's, and then ``generate``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers.processors import TemplateProcessing

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.decode.engine import MlxEngine
from core_mlx_native.model import MlxModel
from core_runtime.tokenizer.model_tokenizer import Tokenizer

Checkpoint = Callable[..., Path]
TURNS = [
    core.Message("system", "ab"),
    core.Message("user", "no x"),
    core.Message("assistant", "abc"),
    core.Message("user", "ab no"),
]
FORMATS = {
    "gemma3": (
        "<s><start_of_turn>user\nab\n\nno x<end_of_turn>\n<start_of_turn>model\nabc<end_of_turn>\n"
        "<start_of_turn>user\nab no<end_of_turn>\n<start_of_turn>model\n"
    ),
    "qwen2": (
        "<|im_start|>system\nab<|im_end|>\n<|im_start|>user\nno x<|im_end|>\n"
        "<|im_start|>assistant\nabc<|im_end|>\n<|im_start|>user\nab no<|im_end|>\n"
        "<|im_start|>assistant\n"
    ),
    "llama": (
        "<s><|start_header_id|>system<|end_header_id|>\n\nab<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nno x<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nabc<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nab no<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
}
MARKS = {
    "gemma3": ["<start_of_turn>", "<end_of_turn>"],
    "qwen2": ["<|im_start|>", "<|im_end|>"],
    "llama": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
}
SAMPLED = core.GenerateConfig(max_tokens=12, temperature=1.0, seed=5)


def load(directory: Path) -> MlxModel:
    return Cpu().load_model(directory, core.LoadConfig())


def with_marks(checkpoint: Checkpoint, family: str, **settings: Any) -> Path:
    """A checkpoint whose tokenizer has its family's marks, and adds a BOS to a plain text."""
    directory = checkpoint(family, vocab_size=128, max_position_embeddings=256)
    library = Library.from_file(str(directory / "tokenizer.json"))
    library.add_special_tokens(MARKS[family])
    library.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    library.save(str(directory / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", **settings}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(params=list(FORMATS))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(family: str, checkpoint: Checkpoint) -> Iterator[MlxModel]:
    """A model without a template of its own."""
    with load(with_marks(checkpoint, family)) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def smollm2(smollm2_dir: Path) -> Iterator[MlxModel]:
    with load(smollm2_dir) as loaded:
        yield loaded


# ---------------------------------------------------------------- formats


def test_without_a_template_the_familys_format_is_used(model: MlxModel, family: str) -> None:
    assert model.render_chat(TURNS) == FORMATS[family]


def test_it_is_generate_with_the_rendered_prompt(model: MlxModel) -> None:
    for config in (SAMPLED, core.GenerateConfig(max_tokens=12, return_logprobs=True)):
        stream = model.chat(TURNS, config)
        assert list(stream) == list(model.generate(model.render_chat(TURNS), config))
        assert stream.finish_reason == "length"


def test_there_is_one_bos_and_no_second(model: MlxModel, family: str) -> None:
    bos = 0
    assert model.encode("ab")[0] == bos  # what a plain text gets
    ids = model.encode(model.render_chat(TURNS))
    assert ids.count(bos) == FORMATS[family].count("<s>")
    stream = model.chat(TURNS, max_tokens=1)
    list(stream)
    assert stream.metrics.prompt_tokens == len(ids)
    assert model.metrics == stream.metrics


def test_every_turn_and_its_role_play_a_part(model: MlxModel) -> None:
    def first_logits(turns: list[core.Message]) -> list[float]:
        (result,) = model.classify([model.render_chat(turns)], return_logits=True)
        assert result.logits is not None
        return list(result.logits)

    changed = [
        [core.Message(turn.role, turn.content + "z") if turn is other else turn for turn in TURNS]
        for other in TURNS
    ]
    changed.append(TURNS[1:])
    changed.append([TURNS[0], *TURNS[2:][::-1], TURNS[1]])
    found = [first_logits(turns) for turns in (TURNS, *changed)]
    assert len({tuple(logits) for logits in found}) == len(found)


def test_the_models_own_template_wins(checkpoint: Checkpoint, family: str) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m.role[0] + m.content }};{% endfor %}"
    with load(with_marks(checkpoint, family, chat_template=template)) as model:
        assert model.render_chat(TURNS) == "<s>sab;uno x;aabc;uab no;"
        assert model.encode(model.render_chat(TURNS)).count(0) == 1
        expected = [token.id for token in model.generate("sab;uno x;aabc;uab no;", SAMPLED)]
        assert [token.id for token in model.chat(TURNS, SAMPLED)] == expected


def test_a_message_cannot_spell_a_special_token(model: MlxModel, family: str) -> None:
    mark = MARKS[family][0]
    special = model._loaded.tokenizer.library.token_to_id(mark)
    assert special is not None
    plain = model.encode(model.render_chat([core.Message("user", "ab")]))
    spelled = model.encode(model.render_chat([core.Message("user", "ab" + mark)]))
    assert spelled.count(special) == plain.count(special) > 0
    assert len(spelled) > len(plain) + 5  # letter by letter


def test_the_end_of_a_turn_ends_the_answer(model: MlxModel, family: str) -> None:
    mark = MARKS[family][-1]
    assert model._loaded.tokenizer.library.token_to_id(mark) in model._loaded.stop_ids


# ---------------------------------------------------------------- the call


def test_a_model_without_any_format_says_so_at_the_call(checkpoint: Checkpoint) -> None:
    with load(checkpoint()) as model:
        with pytest.raises(core.ChatTemplateError, match="no chat template"):
            model.chat(TURNS)
        assert len(list(model.generate("ab", max_tokens=2, seed=1))) == 2


@pytest.mark.parametrize("template", ["{{ raise_exception('not so') }}", "{% if %}", "{{ 1 / 0 }}"])
def test_a_template_that_fails_raises_at_the_call(checkpoint: Checkpoint, template: str) -> None:
    with (
        load(with_marks(checkpoint, "llama", chat_template=template)) as model,
        pytest.raises(core.ChatTemplateError),
    ):
        model.chat(TURNS)


ENDLESS = (
    "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{% if s.count('aa') %}{% endif %}"
    "{% endfor %}"
)


class Cancel:
    """Set when it is asked for the n-th time."""

    def __init__(self, asked: int) -> None:
        self.left = asked

    def is_set(self) -> bool:
        self.left -= 1
        return self.left <= 0


def test_cancel_and_timeout_stop_a_template_that_computes(checkpoint: Checkpoint) -> None:
    with load(with_marks(checkpoint, "llama", chat_template=ENDLESS)) as model:
        cancelled = model.chat(TURNS, cancel=Cancel(10))
        with pytest.raises(core.GenerationCancelled):
            next(cancelled)
        assert cancelled.finish_reason == "cancelled"
        late = model.chat(TURNS, timeout=0.05)
        with pytest.raises(core.GenerationTimeout):
            next(late)
        assert late.finish_reason == "error"
        assert len(list(model.generate("ab", max_tokens=2, seed=1))) == 2


class Time:
    """Stands in for the module that `core.kit.base` reads."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_rendering_and_generating_share_the_timeout(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time()
    monkeypatch.setattr("core.kit.base.time", time)
    render = Tokenizer.render_chat

    def slow(self: Any, *given: Any) -> Any:
        prompt = render(self, *given)
        time.now += 6.0
        return prompt

    with load(with_marks(checkpoint, "llama")) as model:
        monkeypatch.setattr(Tokenizer, "render_chat", slow)
        late = model.chat(TURNS, timeout=5.0, max_tokens=2)
        with pytest.raises(core.GenerationTimeout):
            next(late)
        in_time = model.chat(TURNS, timeout=10.0, max_tokens=2, seed=1)
        time.now += 100.0  # nothing works before the first next()
        assert list(in_time)


def test_closing_the_model_stops_a_template_that_computes(checkpoint: Checkpoint) -> None:
    model = load(with_marks(checkpoint, "llama", chat_template=ENDLESS))

    class Closing(Cancel):
        def is_set(self) -> bool:
            if super().is_set():
                model.close()
            return False

    with pytest.raises(core.ModelClosedError):
        model.chat(TURNS, cancel=Closing(10))


@pytest.mark.parametrize("text", [None, 5, b""])
def test_what_is_no_text_is_not_encoded(model: MlxModel, text: Any) -> None:
    with pytest.raises(TypeError, match=r"encode\(\) takes a string"):
        model.encode(text)


def test_messages_that_the_template_refuses_raise_at_the_call(checkpoint: Checkpoint) -> None:
    with load(with_marks(checkpoint, "gemma3")) as model:
        with pytest.raises(core.ChatTemplateError, match="can only come first"):
            model.chat(TURNS[::-1])
        with pytest.raises(core.ChatTemplateError, match="at least one"):
            model.chat([])


@pytest.mark.parametrize("messages", ["ab", None, [("user", "ab")], [{"role": "user"}], ["ab"]])
def test_what_is_no_conversation_is_a_type_error(model: MlxModel, messages: Any) -> None:
    with pytest.raises(TypeError, match="Message"):
        model.chat(messages)


def test_an_unknown_role_is_refused_at_the_call(model: MlxModel) -> None:
    role: Any = "tool"
    with pytest.raises(core.InvalidOptionError, match="role"):
        model.chat([core.Message(role, "ab")])


def test_options_are_those_of_generate(model: MlxModel) -> None:
    foreign: dict[str, Any] = {"labels": ["ab"]}
    with pytest.raises(TypeError, match=r"chat.. has no option 'labels'"):
        model.chat(TURNS, **foreign)
    with pytest.raises(core.InvalidOptionError, match="max_tokens"):
        model.chat(TURNS, max_tokens=0)
    config = core.GenerateConfig(max_tokens=2, labels=("ab",), seed=1)
    assert len(list(model.chat(TURNS, config, max_tokens=5, stop_tokens=[]))) <= 5
    assert len(list(model.chat(TURNS, config))) <= 2


def test_it_runs_at_the_first_next(model: MlxModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("work was done before the first next()")

    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "encode", fail)
        patch.setattr(MlxEngine, "submit", fail)
        stream = model.chat(TURNS, SAMPLED)
    assert stream.finish_reason is None
    assert list(stream) == list(model.chat(TURNS, SAMPLED))


def test_a_conversation_that_is_too_long_raises_from_the_stream(model: MlxModel) -> None:
    stream = model.chat([core.Message("user", "x" * 300)])
    with pytest.raises(core.PromptTooLongError):
        next(stream)
    assert stream.finish_reason == "error"


# ---------------------------------------------------------------- a real model


def test_a_real_model_answers_in_its_own_format(smollm2: MlxModel) -> None:
    question = [core.Message("user", "What is the capital of France? One sentence.")]
    rendered = smollm2.render_chat(question)
    assert rendered.startswith("<|im_start|>system\nYou are a helpful AI assistant")  # its own
    assert rendered.endswith("<|im_end|>\n<|im_start|>assistant\n")
    stream = smollm2.submit(rendered, core.GenerateConfig(max_tokens=24))
    answer = list(smollm2.chat(question, max_tokens=24))
    assert answer == list(stream)
    text = "".join(token.text for token in answer)
    assert "Paris" in text
    assert stream.finish_reason == "stop"  # by <|im_end|>, which is not shown
    assert "<|" not in text
