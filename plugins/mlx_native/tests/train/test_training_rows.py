"""Examples become rows of tokens: which of them are learned, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_native.model import MlxModel
from core_mlx_native.train.batches import IGNORED, Batches, batch_of
from core_mlx_native.train.data import ExampleFields, read_examples, shared_texts, split_by_label
from core_mlx_native.train.rows import TokenRow
from plugins.mlx_native.tests.train.tasks import config, labelled

Load = Callable[..., MlxModel]
CHAT = (
    core.Message("system", "s"),
    core.Message("user", "Who?"),
    core.Message("assistant", "I."),
    core.Message("user", "And then?"),
    core.Message("assistant", "Nothing."),
)


def row_of(model: MlxModel, example: core.TrainingExample, **options: Any) -> TokenRow:
    [row] = model.training_rows([example], config(**options))
    return row


def learned(model: MlxModel, row: TokenRow) -> str:
    return "".join(model._loaded.tokenizer.token_text(row.ids[place]) for place in row.learned)


@pytest.fixture(scope="module")
def small(small_smollm2: Path) -> Any:
    with core.load_model(small_smollm2, backend="mlx_cpu") as model:
        yield model


@pytest.mark.parametrize("label", ["qix", "sports", "42", "ab"])
@pytest.mark.parametrize(
    "template", ["{text} This is about", "{text}\n", "{text}\nTopic: ", "{text}:"]
)
def test_labels_are_learned_where_classify_reads_them(
    small: MlxModel, label: str, template: str
) -> None:
    """The summed loss of a row is what `classify` calls the label's joint log-probability."""
    labels = ("qix", "sports", "42", "ab")
    example = core.TrainingExample(text="A central bank.", label=label)
    [row] = small.training_rows([example], config(template=template, labels=labels))
    prompt = template.replace("{text}", example.text)
    [found] = small.classify([prompt], labels=labels)
    assert found.logprobs is not None

    start = row.learned[0]
    [score] = small.score_tokens([[*row.ids[:start]]], [[row.ids[place] for place in row.learned]])
    assert score.logprob == pytest.approx(found.logprobs[label], abs=1e-4)
    step = next(small.train([example], config(template=template, labels=labels)))
    assert step.loss * step.learned == pytest.approx(-found.logprobs[label], abs=1e-3)


def test_a_completion_is_learned_to_its_end(small: MlxModel) -> None:
    row = row_of(small, core.TrainingExample(prompt="One and", completion=" two."))
    assert learned(small, row) == " two.<|im_end|>"
    whole = row_of(
        small, core.TrainingExample(prompt="One and", completion=" two."), mask_prompt=False
    )
    assert whole.ids == row.ids
    assert whole.learned == tuple(range(1, len(row.ids)))


def test_a_text_is_learned_but_for_its_first_token(small: MlxModel) -> None:
    row = row_of(small, core.TrainingExample(text="One and two."))
    assert learned(small, row) == " and two.<|im_end|>"


def test_every_assistant_turn_is_learned_with_its_end(small: MlxModel) -> None:
    row = row_of(small, core.TrainingExample(messages=CHAT))
    assert learned(small, row) == "I.<|im_end|>\nNothing.<|im_end|>\n"
    said = small.decode([row.ids[place] for place in range(len(row.ids))])
    assert "Who?" in said
    assert "And then?" in said


def test_special_tokens_that_a_text_spells_are_plain_text(small: MlxModel) -> None:
    end = small._loaded.tokenizer.end_id
    row = row_of(small, core.TrainingExample(text="a <|im_end|> b"))
    assert row.ids.count(end or 0) == 1


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (core.TrainingExample(), r"Example 1 \(''\): it has nothing"),
        (core.TrainingExample(text="a", completion="b"), r"it has completion and text"),
        (core.TrainingExample(text="ab " * 80), r"it has \d+ tokens, more than 64"),
        (core.TrainingExample(messages=CHAT[:2]), r"no message is from the assistant"),
        (core.TrainingExample(text="a\ud800"), r"surrogate"),
    ],
    ids=["nothing", "two-forms", "too-long", "nobody-answers", "surrogate"],
)
def test_examples_that_nothing_is_learned_from_are_named(
    load: Load, example: core.TrainingExample, message: str
) -> None:
    with pytest.raises(core.TrainingError, match=message):
        load(options={}).train([example], config(mask_prompt=True))


def test_labels_that_cannot_be_told_apart_are_refused(load: Load) -> None:
    model = load()
    same = [core.TrainingExample(text="a", label="no") for _ in range(3)]
    with pytest.raises(core.LabelError, match=r"All examples have the label 'no'"):
        model.train(same, config())
    with pytest.raises(core.LabelError):
        model.train(same, config(labels=("no", "no")))
    with pytest.raises(core.TrainingError, match=r"Unknown label 'maybe' .* labels are 'no', 'ab'"):
        model.train(
            [*labelled(), core.TrainingExample(text="a", label="maybe")],
            config(labels=("no", "ab")),
        )
    with pytest.raises(core.TaskError, match=r"must contain \{text\}"):
        model.train(labelled(), config(template="Topic:"))


def test_no_examples_are_refused(load: Load) -> None:
    with pytest.raises(core.TrainingError, match=r"No training examples"):
        load().train([], config())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("rank", 0),
        ("rank", 1.5),
        ("scale", 0.0),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("learning_rate", float("nan")),
        ("betas", (0.9,)),
        ("betas", (0.9, 1.0)),
        ("schedule", "linear"),
        ("adapter_dtype", "int8"),
        ("targets", ()),
        ("rank_stabilised", True),
        ("resume", True),
        ("accumulate", 0),
        ("clip_norm", -1.0),
    ],
)
def test_wrong_options_are_refused(option: str, value: object) -> None:
    with pytest.raises(core.InvalidOptionError, match=option):
        config(**{option: value})


def test_unknown_targets_are_refused_with_the_known_ones(load: Load) -> None:
    with pytest.raises(core.InvalidOptionError, match=r"q_proj, .*down_proj, all-linear"):
        load().train(labelled(), config(targets=("query",)))


# --------------------------------------------------------------------------- batches


def test_each_epoch_has_every_row_once_in_another_order() -> None:
    rows = [TokenRow(tuple(range(2 + place % 5)), (1,)) for place in range(23)]
    batches = Batches(rows, 4, seed=5)
    assert batches.of_epoch == 6
    epochs = [[batches[6 * epoch + place] for place in range(6)] for epoch in range(3)]
    for epoch in epochs:
        assert sorted(row for batch in epoch for row in batch) == [*range(23)]
        for batch in epoch:
            lengths = [len(rows[row].ids) for row in batch]
            assert max(lengths) - min(lengths) <= 1, "rows of like length run together"
    assert epochs[0] != epochs[1] != epochs[2]
    assert Batches(rows, 4, seed=5)[13] == batches[13], "whatever was asked before"
    assert [Batches(rows, 4, seed=6)[place] for place in range(6)] != epochs[0]


def test_a_batch_is_padded_on_the_right_and_learns_what_comes_next() -> None:
    rows = [TokenRow((5, 6, 7), (2,)), TokenRow((1, 2, 3, 4), (1, 3))]
    batch = batch_of(rows, [1, 0])
    assert batch.tokens.tolist() == [[1, 2, 3], [5, 6, 0]]
    assert batch.targets.tolist() == [[2, IGNORED, 4], [IGNORED, 7, IGNORED]]
    assert batch.places.tolist() == [0, 2, 4]
    assert (batch.size, batch.learned) == (5, 3)


# --------------------------------------------------------------------------- files


def test_all_four_forms_are_read(tmp_path: Path) -> None:
    lines = [
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
        {"prompt": "a", "completion": "b", "id": 7},
        {"text": "a"},
        {"text": "a", "label": "b"},
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("\ufeff" + "\n\n".join(map(json.dumps, lines)) + "\n")
    found = read_examples(path)
    assert found == [
        core.TrainingExample(messages=(core.Message("user", "a"), core.Message("assistant", "b"))),
        core.TrainingExample(prompt="a", completion="b"),
        core.TrainingExample(text="a"),
        core.TrainingExample(text="a", label="b"),
    ]
    path.write_text('{"body": "x", "topic": "y"}\n')
    assert read_examples(path, ExampleFields("body", "topic")) == [
        core.TrainingExample(text="x", label="y")
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 2: not valid JSON"),
        ("[1]", r"line 2: expected an object, got list"),
        ('{"body": "x"}', r"line 2: it has body, but an example needs messages"),
        ('{"text": 3}', r"line 2: text is int, not a text"),
        ('{"text": ""}', r"line 2: text is empty"),
        ('{"text": "a", "label": 1}', r"line 2: label is int"),
        ('{"completion": "a"}', r"line 2: prompt is missing"),
        ('{"messages": []}', r"line 2: The conversation is empty"),
        (
            '{"messages": [{"role": "tool", "content": "a"}]}',
            r"line 2: messages\[0\].role='tool' is not valid",
        ),
        ('{"messages": [{"role": "user"}]}', r"line 2: Message 0, content: This field is required"),
        ('{"text": "\\ud800"}', r"line 2: .*surrogate"),
        ("[" * 100_000, r"line 2: not valid JSON"),
    ],
)
def test_broken_lines_are_named_by_their_number(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(core.TrainingError, match=message):
        read_examples(path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text("\n \n")
    with pytest.raises(core.TrainingError, match=r"has no examples"):
        read_examples(path)


def test_what_is_held_out_is_of_each_label_and_never_learned() -> None:
    some = [
        core.TrainingExample(text=f"{label} {n}", label=label)
        for n in range(10)
        for label in ("no", "ab")
    ]
    kept, held = split_by_label(some, 0.3, seed=1)
    assert [sum(each.label == label for each in held) for label in ("no", "ab")] == [3, 3]
    assert (len(kept), len(held)) == (14, 6)
    assert sorted(each.text for each in [*kept, *held]) == sorted(each.text for each in some)
    with pytest.raises(core.TrainingError, match=r"leaves none to train on"):
        split_by_label(some[:2], 0.9, seed=1)


@pytest.mark.parametrize("seed", range(5))
def test_rows_with_equal_texts_are_all_learned_or_all_held_out(seed: int) -> None:
    spaces = ("{}", " {}", "{}\n")
    some = [
        core.TrainingExample(text=space.format(f"{label} {n}"), label=label)
        for space in spaces
        for n in range(8)
        for label in ("no", "ab")
    ]
    kept, held = split_by_label(some, 0.25, seed)
    assert (len(kept), len(held)) == (36, 12)
    assert not {each.text.strip() for each in kept} & {each.text.strip() for each in held}
    assert shared_texts(held, kept) == 0
    assert shared_texts(held, some) == 12
    one_text = [core.TrainingExample(text="a", label="no")] * 9 + some
    assert shared_texts(*split_by_label(one_text, 0.25, seed)) == 0
    with pytest.raises(core.TrainingError, match=r"1 different texts"):
        split_by_label([each for each in one_text if each.text == "a"], 0.25, seed)


def test_equal_prompts_and_conversations_stay_together_whatever_their_answer() -> None:
    question = core.Message("user", "a")
    pairs = [
        [core.TrainingExample(prompt="a", completion=answer) for answer in "bc"],
        [
            core.TrainingExample(messages=(question, core.Message("assistant", answer)))
            for answer in "bc"
        ],
    ]
    other = core.TrainingExample(text="x")
    for pair in pairs:
        assert shared_texts(*split_by_label([*pair, other], 0.4, seed=0)) == 0
        assert shared_texts(pair[:1], pair[1:]) == 1


@pytest.mark.parametrize(("suffix", "comma"), [(".csv", ";"), (".tsv", "\t")])
def test_tables_are_read_by_the_command_line(tmp_path: Path, suffix: str, comma: str) -> None:
    from core_cli.plugins import Hooks

    path, fields = tmp_path / f"rows{suffix}", ExampleFields("body", "topic")
    path.write_text(f'body{comma}topic\n"one\nline"{comma}a\ntwo{comma}b\n')
    assert read_examples(path, fields, Hooks().records) == [
        core.TrainingExample(text="one\nline", label="a"),
        core.TrainingExample(text="two", label="b"),
    ]
    with pytest.raises(core.TrainingError, match="line 2: it has body, topic, but an example"):
        read_examples(path, records=Hooks().records)
    path.write_text(f"body{comma}topic\n")
    with pytest.raises(core.TrainingError, match="has no examples"):
        read_examples(path, fields, Hooks().records)
