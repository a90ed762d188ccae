"""Try on the devices what training needs: `python check_gpus.py cuda|cpu`, or under torchrun.

One process a device, as in training. Every finding is a line of its own, MARK and a JSON object,
written at once, so that a process that hangs has told what it found before. On CPU the same is
done with gloo. Findings, in this order: torch, matmul, group, all_reduce, sums, done; error ends
them early. Units: bytes, seconds, FLOP/s.
"""

import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.cuda import nccl

MARK = "dpbench-finding "
RANK = int(os.environ["RANK"])
LOCAL_RANK = int(os.environ["LOCAL_RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
GROUP_SECONDS = 20
ALL_REDUCE_BYTES = {
    "cuda": (4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20),
    "cpu": (4 << 10, 256 << 10, 4 << 20),
}
MATMUL_SIZE = {"cuda": 8192, "cpu": 256}
MATMUL_SECONDS = {"cuda": 1.0, "cpu": 0.05}


def tell(what, **values):
    """Write one finding; a line is short enough to stay whole beside those of other ranks."""
    line = MARK + json.dumps({"what": what, "rank": RANK, **values})
    os.write(1, f"\n{line}\n".encode())


def finish(device):
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def describe_torch(device):
    """Tell what torch is and which devices it sees."""
    facts = {"version": torch.__version__, "cuda": torch.version.cuda}
    if device.type == "cuda":
        count = torch.cuda.device_count()
        facts |= {
            "devices": count,
            "name": torch.cuda.get_device_name(device),
            "uuid": str(getattr(torch.cuda.get_device_properties(device), "uuid", "")) or None,
            "peers": [
                other
                for other in range(count)
                if other != LOCAL_RANK and torch.cuda.can_device_access_peer(LOCAL_RANK, other)
            ],
            "nccl": ".".join(map(str, nccl.version())),
        }
    tell("torch", **facts)


def try_matmul(device):
    """Multiply square matrices for a moment; tell FLOP/s, and `load` while it works.

    In bf16; in fp16 on GPUs before Ampere, which have no units for bf16.
    """
    size, dtype = MATMUL_SIZE[device.type], torch.bfloat16
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        dtype = torch.float16
    left, right = (torch.randn(size, size, dtype=dtype, device=device) for _ in "ab")
    for _ in range(2):  # the first one chooses and loads a kernel
        begun = start_matmuls(left, right, 1)
        finish(device)
    once = time.perf_counter() - begun
    count = max(1, min(2000, int(MATMUL_SECONDS[device.type] / once)))
    begun = start_matmuls(left, right, count // 2 + 1)
    finish(device)
    start_matmuls(left, right, count // 2 + 1)
    tell("load")
    finish(device)
    seconds = time.perf_counter() - begun
    product = left[:64] @ right
    expected = left[:64].float() @ right.float()
    error = ((product.float() - expected).norm() / expected.norm()).item()
    flops = 2 * size**3 * 2 * (count // 2 + 1)
    name = "bf16" if dtype is torch.bfloat16 else "fp16"
    tell("matmul", dtype=name, flops_per_second=flops / seconds, relative_error=error)


def start_matmuls(left, right, count):
    """Give the device products to compute; return when that began."""
    begun = time.perf_counter()
    for _ in range(count):
        left @ right
    return begun


def try_all_reduce(device):
    """Sum over 2, 4, ... and all processes; tell whether every sum was right."""
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=GROUP_SECONDS))
    tell("group", backend=dist.get_backend())
    counts = [n for n in (2, 4, 8, 16) if n < WORLD_SIZE] + [WORLD_SIZE]
    wrong = []
    for count in counts:
        group = dist.group.WORLD if count == WORLD_SIZE else dist.new_group(list(range(count)))
        if count <= RANK:
            continue
        for size in ALL_REDUCE_BYTES[device.type]:
            if not sum_is_right(group, count, size // 4, device):
                wrong.append({"processes": count, "bytes": size})
            seconds = time_all_reduce(group, size // 4, device)
            if RANK == 0:
                tell("all_reduce", processes=count, bytes=size, seconds=seconds)
    tell("sums", wrong=wrong)


def sum_is_right(group, count, elements, device):
    """Add up a different ramp from every process; small whole numbers, so float32 is exact."""
    ramp = torch.arange(elements, device=device, dtype=torch.float32) % 251
    values = ramp + dist.get_rank(group)
    dist.all_reduce(values, group=group)
    return bool(torch.equal(values, ramp * count + count * (count - 1) / 2))


def time_all_reduce(group, elements, device):
    """Return the seconds of one all-reduce: the best of three mean times."""
    values = torch.zeros(elements, device=device)
    repeats = 20 if elements < 1 << 20 else 5
    best = float("inf")
    for _ in range(3):
        dist.all_reduce(values, group=group)
        finish(device)
        begun = time.perf_counter()
        for _ in range(repeats):
            dist.all_reduce(values, group=group)
        finish(device)
        best = min(best, (time.perf_counter() - begun) / repeats)
    return best


def main():
    """Find out in order of what rests on what; the first that fails ends it."""
    device = torch.device(sys.argv[1], LOCAL_RANK if sys.argv[1] == "cuda" else None)
    step = "torch"
    try:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        describe_torch(device)
        step = "matmul"
        try_matmul(device)
        step = "all_reduce"
        try_all_reduce(device)
    except (RuntimeError, AssertionError, ValueError) as error:  # torch's own kinds
        tell("error", step=step, message=str(error).strip().split("\n")[0][:300])
        sys.exit(1)
    tell("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
