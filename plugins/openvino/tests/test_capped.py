"""Gemma 2, whose attention scores are capped: logits against transformers', however computed."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from core.options import LoadConfig
from core_openvino.blocks import BlockTables
from core_openvino.capped import WIDTH, Reach, mask_name
from core_openvino.chosen import Choices
from core_openvino.nodes import node_counts
from core_openvino.probe import refusal_of_files
from core_openvino.session import PagedSession
from core_runtime.checkpoint.config import load_config
from plugins.openvino.tests.passes import (
    Logits,
    chunked_logits,
    distance,
    last_logits,
    session_of,
)

DATA = Path(__file__).parents[2] / "mlx_native" / "tests" / "oracle" / "data"
CASES = sorted(DATA.glob("gemma2-*/*/config*.json"))
PROMPTS: list[list[int]] = json.loads((DATA / "prompts.json").read_text())
LONGEST = max(PROMPTS, key=len)  # five windows of its sliding layers, and more than one block
TOLERANCE = 1e-4
# The logits' own spread is 3 to 6. gemma2-4-kv-heads multiplies errors: bfloat16 moves its logits
# by 0.99, int8 weights by 1.36, and by 2.83 with activations rounded too; the others at most 0.19,
# 0.79 and 0.70.
ROUNDED = {"bfloat16": 1.0, "int8": 3.0}
VISIBLE = 1e-2  # what a mistake must at least make

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case.parts[-3:]))
a_case = pytest.mark.parametrize(
    "case", [DATA / "gemma2-2-kv-heads-wide-untied" / "small-caps" / "config.json"], ids=["small"]
)


@pytest.fixture
def directory(case: Path, tmp_path: Path) -> Path:
    shutil.copytree(case.parents[1] / "weights", tmp_path, dirs_exist_ok=True)
    shutil.copy(case, tmp_path / "config.json")
    return tmp_path


def reference(case: Path) -> Logits:
    return np.array(json.loads((case.parent / "reference.json").read_text()), np.float32)


def step(session: PagedSession, ids: list[int], position: int, sequence: int) -> Logits:
    """Return the logits after the last of some tokens that continue a sequence."""
    batch = session.new_batch()
    place = batch.add(ids, position, sequence, 1)
    session.decode(batch)
    return session.logits(place).copy()


@every_case
def test_prompts_alone_and_together(case: Path, directory: Path) -> None:
    with session_of(directory) as session:
        alone = np.concatenate([last_logits(session, [prompt]) for prompt in PROMPTS])
        together = last_logits(session, PROMPTS)
        backwards = last_logits(session, PROMPTS[::-1])[::-1]
    for logits in (alone, together, backwards):
        assert distance(logits, reference(case)) < TOLERANCE


@every_case
@pytest.mark.parametrize("dtype", ROUNDED)
def test_rounded(case: Path, directory: Path, dtype: str) -> None:
    with session_of(directory, dtype) as session:
        together = last_logits(session, PROMPTS)
        last = chunked_logits(session, LONGEST, 7)[-1:]
    assert VISIBLE < distance(together, reference(case)) < ROUNDED[dtype]
    assert distance(last, reference(case)[[PROMPTS.index(LONGEST)]]) < ROUNDED[dtype]


@a_case
@pytest.mark.parametrize("size", [1, 7, WIDTH, 33])
def test_chunks_and_single_tokens(directory: Path, size: int) -> None:
    with session_of(directory) as session:
        whole = chunked_logits(session, LONGEST, len(LONGEST))
        assert distance(chunked_logits(session, LONGEST, size), whole) < TOLERANCE


@a_case
@pytest.mark.parametrize("shared", [3, 20, WIDTH, 35])
def test_copies_of_a_prefix_go_separate_ways(directory: Path, shared: int) -> None:
    branches = [LONGEST[shared:], LONGEST[:4], [5]]
    with session_of(directory) as session:
        expected = last_logits(session, [LONGEST[:shared] + branch for branch in branches])
        step(session, LONGEST[:shared], 0, 0)
        batch = session.new_batch()
        for row in range(1, len(branches) + 1):
            session.copy(0, row)
        places = [batch.add(ids, shared, row, 1) for row, ids in enumerate(branches, 1)]
        session.decode(batch)
        branched = np.stack([session.logits(place) for place in places])
        assert distance(branched, expected) < TOLERANCE

        # The prefix is unchanged, and each branch continues from its own keys.
        again = step(session, branches[0], shared, 0)
        assert distance(again, expected[0]) < TOLERANCE
        on = step(session, [7, 8], shared + len(branches[1]), 2)
        whole = last_logits(session_emptied(session), [LONGEST[:shared] + branches[1] + [7, 8]])
        assert distance(on, whole[0]) < TOLERANCE


def session_emptied(session: PagedSession) -> PagedSession:
    for sequence in range(session.n_seq_max):
        session.drop(sequence)
    return session


@a_case
def test_a_prompt_beside_others_that_decode(directory: Path) -> None:
    with session_of(directory) as session:
        expected = last_logits(session, [LONGEST, LONGEST[:30], LONGEST[:9]])
        step(session, LONGEST[:29], 0, 1)
        step(session, LONGEST[:8], 0, 2)
        batch = session.new_batch()
        parts = [(LONGEST[29:30], 29, 1), (LONGEST, 0, 0), (LONGEST[8:9], 8, 2)]
        places = [batch.add(*part, 1) for part in parts]
        session.decode(batch)
        beside = np.stack([session.logits(places[index]) for index in (1, 0, 2)])
    assert distance(beside, expected) < TOLERANCE


@a_case
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_state_is_restored(directory: Path, dtype: str) -> None:
    with session_of(directory, dtype) as session:
        step(session, LONGEST[:35], 0, 0)
        state = session.state(0)
        expected = step(session, LONGEST[35:], 35, 0)
        session.drop(0)
        assert session.restore(state, 3)
        assert distance(step(session, LONGEST[35:], 35, 3), expected) == 0


@a_case
@pytest.mark.parametrize("change", [{"attention_cap": 1e6}, {"layers": None}])
def test_what_is_tested_would_show(
    case: Path, directory: Path, change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the cap, and with the windows swapped, logits are others."""
    config = load_config(directory)
    change = {"layers": config.layers[::-1]} if "layers" in change else change
    mistaken = dataclasses.replace(config, **change)  # type: ignore[arg-type]
    monkeypatch.setattr("plugins.openvino.tests.passes.load_config", lambda _: mistaken)
    with session_of(directory) as session:
        assert distance(last_logits(session, PROMPTS), reference(case)) > VISIBLE


@a_case
def test_attention_is_one_node_of_the_compiled_graph(directory: Path) -> None:
    with session_of(directory) as session:
        counts = node_counts(session._body.request.get_compiled_model())
    assert counts["Subgraph"] == 2  # layers
    assert not {"MatMul", "Softmax", "PagedAttention"} & counts.keys()


def no_copy(source: int, target: int) -> None:
    """Copy nothing: only places are tested."""


def test_masks_leave_a_window_of_the_own_sequence() -> None:
    tables = BlockTables(8, WIDTH, no_copy)
    tables.reserve(0, 3)
    tables.grow(0, 3)
    tables.share(0, 1)  # one block for two sequences
    for sequence in (0, 1):
        tables.reserve(sequence, 1)
    reach = Reach(tables, [(0, 1), (1, 1)])
    assert len(reach.blocks) == 2  # the second has a copy of its own by now
    masks = reach.masks([0, 2, 0])
    visible = {name: [list(np.flatnonzero(row == 0)) for row in masks[name]] for name in masks}
    own = 2 * WIDTH
    assert visible[mask_name(0)] == [[0, 1, 2, own], [WIDTH, WIDTH + 1, WIDTH + 2, own + 1]]
    assert visible[mask_name(2)] == [[2, own], [WIDTH + 2, own + 1]]


@every_case
def test_it_is_not_refused(directory: Path) -> None:
    assert "cap" not in (refusal_of_files(directory) or "")


@pytest.mark.parametrize(("capped", "size"), [(True, 256), (False, 1024)])
def test_tokens_of_a_pass(capped: bool, size: int) -> None:
    config = LoadConfig()
    choices = Choices.of("openvino", config, rounded=False, flags=frozenset(), capped=capped)
    assert choices.n_batch.value == size
