"""The table of known problems, a row at a time, and which of several errors is the one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dpbench.diagnosis import Diagnosis, diagnose, explain_file, explain_hang
from dpbench.errors import SetupError
from dpbench.known_problems import HANGS, TABLE, Weight
from dpbench.log import parse_log
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


EXCERPTS: list[tuple[str, list[str]]] = [
    ("cuda-oom", traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.")),
    ("cuda-oom", traceback("RuntimeError: CUDA error: out of memory")),
    ("cuda-oom", ["RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"]),
    ("shm-bus-error", ["RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It"]),
    ("host-oom", ["RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you"]),
    ("host-oom", traceback("MemoryError")),
    ("host-oom", ["terminate called after throwing an instance of 'std::bad_alloc'"]),
    ("host-oom-killed", ["slurmstepd: error: Detected 1 oom_kill event. oom-kill in StepId=4"]),
    ("helpers-pybind11", ["a.cpp:3:10: fatal error: pybind11/pybind11.h: No such file or directory"]),
    ("helpers-makefile", ["make: *** No targets specified and no makefile found.  Stop."]),
    ("helpers-compiler", ["make: g++: No such file or directory"]),
    ("helpers-compiler", ["fatal error: Python.h: No such file or directory"]),
    ("helpers", ["ERROR:megatron.core.datasets.utils:Failed to compile the C++ dataset helper functions"]),
    ("helpers", traceback("ImportError: cannot import name 'helpers' from 'megatron.data' (unknown)")),
    ("stale-kernel", ["ImportError: /b/softmax_cuda.so: undefined symbol: _ZN2at4_ops"]),
    ("fused-softmax", traceback("ModuleNotFoundError: No module named 'scaled_masked_softmax_cuda'")),
    ("no-transformer-engine", traceback("NameError: name 'TESpecProvider' is not defined")),
    (
        "no-transformer-engine",
        traceback(
            "TypeError: 'NoneType' object is not callable",
            "gpt_layer_specs.py: backend = TESpecProvider()",
        ),
    ),
    ("gradient-accumulation-fusion", [
        "RuntimeError: ColumnParallelLinear was called with gradient_accumulation_fusion set to True but"
    ]),
    ("persist-layer-norm", ["AssertionError: persist_layer_norm not supported by torch LayerNorm"]),
    ("rope-fusion", ["ValueError: apply_rope_fusion is not available. Please install TE >= 1.4."]),
    ("sequence-parallel", ["AssertionError: sequence parallel not supported by torch LayerNorm"]),
    ("context-parallel", ["AssertionError: Context parallelism is only supported by TEDotProductAttention!"]),
    ("attention-environment", ["AssertionError: NVTE_FLASH_ATTN set to 1, but expected 0 for"]),
    ("missing-module", traceback("ModuleNotFoundError: No module named 'triton'")),
    ("unknown-flag", ["pretrain_gpt.py: error: unrecognized arguments: --data-impl mmap"]),
    ("bad-choice", ["p.py: error: argument --lr-decay-style: invalid choice: 'cos' (choose from 'cosine')"]),
    ("bad-value", ["p.py: error: argument --seed: invalid int value: 'x'"]),
    ("bad-value", ["p.py: error: argument --rampup-batch-size: expected 3 arguments"]),
    ("usage", ["p.py: error: one of the arguments is required"]),
    ("renamed-flag", traceback("AssertionError: --batch-size argument is no longer valid, use --micro-batch-size instead")),
    ("batch-divisible", ["AssertionError: global batch size (10) is not divisible by micro batch size (4) times data parallel size (2)"]),
    ("batch-divisible-eval", [
        "AssertionError: eval_global_batch_size (5) must be divisible by eval_micro_batch_size (2) * data_parallel_size (1)"
    ]),
    ("rampup", ["AssertionError: expected no batch-size rampup for iteration-based training"]),
    ("world-size", ["AssertionError: world size (3) is not divisible by total_model_size (encoder"]),
    ("device-ordinal", ["torch.AcceleratorError: CUDA error: invalid device ordinal"]),
    ("device-ordinal", ["ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA"]),
    ("save-interval", traceback("AssertionError", "arguments.py: assert args.save_interval is not None")),
    ("eval-interval", ["TypeError: unsupported operand type(s) for //: 'int' and 'NoneType'"]),
    ("max-connections", ["RuntimeError: Using async all reduce requires CUDA_DEVICE_MAX_CONNECTIONS to 1"]),
    ("rendezvous-environment", [
        "ValueError: rendezvous: environment variable MASTER_ADDR expected, but not set"
    ]),
    ("graph-nan-check", ["AssertionError: --no-check-for-nan-in-loss-and-grad should be set with full"]),
    ("graph-capture", ["RuntimeError: CUDA error: operation not permitted when stream is capturing"]),
    ("data-missing", [
        "AssertionError: One or both of the .idx and .bin files cannot be found at the path prefix /d/x"
    ]),
    ("data-missing", ["Dataset does not exist: /d/x"]),
    ("data-damaged", traceback("ValueError: cannot mmap an empty file")),
    ("index-cache", traceback("IndexError: index 90 is out of bounds for axis 0 with size 80")),
    ("cache-unwritable", ["Failed to write dataset materials to the data cache directory, an error"]),
    ("data-too-small", ["AssertionError: last epoch number of samples exceeded max value."]),
    ("empty-split", traceback("TypeError: 'NoneType' object is not an iterator")),
    ("tokenizer-files", traceback("AssertionError", "tokenizer.py: assert args.vocab_file is not None")),
    ("hub", ["OSError: We couldn't connect to 'https://huggingface.co' to load the files"]),
    ("hub", ["ValueError: Unable to instantiate HuggingFace AutoTokenizer for gpt2. Exception: e"]),
    ("tokenizer", traceback("OSError: Can't load tokenizer for 'x'. Make sure")),
    ("nan-loss", ["RuntimeError: Rank 0, node n, device 0, iteration 3: Unexpected result nan (message"]),
    (
        "nan-loss",
        traceback(
            "TypeError: expected str, bytes or os.PathLike object, not NoneType",
            "checkpointing.py: os.path.join(root)",
        ),
    ),
    ("loss-scale", ["Exception: Current loss scale already at minimum - cannot decrease scale anymore."]),
    ("disk-full", traceback("OSError: [Errno 28] No space left on device")),
    ("disk-full", ["RuntimeError: [enforce fail] . PytorchStreamWriter failed writing file data/3"]),
    ("read-only", traceback("PermissionError: [Errno 13] Permission denied: '/ckpt/iter_1'")),
    ("checkpoint-resume", traceback("AssertionError", "distrib_optimizer.py: assert len(steps) == 1")),
    ("checkpoint-format", ["TypeError: _write_item() missing 1 required positional argument: 'serialization_format'"]),
    ("no-gpu", ["RuntimeError: Found no NVIDIA driver on your system. Please check"]),
    ("no-gpu", traceback("AssertionError: Megatron requires CUDA.")),
    ("driver", ["RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."]),
    ("driver", ["RuntimeError: CUDA error: no kernel image is available for execution on the device"]),
    ("gpu-fault", ["RuntimeError: CUDA error: uncorrectable NVLink error detected"]),
    ("illegal-access", ["RuntimeError: CUDA error: an illegal memory access was encountered"]),
    ("port", ["RuntimeError: The server socket has failed: errno: 98 - Address already in use"]),
    ("nccl-shm", ["ncclSystemError: System call (e.g. socket, malloc) or external library call failed"]),
    (
        "nccl-shm",
        [
            *traceback("torch.distributed.DistBackendError: NCCL error in: x.cpp:9, remote", rank=1),
            "[rank1]: Last error:",
            "[rank1]: Error while creating shared memory segment /dev/shm/nccl-q (size 96)",
        ],
    ),
    ("nccl-interface", ["h:7:7 [0] NCCL WARN Bootstrap : no socket interface found"]),
    ("nccl-peer-access", ["RuntimeError: CUDA error: peer access is not supported between these two devices"]),
    ("interrupted", traceback("torch.distributed.elastic.multiprocessing.api.SignalException: Process 9 got signal: 15")),
    ("segmentation-fault", ["E1 torch/api.py:9] failed (exitcode: -11) local_rank: 0 (pid: 2)"]),
    ("killed", ["  exitcode  : -9 (pid: 77)"]),
    ("killed", ["Killed"]),
    ("aborted", ["  traceback : Signal 6 (SIGABRT) received by PID 9"]),
    ("late-rank", ["torch.distributed.DistStoreError: wait timeout after 600000ms"]),
    ("nccl-timeout", [
        "[rank0]:[E1 x.cpp:1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=X)"
    ]),
    ("nccl-timeout", ["To avoid data inconsistency, we are taking the entire process down after a timeout."]),
    ("peer-gone", ["RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:444"]),
    ("nccl", traceback("torch.distributed.DistBackendError: NCCL error in: a.cpp:1, invalid usage")),
    ("dead-worker", ["RuntimeError: DataLoader worker (pid(s) 5) exited unexpectedly"]),
    ("no-checkpoint", [">> '--exit-on-missing-checkpoint' set ... exiting. <<"]),
    ("checkpoint-finished", ["  successfully loaded checkpoint from /c [ t 1/1, p 1/1 ] at iteration 200"]),
]  # fmt: skip


def ask(lines: list[str], exit_code: int | None = None) -> Diagnosis | None:
    return diagnose(lines, parse_log(lines), exit_code=exit_code)


def known(lines: list[str], exit_code: int | None = None) -> Diagnosis:
    found = ask(lines, exit_code)
    assert found
    return found


@pytest.mark.parametrize(("name", "excerpt"), EXCERPTS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(EXCERPTS)])  # fmt: skip
def test_an_excerpt_is_recognised_between_the_lines_of_a_run(name: str, excerpt: list[str]) -> None:
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
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU 1 has a total capacity of 139.80 GiB of which"  # fmt: skip
    dump = ["---- arguments ----", "  micro_batch_size ................................ 4"]
    found = known([*dump, *traceback(oom, rank=1)])
    assert found.cause == "the GPU is out of memory (GPU 1, 139.80 GiB) when it wanted 3.50 GiB more"
    assert "training.micro_batch_size=2, then 1 (now 4" in str(found.fix)
    assert found.rank == 1
    dump[1] = dump[1].replace(" 4", " 1")
    assert "the micro batch is 1 already" in str(known([*dump, *traceback(oom)]).fix)


@pytest.mark.parametrize(
    ("batch", "micro", "copies", "near"), [(9, 2, 2, "8 or 12"), (3, 2, 2, "4"), (50, 4, 3, "48 or 60")]
)  # fmt: skip
def test_the_nearest_batches_are_named(batch: int, micro: int, copies: int, near: str) -> None:
    line = f"AssertionError: global batch size ({batch}) is not divisible by micro batch size ({micro}) times data parallel size ({copies})"  # fmt: skip
    assert f"batch size of {near}," in str(known([line]).fix)


def test_the_first_rank_that_failed_is_told_not_the_last_line() -> None:
    lines = [
        *traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB", rank=3),
        "[rank0]:[E ProcessGroupNCCL.cpp:7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1",
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
    first = traceback("TypeError: 'NoneType' object is not callable", "gpt_layer_specs.py: backend()", rank=0)  # fmt: skip
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
    assert found.cause == "the loss is NaN or missing from step 3 on; the last good loss is 3.5"
    assert known([step(1), step(2, "nan")]).name == "nan-loss"
    assert ask([step(1), step(2, None), step(3)]) is None  # it came back


def test_updates_that_are_all_skipped_are_told() -> None:
    assert known([step(n, None, skipped=1) for n in (1, 2, 3)]).name == "all-skipped"
    assert ask([step(1, None, skipped=1), step(2)]) is None


def test_a_finished_run_that_was_stopped_at_its_exit_is_told_as_that() -> None:
    lines = [step(100), "[after training is done] datetime: 2026-03-01 09:01:00", "Received 15 death signal"]  # fmt: skip
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


def explain(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dpbench.cli", "explain", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_explain_tells_by_its_status_whether_the_cause_is_known(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("OSError: [Errno 28] No space left on device\n")
    done = explain(tmp_path)  # a folder stands for its run.log
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "cause: the disk is full")
    log.write_text("ValueError: something new\n")
    assert explain(log).returncode == 3
    log.write_text(step(100) + "\n")
    done = explain(log)
    assert (done.returncode, done.stdout) == (0, "no problem found: 100 of 100 steps logged\n")
    for path in (tmp_path / "missing", tmp_path.parent):
        done = explain(path)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
