"""Where in a chat prompt a label may be read: templates of models that think before they answer."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from core.errors import ChatTemplateError, InvalidOptionError
from core.extensions import Tokenizing
from core.kit.chat import RenderedPrompt
from core.options import GenerateConfig
from core.rendering import Rendering
from core.testing import FakeModel
from core.types import Conversation, Message
from core_runtime.chat.prompts import ChatPrompts

TEMPLATES = Path(__file__).parents[1] / "runtime/tests/chat_templates/templates"
HELLO = [Message("user", "Hello")]
DEEPSEEK = (  # as in DeepSeek-V3.1, whose switch is another one
    "{% if not thinking is defined %}{% set thinking = false %}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "<assistant>{{ '<think>' if thinking else '</think>' }}"
)
INSIDE = "the prompt ends within the model's thoughts"


class Model:
    """A model that renders chats, and counts how often."""

    def __init__(self, template: str) -> None:
        self._chat, self.rendered = ChatPrompts(template, {"bos_token": ""}, {}), 0

    def render_chat(self, messages: Conversation, config: GenerateConfig) -> RenderedPrompt:
        self.rendered += 1
        return self._chat.render(messages, config=config)


def of(name: str) -> Model:
    return Model((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))


def labels(model: Model, opening: str = "", **variables: object) -> Rendering:
    config = GenerateConfig(chat_template_kwargs=variables)
    return Rendering(cast("Tokenizing", model), config, opening, labels=True)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
        ("qwen3.5", "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
        ("glm-4.5", "/nothink<|assistant|>\n<think></think>"),
    ],
)
def test_thinking_is_off_where_labels_are_read(name: str, end: str) -> None:
    model = of(name)
    render = labels(model, "Topic:")
    assert render(HELLO).endswith(end + "Topic:")
    assert render(HELLO, " This").endswith(end + " This")
    assert render.variables == {"enable_thinking": False}
    assert model.rendered == 2 + 2  # which switches it has is asked once

    config = GenerateConfig()
    assert Rendering(cast("Tokenizing", model), config)(HELLO) == model.render_chat(HELLO, config)


def test_another_switch_is_turned_off_by_its_name() -> None:
    render = labels(Model(DEEPSEEK))
    assert render(HELLO) == "<user>Hello<assistant></think>"
    assert render.variables == {"thinking": False}


def test_a_model_that_does_not_think_is_left_alone() -> None:
    for name in ("smollm2", "gemma-3", "qwen2.5"):
        model = of(name)
        render = labels(model)
        assert render(HELLO) == model.render_chat(HELLO, GenerateConfig())
        assert render.variables == {}
    fake = FakeModel()
    assert Rendering(fake, labels=True)(HELLO) == fake.render_chat(HELLO)


def test_what_the_caller_set_stays() -> None:
    with pytest.raises(ChatTemplateError, match=f"{INSIDE} .<think>.*--no-thinking, "):
        labels(of("qwen3.5"), enable_thinking=True)(HELLO)
    render = labels(Model(DEEPSEEK), thinking=True)
    with pytest.raises(ChatTemplateError, match=r"off \(chat_template_kwargs="):
        render(HELLO)
    with pytest.raises(InvalidOptionError, match="'tone' is not valid"):
        labels(of("qwen3"), tone="dry")(HELLO)


def test_a_template_that_always_opens_a_block_wants_an_opening() -> None:
    model = of("deepseek-r1-distill")
    with pytest.raises(ChatTemplateError, match=f"{INSIDE}.*--opening '</think>'"):
        labels(model)(HELLO)
    for opening in ("Hm", "</think> <think>"):
        with pytest.raises(ChatTemplateError, match=INSIDE):
            labels(model, opening)(HELLO)
    assert labels(model, "</think>\n\nTopic:")(HELLO).endswith("<think>\n</think>\n\nTopic:")


@pytest.mark.parametrize(
    ("end", "block"),
    [
        ("<thinking>\n", "<thinking>"),
        ("[THINK]", "[THINK]"),
        ("<|start|>assistant<|channel|>analysis<|message|>", "<|channel|>analysis"),
        ("<|START_THINKING|>", "<|START_THINKING|>"),
        ("<seed:think>", "<seed:think>"),
        ("<|channel>thought\n", "<|channel>thought"),
    ],
)
def test_blocks_of_other_families(end: str, block: str) -> None:
    model = Model("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}" + end)
    with pytest.raises(ChatTemplateError) as raised:
        labels(model)(HELLO)
    assert block in str(raised.value)


@pytest.mark.parametrize("text", ["<think>", "a <think> b", "think", "</think>", "<", ""])
def test_what_a_user_writes_opens_and_closes_nothing(text: str) -> None:
    turns = [Message("user", text)]
    assert labels(of("smollm2"))(turns) == of("smollm2").render_chat(turns, GenerateConfig())
    with pytest.raises(ChatTemplateError, match=INSIDE):
        labels(of("deepseek-r1-distill"))(turns)


def test_a_message_that_is_continued_counts_as_the_answer() -> None:
    config = GenerateConfig(continue_final_message=True)
    render = Rendering(cast("Tokenizing", of("smollm2")), config, labels=True)
    assert render([*HELLO, Message("assistant", "Topic:")]).endswith("assistant\nTopic:")
    with pytest.raises(ChatTemplateError, match=INSIDE):
        render([*HELLO, Message("assistant", "<think>So")])
