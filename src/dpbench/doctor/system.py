"""Checks of the operating system: processors, memory, shared memory, limits, disk, ports, hub."""

from __future__ import annotations

import http.client
import os
import resource
import shutil
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import psutil

from dpbench.cgroup import quota_cores, read_words
from dpbench.doctor.check import Check, Rule, first_of, passed, skipped
from dpbench.errors import SetupError
from dpbench.port import check_port as check_free

GIB, MIB = 1 << 30, 1 << 20
CGROUP = Path("/sys/fs/cgroup")
SHM = Path("/dev/shm")
HUB_SECONDS = 4.0


def check_processors(ranks: int, device: str, threads: int) -> Check:
    """Compare the processors that this process may use with the training processes."""
    cores = min(len(os.sched_getaffinity(0)), quota_cores() or 1 << 20)
    found = f"{cores:g} for {ranks} process{'es' if ranks > 1 else ''}"
    fewer = f"give --gpus {max(int(cores), 1)} or less, or fewer launch.cpu_threads"
    more = "ask for more cores (Slurm: --cpus-per-task, Docker: --cpus): starved GPUs are slow"
    rules: list[Rule] = [
        (ranks > max(cores, 2), "fail", f">= {ranks}", fewer),
        (ranks * threads > cores, "warn", f">= {ranks} x {threads} threads", fewer),
    ]
    if device == "cuda":
        rules = [(cores < 2 * ranks, "warn", ">= 2 a GPU", more)]
    return first_of("CPU cores", found, rules, cores=cores)


def check_memory(ranks: int, device: str) -> Check:
    """Compare free main memory, within a container's limit, with what the processes take."""
    free = min(psutil.virtual_memory().available, cgroup_free_bytes() or 1 << 60)
    each = 4.0 if device == "cuda" else 1.5
    fix = "end other programs, or ask for more memory"
    return first_of(
        "memory",
        f"{free / GIB:.1f} GiB free",
        [
            (free < ranks * GIB, "fail", f">= {ranks} GiB", f"{fix}; training would be killed"),
            (free < ranks * each * GIB, "warn", f">= {each:g} GiB a process", fix),
        ],
        free_bytes=free,
    )


def cgroup_free_bytes() -> int | None:
    """Return what a container may still take; None without a limit."""
    limit, used = (read_words(CGROUP / f"memory.{name}") for name in ("max", "current"))
    if not (limit and used and limit[0].isdigit() and used[0].isdigit()):
        return None
    cache = read_words(CGROUP / "memory.stat")
    inactive = dict(zip(cache[::2], cache[1::2], strict=False)).get("inactive_file", "0")
    return max(0, int(limit[0]) - int(used[0]) + int(inactive))


def check_shared_memory() -> Check:
    """Look at /dev/shm, where NCCL and the data loader's workers exchange data."""
    try:
        usage = shutil.disk_usage(SHM)
    except OSError as error:
        return skipped("/dev/shm", f"{SHM}: {error.strerror}")
    fix = "start the container with --shm-size=8g or --ipc=host, or remove stale files in it"
    return first_of(
        "/dev/shm",
        f"{usage.free / GIB:.2f} of {usage.total / GIB:.2f} GiB free",
        [
            (usage.free < 32 * MIB, "fail", ">= 1 GiB", fix),
            (usage.free < GIB, "warn", ">= 1 GiB", fix),
        ],
    )


def check_locked_memory() -> Check:
    """Look at the limit of locked memory, which only InfiniBand needs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    found = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft / MIB:g} MiB"
    adapters = Path("/sys/class/infiniband")
    if not adapters.is_dir() or not any(adapters.iterdir()):
        return passed("locked memory", f"{found}, no InfiniBand here that needs more")
    fix = "ulimit -l unlimited (Docker: --ulimit memlock=-1); only NCCL over InfiniBand needs it"
    limited = soft != resource.RLIM_INFINITY
    return first_of("locked memory", found, [(limited, "warn", "unlimited", fix)])


def check_open_files(ranks: int) -> Check:
    """Look at the limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft != resource.RLIM_INFINITY
    top = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    fix = f"ulimit -n {top} in the shell that starts dpbench"
    return first_of(
        "open files",
        "unlimited" if not few else f"{soft}",
        [
            (few and soft < 64 * ranks, "fail", ">= 1024", fix),
            (few and soft < 1024, "warn", ">= 1024", fix),
        ],
    )


def check_disk(folder: Path) -> Check:
    """Look at room and rights where runs and data are written."""
    name = "disk"
    if not os.access(folder, os.W_OK):
        fix = "go to a folder that you may write to, or use --runs FOLDER"
        return Check(name=name, status="fail", found=f"{folder} is not writable", fix=fix)
    free = shutil.disk_usage(folder).free
    fix = "make room: runs and data are written below this folder"
    return first_of(
        name,
        f"{free / GIB:.1f} GiB free here",
        [(free < 100 * MIB, "fail", ">= 2 GiB", fix), (free < 2 * GIB, "warn", ">= 2 GiB", fix)],
        free_bytes=free,
    )


def check_port(port: int | None) -> Check:
    """See whether the rendezvous port, or any port of the loopback interface, can be had."""
    try:
        if port:
            check_free(port)
        else:
            socket.create_server(("127.0.0.1", 0)).close()
    except SetupError as error:
        return Check(
            name="port", status="fail", found=str(error), wanted="a free port", fix=error.hint
        )
    except OSError as error:
        found, fix = f"127.0.0.1: {error.strerror}", "bring the loopback interface up"
        return Check(name="port", status="fail", found=found, wanted="a free port", fix=fix)
    return passed("port", f"{port} is free" if port else "a free one on 127.0.0.1")


def check_nccl_variables(environment: Mapping[str, str]) -> Check:
    """Show NCCL's variables, which training inherits; those that take a fast path away warn."""
    found = {name: value for name, value in sorted(environment.items()) if name[:5] == "NCCL_"}
    slow = [
        name
        for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
        if found.get(name) not in (None, "", "0")
    ]
    shown = " ".join(f"{name}={value}" for name, value in found.items()) or "none set"
    fix = f"unset {' '.join(slow)}, unless something here hangs without"
    rules: list[Rule] = [(bool(slow), "warn", "no fast path switched off", fix)]
    return first_of("NCCL variables", shown, rules)


def check_hub(needed: bool) -> Check:
    """See whether the Hugging Face hub answers, when something has still to come from there."""
    name = "hub"
    if not needed:
        return passed(name, "not needed: data and tokenizer are here")
    from huggingface_hub import constants

    fix = "dpbench prep --input FILE --vocab-file FILE --merge-file FILE needs no hub"
    if constants.HF_HUB_OFFLINE:
        return Check(name=name, status="warn", found="HF_HUB_OFFLINE is set", fix=fix)
    problem = reach(constants.ENDPOINT, HUB_SECONDS)
    if problem is None:
        return passed(name, f"{constants.ENDPOINT} answers")
    return Check(name=name, status="warn", found=f"{constants.ENDPOINT}: {problem}", fix=fix)


def reach(address: str, seconds: float) -> str | None:
    """Return why an address does not answer in time; None when it does.

    In a thread, because nothing else bounds the time of name resolution.
    """
    problems = [f"no answer in {seconds:g} s"]

    def ask() -> None:
        try:
            request = urllib.request.Request(address, method="HEAD")
            with urllib.request.urlopen(request, timeout=seconds):
                problems.clear()
        except urllib.error.HTTPError:
            problems.clear()  # it answers
        except (OSError, ValueError, http.client.HTTPException) as error:
            problems[:] = [str(getattr(error, "reason", error))]

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return next(iter(problems), None)
