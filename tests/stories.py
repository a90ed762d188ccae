"""Runs made up for the reports, as folders and logs that dpbench and Megatron would write."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from zlib import crc32

from dpbench.compare import Comparison, compare_runs

STEPS, EVERY = 200, 10
ERROR = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
CONFIG = """\
model: {num_layers: 12, hidden_size: 768, num_attention_heads: 12, seq_length: 512}
training:
  micro_batch_size: 4
  global_batch_size: 16
  train_iters: 200
  log_interval: 10
  lr: 6e-4
precision: bf16
data: {path: data/wikitext2}
checks: {min_efficiency: 0.8, max_final_loss: 5.0}
"""


@dataclass(frozen=True, kw_only=True)
class Story:
    """One run: how fast, how noisy, what goes wrong with it."""

    gpus: int
    step_ms: float
    noise: float = 0.02
    """Amplitude of a wave over the intervals, a ratio."""
    drift: float = 0.0
    """Growth of the step time over the whole run, a ratio."""
    batch: int = 16
    micro: int = 4
    last_loss: float = 4.71
    wiggle: int = 0
    """Which samples it reads: the loss of a line moves by 0.3 %; 0: smooth."""
    twist: float = 0.0
    """By how much its losses are higher than they should be from step 80 on, a ratio."""
    first_loss: float = 10.7
    skips: dict[int, int] = field(default_factory=dict)
    """Updates skipped in the interval that ends with a step."""
    slow_from: int = STEPS
    """From this step on it takes three times as long, but for every fourth line."""
    gpu: str | None = None
    """The GPU that a run on one is pinned to."""
    nan_after: int = STEPS
    ends_at: int = STEPS
    status: str = "finished"
    device: str = "cuda"
    gpu_record: bool = False
    """In the columns of the first version."""
    guest: tuple[int, ...] | None = None
    """The logged steps before intervals in which somebody else works on the last GPU and makes
    them slow; with this the record has all columns."""
    diagnosis: dict[str, object] | None = None
    notes: tuple[str, ...] = ()
    extra: dict[str, str] = field(default_factory=dict)
    """Further arguments of Megatron."""
    place: dict[str, object] = field(default_factory=dict)
    """What run.json tells of the environment beside what every story does."""

    def log(self) -> str:
        """The output of the training."""
        arguments = {
            "global_batch_size": self.batch, "hidden_size": 768, "micro_batch_size": self.micro,
            "num_attention_heads": 12, "num_layers": 12, "params_dtype": "torch.bfloat16",
            "seq_length": 512, "train_iters": STEPS, "world_size": self.gpus,
            "ffn_hidden_size": 3072, "padded_vocab_size": 50304, **self.extra,
        }  # fmt: skip
        lines = ["> PyTorch version ................ 2.11.0+cu130",
                 "> Megatron-Core version .......... 0.19.2",
                 "------------------------ arguments ------------------------"]  # fmt: skip
        lines += [f"  {name} {'.' * (47 - len(name))} {value}" for name, value in arguments.items()]
        lines.append("-------------------- end of arguments ---------------------")
        for number in (1, *range(EVERY, STEPS + 1, EVERY)):
            if number > self.ends_at:
                break
            lines.append(self.line(number))
            if number == 1:
                lines.append("[Rank 0] (after 1 iterations) memory (MB) | allocated: 1521.66 | "
                             "max allocated: 2990.34 | reserved: 3392.00")  # fmt: skip
        if self.status == "failed":
            lines += [
                "Traceback (most recent call last):",
                '  File "pretrain_gpt.py", line 1',
                ERROR,
            ]
        elif self.ends_at == STEPS:
            lines.append("[after training is done] datetime: 2026-11-30 20:30:26")
        return "\n".join(lines) + "\n"

    def line(self, number: int) -> str:
        """One record of Megatron."""
        place = number / STEPS
        ms = self.step_ms * (1 + self.drift * place + self.noise * math.sin(number * 1.7))
        ms *= 3 if number > self.slow_from and number // EVERY % 4 else 1
        ms = {1: 20 * self.step_ms, EVERY: 3 * self.step_ms}.get(number, ms)
        ms *= 1.6 if number - EVERY in (self.guest or ()) else 1
        loss = self.last_loss + (self.first_loss - self.last_loss) * math.exp(-8 * place)
        if self.wiggle:
            loss *= 1 + 0.003 * random.Random(1000 * self.wiggle + number).gauss(0, 1)
        if number >= 80:
            loss *= 1 + self.twist
        told = f" lm loss: {loss:.6E} |" if number <= self.nan_after else ""
        return (
            f" [2026-11-30 20:29:40] iteration {number:8}/{STEPS:8} | consumed samples: "
            f"{number * self.batch:12} | elapsed time per iteration (ms): {ms:.1f} | "
            f"learning rate: 6.0E-04 | global batch size: {self.batch:5} |{told} loss scale: 1.0 | "
            f"number of skipped iterations: {self.skips.get(number, 0):3} | number of nan "
            "iterations:   0 |"
        )

    def write(self, folder: Path) -> Path:
        """Write the run folder and return it."""
        folder.mkdir(parents=True)
        cpu = self.device == "cpu"
        record = {
            "schema_version": 1, "status": self.status, "name": "wikitext2-gpt2", "gpus": self.gpus,
            "device": self.device, "started": "2026-11-30T20:29:19Z",
            "finished": "2026-11-30T20:30:33Z", "exit_code": int(self.status == "failed"),
            "problem": f"the training process ended with status 1: {ERROR}"
            if self.status == "failed" else None,
            "diagnosis": self.diagnosis, "notes": list(self.notes),
            "environment": {"python": "3.12.3", "torch": "2.11.0", "megatron": "0.19.2",
                            "megatron_kind": "pip", "cpu_count": 32,
                            "gpu_names": [] if cpu else ["NVIDIA H200"] * self.gpus,
                            "driver": None if cpu else "580.159.04", **self.place},
        }  # fmt: skip
        (folder / "run.json").write_text(json.dumps(record))
        own = f"allocated: {crc32(str(folder).encode()):010}"  # no two runs have the same log
        (folder / "run.log").write_text(self.log().replace("allocated: 1521.66", own, 1))
        (folder / "config.yaml").write_text(CONFIG)
        pinned = f"  CUDA_VISIBLE_DEVICES={self.gpu} \\\n" if self.gpu else ""
        command = f"env -u RANK \\\n{pinned}  torchrun --gpus {self.gpus}\n"
        (folder / "command.txt").write_text(command)
        if self.guest is not None:
            (folder / "gpu.csv").write_text(self.full_gpu_csv())
        if self.gpu_record:
            (folder / "gpu.csv").write_text(self.gpu_csv())
        return folder

    def gpu_csv(self) -> str:
        """A sample a second of every GPU."""
        rows = ["seconds,index,utilization_percent,memory_used_mib,power_watts"]
        for second in range(60):
            for index in range(self.gpus):
                busy = 20 <= second < 55
                use = 70 + (second * 7 + index * 3) % 15 if busy else 0
                rows.append(f"{second},{index},{use},{5120 if second > 10 else 600},{90 + 4 * use}")
        return "\n".join(rows) + "\n"

    def full_gpu_csv(self) -> str:
        """Two samples an interval of every GPU, and some before and after the training."""
        rows = ["seconds,step,index,utilization_percent,memory_used_mib,memory_total_mib,"
                "power_watts,sm_clock_mhz,temperature_celsius,throttle_reasons,"
                "foreign_processes,foreign_utilization_percent"]  # fmt: skip
        steps = [*[""] * 10, 1, *(step for step in range(EVERY, STEPS, EVERY) for _ in "12"), STEPS]
        for second, step in enumerate(steps):
            for index in range(self.gpus):
                there = index == self.gpus - 1 and step in (self.guest or ())
                use = 0 if step in ("", STEPS) else 42 + (second * 7 + index * 3) % 9
                rows.append(
                    f"{second}.0,{step},{index},{use},{3000 + 20 * second},143771,{90 + 4 * use},"
                    f"{1980 if use < 48 else 1785},{40 + use // 4},"
                    f"{'' if use < 48 else 'sw_power_cap'},{int(there)},{55 if there else 0}"
                )
        return "\n".join(rows) + "\n"


def tell(folder: Path, *stories: Story, scaling: str = "strong") -> list[Comparison]:
    """Write the runs of stories below a folder and compare them."""
    paths = [
        story.write(folder / f"{number}_gpus{story.gpus}")
        for number, story in enumerate(stories, start=1)
    ]
    return compare_runs(paths, scaling=scaling)  # type: ignore[arg-type]


ONE = Story(gpus=1, step_ms=220)
STORIES: dict[str, list[Story]] = {
    "pass": [ONE, Story(gpus=2, step_ms=118)],
    "fail_speed": [
        Story(gpus=1, step_ms=78, micro=16),
        Story(gpus=2, step_ms=74, micro=8),
    ],
    "fail_loss": [
        Story(gpus=1, step_ms=220, last_loss=5.2),
        Story(gpus=2, step_ms=118, last_loss=5.2),
    ],
    "inconclusive": [
        Story(gpus=1, step_ms=220, noise=0.15),
        Story(gpus=2, step_ms=135, noise=0.15),
    ],
    "repeats": [
        *(Story(gpus=1, step_ms=220 + 3 * k) for k in range(3)),
        *(Story(gpus=2, step_ms=116 + 2 * k) for k in range(3)),
    ],
    "gpus_1_2_4_8": [
        Story(gpus=1, step_ms=880, batch=64),
        Story(gpus=2, step_ms=455, batch=64),
        Story(gpus=4, step_ms=250, batch=64),
        Story(gpus=8, step_ms=160, batch=64, micro=2),
    ],
    "gpus_1_2_4": [
        Story(gpus=1, step_ms=440, batch=32),
        Story(gpus=2, step_ms=228, batch=32),
        Story(gpus=4, step_ms=120, batch=32),
    ],
    "drifting": [ONE, Story(gpus=2, step_ms=110, drift=0.3)],
    "incomplete": [ONE, Story(gpus=2, step_ms=110, ends_at=150)],
    "nan": [ONE, Story(gpus=2, step_ms=110, nan_after=120)],
    "gpu_record": [
        Story(gpus=1, step_ms=220, gpu_record=True),
        Story(gpus=2, step_ms=118, gpu_record=True),
    ],
    "guest": [
        Story(gpus=1, step_ms=220, guest=(90,)),
        Story(gpus=2, step_ms=118, guest=(50, 120, 130)),
    ],
    "guest_all_along": [
        Story(gpus=1, step_ms=220, guest=()),
        Story(gpus=2, step_ms=70, guest=tuple(range(10, 200, 10))),
    ],
    "cpu": [
        Story(gpus=1, step_ms=444, device="cpu"),
        Story(gpus=2, step_ms=266, device="cpu"),
    ],
    "more_than_ideal": [ONE, Story(gpus=2, step_ms=90)],
    "slower": [ONE, Story(gpus=2, step_ms=240)],
}
"""Stories that end in a verdict, by name; the scaling is strong."""
TWO = Story(gpus=2, step_ms=118)
REPLAYED: dict[str, list[Story]] = {
    "losses_differ": [ONE, replace(TWO, twist=0.02)],
    "other_samples": [replace(ONE, wiggle=1), replace(TWO, wiggle=3)],
    "same_samples": [replace(ONE, wiggle=1), replace(TWO, wiggle=1)],
    "blows_up": [replace(ONE, last_loss=4.4), replace(TWO, last_loss=4.4, twist=0.3)],
    "learns_nothing": [
        replace(one, wiggle=1, first_loss=10.7, last_loss=10.7) for one in (ONE, TWO)
    ],
    "rises": [replace(one, first_loss=5.0, last_loss=6.0) for one in (ONE, TWO)],
    "skips_at_first": [
        replace(ONE, skips={1: 1, 10: 10, 20: 5}),
        replace(TWO, skips={1: 1, 10: 10, 20: 6}),
    ],
    "skips_on": [ONE, replace(TWO, skips={1: 1, 10: 10, 80: 3, 150: 2})],
    "skips_one": [ONE, replace(TWO, skips={1: 1, 10: 10, 80: 1})],
    "stalls": [
        *(replace(ONE, step_ms=220 + k) for k in range(3)),
        *(replace(TWO, step_ms=118 + k, slow_from=20) for k in range(3)),
    ],
    "guest_and_slow": [
        Story(gpus=1, step_ms=220, guest=()),
        Story(gpus=2, step_ms=100, guest=tuple(range(10, 200, 10))),
    ],
    "drifts_below": [ONE, Story(gpus=2, step_ms=125, noise=0.005, drift=0.3)],
    "nan_after_a_cut": [
        *(replace(ONE, step_ms=220 + k) for k in range(2)),
        replace(TWO, step_ms=115, ends_at=150),
        replace(TWO, step_ms=116, nan_after=50),
    ],
}
"""Further stories: what the loss can do, runs that stall, misses that something else explains."""
WEAK = [ONE, Story(gpus=2, step_ms=240, batch=32)]


def tell_story(name: str) -> list[Comparison]:
    """Compare the runs of a story below ./runs, or its bare logs."""
    if name == "weak":
        return tell(Path("runs"), *WEAK, scaling="weak")
    if name == "bare_logs":
        logs = [Path("one.log"), Path("two.log")]
        for log, told in zip(logs, STORIES["pass"], strict=True):
            log.write_text(told.log())
        return compare_runs(logs)
    return tell(Path("runs"), *STORIES[name])
