"""Keys of a model's files that mlx-lm ignores: refused by name; of a window, a warning."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_lm_bridge.backend import MlxLm
from core_mlx_lm_bridge.ignored import ignored
from core_mlx_lm_bridge.model_code import model_code
from plugins.mlx_lm_bridge.tests.test_rope_keys import (
    DATA,
    PROMPTS,
    TOLERANCE,
    VISIBLE,
    assembled,
    computed,
    furthest,
)
from plugins.mlx_lm_bridge.tests.tiny_checkpoint import write

LLAMA = {
    "model_type": "llama",
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
}
SLIDING, FULL = "sliding_attention", "full_attention"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


def package() -> Path:
    spec = importlib.util.find_spec("mlx_lm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


def found(changes: dict[str, Any], directory: Path = Path("none")) -> tuple[list[str], int]:
    """Return the names of the keys that are ignored, and the window."""
    dropped = ignored(package(), directory, {**LLAMA, **changes})
    return [key.partition("=")[0] for key in dropped.keys], dropped.window


@pytest.mark.parametrize(
    ("model_type", "key", "value"),
    [
        ("llama", "is_causal", False),
        ("llama", "use_bidirectional_attention", True),
        ("llama", "attn_logit_softcapping", 50.0),
        ("llama", "partial_rotary_factor", 0.5),
        ("llama", "rope_parameters", {"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
        ("llama", "hidden_act", "gelu"),
        ("qwen3_moe", "rope_scaling", YARN),
        ("qwen3_moe", "rope_parameters", {**YARN, "rope_theta": 1e6}),
        ("mixtral", "rope_scaling", {"type": "linear", "factor": 2.0}),
        ("gemma2", "rope_scaling", {"rope_type": "linear", "factor": 2.0}),
        ("gemma2", "hidden_activation", "silu"),
        ("phi3", "rope_scaling", {"type": "yarn", "factor": 2.0}),
        ("qwen2_moe", "rope_scaling", YARN),
    ],
)
def test_keys_that_change_what_is_computed(model_type: str, key: str, value: object) -> None:
    keys, _ = found({"model_type": model_type, key: value})
    shown = "partial_rotary_factor" if "partial" in str(value) else key
    assert keys == [shown]


@pytest.mark.parametrize(
    ("model_type", "key", "value"),
    [
        ("llama", "is_causal", None),
        ("llama", "is_causal", True),
        ("llama", "partial_rotary_factor", 1.0),
        ("llama", "rope_scaling", YARN),
        ("llama", "rope_scaling", {"type": "dynamic", "factor": 2.0}),
        ("llama", "rope_parameters", {"rope_type": "default", "rope_theta": 1e4}),
        ("llama", "hidden_act", "swish"),
        ("gemma4", "use_bidirectional_attention", "vision"),
        ("gemma2", "attn_logit_softcapping", 50.0),
        ("glm", "partial_rotary_factor", 0.5),
        ("phi3", "rope_scaling", {"type": "longrope", "short_factor": [1.0]}),
        ("phimoe", "rope_scaling", {"type": "longrope", "short_factor": [1.0]}),
        ("minicpm3", "rope_scaling", {"type": "longrope", "short_factor": [1.0]}),
        ("deepseek_v2", "rope_scaling", YARN),
        ("deepseek_v3", "rope_scaling", YARN),
        ("nemotron", "hidden_act", "relu2"),
        ("muse_spark", "hidden_act", "silu"),
        ("no-such", "is_causal", False),  # a load says so
    ],
)
def test_keys_that_are_read_or_change_nothing(model_type: str, key: str, value: object) -> None:
    keys, _ = found({"model_type": model_type, key: value})
    assert keys == []


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (
            '{"suppress_tokens": [3], "forced_eos_token_id": 2, "temperature": 0.7}',
            ["suppress_tokens", "forced_eos_token_id"],
        ),
        ('{"suppress_tokens": null, "bad_words_ids": []}', []),
        ("[]", []),
        ("{", []),
    ],
)
def test_keys_of_generation(tmp_path: Path, content: str, names: list[str]) -> None:
    (tmp_path / "generation_config.json").write_text(content)
    assert found({}, tmp_path) == (names, 0)


def test_a_file_of_keys_that_never_ends_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "generation_config.json"
    os.mkfifo(file)
    assert found({}, tmp_path) == ([], 0)
    file.unlink()
    file.symlink_to("/dev/zero")
    assert found({}, tmp_path) == ([], 0)
    file.unlink()
    with file.open("wb") as sparse:
        sparse.truncate(2**34)
    assert found({}, tmp_path) == ([], 0)
    file.write_text("[" * 100_000)
    assert found({}, tmp_path) == ([], 0)


@pytest.mark.parametrize(
    ("window", "changes"),
    [
        (5, {"model_type": "mistral"}),
        (0, {"model_type": "mistral", "layer_types": [FULL, SLIDING, SLIDING, SLIDING]}),
        (0, {"model_type": "mistral", "sliding_window": None}),
        (5, {"model_type": "mistral", "use_sliding_window": False}),  # Mistral does not read it
        (5, {"model_type": "mixtral"}),
        (5, {"model_type": "phi3"}),
        (5, {"model_type": "starcoder2"}),
        (5, {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 2}),
        (0, {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 4}),
        (0, {"model_type": "qwen2", "use_sliding_window": False}),
        (0, {"model_type": "qwen3", "layer_types": [SLIDING] * 4}),
        (5, {"model_type": "qwen3", "use_sliding_window": True, "layer_types": [SLIDING] * 4}),
        (5, {"model_type": "qwen3_moe", "use_sliding_window": True}),
        (5, {"model_type": "gemma2"}),
        (4096, {"model_type": "gemma2", "sliding_window": None}),
        (0, {"model_type": "gemma3_text", "_sliding_window_pattern": 6}),
        (0, {"model_type": "gemma3_text", "layer_types": [SLIDING] * 4}),
        (5, {"model_type": "gemma3_text", "layer_types": [SLIDING, FULL] * 2}),
        (0, {"model_type": "gpt_oss", "layer_types": [SLIDING, FULL] * 2}),
        (0, {"model_type": "llama"}),  # transformers' Llama has no windows
        (5, {"model_type": "llava", "text_config": {"model_type": "mistral"}}),
    ],
)
def test_windows(window: int, changes: dict[str, Any]) -> None:
    if changes["model_type"] == "gemma2" and "sliding_window" in changes:
        changes = {name: value for name, value in changes.items() if name != "sliding_window"}
    else:
        changes = {"sliding_window": 5, **changes}
    assert found(changes) == ([], window)


WINDOWED = [
    "gemma2-4-kv-heads/default",
    "mistral-4-kv-heads/sliding",
    "mistral-2-kv-heads-wide/layered",
    "qwen2-2-kv-heads/full",
    "qwen2-2-kv-heads/sliding",
]


def test_up_to_a_window_logits_are_those_of_transformers(tmp_path: Path) -> None:
    """And beyond it they are not, where it is told that mlx-lm drops it."""
    cases = [assembled(tmp_path / str(n), name) for n, name in enumerate(WINDOWED)]
    windows = []
    for name, rows in zip(WINDOWED, computed(cases, repair=True), strict=True):
        expected = json.loads((DATA / name / "reference.json").read_text())
        config = json.loads((DATA / name / "config.json").read_text())
        window = ignored(package(), tmp_path, config).window
        windows.append(window)
        split = zip(PROMPTS, rows, expected, strict=True)
        pairs = [(len(prompt), furthest([row], [wanted])) for prompt, row, wanted in split]
        assert max(far for size, far in pairs if size <= (window or size)) < TOLERANCE, name
        if window:
            assert max(far for size, far in pairs if size > window) > VISIBLE, name
    assert windows == [8, 8, 0, 0, 8]


Tiny = Callable[..., Path]


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    """Write the tiny checkpoint, with changes to its config.json."""

    def written(**changes: Any) -> Path:
        directory = write(tmp_path / "tiny")
        file = directory / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
        return directory

    return written


def load(path: Path, fast_blas: dict[str, str], **options: Any) -> Any:
    return core.load_model(path, backend="mlx_lm", options={"env": fast_blas}, **options)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]


def test_a_window_that_the_context_exceeds_is_logged(
    tiny: Tiny, fast_blas: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    path = tiny(model_type="mistral", sliding_window=5)
    assert MlxLm().refusal(path) is None
    with load(path, fast_blas) as model:
        assert model.info.context_length == 64
    [text] = warnings(caplog)
    assert f"mlx-lm ignores sliding_window=5 of {path}: beyond 5 tokens" in text
    assert "context_len=5" in text


@pytest.mark.parametrize(("window", "options"), [(5, {"context_len": 5}), (64, {})])
def test_a_window_as_long_as_the_context_is_not(
    tiny: Tiny,
    fast_blas: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    window: int,
    options: dict[str, Any],
) -> None:
    with load(tiny(model_type="mistral", sliding_window=window), fast_blas, **options) as model:
        assert model.info.context_length == window
    assert warnings(caplog) == []


def test_other_keys_are_refused_by_name(tiny: Tiny, fast_blas: dict[str, str]) -> None:
    path = tiny(is_causal=False)
    (path / "generation_config.json").write_text(json.dumps({"suppress_tokens": [1]}))
    refusal = str(MlxLm().refusal(path))
    assert "is_causal=false in config.json" in refusal
    assert "suppress_tokens=[1] in generation_config.json" in refusal
    with pytest.raises(core.UnsupportedModelError, match="is_causal=false") as caught:
        load(path, fast_blas)
    assert str(caught.value) == refusal


def test_no_backend_is_chosen_for_a_model_that_each_would_compute_otherwise(tiny: Tiny) -> None:
    with pytest.raises(core.UnsupportedModelError, match="mlx_lm: mlx-lm ignores is_causal=false"):
        core.default_backend(tiny(is_causal=False))


def test_all_of_its_code_can_be_read() -> None:
    names = sorted(file.stem for file in (package() / "models").glob("*.py"))
    assert len(names) > 100
    assert [name for name in names if model_code(package(), name) is None] == []
