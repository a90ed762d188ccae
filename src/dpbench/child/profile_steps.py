"""Profile an unmodified Megatron script: `python profile_steps.py SCRIPT ARGUMENTS...`.

Megatron's own ways are of little use here: `--timing-log-level 2` makes the ranks wait for each
other at every timer, and `--profile --use-pytorch-profiler` writes traces of hundreds of megabytes
without the borders of the phases. This program marks the phases instead, by wrapping what
`train_step` is given, and divides the run into

* WARM_UP steps that do not count (compilation, graph capture);
* PLAIN steps with nothing but clock readings (CUDA events on a GPU, so that nothing waits);
* one step for the profiler to start, then TRACED steps under torch's profiler;
* the gradients' all-reduce alone, on the training's own buffers, a few times.

Each rank then writes profile-rankN.json into the folder DPBENCH_PROFILE_FOLDER; its trace is
deleted unless DPBENCH_KEEP_TRACE is set. Below core_v0.16 `train_step` may take other arguments.
"""

import contextlib
import faulthandler
import functools
import gzip
import inspect
import json
import os
import runpy
import signal
import sys
import time
import warnings
from pathlib import Path
from statistics import median

faulthandler.register(signal.SIGUSR2)  # dpbench's guard asks for stacks with it
if os.environ.get("RANK", "0") != "0":  # one copy of each import warning is enough
    warnings.filterwarnings("ignore")

import torch
import torch.distributed
from trace_reduction import PREFIX, reduce_trace

SCHEMA_VERSION = 1
WARM_UP, PLAIN, TRACED = 10, 12, 3
FIRST_TRACED = WARM_UP + PLAIN + 2
STEPS = FIRST_TRACED + TRACED
"""Steps that the training must have: the last one only ends the profile."""
ALL_REDUCES, ALL_REDUCES_WARM_UP = 5, 2


class Recorder:
    """What is known of the steps of this rank."""

    def __init__(self, folder, *, keep_trace):
        self.folder, self.keep_trace = folder, keep_trace
        self.number = 0
        self.spans = []
        """Of each plain step: (name, start, end) with marks."""
        self.borders = []
        """A mark at the start of each plain step, and at the end of the last."""
        self.profiler = None
        self.call = None
        self.on_gpu = False

    @property
    def is_plain(self):
        """Whether this step is one of those that are only timed."""
        return WARM_UP < self.number <= WARM_UP + PLAIN

    def parameters(self):
        """Return the parameters that are trained."""
        return [one for chunk in self.call["model"] for one in chunk.parameters()]

    def mark(self):
        """Return this moment, for the host and for the stream of the GPU."""
        event = None
        if self.on_gpu and not torch.cuda.is_current_stream_capturing():
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        return time.perf_counter(), event

    @contextlib.contextmanager
    def phase(self, name):
        """Time what is inside as a phase of the step."""
        if self.is_plain:
            start = self.mark()
            yield
            self.spans[-1].append((name, start, self.mark()))
        elif self.profiler:
            with torch.profiler.record_function(PREFIX + name):
                yield
        else:
            yield

    def wrap(self, function, name):
        """Return a function whose calls are a phase of the step."""

        def wrapper(*args, **kwargs):
            with self.phase(name):
                return function(*args, **kwargs)

        return wrapper

    def begin_step(self, call):
        """Note that a step begins; `call` has the arguments of train_step by name."""
        self.number += 1
        if self.call is None:
            self.call = call
            self.on_gpu = self.parameters()[0].is_cuda
            call["optimizer"].step = self.wrap(call["optimizer"].step, "optimizer")
            config = call["config"]
            if config.finalize_model_grads_func:
                exchange = self.wrap(config.finalize_model_grads_func, "gradients")
                config.finalize_model_grads_func = exchange
        if WARM_UP < self.number <= WARM_UP + PLAIN + 1:
            self.borders.append(self.mark())
        if self.is_plain:
            self.spans.append([])
        if self.number == WARM_UP + PLAIN + 1:
            self.start_trace()
        elif self.number == STEPS:
            self.end()

    def start_trace(self):
        """Start torch's profiler: without shapes and stacks, which would slow the host further."""
        kinds = torch.profiler.ProfilerActivity
        activities = [kinds.CPU, kinds.CUDA] if self.on_gpu else [kinds.CPU]
        self.profiler = torch.profiler.profile(activities=activities)
        self.profiler.start()

    def end(self):
        """Stop the profiler, try the all-reduce alone, and write what was found."""
        torch.cuda.synchronize()
        self.profiler.stop()
        profiler, self.profiler = self.profiler, None
        rank = torch.distributed.get_rank()
        trace = self.folder / f"trace-rank{rank}.json.gz"
        figures = {
            **describe_rank(self.parameters()),
            "gradient_buckets": count_buckets(self.call["model"]),
            "all_reduce": try_all_reduce(self.call["model"]),
            "plain": [
                describe_step(spans, *self.borders[place : place + 2])
                for place, spans in enumerate(self.spans)
            ],
        }
        profiler.export_chrome_trace(str(trace))
        with gzip.open(trace, "rt", encoding="utf-8", errors="replace") as file:
            figures["trace"] = reduce_trace(json.load(file)["traceEvents"])
        if not self.keep_trace:
            trace.unlink()
        temporary = self.folder / f".profile-rank{rank}.json"
        temporary.write_text(json.dumps(figures), encoding="utf-8")
        temporary.replace(self.folder / f"profile-rank{rank}.json")


def between_ms(start, end):
    """Return the time between two marks: that of the GPU's stream if both have it."""
    if start[1] is not None and end[1] is not None:
        return start[1].elapsed_time(end[1])
    return (end[0] - start[0]) * 1e3


def describe_step(spans, start, end):
    """Return the milliseconds of a plain step and its phases; `input` is the host's own time."""
    step = {"step_ms": (end[0] - start[0]) * 1e3}
    for name in ("forward_backward", "gradients", "optimizer", "input"):
        found = [(one, other) for what, one, other in spans if what == name]
        if name == "input":
            total = sum(other[0] - one[0] for one, other in found) * 1e3
        else:
            total = sum(between_ms(one, other) for one, other in found)
        step[f"{name}_ms"] = total if found else None
    return step


def describe_rank(parameters):
    """Return what this rank is and what it trains."""
    from megatron.core import parallel_state
    from megatron.core.num_microbatches_calculator import get_num_microbatches
    from megatron.training import get_args

    args = get_args()
    grads = [(one.numel(), getattr(one, "main_grad", one)) for one in parameters]
    on_gpu = parameters[0].is_cuda
    return {
        "schema_version": SCHEMA_VERSION,
        "rank": torch.distributed.get_rank(),
        "world_size": torch.distributed.get_world_size(),
        "data_parallel_size": parallel_state.get_data_parallel_world_size(),
        "device": "cuda" if on_gpu else "cpu",
        "device_name": torch.cuda.get_device_name() if on_gpu else None,
        "cores": len(os.sched_getaffinity(0)),
        "cpu_threads": torch.get_num_threads(),
        "micro_batch_size": args.micro_batch_size,
        "micro_batches_per_step": get_num_microbatches(),
        "seq_length": args.seq_length,
        "parameters": sum(count for count, _ in grads),
        "gradient_bytes": sum(count * grad.element_size() for count, grad in grads),
        "overlap_grad_reduce": bool(args.overlap_grad_reduce),
        "use_distributed_optimizer": bool(args.use_distributed_optimizer),
        "num_workers": args.num_workers,
    }


def count_buckets(model):
    """Return how many exchanges the gradients of a step are divided into; None if not known."""
    groups = [getattr(chunk, "bucket_groups", None) for chunk in model]
    return None if None in groups else sum(map(len, groups))


def try_all_reduce(model):
    """Return bytes and milliseconds of an all-reduce of all gradients with nothing else going on.

    It works on the buffers of the training, which are zeroed before the next step, so that it
    needs no memory. None with one rank, or when Megatron keeps gradients elsewhere.
    """
    from megatron.core import parallel_state

    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    own = [chunk.buffers for chunk in model if isinstance(chunk.buffers, list)]
    buffers = [one.grad_data for chunk in own for one in chunk]
    if torch.distributed.get_world_size(group) == 1 or not buffers:
        return None
    times = []
    for _ in range(ALL_REDUCES_WARM_UP + ALL_REDUCES):
        torch.distributed.barrier(group)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for buffer in buffers:
            torch.distributed.all_reduce(buffer, group=group)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    for buffer in buffers:
        buffer.zero_()
    size = sum(buffer.numel() * buffer.element_size() for buffer in buffers)
    return {"bytes": size, "ms": median(times[ALL_REDUCES_WARM_UP:])}


def watch_training(recorder):
    """Wrap Megatron's train_step, and the iterator that gives it the samples."""
    from megatron.core.rerun_state_machine import RerunDataIterator
    from megatron.training import training

    train_step = training.train_step
    signature = inspect.signature(train_step)

    @functools.wraps(train_step)
    def wrapper(*args, **kwargs):
        call = signature.bind(*args, **kwargs)
        recorder.begin_step(call.arguments)
        work = call.arguments["forward_backward_func"]
        call.arguments["forward_backward_func"] = recorder.wrap(work, "forward_backward")
        traced = recorder.profiler and recorder.number >= FIRST_TRACED
        with recorder.phase("step") if traced else contextlib.nullcontext():
            return train_step(*call.args, **call.kwargs)

    training.train_step = wrapper
    take = RerunDataIterator.__next__

    def next_sample(self):
        with recorder.phase("input"):
            return take(self)

    RerunDataIterator.__next__ = next_sample


def main():
    """Wrap, then become SCRIPT: its folder first on the path, its arguments in sys.argv."""
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    folder = Path(os.environ["DPBENCH_PROFILE_FOLDER"])
    watch_training(Recorder(folder, keep_trace=bool(os.environ.get("DPBENCH_KEEP_TRACE"))))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
