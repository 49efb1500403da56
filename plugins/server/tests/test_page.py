"""The page at ``/``: how it is sent, and what it does in a real browser."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Unpack

import pytest
import uvicorn
from click.testing import CliRunner
from selenium.common.exceptions import JavascriptException, TimeoutException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait
from starlette.testclient import TestClient
from starlette.types import ASGIApp

import core_server.page
import core_tasks
from core.errors import GenerationCancelled
from core.options import ClassifyOptions, GenerateConfig
from core.registry import REGISTRY
from core.testing import FakeBackend, FakeModel, write_model
from core.types import ClassifyResult, GenerateMetrics
from core_cli.app import build
from core_learn import FewShot
from core_server import Served, Settings, create_app

WAIT = 120  # seconds: against hangs alone
MARKUP = '<img src="x" onerror="document.title=1"> & <b>bold</b>'
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--window-size=1200,900"),
)


def shares(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """More for a label that the prompt's first line names."""
    text = prompt.partition("\n")[0]
    return {label: 0.3 if label.strip() in text else 0.1 / len(labels) for label in labels}


def fake(answers: str = "Good day", name: str = "fake") -> Served:
    return Served(name, FakeModel(answers, labels=shares))


# --------------------------------------------------------------------------- as it is sent


def test_every_file_of_the_page_is_sent_with_its_policy_and_without_the_key() -> None:
    with TestClient(create_app([fake()], Settings(api_key="secret"))) as client:
        replies = {path: client.get(path) for path in core_server.page.PATHS}
        assert client.get("/v1/models").status_code == 401
    for reply in replies.values():
        assert reply.status_code == 200
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
    assert replies["/"].headers["content-type"].startswith("text/html")
    assert replies["/page/main.js"].headers["content-type"].startswith("text/javascript")


def test_the_page_names_no_foreign_host_and_holds_no_script() -> None:
    folder = files("core_server.page")
    texts = {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.is_file()}
    del texts["__init__.py"]
    assert {f"/page/{name}" for name in texts} - {"/page/index.html"} == {
        *core_server.page.PATHS - {"/"}
    }
    for name, text in texts.items():
        hosts = re.findall(r"//([\w-]+\.[\w.-]+)", text)
        assert {*hosts} <= {"www.w3.org"}, name  # the name of a format; a comment
    assert not re.search(
        r"<script(?! type=\"module\" src=)|<style|\son\w+=|style=", texts["index.html"]
    )
    code = "".join(text for name, text in texts.items() if name.endswith(".js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", code)


@pytest.mark.parametrize(
    ("site", "path", "status"),
    [
        ("cross-site", "/v1/completions", 403),
        ("same-site", "/v1/completions", 403),
        ("same-origin", "/v1/completions", 400),
        ("cross-site", "/", 405),
    ],
)
def test_a_page_of_another_site_asks_nothing_here(site: str, path: str, status: int) -> None:
    settings = Settings(hosts=frozenset({"localhost"}))
    with TestClient(create_app([fake()], settings), "http://localhost") as client:
        # As a form sends it, for which a browser asks nobody's leave.
        sent = {"Sec-Fetch-Site": site, "Content-Type": "text/plain"}
        assert client.post(path, content="{}", headers=sent).status_code == status


def test_prompts_are_shown_to_who_asks() -> None:
    body: dict[str, Any] = {"texts": ["a tiger", "a bear"], "labels": ["lion", "tiger"]}
    with TestClient(create_app([fake()])) as client:

        def answers(**more: object) -> list[dict[str, Any]]:
            reply = client.post("/v1/classify", json=body | {"template": "{text} is a"} | more)
            answers: list[dict[str, Any]] = reply.json()["data"]
            return answers

        assert "prompts" not in answers()[0]
        shown = [answer["prompts"] for answer in answers(show_prompts=True)]
        assert shown == [["a tiger is a"], ["a bear is a"]]
        many = answers(
            show_prompts=True, mode="many", template="{text} is a {label}:", texts=["It"]
        )
        assert many[0]["prompts"] == ["It is a lion:", "It is a tiger:"]

        head = '{"labels": ["lion", "tiger"], "template": "{text}!", "show_prompts": true}'
        lines = {"Content-Type": "application/x-ndjson"}
        reply = client.post("/v1/classify", content=f'{head}\n"a bear"\n', headers=lines)
        assert reply.json()["prompts"] == ["a bear!"]


def test_the_prompt_of_a_chat() -> None:
    messages = [{"role": "user", "content": "Hello"}]
    with TestClient(create_app([fake()])) as client:
        reply = client.post("/apply-template", json={"messages": messages})
        assert "Hello" in reply.json()["prompt"]
        assert client.post("/apply-template", json={"messages": []}).status_code == 400


# --------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """One headless browser for all tests here; each opens the page of a server of its own."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no chromium with chromedriver here (apt: chromium, chromium-driver)")
    options = ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with Chrome(options, Service(driver)) as chrome:
        yield chrome


class Page:
    """The page in the browser: what a person does with it, and what is to be seen."""

    def __init__(self, browser: Chrome, address: str) -> None:
        self.browser, self.address = browser, address
        self.complaints()  # those of the page before
        browser.get(address)

    def at(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """What stands there, or nothing; in one step, for the page changes meanwhile."""
        script = "return document.querySelector(arguments[0])?.textContent ?? ''"
        return str(self.browser.execute_script(script, selector))

    def write(self, selector: str, words: str) -> None:
        """What is typed instead of what stands there."""
        self.at(selector).send_keys(Keys.CONTROL, "a")
        self.at(selector).send_keys(words)

    def until(self, selector: str, words: str) -> None:
        """Wait until these words stand there, and nothing else."""
        text = ""

        def stands(_: Chrome) -> bool:
            nonlocal text
            text = self.text(selector)
            return text == words

        try:
            WebDriverWait(self.browser, WAIT, 0.02).until(stands)
        except TimeoutException:
            pytest.fail(f"{selector} is not {words!r} but {text!r}")

    def bars(self) -> dict[str, str]:
        """The share that is written beside each label."""
        parts = "[...row.querySelectorAll('.name, .share')].map((part) => part.textContent)"
        script = f"return [...document.querySelectorAll('#bars li')].map((row) => {parts})"
        return dict(self.browser.execute_script(script))

    def complaints(self) -> list[str]:
        """What the browser says of a policy that was broken, or of an error in a script."""
        entries = self.browser.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]


@contextmanager
def page(
    browser: Chrome, *served: Served, settings: Settings | None = None, app: ASGIApp | None = None
) -> Iterator[Page]:
    """The page of a server on a thread; the browser leaves it in the end."""
    config = uvicorn.Config(app or create_app(served, settings), port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            threading.Event().wait(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Page(browser, f"http://127.0.0.1:{port}/")
    finally:
        browser.get("about:blank")
        server.should_exit = True
        thread.join(30)


def test_bars_move_as_one_types_and_the_prompt_is_what_the_model_reads(browser: Chrome) -> None:
    model = FakeModel("x", labels=shares)
    with page(browser, Served("fake", model)) as shown:
        shown.until("#bars .best .name", "finance")  # of equal ones, the first
        shown.write("#names", f"lion\ntiger\n\n tiger \n{MARKUP}")
        shown.write("#template", "{text} is a")
        shown.write("#text", f"A tiger {MARKUP}")
        prompt = f"A tiger {MARKUP} is a"
        shown.until("#prompt", f"{prompt} tiger")
        assert model.calls[-1].prompts == (prompt,)
        assert list(shown.bars()) == ["tiger", MARKUP, "lion"]  # the most probable first
        assert shown.bars()["lion"] == "5.3 %"  # one part of 1 and 9 and 9
        fill = shown.at("#bars .best .fill").get_attribute("style") or ""
        assert fill.startswith("transform: scaleX(0.47")
        assert shown.text("#said") == "tiger, 47.4 %"

        before = len(model.calls)
        browser.execute_script(
            "const text = document.querySelector('#text');"
            "for (const words of ['A', 'A l', 'A lio', 'A lion']) {"
            "  text.value = words; text.dispatchEvent(new Event('input', { bubbles: true })); }"
        )  # faster than any pause
        shown.until("#prompt", "A lion is a lion")
        assert [call.prompts for call in model.calls[before:]] == [("A lion is a",)]
        shown.at("input[value=content-free]").click()
        shown.until("#facts div:first-child dd", "content-free")

        assert shown.all("main img, main b") == []  # no text became markup
        assert shown.complaints() == []


def test_what_is_typed_while_an_answer_is_awaited_cancels_it(browser: Chrome) -> None:
    class Held(FakeModel):
        """A model that answers what names a lion only when nobody wants to know any more."""

        cancelled = threading.Event()
        begun = threading.Event()

        def classify(
            self,
            prompts: Sequence[str],
            config: GenerateConfig | None = None,
            /,
            **options: Unpack[ClassifyOptions],
        ) -> list[ClassifyResult]:
            if "lion" in prompts[0]:
                assert config is not None
                assert isinstance(config.cancel, threading.Event)
                self.begun.set()
                assert config.cancel.wait(WAIT)
                self.cancelled.set()
                raise GenerationCancelled
            return super().classify(prompts, config, **options)

    model = Held("x", labels=shares)
    with page(browser, Served("fake", model)) as shown:
        shown.until("#bars .best .name", "finance")
        shown.write("#text", "a lion")
        assert model.begun.wait(WAIT)
        shown.write("#text", "technology")
        assert model.cancelled.wait(WAIT)
        shown.until("#bars .best .name", "technology")
        assert shown.text("#prompt").startswith("technology ")
        assert shown.at("#labels-problem").text == ""


def test_what_is_wrong_with_a_question_is_told_beside_it(browser: Chrome) -> None:
    with page(browser, fake()) as shown:
        shown.until("#bars .best .name", "finance")
        shown.write("#names", "one")
        shown.until("#labels-problem", "Give two labels or more, one a line.")
        assert shown.bars() == {}
        shown.write("#names", "one\ntwo")
        shown.until("#bars .best .name", "one")
        assert not shown.at("#labels-problem").is_displayed()
        shown.write("#template", "no place for it")
        WebDriverWait(browser, WAIT).until(lambda _: "{text}" in shown.text("#labels-problem"))


class Gated(FakeModel):
    """A model that says three words, and the rest only when it is let go."""

    def __init__(self) -> None:
        super().__init__("x", labels=shares)
        self.let_go, self.cancelled = threading.Event(), threading.Event()
        self.heard: list[str] = []

    def chat(self, messages: Any, config: GenerateConfig | None = None, /, **_: Any) -> Any:
        assert config is not None
        self.heard = [message.content for message in messages]
        model, cancel = self, config.cancel

        class Stream:
            finish_reason = "stop"
            metrics = GenerateMetrics(prompt_tokens=1, generated_tokens=7)

            def __iter__(self) -> Iterator[Any]:
                yield from FakeModel(f"One {MARKUP}").generate("x")
                while not model.let_go.wait(0.005):
                    if cancel is not None and cancel.is_set():
                        model.cancelled.set()
                        raise GenerationCancelled
                yield from FakeModel(" and all.").generate("x")

            def close(self) -> None:
                pass

        return Stream()


def test_a_chat_comes_as_it_is_made_and_stops_when_told(browser: Chrome) -> None:
    model, answer = Gated(), "article.assistant:last-child .text"
    with page(browser, Served("fake", model)) as shown:
        shown.until("#bars .best .name", "finance")
        shown.at("#chat-tab").click()
        shown.write("#words", f"Hello {MARKUP}\n")
        shown.until(answer, f"One {MARKUP}")  # while the model still holds the rest
        shown.at("#stop").click()
        shown.until("article:last-child .how", "stopped")
        assert model.cancelled.wait(WAIT)
        assert shown.text(answer) == f"One {MARKUP}"

        model.let_go.set()
        shown.write("#words", "Go on\n")
        shown.until(answer, f"One {MARKUP} and all.")
        assert model.heard == [f"Hello {MARKUP}", f"One {MARKUP}", "Go on"]
        WebDriverWait(browser, WAIT).until(lambda _: shown.text("article:last-child .how"))
        assert shown.text("article:last-child .how").startswith("7 tokens, ")
        assert shown.all("main img, main b") == []

        shown.write("#words", "More")
        shown.at("#chat-prompt summary").click()
        WebDriverWait(browser, WAIT).until(lambda _: "More" in shown.text("#rendered"))
        assert MARKUP in shown.text("#rendered")

        shown.at("#anew").click()
        assert shown.all("article") == []
        assert shown.complaints() == []


def test_a_chat_that_fails_gives_the_words_back(browser: Chrome) -> None:
    def failing(prompt: str) -> str:
        raise ValueError("nothing to tell others")

    served = Served("fake", FakeModel(failing, labels=shares))
    with page(browser, served) as shown:
        shown.at("#chat-tab").click()
        WebDriverWait(browser, WAIT).until(lambda _: shown.at("#model").is_enabled())
        shown.write("#words", "Hello\n")
        WebDriverWait(browser, WAIT).until(lambda _: shown.at("#chat-problem").is_displayed())
        assert shown.at("#words").get_property("value") == "Hello"
        assert shown.all("article") == []


def test_a_model_is_picked_by_name(browser: Chrome) -> None:
    one, two = FakeModel("x", labels=shares), FakeModel("y", labels=shares)
    with page(browser, Served("one", one), Served("two", two)) as shown:
        shown.until("#bars .best .name", "finance")
        assert two.calls == []
        Select(shown.at("#model")).select_by_visible_text("two")
        WebDriverWait(browser, WAIT).until(lambda _: two.calls)


def test_the_key_is_asked_for_where_one_is_needed(browser: Chrome) -> None:
    with page(browser, fake(), settings=Settings(api_key="secret")) as shown:
        WebDriverWait(browser, WAIT).until(lambda _: shown.at("#key").is_displayed())
        shown.write("#key-text", "wrong\n")
        shown.until("#problem", "That is not the key of this server.")
        shown.write("#key-text", "secret\n")
        shown.until("#bars .best .name", "finance")
        assert not shown.at("#key").is_displayed()
        assert not shown.at("#problem").is_displayed()
        browser.refresh()  # the tab knows it
        shown.until("#bars .best .name", "finance")


def named(labels: int) -> list[str]:
    return [f"label {number:02}" for number in range(labels)]


def test_twelve_bars_are_shown_sorted_and_the_rest_are_folded(browser: Chrome) -> None:
    with page(browser, fake()) as shown:
        shown.until("#bars .best .name", "finance")
        assert not shown.at("#folded").is_displayed()
        shown.write("#names", "\n".join(named(26)))
        shown.write("#text", "label 25 and label 07")
        shown.until("#bars .best .name", "label 07")
        assert shown.text("#more") == "14 more labels"
        assert [*shown.bars()][:2] == ["label 07", "label 25"]
        assert len(shown.bars()) == 12
        assert not shown.at("#rest").is_displayed()
        shown.at("#more").click()
        assert len([row for row in shown.all("#rest li") if row.is_displayed()]) == 14


def test_the_words_are_explained(browser: Chrome) -> None:
    with page(browser, fake()) as shown:
        shown.until("#bars .best .name", "finance")
        words = ["method", "margin", "label mass", "tokens", "took"]
        assert [part.text for part in shown.all("#facts dt")] == words
        for fact in shown.all("#facts div"):
            assert len(fact.get_attribute("title") or "") > 40
        shown.all(".found details summary")[-1].click()
        assert [part.text for part in shown.all("#meanings strong")] == words


def test_equal_labels_are_named(browser: Chrome) -> None:
    with page(browser, fake()) as shown:
        shown.until("#bars .best .name", "finance")
        shown.write("#names", "sports\nsports\nsports")
        shown.until(
            "#labels-problem",
            "'sports' is listed 3 times. Give two different labels or more, one a line.",
        )


def test_many_texts_are_labelled_and_judged(browser: Chrome) -> None:
    lines = [f"about sports {n}\tsports" for n in range(12)]
    lines += [f"about science {n}\tfinance" for n in range(6)]
    lines += [f"about finance {n}\tfinance" for n in range(2)]
    with page(browser, fake()) as shown:
        shown.until("#bars .best .name", "finance")
        shown.at("#classify").click()
        shown.until("#many-problem", "Paste texts, one a line.")
        put = "arguments[0].value = arguments[1]"  # a tab moves the focus
        browser.execute_script(put, shown.at("#lines"), "\n".join([*lines, MARKUP]))
        shown.at("#classify").click()
        shown.until(
            "#accuracy",
            "Correct: 14 of 20, 70.0 % (48.1 % to 85.5 %). Always the commonest label: 60.0 %.",
        )
        assert len(shown.all("#rows tr")) == 21
        assert len(shown.all("#rows .wrong")) == 6
        first = [cell.text for cell in shown.all("#rows tr:first-child td")]
        assert first == ["about sports 0", "sports", "85.7 %", "sports"] or first[1] == "sports"
        assert shown.text("#rows tr:last-child td") == MARKUP
        assert shown.all("main img, main b") == []

        shown.write("#lines", "one\n \ntwo")
        shown.at("#classify").click()
        WebDriverWait(browser, WAIT).until(lambda _: "after a tab" in shown.text("#accuracy"))
        assert len(shown.all("#rows tr")) == 2
        assert shown.complaints() == []


def test_a_task_or_head_is_picked(browser: Chrome) -> None:
    task = core_tasks.Task("{text} It is", ("law", "art"), model="two", mode="one")
    many = core_tasks.Task("{text} {label}?", ("law", "art"), mode="many")
    served = [Served(name, FakeModel("x", labels=shares)) for name in ("one", "two")]
    texts = ["a law", "some art", "another law", "more art"] * 2
    head = FewShot(FakeModel("x", labels=shares)).fit(texts, ["law", "art"] * 4).head
    app = create_app(served, tasks={"kind": task, "kinds": many}, heads={"topics": head})
    with page(browser, app=app) as shown:
        shown.until("#bars .best .name", "finance")
        Select(shown.at("#task")).select_by_value("kind")
        shown.until("#bars .best .name", "law")
        assert [*shown.bars()] == ["law", "art"]
        assert Select(shown.at("#model")).first_selected_option.text == "two"
        assert not shown.at("#names").is_displayed()
        assert not shown.at("#template").is_displayed()
        shown.write("#text", "some art")
        shown.until("#prompt", "some art It is art")

        Select(shown.at("#task")).select_by_value("topics")
        shown.until("#facts div:first-child dd", "head")
        shown.until("#prompt", "some art")  # a head reads no label
        Select(shown.at("#task")).select_by_value("kinds")
        shown.until("#prompt", "some art law?\nsome art art?")
        Select(shown.at("#task")).select_by_value("")
        shown.until("#bars .best .name", "finance")
        assert shown.at("#names").is_displayed()
        assert shown.complaints() == []


ANSWER = """# Title

One *two* **three** `<b>four</b>`
and a [link](https://example.org/?a=1&b=2), a [trap](javascript:alert(1)).

- first
- second <img src=x onerror=alert(1)>

3. third

> quoted

| a | b |
|---|---|
| 1 | 2 |

```python
print("<script>alert(1)</script>")
```
"""


def test_markdown_is_rendered_and_nothing_becomes_markup(browser: Chrome) -> None:
    with page(browser, fake(ANSWER)) as shown:
        shown.at("#chat-tab").click()
        WebDriverWait(browser, WAIT).until(lambda _: shown.at("#model").is_enabled())
        browser.execute_script("document.querySelector('#max-tokens').value = 2000")
        shown.write("#words", "Hello\n")
        shown.until("article.assistant .copy", "Copy")
        answer = "article.assistant .text"
        tags = {
            "h3": "Title",
            "em": "two",
            "strong": "three",
            "p code": "<b>four</b>",
            "ul li:last-child": "second <img src=x onerror=alert(1)>",
            "ol": "third",
            "blockquote p": "quoted",
            "th": "a",
            "td:last-child": "2",
            "pre code": 'print("<script>alert(1)</script>")',
        }
        assert {tag: shown.text(f"{answer} {tag}") for tag in tags} == tags
        [link] = shown.all(f"{answer} a")
        assert link.get_attribute("href") == "https://example.org/?a=1&b=2"
        assert link.get_attribute("rel") == "noopener noreferrer"
        assert "[trap](javascript:alert(1))" in shown.text(answer)
        assert shown.at(f"{answer} ol").get_attribute("start") == "3"
        assert shown.all("main img, main b, main script") == []
        assert shown.complaints() == []


def test_an_answer_that_is_cut_says_how_to_get_more(browser: Chrome) -> None:
    with page(browser, fake("word " * 400)) as shown:
        shown.at("#chat-tab").click()
        WebDriverWait(browser, WAIT).until(lambda _: shown.at("#model").is_enabled())
        shown.write("#words", "Hello\n")
        shown.until("article.assistant .copy", "Copy")
        assert shown.text("article.assistant .how").endswith(
            "cut at 256 tokens: raise the number under Options"
        )


def _quoted(text: str) -> str:
    """Return a text in single quotes for a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def copied(shown: Page, place: str, kind: str) -> str:
    """The command or program that a button of the page shows."""
    shown.at(f"#{place} button[value={kind}]").click()
    WebDriverWait(shown.browser, WAIT).until(lambda _: shown.at(f"#{place} pre").is_displayed())
    return shown.text(f"#{place} pre")


TRICKY = 'It\'s "a $HOME `tick` \\n" text'


@pytest.mark.parametrize("level", ["raw", "content-free"])
def test_what_is_copied_of_labels_runs_and_answers_the_same(
    browser: Chrome, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = ['a, "b"', "HOME", "sports"]
    with page(browser, fake(name="m")) as shown:
        shown.until("#bars .best .name", "finance")
        shown.write("#names", "\n".join(labels))
        shown.write("#template", "{text} \\n is\n'it'")
        shown.at(f"input[value={level}]").click()
        shown.write("#text", TRICKY)
        shown.until("#prompt", f"{TRICKY} \\n is\n'it' HOME")
        programs = {kind: copied(shown, "copies", kind) for kind in ("curl", "python", "command")}
        bars = shown.bars()

        if shutil.which("curl"):
            done = subprocess.run(["sh", "-c", programs["curl"]], capture_output=True, check=True)
            answered = json.loads(done.stdout)["data"][0]["probabilities"]
            assert {label: f"{100 * share:.1f} %" for label, share in answered.items()} == bars
        program = [sys.executable, "-c", programs["python"]]
        done = subprocess.run(program, capture_output=True, check=True)
        assert "'label': 'HOME'" in done.stdout.decode()

    backend = FakeBackend(labels=shares)
    monkeypatch.setitem(REGISTRY._registered, backend.name, backend)
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "m")
    lines = programs["command"].splitlines()
    assert len(lines) == (1 if level == "raw" else 2)
    for line in lines:
        before, command = line.split("infer-cli ", 1)
        name, *words = shlex.split(command)
        assert before in ("", f"printf '%s\\n' {_quoted(TRICKY)} | ")
        given = [name, "--backend", backend.name, *words]
        result = CliRunner().invoke(build(), given, TRICKY if before else None)
        assert result.exit_code == 0, result.output
    assert backend.calls[-1].prompts == (f"{TRICKY} \\n is\n'it'",)
    assert set(backend.calls[-1].config.labels) == set(labels)


def test_what_is_copied_of_a_chat_runs(
    browser: Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page(browser, fake(name="m")) as shown:
        shown.at("#chat-tab").click()
        WebDriverWait(browser, WAIT).until(lambda _: shown.at("#model").is_enabled())
        shown.write("#words", TRICKY)
        programs = {
            kind: copied(shown, "chat-copies", kind) for kind in ("curl", "python", "command")
        }
        done = subprocess.run(
            [sys.executable, "-c", programs["python"]], capture_output=True, check=True
        )
        assert done.stdout == b"Good day\n"
        assert programs["curl"].startswith(f"curl {shown.address}v1/chat/completions ")

    backend = FakeBackend("Good day")
    monkeypatch.setitem(REGISTRY._registered, backend.name, backend)
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "m")
    _, *words = shlex.split(programs["command"])
    result = CliRunner().invoke(build(), [words[0], "--backend", backend.name, *words[1:]])
    assert result.exit_code == 0, result.output
    assert backend.calls[-1].messages[-1].content == TRICKY
    assert backend.calls[-1].config.temperature == 0.7


def test_nothing_comes_from_elsewhere_and_no_text_can_become_markup(browser: Chrome) -> None:
    with page(browser, fake()) as shown:
        shown.until("#bars .best .name", "finance")
        loaded = browser.execute_script(
            "return performance.getEntriesByType('resource').map(entry => entry.name)"
        )
        assert len(loaded) >= len(core_server.page.PATHS) - 1
        assert [address for address in loaded if not address.startswith(shown.address)] == []
        with pytest.raises(JavascriptException, match="TrustedHTML"):
            browser.execute_script("document.body.innerHTML = '<p>markup</p>'")
        refused = "fetch('http://localhost:1/').then(() => 'sent', (error) => error.name)"
        assert browser.execute_script(f"return {refused}") == "TypeError"
        assert any("Content Security Policy" in complaint for complaint in shown.complaints())


@pytest.mark.parametrize("tab", ["labels", "chat"])
def test_it_fits_a_phone_is_dark_where_the_system_is_and_has_names(
    browser: Chrome, tab: str, tmp_path: Path
) -> None:
    screen = {"width": 320, "height": 640, "deviceScaleFactor": 2, "mobile": True}
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    try:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
        with page(browser, fake(name="a-model-with-a-very-long-name-" * 3)) as shown:
            shown.until("#bars .best .name", "finance")
            shown.at("#labels-tab").send_keys(Keys.ARROW_RIGHT if tab == "chat" else "")
            assert shown.at(f"#{tab}").is_displayed()
            wide = "return document.documentElement.scrollWidth"
            assert browser.execute_script(wide) <= 320
            ground = "return getComputedStyle(document.body).backgroundColor"
            assert browser.execute_script(ground) == "rgb(18, 21, 28)"
            fields = [
                field for field in shown.all("input,textarea,select,button") if field.is_displayed()
            ]
            assert len(fields) >= 5
            assert [
                field.get_attribute("id") for field in fields if not field.accessible_name
            ] == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
