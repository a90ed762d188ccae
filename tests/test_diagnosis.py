"""The table of known problems, a row at a time, and which of several errors is the one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dpbench.config_file import dump_config, load_config
from dpbench.diagnosis import Diagnosis, diagnose, explain_file, explain_hang
from dpbench.errors import SetupError
from dpbench.known_problems import HANGS, TABLE, Weight
from dpbench.log import Log, parse_log
from dpbench.watchdog import Stage

HEAD = " [2026-03-01 09:00:0{n}.000000] iteration {n:>8}/     100 | consumed samples: {n:>12} | "
TAIL = "number of skipped iterations: {skipped:>3} | number of nan iterations:   0 |"


def step(number: int, loss: str | None = "4.2E+00", skipped: int = 0) -> str:
    """Return a training line."""
    line = HEAD.format(n=number) + "elapsed time per iteration (ms): 250.0 | "
    line += "global batch size:    16 | "
    if loss:
        line += f"lm loss: {loss} | "
    return line + TAIL.format(skipped=skipped)


def traceback(error: str, *source: str, rank: int | None = None) -> list[str]:
    """Return a traceback as Python prints it, with torch's prefix for a rank."""
    lines = ["Traceback (most recent call last):"]
    for place in source or ("train.py: train_step()",):
        file, _, code = place.partition(": ")
        lines += [f'  File "/src/{file}", line 7, in call', f"    {code}"]
    prefix = "" if rank is None else f"[rank{rank}]: "
    return [prefix + line for line in [*lines, error]]


def read_excerpts() -> list[tuple[str, list[str]]]:
    """Return the blocks of known_problems.txt: a name, and what a log with that problem has."""
    text = (Path(__file__).parent / "known_problems.txt").read_text()
    blocks = [block.splitlines() for block in text.split("## ")[1:]]
    return [(block[0], [line for line in block[1:] if line]) for block in blocks]


EXCERPTS = read_excerpts()


def ask(lines: list[str], exit_code: int | None = None) -> Diagnosis | None:
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        return diagnose(Path(file.name), parse_log(lines), exit_code=exit_code)


def known(lines: list[str], exit_code: int | None = None) -> Diagnosis:
    found = ask(lines, exit_code)
    assert found
    return found


@pytest.mark.parametrize(("name", "excerpt"), EXCERPTS, ids=[name for name, _ in EXCERPTS])
def test_an_excerpt_is_recognised_among_other_lines(name: str, excerpt: list[str]) -> None:
    noise = ["> compiling nothing ...", "", "WARNING: destroy_process_group() was not called"]
    found = known([*noise, *excerpt, *noise])
    assert found.name == name
    assert found.cause
    assert "{" not in found.cause
    assert found.fix
    assert "{" not in found.fix


def test_every_row_of_the_table_has_an_excerpt() -> None:
    rows = {row.name for row in TABLE if row.weight is not Weight.NOISE}
    assert rows == {name for name, _ in EXCERPTS}


def test_the_oom_names_the_gpu_and_the_next_micro_batches() -> None:
    oom = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. "
        "GPU 1 has a total capacity of 139.80 GiB of which 1.00 GiB is free."
    )
    dump = ["---- arguments ----", "  micro_batch_size ................................ 4"]
    found = known([*dump, *traceback(oom, rank=1)])
    assert found.cause == (
        "the GPU is out of memory (GPU 1, 139.80 GiB), 3.50 GiB more did not fit"
    )
    assert "training.micro_batch_size=2, then 1 (micro batch now 4" in str(found.fix)
    assert found.rank == 1
    dump[1] = dump[1].replace(" 4", " 1")
    assert "the micro batch is 1 already" in str(known([*dump, *traceback(oom)]).fix)


def test_a_refused_flag_is_told_with_its_history_and_its_new_name() -> None:
    found = known(["p.py: error: unrecognized arguments: --DDP-impl local --warmup 5 --mine"])
    assert "--DDP-impl (gone since " in str(found.cause)
    assert str(found.cause).endswith("--mine")
    assert found.fix == (
        "leave --DDP-impl out; write --lr-warmup-fraction VALUE instead of --warmup; "
        "leave --mine out"
    )


@pytest.mark.parametrize(
    ("batch", "micro", "copies", "near"),
    [(9, 2, 2, "8 or 12"), (3, 2, 2, "4"), (50, 4, 3, "48 or 60")],
)
def test_the_nearest_batches_are_named(batch: int, micro: int, copies: int, near: str) -> None:
    line = (
        f"AssertionError: global batch size ({batch}) is not divisible by "
        f"micro batch size ({micro}) times data parallel size ({copies})"
    )
    assert f"batch size of {near}," in str(known([line]).fix)


def test_the_first_rank_that_failed_is_told_not_the_last_line() -> None:
    lines = [
        *traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB", rank=3),
        "[rank0]:[E x.cpp:7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1",
        *traceback("torch.distributed.DistBackendError: NCCL error in: x", rank=0),
        *traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "),
    ]
    found = known(lines)
    assert (found.name, found.rank, found.line_number) == ("cuda-oom", 3, 4)


def test_a_consequence_that_is_printed_first_does_not_hide_the_cause() -> None:
    lines = [
        *traceback("RuntimeError: Connection closed by peer [127.0.0.1]:9", rank=1),
        *traceback("OSError: [Errno 28] No space left on device", rank=0),
    ]
    assert known(lines).name == "disk-full"


def test_mixed_tracebacks_are_taken_apart_by_their_ranks() -> None:
    nothing = "TypeError: 'NoneType' object is not callable"
    first = traceback(nothing, "gpt_layer_specs.py: backend()", rank=0)
    second = traceback("RuntimeError: Connection reset by peer", rank=1)
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    assert known(mixed).name == "no-transformer-engine"


def test_an_error_without_a_row_is_shown_as_it_is() -> None:
    lines = [
        *traceback("ZeroDivisionError: division by zero", rank=2),
        *traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB", rank=0),
    ]
    found = known(lines)
    assert (found.cause, found.fix, found.rank) == (None, None, 2)
    assert found.error == "ZeroDivisionError: division by zero"


def test_what_the_same_rank_says_after_its_first_error_may_name_the_cause() -> None:
    lines = [
        *traceback("KeyError: 'x'", rank=0),
        "[rank0]: ",
        "[rank0]: During handling of the above exception, another exception occurred:",
        "[rank0]: ",
        *traceback("OSError: [Errno 28] No space left on device", rank=0),
    ]
    found = known(lines)
    assert found.name == "disk-full"
    assert found.error == "OSError: [Errno 28] No space left on device"


def test_an_error_that_training_survived_is_not_the_failure() -> None:
    oom = traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB")
    assert ask([step(1), *oom, step(2), step(3)]) is None
    assert known([step(1), *oom, step(2)]).name == "cuda-oom"  # another rank's line came late
    assert ask([step(1), "make: g++: No such file or directory", step(2)]) is None


def test_a_warning_is_no_cause_while_an_error_speaks() -> None:
    warning = "WARNING:megatron.core.utils:No module named 'scaled_masked_softmax_cuda'"
    error = traceback("ValueError: something new")
    assert known([warning, *error]).error == "ValueError: something new"


@pytest.mark.parametrize(("code", "name"), [(137, "killed"), (139, "segmentation-fault")])
def test_a_death_without_words_is_told_by_its_signal(code: int, name: str) -> None:
    assert known([step(1)], code).name == name
    assert ask([step(1)], 1) is None
    assert known([*traceback("ValueError: a"), step(1)], code).error == "ValueError: a"


def test_a_finished_checkpoint_matters_only_when_nothing_was_trained() -> None:
    loaded = "  successfully loaded checkpoint from /c [ t 1/1, p 1/1 ] at iteration 50"
    assert "step 50 already" in str(known([loaded]).cause)
    assert ask([loaded, step(51), step(52)]) is None


def test_a_loss_that_is_left_out_or_nan_is_told_with_the_last_good_one() -> None:
    found = known([step(1), step(2, "3.5E+00"), step(3, None), step(4, None)])
    assert found.name == "nan-loss"
    assert found.cause == "the training broke down: NaN from step 3 on; the last loss was 3.5 at 2"
    assert known([step(1), step(2, "nan")]).name == "nan-loss"
    back = known([step(1), step(2, None), step(3)])  # a verdict fails it too
    assert str(back.cause).endswith("NaN in 1 of 3 intervals, the first from step 2 on")


def test_a_log_that_never_has_a_loss_tells_nan_by_the_gradient() -> None:
    lines = [step(n, None) for n in (1, 2, 3)]
    assert ask(lines) is None
    bad = [line.replace("number of sk", "grad norm: nan | number of sk") for line in lines]
    assert known(bad).cause == "the training broke down: NaN from step 1 on, the first of the log"


def test_updates_that_are_mostly_skipped_are_told() -> None:
    found = known([step(n, None, skipped=1) for n in (1, 2, 3)])
    assert found.name == "all-skipped"
    assert str(found.cause).startswith("3 of 3 updates were skipped: ")
    assert ask([step(1, None, skipped=1), step(2)]) is None


def test_a_skipped_update_now_and_then_is_no_problem_in_however_long_intervals() -> None:
    assert ask([step(n, skipped=1) for n in (100, 200, 300)]) is None


def test_a_finished_run_that_was_stopped_at_its_exit_is_told_as_that() -> None:
    lines = [step(100), "[after training is done] datetime: x", "Received 15 death signal"]
    assert known(lines).name == "hang-exiting"
    assert known(lines[:1] + lines[2:]).name == "interrupted"


def test_every_stage_has_words_for_a_hang() -> None:
    assert set(HANGS) == {stage.value for stage in Stage}
    assert str(explain_hang("first step", 90).cause).startswith("no output for 90 s: ")


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x00\xff\xfe" * 1000, b"\x1f\x8b\x08junk"])
def test_a_file_that_is_no_log_is_an_error_of_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.log"
    file.write_bytes(content)
    with pytest.raises(SetupError):
        explain_file(file)


def test_broken_text_around_an_error_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    oom = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB\r\n"
    file.write_bytes(b"\xff\xfe\x00[rank1]: Traceback\n" + b"\x1b[31m" + oom + b"\x00" * 5000)
    found, _ = explain_file(file)
    assert found
    assert found.name == "cuda-oom"


def test_what_stands_behind_the_first_bytes_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text("ValueError: first\nOSError: [Errno 28] No space left on device\n")
    found = diagnose(file, Log(), most_bytes=len("ValueError: first\n"))
    assert found
    assert (found.name, found.line_number) == (None, 1)
    found = diagnose(file, Log(), most_bytes=0)
    assert found is None


def test_an_error_behind_a_flood_is_found_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text("tick\n" * 400_000 + "OSError: [Errno 28] No space left on device")
    found = diagnose(file, Log())
    assert found
    assert (found.name, found.line_number) == ("disk-full", 400_001)


@pytest.mark.parametrize(
    ("keys", "fix"),
    [
        ({"micro_batch_size": 4, "global_batch_size": 16},
         "--set training.micro_batch_size=2, then 1 (micro"),
        ({"global_batch_size": 16, "micro_batches_per_step": 4},
         "--set training.micro_batches_per_step=8, then 16 (micro"),
        ({"micro_batch_size": 4, "micro_batches_per_step": 1},
         "--set training.micro_batch_size=2 --set training.micro_batches_per_step=2 (micro"),
    ],
)  # fmt: skip
def test_the_fix_of_an_oom_is_in_the_keys_that_the_configuration_sets(
    keys: dict[str, int], fix: str, tmp_path: Path
) -> None:
    names = ("micro_batch_size", "global_batch_size", "micro_batches_per_step")
    sets = [f"training.{name}={keys.get(name, 'null')}" for name in names]
    (tmp_path / "config.yaml").write_text(dump_config(load_config("wikitext2-gpt2", sets)))
    file = tmp_path / "run.log"
    dump = "  micro_batch_size ................................ 4"
    lines = ["--- arguments ---", dump, "torch.OutOfMemoryError: CUDA out of memory."]
    file.write_text("\n".join(lines))
    found = diagnose(file, parse_log(lines))
    assert found
    assert str(found.fix).startswith(fix)


def test_an_error_that_steps_with_equals_signs_follow_is_none() -> None:
    lines = (Path(__file__).parent / "logs" / "alcf_equals-signs.log").read_text().splitlines()
    assert ask(["ValueError: harmless", *lines]) is None
    found = ask([*lines, "ValueError: bad"])
    assert found
    assert found.error == "ValueError: bad"


def explain(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dpbench.cli", "explain", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_explain_tells_by_its_status_whether_the_cause_is_known(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("OSError: [Errno 28] No space left on device\n")
    done = explain(tmp_path)  # a folder stands for its run.log
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        0,
        "cause: the disk is full, or the quota on it",
    )
    log.write_text("ValueError: something new\n")
    assert explain(log).returncode == 3
    log.write_text(step(100) + "\n")
    done = explain(log)
    assert (done.returncode, done.stdout) == (0, "no problem found: 100 of 100 steps logged\n")
    for path in (tmp_path / "missing", tmp_path.parent):
        done = explain(path)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")


def test_explain_expands_a_pattern_as_compare_does(tmp_path: Path) -> None:
    (tmp_path / "one.log").write_text("OSError: [Errno 28] No space left on device\n")
    ended = explain(tmp_path / "o?e.log")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "no space" in ended.stdout.lower()
    nothing = explain(tmp_path / "two?.log")
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert "no run or log matches" in nothing.stderr
