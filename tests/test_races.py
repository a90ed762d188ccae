"""Several dpbench at once in one place: a folder for each, and what they share stays whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from conftest import clean_environment
from dpbench.log import read_log
from dpbench.results import read_run
from processes import PATIENCE_SECONDS, mark, wait_for_none
from stand_in import HERE, Start, folder, start

__all__ = ["folder", "mark", "start"]  # fixtures
RACERS = 8


def race(code: str, cwd: Path) -> list[str]:
    """Run a program in several processes that begin together; return what each printed."""
    program = f"import sys\nprint('ready', flush=True)\nsys.stdin.readline()\n{code}"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", f"from dpbench import bench, options, training\n{program}"],
            cwd=cwd,
            env=clean_environment() | {"XDG_CACHE_HOME": str(cwd / "cache")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(RACERS)
    ]
    for racer in racers:
        assert racer.stdout
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("\n")
        racer.stdin.flush()
    outputs = [racer.communicate(timeout=PATIENCE_SECONDS)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * RACERS
    return outputs


def test_no_two_get_the_same_folder(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "for _ in range(10): print(training.make_folder(Path('a/b/runs'), 'same-second'))\n"
    )
    folders = "".join(race(code, tmp_path)).split()
    assert len(folders) == len(set(folders)) == 10 * RACERS
    assert len(list((tmp_path / "a/b/runs").iterdir())) == 10 * RACERS


def test_a_cache_that_all_write_and_read_is_whole_at_every_moment(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "name = sys.executable + '.' * 100_000\n"
        "table = options.OptionTable(source=name, options=())\n"
        "path = Path('cache/dpbench/options.json')\n"
        "options.write_cache(path, 'key', table)\n"
        "for _ in range(50):\n"
        "    options.write_cache(path, 'key', table)\n"
        "    assert options.read_cache(path, 'key') == table\n"
    )
    race(code, tmp_path)
    assert [path.name for path in (tmp_path / "cache/dpbench").iterdir()] == ["options.json"]


def test_runs_that_start_together_end_each_in_its_own_folder(
    start: Start, folder: Path, mark: str
) -> None:
    processes = [start("crash 0" if n == 3 else "ok") for n in range(RACERS)]
    ended = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 4, 0, 0, 0, 0]
    assert wait_for_none(mark) == []
    named = [Path(out.strip()) for out, _ in ended if out]
    assert len(set(named)) == RACERS - 1
    runs = {path.name: read_run(path) for path in (folder / "runs").iterdir()}
    assert sorted(run.status for run in runs.values()) == ["failed"] + ["finished"] * (RACERS - 1)
    for path in named:
        steps = read_log(folder / path / "run.log").steps
        assert [step.number for step in steps] == list(range(1, 9))
        assert runs[path.name].status == "finished"


def test_prep_in_one_place_at_once_leaves_one_whole_dataset(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some words in a row. " * 2000)
    (tmp_path / "prep.yaml").write_text(
        (HERE.parent / "configs" / "demo-cpu.yaml").read_text().replace("data/demo", "shared")
    )
    command = [sys.executable, "-m", "dpbench.cli", "prep", "--config", "prep.yaml"]
    processes = [
        subprocess.Popen(
            [*command, "--input", "text.txt"],
            cwd=tmp_path,
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(RACERS)
    ]
    ended = [process.communicate(timeout=300) for process in processes]
    assert 0 in [process.returncode for process in processes]
    for process, (_, err) in zip(processes, ended, strict=True):
        assert process.returncode in (0, 2)
        assert "Traceback" not in err
    check = [sys.executable, "-m", "dpbench.cli", "data", "shared", "--json"]
    done = subprocess.run(
        [*check, "--config", "prep.yaml"],
        cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert json.loads(done.stdout)["documents"] == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
