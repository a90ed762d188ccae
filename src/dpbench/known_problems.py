"""What goes wrong in Megatron runs: one table of (pattern, cause, fix).

A pattern is searched in one line, or in a whole traceback with the source lines that it shows.
The first row that matches names the problem, so a special row stands above a general one. Texts of
core_v0.4 to core_v0.19, PyTorch 1.13 to 2.14 and NCCL. `{name}` in a cause or a fix is the
pattern's group of that name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from dpbench.flag_history import VALUES, find_change

Found = Mapping[str, str]
"""The groups of a pattern, `micro_batch_size` where the log says it, and the batch keys that the
configuration beside the log sets, as `set_micro_batch_size` and so on."""
Text = str | Callable[[Found], str]


class Weight(Enum):
    """How much a row says when other rows match too."""

    CAUSE = 0
    SIGN = 1
    """Says that a process died and how; an error message says more."""
    CONSEQUENCE = 2
    """What the other ranks see when one has failed."""
    WITHOUT_STEP = 3
    """Explains a run that ended without a step; harmless in one that trained."""
    NOISE = 4
    """Looks like an error and is none, or repeats one."""


class Problem(NamedTuple):
    """A row of the table."""

    name: str
    pattern: str
    cause: Text
    fix: Text
    weight: Weight = Weight.CAUSE


def smaller_micro_batch(found: Found) -> str:
    """Return the steps to take after an out-of-memory error; the global batch can stay."""
    now = int(found.get("micro_batch_size") or 0)
    rest = "then --set megatron.recompute-activations=true"
    if now == 1:
        return f"the micro batch is 1 already: shorten the sequence, {rest[5:]}"
    if not now:
        return f"halve --micro-batch-size until it fits (the global batch can stay), {rest}"
    passes = int(found.get("set_micro_batches_per_step") or 0)
    sizes = [now >> shift for shift in range(1, now.bit_length())]
    if passes:
        sizes = [size for size in sizes if not passes * now % size]
    changes = [halve(found, size, passes * now // size) for size in sizes]
    then = "".join(f", then {change.rpartition('=')[2]}" for change in changes[1:])
    if passes and "set_micro_batch_size" in found:
        then = ""  # two values each
    return (
        f"{changes[0]}{then} (micro batch now {now}; the global batch can stay), or --on-oom "
        f"retry; {rest}"
    )


def halve(found: Found, size: int, passes: int) -> str:
    """Return the options for a micro batch size by the keys that the configuration sets."""
    by_size = f"--set training.micro_batch_size={size}"
    by_passes = f"--set training.micro_batches_per_step={passes}"
    if not passes:
        return by_size
    return f"{by_size} {by_passes}" if "set_micro_batch_size" in found else by_passes


def nearest_batches(found: Found) -> str:
    """Return the nearest global batch sizes that can be divided."""
    batch, unit = int(found["batch"]), max(int(found["micro"]) * int(found["copies"]), 1)
    below = batch // unit * unit
    near = f"{below} or {below + unit}" if below else str(below + unit)
    return f"use a global batch size of {near}, or another micro batch size"


def unknown_flags(found: Found) -> str:
    """Return what is known about the flags that a parser refused."""
    flags = [word for word in found["flags"].split() if word.startswith("-")]
    changes = {flag: find_change(flag) for flag in flags}
    known = []
    for flag, change in changes.items():
        gone = f"gone since {change.removed_in}: " if change and change.removed_in else ""
        known.append(f"{flag} ({gone}{change.why})" if change else flag)
    return "; ".join(known) or found["flags"]


def rewrite_flags(found: Found) -> str:
    """Return what to write instead of the flags that a parser refused."""
    flags = [word for word in found["flags"].split() if word.startswith("-")]
    fixes = []
    for flag in flags:
        change = find_change(flag)
        today = " ".join(change.becomes or ()).replace(VALUES, "VALUE") if change else ""
        fixes.append(f"write {today} instead of {flag}" if today else f"leave {flag} out")
    return "; ".join(fixes) or "leave it out"


def silenced(found: Found) -> str:
    """Return the fix for a flag that a newer version replaced by another."""
    return f"replace it by {found['new']}"


HANGS = {
    "importing": (
        "it stands while Python imports PyTorch and Megatron",
        "a slow or stuck network file system is a common reason; see the stacks at the end of "
        "the log",
    ),
    "rendezvous": (
        "the processes do not find each other",
        "another network interface (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME), or a rank that is "
        "missing; NCCL_DEBUG=INFO says more",
    ),
    "building": (
        "it stands while building the dataset helpers, the model or the datasets",
        "give each split of data.split a document (a split that rounds to none is searched for "
        "ever), delete the index cache, or raise watch.building_seconds",
    ),
    "first step": (
        "the first step does not end",
        "compiling and graph capture can take minutes: raise watch.first_step_seconds; else a "
        "rank waits for another: see the stacks at the end of the log",
    ),
    "training": (
        "training stands still: a rank is stuck, stopped or waits for another",
        "see the stacks at the end of the log: the rank that is not in a collective is the cause",
    ),
    "evaluating": (
        "the evaluation stands still",
        "see the stacks at the end of the log; --set training.eval_iters=0 leaves it out",
    ),
    "saving": (
        "saving the checkpoint stands still",
        "look at the file system of --save; or raise watch.saving_seconds",
    ),
    "exiting": (
        "the training is finished, and the process does not exit",
        "known of a checkout's own script with --cuda-graph-impl full_iteration on several GPUs "
        "(NCCL waits for a CUDA graph that nothing frees): the figures count; the script of "
        "dpbench, without --megatron, frees it",
    ),
}
"""Stage of a run -> cause and fix when it says nothing for too long."""

TABLE = [
    # --- refused by dpbench's own programs in the training process
    Problem(
        "not-served",
        r"^dpbench: (?P<what>[^\n]+ (?:does not serve|serves|makes its own|names) [^;\n]+)",
        "{what}",
        "leave that out, or train without the layer specification: --set megatron.spec=null",
    ),
    # --- memory of the GPU and of the host
    Problem(
        "cuda-oom",
        r"OutOfMemoryError: CUDA out of memory|RuntimeError: CUDA out of memory"
        r"|CUDA out of memory\. Tried to allocate"
        r"|CUBLAS_STATUS_ALLOC_FAILED|CUDA error: out of memory",
        lambda found: "the GPU is out of memory" + oom_detail(found),
        smaller_micro_batch,
    ),
    Problem(
        "shm-bus-error",
        r"DataLoader worker .* killed by signal: Bus error|Unexpected bus error encountered in "
        r"worker|insufficient shared memory \(shm\)",
        "/dev/shm is too small for the data-loader workers",
        "start the container with --ipc=host or --shm-size=8g, or --set megatron.num-workers=0",
    ),
    Problem(
        "host-oom",
        r"DefaultCPUAllocator: can't allocate memory|std::bad_alloc|Cannot allocate memory"
        r"|^\s*MemoryError\b|Unable to allocate [\d.]+ \w+ for an array",
        "the machine is out of memory (not the GPU)",
        "use fewer processes or data-loader workers, or a machine or container with more memory",
    ),
    Problem(
        "host-oom-killed",
        r"oom-kill|[Oo]ut of memory: Killed process|OOM Killed|OutOfMemory .*slurmstepd"
        r"|slurmstepd.*oom",
        "the kernel killed a process because the machine or container is out of memory",
        "use fewer processes or data-loader workers, or raise the memory limit",
    ),
    # --- dataset helpers and kernels
    Problem(
        "helpers-pybind11",
        r"No module named '?pybind11|pybind11/pybind11\.h: No such file",
        "Megatron compiles its dataset helpers at start, and pybind11 is not installed",
        "pip install pybind11 into the Python that trains (and that python3 means), run again",
    ),
    Problem(
        "helpers-makefile",
        r"make: \*\*\* No targets specified and no makefile found",
        "Megatron runs make for its dataset helpers, and the wheel ships them without a Makefile",
        "dpbench run does without that make; or use a checkout: --megatron PATH",
    ),
    Problem(
        "helpers-compiler",
        r"make: (?:\w+\+\+|g\+\+|c\+\+|make): (?:Command )?(?:No such file|not found)"
        r"|make: g\+\+: |'make'|: make: (?:command )?not found"
        r"|fatal error: Python\.h: No such file",
        "Megatron compiles its dataset helpers at start, and make, g++ or Python.h is missing",
        "install make, g++ and the Python headers (Debian: build-essential python3-dev)",
    ),
    Problem(
        "helpers",
        r"Failed to compile the C\+\+ dataset helper functions"
        r"|Making C\+\+ dataset helpers module failed"
        r"|cannot import name 'helpers' from 'megatron|No module named '[\w.]*\bhelpers(?:_cpp)?'",
        "Megatron's dataset helpers are not compiled and could not be",
        "run make in megatron/core/datasets (older versions and forks: megatron/data) and read "
        "its error; it needs make, g++ and pybind11",
    ),
    Problem(
        "stale-kernel",
        r"\.so: undefined symbol: (?P<symbol>\S+)",
        "a compiled extension was built for another PyTorch (undefined symbol {symbol})",
        "delete its build folder (old Megatron: megatron/fused_kernels/build) and build it again",
    ),
    Problem(
        "fused-softmax",
        r"No module named 'scaled_(?:upper_triang_)?masked_softmax_cuda'",
        "the fused softmax kernel needs apex, which is not installed",
        "--set megatron.no-masked-softmax-fusion=true (dpbench run sets it by itself)",
    ),
    Problem(
        "no-transformer-engine",
        r"No module named 'transformer_engine|name 'TESpecProvider' is not defined"
        r"|(?s:gpt_layer_specs\.py.*'NoneType' object is not callable)"
        r"|(?:Error|Exception): .*[Tt]ransformer.?[Ee]ngine.* (?:not installed|required|missing)",
        "this Megatron wants Transformer Engine, which is not installed",
        "--set megatron.transformer-impl=local (dpbench run sets it by itself)",
    ),
    Problem(
        "gradient-accumulation-fusion",
        r"gradient_accumulation_fusion set to True but",
        "gradient accumulation fusion needs apex, which is not installed",
        "--set megatron.no-gradient-accumulation-fusion=true (dpbench run sets it by itself)",
    ),
    Problem(
        "persist-layer-norm",
        r"persist_layer_norm not supported by torch LayerNorm",
        "the persistent layer norm needs apex, which is not installed",
        "--set megatron.no-persist-layer-norm=true (dpbench run sets it by itself)",
    ),
    Problem(
        "rope-fusion",
        r"apply_rope_fusion is not available",
        "the fused rotary embedding needs Transformer Engine 1.4 or newer",
        "--set megatron.no-rope-fusion=true",
    ),
    Problem(
        "sequence-parallel",
        r"sequence parallel not supported by torch LayerNorm",
        "sequence parallelism needs apex or Transformer Engine",
        "leave out --sequence-parallel, or install one of them",
    ),
    Problem(
        "context-parallel",
        r"Context parallelism is only supported by TE",
        "context parallelism needs Transformer Engine",
        "leave out --context-parallel-size, or install it",
    ),
    Problem(
        "attention-environment",
        r"NVTE_(?P<kind>\w+)_ATTN set to (?P<found>\d), but expected (?P<wanted>\d)",
        "the variable NVTE_{kind}_ATTN={found} of the shell contradicts --attention-backend",
        "unset NVTE_FLASH_ATTN NVTE_FUSED_ATTN NVTE_UNFUSED_ATTN",
    ),
    Problem(
        "missing-module",
        r"No module named '(?P<module>triton|six|einops|pkg_resources|torch|numpy|transformers)'",
        "the Python that trains has no module {module}",
        "pip install {module} into it (pkg_resources: setuptools<81)",
    ),
    # --- flags and arithmetic
    Problem(
        "unknown-flag",
        r"error: unrecognized arguments: (?P<flags>.*)",
        lambda found: "Megatron's parser refused: " + unknown_flags(found),
        rewrite_flags,
    ),
    Problem(
        "bad-choice",
        r"error: argument (?P<flag>\S+): invalid choice: (?P<value>.*?) "
        r"\(choose from (?P<all>.*)\)",
        "{flag} does not take {value}",
        "choose from {all}",
    ),
    Problem(
        "bad-value",
        r"error: argument (?P<flag>\S+): (?P<what>expected .*|invalid .*)",
        "{flag}: {what}",
        "give the flag what it expects; see Megatron's --help",
    ),
    Problem(
        "usage",
        r"\.py: error: (?P<what>.*)",
        "the arguments were refused: {what}",
        "see the script's --help",
    ),
    Problem(
        "renamed-flag",
        r"(?P<old>--[\w-]+) (?:argument )?is no longer valid, use (?P<new>--[\w-]+)",
        "{old} is no longer valid; Megatron ends at once, even with status 0",
        silenced,
    ),
    Problem(
        "batch-divisible",
        r"global batch size \((?P<batch>\d+)\) is not divisible by micro batch size "
        r"\((?P<micro>\d+)\) times data parallel size \((?P<copies>\d+)\)",
        "global batch size {batch} is not divisible by micro batch size {micro} x {copies} GPUs",
        nearest_batches,
    ),
    Problem(
        "batch-divisible-eval",
        r"eval_global_batch_size \((?P<batch>\d+)\) must be divisible by eval_micro_batch_size "
        r"\((?P<micro>\d+)\) \* data_parallel_size \((?P<copies>\d+)\)",
        "global batch size {batch} is not divisible by micro batch size {micro} x {copies} GPUs "
        "(the message names the evaluation's, which follow from them)",
        nearest_batches,
    ),
    Problem(
        "rampup",
        r"expected no batch-size rampup for iteration-based|expected the following format: "
        r"--rampup-batch-size|expected global batch size interval|current global batch size "
        r"\(\d+\) is not divisible|both --step-batch-size-schedule and --global-batch-size",
        "the batch-size ramp-up does not fit the other arguments",
        "leave out --rampup-batch-size: a ramp also spoils a comparison",
    ),
    Problem(
        "world-size",
        r"world size \((?P<world>\d+)\) is not divisible by",
        "{world} processes cannot be divided into copies of this parallel layout",
        "use a multiple of tensor x pipeline x context parallel size, or smaller ones",
    ),
    Problem(
        "device-ordinal",
        r"CUDA error: invalid device ordinal|Invalid device id|"
        r"Duplicate GPU detected|device >= 0 && device < num_gpus",
        "more processes were started than GPUs are visible to them",
        "start as many processes as nvidia-smi -L and CUDA_VISIBLE_DEVICES show GPUs",
    ),
    Problem(
        "save-interval",
        r"assert args\.save_interval is not None",
        "--save was given without --save-interval",
        "--set megatron.save-interval=N",
    ),
    Problem(
        "eval-interval",
        r"unsupported operand type\(s\) for //: 'int' and 'NoneType'",
        "--eval-interval is missing; it lost its default in core 0.16",
        "set training.eval_interval (--eval-interval 1000)",
    ),
    Problem(
        "max-connections",
        r"CUDA_DEVICE_MAX_CONNECTIONS (?:to 1|> 1 or unset)",
        "this Megatron checks CUDA_DEVICE_MAX_CONNECTIONS in the environment, and it is not right",
        "export CUDA_DEVICE_MAX_CONNECTIONS=1 before start (FSDP: unset it)",
    ),
    Problem(
        "rendezvous-environment",
        r"environment variable (?P<name>\w+) expected, but not set",
        "{name} is not set: the script was started without a launcher",
        "start it with torchrun or dpbench run",
    ),
    Problem(
        "graph-nan-check",
        r"--no-check-for-nan-in-loss-and-grad should be set with",
        "CUDA graphs of the whole step exclude the check for NaN",
        "--set megatron.no-check-for-nan-in-loss-and-grad=true",
    ),
    Problem(
        "graph-capture",
        r"operation (?:not permitted when|would make the legacy) stream|"
        r"operation not permitted when stream is capturing|cudaErrorStreamCapture",
        "an operation of the step cannot be captured into a CUDA graph",
        "leave out --optimizer-cuda-graph, or use --cuda-graph-impl local or none",
    ),
    # --- data and tokenizer
    Problem(
        "data-missing",
        r"One or both of the \.idx and \.bin files cannot be found at the path prefix ?(?P<path>.*)"
        r"|Dataset does not exist: (?P<old_path>.*)",
        lambda found: (
            f"there is no dataset at {found.get('path') or found.get('old_path', 'that path')}"
        ),
        "give the prefix without .bin, with the suffix _text_document that preprocess_data.py "
        "appends",
    ),
    Problem(
        "data-damaged",
        r"AssertionError: bad (?:header|version), cannot read|cannot mmap an empty file",
        "the dataset's .idx or .bin is empty or damaged",
        "make the dataset again: dpbench prep",
    ),
    Problem(
        "index-cache",
        r"IndexError: index (?P<index>\d+) is out of bounds for axis 0 with size (?P<size>\d+)",
        "the cached sample index was made for another version of the dataset",
        "delete the cache folder beside the dataset (or --data-cache-path), then run again",
    ),
    Problem(
        "cache-unwritable",
        r"Failed to write dataset materials to the data cache directory",
        "the sample index cannot be written beside the dataset",
        "make the folder writable, or --set megatron.data-cache-path=FOLDER",
    ),
    Problem(
        "data-too-small",
        r"last epoch number of samples exceeded max value"
        r"|assert num_samples_from_final_epoch",
        "the dataset has too few tokens for this sequence length",
        "use more text, or a shorter sequence",
    ),
    Problem(
        "empty-split",
        r"'NoneType' object is not an iterator|assert data_iterator is not None",
        "a split that is evaluated holds no document",
        "give each split of data.split a document, or --set training.eval_iters=0",
    ),
    Problem(
        "tokenizer-files",
        r"assert args\.(?P<name>vocab_file|merge_file) is not None|wget library should be is",
        "GPT2BPETokenizer needs --vocab-file and --merge-file",
        "give both, or --tokenizer-type HuggingFaceTokenizer with a local folder (dpbench prep)",
    ),
    Problem(
        "hub",
        r"Unable to instantiate HuggingFace AutoTokenizer for (?P<model>\S+)\."
        r"|couldn't connect to '?https://huggingface\.co|Max retries exceeded with url"
        r"|outgoing traffic has been disabled|LocalEntryNotFoundError|offline mode is enabled",
        "a tokenizer or model is wanted from the Hugging Face hub, which is not reachable",
        "name a local folder: --set data.tokenizer=FOLDER (dpbench prep makes one)",
    ),
    Problem(
        "tokenizer",
        r"[Tt]okenizer.*not a local folder|Can't load tokenizer",
        "the tokenizer cannot be loaded",
        "name a folder with tokenizer.json: --set data.tokenizer=FOLDER",
    ),
    # --- numbers
    Problem(
        "nan-loss",
        r"Unexpected result (?:nan|inf|-inf)|found (?:NaN|Inf) in local (?:forward|grad)"
        r"|(?s:checkpointing\.py.*expected str, bytes or os\.PathLike object, not NoneType)",
        "the loss or a gradient became NaN or infinite",
        "lower training.lr, lengthen the warm-up, or use bf16 instead of fp16",
    ),
    Problem(
        "loss-scale",
        r"(?:Minimum|minimum) loss scale|loss scale (?:is )?(?:already )?at (?:its )?minimum"
        r"|Loss scale .*exiting",
        "fp16's loss scale went down to its end: every update overflowed",
        "use bf16 (--set precision=bf16), or a lower training.lr",
    ),
    # --- checkpoints and disk
    Problem(
        "disk-full",
        r"\[Errno (?:27|28|122)\]|No space left on device|Disk quota exceeded"
        r"|PytorchStreamWriter failed writing|inline_container\.cc:\d+\] \. unexpected pos",
        "the disk is full, or the quota on it",
        "make room, or write elsewhere (--save, --data-cache-path, --runs)",
    ),
    Problem(
        "index-cache",
        r"EOFError: No data left in file|EOF: reading (?:magic|array)|mmap length is greater than",
        "a file of the dataset's index cache is cut off: a run was killed while it wrote it",
        "remove the folder of --data-cache-path (index-cache beside the dataset) and start again",
    ),
    Problem(
        "read-only",
        r"Error: \[Errno (?:1|13|20|30)\] [^:]*: (?P<path>.*)",
        "{path} cannot be written",
        "make it writable, or choose another folder",
    ),
    Problem(
        "missing-file",
        r"FileNotFoundError: \[Errno 2\] No such file or directory: (?P<path>.*)",
        "{path} does not exist",
        "check the path that the configuration names",
    ),
    Problem(
        "checkpoint-resume",
        r"OptimizerParamScheduler: class input value|assert len\(steps\) == 1"
        r"|(?s:distrib_optimizer\.py.*KeyError: 'step')",
        "the checkpoint does not fit this configuration",
        "start without --load, or with --override-opt_param-scheduler; "
        "--use-distributed-optimizer cannot be resumed without Transformer Engine or apex",
    ),
    Problem(
        "checkpoint-write",
        r"CheckpointException ranks",
        "the checkpoint could not be written or read (the log says no more)",
        "check room and rights of the folder of --save",
        Weight.SIGN,
    ),
    Problem(
        "checkpoint-format",
        r"_write_item\(\) missing 1 required positional argument: 'serialization_format'"
        r"|legacy model format only supports the 'torch' checkpoint",
        "this PyTorch is newer than the Megatron's torch_dist checkpoints support",
        "--set megatron.ckpt-format=torch, or do not save",
    ),
    # --- devices and driver
    Problem(
        "no-gpu",
        r"Found no NVIDIA driver|Megatron requires CUDA|Torch not compiled with CUDA"
        r"|No CUDA GPUs are available|no CUDA-capable device is detected",
        "PyTorch sees no NVIDIA GPU",
        "check nvidia-smi and CUDA_VISIBLE_DEVICES, or train on CPU: --device cpu",
    ),
    Problem(
        "driver",
        r"driver on your system is too old|CUDA driver version is insufficient"
        r"|no kernel image is available for execution|forward compatibility was attempted"
        r"|system has unsupported display driver|driver/library version mismatch",
        "the NVIDIA driver, PyTorch's CUDA and the GPU do not fit together",
        "update the driver, or install a PyTorch built for it (nvidia-smi shows its CUDA version)",
    ),
    Problem(
        "gpu-fault",
        r"uncorrectable (?:NVLink|ECC) error|CUDA error: (?:unspecified launch failure|hardware)"
        r"|GPU has fallen off the bus",
        "the GPU reported a fault",
        "see dmesg for Xid messages; reset or replace the GPU",
    ),
    Problem(
        "illegal-access",
        r"CUDA error: an illegal memory access|device-side assert triggered",
        "a CUDA kernel failed; the line is where it was noticed, not where it happened",
        "run again with CUDA_LAUNCH_BLOCKING=1; a token beyond the vocabulary is a common reason",
    ),
    # --- network between the ranks
    Problem(
        "port",
        r"EADDRINUSE|[Aa]ddress already in use",
        lambda found: f"the rendezvous port{port_in(found)} is taken by another process",
        "leave out launch.master_port for a free one, choose another, or end that process "
        "(ss -ltnp shows it); several launchers on one machine need a port each",
    ),
    Problem(
        "nccl-shm",
        r"(?s:(?i:nccl).*(?:/dev/shm|shared memory segment|No space left))"
        r"|unhandled system error|ncclSystemError",
        "NCCL could not use the machine: mostly /dev/shm is too small in a container",
        "start the container with --ipc=host or --shm-size=8g; NCCL_DEBUG=INFO says more",
    ),
    Problem(
        "nccl-interface",
        r"no socket interface found|Bootstrap : no socket|connect to .* (?:failed|timed out)"
        r".*(?:ncclRemoteError|Software caused)|No route to host|unable to find a interface",
        "the ranks cannot reach each other over the network interface that was chosen",
        "set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to the right interface",
    ),
    Problem(
        "nccl-peer-access",
        r"peer access is not supported|p2p.*(?:failed|not supported)|ncclUnhandledCudaError",
        "NCCL could not use the direct path between the GPUs",
        "NCCL_P2P_DISABLE=1 to see whether that is it; NCCL_DEBUG=INFO says more",
    ),
    Problem(
        "interrupted",
        r"\bSignalException: Process \d+ got signal: (?P<signal>\d+)|^KeyboardInterrupt"
        r"|Received (?P<number>\d+) death signal|Received Signals\.(?P<word>SIG\w+) death signal"
        r"|SystemExit|DUE TO TIME LIMIT|slurmstepd: error: .* CANCELLED",
        "the run was stopped from outside",
        "start it again",
        Weight.CONSEQUENCE,
    ),
    Problem("summary", r"ChildFailedError|Exception ignored in", "", "", Weight.NOISE),
    Problem(
        "segmentation-fault",
        r"exitcode\s*: -11\b|Signal 11 \(SIGSEGV\)|Segmentation fault",
        "a training process died of a segmentation fault",
        "a compiled extension does not fit (rebuild it), or the stack limit is low (ulimit -s); "
        "PYTHONFAULTHANDLER=1 shows where",
        Weight.SIGN,
    ),
    Problem(
        "killed",
        r"exitcode\s*: -9\b|Signal 9 \(SIGKILL\)|^Killed$|killed by signal: Killed",
        "a training process was killed (SIGKILL): mostly by the kernel, out of memory",
        "see dmesg for oom-kill; use fewer processes or workers, or raise the memory limit",
        Weight.SIGN,
    ),
    Problem(
        "aborted",
        r"exitcode\s*: -6\b|Signal 6 \(SIGABRT\)",
        "a training process aborted",
        "its own message stands above in the log",
        Weight.CONSEQUENCE,
    ),
    Problem(
        "late-rank",
        r"is setting up NCCL communicator and retrieving ncclUniqueId|Socket Timeout"
        r"|wait timeout after \d+ms|Timed out after \d+ seconds waiting for clients",
        "a rank waited in vain for another, which failed or still compiles (no error of it is "
        "in this log)",
        "see the other ranks' output; compile the helpers and kernels before; "
        "set NCCL_SOCKET_IFNAME when the network is at fault",
        Weight.CONSEQUENCE,
    ),
    Problem(
        "nccl-timeout",
        r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d+)",
        "a collective operation ({number}) timed out: one rank did not take part (no other error "
        "is in this log)",
        "see the output of the rank that does not report; a known slow step needs a larger "
        "--distributed-timeout-minutes",
        Weight.CONSEQUENCE,
    ),
    Problem(
        "nccl-timeout",
        r"Watchdog caught collective|collective operation timeout|To avoid data inconsistency",
        "a collective operation timed out: one rank did not take part (no other error is in this "
        "log)",
        "see the output of the rank that does not report",
        Weight.CONSEQUENCE,
    ),
    Problem(
        "peer-gone",
        r"Connection closed by peer|Connection reset by peer|Broken pipe|ncclRemoteError"
        r"|ncclInternalError|NCCL communicator was aborted|recvValue failed|sendBytes failed",
        "another rank ended before (no error of it is in this log)",
        "see the output of the other ranks",
        Weight.CONSEQUENCE,
    ),
    Problem(
        "nccl",
        r"\bNCCL error\b|DistBackendError",
        "NCCL failed",
        "run again with NCCL_DEBUG=INFO",
        Weight.CONSEQUENCE,
    ),
    Problem(
        "dead-worker",
        r"multiprocessing\.pool\.RemoteTraceback|DataLoader worker \(pid.*exited unexpectedly",
        "a worker process died",
        "run with one worker to see its own error (--workers 1, or num-workers=0)",
        Weight.SIGN,
    ),
    # --- ended without a step
    Problem(
        "no-checkpoint",
        r">> '--exit-on-missing-checkpoint' set",
        "there is no checkpoint to load, and --exit-on-missing-checkpoint ends the run then",
        "give the right --load, or leave the flag out",
        Weight.WITHOUT_STEP,
    ),
    Problem(
        "checkpoint-finished",
        r"loaded checkpoint from (?P<path>.+?)(?: \[.*\])? at iteration (?P<step>\d+)",
        "the checkpoint in {path} is at step {step} already: nothing was left to train",
        "raise training.train_iters, or start without --load",
        Weight.WITHOUT_STEP,
    ),
]


def oom_detail(found: Found) -> str:
    """Return which GPU and how full, where the message says so."""
    gpu = re.search(r"\bGPU (\d+)\b", found["text"])
    total = re.search(
        r"(?:total )?capacity(?: of)? ([\d.]+ \wiB)|([\d.]+ \wiB) total", found["text"]
    )
    wanted = re.search(r"Tried to allocate ([\d.]+ \wiB)", found["text"])
    parts = [
        f" (GPU {gpu[1]}" if gpu else "",
        f", {total[1] or total[2]}" if gpu and total else "",
        ")" if gpu else "",
        f", {wanted[1]} more did not fit" if wanted else "",
    ]
    return "".join(parts)


def port_in(found: Found) -> str:
    """Return the port of a message about one, with a blank in front."""
    port = re.search(r"\bport: (\d+)|:(\d{2,5}) \(errno", found["text"])
    return f" {port[1] or port[2]}" if port else ""
