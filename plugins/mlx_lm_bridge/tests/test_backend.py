"""Availability, refusals, options, adapters: what is decided before and around a load."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_lm_bridge import availability
from core_mlx_lm_bridge.backend import MlxLm
from core_mlx_lm_bridge.model import BridgeModel

Fake = Callable[..., BridgeModel]


def test_registered() -> None:
    assert isinstance(core.get_backend("mlx_lm"), MlxLm)
    assert isinstance(MlxLm(), core.Backend)


def test_asking_imports_nothing_heavy_and_starts_nothing() -> None:
    code = (
        "import subprocess, sys\n"
        "subprocess.Popen = None\n"
        "from core_mlx_lm_bridge.backend import MlxLm\n"
        "backend = MlxLm()\n"
        "backend.available(); backend.refusal('/nowhere')\n"
        "print([m for m in ('mlx', 'mlx_lm', 'msgspec', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("missing", ["msgspec", "mlx_lm", "mlx"])
def test_not_installed(monkeypatch: pytest.MonkeyPatch, missing: str, fake_dir: Path) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    reason = str(MlxLm().unavailable_reason())
    assert reason.startswith(
        f"{missing} is not installed. Install it with: pip install -r DIST/mlx-lm.txt"
    )
    assert availability.ENVIRONMENT in reason
    with pytest.raises(core.BackendUnavailableError, match="pip install"):
        MlxLm().load_model(fake_dir, core.LoadConfig())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"gpu_layers": 3}, core.UnsupportedOptionError),
        ({"parallel_slots": 2}, core.UnsupportedOptionError),
        ({"context_overflow": "rotate"}, core.UnsupportedOptionError),
        ({"adapter_path": "/no/such/adapter"}, core.ModelNotFoundError),
        ({"options": {"pyhton": "x"}}, core.InvalidOptionError),
        ({"options": {"python": 3}}, core.InvalidOptionError),
        ({"options": {"env": {"A": 1}}}, core.InvalidOptionError),
        ({"options": {"env": "A=1"}}, core.InvalidOptionError),
        ({"options": {"python": ""}}, core.InvalidOptionError),
        ({"options": {"python": Path("/no/\udce9")}}, core.BackendUnavailableError),
        ({"options": {"prefill_step_size": 0}}, core.InvalidOptionError),
        ({"options": {"silence_timeout": 0}}, core.InvalidOptionError),
    ],
)
def test_wrong_load_options(
    monkeypatch: pytest.MonkeyPatch, fake_dir: Path, options: Any, error: type[Exception]
) -> None:
    """All of them before a worker is started."""
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(error):
        core.load_model(fake_dir, backend="mlx_lm", **options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("A=B", "1"),
        ("", "1"),
        ("A\0", "1"),
        ("\ud800", "1"),
        (7, "1"),
        ("TOKEN", "secret\0"),
        ("TOKEN", "secret\ud800"),
        ("TOKEN", None),
    ],
)
def test_a_variable_that_no_environment_can_hold(fake: Fake, name: object, value: object) -> None:
    """The variable is named, and its value, which may be a secret, is not."""
    with pytest.raises(core.InvalidOptionError) as caught:
        fake(env={"GOOD": "1", name: value})
    assert caught.value.option == "env"
    assert repr(name) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_bytes_that_are_no_text_are_a_fine_value(fake: Fake) -> None:
    assert [token.id for token in fake(env={"A": "\udcff"}).generate("count 1")] == [0]


def test_an_environment_that_is_too_long(fake: Fake) -> None:
    with pytest.raises(core.BackendUnavailableError, match="exceeds the system"):
        fake(env={"LONG": "x" * 10_000_000})


def test_a_path_that_is_not_utf8(fake_dir: Path) -> None:
    """MLX could not open it, and JSON could not carry it; a link can."""
    odd = fake_dir.with_name("caf\udce9")
    try:
        fake_dir.rename(odd)
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    with pytest.raises(core.InvalidModelError, match=r"caf\\udce9.*ln -s"):
        MlxLm().load_model(odd, core.LoadConfig())
    fake_dir.symlink_to(odd)
    (odd / "adapters.safetensors").touch()
    with pytest.raises(core.InvalidModelError, match=r"caf\\udce9.*ln -s"):
        MlxLm().load_model(fake_dir, core.LoadConfig(adapter_path=odd))


def test_a_program_without_an_interpreter(fake_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", None)
    with pytest.raises(core.BackendUnavailableError, match="does not know its Python"):
        MlxLm().load_model(fake_dir, core.LoadConfig())


@pytest.mark.parametrize("option", ["return_logits", "labels", "label_prefix"])
def test_keywords_of_other_operations(fake: Fake, option: str) -> None:
    with pytest.raises(TypeError, match=option):
        fake().generate("count 3", **{option: ""})  # type: ignore[arg-type]


def test_refusal(fake_dir: Path, tmp_path: Path) -> None:
    backend = MlxLm()
    assert backend.refusal(fake_dir) is None
    assert "Model not found" in str(backend.refusal(tmp_path / "nothing"))
    assert "is not a GGUF file" in str(backend.refusal(fake_dir / "config.json"))
    for config, reason in (
        ({}, "model_type"),
        ({"model_type": "no-such"}, "no code for the model type 'no-such'"),
        ({"model_type": "llama", "model_file": "own.py"}, "code from the model repository"),
    ):
        (fake_dir / "config.json").write_text(json.dumps(config))
        assert reason in str(backend.refusal(fake_dir))
    (fake_dir / "config.json").write_text(json.dumps({"model_type": "mistral"}))
    assert backend.refusal(fake_dir) is None  # mlx-lm knows it under another name
    (fake_dir / "tokenizer.json").unlink()
    assert "no tokeniser file" in str(backend.refusal(fake_dir))
    (fake_dir / "vocab.json").touch()
    assert backend.refusal(fake_dir) is None
    (fake_dir / "model.safetensors").rename(fake_dir / "weights.safetensors")
    assert "model*.safetensors" in str(backend.refusal(fake_dir))


def test_choices(fake: Fake) -> None:
    choices = {choice.name: choice for choice in fake(prefill_step_size=7).choices()}
    assert choices["python"].value == sys.executable
    assert (choices["prefill_step_size"].value, choices["backend"].value) == ("7", "mlx_lm")
    assert all(choice.reason for choice in choices.values())


MAKE_ADAPTER = """
import json, sys
from pathlib import Path
import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm import load
from mlx_lm.tuner.utils import linear_to_lora_layers
model, _ = load(sys.argv[1])
shape = {"rank": 2, "scale": 20.0, "dropout": 0.0}
linear_to_lora_layers(model, 2, shape)
lora = {k: v for k, v in tree_flatten(model.parameters()) if "lora" in k}
mx.random.seed(0)
lora = {k: mx.random.normal(v.shape) for k, v in lora.items()}
out = Path(sys.argv[2])
mx.save_safetensors(str(out / "adapters.safetensors"), lora)
config = {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": shape}
(out / "adapter_config.json").write_text(json.dumps(config))
"""


@pytest.mark.slow
def test_adapter(smollm2_dir: Path, tmp_path: Path, fast_blas: dict[str, str]) -> None:
    command = [sys.executable, "-c", MAKE_ADAPTER, str(smollm2_dir), str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)

    def says(adapter: Path | None) -> list[int]:
        with core.load_model(
            smollm2_dir, backend="mlx_lm", adapter_path=adapter, options={"env": fast_blas}
        ) as model:
            return [token.id for token in model.generate("The capital of France is", max_tokens=4)]

    assert says(tmp_path) != says(None)
