"""Record what transformers makes of the conversations with each template (see README.md).

Writes renderings.json beside itself: for each template and conversation, the prompt for the
assistant's next turn, or the message with which the template refuses the conversation; the same
with each value of a variable that the template reads; and the prompt that continues the last
message of the assistant's, null where transformers refuses that.
"""

from __future__ import annotations

import json
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jinja2
import transformers  # type: ignore[import-not-found, unused-ignore]
from tokenizers import Tokenizer, models

Conversations = dict[str, list[list[str]]]  # by name: pairs of role and content

HERE = Path(__file__).resolve().parent
VARIABLES = ("enable_thinking",)
NOW = datetime(2025, 2, 3, 4, 5)  # what strftime_now says in templates


def renderings(name: str, bos: str | None, conversations: Conversations) -> dict[str, Any]:
    """One template's prompts and refusals."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE()),
        chat_template=(HERE / "templates" / f"{name}.jinja").read_text(encoding="utf-8"),
        bos_token=bos,
    )
    found: dict[str, Any] = {"prompts": {}, "refusals": {}, "variables": [], "continued": {}}
    for title, turns in conversations.items():
        try:
            found["prompts"][title] = prompt(tokenizer, turns, add_generation_prompt=True)
        except jinja2.TemplateError as error:
            found["refusals"][title] = str(error)
        if last := max((n for n, turn in enumerate(turns) if turn[0] == "assistant"), default=0):
            found["continued"][title] = continued(tokenizer, turns[: last + 1])
    for variable, value in product(VARIABLES, (True, False)):
        if variable in tokenizer.chat_template:
            given = {variable: value}
            prompts = {
                title: prompt(tokenizer, conversations[title], add_generation_prompt=True, **given)
                for title in ("question", "turns", "thought")
            }
            found["variables"].append({"variables": given, "prompts": prompts})
    return found


def prompt(tokenizer: Any, turns: list[list[str]], **options: Any) -> str:
    """Return the prompt that transformers makes of a conversation."""
    messages = [{"role": role, "content": content} for role, content in turns]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, **options))


def continued(tokenizer: Any, turns: list[list[str]]) -> str | None:
    """The prompt that continues the last message; None where it is refused."""
    try:
        return prompt(tokenizer, turns, continue_final_message=True)
    except (jinja2.TemplateError, ValueError):
        return None


def read(name: str) -> Any:
    """A file of JSON beside this one."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def main() -> None:
    conversations: Conversations = read("conversations")
    with patch("transformers.utils.chat_template_utils.datetime", wraps=datetime) as clock:
        clock.now.return_value = NOW
        content = {
            "transformers": transformers.__version__,
            "now": NOW.isoformat(),
            "templates": {
                name: renderings(name, bos, conversations)
                for name, bos in read("special_tokens")["bos"].items()
            },
        }
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (HERE / "renderings.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
