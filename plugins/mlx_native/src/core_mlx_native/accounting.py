"""Every tensor accounted for: what is missing, extra, or mis-shaped, in one error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core.errors import InvalidModelError
from core_mlx_native.checkpoint import Header, Shape
from core_mlx_native.config import ModelConfig
from core_mlx_native.layout import expected_tensors
from core_mlx_native.quantization import Packing

_FLOATS = {"F32", "F16", "BF16"}
_SHOWN = 12


def packings(header: Header, config: ModelConfig, directory: Path) -> dict[str, Packing]:
    """How each packed matrix is packed, by its name without ``.weight``.

    Raises `InvalidModelError` that lists every tensor which does not fit the config.
    """
    if config.tied_head:  # some exports store the tied head a second time
        header = {name: value for name, value in header.items() if not name.startswith("lm_head.")}
    found: dict[str, Packing] = {}
    problems: list[str] = []
    used: set[str] = set()
    for name, shape in expected_tensors(config).items():
        layer = name.removesuffix(".weight")
        packing = _packing(layer, shape, header, config)
        if packing is not None:
            found[layer] = packing
        parts = _stored(name, shape, packing)
        used.update(parts)
        problems += _problems(name, shape, parts, packing, header)
    problems += [f"{name} is not part of this model" for name in sorted(header.keys() - used)]
    if problems:
        raise InvalidModelError(_message(problems, directory))
    return found


Stored = dict[str, tuple[set[str], Shape]]  # the dtypes that a tensor may have, and its shape


def _packing(layer: str, shape: Shape, header: Header, config: ModelConfig) -> Packing | None:
    if config.quantization is None or len(shape) != 2:
        return None
    kind, _ = header.get(f"{layer}.weight", ("", ()))
    return config.quantization.packing(layer, kind == "U32" or f"{layer}.scales" in header)


def _stored(name: str, shape: Shape, packing: Packing | None) -> Stored:
    """The file's tensors that hold one weight: itself, or its three quantised parts."""
    if packing is None:
        return {name: (_FLOATS, shape)}
    rows, columns = shape
    groups = (rows, columns // packing.group_size)
    layer = name.removesuffix(".weight")
    return {
        name: ({"U32"}, (rows, columns * packing.bits // 32)),
        f"{layer}.scales": (_FLOATS, groups),
        f"{layer}.biases": (_FLOATS, groups),
    }


def _problems(
    name: str, shape: Shape, parts: Stored, packing: Packing | None, header: Header
) -> Iterator[str]:
    unfit = packing.problem(shape[1]) if packing else None
    if unfit:
        yield f"{name}: {unfit}"
        return
    for part, (kinds, wanted) in parts.items():
        kind, got = header.get(part, ("", ()))
        if not kind:
            yield f"{part} is missing"
        elif kind not in kinds:
            yield f"{part} has dtype {kind}, not {' or '.join(sorted(kinds))}"
        elif got != wanted:
            yield f"{part} has shape {list(got)}, not {list(wanted)}"


def _message(problems: list[str], directory: Path) -> str:
    shown = "; ".join(problems[:_SHOWN])
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return f"The tensors in {directory} do not fit its config.json: {shown}{more}."
