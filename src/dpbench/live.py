"""What a person sees while a run goes on: a steady display on a terminal, else plain lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from dpbench.gpu_monitor import GpuSample
from dpbench.log import Step

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

Detail = Literal["quiet", "normal", "verbose"]
REFRESH_SECONDS = 1.0
SILENCE_SHOWN_SECONDS = 10.0


class View:
    """Shows one run; a stream that is gone is done without."""

    def __init__(self, stream: TextIO, *, detail: Detail, title: str, tokens_per_sample: int):
        self.title = title
        self.tokens_per_sample = tokens_per_sample
        self._stream = stream
        self._detail = detail
        self._live: Live | None = None
        self._step: Step | None = None
        self._drawn = 0.0

    def start(self, folder: Path) -> None:
        """Say where the run is kept, and begin."""
        if self._detail == "quiet":
            return
        self._say(f"{self.title}: {folder}")
        if self._detail == "normal" and self._stream.isatty():
            self._live = open_live(self._stream)

    def show_line(self, line: str) -> None:
        """Pass on a line of the training process to who wants all of them."""
        if self._detail == "verbose":
            self._say(line)

    def show_step(self, step: Step) -> None:
        """Show a logged interval."""
        self._step = step
        if self._detail == "normal" and not self._live:
            text = describe_step(step, self.tokens_per_sample)
            self._say(f"  step {step.number}/{step.last}  {text}  left {time_left(step)}")

    def show_state(
        self,
        stage: str,
        *,
        elapsed_seconds: float,
        silent_seconds: float,
        gpus: Callable[[], list[GpuSample]],
    ) -> None:
        """Refresh the display, where there is one, at most once a second."""
        if not self._live or elapsed_seconds - self._drawn < REFRESH_SECONDS:
            return
        self._drawn = elapsed_seconds
        silent = f"  silent for {silent_seconds:.0f} s"
        head = f"{self.title}  {stage}  {clock(elapsed_seconds)}"
        head += silent if silent_seconds > SILENCE_SHOWN_SECONDS else ""
        screen = draw(head, self._step, self.tokens_per_sample, gpus())
        try:
            self._live.update(screen, refresh=True)
        except OSError:  # the terminal is closed
            self._live = None

    def note(self, text: str) -> None:
        """Say something beside the progress."""
        if self._detail != "quiet":
            self._say(f"  {text}")

    def end(self) -> None:
        """Leave the display standing as it is."""
        live, self._live = self._live, None
        if live:
            try:
                live.stop()
            except OSError:
                self._detail = "quiet"

    def _say(self, text: str) -> None:
        try:
            if self._live:
                self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                print(text, file=self._stream, flush=True)
        except OSError:  # closed terminal, or a pipe that nobody reads
            self._detail = "quiet"


def describe_step(step: Step, tokens_per_sample: int) -> str:
    """Return the figures of a logged interval in one line."""
    parts = [f"{step.step_time_ms:.0f} ms"]
    if step.global_batch_size:
        rate = step.global_batch_size / step.step_time_ms * 1e3
        parts.append(f"{rate:.1f} samples/s")
        parts.append(f"{rate * tokens_per_sample:,.0f} tokens/s")
    if step.tflops_per_gpu:
        parts.append(f"{step.tflops_per_gpu:.1f} TFLOP/s/GPU")
    if step.loss is not None:
        parts.append(f"loss {step.loss:.3f}")
    return "  ".join(parts)


def time_left(step: Step) -> str:
    """Return how long the remaining steps take at the pace of the last interval."""
    return clock((step.last - step.number) * step.step_time_ms / 1e3)


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def open_live(stream: TextIO) -> Live | None:
    """Return a display on a terminal that can rewrite its lines; None on any other."""
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream)
    if not console.is_terminal or console.is_dumb_terminal:
        return None
    live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    live.start()
    console.show_cursor(True)  # it would stay hidden if dpbench were killed
    return live


def draw(
    head: str, step: Step | None, tokens_per_sample: int, gpus: list[GpuSample]
) -> RenderableType:
    """Return the display: a head, the bar, the figures, a line for each GPU."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    bar = Table.grid(padding=(0, 2))
    if step:
        done = f"step {step.number}/{step.last}"
        bar.add_row(
            ProgressBar(total=step.last, completed=step.number, width=40),
            done,
            f"left {time_left(step)}",
        )
    else:
        bar.add_row(ProgressBar(total=1, completed=0, width=40), "no step yet")
    figures = describe_step(step, tokens_per_sample) if step else ""
    lines = [describe_gpu(gpu) for gpu in gpus]
    return Group(*(Text(line, no_wrap=True) for line in [head]), bar, *map(Text, [figures, *lines]))


def describe_gpu(gpu: GpuSample) -> str:
    """Return utilisation, memory and power of a GPU in one line."""
    parts = [f"GPU {gpu.index}"]
    if gpu.utilization_percent is not None:
        parts.append(f"{gpu.utilization_percent:3} %")
    if gpu.memory_used_mib is not None and gpu.memory_total_mib:
        parts.append(f"{gpu.memory_used_mib / 1024:6.1f} of {gpu.memory_total_mib / 1024:.0f} GiB")
    if gpu.power_watts is not None:
        parts.append(f"{gpu.power_watts:4.0f} W")
    return "  ".join(parts)
