"""Cutting text into pieces never changes its tokens."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from dpbench.data import encode
from dpbench.data.encode import (
    CUT_BEFORE_SPACE,
    PIECE,
    PieceEncoder,
    cuts_before_spaces,
    library_encoder,
    slices,
    tokenizers_encoder,
)
from make_data import DOCUMENTS, END, byte_level_folder, prep, sequences, write_lines

SPACES = " \t\n\r\v\f\x1c\x1f\x85\u00a0\u1680\u180e\u2003\u2028\u202f\u205f\u3000\u200b\ufeff"
SCRAPS = st.text(
    st.one_of(
        st.sampled_from(SPACES + "aZ09.,'!/\u00e9\u0301\u4e2d\U0001f6a2"),
        st.characters(codec="utf-8"),
    ),
    max_size=60,
)


def small(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(byte_level_folder(folder) / "tokenizer.json"))


def with_pattern(tokenizer: Tokenizer, pattern: str) -> Tokenizer:
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> list[Tokenizer]:
    """GPT-2's way of splitting, Llama 3's and Qwen 2's, and one behind NFC."""
    folder = tmp_path_factory.mktemp("tokenizers")
    made = [with_pattern(small(folder / str(n)), p) for n, p in enumerate(CUT_BEFORE_SPACE)]
    composing = small(folder / "nfc")
    composing.normalizer = normalizers.NFC()
    return [small(folder / "gpt2"), *made, composing]


@given(texts=st.lists(SCRAPS, max_size=5))
@example(texts=DOCUMENTS)
@example(texts=["boat\n \n", "!\n boat", "a  <|endoftext|>  b", "   ", "e \u0301"])
@settings(max_examples=300)
def test_pieces_give_the_tokens_of_the_whole(tokenizers: list[Tokenizer], texts: list[str]) -> None:
    for tokenizer in tokenizers:
        made = tokenizers_encoder(tokenizer, special_tokens=True)
        assert isinstance(made, PieceEncoder)
        whole = library_encoder(tokenizer, "H", special_tokens=True)
        assert made(texts) == whole(texts)


@given(SCRAPS)
def test_pieces_are_all_of_the_text_and_end_before_spaces(text: str) -> None:
    pieces = PIECE.findall(text)
    assert "".join(pieces) == text
    assert all(piece.startswith(" ") for piece in pieces[1:])
    assert not any(piece[-1].isspace() for piece in pieces[:-1])


@given(SCRAPS, st.integers(1, 20))
def test_slices_end_where_pieces_end(text: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "SLICE_CHARACTERS", size)
        cut = list(slices(text))
    assert "".join(cut) == text
    assert [piece for part in cut for piece in PIECE.findall(part)] == PIECE.findall(text)


def test_a_full_cache_starts_again_and_long_pieces_stay_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "CACHED_PIECES", 50)
    tokenizer = small(tmp_path / "tokenizer")
    made = tokenizers_encoder(tokenizer, special_tokens=False)
    assert isinstance(made, PieceEncoder)
    whole = library_encoder(tokenizer, "H", special_tokens=False)
    for first in range(0, 400, 20):
        text = " ".join(f"boat{number}" for number in range(first, first + 20)) + " " + "z" * 90
        assert made([text]) == whole([text])
        assert len(made.known) <= 50
        assert not any(len(piece) > 64 for piece in made.known)


def test_a_tokenizer_that_may_look_across_spaces_is_not_cut(tmp_path: Path) -> None:
    def changed(name: str) -> Tokenizer:
        return small(tmp_path / name)

    prefixed = changed("prefixed")
    prefixed.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    unsplit = changed("unsplit")
    unsplit.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    stripping = changed("stripping")
    stripping.normalizer = normalizers.Strip()
    greedy = changed("greedy")
    greedy.add_tokens([AddedToken("<gap>", lstrip=True)])
    spaced = changed("spaced")
    spaced.add_tokens(["slow boat"])
    noisy = changed("noisy")
    noisy.model = models.BPE(noisy.get_vocab(), [], dropout=0.5)
    unknown = with_pattern(changed("unknown"), r"\S+\s*")
    bare = changed("bare")
    bare.pre_tokenizer = None
    for tokenizer in (prefixed, unsplit, stripping, greedy, spaced, noisy, unknown, bare):
        assert not cuts_before_spaces(tokenizer)


@given(texts=st.lists(SCRAPS, min_size=1, max_size=6))
@settings(max_examples=60)
def test_documents_round_trip_through_a_dataset(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tokenizer = byte_level_folder(place / "tokenizer")
        lines = write_lines(place / "in.jsonl", ["the first", *texts])
        prep(place / "out", lines, tokenizer=tokenizer)
        library = Tokenizer.from_file(str(place / "out" / "tokenizer" / "tokenizer.json"))
        ids = sequences(place / "out")
    decoded = [library.decode(some[:-1], skip_special_tokens=False) for some in ids]
    assert decoded == ["the first", *filter(None, texts)]
    assert all(some[-1] == library.token_to_id(END) for some in ids)
