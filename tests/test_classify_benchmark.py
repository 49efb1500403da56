"""benchmarks/classify.py and classify_gpu.py: their workloads, their figures, and a small run."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

import core
from benchmarks import classify, classify_gpu
from benchmarks.classify_parts import contestants, measuring, report, worker
from benchmarks.classify_parts import quantised as quantising
from benchmarks.classify_parts.chart import chart
from benchmarks.classify_parts.checkpoint import GEMMA_3_1B
from benchmarks.classify_parts.comparison import TITLES, Comparison
from benchmarks.classify_parts.contestants import (
    EACH_OFF,
    NAMES,
    OURS,
    Files,
    Pythons,
    specs,
    variant,
)
from benchmarks.classify_parts.runner import Answer, Spec
from benchmarks.classify_parts.turns import Run, Turns
from benchmarks.classify_parts.workloads import (
    FEW_SHOT,
    INSTRUCTION,
    LABELS,
    ROOT,
    WORKLOADS,
    prompts,
    sentence,
)
from benchmarks.line_process import python_path
from core_runtime.batches import shared_prefixes

TINY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 7,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "sliding_window": 16,
}
SVG = "{http://www.w3.org/2000/svg}"
LLAMA = ("core llama_cpp", "llama_cpp loop")
PEERS = {"mlx_lm default": "mlx_lm", "mlx_lm best": "mlx_lm", "llama_cpp loop": "llama_cpp"}


def run(label: str, **changes: Any) -> Run:
    """What a worker reports of one prompt."""
    made = {"seconds": 2.0, "peak_bytes": 5, "device_bytes": None, "margins": None}
    return {**made, "labels": [label], "prompt_tokens": 70, "computed_tokens": 30, **changes}


def result(contestant: str, speed: float, workload: str = "a", **changes: Any) -> measuring.Result:
    figures = measuring.summary([run("sports")], run("sports"), 1, None)
    figures |= {"prompts_per_second": speed, **changes}
    return measuring.Result("m", workload, contestant, "", **figures)


def benchmark(
    script: str, *arguments: str | Path, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a benchmark to its end, with one thread."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, gemma3_dir: Path) -> Path:
    """A random checkpoint as classify_gpu.py makes it, much smaller."""
    out = tmp_path_factory.mktemp("models") / "tiny"
    module = "benchmarks.classify_parts.checkpoint"
    command = [
        sys.executable,
        "-m",
        module,
        str(out),
        str(gemma3_dir),
        "--config",
        json.dumps(TINY),
    ]
    subprocess.run(command, check=True, cwd=ROOT)
    return out


# Workloads


@given(st.integers(0, 10_000), st.integers(1, 400))
def test_a_sentence_has_as_many_words_as_asked_for(index: int, words: int) -> None:
    made = sentence(index, words)
    assert len(made.split()) == words
    assert made[0] == made[0].upper()
    assert made.endswith(".")


def test_thousands_of_prompts_are_all_different_and_few_begin_alike() -> None:
    made = prompts("c", 4096)
    assert len(set(made)) == 4096
    assert len({" ".join(prompt.split()[:4]) for prompt in made[:256]}) > 200
    numbers: dict[str, int] = {}
    words = [[numbers.setdefault(word, len(numbers)) for word in text.split()] for text in made]
    found = shared_prefixes(words, [len(row) - 4 for row in words])  # but for the question
    assert max(group.prefix for group in found) <= 3


def test_repeated_texts_are_a_quarter_of_the_prompts_and_come_back_later() -> None:
    made = prompts("e", 256)
    assert len(set(made)) == len(made) // 4
    assert all(made.count(prompt) == 4 for prompt in made)
    assert all(one != other for one, other in pairwise(made))


@pytest.mark.parametrize(
    ("workload", "shortest", "median", "longest"),
    [("a", 60, 70, 80), ("b", 165, 178, 190), ("c", 25, 29, 36), ("d", 5, 27, 420)],
)
def test_lengths_in_tokens(
    smollm2_dir: Path, workload: str, shortest: int, median: int, longest: int
) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    lengths = sorted(len(tokenizer.encode(text).ids) for text in prompts(workload, 256))
    assert shortest <= lengths[0]
    assert abs(lengths[128] - median) <= 8
    assert lengths[-1] <= longest
    assert workload != "d" or lengths[-1] > 350


def test_templates_have_the_announced_lengths(smollm2_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    assert abs(len(tokenizer.encode(INSTRUCTION).ids) - 40) <= 5
    assert abs(len(tokenizer.encode(FEW_SHOT).ids) - 150) <= 10


# Figures


def test_layer_parameters_of_gemma_3_1b() -> None:
    assert measuring.layer_parameters(GEMMA_3_1B) == 697_761_792  # 26 layers of 26.84 million


def test_layer_parameters_without_the_optional_keys() -> None:
    config = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 3}
    assert measuring.layer_parameters({**config, "intermediate_size": 10}) == 3 * (
        4 * 8 * 8 + 3 * 8 * 10
    )


def test_a_summary_takes_medians_and_counts_tokens_with_and_without_reuse() -> None:
    runs = [run("sports", seconds=seconds, peak_bytes=int(seconds)) for seconds in (1.0, 4.0, 2.0)]
    figures = measuring.summary(runs, runs[0], parameters=100, flops_per_second=30_000.0)
    assert figures["seconds"] == 2.0
    assert figures["prompts_per_second"] == 0.5
    assert figures["tokens_per_second"] == 35.0
    assert figures["computed_tokens_per_second"] == 15.0
    assert figures["share"] == pytest.approx(2 * 100 * 15 / 30_000)
    assert figures["peak_bytes"] == 4


def test_a_gpus_memory_is_the_peak_where_it_is_known() -> None:
    figures = measuring.summary([run("sports", device_bytes=7)], run("sports"), 1, None)
    assert figures["peak_bytes"] == 7
    assert figures["share"] is None


@pytest.mark.parametrize(
    ("labels", "margins", "expected"),
    [
        (["sports", "science"], [0.5, 0.5], (2, 2)),
        (["sports", "finance"], [0.5, 0.5], (1, 2)),
        (["sports", "finance"], [0.5, 0.01], (1, 1)),
        (["sports", "finance"], None, (1, 2)),
    ],
)
def test_labels_are_compared_where_the_reference_is_sure(
    labels: list[str], margins: list[float] | None, expected: tuple[int, int]
) -> None:
    reference = run("", labels=["sports", "science"], margins=margins)
    once_right = run("", labels=["sports", "science"])
    assert measuring.agreement([once_right, run("", labels=labels)], reference) == expected


def test_the_readmes_table_has_a_ratio_for_each_peer() -> None:
    rows = [
        result(OURS, 30.0, share=0.5), result("mlx_lm default", 8.0), result(OURS, 6.0, "c")
    ]  # fmt: skip
    table = report.markdown(rows, OURS, ["mlx_lm default", "transformers"])
    assert table.splitlines()[2:] == [
        "| m | (a) | 1 | 30.0 | 3.75 | - | 50% |",
        "| m | (c) | 1 | 6.0 | - | - | - |",
    ]


def test_the_table_of_decoding_has_a_line_for_each_contestant() -> None:
    def speed(value: float) -> dict[str, float]:
        return {"tokens_per_second": value, "peak_memory_bytes": 1}

    written = {
        "model": "m", "stream": {"core": speed(20.0), "mlx_lm": speed(10.0), "ratio": 2.0},
        "batch": {"core": speed(60.0), "mlx_lm": speed(80.0), "ratio": 0.75},
    }  # fmt: skip
    assert report.decode_markdown(written).splitlines() == [
        "|  | one stream, tokens/s | core is | 8 prompts, tokens/s | core is |",
        "| --- | --- | --- | --- | --- |",
        "| core | 20.0 | 1.00 | 60.0 | 1.00 |",
        "| mlx_lm | 10.0 | 2.00 | 80.0 | 0.75 |",
    ]


def test_the_table_of_decoding_may_have_cpu_times() -> None:
    written = {
        "batch": {"core": {"cpu_ms_per_token": 6.0}, "peer": {"cpu_ms_per_token": 4.0}, "ratio": 2},
    }  # fmt: skip
    assert report.decode_cpu_markdown(written).splitlines()[2:] == [
        "| core | 6.0 ms, 1.00 x |",
        "| peer | 4.0 ms, 1.50 x |",
    ]


def test_marks_are_missed_in_words() -> None:
    ours = result(OURS, 3.0, peak_bytes=20)
    theirs = [result("mlx_lm default", 1.0, peak_bytes=10), result("mlx_lm best", 1.0)]
    missed = classify.missed([ours, *theirs])
    assert missed == [
        "m (a): 3.00 times mlx_lm default; at least 3.50 wanted, 5.00 aimed at",
        "m (a): 2.00 times the memory of mlx_lm default",
    ]


def test_a_gpu_s_mark_that_was_not_measured_is_missed() -> None:
    ours = [result(classify_gpu.OURS, 4_000.0, workload="c")]
    comparison = Comparison(8, 1, {}, results=ours)
    assert classify_gpu.missed(comparison, ["a", "b", "c"]) == [
        "(a): not measured",
        "(b): not measured",
        "(c): 4,000 sentences/s, 5,000 wanted on an H200",
    ]
    assert not classify_gpu.missed(Comparison(8, 1, {}, results=ours), [])


def test_a_process_of_ours_imports_what_this_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert python_path() == {"PYTHONPATH": f"{ROOT}{os.pathsep}/elsewhere"}
    monkeypatch.delenv("PYTHONPATH")
    assert python_path() == {"PYTHONPATH": str(ROOT)}


def test_other_labels_are_a_missed_mark_but_not_those_of_rounded_weights() -> None:
    rows = [result(name, 1.0, agreeing=0) for name in ("transformers", "llama_cpp loop")]
    assert classify.missed(rows) == ["m (a): transformers gives 1 other labels of 1"]


class Counting:
    """A runner that notes how many prompts each call has."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def about(self) -> str:
        return ""

    def warm_up(self, prompts: Sequence[str]) -> None: ...

    def run(self, prompts: Sequence[str]) -> Answer:
        self.calls.append(len(prompts))
        return Answer(list(prompts), 3 * len(prompts), len(prompts), [0.5] * len(prompts))


@pytest.mark.parametrize(("call", "sizes"), [(5, [5]), (2, [2, 2, 1]), (1, [1] * 5)])
def test_the_calls_of_a_run_are_answered_as_if_they_were_one(call: int, sizes: list[int]) -> None:
    runner = Counting()
    found = worker.measure(runner, list("abcde"), call)
    assert runner.calls == sizes
    assert (found["labels"], found["prompt_tokens"], found["computed_tokens"]) == (
        [*"abcde"],
        15,
        5,
    )
    assert found["margins"] == [0.5] * 5


# Contestants


def test_contestants_that_need_a_gguf_file_say_so() -> None:
    files = Files("m", "/models/m", None)
    made, lacking = specs(files, NAMES, {"small": {"token_budget": 64}}, Pythons(), threads=3)
    ours = [spec.name for spec in made if spec.library == "core"]
    dtypes = ("float32", "bfloat16", "int8")
    openvino = [f"core openvino {dtype}" for dtype in dtypes]
    assert ours == [OURS, f"{OURS}, labels only", *openvino, f"{OURS}, small"]
    own = next(spec.options for spec in made if spec.name == "core openvino int8")
    assert own["load"] == {"n_threads": 3, "dtype": "int8"}
    assert made[-1].options == {"backend": "mlx_cpu", "load": {"token_budget": 64}}
    kinds = ("", " Q8_0", " Q4_0")
    llama = {f"{name}{kind}" for name in LLAMA for kind in kinds}
    assert set(lacking) == {*llama, "core llama_cpp BF16"}
    assert "--gguf" in lacking["llama_cpp loop"]


def test_each_peer_runs_in_its_interpreter_on_its_format(monkeypatch: pytest.MonkeyPatch) -> None:
    def made_of(source: Path, kind: str) -> Path:
        if kind == "Q4_0":
            raise OSError("the disk is full")
        return source.with_suffix(f".{kind}.gguf")

    monkeypatch.setattr(contestants, "quantised", made_of)
    files = Files("m", "/models/m", "/models/m.gguf")
    made, lacking = specs(files, NAMES, {}, Pythons(transformers="/torch/python"), threads=3)
    by_name = {spec.name: spec for spec in made}
    assert lacking == {f"{name} Q4_0": "the disk is full" for name in LLAMA}
    assert by_name["core llama_cpp Q8_0"].model == "/models/m.Q8_0.gguf"
    assert by_name["transformers"].python == "/torch/python"
    assert by_name["llama_cpp loop"].model == "/models/m.gguf"
    assert by_name["llama_cpp loop"].python == sys.executable
    assert by_name["llama_cpp loop"].options["threads"] == 3
    assert by_name["core llama_cpp"].options["load"] == {"n_threads": 3}


def test_the_same_model_is_quantised_in_other_ways_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Params(ctypes.Structure):
        _fields_ = (("ftype", ctypes.c_int), ("allow_requantize", ctypes.c_bool))

    made: list[str] = []
    status = 0

    def make(source: bytes, target: bytes, params: object) -> int:
        made.append(source.decode())
        Path(target.decode()).touch()
        return status

    library = SimpleNamespace(
        LLAMA_FTYPE_MOSTLY_Q8_0=7,
        LLAMA_FTYPE_MOSTLY_Q4_0=2,
        llama_model_quantize_default_params=Params,
        llama_model_quantize=make,
    )
    monkeypatch.setitem(sys.modules, "llama_cpp", library)
    monkeypatch.setattr(quantising, "cache_root", lambda: tmp_path / "cache")
    source = tmp_path / "m.Q4_1.gguf"
    source.touch()
    target = tmp_path / "cache" / "gguf" / "m.Q4_1.Q8_0.gguf"
    assert [quantising.quantised(source, "Q8_0") for _ in range(2)] == [target, target]
    assert target.is_file()
    assert made == [str(source)]
    status = 1
    with pytest.raises(OSError, match="cannot make a file of Q4_0"):
        quantising.quantised(source, "Q4_0")


@pytest.mark.parametrize("text", ["name", "name=", "=1", "name=[1]", 'name={"a"}'])
def test_a_variant_that_is_no_json_object_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        classify.parse_arguments(["--variants", text])
    assert "is not NAME=" in capsys.readouterr().err


def test_a_variant_names_its_options() -> None:
    assert variant('small={"token_budget": 64}') == ("small", {"token_budget": 64})


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (Spec("gone", "matmul", "", "/no/such/python"), "/no/such/python cannot be started"),
        (Spec("dies", "matmul", "", sys.executable, {"size": -1}), "ended with status 1"),
        (
            Spec("lacks", "core", "/no/such/model", sys.executable, {"backend": "mlx_cpu"}),
            "/no/such/model",
        ),
    ],
)
def test_who_cannot_run_is_skipped_with_the_reason(spec: Spec, why: str) -> None:
    said: list[str] = []
    turns = Turns([spec], {}, said.append)
    assert turns.take(["x"], runs=2) == {}
    assert why in turns.skipped[spec.name]
    assert said == [f"  skipped: {spec.name}: {turns.skipped[spec.name]}"]


# Whole runs


@pytest.mark.parametrize("off", [(), tuple(EACH_OFF)], ids=["all", "each off"])
@pytest.mark.slow
def test_a_quick_run_with_a_random_checkpoint(
    tiny_model: Path, tmp_path: Path, off: tuple[str, ...]
) -> None:
    table, drawing = tmp_path / "out.json", tmp_path / "out.svg"
    done = benchmark(
        "classify.py", "--quick", "--model", tiny_model, "--json", table, "--chart", drawing,
        "--contestants", OURS, "transformers", "--transformers-python", "/no/such/python",
        "--variants", 'small={"token_budget": 64}', "--threads", "1", "--workloads", "a",
        *(["--each-off"] if off else []),
    )  # fmt: skip
    written = json.loads(table.read_text())
    names = [OURS, *(f"{OURS}, {name}" for name in (*off, "small"))]
    rows = [(row["workload"], row["contestant"]) for row in written["results"]]
    assert rows == [("a", name) for name in names]
    assert all(row["agreeing"] == row["compared"] for row in written["results"])
    assert all(0 < row["share"] < 1 for row in written["results"])
    assert all(row["peak_bytes"] > 2**24 for row in written["results"])
    assert "cannot be started" in written["skipped"]["tiny: transformers"]
    assert f"{OURS}, small" in done.stdout
    assert written["machine"]["processor"] in done.stdout.replace("\n", " ")
    _check_chart(drawing, names, written["machine"]["processor"])


def test_quick_is_a_default_that_other_options_change() -> None:
    arguments = classify.parse_arguments(["--workloads", "d", "--quick"])
    assert (arguments.workloads, arguments.prompts, arguments.runs) == (["d"], 4, 1)


def test_a_chart_scales_each_panel_to_its_longest_bar() -> None:
    rows = [result("x<y", 5.0), result(OURS, 20.0), result(OURS, 3.0, workload="c")]
    drawing = ElementTree.fromstring(chart(rows, TITLES, "a machine"))
    bars = [float(bar.attrib["width"]) for bar in drawing.iter(f"{SVG}rect")][1:]
    assert bars == pytest.approx([bars[1] / 4, bars[1], bars[1]], abs=0.1)
    words = [text.text for text in drawing.iter(f"{SVG}text")]
    assert words[1:5] == ["x<y", "5.0", OURS, "20.0"]
    assert words[-1] == "prompts per second, more is better. a machine"


def _check_chart(path: Path, names: Sequence[str], processor: str) -> None:
    drawing = ElementTree.parse(path).getroot()
    words = [text.text or "" for text in drawing.iter(f"{SVG}text")]
    assert [word for word in words if word in names] == names
    bars = [float(bar.attrib["width"]) for bar in drawing.iter(f"{SVG}rect")][1:]
    assert len(bars) == len(names)
    assert min(bars) > 0
    assert processor in words[-1]


@pytest.mark.slow
def test_installed_peers_give_the_same_labels(
    smollm2_dir: Path, smollm2_gguf: Path, tmp_path: Path, stock_llama_cpp: bool
) -> None:
    installed = [name for name, module in PEERS.items() if find_spec(module)]
    if not stock_llama_cpp:
        installed = [name for name in installed if PEERS[name] != "llama_cpp"]
    if not installed:
        pytest.skip(f"none of {', '.join(sorted(set(PEERS.values())))} is installed")
    benchmark(
        "classify.py", "--quick", "--model", smollm2_dir, "--gguf", smollm2_gguf,
        "--workloads", "a", "--contestants", OURS, *installed, "--threads", "1",
        "--json", tmp_path / "out.json",
    )  # fmt: skip
    written = json.loads((tmp_path / "out.json").read_text())
    rows = {row["contestant"]: row for row in written["results"]}
    assert set(rows) == {OURS, *installed}, written["skipped"]
    assert len({row["prompt_tokens"] for row in rows.values()}) == 1
    for row in (rows["llama_cpp loop"],) if "llama_cpp loop" in rows else ():
        assert row["computed_tokens"] < row["prompt_tokens"]
    assert all(row["agreeing"] == row["compared"] >= 3 for row in rows.values())


def test_the_gpu_benchmark_refuses_where_there_is_no_cuda(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = core.BackendStatus("mlx_cuda", "d", "1", False, "no CUDA device answers.")
    monkeypatch.setattr(core, "backend_status", lambda name: status)
    assert classify_gpu.main([]) == 2
    assert "mlx_cuda cannot run here: no CUDA device answers." in capsys.readouterr().err


def test_the_gpu_benchmarks_contestants() -> None:
    given = ["--transformers-python", "/torch/python", "--variants", 'x={"token_budget": 1}']
    made = {
        spec.name: spec for spec in classify_gpu.specs("/m", classify_gpu.parse_arguments(given))
    }
    assert list(made) == ["matmul", "core mlx_cuda", "core mlx_cuda, x", "transformers"]
    assert made["core mlx_cuda, x"].options["load"] == {"token_budget": 1}
    assert made["transformers"].python == "/torch/python"
    assert made["transformers"].options["dtype"] == "bfloat16"


def test_the_random_checkpoint_has_the_shape_of_its_config(tiny_model: Path) -> None:
    config = json.loads((tiny_model / "config.json").read_text())
    assert config["layer_types"] == ["sliding_attention"] * 5 + ["full_attention"] + [
        "sliding_attention"
    ]
    with core.load_model(tiny_model, backend="mlx_cpu") as model:
        assert (model.info.num_layers, model.info.hidden_size) == (7, 32)
        results = model.classify(prompts("c", 3), labels=LABELS)
    assert all(result.error is None for result in results)
    assert len({tuple((result.probabilities or {}).values()) for result in results}) == 3


def test_every_workload_has_a_mark() -> None:
    assert set(classify.MARKS) == set(WORKLOADS)
