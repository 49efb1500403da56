"""A converted model reads chats as its GGUF file does in llama.cpp: with one BOS, or with none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import core
from core.errors import ConversionError
from core.kit.chat import FORMATS
from core.registry import REGISTRY
from core.types import Message
from core_mlx_native.convert import convert
from core_mlx_native.convert.tokenizer_files import write_templates
from core_runtime.chat.prompts import compile_template
from core_runtime.gguf.metadata import Metadata

MakeGguf = Callable[..., Any]

_BODY = """
  {%- set ns = namespace(first=true) -%}
{% for m in messages %}
    {%- if m.role == 'system' %}
 {{ m.content | trim }}
    {% else %}
  {{ m.role }}:{{ m.content }}
    {% endif %}
{% endfor %}
{%- set messages = messages[1:] -%}
 {{ messages | length }}
"""
_TEMPLATES = {
    "without": "{% for m in messages %}{{ m.content + 'b' }}{% endfor %}",
    "with": "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}",
    "with, without space": "  {{- bos_token -}}  {{ messages[0].content }}",
    "in turns": "{% for m in messages %}{{ bos_token + m.content }}{% endfor %}",
    "for some": "{% if messages[0].content == 'a' %}{{ bos_token }}{% endif %}a",
    "content first": "{{ messages[0].content }}",
}
_TURNS = [Message("user", "ab"), Message("assistant", "b a"), Message("user", "a")]


@pytest.mark.parametrize("template", _TEMPLATES)
@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_both_backends_read_a_chat_alike(
    tmp_path: Path, tiny_gguf: MakeGguf, architecture: str, adds: bool, template: str
) -> None:
    if "llama_cpp" not in REGISTRY.names():
        pytest.skip("the backend llama_cpp is not installed")
    tiny = tiny_gguf(architecture)
    tiny.metadata["tokenizer.ggml.add_bos_token"] = adds
    tiny.metadata["tokenizer.chat_template"] = _TEMPLATES[template]
    path = tiny.write(tmp_path / "m.gguf")
    bos = tiny.metadata["tokenizer.ggml.bos_token_id"]
    with (
        core.load_model(path, backend="llama_cpp") as one,
        core.load_model(convert(path, tmp_path / "out"), backend="mlx_cpu") as other,
    ):
        for turns in (_TURNS, [Message("user", "a")]):
            prompts = [cast("core.Tokenizing", model).render_chat(turns) for model in (one, other)]
            ids = [
                cast("core.Tokenizing", model).encode(prompt)
                for model, prompt in zip((one, other), prompts, strict=True)
            ]
            assert prompts[0] == prompts[1]
            assert ids[0] == ids[1]
            assert ids[0][0] == bos or not adds
            assert template == "in turns" or ids[0].count(bos) <= 1
        texts = ["ab", "", "a b"]
        plain = [[cast("core.Tokenizing", m).encode(t) for t in texts] for m in (one, other)]
        assert plain[0] == plain[1]


@pytest.mark.parametrize(
    "template", [_BODY, f"\n\n{_BODY}\n\n", "  {% if true %}\n a {% endif %}  ", "a\n", "", "\n"]
)
@pytest.mark.parametrize("form", [f"{item.mark}: {item.template}" for item in FORMATS])
def test_the_text_of_a_template_stays_as_it_is(tmp_path: Path, template: str, form: str) -> None:
    for source in (template, form):
        values = {
            "general.architecture": "llama",
            "tokenizer.ggml.model": "llama",
            "tokenizer.chat_template": source or " ",
        }
        write_templates(Metadata(values, "m.gguf"), tmp_path)
        written = (tmp_path / "chat_template.jinja").read_text()
        variables = {"bos_token": "<s>"}
        expected = compile_template(source or " ", variables)(_TURNS)
        assert "chat_text" in written
        assert compile_template(written, variables)(_TURNS) == f"<s>{expected}"


def test_templates_with_names(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny = tiny_gguf()
    del tiny.metadata["tokenizer.chat_template"]
    tiny.metadata["tokenizer.chat_templates"] = ["tool_use"]
    tiny.metadata["tokenizer.chat_template.tool_use"] = "tools"
    one = convert(tiny.write(tmp_path / "m.gguf"), tmp_path / "one")
    assert (one / "chat_template.jinja").read_text() == "tools"
    assert not (one / "additional_chat_templates").exists()

    tiny.metadata["tokenizer.chat_template.rag"] = "rag"
    two = convert(tiny.write(tmp_path / "m.gguf"), tmp_path / "two")
    assert not (two / "chat_template.jinja").exists()
    names = sorted(file.name for file in (two / "additional_chat_templates").iterdir())
    assert names == ["rag.jinja", "tool_use.jinja"]

    tiny.metadata["tokenizer.chat_template"] = "default"
    all_three = convert(tiny.write(tmp_path / "m.gguf"), tmp_path / "three")
    assert (all_three / "chat_template.jinja").read_text() == "default"
    assert (all_three / "additional_chat_templates" / "rag.jinja").read_text() == "rag"


@pytest.mark.parametrize("name", ["../x", "a/b", "", "x.y", "a b"])
def test_a_template_whose_name_is_no_files(tmp_path: Path, tiny_gguf: MakeGguf, name: str) -> None:
    tiny = tiny_gguf()
    tiny.metadata[f"tokenizer.chat_template.{name}"] = "x"
    with pytest.raises(ConversionError, match="cannot be a file name"):
        convert(tiny.write(tmp_path / "m.gguf"), tmp_path / "out")
