"""Files from the Hugging Face hub, or from where a person put them by hand."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dpbench.errors import SetupError

ANSWER_SECONDS = 8.0
"""How long the hub may take for its first answer, name resolution and all."""
REQUEST_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository of the hub, and the folder in which its files are looked for first."""

    name: str
    kind: Literal["model", "dataset"]
    downloads: Path

    @property
    def local(self) -> Path:
        """Where a person puts files fetched by hand."""
        return self.downloads / self.name

    def url(self, file: str = "") -> str:
        """Return the address of a file, or of the page that lists all."""
        from huggingface_hub import constants

        section = "datasets/" if self.kind == "dataset" else ""
        place = f"resolve/main/{file}" if file else "tree/main"
        return f"{constants.ENDPOINT}/{section}{self.name}/{place}"


def fetch(repository: Repository, files: Sequence[str]) -> list[Path]:
    """Return local paths of files: fetched by hand, in the hub's cache, or downloaded now.

    Errors: SetupError that names the files and where to put them when the hub cannot be reached.
    """
    if all((repository.local / file).is_file() for file in files):
        return [repository.local / file for file in files]
    from huggingface_hub import get_hf_file_metadata, hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    quiet_without_terminal()
    address = repository.url(files[0])
    problem = ask(lambda: get_hf_file_metadata(address, timeout=REQUEST_SECONDS), repository)[1]
    addresses = " ".join(map(repository.url, files))
    by_hand = f"fetch {addresses} into {repository.local / Path(files[0]).parent}, then try again"
    try:
        return [
            Path(
                hf_hub_download(
                    repository.name,
                    file,
                    repo_type=repository.kind,
                    local_files_only=problem is not None,
                )
            )
            for file in files
        ]
    except LocalEntryNotFoundError:
        raise unreachable(problem, by_hand) from None
    except Exception as error:  # its type depends on the transport: requests, httpx, httpx2
        raise unreachable(first_line(error), by_hand) from None


def list_files(repository: Repository) -> list[str]:
    """Return the names of all files of a repository. Errors: SetupError."""
    if repository.local.is_dir():
        found = (path for path in repository.local.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(repository.local)) for path in found)
    from huggingface_hub import HfApi

    quiet_without_terminal()
    kind, name = repository.kind, repository.name
    files, problem = ask(lambda: HfApi().list_repo_files(name, repo_type=kind), repository)
    if problem is None:
        return sorted(files)
    files = cached_files(repository)
    if not files:
        by_hand = f"fetch the files of {repository.url()} into {repository.local}, then try again"
        raise unreachable(problem, by_hand)
    return files


def cached_files(repository: Repository) -> list[str]:
    """Return the files of a repository that the hub's cache has."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    kind, name = repository.kind, repository.name
    try:
        folder = Path(snapshot_download(name, repo_type=kind, local_files_only=True))
    except LocalEntryNotFoundError:
        return []
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def ask(call: Callable[[], Any], repository: Repository) -> tuple[Any, str | None]:
    """Return the hub's answer and None, or None and why it cannot be reached.

    Errors: SetupError when the hub answers that there is no such thing, or not for everybody.
    """
    answers: list[Any] = []
    problems: list[Exception] = []

    def run() -> None:
        try:
            answers.append(call())
        except Exception as error:  # handed to the thread that waits
            problems.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if answers:
        return answers[0], None
    if not problems:
        return None, f"no answer within {ANSWER_SECONDS:.0f} s"
    refuse(problems[0], repository)
    return None, first_line(problems[0])


def refuse(error: Exception, repository: Repository) -> None:
    """Raise SetupError when the hub's answer is final."""
    from huggingface_hub import errors

    what = f"{repository.kind} {repository.name}"
    if isinstance(error, errors.GatedRepoError):
        hint = f"accept its terms at {repository.url()} and run: hf auth login"
        raise SetupError(f"{what}: the hub asks for permission", hint=hint) from None
    if isinstance(error, errors.RepositoryNotFoundError | errors.HFValidationError):
        hint = f"look up the name on the hub; a {repository.kind} is named owner/name"
        raise SetupError(f"{what}: not on the hub", hint=hint) from None
    if isinstance(error, errors.EntryNotFoundError):
        raise SetupError(f"{what}: {first_line(error)}", hint=f"see {repository.url()}") from None


def unreachable(reason: str | None, by_hand: str) -> SetupError:
    """Return the error for a hub that does not answer."""
    return SetupError(f"the Hugging Face hub cannot be reached ({reason})", hint=by_hand)


def first_line(error: Exception) -> str:
    """Return an error's text on one line."""
    text = " ".join(str(error).split())
    return (text or type(error).__name__)[:160]


def quiet_without_terminal() -> None:
    """Leave out the hub's progress bars in a pipe or a log."""
    if not sys.stderr.isatty():
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
