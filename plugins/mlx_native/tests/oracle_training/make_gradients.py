"""Write the gradients of PEFT's models by their adapters, computed by torch (README.md)."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
from oracle_peft.make_adapters import BY_PEFT, assembled  # type: ignore[import-not-found]
from oracle_peft.make_adapters import DATA as ADAPTERS
from peft import PeftModel  # type: ignore[import-not-found]
from safetensors.torch import save_file  # type: ignore[import-not-found, unused-ignore]
from transformers import AutoModelForCausalLM  # type: ignore[import-not-found, unused-ignore]

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "gradients"
ROWS: list[tuple[list[int], int]] = json.loads((HERE / "rows.json").read_text())
PARTS = {
    "lora_A.default.weight": "lora_a",
    "lora_B.default.weight": "lora_b",
    "lora_magnitude_vector.default.weight": "m",
}


def loss_of(model: Any) -> Any:
    """The loss summed over what is learned: each row's tokens from a place on."""
    total = torch.zeros((), dtype=torch.float64)
    for ids, start in ROWS:
        logits = model(torch.tensor([ids[:-1]])).logits[0].double()
        targets = torch.tensor(ids[1:])
        losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        total = total + losses[start - 1 :].sum()
    return total


def named(parameter: str) -> str | None:
    """Our name of PEFT's parameter."""
    for part, own in PARTS.items():
        if parameter.endswith(part):
            layer = parameter.removeprefix("base_model.model.").removesuffix(f".{part}")
            return f"{layer}.{own}"
    return None


def gradients(case: str, checkpoint: str, directory: Path) -> dict[str, Any]:
    base = AutoModelForCausalLM.from_pretrained(
        assembled(checkpoint, directory), dtype=torch.float64, attn_implementation="eager"
    )
    model = PeftModel.from_pretrained(base, ADAPTERS / case, is_trainable=True).double().eval()
    loss = loss_of(model)
    loss.backward()
    found = {"loss": loss.detach()[None].float()}
    for name, parameter in model.named_parameters():
        own = named(name)
        if own is not None and parameter.grad is not None:
            slope = parameter.grad if own.endswith(".m") else parameter.grad.T
            found[own] = slope.float().contiguous()
    return found


def main() -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    for case, (checkpoint, _) in BY_PEFT.items():
        with tempfile.TemporaryDirectory() as place:
            found = gradients(case, checkpoint, Path(place) / "model")
        save_file(found, str(DATA / f"{case}.safetensors"))


if __name__ == "__main__":
    main()
