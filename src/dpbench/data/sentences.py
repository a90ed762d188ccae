"""Documents -> sentences, with nltk's Punkt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dpbench.errors import SetupError

CHARACTERS_AT_ONCE = 1_000_000
"""Megatron cuts a document here before it looks for sentences, so a cut ends a sentence."""
RESOURCE = "tokenizers/punkt_tab"
GET_IT = (
    "python -m nltk.downloader punkt_tab; without a network, unpack punkt_tab.zip of nltk_data "
    "into nltk_data/tokenizers in your home folder, or below the folder that NLTK_DATA names"
)

Split = Callable[[str], list[str]]


def sentence_splitter(language: str) -> Split:
    """Return a function from a text to its sentences.

    Errors: SetupError when nltk's data, or this language in it, is not there.
    """
    import nltk
    from nltk.tokenize.punkt import PunktTokenizer

    try:
        folder = Path(str(nltk.data.find(f"{RESOURCE}/")))
    except LookupError:
        raise SetupError("nltk has no sentence model (punkt_tab)", hint=GET_IT) from None
    known = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if language not in known:
        hint = f"choose --language from: {', '.join(known)}"
        raise SetupError(f"nltk has no sentence model for {language!r}", hint=hint)
    punkt = PunktTokenizer(language)

    def split(text: str) -> list[str]:
        parts = range(0, len(text), CHARACTERS_AT_ONCE)
        return [s for i in parts for s in punkt.tokenize(text[i : i + CHARACTERS_AT_ONCE])]

    return split
