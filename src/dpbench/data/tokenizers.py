"""Tokenizers: found, checked, and saved as files that Megatron loads without the hub."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from dpbench.data.encode import (
    Encode,
    cuts_before_spaces,
    sentencepiece_encoder,
    special_frame,
    tokenizers_encoder,
)
from dpbench.data.manifest import hash_tokenizer
from dpbench.errors import SetupError

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

END_OF_DOCUMENT = "<|endoftext|>"
DEMO_VOCABULARY = 4096
HUGGING_FACE = "HuggingFaceTokenizer"
SENTENCE_PIECE = "SentencePieceTokenizer"
MODEL_FILE = "tokenizer.model"
NAMED_TOKENS = ("bos_token eos_token unk_token sep_token pad_token cls_token mask_token").split()


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """A tokenizer on disk, ready for Megatron."""

    type: str
    """Value of Megatron's --tokenizer-type."""
    path: Path
    """Value of --tokenizer-model: a folder, or a SentencePiece model."""
    size: int
    """Ids, with added tokens, without padding."""
    end_of_document: int | None
    """Id that Megatron appends with --append-eod; None when the tokenizer has none."""
    sha256: str | None
    """Over its files; None for a tokenizer that prep did not save."""
    cuts_before_spaces: bool
    """Whether a long text may be encoded in parts."""
    tokenizer: Tokenizer | None = field(default=None, repr=False, compare=False)
    """The one that was just saved, so that it need not be read again."""

    def require_end(self) -> int:
        """Return the end-of-document id. Errors: SetupError when there is none."""
        if self.end_of_document is None:
            hint = "name an eos_token in its tokenizer_config.json, or use --no-append-eod"
            raise SetupError(f"{self.path}: the tokenizer has no end-of-text token", hint=hint)
        return self.end_of_document


def open_encoder(vocabulary: Vocabulary, *, special_tokens: bool) -> Encode:
    """Return the function that encodes with a saved tokenizer."""
    if vocabulary.type == SENTENCE_PIECE:
        return sentencepiece_encoder(load_sentencepiece(vocabulary.path))
    tokenizer = vocabulary.tokenizer or load_file(vocabulary.path / "tokenizer.json")
    return tokenizers_encoder(tokenizer, special_tokens=special_tokens)


def vocabulary_of(path: Path | None, kind: str) -> Vocabulary | None:
    """Return the tokenizer that stands beside a dataset, None where there is none."""
    if path is None:
        return None
    if kind == SENTENCE_PIECE:
        return describe_sentencepiece(path, load_sentencepiece(path))
    if not (path / "tokenizer.json").is_file() and (path / "vocab.json").is_file():
        tokenizer = gpt2_bpe(path / "vocab.json", path / "merges.txt")
    else:
        tokenizer = load_file(path / "tokenizer.json")
    return describe_tokenizer(path, tokenizer, named_tokens(path))


def decode(vocabulary: Vocabulary, ids: list[int]) -> str:
    """Return the text of some ids, special tokens included."""
    if vocabulary.tokenizer is None:
        text: str = load_sentencepiece(vocabulary.path).decode(ids)
        return text
    return str(vocabulary.tokenizer.decode(ids, skip_special_tokens=False))


def save_path(path: Path, folder: Path) -> Vocabulary:
    """Save the tokenizer of a folder, of a tokenizer.json or of a SentencePiece model.

    Errors: SetupError when it is none of these, or damaged.
    """
    if path.suffix == ".model":
        return save_sentencepiece(path, folder)
    if path.name == "tokenizer.json":
        path = path.parent
    file = path / "tokenizer.json"
    if file.is_file():
        return save_tokenizer(load_file(file), folder, named_tokens(path))
    if (path / "vocab.json").is_file():
        tokenizer = gpt2_bpe(path / "vocab.json", path / "merges.txt")
        return save_tokenizer(tokenizer, folder, named_tokens(path))
    if (path / MODEL_FILE).is_file():
        return save_sentencepiece(path / MODEL_FILE, folder)
    hint = (
        "give a folder with tokenizer.json (transformers: save_pretrained writes one), with "
        "vocab.json and merges.txt, or a SentencePiece .model"
    )
    raise SetupError(f"{path}: no tokenizer in it", hint=hint)


def load_file(file: Path) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json. Errors: SetupError when it is damaged."""
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception for every malformed file
        hint = "copy the file again, or save it with a current version of transformers"
        raise SetupError(f"{file}: {str(error)[:200]}", hint=hint) from None
    tokenizer.no_truncation()  # a document is encoded whole
    tokenizer.no_padding()
    return tokenizer


def named_tokens(folder: Path) -> dict[str, str]:
    """Return the special tokens that the files beside a tokenizer.json name, by their role."""
    named: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        for role, token in read_settings(folder / name).items():
            text = token.get("content") if isinstance(token, dict) else token
            if role in NAMED_TOKENS and isinstance(text, str):
                named[role] = text
    return named


def read_settings(file: Path) -> dict[str, Any]:
    """Return a JSON object, empty when there is no such file. Errors: SetupError."""
    try:
        settings = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        hint = "mend the file, or remove it"
        raise SetupError(f"{file}: broken JSON: {error}", hint=hint) from None
    return settings if isinstance(settings, dict) else {}


def save_tokenizer(
    tokenizer: Tokenizer, folder: Path, named: Mapping[str, str] | None = None
) -> Vocabulary:
    """Write the folder that `AutoTokenizer.from_pretrained` reads offline."""
    roles = dict(named or {})
    if "eos_token" not in roles and tokenizer.token_to_id(END_OF_DOCUMENT) is not None:
        defaults = dict.fromkeys(("bos_token", "eos_token", "unk_token"), END_OF_DOCUMENT)
        roles = defaults | roles
    tokenizer.add_special_tokens(list(dict.fromkeys(roles.values())))
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 10**9, **roles}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    made = describe_tokenizer(folder, tokenizer, roles)
    return replace(made, sha256=hash_tokenizer(folder))


def describe_tokenizer(folder: Path, tokenizer: Tokenizer, roles: Mapping[str, str]) -> Vocabulary:
    """Return what Megatron will see of a tokenizer's folder."""
    end = roles.get("eos_token") or roles.get("sep_token")
    return Vocabulary(
        type=HUGGING_FACE,
        path=folder,
        size=tokenizer.get_vocab_size(),
        end_of_document=tokenizer.token_to_id(end) if end else None,
        sha256=None,
        cuts_before_spaces=cuts_before_spaces(tokenizer) and special_frame(tokenizer) == ([], []),
        tokenizer=tokenizer,
    )


def save_sentencepiece(model: Path, folder: Path) -> Vocabulary:
    """Copy a SentencePiece model. Errors: SetupError when it is not one."""
    processor = load_sentencepiece(model)
    folder.mkdir()
    shutil.copyfile(model, folder / MODEL_FILE)
    made = describe_sentencepiece(folder / MODEL_FILE, processor)
    return replace(made, sha256=hash_tokenizer(folder))


def describe_sentencepiece(model: Path, processor: SentencePieceProcessor) -> Vocabulary:
    """Return what Megatron will see of a SentencePiece model."""
    end = int(processor.eos_id())
    return Vocabulary(
        type=SENTENCE_PIECE,
        path=model,
        size=int(processor.get_piece_size()),
        end_of_document=end if end >= 0 else None,
        sha256=None,
        cuts_before_spaces=False,
    )


def load_sentencepiece(model: Path) -> SentencePieceProcessor:
    """Return the processor of a model file. Errors: SetupError when it is not one."""
    from sentencepiece import SentencePieceProcessor

    try:
        return SentencePieceProcessor(model_proto=model.read_bytes())
    except (OSError, RuntimeError) as error:
        hint = "give a SentencePiece .model file"
        reason = error.strerror if isinstance(error, OSError) else "not a SentencePiece model"
        raise SetupError(f"{model}: {reason}", hint=hint) from None


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
        tokenizer = byte_level(models.BPE.from_file(str(vocab_file), str(merge_file)))
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
