"""Checks of what the child programs found: imports, torch, speed of each device, all-reduce."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpbench.doctor.check import Check, Rule, first_of, passed, skipped
from dpbench.doctor.gpus import numbers
from dpbench.doctor.nvml import Machine
from dpbench.doctor.trial import Trial
from dpbench.rates import bf16_peak_tflops

FIXES = {
    "driver version is insufficient": "update the NVIDIA driver, or install a torch for its CUDA",
    "driver on your system is too old": "update the NVIDIA driver, or install a torch for its CUDA",
    "system not yet initialized": "start the fabric manager: systemctl start nvidia-fabricmanager",
    "no kernel image": "install a torch that is built for this GPU's compute capability",
    "out of memory": "the GPU is in use: end what runs on it",
    "busy or unavailable": "the GPU is in use exclusively: end what runs on it",
    "not compiled with CUDA": "install a CUDA build of torch, not the CPU one",
    "shared memory": "start the container with --shm-size=8g or --ipc=host",
    "No space left": "start the container with --shm-size=8g or --ipc=host, free disk space",
    "undefined symbol": "the package was built for another torch: build or install it anew",
    "libnccl": "reinstall torch: its NCCL does not load",
}
NVLINK_GB_PER_SECOND = 25.0
"""One link, one direction: NVLink 2 to 4 (NVLink 5 has twice that)."""


def fix_for(problem: str, otherwise: str) -> str:
    """Return what mends a problem by its words."""
    return next((fix for words, fix in FIXES.items() if words in problem), otherwise)


def check_imports(trial: Trial) -> Check:
    """Say whether Megatron can be imported."""
    name = "Megatron import"
    said = [line for line in trial.lines if line.startswith("imported: ")]
    if trial.status == 0 and said:
        return passed(name, f"{said[-1].removeprefix('imported: ')}, {trial.seconds:.1f} s")
    problem = trial.problem()
    if trial.timed_out:
        fix = "try again: the first import from a slow disk takes long, the second does not"
        return Check(name=name, status="warn", found=problem, fix=fix)
    fix = fix_for(problem, "install what is missing, or reinstall the package that it names")
    return Check(name=name, status="fail", found=problem, fix=fix)


def check_devices(trial: Trial, device: str, ranks: int, machine: Machine) -> Iterator[Check]:
    """Judge a trial in the order of its steps; what rests on a failed step was not looked at."""
    names = {"torch": "torch runs", "matmul": "matmul", "all_reduce": "all-reduce"}
    done = {"torch": "torch", "matmul": "matmul", "all_reduce": "sums"}
    for step, name in names.items():
        if missing := trial.missing(done[step], ranks):
            yield failed_step(trial, step, name, missing)
            rest = list(names.values())[list(names).index(step) + 1 :]
            yield from (skipped(other, f"{name} failed") for other in rest)
            return
        match step:
            case "torch":
                yield check_torch(trial, device, ranks)
            case "matmul":
                yield check_matmul(trial, device, machine)
            case _:
                yield from check_all_reduce(trial, device, ranks, machine)


def failed_step(trial: Trial, step: str, name: str, missing: list[int]) -> Check:
    """Return the check of a step that not every rank came through."""
    problem = trial.problem()
    if len(missing) < len(trial.told("torch")) and not trial.told("error"):
        problem += f" (rank {', '.join(map(str, missing))})"
    otherwise = {
        "torch": "reinstall torch, and see that nvidia-smi works",
        "matmul": "see dmesg for errors of the driver (Xid), and that the GPU is idle",
        "all_reduce": "try NCCL_DEBUG=INFO dpbench doctor; if NCCL_P2P_DISABLE=1 mends it, "
        "peer access is broken (ACS, IOMMU)",
    }[step]
    return Check(name=name, status="fail", found=problem, fix=fix_for(problem, otherwise))


def check_torch(trial: Trial, device: str, ranks: int) -> Check:
    """Say which torch runs and what it sees."""
    first = trial.told("torch")[0]
    if device == "cpu":
        return passed("torch runs", f"{first['version']} on CPU, {ranks} process(es)")
    found = f"{first['version']}, NCCL {first['nccl']}, sees {first['devices']} GPU(s)"
    return passed("torch runs", found, f">= {ranks}", nccl=first["nccl"], cuda=first["cuda"])


def check_matmul(trial: Trial, device: str, machine: Machine) -> Check:
    """Compare the devices' speeds with each other and with the GPU's peak, and the products."""
    told = trial.told("matmul")
    speeds = [told[rank]["flops_per_second"] / 1e12 for rank in sorted(told)]
    wrong = [rank for rank, one in told.items() if not one["relative_error"] < 0.02]
    shown = " ".join(f"{speed:.3g}" for speed in speeds)
    dtype = told[0]["dtype"]
    found = f"{shown} TFLOP/s in {dtype}" if device == "cuda" else f"right product in {dtype}"
    name = machine.gpus[0].name if machine.gpus and device == "cuda" else None
    peak = bf16_peak_tflops(name) if name else None
    lame = [rank for rank, speed in enumerate(speeds) if speed < 0.9 * max(speeds)]
    below = bool(peak and max(speeds) < 0.4 * peak)
    return first_of(
        "matmul",
        found,
        [
            (bool(wrong), "fail", "right products",
             f"GPU {numbers(wrong)} computes wrongly: replace it"),
            (device == "cuda" and bool(lame), "warn", "equal speeds",
             f"GPU {numbers(lame)} is slow and holds the others up: see clock and use above"),
            (below, "warn", f">= {0.4 * (peak or 0):.0f}", "see clock, power limit and use above"),
            (False, "ok", "equal speeds" if len(speeds) > 1 and device == "cuda" else "", ""),
        ],
        tflops=speeds,
    )  # fmt: skip


def check_all_reduce(trial: Trial, device: str, ranks: int, machine: Machine) -> Iterator[Check]:
    """Judge sums and bus bandwidth for each number of processes."""
    wrong = [one for told in trial.told("sums").values() for one in told["wrong"]]
    rows = [one for one in trial.findings if one["what"] == "all_reduce"]
    for count in sorted({row["processes"] for row in rows}):
        some = [bandwidth(row) for row in rows if row["processes"] == count]
        bad = any(one["processes"] == count for one in wrong)
        if bad:
            found, fix = "wrong sums", "see dmesg for errors of the driver (Xid) and of PCIe"
            yield Check(name=f"all-reduce {count}", status="fail", found=found, fix=fix)
        elif count == 1:
            yield passed("all-reduce 1", "right sum; one process exchanges nothing")
        else:
            yield judge_bandwidth(count, some, device, machine)


def bandwidth(row: dict[str, Any]) -> dict[str, Any]:
    """Return bytes, microseconds and bus bandwidth of an all-reduce.

    Bus bandwidth = bytes / seconds x 2 (n - 1) / n, so that it does not depend on n.
    Source: PERFORMANCE.md of NVIDIA/nccl-tests.
    """
    count, size, seconds = row["processes"], row["bytes"], row["seconds"]
    rate = size / seconds * 2 * (count - 1) / count / 1e9
    return {"bytes": size, "microseconds": seconds * 1e6, "bus_gb_per_second": rate}


def judge_bandwidth(count: int, rows: list[dict[str, Any]], device: str, machine: Machine) -> Check:
    """Compare the bus bandwidth of the largest sum with what the path should give."""
    small, best = rows[0], max(rows, key=lambda row: float(row["bus_gb_per_second"]))
    rates = (f"{r['bus_gb_per_second']:.3g} GB/s at {size_name(r['bytes'])}" for r in rows[1:])
    latency = f"{small['microseconds']:.0f} us for {size_name(small['bytes'])}"
    found = "; ".join(["right sums", latency, ", ".join(rates)])
    least = least_bus_gb_per_second(machine, count)
    low = device == "cuda" and best["bus_gb_per_second"] < least
    fix = "see GPU pairs, peer access and NCCL variables above; NCCL_DEBUG=INFO names the path"
    wanted = f">= {least:.0f} GB/s" if device == "cuda" else None
    rules: list[Rule] = [(low, "warn", wanted or "", fix)]
    return first_of(f"all-reduce {count}", found, rules, processes=count, sizes=rows)


def least_bus_gb_per_second(machine: Machine, count: int) -> float:
    """Return the bus bandwidth that the path between the first GPUs should give at least."""
    links = min((pair.links for pair in machine.pairs if pair.second < count), default=0)
    return 0.3 * NVLINK_GB_PER_SECOND * links or 2.0


def size_name(size: int) -> str:
    """Return 4 KiB for 4096 bytes, 1 MiB for 2**20."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
