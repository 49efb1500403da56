"""Write the reference numbers of encoders: transformers in double precision, on tiny random models.

    pip install torch==2.13.0 transformers==5.24.0
    python -m plugins.openvino.tests.encoder.oracle.make_reference

One file per case: config.json as transformers writes it, the names and shapes of the tensors, and
the outputs. The weights themselves are drawn again by the tests, from the case's name (`weights`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
import transformers  # type: ignore[import-not-found, unused-ignore]

from plugins.openvino.tests.encoder.oracle.weights import PAIRS, ROWS, VOCABULARY, drawn

DATA = Path(__file__).parent / "data"
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
OFFSET = {**SMALL, "max_position_embeddings": 66, "pad_token_id": 1, "type_vocab_size": 1}
DISTIL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "dim": 32,
    "hidden_dim": 48,
    "n_layers": 3,
    "n_heads": 4,
    "max_position_embeddings": 64,
}
MODERN: dict[str, Any] = {
    **SMALL,
    "num_hidden_layers": 4,
    "global_attn_every_n_layers": 3,
    "local_attention": 8,
    "bos_token_id": 2,
    "cls_token_id": 2,
    "eos_token_id": 3,
    "sep_token_id": 3,
}
DEBERTA: dict[str, Any] = {
    **SMALL,
    "type_vocab_size": 0,
    "relative_attention": True,
    "max_relative_positions": -1,
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "pooler_hidden_size": 32,
}
NLI = {
    "id2label": {"0": "entailment", "1": "neutral", "2": "contradiction"},
    "label2id": {"entailment": 0, "neutral": 1, "contradiction": 2},
}
SWAPPED = {
    "id2label": {"0": "CONTRADICTION", "1": "NEUTRAL", "2": "ENTAILMENT"},
    "label2id": {"CONTRADICTION": 0, "NEUTRAL": 1, "ENTAILMENT": 2},
}
RERANK = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", SMALL),
    "bert-masked": ("BertForMaskedLM", {**SMALL, "hidden_act": "gelu_new"}),
    "bert-nli": ("BertForSequenceClassification", {**SMALL, **NLI}),
    "bert-rerank": ("BertForSequenceClassification", {**SMALL, **RERANK}),
    "roberta": ("RobertaModel", OFFSET),
    "roberta-nli": ("RobertaForSequenceClassification", {**OFFSET, **SWAPPED}),
    "xlm-roberta": ("XLMRobertaModel", OFFSET),
    "xlm-roberta-rerank": ("XLMRobertaForSequenceClassification", {**OFFSET, **RERANK}),
    "mpnet": ("MPNetModel", OFFSET),
    "distilbert": ("DistilBertModel", DISTIL),
    "distilbert-nli": ("DistilBertForSequenceClassification", {**DISTIL, **NLI}),
    "modernbert": ("ModernBertModel", MODERN),
    "modernbert-masked": ("ModernBertForMaskedLM", {**MODERN, "mlp_bias": True, "norm_bias": True}),
    "modernbert-nli": (
        "ModernBertForSequenceClassification",
        {**MODERN, **NLI, "classifier_pooling": "mean"},
    ),
    "modernbert-rerank": ("ModernBertForSequenceClassification", {**MODERN, **RERANK}),
    "deberta-v2": ("DebertaV2Model", DEBERTA),
    "deberta-v2-nli": ("DebertaV2ForSequenceClassification", {**DEBERTA, **NLI}),
    "deberta-v2-old": (
        "DebertaV2ForSequenceClassification",
        {
            **DEBERTA,
            **NLI,
            "position_buckets": -1,
            "share_att_key": False,
            "norm_rel_ebd": "none",
            "type_vocab_size": 2,
            "conv_kernel_size": 0,
            "position_biased_input": True,
            "embedding_size": 16,
        },
    ),
}


def write(name: str) -> None:
    """Write one case."""
    architecture, options = CASES[name]
    kind = getattr(transformers, architecture)
    model = kind(kind.config_class(**options, attn_implementation="eager"))
    model.config.architectures = [architecture]
    tensors = {key: list(value.shape) for key, value in model.state_dict().items()}
    for tied in getattr(model, "all_tied_weights_keys", {}):  # as save_pretrained leaves them out
        tensors.pop(tied, None)
    values = {key: torch.from_numpy(array) for key, array in drawn(name, tensors).items()}
    _, unexpected = model.load_state_dict(values, strict=False)
    assert not unexpected, unexpected
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    model = model.double().eval()
    record = {"config": json.loads(model.config.to_json_string(use_diff=False)), "tensors": tensors}
    record["config"].pop("attn_implementation", None)
    record["config"]["architectures"] = [architecture]
    with torch.no_grad():
        if "SequenceClassification" in architecture:
            record["logits"] = [_logits(model, first, second) for first, second in PAIRS]
        else:
            inner = model if architecture.endswith("Model") else model.base_model
            rows = [inner(torch.tensor([ids])).last_hidden_state[0] for ids in ROWS]
            record["means"] = [row.mean(0).tolist() for row in rows]
            record["firsts"] = [row[0].tolist() for row in rows]
    (DATA / f"{name}.json").write_text(json.dumps(record, indent=1))


def _logits(model: Any, first: list[int], second: list[int]) -> list[float]:
    inputs = {"input_ids": torch.tensor([first + second])}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = torch.tensor([[0] * len(first) + [1] * len(second)])
    logits: list[float] = model(**inputs).logits[0].tolist()
    return logits


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    for case in CASES:
        write(case)
