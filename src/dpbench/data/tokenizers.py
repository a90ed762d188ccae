"""Tokenizer folders that Megatron's HuggingFaceTokenizer loads without the hub."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from dpbench.errors import SetupError

END_OF_DOCUMENT = "<|endoftext|>"
DEMO_VOCABULARY = 4096


def train_bpe(documents: Iterable[str], vocab_size: int = DEMO_VOCABULARY) -> Tokenizer:
    """Train a byte-level BPE; the same documents give the same tokenizer."""
    tokenizer = byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_DOCUMENT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def gpt2_bpe(vocab_file: Path, merge_file: Path) -> Tokenizer:
    """Return the byte-level BPE of a GPT-2 vocabulary and its merges.

    Errors: SetupError when the files are not such a pair.
    """
    hint = "give GPT-2's vocab.json as --vocab-file and merges.txt as --merge-file"
    for path in (vocab_file, merge_file):
        if not path.is_file():
            raise SetupError(f"{path}: no such file", hint=hint)
    try:
        vocabulary, merges = models.BPE.read_file(str(vocab_file), str(merge_file))
        tokenizer = byte_level(models.BPE(vocabulary, merges))
    except Exception as error:  # the library raises plain Exception for every malformed file
        raise SetupError(f"{vocab_file}, {merge_file}: {error}", hint=hint) from None
    if tokenizer.token_to_id(END_OF_DOCUMENT) is None:
        raise SetupError(f"{vocab_file}: no {END_OF_DOCUMENT} in the vocabulary", hint=hint)
    tokenizer.add_special_tokens([END_OF_DOCUMENT])
    return tokenizer


def byte_level(model: models.BPE) -> Tokenizer:
    """Put GPT-2's splitting into words and bytes around a BPE model."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the folder that `AutoTokenizer.from_pretrained` reads offline."""
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    special = dict.fromkeys(("bos_token", "eos_token", "unk_token"), END_OF_DOCUMENT)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 10**9, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
