"""Run an unmodified Megatron script on CPU: `python on_cpu.py SCRIPT ARGUMENTS...`.

Megatron asks for CUDA everywhere, but what its data-parallel GPT path needs from CUDA is small.
This program answers those requests with the CPU and gloo, then runs SCRIPT as `__main__`:

* tensor factories, `.to` and `.cuda` map any CUDA device to the CPU;
* `torch.cuda` reports one device a local rank, whose random state is the CPU generator;
* NCCL process groups become gloo.

Attributes are replaced instead of a TorchFunctionMode, because a mode is not active in backward
hooks and in other threads. `current_device()` stays an int, so that f"cuda:{device}" keeps its
meaning. Every replaced torch function gets an object of its own: torch._dynamo asserts that no two
torch functions are the same object.
"""

import contextlib
import functools
import logging
import os
import runpy
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed

CPU = torch.device("cpu")
FACTORIES = (
    "tensor as_tensor zeros ones empty full rand randn randint randperm arange linspace eye "
    "empty_strided zeros_like ones_like empty_like full_like rand_like randn_like"
).split()
TENSOR_METHODS = "to new_zeros new_ones new_empty new_full new_tensor".split()
DO_NOTHING = "set_device synchronize empty_cache set_stream reset_peak_memory_stats _lazy_init init"
MEMORY_FIGURES = (
    "memory_allocated max_memory_allocated memory_reserved max_memory_reserved device_memory_used"
)


def is_cuda(device):
    """Tell whether a `device` argument means a GPU: a number, "cuda", "cuda:1" or torch.device."""
    if isinstance(device, bool):
        return False
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, int) or (isinstance(device, str) and device.startswith("cuda"))


def on_cpu(function):
    """Return `function` with a CUDA device, by keyword or as the argument after self, as CPU."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if is_cuda(kwargs.get("device")):
            kwargs["device"] = CPU
        if len(args) > 1 and isinstance(args[1], (str, torch.device)) and is_cuda(args[1]):
            args = (args[0], CPU, *args[2:])
        return function(*args, **kwargs)

    return wrapper


def constant(value):
    """Return a new function that ignores its arguments and returns value."""
    return lambda *args, **kwargs: value


def redirect_tensors():
    """Create and keep every tensor on the CPU."""
    for name in FACTORIES:
        setattr(torch, name, on_cpu(getattr(torch, name)))
    for name in TENSOR_METHODS:
        setattr(torch.Tensor, name, on_cpu(getattr(torch.Tensor, name)))
    torch.nn.Module.to = on_cpu(torch.nn.Module.to)
    torch.nn.Module.cuda = lambda self, *args, **kwargs: self
    torch.Tensor.cuda = lambda self, *args, **kwargs: self

    plain_type = torch.Tensor.type

    def cuda_type(self, dtype=None, *args, **kwargs):
        """Speak of 'torch.cuda.FloatTensor': Megatron compares and converts by these names."""
        if dtype is None:
            return plain_type(self).replace("torch.", "torch.cuda.", 1)
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.cuda.", "torch.")
        return plain_type(self, dtype, *args, **kwargs)

    torch.Tensor.type = cuda_type


class Stream:
    """A CUDA stream on a device that does one thing after another."""

    cuda_stream = 0

    def __init__(self, *args, **kwargs):
        pass

    wait_stream = wait_event = synchronize = record_event = constant(None)


class Event:
    """A CUDA event that keeps the wall clock."""

    def __init__(self, *args, **kwargs):
        self.seconds = 0.0

    def record(self, *args):
        """Keep the time of now."""
        self.seconds = time.perf_counter()

    def elapsed_time(self, end):
        """Return the milliseconds from this event to `end`."""
        return (end.seconds - self.seconds) * 1e3

    wait = synchronize = constant(None)
    query = constant(True)


def redirect_cuda():
    """Answer the `torch.cuda` and `torch.accelerator` calls of a training script."""
    cuda = torch.cuda
    generator = torch.default_generator
    answers = {
        "is_available": True,
        "device_count": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "current_device": 0,
        "get_device_capability": (8, 0),
        "get_device_name": "CPU",
        "get_device_properties": SimpleNamespace(
            name="CPU", major=8, minor=0, total_memory=0, multi_processor_count=1
        ),
    }
    answers |= dict.fromkeys(DO_NOTHING.split())
    answers |= dict.fromkeys(MEMORY_FIGURES.split(), 0)
    for name, value in answers.items():
        setattr(cuda, name, constant(value))
    cuda._lazy_call = lambda function, **kwargs: function()
    cuda.default_generators = (generator,) * 8
    for module in (cuda, cuda.random):
        module.get_rng_state = lambda *args, **kwargs: generator.get_state()
        module.set_rng_state = lambda state, *args, **kwargs: generator.set_state(state)
    cuda.manual_seed = lambda seed: generator.manual_seed(int(seed))
    cuda.manual_seed_all = lambda seed: generator.manual_seed(int(seed))
    cuda.Stream, cuda.Event = Stream, Event
    cuda.current_stream, cuda.default_stream = constant(Stream()), constant(Stream())
    cuda.stream = lambda stream: contextlib.nullcontext()
    # DataLoader(pin_memory=True) asks torch.accelerator, not torch.cuda
    torch.accelerator.is_available = constant(False)
    torch.accelerator.current_accelerator = constant(None)
    torch.accelerator.current_device_index = constant(0)
    # CPU and "CUDA" share one generator here, which Megatron would report at every dropout
    logging.getLogger("megatron.core.tensor_parallel.random").addFilter(
        lambda record: "CPU RNG state changed" not in record.getMessage()
    )


def redirect_process_groups():
    """Give gloo where NCCL is asked for."""

    def with_gloo(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            kwargs.pop("device_id", None)
            kwargs.pop("pg_options", None)
            if "nccl" in str(kwargs.get("backend")):
                kwargs["backend"] = "gloo"
            args = ["gloo" if isinstance(arg, str) and "nccl" in arg else arg for arg in args]
            return function(*args, **kwargs)

        return wrapper

    distributed = torch.distributed
    distributed.init_process_group = with_gloo(distributed.init_process_group)
    distributed.new_group = with_gloo(distributed.new_group)


def main():
    """Redirect, then become SCRIPT: its folder first on the path, its arguments in sys.argv."""
    redirect_tensors()
    redirect_cuda()
    redirect_process_groups()
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
