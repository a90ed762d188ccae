"""The option table of a real Megatron: reading, caching, searching."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

from dpbench import options
from dpbench.errors import SetupError
from dpbench.megatron import Megatron
from dpbench.options import OptionTable, cache_file, fingerprint, load_options
from tables import megatrons, recorded

MEGATRONS = megatrons()


@pytest.fixture(scope="module", params=MEGATRONS)
def megatron(request: pytest.FixtureRequest) -> Megatron:
    """A Megatron that is here: the package, and the checkouts that the environment names."""
    return MEGATRONS[request.param]


@pytest.fixture(scope="module")
def table(megatron: Megatron, tmp_path_factory: pytest.TempPathFactory) -> OptionTable:
    """Its option table, read by the training interpreter into a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return load_options(megatron)


@pytest.fixture
def cached(
    megatron: Megatron, table: OptionTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The cache file of a Megatron, warm; reading the parser again counts as a failure."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = cache_file(megatron)
    assert path is not None
    options.write_cache(path, fingerprint(megatron), table)

    def never(megatron: Megatron) -> OptionTable:
        raise AssertionError("read again")

    monkeypatch.setattr(options, "read_table", never)
    return path


def test_the_real_parser_has_what_was_recorded_of_its_release(
    megatron: Megatron, table: OptionTable
) -> None:
    version = "0.16.1" if megatron.version.startswith(("0.16", "0.17")) else "0.19.0"
    if not megatron.version.startswith(version[:4]):
        version = ""
    for one in recorded(version).options if version else ():
        real = table.by_name[one.names[0]]
        assert (real.names, real.arity, real.type, real.choices, real.negated) == (
            one.names,
            one.arity,
            one.type,
            one.choices,
            one.negated,
        )
    assert len(table.options) > 600
    lr = table.by_name["--lr"]
    assert (lr.arity, lr.type, lr.takes) == (1, "float", "one value (number)")
    assert "learning rate" in (lr.help or "")
    assert table.by_name["--eval-iters"].default == "100"


def test_a_warm_cache_is_not_read_again_and_gives_the_same_table(
    megatron: Megatron, table: OptionTable, cached: Path
) -> None:
    assert load_options(megatron) == table


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"key": 1}', b"\xff", b"[" * 100_000]
)
def test_a_damaged_cache_is_read_again_and_mended(
    megatron: Megatron,
    table: OptionTable,
    cached: Path,
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(options, "read_table", lambda megatron: table)
    whole = cached.read_bytes()
    cached.write_bytes(content)
    assert load_options(megatron) == table
    assert cached.read_bytes() == whole


def test_a_cache_whose_table_is_not_one_is_read_again(
    megatron: Megatron, table: OptionTable, cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "read_table", lambda megatron: table)
    data = json.loads(cached.read_bytes())
    data["table"]["options"][0]["arity"] = "many"
    cached.write_text(json.dumps(data))
    assert load_options(megatron) == table


def test_a_cache_that_cannot_be_written_is_done_without(
    megatron: Megatron, table: OptionTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "read_table", lambda megatron: table)
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert load_options(megatron) == table
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "dpbench").mkdir()
    cache = cache_file(megatron)
    assert cache is not None
    cache.mkdir()  # something else stands where the cache belongs
    assert load_options(megatron) == table
    assert list(cache.parent.iterdir()) == [cache]


def test_the_cache_is_under_home_unless_xdg_names_an_absolute_folder(
    megatron: Megatron, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for setting in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", setting)
        path = cache_file(megatron)
        assert path is not None
        assert path.parent == tmp_path / ".cache" / "dpbench"


def checkout(folder: Path, body: str, version: str = "0.99.0") -> Megatron:
    """A folder that looks like a checkout, whose parser is built by `body`."""
    package = folder / "megatron" / "training"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "arguments.py").write_text(body)
    return Megatron(kind="checkout", root=folder, version=version, script=folder / "p.py")


PARSER = """
import sys
print("noise on standard output")
def add_megatron_arguments(parser):
    parser.add_argument("--lr", type=float, default=0.1, help="a\\n   rate")
    return parser
"""


def test_a_changed_file_or_version_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    megatron = checkout(tmp_path / "m", PARSER)
    assert list(load_options(megatron).by_name) == ["--lr"]
    path = megatron.root / "megatron/training/arguments.py"
    path.write_text(PARSER.replace("--lr", "--new-name"))
    os.utime(path, (time.time() + 10, time.time() + 10))
    assert list(load_options(megatron).by_name) == ["--new-name"]
    keys = {fingerprint(megatron), fingerprint(checkout(tmp_path / "n", PARSER, "0.98.0"))}
    assert len(keys) == 2
    assert len(list((tmp_path / "cache" / "dpbench").iterdir())) == 1


def test_the_table_is_private_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    megatron = checkout(tmp_path / "m", PARSER)
    load_options(megatron)
    path = cache_file(megatron)
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("import os; os._exit(3)", "it ended with status 3"),
        ("raise SystemExit('sorry')", "sorry"),
    ],
)
def test_a_parser_that_cannot_be_built_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, reason: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(SetupError) as caught:
        load_options(checkout(tmp_path / "m", body))
    assert reason in str(caught.value)
    assert "print_options.py" in caught.value.hint


def test_a_megatron_that_another_one_hides_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    hiding = checkout(tmp_path / "hiding", PARSER)
    monkeypatch.setenv("PYTHONPATH", str(hiding.root))
    package = Megatron(kind="pip", root=tmp_path / "site", version="1", script=tmp_path / "p.py")
    with pytest.raises(SetupError, match="another Megatron hides the one at") as caught:
        load_options(package)
    assert "PYTHONPATH" in caught.value.hint


def test_searching_finds_names_first_then_help(table: OptionTable) -> None:
    names = {option.names[0] for option in table.search("LR_warmup")}
    assert {"--lr-warmup-iters", "--lr-warmup-fraction"} <= names
    assert all("warmup" in name for name in names)
    assert "--no-masked-softmax-fusion" in {
        option.names[0] for option in table.search("query_key_value scaling")
    }
    assert len(table.search("")) == len(table.options)
    assert table.search("zzzz") == []
