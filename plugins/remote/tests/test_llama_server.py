"""llama.cpp's own server: what it once answered, replayed, beside the same weights in process.

`record_llama_server.py` wrote the answers down. With a ``llama-server`` on the PATH, or named by
CORE_LLAMA_SERVER, the slow tests ask a real one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import core
from core.errors import (
    ChatTemplateError,
    CoreError,
    GenerationCancelled,
    LabelError,
    ModelNotFoundError,
    PromptTooLongError,
    RequestError,
    UnsupportedOperationError,
    UnsupportedOptionError,
)
from core.kit.chat import RenderedPrompt
from core.options import GenerateConfig
from core.types import Message
from core_remote.failures import ServerBusyError, ServerError
from core_remote.llama_cpp.events import DrawnToken, Likely, matched
from core_remote.llama_cpp.logprobs import KnownLogprob, known
from core_remote.llama_cpp.streams import TokenWire
from plugins.remote.tests.replay import Answer, Ask, replayed, serving
from plugins.remote.tests.serve_process import server
from plugins.remote.tests.tiny_llama import write_model

Certify = Callable[..., set[str]]

RECORDED = Path(__file__).parent / "data" / "llama_server.json.gz"
URL = "CORE_LLAMA_SERVER_URL"
"""Names a server that has the file of `tiny_llama`, to be asked instead of the replayed one."""

_TOLERANCE = 2e-3  # between one build of llama.cpp and another, of weights in float32
_PROMPTS = ("The sky is", "a b ab", "Zu Köln: 東京 😀")
_LABELS = ("yes", "no", "very yes", "東")
_OFFERED = {
    *("generate", "chat", "batch_generate", "classify", "classify_streaming", "labels"),
    *("logprobs", "seed", "parallel", "tokenizing", "submitting", "scoring", "token_prompts"),
    *("declaring", "explaining", "model_probe"),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the server has loaded."""
    return write_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The server: the one that is named, or what was recorded of one."""
    if URL in os.environ:
        yield os.environ[URL]
        return
    with serving(replayed(RECORDED)) as address:
        yield address


@pytest.fixture(scope="module")
def model(url: str) -> Iterator[Any]:
    """The server's model."""
    with core.load_model(url) as model:
        yield model


@pytest.fixture(scope="module")
def inside(tiny: Path) -> Iterator[Any]:
    """The same weights in this process."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    with core.load_model(tiny, backend="llama_cpp", options={"n_threads": 1}) as model:
        yield model


def test_the_probe_shows_what_the_server_has(model: Any) -> None:
    assert {each.value for each in model.declared()} == _OFFERED
    assert model.info.context_length == 255  # a prompt of 256 tokens is refused there
    assert (model.info.vocab_size, model.info.quant_bits) == (269, 0)
    chosen = {each.name: each.value for each in model.choices()}
    assert (chosen["wire"], chosen["parallel_slots"]) == ("llama.cpp", "2")
    assert isinstance(model, core.Scoring)
    assert not isinstance(model, core.HiddenStates)


def test_what_no_route_carries_is_refused_by_name(model: Any) -> None:
    with pytest.raises(UnsupportedOptionError, match="return_logits"):
        model.classify(["a"], return_logits=True)
    with pytest.raises(UnsupportedOptionError, match="context_len"):
        core.load_model(model._connection.address.base, context_len=64)


def test_another_models_name_is_no_model_of_the_server(url: str) -> None:
    with pytest.raises(ModelNotFoundError, match="other"):
        core.load_model(f"{url}#other")


# ---------------------------------------------------------------------- as in process


@pytest.mark.parametrize("text", [*_PROMPTS, " a", "<s>", "a\n\nb", "x</s>y", "\x00z"])
def test_ids_are_those_of_the_model_in_process(model: Any, inside: Any, text: str) -> None:
    ids = model.encode(text)
    assert ids == inside.encode(text)
    assert model.decode(ids) == inside.decode(ids)


def test_special_tokens_count_where_a_template_wrote_them(model: Any, inside: Any) -> None:
    turns = [Message("assistant", " ok "), Message("user", "Say <|im_end|> and </s>.")]
    rendered = model.render_chat(turns)
    assert (rendered, model.encode(rendered)) == (
        inside.render_chat(turns),
        inside.encode(inside.render_chat(turns)),
    )
    assert rendered.count("<|im_end|>") == 3
    assert model.encode(rendered).count(3) == 2
    with pytest.raises(ChatTemplateError, match="prefill"):
        model.chat([*turns, Message("assistant", "I")]).text()
    by_hand = RenderedPrompt("<|im_start|>user\nab<|im_end|>")
    assert model.encode(by_hand) == inside.encode(by_hand)


def test_options_that_the_server_does_not_show_to_count_are_refused(model: Any) -> None:
    for options in ({"chat_template_kwargs": {"a": 1}}, {"continue_final_message": True}):
        with pytest.raises(UnsupportedOptionError, match=next(iter(options))):
            model.render_chat([Message("user", "Hello")], **options)


def test_names_count_where_the_server_s_prompt_depends_on_them(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def applied(turns: Any) -> str:
        users = (turn["name"] + ": " if turn.get("name") == "ann" else "" for turn in turns)
        return "".join(name + turn["content"] for name, turn in zip(users, turns, strict=True))

    monkeypatch.setattr(model._tokenizer._server, "apply_template", applied)
    ann, bob = Message("user", "Hello", "ann"), Message("user", "Hi", "bob")
    assert model.render_chat([ann]) == "<s>ann: Hello"
    with pytest.raises(ChatTemplateError, match=r"no place for a message's name \('bob'\)"):
        model.render_chat([ann, bob])


@pytest.mark.parametrize("prompt", _PROMPTS)
@pytest.mark.parametrize("penalty", [1.0, 1.7])
def test_greedy_tokens_are_those_of_the_model_in_process(
    model: Any, inside: Any, prompt: str, penalty: float
) -> None:
    options = {"max_tokens": 16, "return_logprobs": True, "repeat_penalty": penalty}
    found, wanted = (_run(each.generate(prompt, **options)) for each in (model, inside))
    assert [token.id for token in found[0]] == [token.id for token in wanted[0]]
    assert "".join(t.text for t in found[0]) == "".join(t.text for t in wanted[0])
    assert found[1] == wanted[1]
    for one, other in zip(found[0], wanted[0], strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=_TOLERANCE)


def test_a_stream_that_tells_not_all_tokens_is_left(model: Any) -> None:
    tokens = list(model.generate(_PROMPTS[0], max_tokens=40))
    pieces = [model._tokenizer.vocabulary.pieces[token.id] for token in tokens]
    parts = [piece for piece in pieces if not _is_text(piece)]
    assert len(tokens) == 40
    assert len(parts) > 5


def test_chats_and_batches_are_those_of_the_model_in_process(model: Any, inside: Any) -> None:
    turns = [Message("user", "Hello")]
    assert model.chat(turns, max_tokens=12).text() == inside.chat(turns, max_tokens=12).text()
    rows, wanted = (each.batch_generate([*_PROMPTS, ""], max_tokens=6) for each in (model, inside))
    assert [row.text for row in rows] == [row.text for row in wanted]
    assert [type(row.error) for row in rows] == [type(row.error) for row in wanted]


def test_stops_are_cores_own(model: Any, inside: Any) -> None:
    tokens = list(inside.generate(_PROMPTS[1], max_tokens=12))
    for options in ({"stop_tokens": (tokens[4].id,)}, {"stop": (tokens[0].text + tokens[1].text,)}):
        found, wanted = (
            _run(each.generate(_PROMPTS[1], max_tokens=12, **options)) for each in (model, inside)
        )
        assert found == wanted


def test_a_stop_string_may_be_a_special_token(model: Any, inside: Any) -> None:
    """Token by token, as the server tells them; it names the special tokens at the load."""
    vocabulary = model._tokenizer.vocabulary
    assert set(vocabulary.names.items()) >= {(2, "<|im_start|>"), (3, "<|im_end|>")}
    ids = [*inside.encode("ab")[1:], 2, *inside.encode("b")[1:]]
    for stop, left in (("<|im_start|>", "ab"), ("b<|im_start|>b", "a"), ("<|im_end|>", "abb")):
        wire: Any = TokenWire(
            *(cast("Any", None),) * 3,
            GenerateConfig(stop=(stop,)),
            model._tokenizer.detokenizer(),
            vocabulary.names,
        )
        lines = [b'{"token": %d}' % id for id in ids] + [b'{"reason": "length"}']
        text = "".join(token.text for line in lines for token in wire.feed(line))
        assert (text, wire.reason) == (left, "length" if left == "abb" else "stop")


def test_labels_are_those_of_the_model_in_process(model: Any, inside: Any) -> None:
    options = {"labels": _LABELS, "return_logprobs": True}
    rows, wanted = (each.classify([*_PROMPTS, ""], **options) for each in (model, inside))
    assert isinstance(rows[3].error, RequestError)
    for row, other in zip(rows[:3], wanted[:3], strict=True):
        assert (row.label, row.token.id) == (other.label, other.token.id)
        assert row.logprobs == pytest.approx(other.logprobs, abs=_TOLERANCE)
        assert row.probabilities == pytest.approx(other.probabilities, abs=_TOLERANCE)
        assert row.label_mass == pytest.approx(other.label_mass, abs=_TOLERANCE)
        assert row.token.logprob == pytest.approx(other.token.logprob, abs=_TOLERANCE)


def test_labels_with_equal_tokens_are_refused(model: Any, inside: Any) -> None:
    for each in (model, inside):
        with pytest.raises(LabelError):
            each.classify(["The sky is"], labels=["a", "a"])


def test_scores_are_those_of_the_model_in_process(model: Any, inside: Any) -> None:
    greedy = inside.generate(_PROMPTS[1], max_tokens=3).text()
    tails = [" yes and no", " 😀 ok", greedy]
    found, wanted = (each.score([_PROMPTS[1]] * 3, tails) for each in (model, inside))
    for one, other in zip(found, wanted, strict=True):
        assert one.token_logprobs == pytest.approx(other.token_logprobs, abs=_TOLERANCE)
        assert one.is_greedy == other.is_greedy
    ids = [3, 100, 1, 2, 101]  # with special tokens among them, and the end of a text
    [one], [other] = (each.score_tokens([0, 90], ids) for each in (model, inside))
    assert one.token_logprobs == pytest.approx(other.token_logprobs, abs=_TOLERANCE)


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 3},
        {"top_p": 0.4, "top_k": 4},  # the other order would leave one or two of the four
        {"typical_p": 0.2, "top_k": 4},
        {"min_p": 0.75},
    ],
)
def test_filters_keep_what_they_keep_in_process(
    model: Any, inside: Any, options: dict[str, Any]
) -> None:
    from core_runtime.sequences.sampling import candidates, typical

    prompt, off = _PROMPTS[0], {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    [whole] = inside.classify([prompt], return_logits=True)
    logits = typical(np.array(whole.logits, np.float32), options.get("typical_p", 1.0))
    filters = {name: options.get(name, neutral) for name, neutral in off.items()}
    kept = candidates(logits, **filters)
    assert kept is not None
    hot = options | {"temperature": 4.0}
    drawn = {model.classify([prompt], seed=seed, **hot)[0].token.id for seed in range(32)}
    assert drawn == set(kept.tolist())


def test_samples_have_seeds_of_their_own(model: Any) -> None:
    options = {"max_tokens": 6, "temperature": 1.0, "seed": 7}
    ids = model.encode(_PROMPTS[1])
    one, other = model.generate_tokens([ids], num_samples=2, **options)
    assert one.ids != other.ids
    drawn = [token.id for token in model.generate(_PROMPTS[1], **options)]
    assert [*one.ids[len(ids) :]] == drawn == [t.id for t in model.stream_tokens(ids, **options)]


def test_a_prompt_may_fill_the_context(model: Any) -> None:
    long = "a" * 254
    assert len(model.encode(long)) == 255
    tokens, reason = _run(model.generate(long, max_tokens=9))
    assert (len(tokens), reason) == (1, "length")
    with pytest.raises(PromptTooLongError) as caught:
        list(model.generate(long + "a"))
    assert (caught.value.length, caught.value.limit) == (256, 255)
    sound, error = model.classify([long, long + "a"])
    assert sound.error is None
    assert isinstance(error.error, PromptTooLongError)


# ---------------------------------------------------------------------- what goes wrong


def test_what_is_too_unlikely_to_be_told_is_refused() -> None:
    assert known(Likely(3, -87.2), [Likely(3, -87.2)]) == KnownLogprob(-87.2, True)
    with pytest.raises(RequestError, match="llama_cpp"):
        known(Likely(3, -87.4), [])
    with pytest.raises(RequestError):
        known(Likely(3, -3.4e38), [])


def test_null_in_the_place_of_a_log_probability_is_its_rows_error() -> None:
    """JSON has no NaN: a server whose model computes it writes null."""
    sound, broken = _PROMPTS[0], list[int]()

    def nan(method: str, path: str, body: bytes) -> Answer | None:
        prompt = json.loads(body).get("prompt", []) if path == "/completion" else []
        if not broken or prompt[: len(broken)] != broken:
            return None
        status, kind, said = replayed(RECORDED)(method, path, body)
        return status, kind, re.sub(r'"logprob":\s*[-+.0-9e]+', '"logprob": null', said)

    with serving(_answering(nan)) as url, core.load_model(url) as loaded:
        model: Any = loaded
        broken += model.encode(_PROMPTS[1])
        row, bad = model.classify([sound, _PROMPTS[1]], labels=_LABELS, return_logprobs=True)
        [score] = model.score([_PROMPTS[1]], [" yes and no"])
        stream = model.generate(_PROMPTS[1], max_tokens=16, return_logprobs=True)
        assert row.error is None
        for error in (bad.error, score.error):
            assert isinstance(error, RequestError)
            assert "log-probability None" in str(error)
        with pytest.raises(RequestError, match="log-probability None"):
            list(stream)


def test_readings_that_were_left_out_are_found_or_none_is() -> None:
    one, two = DrawnToken(7, -1.0), DrawnToken(9, -2.0)
    split = [b"a", "é".encode()[:1], "é".encode()[1:]]
    assert matched([7, 8, 9], [one, two], split) == [one, None, two]
    assert matched([7, 9], [one, two], split[:2]) == [one, two]
    assert matched([7, 8, 9], [two, one], split) == [None, None, None]
    assert matched([7, 8, 9], [one, two, two], split) == [None, None, None]


def _answering(change: Callable[[str, str, bytes], Answer | None]) -> Ask:
    """The recorded server, but for what ``change`` answers itself."""
    known = replayed(RECORDED)

    def ask(method: str, path: str, body: bytes) -> Answer:
        return change(method, path, body) or known(method, path, body)

    return ask


def test_a_server_that_says_other_tokens_than_it_is_made_to_is_not_known() -> None:
    def other(method: str, path: str, body: bytes) -> Answer | None:
        if path == "/completion" and b"grammar" in body:
            said = {"tokens": [90], "stop": True, "completion_probabilities": []}
            return 200, "application/json", json.dumps(said)
        return None

    with (
        serving(_answering(other)) as url,
        pytest.raises(CoreError, match="its API is not supported"),
    ):
        core.load_model(url)


def test_chats_that_a_model_would_read_as_plain_text_are_not_offered() -> None:
    def change(method: str, path: str, body: bytes) -> Answer | None:
        if path == "/detokenize":  # a model whose special tokens are others
            said = "<s>\n</s>\n<start>\n<end>\n"
            return 200, "application/json", json.dumps({"content": said})
        if path == "/tokenize" and b"<|im_start|>" in body:
            return 200, "application/json", json.dumps({"tokens": [64, 128, 109]})
        return None

    with (
        serving(_answering(change)) as url,
        core.load_model(url) as model,
        pytest.raises(UnsupportedOperationError, match="chat"),
    ):
        model.chat([Message("user", "Hello")])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((500, "application/json", '{"error": {"code": 500, "message": "no"}}'), ServerError),
        ((400, "application/json", '{"error": {"code": 400, "message": "no"}}'), RequestError),
        ((503, "application/json", "{}"), ServerBusyError),
        ((200, "text/event-stream", "data: {\n\n"), ServerError),
        ((200, "text/event-stream", ""), ServerError),
        (
            (200, "text/event-stream", 'data: {"tokens": [90], "tokens_predicted": 1}\n\n'),
            ServerError,
        ),
        ((200, "text/event-stream", 'error: {"code": 500, "message": "x"}\n\n'), ServerError),
        ((200, "text/event-stream", 'data: {"error": {"code": 400}}\n\n'), RequestError),
    ],
)
def test_faults_are_typed_and_the_next_call_works(answer: Answer, error: type[CoreError]) -> None:
    broken = [True]

    def change(method: str, path: str, body: bytes) -> Answer | None:
        return answer if broken[0] and path == "/completion" and b'"stream":true' in body else None

    with serving(_answering(change)) as url:
        broken[0] = False
        with core.load_model(url) as model:
            broken[0] = True
            with pytest.raises(error):
                list(model.generate(_PROMPTS[0], max_tokens=6))
            broken[0] = False
            assert model.batch_generate(_PROMPTS, max_tokens=6)[0].error is None


def test_a_cancel_ends_what_the_server_does_not() -> None:
    asked, over, cancel = threading.Event(), threading.Event(), threading.Event()

    def change(method: str, path: str, body: bytes) -> Answer | None:
        if path == "/completion" and b'"seed":99' in body:
            asked.set()
            over.wait(60.0)
        return None

    with serving(_answering(change)) as url, core.load_model(url) as model:
        found: list[Any] = []
        options: dict[str, Any] = {"temperature": 1.0, "seed": 99, "cancel": cancel}
        thread = threading.Thread(
            target=lambda: found.extend(model.classify(["a b ab"], **options))
        )
        thread.start()
        assert asked.wait(60.0)
        cancel.set()
        thread.join(60.0)
        over.set()
    assert [type(row.error) for row in found] == [GenerationCancelled]


# ---------------------------------------------------------------------- a real server


def real_server() -> str:
    """The path of llama-server, where there is one; else the test is skipped."""
    found = os.environ.get("CORE_LLAMA_SERVER") or shutil.which("llama-server")
    if found is None:
        pytest.skip("no llama-server: name one by CORE_LLAMA_SERVER, or put it on the PATH")
    return found


def command(binary: str, file: Path, port: int, *more: str) -> list[str]:
    """What starts it with one thread and two slots."""
    words = ["-m", str(file), "--host", "127.0.0.1", "--port", str(port), "-np", "2", "-t", "1"]
    return [binary, *words, *more]


@pytest.mark.slow
def test_a_real_server_is_certified(
    certify: Certify, smollm2_gguf: Path, port: int, tmp_path: Path
) -> None:
    words = command(real_server(), smollm2_gguf, port, "-c", "1024", "-kvu")
    with server(words, port, tmp_path / "log") as url:
        assert certify("remote", url) == _OFFERED


@pytest.mark.slow
def test_a_real_server_says_what_is_recorded(port: int, tiny: Path, tmp_path: Path) -> None:
    """And it draws the same with one seed, asked twice."""
    with server(command(real_server(), tiny, port), port, tmp_path / "log") as url:
        this = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", __file__]
        done = subprocess.run(this, env=os.environ | {URL: url}, capture_output=True)
        assert done.returncode == 0, done.stdout.decode()
        with core.load_model(url) as model:
            options: dict[str, Any] = {"max_tokens": 24, "temperature": 1.0, "seed": 3}
            one, again = ([t.id for t in model.generate("a b", **options)] for _ in range(2))
        assert one == again


@pytest.mark.slow
def test_a_real_model_reads_as_in_process(smollm2_gguf: Path, port: int, tmp_path: Path) -> None:
    """Labels are equal, and log-probabilities within what the weights' rounding makes of them."""
    prompts = [f"Headline: {text}\nTopic:" for text in _HEADLINES]
    labels = ("sports", "finance", "science", "world politics")
    words = command(real_server(), smollm2_gguf, port, "-c", "1024")
    with (
        server(words, port, tmp_path / "log") as url,
        core.load_model(url) as model,
        core.load_model(smollm2_gguf, backend="llama_cpp", options={"n_threads": 1}) as inside,
    ):
        rows, wanted = (each.classify(prompts, labels=labels) for each in (model, inside))
        texts = [each.generate(prompts[0], max_tokens=8).text() for each in (model, inside)]
        tolerance = max(model.info.logit_tolerance, inside.info.logit_tolerance)
    assert texts[0] == texts[1]
    for row, other in zip(rows, wanted, strict=True):
        assert row.label == other.label
        assert row.logprobs == pytest.approx(other.logprobs, abs=tolerance)


_HEADLINES = (
    "Striker scores twice as the home side wins the cup final",
    "Shares fall after the central bank raises interest rates",
    "Telescope finds water vapour around a distant planet",
    "Ministers meet to sign a treaty on fishing rights",
)


def _run(stream: Any) -> tuple[list[Any], str | None]:
    return list(stream), stream.finish_reason


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
