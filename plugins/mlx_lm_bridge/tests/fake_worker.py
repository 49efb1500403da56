"""A worker whose model is a script: it does what the prompt says. See `Script`.

Everything but the model is the real worker: pipes, threads, messages.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator

from core_mlx_lm_bridge.child import service, wire
from core_mlx_lm_bridge.protocol import Chat, Done, Generate, Load, Ok, TokenAnswer, encode

WAY_OUT: list[int] = []  # the descriptor of answers, for writing what is no answer


def take_over(requests: int, answers: int) -> tuple[int, int]:
    """As the real one, but the descriptor is kept."""
    requests, answers = wire.take_over(requests, answers)
    WAY_OUT.append(answers)
    return requests, answers


def say(data: bytes) -> None:
    """Write bytes that no encoder has seen."""
    while data:
        data = data[os.write(WAY_OUT[0], data) :]


def noise() -> None:
    """More on stderr than any pipe holds, with a last line to be found."""
    sys.stderr.write("noise " * 200_000 + "\nthe last line\n")
    sys.stderr.flush()


def fault(name: str, id: int) -> None:
    """Misbehave. Some of these do not return."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stderr.write(f"about to {name}\n")
    sys.stderr.flush()
    answer = encode(TokenAnswer(id=id, token="x", token_id=1))
    lines = {
        "garbage": b"Loading weights: 100%\n",
        "utf-8": b'{"type":"token","id":%d,"token":"\xff\xfe"}\n' % id,
        "other": encode(TokenAnswer(id=id + 7, token="x")),
        "unasked": encode(Ok(id=id)) if id > 1 else answer,
        "long": b'{"type":"token","token":"' + b"x" * 10_000_000 + b'"}\n',
    }
    if name in lines:
        say(lines[name])
        time.sleep(60)
    elif name == "half":
        say(answer[: len(answer) // 2])
        os._exit(0)
    elif name == "surrogate":
        raise RuntimeError("cannot read caf\udce9 \x1b[31mred")
    elif name.isdigit():
        os.kill(os.getpid(), int(name))
    elif name == "hang":
        time.sleep(60)
    elif name == "exit":
        sys.exit(3)
    elif name == "flood":
        noise()
        os._exit(4)
    elif name == "deaf":  # neither SIGTERM nor the end of stdin move it
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        os.kill(os.getpid(), signal.Signals[name])


class Script:
    """A prompt is a verb and its words.

    ``count N [SECONDS]``, ``behind FILE`` (a token once it is there), ``say TEXT...`` (a token per
    word), ``fault NAME AFTER``, ``pid``, ``print``, ``noise``, and ``echo``, which says the request
    back.
    """

    def load(self, request: Load) -> Ok:
        """Fails as the environment says."""
        if name := os.environ.get("FAKE_LOAD_FAULT"):
            marker = os.environ.get("FAKE_ONCE", "")
            if not marker or not os.path.exists(marker):
                if marker:
                    open(marker, "w").close()
                fault(name, request.id)
        return self.info()

    def info(self) -> Ok:
        """Of a small model."""
        return Ok(
            model_type="fake", vocab_size=2**22, layers=1, hidden_size=8, context_length=2**20
        )

    def generate(
        self, request: Generate | Chat, cancelled: Callable[[], bool]
    ) -> Iterator[TokenAnswer | Done]:
        """Tokens until the script ends or is cancelled."""
        made = 0
        for token in self._tokens(request):
            if cancelled():
                break
            made += 1
            token.id = request.id
            yield token
            if made == request.max_tokens:
                break
        reason = "cancelled" if cancelled() else "length" if made == request.max_tokens else "stop"
        yield Done(id=request.id, finish_reason=reason, prompt_tokens=3, generation_tokens=made)

    def _tokens(self, request: Generate | Chat) -> Iterator[TokenAnswer]:
        if isinstance(request, Chat):
            for turn in request.messages:
                yield TokenAnswer(token=turn.role, token_id=len(turn.content))
            return
        verb, *words = request.prompt.split()
        if verb == "count":
            pause = float(words[1]) if len(words) > 1 else 0.0
            for number in range(int(words[0])):
                time.sleep(pause)
                yield TokenAnswer(token=f"{number} ", token_id=number)
        elif verb == "behind":
            while not os.path.exists(words[0]):
                time.sleep(0.01)
            yield TokenAnswer(token="behind", token_id=1)
        elif verb == "fault":
            for number in range(int(words[1])):
                yield TokenAnswer(token=f"{number} ", token_id=number)
            fault(words[0], request.id)
        elif verb == "print":
            print("from Python", flush=True)  # noqa: T201
            os.system("echo from below; cat")  # it also reads what there is to read
            yield TokenAnswer(token="done", token_id=1)
        elif verb == "noise":
            noise()
            yield TokenAnswer(token="done", token_id=1)
        elif verb == "say":
            yield from (TokenAnswer(token=word, token_id=1, open=not word) for word in words)
        elif verb == "echo":
            yield TokenAnswer(token=encode(request).decode().strip(), token_id=1)
        else:
            yield TokenAnswer(token="pid", token_id=os.getpid())


if __name__ == "__main__":
    vars(service)["take_over"] = take_over
    service.serve(Script(), *map(int, sys.argv[1:]))
