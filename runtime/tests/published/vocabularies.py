"""Small vocabularies with the added tokens of each publisher.

The added tokens and their ids are as published (README.md), where they stand before the words; the
words are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .shapes import SPACE, Added, Vocabulary, byte_alphabet, byte_tokens, chains

_WORDS_IN_ONE = (
    "the The team won this This news is about a of to in and It it don't model user assistant "
    "science sports finance technology market game final goal players stocks fell rose research "
    "found that new Hello world Write one word only Sentence Label text 2024 prompt answer"
)
WORDS = _WORDS_IN_ONE.split()
_LETTERS = [*map(chr, range(33, 127)), SPACE, *"éüß日本語中Ω"]


def _words(space: str, *, digits: bool) -> list[str]:
    """Return each word alone and after a space, as a vocabulary has them; some have no numbers."""
    words = [word for word in WORDS if digits or not word.isdigit()]
    return [word for plain in words for word in (space + plain, plain)]


def sentence_piece(
    leading: Sequence[Added],
    trailing: Sequence[str] = (),
    beyond: Sequence[Added] = (),
    special: Sequence[str] = (),
) -> Vocabulary:
    """Make a vocabulary of SentencePiece: ``leading`` tokens, bytes, words, ``trailing`` tokens.

    ``beyond`` are added tokens that follow the vocabulary; ``special``: which trailing ones are.
    """
    merges = _known(chains(_words(SPACE, digits=False)), _LETTERS)
    tokens = [token.content for token in leading]
    tokens += [*byte_tokens(), *_results(merges), *_LETTERS]
    ids = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    ids |= {token: len(ids) + place for place, token in enumerate(trailing)}
    named = [Added(ids[token], token, token in special) for token in trailing]
    last = [Added(len(ids) + place, token.content) for place, token in enumerate(beyond)]
    return Vocabulary(ids, merges, [*leading, *named, *last])


def byte_level(leading: Sequence[str], trailing: Sequence[Added]) -> Vocabulary:
    """Make a vocabulary of bytes and words; ``leading`` tokens are special, and a part of it.

    The ids of the ``trailing`` tokens count from its end.
    """
    letters = byte_alphabet()
    merges = _known(chains(_words("Ġ", digits=True)), letters)
    tokens = {token: index for index, token in enumerate([*leading, *letters, *_results(merges)])}
    first = [Added(index, token) for index, token in enumerate(leading)]
    last = [
        Added(len(tokens) + token.id, token.content, token.special, token.normalized)
        for token in trailing
    ]
    return Vocabulary(tokens, merges, [*first, *last])


def _known(merges: Iterable[tuple[str, str]], letters: Iterable[str]) -> list[tuple[str, str]]:
    """Return the merges whose letters exist."""
    known = set(letters)
    return [merge for merge in merges if set("".join(merge)) <= known]


def _results(merges: Iterable[tuple[str, str]]) -> list[str]:
    return ["".join(merge) for merge in merges]


# ---------------------------------------------------------------- Gemma

_HTML_IN_ONE = (
    "table caption thead tbody tfoot tr th td /table /caption /thead /tbody /tfoot /tr /th /td "
    "h1 h2 h3 h4 h5 h6 blockquote /h1 /h2 /h3 /h4 /h5 /h6 /blockquote "
    "strong em b i u s sub sup code /strong /em /b /i /u /s /sub /sup /code"
)
_HTML = _HTML_IN_ONE.split()
_MORE_HTML_IN_ONE = (
    "a html body img span bbox ul li div iframe footer "
    "/a /html /body /img /span /bbox /ul /li /div /iframe /footer"
)
_MORE_HTML = _MORE_HTML_IN_ONE.split()
_LINES = ["\n" * count for count in range(1, 32)]
_SPACES = [SPACE * count for count in range(2, 32)]
_TABS = ["\t" * count for count in range(1, 32)]
_TURNS = ("<start_of_turn>", "<end_of_turn>")
_IMAGE = ("<start_of_image>", "<end_of_image>")


def _gemma(own: Sequence[str], html: Sequence[str]) -> list[Added]:
    """Return the tokens from 0 to the bytes; ``own`` are those before the unused ones."""
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", *own, *(f"<unused{i}>" for i in range(99))]
    tokens += [*_TURNS, *_LINES, *_SPACES, *(f"<{name}>" for name in html)]
    special = {*tokens[:4], *_TURNS}
    return [Added(index, token, token in special) for index, token in enumerate(tokens)]


def gemma_2() -> Vocabulary:
    """Make Gemma 2's."""
    return sentence_piece(_gemma(["<mask>", "<2mass>", "[@BOS@]"], _HTML))


def gemma_3() -> Vocabulary:
    """Make Gemma 3's, with six of its 6,143 last unused tokens."""
    last = [*_TABS, *_IMAGE, *(f"<unused{i}>" for i in range(99, 105))]
    leading = _gemma(["<mask>", "[multimodal]"], [*_HTML, *_MORE_HTML])
    return sentence_piece(leading, last, [Added(0, "<image_soft_token>")], _IMAGE)


# ---------------------------------------------------------------- Llama, Mistral

_UNK_BOS_EOS = ("<unk>", "<s>", "</s>")
_MISTRAL_CONTROL = ["[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]"]
_MISTRAL_CONTROL += ["[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"]
_TEKKEN_CONTROL = ["[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"]
_TEKKEN_CONTROL += ["[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "<pad>"]
_TEKKEN_CONTROL += ["[PREFIX]", "[MIDDLE]", "[SUFFIX]"]


def llama_2() -> Vocabulary:
    """Make Llama 2's, and that of Mistral 7B to 0.2."""
    return sentence_piece([Added(index, token) for index, token in enumerate(_UNK_BOS_EOS)])


def mistral_3() -> Vocabulary:
    """Make that of Mistral 7B 0.3, with all its control tokens."""
    control = [*_MISTRAL_CONTROL, *(f"[control_{number}]" for number in range(8, 769))]
    tokens = [*_UNK_BOS_EOS, *control]
    return sentence_piece([Added(index, token) for index, token in enumerate(tokens)])


def tekken() -> Vocabulary:
    """Make that of Mistral Nemo, with all its 1,000 special tokens."""
    named = [*_UNK_BOS_EOS, *_TEKKEN_CONTROL]
    return byte_level([*named, *(f"<SPECIAL_{i}>" for i in range(len(named), 1000))], ())


def llama_3() -> Vocabulary:
    """Make that of Llama 3.1 and 3.2, with all its 256 special tokens."""
    names = ["begin_of_text", "end_of_text", _reserved(0), _reserved(1), "finetune_right_pad_id"]
    names += [_reserved(2), "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag"]
    names += [_reserved(number) for number in range(3, 248)]
    return byte_level((), [Added(place, f"<|{name}|>") for place, name in enumerate(names)])


def _reserved(number: int) -> str:
    return f"reserved_special_token_{number}"


# ---------------------------------------------------------------- Qwen, SmolLM

_QWEN_SPECIAL_IN_ONE = (
    "endoftext im_start im_end object_ref_start object_ref_end box_start box_end quad_start "
    "quad_end vision_start vision_end vision_pad image_pad video_pad"
)
QWEN_SPECIAL = _QWEN_SPECIAL_IN_ONE.split()
_QWEN_PLAIN = ["<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>"]
_QWEN_PLAIN += ["<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"]
_QWEN_3 = ["<tool_response>", "</tool_response>", "<think>", "</think>"]
_SMOLLM_2_IN_ONE = (
    "<|endoftext|> <|im_start|> <|im_end|> <repo_name> <reponame> <file_sep> <filename> "
    "<gh_stars> <issue_start> <issue_comment> <issue_closed> <jupyter_start> <jupyter_text> "
    "<jupyter_code> <jupyter_output> <jupyter_script> <empty_output>"
)
_SMOLLM_2 = _SMOLLM_2_IN_ONE.split()


def _qwen(plain: Sequence[str]) -> Vocabulary:
    special = [f"<|{name}|>" for name in QWEN_SPECIAL]
    tokens = [*special, *plain]
    return byte_level((), [Added(i, token, token in special) for i, token in enumerate(tokens)])


def qwen_2() -> Vocabulary:
    """Make Qwen2.5's."""
    return _qwen(_QWEN_PLAIN)


def qwen_3() -> Vocabulary:
    """Make Qwen3's."""
    return _qwen([*_QWEN_PLAIN, *_QWEN_3])


def smollm_2() -> Vocabulary:
    """Make SmolLM2's."""
    return byte_level(_SMOLLM_2, ())
