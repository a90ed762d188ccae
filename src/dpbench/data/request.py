"""What to prepare: the documents and the tokenizer that a person, or else the config, names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast, get_args

from dpbench.config import Data
from dpbench.data import sources, tokenizers
from dpbench.data.hub import Repository, fetch, list_files
from dpbench.data.jobs import Job, JsonLines, Recipe, Texts, read_lines
from dpbench.data.reading import grouped, read_jobs
from dpbench.data.streams import Format, Input
from dpbench.data.tokenizers import Vocabulary
from dpbench.errors import SetupError

DOWNLOADS = "downloads"
TRAINED = "trained-bpe"
SHORT_NAMES = {"gpt2": "openai-community/gpt2"}
TOKENIZER_FILES = (
    "tokenizer.json tokenizer_config.json special_tokens_map.json vocab.json merges.txt"
).split()


@dataclass(frozen=True, kw_only=True)
class PrepareRequest:
    """What to prepare. What is left out comes from the configuration."""

    output: Path
    inputs: tuple[str, ...] = ()
    """Paths, patterns, or - for standard input."""
    format: Format | None = None
    dataset: str | None = None
    parts: tuple[str, ...] = ("train",)
    tokenizer: str | None = None
    vocab_file: Path | None = None
    merge_file: Path | None = None
    recipe: Recipe = field(default_factory=Recipe)
    workers: int = 0
    """Processes; 0: one a core."""
    save_jsonl: bool = False
    force: bool = False

    @property
    def downloads(self) -> Path:
        """Where files fetched by hand are looked for."""
        return self.output.parent / DOWNLOADS


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where documents come from: files, or a function that yields texts."""

    name: str
    inputs: list[Input]
    texts: Callable[[], Iterator[str]] | None = None

    def jobs(self, keys: tuple[str, ...], *, segments: bool) -> Iterator[Job]:
        """Yield the documents."""
        if self.texts:
            return grouped(self.texts())
        return read_jobs(self.inputs, columns=keys, segments=segments)


def check_format(name: str | None) -> Format | None:
    """Return the format that a person names. Errors: SetupError for an unknown one."""
    if name is None:
        return None
    for known in get_args(Format):
        if name == known:
            return cast(Format, known)
    hint = f"give one of: {', '.join(get_args(Format))}"
    raise SetupError(f"--format {name}: unknown", hint=hint)


def find_source(data: Data, request: PrepareRequest) -> Source:
    """Return the named inputs, else the named dataset, else the configuration's source."""
    if request.inputs and request.dataset:
        raise SetupError("--input and --dataset", hint="give one of the two")
    if request.inputs:
        source = Source(
            name=" ".join(request.inputs),
            inputs=sources.local_inputs(request.inputs, request.format),
        )
        check_keys(source, request.recipe)
        return source
    name = request.dataset or data.source
    if name == sources.PYTHON_DOCS:
        return Source(name=name, inputs=[], texts=sources.python_documentation)
    if name:
        inputs = sources.dataset_inputs(name, request.parts, request.downloads)
        return Source(name=name, inputs=inputs)
    hint = "name the text: dpbench prep --input wiki.train.tokens"
    raise SetupError("this configuration brings no text of its own", hint=hint)


def check_keys(source: Source, recipe: Recipe) -> None:
    """Refuse several keys for plain text, which has none. Errors: SetupError."""
    plain = [item.name for item in source.inputs if item.format in ("txt", "tokens")]
    if plain and len(recipe.keys) > 1:
        hint = "give JSON lines or parquet, or one key"
        raise SetupError(f"{plain[0]}: plain text has no keys", hint=hint)


def save_vocabulary(
    data: Data, request: PrepareRequest, source: Source, folder: Path
) -> tuple[Vocabulary, str]:
    """Save the tokenizer that is asked for; return it and where it came from.

    Errors: SetupError when there is none, or it is unusable.
    """
    if request.vocab_file and request.merge_file:
        tokenizer = tokenizers.gpt2_bpe(request.vocab_file, request.merge_file)
        label = f"{request.vocab_file} {request.merge_file}"
        return tokenizers.save_tokenizer(tokenizer, folder), label
    if request.vocab_file or request.merge_file:
        hint = "give both --vocab-file and --merge-file"
        raise SetupError("a GPT-2 vocabulary is two files", hint=hint)
    name = request.tokenizer or data.tokenizer
    if not name:
        hint = "give --tokenizer FOLDER, or --vocab-file and --merge-file of GPT-2"
        raise SetupError("no tokenizer", hint=hint)
    if name == TRAINED:
        tokenizer = tokenizers.train_bpe(training_texts(source, request.recipe))
        return tokenizers.save_tokenizer(tokenizer, folder), name
    if Path(name).exists():
        return tokenizers.save_path(Path(name), folder), name
    return tokenizers.save_path(fetch_tokenizer(name, request.downloads), folder), name


def training_texts(source: Source, recipe: Recipe) -> Iterator[str]:
    """Yield the texts of a source to train a tokenizer on. Errors: SetupError."""
    if pipes := [item.name for item in source.inputs if item.sha256 is None]:
        hint = "save the text to a file, or name a tokenizer"
        raise SetupError(f"{pipes[0]} cannot be read twice", hint=hint)
    for job in source.jobs(recipe.keys, segments=False):
        if isinstance(job, Texts):
            yield from job.texts
        else:
            yield from json_texts(job, recipe)


def json_texts(job: JsonLines, recipe: Recipe) -> Iterator[str]:
    """Yield the texts under all keys of JSON lines."""
    for values in read_lines(job, recipe.keys):
        for value in values:
            yield from value if isinstance(value, list) else [value]


def fetch_tokenizer(name: str, downloads: Path) -> Path:
    """Return a folder with a tokenizer's files from the hub. Errors: SetupError."""
    if name not in SHORT_NAMES and (name.count("/") != 1 or name.startswith((".", "/"))):
        hint = "give a folder, a .model file, owner/name of a model on the hub, or gpt2"
        raise SetupError(f"no tokenizer at {name}", hint=hint)
    repository = Repository(name=SHORT_NAMES.get(name, name), kind="model", downloads=downloads)
    known = ["vocab.json", "merges.txt"] if name in SHORT_NAMES else list_files(repository)
    files = [file for file in TOKENIZER_FILES if file in known]
    if not {"tokenizer.json", "vocab.json"} & set(files):
        files = [file for file in known if file.endswith(".model")][:1]
        if not files:
            hint = "save it once with transformers: AutoTokenizer.from_pretrained, save_pretrained"
            raise SetupError(f"{name}: no tokenizer.json among its files", hint=hint)
        return fetch(repository, files)[0]
    return fetch(repository, files)[0].parent
