"""What prep reads: kinds of files, compression, standard input, the hub."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from dpbench.data.jobs import Recipe
from dpbench.data.reading import BLOCK
from dpbench.errors import SetupError
from make_data import (
    DOCUMENTS,
    PROSE,
    WIKI,
    byte_level_folder,
    call,
    library_ids,
    prep,
    read_pair,
    sequences,
    write_lines,
)

EOD = 0


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_level_folder(tmp_path_factory.mktemp("tokenizer") / "small")


def expected(tokenizer: Path, texts: list[str]) -> list[list[int]]:
    return [[*ids, EOD] for ids in library_ids(tokenizer, texts) if ids]


ARTICLES = [WIKI[: WIKI.index(" \n = The Lock")] + " \n", WIKI[WIKI.index(" = The Lock") :]]


@pytest.mark.parametrize(
    ("name", "content", "documents"),
    [
        pytest.param("a.tokens", WIKI.encode(), ARTICLES, id="articles of WikiText"),
        pytest.param("a.tokens", WIKI.replace("\n", "\r\n").encode(), ARTICLES, id="CRLF"),
        pytest.param("a.tokens", b"\xef\xbb\xbf" + WIKI.encode(), ARTICLES, id="byte order mark"),
        pytest.param("a.txt", PROSE.encode(), [PROSE], id="a text is a document"),
        pytest.param("a", f"{PROSE}\r\n".encode(), [f"{PROSE}\n"], id="no suffix"),
        pytest.param("a.txt", b"\rboat\r\r\n", ["\rboat\r\n"], id="a lone CR is text"),
        pytest.param("a.json", b'{"text": "boat"}\n\n {"text": "gate"}', ["boat", "gate"],
                     id="JSON lines, a blank one, no end of line"),
        pytest.param("a.jsonl", b'\xef\xbb\xbf{"text": "boat"}\r\n', ["boat"], id="JSON after BOM"),
        pytest.param("a.jsonl", b'{"text": "\\ud83d\\udea2"}', ["\U0001f6a2"], id="a pair"),
        pytest.param("a.txt.gz", gzip.compress(b"boat") + gzip.compress(b"gate"), ["boatgate"],
                     id="gzip, two members"),
        pytest.param("a.tokens.bz2", bz2.compress(WIKI.encode()), ARTICLES, id="bzip2"),
        pytest.param("a.tokens.xz", lzma.compress(WIKI.encode()), ARTICLES, id="xz"),
        pytest.param("a.txt.zst", zstandard.compress(b"boat") + zstandard.compress(b"gate"),
                     ["boatgate"], id="zstd, two frames"),
    ],
)  # fmt: skip
def test_each_kind_of_file_gives_its_documents(
    name: str, content: bytes, documents: list[str], tmp_path: Path, tokenizer: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    prep(tmp_path / "out", tmp_path / name, tokenizer=tokenizer)
    assert sequences(tmp_path / "out") == expected(tokenizer, documents)


def test_inputs_keep_their_order_and_patterns_are_sorted(tmp_path: Path, tokenizer: Path) -> None:
    for name in ("b.txt", "a.txt", "z.txt"):
        (tmp_path / name).write_text(f"the {name}")
    prep(tmp_path / "out", tmp_path / "z.txt", f"{tmp_path}/[ab].txt", tokenizer=tokenizer)
    texts = ["the z.txt", "the a.txt", "the b.txt"]
    assert sequences(tmp_path / "out") == expected(tokenizer, texts)


def test_standard_input_is_json_lines_or_what_is_said(tmp_path: Path, tokenizer: Path) -> None:
    out = tmp_path / "out"
    words = ("prep", "-i", "-", "-o", out, "--tokenizer", tokenizer)
    done = call(*words, stdin=b'{"text": "boat"}\n')
    assert (done.returncode, sequences(out)) == (0, expected(tokenizer, ["boat"]))
    done = call(*words, "--format", "txt", stdin=b"the gate")
    assert (done.returncode, sequences(out)) == (0, expected(tokenizer, ["the gate"]))
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["inputs"][0]["sha256"] == hashlib.sha256(b"the gate").hexdigest()
    assert manifest["inputs"][0]["size"] == 8


def test_a_pipe_is_read_once_and_never_taken_for_unchanged(tmp_path: Path, tokenizer: Path) -> None:
    for text in ("boat", "boat", "gate"):
        os.mkfifo(tmp_path / "pipe.txt")
        writer = threading.Thread(target=(tmp_path / "pipe.txt").write_text, args=(text,))
        writer.start()
        made = prep(tmp_path / "out", tmp_path / "pipe.txt", tokenizer=tokenizer)
        writer.join()
        assert made.made
        assert made.manifest.inputs[0].sha256 == hashlib.sha256(text.encode()).hexdigest()
        assert sequences(tmp_path / "out") == expected(tokenizer, [text])
        (tmp_path / "pipe.txt").unlink()


def test_names_that_are_no_utf_8_or_look_like_patterns(tmp_path: Path, tokenizer: Path) -> None:
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/na\xefve [1].txt"))
    file.write_text("boat")
    for name in ("out [a]*", "sp ace"):
        for made in (True, False):
            words = ("prep", "-i", file, "-o", tmp_path / name, "--tokenizer", tokenizer)
            done = call(*words)
            assert done.returncode == 0, done.stderr
            assert ("unchanged" in done.stdout) is not made
        assert sequences(tmp_path / name) == expected(tokenizer, ["boat"])


def test_a_long_text_in_many_portions_is_one_document(tmp_path: Path, tokenizer: Path) -> None:
    text = f"{PROSE}\r\n  {DOCUMENTS[3]} " * (4 * BLOCK // 100)
    assert len(text) > 3 * BLOCK
    (tmp_path / "long.txt").write_bytes(text.encode())
    prep(tmp_path / "out", tmp_path / "long.txt", tokenizer=tokenizer)
    write_lines(tmp_path / "long.jsonl", [text.replace("\r\n", "\n")])
    prep(tmp_path / "lines" / "out", tmp_path / "long.jsonl", tokenizer=tokenizer)
    assert read_pair(tmp_path / "out") == read_pair(tmp_path / "lines" / "out")


def write_parquet(path: Path, **columns: list[str | None]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path, row_group_size=3)
    return path


def wiki_rows(text: str) -> list[str | None]:
    """Return the rows of the hub's copy, which has empty ones for blank lines."""
    return [line if line.strip() else "" for line in text.splitlines(keepends=True)]


def test_rows_of_parquet_are_documents(tmp_path: Path, tokenizer: Path) -> None:
    file = write_parquet(tmp_path / "a.parquet", text=["boat", None, "", "gate"] * 4)
    prep(tmp_path / "out", file, tokenizer=tokenizer)
    assert sequences(tmp_path / "out") == expected(tokenizer, ["boat", "gate"] * 4)


def test_columns_of_parquet_become_datasets(tmp_path: Path, tokenizer: Path) -> None:
    file = write_parquet(tmp_path / "a.parquet", body=["boat", "gate"], title=["A", "B"])
    recipe = Recipe(keys=("body", "title"))
    made = prep(tmp_path / "out", file, tokenizer=tokenizer, recipe=recipe)
    assert [pair.prefix for pair in made.manifest.pairs] == [
        "out_body_document",
        "out_title_document",
    ]


def test_wikitext_from_parquet_is_wikitext_from_tokens(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "wiki.tokens").write_text(WIKI)
    prep(tmp_path / "a" / "out", tmp_path / "wiki.tokens", tokenizer=tokenizer)
    file = write_parquet(tmp_path / "wiki.parquet", text=wiki_rows(WIKI))
    prep(tmp_path / "b" / "out", file, tokenizer=tokenizer)
    assert read_pair(tmp_path / "a" / "out") == read_pair(tmp_path / "b" / "out")


BAD = {
    "no such file": (None, None, "No such file"),
    "binary.txt": (b"boat\0gate", None, "NUL bytes"),
    "latin.txt": ("na\u00efve".encode("latin-1"), None, "not UTF-8 text (byte 0xef)"),
    "latin.jsonl": (b'{"text": "a"}\n{"text": "\xef"}', None, ":2: not UTF-8"),
    "broken.jsonl": (b'{"text": "a"}\n\n{"text": "b"', None, ":3: broken JSON"),
    "list.json": (b'[{"text": "a"}]', None, ":1: JSON, but not an object"),
    "other key.jsonl": (b'{"body": "a"}', "keys of this line: body", ":1: no key 'text'"),
    "number.jsonl": (b'{"text": 7}', None, ":1: 'text' is not text"),
    "digits.jsonl": (b'{"text": "a", "n": %s}' % (b"1" * 5000), None, ":1: broken JSON: Exceeds"),
    "deep.jsonl": (b'{"text": %s' % (b"[" * 200_000), None, ":1: JSON nested too deeply"),
    "surrogate.jsonl": (b'{"text": "a \\ud800 b"}', None, ":1: 'text' has a lone surrogate"),
    "empty.txt": (b"", None, "the input has no text"),
    "blank.tokens": (b" \n \n", None, "the input has no text"),
    "empty.jsonl": (b'{"text": ""}\n', None, "the input has no text"),
    "cut.txt.gz": (gzip.compress(b"boat" * 999)[:-9], None, "damaged or cut short"),
    "not.txt.gz": (b"boat", None, "damaged or cut short"),
    "cut.txt.xz": (lzma.compress(b"boat" * 999)[:-9], None, "damaged or cut short"),
    "cut.txt.zst": (b"boat", None, "damaged or cut short"),
    "not.txt.bz2": (b"boat", None, "Invalid data stream"),
    "not.parquet": (b"boat", None, "Parquet"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_with_its_place_and_leaves_nothing(
    name: str, tmp_path: Path, tokenizer: Path
) -> None:
    content, hint, message = BAD[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SetupError) as caught:
        prep(tmp_path / "made" / "out", tmp_path / name, tokenizer=tokenizer)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) + caught.value.hint
    assert (hint or "") in caught.value.hint
    assert name in str(caught.value) or "no text" in message
    assert not (tmp_path / "made").exists()


def test_other_misuse_is_told_too(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "a.txt").write_text("boat")
    file = write_parquet(tmp_path / "a.parquet", body=["boat"])
    for words, message in [
        ([tmp_path], "is a folder"),
        ([f"{tmp_path}/*.csv"], "no file matches"),
        ([file], "no column 'text'"),
    ]:
        with pytest.raises(SetupError, match=message):
            prep(tmp_path / "out", *words, tokenizer=tokenizer)
    with pytest.raises(SetupError, match="plain text has no keys"):
        prep(
            tmp_path / "out",
            tmp_path / "a.txt",
            tokenizer=tokenizer,
            recipe=Recipe(keys=("a", "b")),
        )


class Hub(BaseHTTPRequestHandler):
    """Speaks as much of the hub's API as downloads need."""

    files: dict[str, bytes]
    """By path: [datasets/]owner/name/file."""

    def do_HEAD(self) -> None:
        self.answer(head=True)

    def do_GET(self) -> None:
        self.answer()

    def answer(self, *, head: bool = False) -> None:
        path = self.path.partition("?")[0].strip("/")
        if path.startswith("api/"):
            kind, owner, name = path.split("/")[1:4]
            prefix = f"{owner}/{name}/" if kind == "models" else f"datasets/{owner}/{name}/"
            found = {
                p.removeprefix(prefix): c for p, c in self.files.items() if p.startswith(prefix)
            }
            listed = [
                {"type": "file", "path": p, "size": len(c), "oid": "0" * 40}
                for p, c in found.items()
            ]
            body = json.dumps(listed).encode() if found else None
        else:
            body = self.files.get(path.replace("/resolve/main/", "/"))
        self.send_response(404 if body is None else 200)
        if body is None:
            known = any(p.startswith("/".join(path.split("/")[:3])) for p in self.files)
            self.send_header("X-Error-Code", "EntryNotFound" if known else "RepoNotFound")
        self.send_header("ETag", f'"{hashlib.sha1(body or b"").hexdigest()}"')
        self.send_header("X-Repo-Commit", "1" * 40)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        if body and not head:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Be quiet."""


@pytest.fixture
def hub(tmp_path: Path, tokenizer: Path) -> Iterator[dict[str, str]]:
    """Serve a small WikiText, another dataset and a tokenizer; give the environment to use it."""
    files = {}
    for part, text in {"train": WIKI, "test": WIKI.replace("boat", "gate")}.items():
        place = f"datasets/Salesforce/wikitext/wikitext-2-v1/{part}-00000-of-00001.parquet"
        file = write_parquet(tmp_path / "served" / f"{part}.parquet", text=wiki_rows(text))
        files[place] = file.read_bytes()
    rows = write_parquet(tmp_path / "served" / "rows.parquet", body=["boat", "gate"])
    for folder in ("one", "two"):
        files[f"datasets/owner/letters/{folder}/train-0.parquet"] = rows.read_bytes()
    files["datasets/owner/letters/README.md"] = b"letters"
    for file in tokenizer.iterdir():
        files[f"owner/small/{file.name}"] = file.read_bytes()
    handler = type("Served", (Hub,), {"files": files})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        server.shutdown()


def test_wikitext_2_comes_from_the_hub_once(
    tmp_path: Path, tokenizer: Path, hub: dict[str, str]
) -> None:
    out = tmp_path / "data" / "wiki"
    words = ("prep", "-o", out, "--tokenizer", "owner/small", "--part", "test", "--part", "train")
    done = call(*words, environment=hub)
    assert done.returncode == 0, done.stderr
    gates = [text.replace("boat", "gate") for text in ARTICLES]
    assert sequences(out) == expected(tokenizer, [*gates, *ARTICLES])
    offline = hub | {"HF_HUB_OFFLINE": "1"}
    again = call(*words, environment=offline)
    assert (again.returncode, "unchanged" in again.stdout) == (0, True), again.stderr


def test_any_dataset_of_the_hub_by_column_and_folder(
    tmp_path: Path, tokenizer: Path, hub: dict[str, str]
) -> None:
    out = tmp_path / "letters"
    words = ("prep", "-o", out, "--tokenizer", tokenizer, "--text-column", "body", "--dataset")
    done = call(*words, "owner/letters", environment=hub)
    assert done.returncode == 2
    assert "its files are in 2 folders" in done.stderr
    done = call(*words, "owner/letters/two", environment=hub)
    assert done.returncode == 0, done.stderr
    assert (out / "letters_body_document.bin").stat().st_size > 0
    for name, message in [("owner/nothing", "not on the hub"), ("letters", "no dataset is named")]:
        done = call(*words, name, environment=hub)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_a_hub_that_does_not_answer_is_told_with_what_to_fetch_and_where_to_put_it(
    tmp_path: Path, tokenizer: Path
) -> None:
    out = tmp_path / "data" / "wiki"
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # takes the connection, never answers
        environment = {
            "HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "HF_HOME": str(tmp_path / "hf"),
        }
        done = call("prep", "-o", out, "--tokenizer", tokenizer, environment=environment)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert "the Hugging Face hub cannot be reached" in lines[0]
    name = "Salesforce/wikitext"
    file = "wikitext-2-v1/train-00000-of-00001.parquet"
    assert f"{environment['HF_ENDPOINT']}/datasets/{name}/resolve/main/{file}" in lines[1]
    place = tmp_path / "data" / "downloads" / name
    assert f"into {place / 'wikitext-2-v1'}" in lines[1]
    write_parquet(place / file, text=wiki_rows(WIKI))
    done = call("prep", "-o", out, "--tokenizer", tokenizer, environment=environment)
    assert (done.returncode, sequences(out)) == (0, expected(tokenizer, ARTICLES)), done.stderr


def test_gpt2s_vocabulary_by_hand(tmp_path: Path, tokenizer: Path) -> None:
    model = json.loads((tokenizer / "tokenizer.json").read_text())["model"]
    place = tmp_path / "data" / "downloads" / "openai-community" / "gpt2"
    place.mkdir(parents=True)
    (place / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [" ".join(pair) for pair in model["merges"]]
    (place / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    (tmp_path / "a.txt").write_text(PROSE)
    prep(tmp_path / "data" / "out", tmp_path / "a.txt", tokenizer="gpt2")
    assert sequences(tmp_path / "data" / "out") == expected(tokenizer, [PROSE])
