"""Profiles made up for the tests: what the ranks of a profile run would write."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpbench.profile.causes import Arms
from dpbench.profile.parts import Breakdown, break_down
from dpbench.profile.record import Profile


@dataclass(frozen=True, kw_only=True)
class Made:
    """One GPU arm, in milliseconds a step; the profiler makes the host half as slow again."""

    gpus: int = 1
    step: float = 100.0
    forward_backward: float = 88.0
    optimizer: float = 6.0
    optimizer_span: float | None = None
    """What the phase takes; the GPU idles for the rest of it."""
    exchange: float = 0.0
    """All-reduce of the gradients, the same on all ranks."""
    hidden: float = 0.0
    """Of it, behind the backward pass."""
    late: float = 0.0
    """How much longer rank 0 waits for the last rank."""
    slow: float = 0.0
    """How much longer the last rank computes."""
    input: float = 0.0
    alone: float | None = None
    """The all-reduce with nothing else going on; as long as in the step by default."""
    least: float | None = None
    micro: int = 4
    passes: int = 4
    launches: float = 4000.0
    overlap: bool = False
    buckets: int = 1
    parameters: int = 125_000_000
    workers: int = 2

    def rank(self, rank: int) -> dict[str, Any]:
        """What one rank writes."""
        last = rank == self.gpus - 1
        busy = self.forward_backward + self.optimizer + (self.slow if last else 0.0)
        waits = self.late if self.gpus > 1 and not last else 0.0
        exposed = self.exchange - self.hidden + waits
        idle = max(1.5 * (self.step - busy - exposed), 0.0)
        span = self.optimizer if self.optimizer_span is None else self.optimizer_span
        plain = {"step_ms": self.step, "forward_backward_ms": self.step - span, "gradients_ms": 1.0,
                 "optimizer_ms": span, "input_ms": self.input}  # fmt: skip
        size = 4 * self.parameters
        alone = self.exchange if self.alone is None else self.alone
        exchanges = [[self.exchange + waits, exposed]] * 3 if self.gpus > 1 else []
        return {
            "schema_version": 1, "rank": rank, "world_size": self.gpus,
            "data_parallel_size": self.gpus, "device": "cuda", "device_name": "NVIDIA H200",
            "cores": 16, "cpu_threads": 1, "micro_batch_size": self.micro,
            "micro_batches_per_step": self.passes, "seq_length": 512,
            "parameters": self.parameters, "gradient_bytes": size,
            "gradient_buckets": self.buckets, "overlap_grad_reduce": self.overlap,
            "use_distributed_optimizer": False, "num_workers": self.workers,
            "all_reduce": {"bytes": size, "ms": alone} if self.gpus > 1 and alone else None,
            "plain": [plain] * 12,
            "trace": {
                "steps": 3, "step_ms": busy + exposed + idle, "busy_ms": busy,
                "optimizer_busy_ms": self.optimizer, "exposed_ms": exposed, "idle_ms": idle,
                "collective_ms": self.exchange + waits if self.gpus > 1 else 0.0, "copy_ms": 0.1,
                "sync_ms": 1.0, "kernels": self.launches, "launches": self.launches,
                "collectives": exchanges,
            },
        }  # fmt: skip

    def record(self) -> dict[str, Any]:
        """profile.json as a document."""
        return {
            "schema_version": 1,
            "least_gb_per_second": self.least,
            "ranks": [self.rank(rank) for rank in range(self.gpus)],
        }

    def profile(self) -> Profile:
        """The profile itself."""
        return Profile.model_validate(json.loads(json.dumps(self.record())))

    def write(self, folder: Path, name: str = "wikitext2-gpt2", **environment: object) -> Path:
        """Write the folder of the profile run, with no configuration yet."""
        folder.mkdir(parents=True)
        record = {
            "schema_version": 1, "status": "finished", "kind": "profile", "name": name,
            "gpus": self.gpus, "device": "cuda", "started": "2026-11-30T20:40:19Z",
            "exit_code": 0,
            "environment": {"python": "3.12.3", "torch": "2.11.0", "megatron": "0.19.2",
                            "megatron_kind": "pip", "cpu_count": 32, "driver": "580.159.04",
                            "gpu_names": ["NVIDIA H200"] * self.gpus, **environment},
        }  # fmt: skip
        (folder / "run.json").write_text(json.dumps(record))
        (folder / "run.log").write_text("")
        (folder / "profile.json").write_text(json.dumps(self.record()))
        return folder


def split(made: Made) -> Breakdown:
    """The parts of a made-up step."""
    return break_down(made.profile())


def arms(one: Made, other: Made) -> Arms:
    """Two made-up arms."""
    return Arms(baseline=split(one), scaled=split(other))


ONE = Made()
"""100 ms on one GPU: 88 of passes, 6 of the optimizer, 6 idle; 16 samples."""
TWO = replace(ONE, gpus=2, step=52.0, forward_backward=44.0, passes=2, exchange=2.0, hidden=1.0,
              launches=2000, overlap=True)  # fmt: skip
LAUNCH_BOUND = (
    Made(step=78, forward_backward=28, optimizer=4, micro=16, passes=1, launches=3000),
    Made(gpus=2, step=74, forward_backward=15, optimizer=4, micro=8, passes=1, launches=3030,
         exchange=2.5),
)  # fmt: skip
"""As measured on H200: bf16, SDPA, 1.06x, half of the GPU idle and no trouble with the link."""
CASES: dict[str, tuple[Made, Made]] = {
    "launch-bound": LAUNCH_BOUND,
    "not-overlapped": (ONE, replace(TWO, step=65, exchange=14, hidden=0, overlap=False)),
    "slow-link": (
        ONE,
        replace(TWO, step=90, exchange=40, hidden=1, least=135.0, overlap=False),
    ),
    "small-buckets": (
        ONE,
        replace(TWO, step=66, exchange=17, hidden=2, alone=2.0, buckets=120, least=135.0),
    ),
    "long-exchange": (ONE, replace(TWO, step=66, exchange=17, hidden=2, least=2.0)),
    "optimizer": (
        Made(step=80, forward_backward=40, optimizer=36, passes=2),
        Made(gpus=2, step=61, forward_backward=20, optimizer=36, passes=1, exchange=2),
    ),
    "input-bound": (
        replace(ONE, step=130, input=25.0),
        replace(TWO, step=110, input=55.0),
    ),
    "slow-device": (ONE, replace(TWO, step=64, late=24, slow=12)),
    "jitter": (ONE, replace(TWO, step=68, late=28)),
    "small-batch": (
        Made(step=100, forward_backward=88, micro=16, passes=1),
        Made(gpus=2, step=88, forward_backward=76, micro=8, passes=1, exchange=2, hidden=1),
    ),
    "slower-compute": (ONE, replace(TWO, step=64, forward_backward=56)),
}
"""Pairs of arms by the name of their first cause."""
