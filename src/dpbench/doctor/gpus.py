"""Checks of the GPUs: facts of NVML -> checks. Nothing here asks the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dpbench.doctor.check import Check, Rule, first_of, skipped
from dpbench.doctor.nvml import Gpu, Machine
from dpbench.gpu_busy import BUSY_BYTES, BUSY_PERCENT

MIN_MEMORY_BYTES = 15.0e9
"""A card sold with 16 GB; ECC and the driver keep part of it."""
MIN_CUDA = (11, 8)
HOT_CELSIUS = 87
BAD_REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
LIMITS = {0x02: "application clocks", 0x04: "power cap", 0x10: "sync boost", 0x100: "display"}
"""Reasons that hold the clock down as somebody configured it, or as heavy work does."""


def each(gpus: Sequence[Gpu], show: Callable[[Gpu], str]) -> str:
    """Return what is the same for all GPUs once, else what each has, by its number."""
    shown = [show(gpu) for gpu in gpus]
    if len(set(shown)) == 1:
        return shown[0]
    return ", ".join(f"{gpu.index}: {text}" for gpu, text in zip(gpus, shown, strict=True))


def check_driver(machine: Machine) -> Check:
    """Compare driver and CUDA with what the kernels need."""
    cuda = machine.cuda
    found = f"driver {machine.driver or 'unknown'}, serves CUDA {version(cuda)}"
    fix = "install NVIDIA driver 520 or later; a torch for CUDA 13 needs 580"
    rules: list[Rule] = [(cuda is not None and cuda < MIN_CUDA, "fail", "CUDA >= 11.8", fix)]
    return first_of("driver", found, rules, driver=machine.driver)


def version(parts: tuple[int, ...] | None) -> str:
    """Return 11.8 for (11, 8)."""
    return ".".join(map(str, parts)) if parts else "unknown"


def check_count(machine: Machine, ranks: int) -> Check:
    """Compare the GPUs that training would see with the processes asked for."""
    gpus, names = machine.gpus, sorted({gpu.name or "unknown" for gpu in machine.gpus})
    found = f"{len(gpus)} x {' and '.join(names)}"
    if machine.hidden:
        found += f", {machine.hidden} hidden by CUDA_VISIBLE_DEVICES"
    lost = [gpu.index for gpu in gpus if gpu.name is None]
    shut = [gpu.index for gpu in gpus if gpu.prohibited]
    return first_of(
        "GPUs",
        found,
        [
            (
                bool(lost),
                "fail",
                "all answer",
                f"GPU {numbers(lost)} is lost: see dmesg, then reboot",
            ),
            (len(gpus) < ranks, "fail", f">= {ranks}", f"give --gpus {len(gpus)} or less"),
            (bool(shut), "fail", "computing allowed", f"sudo nvidia-smi -i {numbers(shut)} -c 0"),
            (len(names) > 1, "warn", "GPUs of one kind", "compare runs on GPUs of one kind only"),
            (any(gpu.partitioned for gpu in gpus), "warn", "MIG off", "use whole GPUs"),
            (False, "ok", f">= {ranks}", ""),
        ],
        names=[gpu.name for gpu in gpus],
    )


def numbers(indices: Iterable[int]) -> str:
    """Return 0,2 for [0, 2]."""
    return ",".join(map(str, indices))


def check_memory(gpus: Sequence[Gpu]) -> Check:
    """Compare the memory of each GPU with 16 GB, and look for memory errors."""
    sizes = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes]
    if not sizes:
        return skipped("GPU memory", "NVML does not tell it")
    broken = [gpu.index for gpu in gpus if gpu.memory_errors]
    small = "a smaller model may fit: --set training.micro_batch_size=1, fewer model.num_layers"
    return first_of(
        "GPU memory",
        each(gpus, lambda gpu: gigabytes(gpu.memory_bytes)),
        [
            (min(sizes) < MIN_MEMORY_BYTES, "fail", ">= 16 GB", small),
            (
                bool(broken),
                "warn",
                "no memory errors",
                f"GPU {numbers(broken)} has uncorrected ECC errors: reset or replace it",
            ),
            (False, "ok", ">= 16 GB", ""),
        ],
        memory_bytes=[gpu.memory_bytes for gpu in gpus],
    )


def gigabytes(size: int | None) -> str:
    """Return 143.8 GB (10^9 bytes)."""
    return "unknown" if size is None else f"{size / 1e9:.1f} GB"


def check_capability(gpus: Sequence[Gpu], precision: str) -> Check:
    """Compare the compute capability with what kernels and precision need."""
    known = [gpu.capability for gpu in gpus if gpu.capability]
    if not known:
        return skipped("capability", "NVML does not tell it")
    bf16 = precision == "bf16"
    rules: list[Rule] = [
        (min(known) < (7, 0), "fail", ">= 7.0", "use a Volta or later GPU"),
        (bf16 and min(known) < (8, 0), "fail", ">= 8.0 for bf16", "--set precision=fp16"),
        (False, "ok", f">= {'8.0 for bf16' if bf16 else '7.0'}", ""),
    ]
    return first_of("capability", each(gpus, lambda gpu: version(gpu.capability)), rules)


def check_idle(gpus: Sequence[Gpu]) -> Check:
    """Look for work of others on the GPUs; made before dpbench starts any of its own."""
    busy = [
        gpu
        for gpu in gpus
        if gpu.processes
        or (gpu.used_bytes or 0) > BUSY_BYTES
        or (gpu.utilization_percent or 0) > BUSY_PERCENT
    ]
    found = "; ".join(f"{gpu.index}: {describe_use(gpu)}" for gpu in busy) or "nobody else"
    fix = "wait for it or end it, or choose idle GPUs: CUDA_VISIBLE_DEVICES=2,3 dpbench ..."
    return first_of("GPU use", found, [(bool(busy), "warn", "idle GPUs", fix)])


def describe_use(gpu: Gpu) -> str:
    """Return what somebody does on a GPU."""
    pids = f"process {numbers(gpu.processes)}" if gpu.processes else "an unseen process"
    return f"{pids}, {gigabytes(gpu.used_bytes)}, {gpu.utilization_percent or 0} % busy"


def check_clocks(gpus: Sequence[Gpu], loaded: bool) -> Check:
    """Judge clock, temperature and what holds the clock down, best under load."""
    slowed = [
        f"{gpu.index}: {reason}"
        for gpu in gpus
        for bit, reason in BAD_REASONS.items()
        if (gpu.clock_reasons or 0) & bit
    ]
    hot = [gpu for gpu in gpus if is_hot(gpu)]
    slow = [gpu for gpu in gpus if loaded and is_slow(gpu)]
    found = each(gpus, describe_clock) + ("" if loaded else " (idle)")
    if slowed:
        found += f"; slowed down: {', '.join(slowed)}"
    return first_of(
        "GPU clock",
        found,
        [
            (bool(slowed), "warn", "no slowdown", "see to cooling and power: nvidia-smi -q -d "
             "PERFORMANCE,TEMPERATURE,POWER"),
            (bool(hot), "warn", f"< {HOT_CELSIUS} C", "see to cooling: fans, airflow, dust"),
            (bool(slow), "warn", ">= 60 % of the highest", "sudo nvidia-smi -rgc -rac takes clock "
             "limits away; -pl raises the power limit"),
            (False, "ok", "no slowdown", ""),
        ],
        clock_mhz=[gpu.clock_mhz for gpu in gpus],
        temperature_celsius=[gpu.temperature_celsius for gpu in gpus],
        power_watts=[gpu.power_watts for gpu in gpus],
    )  # fmt: skip


def is_hot(gpu: Gpu) -> bool:
    """Tell whether a GPU is near the temperature at which it slows down."""
    limit = gpu.slowdown_celsius or HOT_CELSIUS
    return gpu.temperature_celsius is not None and gpu.temperature_celsius >= min(
        limit - 2, HOT_CELSIUS
    )


def is_slow(gpu: Gpu) -> bool:
    """Tell whether the clock is far below the highest; heavy work alone takes a fifth."""
    return bool(gpu.clock_mhz and gpu.max_clock_mhz and gpu.clock_mhz < 0.6 * gpu.max_clock_mhz)


def describe_clock(gpu: Gpu) -> str:
    """Return clock, temperature and power as far as they are known."""
    parts = []
    if gpu.clock_mhz is not None:
        parts.append(f"{gpu.clock_mhz} of {gpu.max_clock_mhz or '?'} MHz")
    if gpu.temperature_celsius is not None:
        parts.append(f"{gpu.temperature_celsius} C")
    if gpu.power_watts is not None:
        parts.append(f"{gpu.power_watts:.0f} of {gpu.power_limit_watts or 0:.0f} W")
    held = [reason for bit, reason in LIMITS.items() if (gpu.clock_reasons or 0) & bit]
    return " ".join(parts) + (f" ({', '.join(held)})" if held else "") or "unknown"


def check_pcie(gpus: Sequence[Gpu], loaded: bool) -> Check:
    """Compare the PCIe link with the best that slot and GPU can do."""
    known = [(gpu.pcie, gpu.max_pcie) for gpu in gpus if gpu.pcie and gpu.max_pcie]
    if not known:
        return skipped("PCIe", "NVML does not tell it")
    narrow = any(now[1] < best[1] for now, best in known)
    slow = loaded and any(now[0] < best[0] for now, best in known)
    best = each(gpus, lambda gpu: describe_pcie(gpu.max_pcie))
    fix = "reseat the card or riser, look at the slot's setting in the BIOS"
    rules: list[Rule] = [(narrow or slow, "warn", best, fix)]
    found = each(gpus, lambda gpu: describe_pcie(gpu.pcie)) + ("" if loaded else " (idle)")
    return first_of("PCIe", found, rules)


def describe_pcie(link: tuple[int, int] | None) -> str:
    """Return gen5 x16 for (5, 16)."""
    return f"gen{link[0]} x{link[1]}" if link else "unknown"


def check_nvlink(gpus: Sequence[Gpu]) -> Check:
    """Look for NVLinks that are down."""
    some = [gpu for gpu in gpus if gpu.links and gpu.links[0]]
    if not some:
        return skipped("NVLink", "these GPUs have none, or none is connected")
    alive = [gpu for gpu in gpus if gpu.name]
    down = [gpu for gpu in alive if not gpu.links or gpu.links[0] < gpu.links[1]]
    fix = "nvidia-smi nvlink --status shows which; a bridge may by design use only some"
    found = each(gpus, lambda gpu: f"{gpu.links[0]} of {gpu.links[1]} up" if gpu.links else "none")
    return first_of("NVLink", found, [(bool(down), "warn", "all up", fix)])
