"""A model small enough to make on the spot: a Llama's configuration and a tokenizer.

There are no weights in the folder: vLLM draws random ones when told ``--load-format dummy``. The
answers are noise, but prefill, batching and the prefix cache are those of any Llama.
"""

import json
import random
from pathlib import Path
from typing import Any

MAX_MODEL_LEN = 8192

_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aeiou"
WORDS = tuple(a + v + b for a in _CONSONANTS for v in _VOWELS for b in _CONSONANTS)
"""Words that are one token each: with the space before it 4 bytes, like English on average."""

_SCHEMA_WORDS = (
    *("type", "function", "name", "description", "parameters", "properties", "object"),
    *("string", "required", "arguments"),
)
_TEMPLATE_WORDS = (
    *("You", "may", "call", "functions", "Each", "of", "these", "lines", "describes", "one"),
    *("To", "write", "its", "and", "as"),
)
_MARKUP = (
    *(' {"', ' "', ' ["', '{"', '":', '",', '"}', '"},', '"}}', '"}},', '"}}}', '"]', '"]}'),
    *('"]}}', '["', "},", "}}", "<", "</", "><"),
)
_SPACED = (*WORDS, *_SCHEMA_WORDS, *_TEMPLATE_WORDS)
"""One token each with the space before it, as in any text."""
_UNSPACED = (*_SCHEMA_WORDS, *_MARKUP)
"""One token each as they stand: JSON has nearly as many bytes to a token as text, as elsewhere."""

_END = "<|end|>"
_SPECIAL = (
    _END,
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<tool_call>",
    "</tool_call>",
)
MESSAGE_TOKENS = 2
"""What the chat template adds to a message: its role and its end."""
GENERATION_TOKENS = 1
"""What it adds at the end of a chat: the role of the answer."""


def words(rng: random.Random, count: int) -> str:
    """Text of ``count`` tokens, of ``4 * count - 1`` characters."""
    return " ".join(rng.choices(WORDS, k=count))


def chat_template() -> str:
    """The model's chat template, in Jinja: with tools, calls, results and thoughts.

    ``tools_first`` in a request's ``chat_template_kwargs`` moves the tools before the system
    message.
    """
    return Path(__file__).with_name("vllm_template.jinja").read_text(encoding="utf-8")


def write_model(folder: Path) -> Path:
    """Write the model's folder, which is made where it is missing, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary, merges = _vocabulary()
    files = {
        "config.json": _config(len(vocabulary)),
        "tokenizer.json": _tokenizer(vocabulary, merges),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": _END,
            "pad_token": _END,
            "model_max_length": MAX_MODEL_LEN,
            "chat_template": chat_template(),
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
    return folder


def _config(vocabulary: int) -> dict[str, Any]:
    """Hugging Face's ``LlamaConfig``.

    Sized so that one core prefills 4,000 tokens in 2 to 4 s, some 30 times what it needs when
    they are cached; a token takes 8 KiB of KV cache (4 layers x 4 heads x 64 x K and V x 4 B).
    """
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": -(-vocabulary // 64) * 64,
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "hidden_act": "silu",
        "max_position_embeddings": MAX_MODEL_LEN,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "dtype": "float32",
    }


def _vocabulary() -> tuple[dict[str, int], list[list[str]]]:
    """Tokens and their ids, and the merges of a byte-level BPE that make each word one token.

    Every merge adds one letter to a word's beginning, and those of a word that stands earlier in
    the list come first. Words with a space never compete, since it is in no other place: their
    text becomes the longest beginnings that the vocabulary has, and single bytes after them.
    """
    symbols = _byte_symbols()
    texts = [*(" " + word for word in _SPACED), *_UNSPACED]
    spelt = ["".join(symbols[byte] for byte in text.encode()) for text in texts]
    starts = dict.fromkeys(text[:end] for text in spelt for end in range(2, len(text) + 1))
    tokens = [*_SPECIAL, *symbols, *starts]
    return {token: number for number, token in enumerate(tokens)}, [
        [start[:-1], start[-1]] for start in starts
    ]


def _byte_symbols() -> list[str]:
    """The printable character that stands for each byte in GPT-2's byte-level BPE."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_in = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(stand_in)) for byte in range(256)]


def _tokenizer(vocabulary: dict[str, int], merges: list[list[str]]) -> dict[str, Any]:
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": vocabulary[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in _SPECIAL
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }
