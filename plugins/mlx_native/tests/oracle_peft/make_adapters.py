"""Write adapters with PEFT and with this plugin, and what PEFT computes with each (README.md)."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
from oracle.make_reference import make_prompts, rows_as_json  # type: ignore[import-not-found]
from peft import LoraConfig, PeftModel, get_peft_model  # type: ignore[import-not-found]
from transformers import AutoModelForCausalLM  # type: ignore[import-not-found, unused-ignore]

HERE = Path(__file__).resolve().parent
CHECKPOINTS = HERE.parent / "oracle" / "data"
DATA = HERE / "data"
BY_PEFT: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "plain": (
        "llama-2-kv-heads-biased/default",
        {"r": 2, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]},
    ),
    "patterns": (
        "gemma3-4-kv-heads/linear",
        {
            "r": 4,
            "lora_alpha": 4,
            "use_rslora": True,
            "target_modules": "all-linear",
            "rank_pattern": {"layers.0.self_attn.q_proj": 1},
            "alpha_pattern": {"down_proj": 2, "layers.1.mlp.up_proj": 1},
        },
    ),
    "dora": (
        "qwen2-1-kv-head-tied/default",
        {
            "r": 3,
            "lora_alpha": 6,
            "use_dora": True,
            "target_modules": ["q_proj", "k_proj", "o_proj", "gate_proj", "down_proj"],
            "layers_to_transform": [1],
        },
    ),
}
BY_US = {"ours": "llama-2-kv-heads-biased/default", "ours-dora": "qwen2-1-kv-head-tied/default"}
SIZE = 0.3  # of A and B: the logits move by more than a tenth


def assembled(name: str, directory: Path) -> Path:
    """The model directory of a checkpoint's variant."""
    checkpoint, variant = name.split("/")
    shutil.copytree(CHECKPOINTS / checkpoint / "weights", directory)
    shutil.copy(CHECKPOINTS / checkpoint / variant / "config.json", directory)
    return directory


def load(directory: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    )


def logits(model: Any) -> list[list[float]]:
    with torch.no_grad():
        return [model(torch.tensor([ids])).logits[0, -1].tolist() for ids in make_prompts()]


def write_reference(case: str, checkpoint: str, rows: list[list[float]]) -> None:
    text = rows_as_json(rows).rstrip()
    (DATA / case / "reference.json").write_text(
        f'{{"checkpoint": {json.dumps(checkpoint)}, "logits":\n{text}}}\n'
    )


def by_peft(case: str, checkpoint: str, options: Mapping[str, Any], directory: Path) -> None:
    torch.manual_seed(len(case))
    model = get_peft_model(load(directory), LoraConfig(task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_A" in name or "lora_B" in name:
                weight.copy_(SIZE * torch.randn_like(weight))
            if "lora_magnitude_vector" in name:
                weight.mul_(1 + SIZE * torch.rand_like(weight))
    model.save_pretrained(DATA / case)
    (DATA / case / "README.md").unlink(missing_ok=True)
    config = DATA / case / "adapter_config.json"
    said = json.loads(config.read_text())
    said["base_model_name_or_path"] = None  # a path of the machine that wrote it
    config.write_text(json.dumps(said, indent=2, sort_keys=True) + "\n")
    write_reference(case, checkpoint, logits(model.eval()))


def by_us(case: str, checkpoint: str, directory: Path) -> None:
    import mlx.core as mx

    from core_mlx_native.adapters.apply import layer_names
    from core_mlx_native.adapters.files import write_adapter
    from core_mlx_native.adapters.layers import LowRank
    from core_runtime.checkpoint.config import load_config
    from core_runtime.checkpoint.tensors import expected_tensors

    config = load_config(directory)
    shapes, layers = expected_tensors(config), {}
    for number, name in enumerate(layer_names(config.num_layers, ["q_proj", "o_proj", "up_proj"])):
        keys = mx.random.split(mx.random.key(number), 3)
        (out, inner), rank = shapes[f"{name}.weight"], 1 + number % 3
        lengths = mx.random.uniform(1, 3, (out,), key=keys[2]) if case == "ours-dora" else None
        layers[name] = LowRank(
            SIZE * mx.random.normal((inner, rank), key=keys[0]),
            SIZE * mx.random.normal((rank, out), key=keys[1]),
            1.0 + number % 2,
            lengths,
        )
    write_adapter(DATA / case, layers, config, "peft")
    write_reference(
        case, checkpoint, logits(PeftModel.from_pretrained(load(directory), DATA / case))
    )


def main() -> None:
    """Write everything anew."""
    shutil.rmtree(DATA, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        for case, (checkpoint, options) in BY_PEFT.items():
            by_peft(case, checkpoint, options, assembled(checkpoint, Path(name) / case))
        for case, checkpoint in BY_US.items():
            by_us(case, checkpoint, assembled(checkpoint, Path(name) / case))


if __name__ == "__main__":
    main()
