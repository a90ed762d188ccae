"""Runs made up for the reports, as folders and logs that dpbench and Megatron would write."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

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
    nan_after: int = STEPS
    ends_at: int = STEPS
    status: str = "finished"
    device: str = "cuda"
    gpu_record: bool = False
    diagnosis: dict[str, object] | None = None
    notes: tuple[str, ...] = ()
    extra: dict[str, str] = field(default_factory=dict)
    """Further arguments of Megatron."""

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
        ms = {1: 20 * self.step_ms, EVERY: 3 * self.step_ms}.get(number, ms)
        loss = self.last_loss + (10.7 - self.last_loss) * math.exp(-8 * place)
        told = f" lm loss: {loss:.6E} |" if number <= self.nan_after else ""
        return (
            f" [2026-11-30 20:29:40] iteration {number:8}/{STEPS:8} | consumed samples: "
            f"{number * self.batch:12} | elapsed time per iteration (ms): {ms:.1f} | "
            f"learning rate: 6.0E-04 | global batch size: {self.batch:5} |{told} loss scale: 1.0 | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |"
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
                            "driver": None if cpu else "580.159.04"},
        }  # fmt: skip
        (folder / "run.json").write_text(json.dumps(record))
        (folder / "run.log").write_text(self.log())
        (folder / "config.yaml").write_text(CONFIG)
        command = (
            f"env -u RANK \\\n  CUDA_DEVICE_MAX_CONNECTIONS=1 \\\n  torchrun --gpus {self.gpus}\n"
        )
        (folder / "command.txt").write_text(command)
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
    "cpu": [
        Story(gpus=1, step_ms=444, device="cpu"),
        Story(gpus=2, step_ms=266, device="cpu"),
    ],
    "more_than_ideal": [ONE, Story(gpus=2, step_ms=90)],
    "slower": [ONE, Story(gpus=2, step_ms=240)],
}
"""Stories that end in a verdict, by name; the scaling is strong."""
WEAK = [ONE, Story(gpus=2, step_ms=240, batch=32)]
