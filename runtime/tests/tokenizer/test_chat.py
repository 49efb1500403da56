"""Chat templates: what they can use, what they cannot do, and the formats of families."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models

from core.errors import ChatTemplateError
from core.kit.chat import family_template
from core.types import Message
from core_runtime.chat.prompts import compile_template
from core_runtime.tokenizer.model_tokenizer import Tokenizer

TALK = [
    Message("system", "Be kind."),
    Message("user", " Hi "),
    Message("assistant", "Hello."),
    Message("user", "Bye"),
]


def rendered(source: str, messages: Sequence[Message] = TALK, **variables: str) -> str:
    return compile_template(source, variables)(messages)


def directory_with(
    directory: Path, special: Sequence[str], config: dict[str, Any], **tokenizer_config: Any
) -> Path:
    library = Library(models.BPE({"a": 0}, []))
    library.add_special_tokens(list(special))
    library.save(str(directory / "tokenizer.json"))
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return directory


# ---------------------------------------------------------------- what templates are given


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ messages[1].content }}|{{ messages[1]['role'] }}", " Hi |user"),
        ("{{ bos_token }}{{ eos_token }}{{ pad_token }}", "<s>"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("{{ tools is none }}{{ documents is none }}{{ custom is defined }}", "TrueTrueFalse"),
        ("{{ {'b': '<é>', 'a': 1} | tojson }}", '{"b": "<é>", "a": 1}'),
        ("{{ {'a': 1} | tojson(indent=1) }}", '{\n "a": 1\n}'),
        ("  {% if true %}\n  x\n  {% endif %}\ny", "  x\ny"),
        ("{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}*{% endfor %}", "**"),
        ("{% generation %}a{% endgeneration %}b", "ab"),
        ("{% set ns = namespace(n=0) %}{% set ns.n = 3 %}{{ ns.n }}", "3"),
        ("{% for i in range(3) %}{{ i * 2 }}{{ 2 ** i }}{% endfor %}", "012244"),
        ("{{ '-' * 5 }}{{ 2 * '+' }}", "-----++"),
        ("{{ 2.5 * 10000000000 }}{{ 2.0 ** 3 }}", "25000000000.08.0"),
        ("{{ namespace({'a': 1}, b=2).a }}", "1"),
        ("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m('a') }}", "[a]"),
    ],
)
def test_templates_work_as_in_transformers(source: str, expected: str) -> None:
    assert rendered(source, bos_token="<s>") == expected


def test_strftime_now_gives_todays_date() -> None:
    from datetime import datetime

    before = datetime.now()
    found = datetime.strptime(rendered("{{ strftime_now('%Y-%m-%d %H:%M') }}"), "%Y-%m-%d %H:%M")
    assert abs((found - before).total_seconds()) < 120


# ---------------------------------------------------------------- what they cannot do


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'content': 'x'}) }}",
        "{{ (namespace|attr('__init__')).__globals__ }}",
        "{% set ns = namespace() %}{% set ns._secret = 1 %}",
        "{{ namespace(_secret=1) }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% extends 'a' %}",
        "{{ range(1000000) }}",
        "{{ 'a' * 10**12 }}",
        "{{ [0] * 100000000 }}",
        "{{ 100000000 * 'a' }}",
        "{{ 9 ** (9 ** 9) }}",
        "{% for i in range(2000) %}{% for j in range(2000) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for i in range(2000) %}{{ 'a' * 6000 }}{% endfor %}",
        "{{ 1 / 0 }}",
        "{{ nothing.at.all }}",
    ],
)
def test_templates_are_kept_in_bounds(source: str) -> None:
    with pytest.raises(ChatTemplateError):
        rendered(source)


@pytest.mark.parametrize("source", ["{{ '{0.__class__}'.format(1) }}", "{{ lipsum.__globals__ }}"])
def test_what_python_keeps_inside_is_not_there(source: str) -> None:
    assert rendered(source) == ""


def test_steps_are_counted_for_each_rendering() -> None:
    template = compile_template(
        "{% for i in range(400) %}{% for j in range(400) %}{% endfor %}{% endfor %}", {}
    )
    assert [template(TALK) for _ in range(2)] == ["", ""]


def test_the_reason_that_a_template_gives_is_shown() -> None:
    with pytest.raises(ChatTemplateError, match="roles must alternate"):
        rendered("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{% for %}",
        "{% for m in messages %}" * 25 + "{% endfor %}" * 25,
        "{% if true %}" * 120 + "{% endif %}" * 120,
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    ],
    ids=["syntax", "loops", "conditions", "brackets"],
)
def test_a_template_that_cannot_be_compiled(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="is broken"):
        compile_template(source, {})


# ---------------------------------------------------------------- formats of families


@pytest.mark.parametrize(
    ("model_type", "mark", "expected"),
    [
        (
            "gemma3_text",
            "<start_of_turn>",
            "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n"
            "<start_of_turn>model\nHello.<end_of_turn>\n"
            "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
        ),
        (
            "qwen2",
            "<|im_start|>",
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
            "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            "llama",
            "<|start_header_id|>",
            "<bos><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
    ],
)
def test_formats(model_type: str, mark: str, expected: str) -> None:
    source = family_template(model_type, [mark])
    assert source is not None
    assert rendered(source, bos_token="<bos>") == expected


def test_gemma_without_and_with_a_late_system_message() -> None:
    source = family_template("gemma3", ["<start_of_turn>"])
    assert source is not None
    assert rendered(source, TALK[3:]) == (
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    )
    with pytest.raises(ChatTemplateError, match="only come first"):
        rendered(source, [TALK[1], TALK[0]])


@pytest.mark.parametrize(
    ("model_type", "special"),
    [("gemma3", ["<|im_start|>"]), ("llama", ["<s>"]), ("mamba", ["<|im_start|>"]), ("", [])],
)
def test_no_format_where_the_marks_are_missing(model_type: str, special: list[str]) -> None:
    assert family_template(model_type, special) is None


# ---------------------------------------------------------------- where templates come from


def test_the_file_wins_over_the_config_and_both_over_the_family(tmp_path: Path) -> None:
    config = {"model_type": "qwen2"}
    directory = directory_with(tmp_path, ["<|im_start|>"], config, chat_template="config")
    assert Tokenizer.from_directory(directory).render_chat(TALK) == "config"
    (directory / "chat_template.jinja").write_text("file")
    assert Tokenizer.from_directory(directory).render_chat(TALK) == "file"


def test_the_default_of_several_templates_is_taken(tmp_path: Path) -> None:
    several = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    directory = directory_with(tmp_path, [], {}, chat_template=several)
    assert Tokenizer.from_directory(directory).render_chat(TALK) == "d"


def test_a_model_without_a_template_says_so(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_directory(directory_with(tmp_path, [], {"model_type": "llama"}))
    with pytest.raises(ChatTemplateError, match="no chat template"):
        tokenizer.render_chat(TALK)


def test_no_messages(tmp_path: Path) -> None:
    directory = directory_with(tmp_path, [], {}, chat_template="x")
    with pytest.raises(ChatTemplateError, match="conversation is empty"):
        Tokenizer.from_directory(directory).render_chat([])
