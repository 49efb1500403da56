"""What a GGUF file says of its tokens and templates, against llama.cpp's own functions."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import core
from core.errors import ChatTemplateError, TokenizerError
from core.kit.chat import RenderedPrompt
from core.types import Message
from core_llama_cpp.model import LlamaModel

TinyGguf = Callable[..., Path]
Metadata = Mapping[str, object]

_PLAIN = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
_TEMPLATES = {
    "without": _PLAIN,
    "with": "{{ bos_token }}" + _PLAIN,
    "twice": "{{ bos_token }}{{ bos_token }}" + _PLAIN,
    "in every turn": "{% for m in messages %}{{ bos_token + m.content }}{% endfor %}",
    "content first": "{{ messages[0].content }}",
}
_TURNS = [Message("user", "ab"), Message("assistant", "b a"), Message("user", "a")]
_BYTES = [f"<0x{value:02X}>" for value in range(256)]
_WORDS = {
    "gpt2": ["<s>", "</s>", *map(chr, range(33, 127)), "Ġ", "Ċ", "ab", "Ġa"],
    "llama": ["<unk>", "<s>", "</s>", *_BYTES, "▁", *"ab:", "▁a", "ab"],
}


def _vocabulary(kind: str, more: Mapping[str, int] | None = None, **change: object) -> Metadata:
    """The keys of a tokenizer of this kind; ``more`` are tokens with their types."""
    words = [*_WORDS[kind], *(more or {})]
    types = {"<s>": 3, "</s>": 3, "<unk>": 2, **dict.fromkeys(_BYTES, 6), **(more or {})}
    keys: dict[str, object] = {
        "tokenizer.ggml.model": kind,
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [types.get(word, 1) for word in words],
        "tokenizer.ggml.scores": [-float(place) for place in range(len(words))],
        "tokenizer.ggml.merges": ["a b", "Ġ a"],
        "tokenizer.ggml.bos_token_id": words.index("<s>"),
        "tokenizer.ggml.eos_token_id": words.index("</s>"),
    }
    named = {f"tokenizer.ggml.{name}": value for name, value in change.items()}
    return {**keys, **named}


@contextmanager
def _loaded(tiny_gguf: TinyGguf, keys: Metadata) -> Iterator[LlamaModel]:
    words = cast("list[str]", keys["tokenizer.ggml.tokens"])
    with core.load_model(tiny_gguf(change=keys, words=words), backend="llama_cpp") as model:
        yield cast("LlamaModel", model)


def _llama_cpp_ids(model: LlamaModel, text: str, *, add_special: bool) -> list[int]:
    """The ids that ``llama_tokenize`` gives where the text may spell special tokens."""
    session, data = model._loaded.session, text.encode()
    ids = (ctypes.c_int32 * (len(data) + 8))()
    arguments = (data, len(data), ids, len(ids), add_special, True)
    count = session.lib.llama_tokenize(session.vocab, *arguments)
    assert count >= 0
    return ids[:count]


def _server_ids(model: LlamaModel, rendered: str) -> list[int]:
    """The ids of a chat in llama.cpp's server (common/chat.cpp and tokenize_mixed).

    It takes the BOS off the rendered text where the tokenizer adds one.
    """
    session = model._loaded.session
    if session.lib.llama_vocab_get_add_bos(session.vocab):
        rendered = rendered.removeprefix("<s>")
    return _llama_cpp_ids(model, rendered, add_special=True)


@pytest.mark.parametrize("template", _TEMPLATES)
@pytest.mark.parametrize("add_bos", [None, True, False])
@pytest.mark.parametrize(
    ("kind", "pre", "default"),
    [("gpt2", "gpt-2", False), ("gpt2", "llama-bpe", True), ("llama", "default", True)],
)
def test_a_chat_begins_as_in_llama_cpps_server(
    tiny_gguf: TinyGguf, kind: str, pre: str, default: bool, add_bos: bool | None, template: str
) -> None:
    keys = {
        **_vocabulary(kind, pre=pre, add_bos_token=add_bos),
        "tokenizer.chat_template": _TEMPLATES[template],
    }
    with _loaded(tiny_gguf, keys) as model:
        adds = default if add_bos is None else add_bos
        assert (model._loaded.tokenizer.vocabulary.bos is not None) == adds
        prompt = model.render_chat(_TURNS)
        written = str(prompt)
        if adds and template in ("without", "content first"):
            written = written.removeprefix("<s>")
        ids = model.encode(prompt)
        assert ids == _server_ids(model, written)
        bos = keys["tokenizer.ggml.bos_token_id"]
        assert ids[0] == bos or not adds
        assert model.encode(RenderedPrompt("ab")) == _llama_cpp_ids(model, "ab", add_special=False)


def test_a_chat_is_generate_of_its_rendered_prompt(tiny_gguf: TinyGguf) -> None:
    keys = {**_vocabulary("gpt2", add_bos_token=True), "tokenizer.chat_template": _PLAIN}
    with _loaded(tiny_gguf, keys) as model:
        chat = [token.id for token in model.chat(_TURNS, max_tokens=4)]
        prompt = model.render_chat(_TURNS)
        assert chat == [token.id for token in model.generate(prompt, max_tokens=4)]
        without = RenderedPrompt(prompt.removeprefix("<s>"))
        assert model.encode(prompt) == [0, *model.encode(without)]


def test_a_message_that_spells_the_bos_is_not_it(tiny_gguf: TinyGguf) -> None:
    keys = {
        **_vocabulary("gpt2", add_bos_token=True),
        "tokenizer.chat_template": _TEMPLATES["content first"],
    }
    with _loaded(tiny_gguf, keys) as model:
        prompt = model.render_chat([Message("user", "<s>a")])
        assert prompt == "<s><s>a"
        assert model.encode(prompt) == [0, *model.encode("<s>a")[1:]]
        assert model.encode(prompt).count(0) == 1


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("template", ["with", "without"])
def test_a_bos_may_be_a_normal_token(tiny_gguf: TinyGguf, kind: str, template: str) -> None:
    keys = {
        **_vocabulary(kind, {"<begin>": 1}, add_bos_token=True),
        "tokenizer.chat_template": _TEMPLATES[template],
    }
    bos = len(_WORDS[kind])
    keys["tokenizer.ggml.bos_token_id"] = bos
    with _loaded(tiny_gguf, keys) as model:
        ids = model.encode(model.render_chat([Message("user", "ab")]))
        assert ids == _llama_cpp_ids(model, "user: ab\n", add_special=True)
        assert (ids[0], ids.count(bos)) == (bos, 1)


def test_no_eos_goes_after_a_prompt(tiny_gguf: TinyGguf) -> None:
    keys = {
        **_vocabulary("gpt2", add_bos_token=True, add_eos_token=True),
        "tokenizer.chat_template": _PLAIN,
    }
    with _loaded(tiny_gguf, keys) as model:
        assert _llama_cpp_ids(model, "ab", add_special=True)[-1] == 1
        assert model.encode("ab") == _llama_cpp_ids(model, "ab", add_special=True)[:-1]
        assert 1 not in model.encode(model.render_chat(_TURNS))


_ROLES = {"<|user|>": 3, "<|end|>": 3, "<|assistant|>": 3, "<|endoftext|>": 3, "<mark>": 4}


@pytest.mark.parametrize("name", ["Phi-3 mini", "another"])
@pytest.mark.parametrize("space_prefix", [True, False])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_special_tokens_and_the_spaces_beside_them(
    tiny_gguf: TinyGguf, name: str, space_prefix: bool, data: st.DataObject
) -> None:
    keys = {
        **_vocabulary("llama", _ROLES, add_space_prefix=space_prefix),
        "general.name": name,
    }
    parts = st.sampled_from([*_ROLES, "</s>", " ", "\n", "\t", "a", "ab", " \n", "é"])
    with _loaded(tiny_gguf, keys) as model:
        for text in data.draw(st.lists(st.lists(parts, max_size=8).map("".join), min_size=5)):
            expected = _llama_cpp_ids(model, text, add_special=False)
            assert model.encode(RenderedPrompt(text)) == expected, text
            assert len(expected) >= model._loaded.tokenizer.vocabulary.fewest_tokens(
                model._loaded.tokenizer.vocabulary.stripped(RenderedPrompt(text))
            )


def test_white_space_that_is_stripped_does_not_count_as_length(tiny_gguf: TinyGguf) -> None:
    keys = {**_vocabulary("llama", _ROLES, add_space_prefix=False), "general.name": "phi3"}
    with _loaded(tiny_gguf, keys) as model:
        long = RenderedPrompt(f"<|user|>{' ' * 2**18}ab")
        assert len(model.encode(long)) == 2
        assert next(iter(model.generate(long, max_tokens=1))).id >= 0


@pytest.mark.parametrize(
    ("more", "change", "ends"),
    [
        ({"x1": 1}, {"eom_token_id": "x1"}, {"x1"}),
        ({"x1": 1}, {"eot_token_id": "x1"}, {"x1"}),
        ({"x1": 1}, {"fim_pad_token_id": "x1"}, {"x1"}),
        ({"x1": 1}, {"fim_rep_token_id": "x1"}, {"x1"}),
        ({"x1": 1}, {"fim_sep_token_id": "x1"}, {"x1"}),
        ({"x1": 1}, {"fim_pre_token_id": "x1", "padding_token_id": "x1"}, set()),
        ({"<|im_end|>": 1, "<|file_sep|>": 3}, {}, {"<|im_end|>", "<|file_sep|>"}),
        # Harmony: <|end|> ends a message of several, not the answer.
        (
            {"<|return|>": 3, "<|call|>": 3, "<|end|>": 3},
            {},
            {"<|return|>", "<|call|>"},
        ),
    ],
)
def test_generations_end_at_what_llama_cpp_ends_them_at(
    tiny_gguf: TinyGguf, more: Mapping[str, int], change: Mapping[str, str], ends: set[str]
) -> None:
    words = [*_WORDS["gpt2"], *more]
    ids = {key: words.index(word) for key, word in change.items()}
    with _loaded(tiny_gguf, _vocabulary("gpt2", more, **ids)) as model:
        assert model._loaded.stop_ids == {1, *map(words.index, ends)}


def test_generations_end_at_what_ollama_ends_them_at(tiny_gguf: TinyGguf) -> None:
    with _loaded(tiny_gguf, _vocabulary("gpt2", eos_token_ids=[1, 4, 5])) as model:
        assert model._loaded.stop_ids == {1, 4, 5}
    for broken in ([4, 1000], "4", [1.5]):
        with (
            pytest.raises(TokenizerError, match="eos_token_ids is"),
            _loaded(tiny_gguf, _vocabulary("gpt2", eos_token_ids=broken)),
        ):
            pass


def test_suppressed_tokens_are_never_chosen(tiny_gguf: TinyGguf) -> None:
    keys = _vocabulary("gpt2")
    with _loaded(tiny_gguf, keys) as model:
        free = [token.id for token in model.generate("ab", max_tokens=6)]
        [logits] = [result.logits for result in model.classify(["ab"], return_logits=True)]
    never = sorted({*free, 5})
    with _loaded(tiny_gguf, {**keys, "tokenizer.ggml.suppress_tokens": never}) as model:
        greedy = [token.id for token in model.generate("ab", max_tokens=20)]
        assert greedy
        assert not {*greedy} & {*never}
        drawn = model.generate("ab", max_tokens=20, temperature=50.0, seed=1, typical_p=0.9)
        assert not {token.id for token in drawn} & {*never}

        # The distribution is one: the rest of it is as before.
        [result] = model.classify(["ab"], return_logits=True)
        assert (result.token and result.token.id) == greedy[0]
        expected = [-math.inf if i in never else value for i, value in enumerate(logits or ())]
        assert list(result.logits or ()) == expected
        assert model.batch_generate(["ab", "ab"], max_tokens=20)[1].tokens[0].id == greedy[0]


@pytest.mark.parametrize("key", ["tokenizer.chat_template", "tokenizer.chat_template.x"])
def test_a_template_that_is_not_a_text_is_refused(tiny_gguf: TinyGguf, key: str) -> None:
    with _loaded(tiny_gguf, {**_vocabulary("gpt2", {"<|im_start|>": 3}), key: 5}) as model:
        assert list(model.generate("ab", max_tokens=1))
        with pytest.raises(ChatTemplateError, match=f"{key} is 5, not text"):
            model.chat([Message("user", "a")])


@pytest.mark.parametrize("name", ["tool_use", "chat"])
def test_the_only_template_with_a_name_is_the_models(tiny_gguf: TinyGguf, name: str) -> None:
    keys: dict[str, Any] = {
        **_vocabulary("gpt2"),
        "tokenizer.chat_templates": [name],
        f"tokenizer.chat_template.{name}": "[{{ messages[0].content }}]",
    }
    with _loaded(tiny_gguf, keys) as model:
        assert model.render_chat([Message("user", "a")]) == "[a]"


def test_of_several_templates_the_one_without_a_name_is_the_models(tiny_gguf: TinyGguf) -> None:
    keys: dict[str, Any] = {
        **_vocabulary("gpt2", {"<|im_start|>": 3}),
        "tokenizer.chat_templates": ["rag", "tool_use"],
        "tokenizer.chat_template.rag": "rag",
        "tokenizer.chat_template.tool_use": "tools",
    }
    with _loaded(tiny_gguf, keys) as model:
        # Nothing else needs one, and the family's format is not taken in their place.
        assert list(model.generate("ab", max_tokens=1))
        for use in (model.render_chat, model.chat):
            with pytest.raises(ChatTemplateError, match=r"'rag', 'tool_use'.*RenderedPrompt"):
                use([Message("user", "a")])
    with _loaded(tiny_gguf, {**keys, "tokenizer.chat_template": "default"}) as model:
        assert model.render_chat([Message("user", "a")]) == "default"
