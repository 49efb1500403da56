"""Tokens that a post-processor puts after a text are left out: a prompt is to be continued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers
from tokenizers.processors import (
    BertProcessing,
    ByteLevel,
    PostProcessor,
    RobertaProcessing,
    Sequence,
    TemplateProcessing,
)

import core
from core_mlx_native.model import MlxModel
from core_runtime.tokenizer.library import prompt_reader
from runtime.tests.published.publications import PUBLICATIONS, Publication
from runtime.tests.published.shapes import Json
from runtime.tests.published.writing import write

BOS, EOS = ("<s>", 256), ("</s>", 257)


def template(*single: str) -> TemplateProcessing:
    return TemplateProcessing(single=list(single), special_tokens=[BOS, EOS])


PROCESSORS: dict[str, tuple[PostProcessor | None, list[int]]] = {
    "none": (None, []),
    "bytes": (ByteLevel(trim_offsets=False), []),
    "first": (template("<s>", "$A"), [256]),
    "last": (template("$A", "</s>"), []),
    "both": (template("<s>", "$A", "</s>"), [256]),
    "several": (template("</s>", "<s>", "$A", "</s>", "</s>"), [257, 256]),
    "in a sequence": (Sequence([ByteLevel(), template("<s>", "$A", "</s>")]), [256]),
    "twice": (Sequence([template("<s>", "$A"), template("</s>", "$A", "</s>")]), [257, 256]),
    "bert": (BertProcessing(EOS, BOS), [256]),
    "roberta": (RobertaProcessing(EOS, BOS), [256]),
}


def bytes_with(processor: PostProcessor | None) -> Library:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = Library(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.add_special_tokens([BOS[0], EOS[0]])
    if processor is not None:
        library.post_processor = processor
    return library


@pytest.mark.parametrize("name", PROCESSORS)
def test_what_leads_stays_and_what_follows_goes(name: str) -> None:
    processor, lead = PROCESSORS[name]
    library = bytes_with(processor)
    plain = library.encode("ab", add_special_tokens=False).ids
    reader = prompt_reader(library)
    assert reader.encode("ab").ids == lead + plain
    assert reader.encode("").ids == lead


def test_a_token_of_several_ids_keeps_them() -> None:
    library = bytes_with(template("<s>", "$A", "</s>"))
    content: Json = json.loads(library.to_str())
    content["post_processor"]["special_tokens"]["<s>"] |= {
        "ids": [256, 257],
        "tokens": ["<s>", "</s>"],
    }
    assert prompt_reader(Library.from_str(json.dumps(content))).encode("").ids == [256, 257]


def ending(directory: Path, publication: Publication) -> Path:
    """The directory, where the post-processor puts the EOS after a text, as add_eos_token does."""
    end = publication.tokenizer_config["eos_token"]
    name = end["content"] if isinstance(end, dict) else end
    file = directory / "tokenizer.json"
    content: Json = json.loads(file.read_text())
    index = next(token["id"] for token in content["added_tokens"] if token["content"] == name)
    known = {name: {"id": name, "ids": [index], "tokens": [name]}}
    own = content["post_processor"] or {"type": "Sequence", "processors": []}
    steps = own.get("processors", [own])
    lead = [step for step in steps if step["type"] == "TemplateProcessing"]
    text = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": name, "type_id": 0}}]
    before = lead[0]["single"][:-1] if lead else []
    special = {**(lead[0]["special_tokens"] if lead else {}), **known}
    added = {
        "type": "TemplateProcessing",
        "single": [*before, *text],
        "pair": [*text, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": special,
    }
    content["post_processor"] = {
        "type": "Sequence",
        "processors": [step for step in steps if step not in lead] + [added],
    }
    file.write_text(json.dumps(content))
    assert Library.from_file(str(file)).encode("the").ids[-1] == index
    return directory


def everything(model: MlxModel) -> list[Any]:
    """Run each operation."""
    prompts = ["The team won. This news is about", "a", "The stocks fell"]
    labels = ["science", "sports", "it is"]
    examples = [
        core.TrainingExample(text="the news"),
        core.TrainingExample(prompt="the", completion=" news"),
        core.TrainingExample(text="the", label="sports"),
    ]
    return [
        [model.encode(text) for text in (*prompts, "")],
        model.classify(prompts, labels=labels, return_logits=True),
        model.classify(prompts[:1], labels=labels, labels_only=True),
        model.batch_generate(prompts, max_tokens=4),
        model.score(prompts, [" news", " it is", " the"]),
        [result.vectors for result in model.hidden_states(prompts)],
        model.inspect_attention(prompts[0]).seq_len,
        model.training_rows(examples[:2], core.TrainConfig()),
        model.training_rows(examples[2:], core.TrainConfig(labels=("sports", "science"))),
    ]


@pytest.mark.parametrize("publication", PUBLICATIONS, ids=lambda publication: publication.name)
def test_an_end_after_the_text_changes_nothing(publication: Publication, tmp_path: Path) -> None:
    results = []
    for name in ("published", "ending"):
        (tmp_path / name).mkdir()
        directory = write(publication, tmp_path / name)
        if name == "ending":
            ending(directory, publication)
        with core.load_model(directory, backend="mlx_cpu") as model:
            assert isinstance(model, MlxModel)
            results.append(everything(model))
    assert results[0] == results[1]


def test_an_end_that_is_wanted_is_written_as_such(tmp_path: Path) -> None:
    """A model of embeddings reads its states there."""
    [qwen] = [one for one in PUBLICATIONS if one.name == "qwen3-0.6b"]
    directory = ending(write(qwen, tmp_path), qwen)
    with core.load_model(directory, backend="mlx_cpu") as model:
        assert isinstance(model, MlxModel)
        plain = model.encode("the news")
        ended = model.encode(core.RenderedPrompt("the news<|im_end|>"))
        assert ended == [*plain, model.encode(core.RenderedPrompt("<|im_end|>"))[0]]
