"""A server that answers as another once did, and the proxy that writes down how.

An exchange is known by its method, its path and its body, in whatever order its fields came; a
stream is answered whole.
"""

from __future__ import annotations

import gzip
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Answer = tuple[int, str, str]
"""A status, a content type and a body."""

Ask = Callable[[str, str, bytes], Answer]
_PATIENCE = 120.0


def key_of(method: str, path: str, body: bytes) -> str:
    """What an exchange is known by."""
    plain = json.dumps(json.loads(body), sort_keys=True) if body else ""
    return f"{method} {path} {plain}"


def replayed(file: Path) -> Ask:
    """Answers from a file; 404 for what nobody has asked before."""
    known: dict[str, Answer] = {
        key: (status, kind, body)
        for key, (status, kind, body) in json.loads(gzip.decompress(file.read_bytes())).items()
    }

    def ask(method: str, path: str, body: bytes) -> Answer:
        key = key_of(method, path, body)
        unknown = json.dumps({"error": {"code": 404, "message": f"nobody has asked {key[:300]}"}})
        return known.get(key, (404, "application/json", unknown))

    return ask


class Recorder:
    """Asks a real server, and keeps its answers: of equal questions the first."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._known: dict[str, Answer] = {}
        self._lock = threading.Lock()

    def ask(self, method: str, path: str, body: bytes) -> Answer:
        """The real server's answer."""
        key = key_of(method, path, body)
        with self._lock:
            if key not in self._known:
                self._known[key] = self._real(method, path, body)
            return self._known[key]

    def write(self, file: Path, without: str) -> None:
        """All that was asked, ``without`` the name of a folder; always the same bytes."""
        text = json.dumps(self._known, sort_keys=True, ensure_ascii=False).replace(without, "")
        file.write_bytes(gzip.compress(text.encode(), mtime=0))

    def _real(self, method: str, path: str, body: bytes) -> Answer:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, body or None, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
                kind = answer.headers.get_content_type()
                return answer.status, kind, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, "application/json", error.read().decode()


@contextmanager
def serving(ask: Ask) -> Iterator[str]:
    """A server that answers so, by its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: the next one would wait for the first's ACK

        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, body: bytes) -> None:
            status, kind, text = ask(self.command, self.path, body)
            data = text.encode()
            with suppress(OSError):  # the client has left
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(_PATIENCE)
