"""A BERT encoder as an ONNX graph: token ids and a mask in, the sum of its last states out."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

_OPSET, _IR = 20, 10
Weights = dict[str, Any]


def write(model: Path, file: Path) -> None:
    """Write the graph of a model directory."""
    onnx: Any = importlib.import_module("onnx")
    tensors: Any = importlib.import_module("safetensors.numpy")
    weights = {
        name.removeprefix("bert."): tensor
        for name, tensor in tensors.load_file(str(model / "model.safetensors")).items()
    }
    config = json.loads((model / "config.json").read_bytes())
    onnx.save(_Builder(onnx, weights, config).model(), str(file))


class _Builder:
    """Collects nodes and constants; a node's output goes by its operator and number."""

    def __init__(self, onnx: Any, weights: Weights, config: dict[str, Any]) -> None:
        self._onnx, self._weights, self._config = onnx, weights, config
        self._np: Any = importlib.import_module("numpy")
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def model(self) -> Any:
        """Return the whole model."""
        helper, types = self._onnx.helper, self._onnx.TensorProto
        out = self._summed(self._layers(self._embedded()))
        width = self._config["hidden_size"]
        inputs = [
            helper.make_tensor_value_info("ids", types.INT64, ["rows", "tokens"]),
            helper.make_tensor_value_info("mask", types.FLOAT, ["rows", "tokens"]),
        ]
        outputs = [helper.make_tensor_value_info(out, types.FLOAT, ["rows", width])]
        graph = helper.make_graph(self._nodes, "encoder", inputs, outputs, self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
        model.ir_version = _IR
        return model

    def _embedded(self) -> str:
        prefix = "embeddings."
        words = self._op("Gather", self._weight(f"{prefix}word_embeddings.weight"), "ids")
        length = self._op("Gather", self._op("Shape", "ids"), self._ints(1))
        positions = self._op(
            *("Slice", self._weight(f"{prefix}position_embeddings.weight")),
            *(self._ints(0), length, self._ints(0)),
        )
        kind = self._constant(self._weights[f"{prefix}token_type_embeddings.weight"][0])
        states = self._op("Add", self._op("Add", words, positions), kind)
        return self._normed(states, f"{prefix}LayerNorm")

    def _layers(self, states: str) -> str:
        one, large = self._constant(self._float(1)), self._constant(self._float(1e9))
        visible = self._op("Unsqueeze", "mask", self._ints(1, 2))
        bias = self._op("Mul", self._op("Sub", visible, one), large)
        for layer in range(self._config["num_hidden_layers"]):
            prefix = f"encoder.layer.{layer}."
            context = self._attention(states, bias, f"{prefix}attention.")
            states = self._op("Add", states, context)
            states = self._normed(states, f"{prefix}attention.output.LayerNorm")
            inner = self._op("Gelu", self._linear(states, f"{prefix}intermediate.dense"))
            states = self._op("Add", states, self._linear(inner, f"{prefix}output.dense"))
            states = self._normed(states, f"{prefix}output.LayerNorm")
        return states

    def _attention(self, states: str, bias: str, prefix: str) -> str:
        heads, width = self._config["num_attention_heads"], self._config["hidden_size"]
        size = width // heads
        split, whole = self._ints(0, 0, heads, size), self._ints(0, 0, width)
        turned = {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}
        parts = {
            name: self._op(
                "Transpose",
                self._op("Reshape", self._linear(states, f"{prefix}self.{name}"), split),
                perm=order,
            )
            for name, order in turned.items()
        }
        scale = self._constant(self._float(size**-0.5))
        scores = self._op("Mul", self._op("MatMul", parts["query"], parts["key"]), scale)
        shares = self._op("Softmax", self._op("Add", scores, bias), axis=-1)
        mixed = self._op("Transpose", self._op("MatMul", shares, parts["value"]), perm=[0, 2, 1, 3])
        return self._linear(self._op("Reshape", mixed, whole), f"{prefix}output.dense")

    def _summed(self, states: str) -> str:
        mask = self._op("Unsqueeze", "mask", self._ints(2))
        return self._op("ReduceSum", self._op("Mul", states, mask), self._ints(1), keepdims=0)

    def _linear(self, states: str, name: str) -> str:
        matrix = self._constant(self._weights[f"{name}.weight"].T)
        product = self._op("MatMul", states, matrix)
        return self._op("Add", product, self._weight(f"{name}.bias"))

    def _normed(self, states: str, name: str) -> str:
        scale, bias = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        epsilon = self._config["layer_norm_eps"]
        return self._op("LayerNormalization", states, scale, bias, epsilon=epsilon)

    def _op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        output = f"{kind}_{len(self._nodes)}"
        node = self._onnx.helper.make_node(kind, list(inputs), [output], **attributes)
        self._nodes.append(node)
        return output

    def _weight(self, name: str) -> str:
        return self._constant(self._weights[name])

    def _constant(self, values: Any) -> str:
        name = f"constant_{len(self._constants)}"
        array = self._np.ascontiguousarray(values) if values.ndim else values
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def _ints(self, *values: int) -> str:
        return self._constant(self._np.array(values, self._np.int64))

    def _float(self, value: float) -> Any:
        return self._np.array(value, self._np.float32)
