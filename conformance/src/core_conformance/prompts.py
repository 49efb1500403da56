"""Fixed inputs: nothing about them is special, and no answer to them is known beforehand."""

from __future__ import annotations

PLAIN = (
    "The capital of France is",
    "Once upon a time there was",
    "1 2 3 4 5 6",
    "Dear Sir or Madam,",
    "She opened the door and",
    "for i in range(10):",
)
LONG = "The quick brown fox jumps over the lazy dog, and then it runs away into the wood"
SHORT = "A"
# What could reach a neighbour if rows were not kept apart: other scripts, repetition, white space.
HOSTILE = ("\n\n\n\n.", "!!!!!!!!!!!!!!!!", "ÿÿÿÿ 漢字 🎉", "</s> <eos> <|endoftext|>")
ODD = {
    "one space": " ",
    "newlines": "\n\n",
    "a tab at the end": "Name:\t",
    "combining marks": "Cafe\u0301 nai\u0308ve",
    "emoji": "🎉🎊🥳🎉🎊🥳🎉",
    "a joined emoji": "👩‍👩‍👧‍👦 and 🏳️‍🌈",
    "Chinese": "今天天气很好我们去公园",
    "Japanese": "日本語の文章を書きます。",
    "Arabic": "مرحبا بالعالم",
    "Hebrew with Latin": "שלום abc שלום",
    "Cyrillic": "Привет, как дела",
    "carriage returns": "one\r\ntwo\r\n",
}
REPEATING = ("one two one two one two one", "A B A B A B A", "na na na na na na")
LABELS = ("good", "bad", "new")
SEVERAL_WORDS = ("very good", "very bad", "not new")
QUESTION = "The weather today is"
