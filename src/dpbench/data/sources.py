"""What a person names -> the files to read."""

from __future__ import annotations

import ast
import glob
import hashlib
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpbench.data.hub import Repository, fetch, list_files
from dpbench.data.streams import BLOCK, COMPRESSED, FORMATS, Format, Input
from dpbench.errors import SetupError

PYTHON_DOCS = "python-docs"
WIKITEXT = "Salesforce/wikitext"
WIKITEXT_FOLDERS = {
    "wikitext-2": "wikitext-2-v1",
    "wikitext-2-raw": "wikitext-2-raw-v1",
    "wikitext-103": "wikitext-103-v1",
    "wikitext-103-raw": "wikitext-103-raw-v1",
}
PARTS = ("train", "validation", "test")
READABLE = (".parquet", ".jsonl", ".json", ".txt")


def local_inputs(names: Sequence[str], kind: Format | None = None) -> list[Input]:
    """Return the files that paths and patterns name, in that order; `-` is standard input.

    kind: the format of all of them; told by the suffix when left out. Errors: SetupError.
    """
    inputs = []
    for path in (path for name in names for path in expand(name)):
        if path == "-":
            inputs.append(Input(path="-", format=kind or "jsonl"))
        else:
            inputs.append(file_input(path, kind))
    return inputs


def expand(name: str) -> list[str]:
    """Return the files that a pattern matches, sorted; any other name as it is."""
    if name == "-" or Path(name).exists() or not glob.has_magic(name):
        return [name]
    found = sorted(glob.glob(name, recursive=True))  # noqa: PTH207, the pattern may be absolute
    if found := [path for path in found if Path(path).is_file()]:
        return found
    raise SetupError(f"{name}: no file matches", hint="check the pattern, in quotes")


def file_input(path: str, kind: Format | None = None) -> Input:
    """Return a file with size and hash. Errors: SetupError when it is no readable file."""
    hint = "give readable .tokens, .txt, .jsonl or .parquet files as --input"
    if Path(path).is_dir():
        hint = f"name the files in it: --input '{path.rstrip('/')}/*.jsonl'"
        raise SetupError(f"{path}: is a folder", hint=hint)
    suffixes = [s for s in Path(path).suffixes if s not in COMPRESSED]
    found = kind or FORMATS.get(suffixes[-1] if suffixes else "", "txt")
    if Path(path).exists() and not Path(path).is_file():
        return Input(path=path, format=found)  # a pipe, which can be read once
    try:
        with Path(path).open("rb") as file:
            digest = hashlib.sha256()
            size = 0
            while block := file.read(BLOCK):
                digest.update(block)
                size += len(block)
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}", hint=hint) from None
    return Input(path=path, format=found, bytes_total=size, sha256=digest.hexdigest())


def dataset_inputs(name: str, parts: Sequence[str], downloads: Path) -> list[Input]:
    """Return the files of a dataset on the hub: wikitext-2 and the like, or owner/name[/folder].

    Errors: SetupError when there is none, or the hub cannot be reached.
    """
    if folder := WIKITEXT_FOLDERS.get(name):
        repository = Repository(name=WIKITEXT, kind="dataset", downloads=downloads)
        files = [file for part in parts for file in wikitext_files(folder, part)]
    else:
        owner, _, rest = name.partition("/")
        title, _, folder = rest.partition("/")
        if not owner or not title:
            hint = f"give {', '.join(WIKITEXT_FOLDERS)}, or owner/name of a dataset on the hub"
            raise SetupError(f"no dataset is named {name!r}", hint=hint)
        repository = Repository(name=f"{owner}/{title}", kind="dataset", downloads=downloads)
        files = choose_files(list_files(repository), name, folder, parts)
    return [file_input(str(path)) for path in fetch(repository, files)]


def wikitext_files(folder: str, part: str) -> list[str]:
    """Return the parquet files of a part of WikiText. Errors: SetupError for an unknown part."""
    if part not in PARTS:
        raise SetupError(f"WikiText has no part {part!r}", hint=f"give {', '.join(PARTS)}")
    count = 2 if part == "train" and folder.startswith("wikitext-103") else 1
    return [f"{folder}/{part}-{number:05}-of-{count:05}.parquet" for number in range(count)]


def choose_files(files: Sequence[str], name: str, folder: str, parts: Sequence[str]) -> list[str]:
    """Return the readable files of the parts, in the order of the parts. Errors: SetupError."""
    plain = {file: Path(file.removesuffix(Path(file).suffix) if file.endswith(COMPRESSED) else file)
             for file in files}  # fmt: skip
    readable = [f for f in files if plain[f].suffix in READABLE and f.startswith(folder)]
    chosen = [f for part in parts for f in readable if part in f.removeprefix(folder)]
    if not chosen:
        hint = f"files there: {', '.join(readable[:8]) or 'none that prep reads'}; choose by --part"
        raise SetupError(f"{name}: no file of {', '.join(parts)}", hint=hint)
    chosen = [file for file in chosen if plain[file].suffix == ".parquet"] or chosen
    folders = sorted({str(Path(file).parent) for file in chosen})
    if len(folders) > 1:
        hint = f"choose one: --dataset {name}/{folders[0]}; folders: {', '.join(folders[:12])}"
        raise SetupError(f"{name}: its files are in {len(folders)} folders", hint=hint)
    return chosen


def python_documentation() -> Iterator[str]:
    """Yield the English prose that every CPython brings: its language reference and docstrings.

    Source: `pydoc_data.topics`, one document a topic, and the docstrings of the standard library's
    top-level modules, one document a module. About 1 MB; the same on each call.
    """
    from pydoc_data.topics import topics

    yield from dict.fromkeys(topics.values())
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        nodes = ast.walk(ast.parse(path.read_bytes()))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts = [ast.get_docstring(node) for node in nodes if isinstance(node, documented)]
        if text := "\n\n".join(filter(None, texts)):
            yield text
