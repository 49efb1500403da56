"""The refusals that every backend owes its users."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from core.errors import (
    ChatTemplateError,
    InvalidModelError,
    InvalidOptionError,
    UnsupportedOperationError,
    UnsupportedOptionError,
)
from core.kit.labels import label_sentences, sentence_result
from core.kit.support import (
    OPTION_NEEDS,
    checked_layers,
    checked_pairs,
    checked_prompts,
    checked_text,
    chosen_backend,
    refuse_load_options,
    refuse_options,
    unicode_error,
    unsupported,
)
from core.messages import checked_conversation, checked_messages
from core.options import GenerateConfig, LoadConfig
from core.protocols import Capability
from core.registry import Registry
from core.types import Message

SET: dict[str, Any] = {
    "labels": ("a", "b"),
    "label_sentence": "About {label}.",
    "return_logits": True,
    "return_logprobs": True,
    "seed": 0,
    "chat_template_kwargs": {"enable_thinking": False},
    "continue_final_message": True,
}
OF_CLASSIFY = {"labels", "label_sentence", "return_logits"}
OF_CHAT = {"chat_template_kwargs", "continue_final_message"}


def operation_of(option: str) -> Capability:
    if option in OF_CHAT:
        return Capability.CHAT
    return Capability.CLASSIFY if option in OF_CLASSIFY else Capability.GENERATE


@pytest.mark.parametrize("option", sorted(OPTION_NEEDS))
def test_an_option_needs_its_capability(option: str) -> None:
    config = GenerateConfig(**{option: SET[option]})
    with pytest.raises(UnsupportedOptionError, match=option) as caught:
        refuse_options(config, operation_of(option), "fake", ())
    assert (caught.value.option, caught.value.backend) == (option, "fake")
    labelled = replace(config, labels=("a", "b"))
    refuse_options(
        labelled, operation_of(option), "fake", {OPTION_NEEDS[option], Capability.LABELS}
    )


def test_a_model_of_label_sentences_has_no_next_token() -> None:
    capabilities = {Capability.LABELS, Capability.LABEL_SENTENCES}
    for operation in (Capability.CLASSIFY, Capability.CLASSIFY_STREAMING):
        refuse_options(GenerateConfig(labels=("a", "b")), operation, "fake", capabilities)
        with pytest.raises(UnsupportedOperationError, match="classify without labels"):
            refuse_options(GenerateConfig(), operation, "fake", capabilities)
        prefixed = GenerateConfig(labels=("a", "b"), label_prefix=": ")
        with pytest.raises(UnsupportedOptionError, match="set label_sentence instead"):
            refuse_options(prefixed, operation, "fake", capabilities)


@pytest.mark.parametrize("value", ["no place", "", 3, "{label", "\ud800 {label}"])
def test_a_label_sentence_has_a_place_for_the_label(value: Any) -> None:
    with pytest.raises(InvalidOptionError, match="label_sentence"):
        GenerateConfig(label_sentence=value)


def test_a_label_is_text_in_its_sentence() -> None:
    sentences = label_sentences(["{label}", "b\\1"], "A {label} is a {label}.")
    assert sentences == ["A {label} is a {label}.", "A b\\1 is a b\\1."]


def test_probabilities_of_sentences_are_the_softmax_of_their_scores() -> None:
    result = sentence_result(("a", "b"), [1.0, 3.0])
    assert (result.label, result.logprobs, result.label_mass) == ("b", None, None)
    assert result.probabilities is not None
    assert result.probabilities["b"] == pytest.approx(1 / (1 + math.exp(-2)))
    assert result.margin == pytest.approx(math.tanh(1))
    assert sentence_result(("a",), [0.5]).margin == 1.0
    for bad in (math.nan, math.inf):
        with pytest.raises(InvalidModelError, match="'b' has the score"):
            sentence_result(("a", "b"), [0.0, bad])


def test_the_default_is_always_accepted() -> None:
    refuse_options(GenerateConfig(), Capability.GENERATE, "fake", (), honours=())
    with pytest.raises(UnsupportedOptionError, match="top_k"):
        refuse_options(GenerateConfig(top_k=1), Capability.GENERATE, "fake", (), honours=("min_p",))


def test_options_that_no_capability_stands_for() -> None:
    config = GenerateConfig(min_p=0.1)
    with pytest.raises(UnsupportedOptionError, match="min_p"):
        refuse_options(config, Capability.GENERATE, "fake", (), honours=("top_k",))
    refuse_options(config, Capability.GENERATE, "fake", (), honours=("min_p",))


def test_options_of_other_operations_do_not_apply() -> None:
    refuse_options(GenerateConfig(labels=("a",)), Capability.CHAT, "fake", ())
    continued = GenerateConfig(continue_final_message=True)
    refuse_options(continued, Capability.CLASSIFY, "fake", ())
    with pytest.raises(UnsupportedOptionError, match="continue_final_message"):
        refuse_options(continued, Capability.CHAT, "fake", ())


@pytest.mark.parametrize(
    ("config", "capability"),
    [
        (LoadConfig(adapter_path="adapters"), Capability.ADAPTERS),
        (LoadConfig(context_overflow="rotate"), Capability.ROTATE),
        (LoadConfig(parallel_slots=2), Capability.PARALLEL),
    ],
)
def test_a_load_option_needs_its_capability(config: LoadConfig, capability: Capability) -> None:
    with pytest.raises(UnsupportedOptionError):
        refuse_load_options(config, "fake", set(Capability) - {capability})
    refuse_load_options(config, "fake", {capability})


@pytest.mark.parametrize("option", sorted(OF_CLASSIFY))
def test_a_stream_of_classifications_has_the_options_of_classify(option: str) -> None:
    config = GenerateConfig(**{option: SET[option]})
    with pytest.raises(UnsupportedOptionError, match=option):
        refuse_options(config, Capability.CLASSIFY_STREAMING, "toy", frozenset())


def test_one_slot_is_not_parallel() -> None:
    refuse_load_options(LoadConfig(parallel_slots=1), "fake", ())
    with pytest.raises(UnsupportedOptionError, match="parallel_slots"):
        refuse_load_options(LoadConfig(parallel_slots=2), "fake", ())


def test_an_unknown_own_option_lists_the_known() -> None:
    config = LoadConfig(options={"spede": 1})
    with pytest.raises(InvalidOptionError, match="blas, speed"):
        refuse_load_options(config, "fake", (), ("speed", "blas"))
    refuse_load_options(LoadConfig(options={"speed": 1}), "fake", (), ("speed",))


@pytest.mark.parametrize(
    ("asked", "found"),
    [([-1], (3,)), ((0, 3, 1), (0, 3, 1)), ((-4, -2), (0, 2)), (iter([-1, 1]), (3, 1))],
)
def test_layers_are_counted_from_either_end(asked: Any, found: tuple[int, ...]) -> None:
    assert checked_layers(asked, 3) == found


@pytest.mark.parametrize(
    "asked", [(), (4,), (-5,), (3, -1), (1.0,), (True,), ("1",), "1", 1, None], ids=repr
)
def test_what_is_no_layer_is_refused_by_the_options_name(asked: Any) -> None:
    with pytest.raises(InvalidOptionError, match="layers"):
        checked_layers(asked, 3)


def test_a_refused_operation_names_who_offers_it(use_plugins: Callable[..., None]) -> None:
    use_plugins("sound", "broken")
    error = unsupported(Capability.CLASSIFY, "other")
    assert error.operation == "classify"
    assert error.offered_by == ("fake_factory", "fake_instance", "fake_sound")
    assert "No available backend supports it." in str(unsupported(Capability.SCORING, "other"))


def test_nobody_is_recommended_who_cannot_run_here_or_reads_other_files(
    use_plugins: Callable[..., None], local_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_plugins()
    registry = Registry()
    monkeypatch.setattr("core.registry.REGISTRY", registry)
    for name in ("metal", "llama_cpp", "mlx_cpu", "mlx_lm"):
        registry.register(local_backend(name))
    refusing, absent = registry.get("mlx_lm"), registry.get("metal")
    refusing.capabilities = frozenset()  # type: ignore[misc]
    monkeypatch.setattr(absent, "available", lambda: False)
    registry.get("llama_cpp").formats = frozenset({"gguf"})  # type: ignore[misc]
    assert unsupported(Capability.SCORING, "mlx_lm").offered_by == ("mlx_cpu",)


def test_a_refused_option_names_who_honours_it_here(
    use_plugins: Callable[..., None], local_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_plugins()
    registry = Registry()
    monkeypatch.setattr("core.registry.REGISTRY", registry)
    able = local_backend("able")
    able.capabilities = frozenset({Capability.SEED})
    registry.register(able)
    config = GenerateConfig(seed=1)
    with pytest.raises(UnsupportedOptionError, match="or use backend 'able'"):
        refuse_options(config, Capability.GENERATE, "fake", ())
    with pytest.raises(UnsupportedOptionError, match=r"Leave seed at its default\.$"):
        refuse_options(config, Capability.GENERATE, "able", ())  # by a model without seeds
    able.available = lambda: False
    with pytest.raises(UnsupportedOptionError, match=r"Leave seed at its default\.$"):
        refuse_options(config, Capability.GENERATE, "fake", ())


def test_prompts_are_a_sequence_of_strings() -> None:
    assert checked_prompts("classify", iter(["a", "b"])) == ["a", "b"]
    assert checked_prompts("classify", []) == []
    with pytest.raises(TypeError, match="wrap a single one in a list"):
        checked_prompts("classify", "one prompt")
    for missing in (None, float("nan")):
        with pytest.raises(TypeError, match=r"prompt 1 is a .*Remove the rows without a text"):
            checked_prompts("classify", ["a", missing])
    with pytest.raises(TypeError, match=r"prompt 1 is a int\.$"):
        checked_prompts("classify", ["a", 5])


@pytest.mark.parametrize("text", [None, 5, b"", b"a", ["a"]])
def test_a_text_is_a_string(text: object) -> None:
    with pytest.raises(TypeError, match=f"encode.. takes a string, not a {type(text).__name__}"):
        checked_text("encode", text)
    assert checked_text("encode", "") == ""


def test_messages_are_a_sequence_of_messages() -> None:
    turns = [Message("user", "a")]
    assert checked_messages(iter(turns)) == turns
    with pytest.raises(TypeError, match=r"sequence of core\.Message"):
        checked_messages("hello")
    with pytest.raises(TypeError, match="Message 1: This is a int, not"):
        checked_messages([*turns, 7])


def test_mappings_are_messages() -> None:
    turns = [{"role": "user", "content": "a"}, MappingProxyType({"content": "", "role": "system"})]
    assert checked_messages(turns) == [Message("user", "a"), Message("system", "")]
    assert turns[0] == {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "Message 1, role: This field is required"),
        ({"role": "user"}, "Message 1, content: This field is required"),
        ({"role": "user", "content": None}, "Message 1, content: This field is required"),
        ({"role": 1, "content": "a"}, "Message 1, role: This must be a string, not a int"),
        ({"role": "user", "content": "a", "mood": "b"}, "Message 1, mood: .* Remove it"),
        ({"role": "user", "content": "a", "name": 3}, "Message 1, name: This must be a string"),
        ({"role": "user", "content": "a", "weight": 0}, "Message 1, weight: .* Only 1"),
        ({"role": "user", "content": "a", "weight": True}, "Message 1, weight: "),
        ({"role": "assistant", "tool_calls": [{}]}, "Message 1, tool_calls: .* Tools are not"),
        ({"role": "user", "content": ["a"]}, r"Message 1, content\[0\]: This must be an object"),
        ({"role": "user", "content": [{"text": "a"}]}, r"content\[0\], type: This field is req"),
        ({"role": "user", "content": [{"type": "text"}]}, r"content\[0\], text: This field is req"),
        (
            {"role": "user", "content": [{"type": "text", "text": "a", "sound": 1}]},
            r"content\[0\], sound: This field of a part",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
            r"content\[0\]: A part of type 'image_url'",
        ),
        (Message("user", b"a"), "Message 1, content: .* not a bytes"),  # type: ignore[arg-type]
        (("user", "a"), "Message 1: This is a tuple, not"),
    ],
)
def test_a_wrong_message_is_named(wrong: object, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        checked_messages([Message("user", "a"), wrong])


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"role": "developer", "content": "a"}, Message("system", "a")),
        ({"role": "user", "content": "a", "name": "ann"}, Message("user", "a", "ann")),
        ({"role": "user", "content": "a", "name": ""}, Message("user", "a")),
        ({"role": "user", "content": []}, Message("user", "")),
        (
            {"role": "user", "content": [{"type": "text", "text": "a", "cache": None}]},
            Message("user", "a"),
        ),
        (
            {
                "role": "user",
                "content": (
                    {"type": "input_text", "text": "a"},
                    {"type": "refusal", "refusal": "b"},
                    {"type": "output_text", "text": "c", "annotations": [{"x": 1}]},
                ),
            },
            Message("user", "a\nb\nc"),
        ),
        (
            {
                **{"role": "assistant", "content": "a", "weight": 1, "refusal": None},
                **{"tool_calls": [], "annotations": [], "audio": None, "function_call": {}},
            },
            Message("assistant", "a"),
        ),
        (Message("developer", "a"), Message("system", "a")),  # type: ignore[arg-type]
    ],
)
def test_what_clients_write_for_a_message_is_read(given: Message, read: Message) -> None:
    assert checked_messages([given]) == checked_conversation([given]) == [read]


def test_a_message_as_a_mapping_is_the_same_message() -> None:
    for turn in (Message("user", "a"), Message("assistant", "b", "ann")):
        assert checked_messages([turn.to_dict()]) == [turn]
    assert Message("user", "a").to_dict() == {"role": "user", "content": "a"}


def test_a_conversation_has_a_message_and_known_roles() -> None:
    turns = [Message("user", "a"), Message("assistant", "b")]
    assert checked_conversation(iter(turns)) == turns
    with pytest.raises(ChatTemplateError, match="Pass at least one"):
        checked_conversation([])
    for wrong in (Message("tool", "a"), {"role": "tool", "content": "a"}):  # type: ignore[arg-type]
        with pytest.raises(InvalidOptionError, match=r"messages\[1\]\.role='tool'.*Tools are"):
            checked_conversation([turns[0], wrong])


def test_every_prompt_has_a_continuation() -> None:
    assert checked_pairs("score", iter("ab"), ("c", "d")) == (["a", "b"], ["c", "d"])
    with pytest.raises(TypeError, match=r"score\(\) takes one continuation per prompt, got 1"):
        checked_pairs("score", ["a", "b"], ["c"])
    with pytest.raises(TypeError, match="wrap a single one in a list"):
        checked_pairs("score", ["a"], "c")


def test_a_lone_surrogate_is_named_with_its_place() -> None:
    assert unicode_error("all is well \N{PILE OF POO}") is None
    error = unicode_error("ab\ud800", "label")
    assert "The label is not valid Unicode text" in str(error)
    assert "character 2" in str(error)


@pytest.mark.parametrize(("asked", "reason"), [("toy", "asked for by name"), ("", "the first")])
def test_a_backend_says_why_it_was_chosen(asked: str, reason: str) -> None:
    choice = chosen_backend("toy", LoadConfig(backend=asked))
    assert (choice.name, choice.value) == ("backend", "toy")
    assert choice.reason.startswith(reason)


def test_numbers_too_large_for_a_float_are_invalid_options() -> None:
    with pytest.raises(InvalidOptionError, match="temperature"):
        GenerateConfig(temperature=10**400)
    with pytest.raises(InvalidOptionError, match="cannot be displayed"):
        GenerateConfig(top_k=-(10**5000))
