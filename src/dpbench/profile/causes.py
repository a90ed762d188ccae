"""Two Breakdowns -> the causes of the lost time, the largest first, in words and with a remedy.

The time that a step loses is what it takes on more GPUs beyond its share of the baseline's step:
lost = scaled - baseline x (samples a GPU now / samples a GPU before). Each part of the step loses
in the same way, so that the losses of the parts add up to that of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dpbench.profile.parts import PARTS, Breakdown

NAMED_SHARE = 0.03
"""A cause that loses less of the scaled step is not named."""
HEALTHY_SHARE = 0.05
"""A step that loses less in all has nothing worth mending."""
UNEVEN = 0.05
"""Processes that differ by more than this in the same work are not equally fast."""
MANY_BUCKETS = 8
BUCKET_PARAMETERS = 40_000_000
"""Megatron's default bucket; the exchange of the last one has nothing to hide behind."""


LARGER_BATCH = "--set training.micro_batch_size="
OVERLAP = "--set megatron.overlap-grad-reduce=true"
GRAPHS = "--set megatron.cuda-graph-impl=local"
"""How remedies begin of which a prediction says what they would give."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why a step takes longer than its share."""

    name: str
    title: str
    part: str
    """The part of the step in which it shows, of PARTS."""
    lost_ms: float
    share: float
    """Of the lost time of the step; more than 1 when other parts gain."""
    sentence: str
    tries: tuple[str, ...]
    """What may mend it, the most promising first."""


@dataclass(frozen=True, kw_only=True)
class Arms:
    """Both profiles, and how their work compares."""

    baseline: Breakdown
    scaled: Breakdown

    @property
    def work_ratio(self) -> float:
        """Samples of a GPU and step in the scaled arm, over those of the baseline."""
        return self.scaled.profile.samples_per_gpu / self.baseline.profile.samples_per_gpu

    @property
    def lost_ms(self) -> float:
        """What a scaled step takes beyond its share of a baseline step."""
        return self.scaled.step_ms - self.ideal_ms

    @property
    def ideal_ms(self) -> float:
        """What a scaled step would take if it scaled perfectly."""
        return self.baseline.step_ms * self.work_ratio

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is worth mending."""
        return self.lost_ms < HEALTHY_SHARE * self.scaled.step_ms

    @property
    def speedup(self) -> float:
        """Ratio of samples a second."""
        gpus = self.scaled.gpus / self.baseline.gpus
        return self.baseline.step_ms * self.work_ratio * gpus / self.scaled.step_ms

    def lost(self) -> dict[str, float]:
        """Return what each part loses; negative where it gains."""
        ratio, before, now = self.work_ratio, self.baseline.parts, self.scaled.parts
        return {name: now[name] - ratio * before[name] for name in PARTS}


Told = tuple[str, str, str, tuple[str, ...]]
"""Name, title, sentence and remedies of a cause."""


def find_causes(arms: Arms) -> list[Cause]:
    """Return the causes that are worth naming, the largest loss first; none in a healthy pair."""
    if arms.is_healthy:
        return []
    lost = arms.lost()
    least = NAMED_SHARE * arms.scaled.step_ms
    causes = []
    for part in sorted(lost, key=lambda name: -lost[name]):
        if lost[part] < least:
            break
        name, title, sentence, tries = TELL[part](arms, lost[part])
        share = lost[part] / arms.lost_ms
        causes.append(
            Cause(
                name=name, title=title, part=part, lost_ms=lost[part], share=share,
                sentence=sentence, tries=tries,
            )
        )  # fmt: skip
    return causes


def tell_gaps(arms: Arms, lost_ms: float) -> Told:
    """Tell of GPUs that wait for the host to start the next kernel."""
    one, other = arms.baseline, arms.scaled
    sentence = (
        f"the GPUs have nothing to do for {other.idle_share:.0%} of the step "
        f"({one.idle_share:.0%} on {one.gpus})"
    )
    if one.launches and other.launches:
        sentence += (
            f": the host starts {other.launches:,.0f} kernels a step, {one.launches:,.0f} on "
            f"{one.gpus}, and that takes as long for small kernels as for large ones"
        )
    tries = [GRAPHS, larger_batch(arms)]
    if other.optimizer_idle_ms > 0.3 * other.parts["gaps"]:
        tries.append("install Transformer Engine or apex, whose optimizer is one kernel")
    return "launch-bound", "bound by kernel launches", sentence, tuple(tries)


def tell_exchange(arms: Arms, lost_ms: float) -> Told:
    """Tell apart a slow link, an exchange that is not overlapped, and one that cannot be."""
    other = arms.scaled
    first, rate = other.first, other.bus_gb_per_second
    size = f"{first.gradient_bytes / 1e6:,.0f} MB of gradients"
    least = other.profile.least_gb_per_second
    alone = f"{size} take {first.all_reduce.ms:,.1f} ms alone" if first.all_reduce else size
    if rate is not None:
        alone += f" ({rate:,.1f} GB/s)"
    if rate is not None and least is not None and rate < least:
        sentence = f"{alone}, where these GPUs should reach {least:,.0f} GB/s or more"
        look = ("dpbench doctor: GPU pairs, peer access, NCCL variables",
                "NCCL_DEBUG=INFO names the path that NCCL takes")  # fmt: skip
        return "slow-link", "the link between the GPUs is slow", sentence, look
    smaller = ["--set megatron.grad-reduce-in-bf16=true", larger_batch(arms)]
    if not first.overlap_grad_reduce:
        sentence = f"{alone}, after the backward pass instead of behind it"
        flags = OVERLAP
        if first.parameters < 2 * BUCKET_PARAMETERS:  # one bucket would be exchanged at the end
            flags += f" --set megatron.ddp-bucket-size={overlap_bucket(first.parameters)}"
        overlap = (flags, *smaller)
        return "not-overlapped", "the gradient exchange is not overlapped", sentence, overlap
    slower = first.all_reduce and other.exchange_ms > 1.5 * first.all_reduce.ms
    if slower and (first.gradient_buckets or 0) >= MANY_BUCKETS:
        sentence = (
            f"in {first.gradient_buckets} buckets the exchange takes {other.exchange_ms:,.1f} ms; "
            f"{alone}"
        )
        fewer = ("a larger megatron.ddp-bucket-size (40000000 by default)", *smaller)
        return "small-buckets", "the gradient buckets are small", sentence, fewer
    sentence = f"{alone}; the backward pass is too short to hide that"
    if first.use_distributed_optimizer:
        smaller.append("--set megatron.overlap-param-gather=true")
    title = "the gradient exchange is longer than what hides it"
    return "long-exchange", title, sentence, tuple(smaller)


def overlap_bucket(parameters: int) -> int:
    """Return the bucket size, in parameters, with which an overlap can work."""
    return min(BUCKET_PARAMETERS, max(parameters // MANY_BUCKETS, 1))


def tell_waiting(arms: Arms, lost_ms: float) -> Told:
    """Tell of processes that come late to the exchange."""
    other = arms.scaled
    noun = "GPU" if other.on_gpu else "process"
    slowest = max(range(other.gpus), key=lambda rank: other.compute_ms[rank])
    fastest_ms = min(other.compute_ms)
    ratio = other.compute_ms[slowest] / fastest_ms - 1 if fastest_ms else 0.0
    if ratio > UNEVEN:
        sentence = (
            f"{noun} {slowest} computes {ratio:.0%} longer than the fastest, and all others wait "
            "for it in every step"
        )
        tries = (
            "dpbench doctor: clock, temperature and use of each GPU",
            "run on the other GPUs (CUDA_VISIBLE_DEVICES)",
        )
        if not other.on_gpu:
            tries = ("end what else runs on this machine", "fewer processes than cores")
        return "slow-device", f"one {noun} is slower than the others", sentence, tries
    sentence = (
        "all compute equally long, but come to the exchange at different times: something "
        "interrupts the processes on the host"
    )
    tries = ("end what else runs on this machine", "--set megatron.manual-gc=true")
    return "jitter", "the processes do not keep step", sentence, tries


def tell_optimizer(arms: Arms, lost_ms: float) -> Told:
    """Tell of an optimizer that every GPU runs over all parameters."""
    millions = arms.scaled.first.parameters / 1e6
    sentence = f"each process updates all {millions:,.0f} M parameters, however small its batch"
    tries = [
        "--set megatron.use-distributed-optimizer=true, which divides them",
        larger_batch(arms),
    ]
    if arms.scaled.on_gpu:
        tries.append("install Transformer Engine or apex, whose optimizer is one kernel")
    return "optimizer", "the optimizer does not get shorter", sentence, tuple(tries)


def tell_input(arms: Arms, lost_ms: float) -> Told:
    """Tell of steps that wait for samples."""
    one, other = arms.baseline, arms.scaled
    workers = other.first.num_workers
    sentence = (
        f"a step waits {other.parts['input']:,.1f} ms for samples "
        f"({one.parts['input']:,.1f} on {one.gpus}; loader processes each: {workers})"
    )
    return "input-bound", "the input is too slow", sentence, input_tries(other)


def input_tries(arm: Breakdown) -> tuple[str, ...]:
    """Return what makes input faster."""
    workers = max(2 * arm.first.num_workers, 4)
    return (
        f"--set megatron.num-workers={workers}, if the cores are there",
        "--set megatron.no-create-attention-mask-in-dataloader=true",
        "keep the dataset on a local disk",
    )


def tell_compute(arms: Arms, lost_ms: float) -> Told:
    """Tell of computation that does not shrink with its batch."""
    one, other = arms.baseline, arms.scaled
    if not other.on_gpu:
        return tell_cpu(arms)
    batches = one.first.micro_batch_size, other.first.micro_batch_size
    busy = one.parts["forward_backward"], other.parts["forward_backward"]
    if batches[1] < batches[0]:
        sentence = (
            f"kernels for {batches[1]} samples take {busy[1]:,.1f} ms where those for {batches[0]} "
            f"take {busy[0]:,.1f} ms: too small to fill the GPU"
        )
        return "small-batch", "the batch of a GPU is small", sentence, (larger_batch(arms),)
    sentence = (
        f"the same passes take {lost_ms:,.1f} ms longer on each GPU: lower clocks (power, heat), "
        "or exchanges that take part of the GPU"
    )
    tries = ("dpbench doctor: clock and power of each GPU", larger_batch(arms))
    return "slower-compute", "each GPU computes more slowly", sentence, tries


def tell_cpu(arms: Arms) -> Told:
    """Tell of CPU processes that take from each other."""
    other = arms.scaled
    threads, cores = other.gpus * other.first.cpu_threads, other.first.cores
    places = f"(threads each: {other.first.cpu_threads}, cores: {cores})"
    if threads > cores:
        sentence = f"the {other.gpus} processes take turns on the cores {places}"
        tries = (f"--set launch.cpu_threads={max(cores // other.gpus, 1)}", "fewer processes")
        return "oversubscribed", "more threads than cores", sentence, tries
    sentence = (
        f"the {other.gpus} processes share memory and cache {places}, and each computes more "
    )
    sentence += "slowly than alone"
    tries = ("end what else runs on this machine", larger_batch(arms))
    return "shared-cpu", "the processes share the CPU", sentence, tries


def tell_rest(arms: Arms, lost_ms: float) -> Told:
    """Tell of what is neither computation nor exchange."""
    sentence = "between forward-backward and optimizer: logging, zeroing, Megatron's own checks"
    tries = (
        "a larger training.log_interval",
        "--set megatron.no-check-for-nan-in-loss-and-grad=true",
        larger_batch(arms),
    )
    return "fixed-work", "work outside the passes does not get shorter", sentence, tries


def larger_batch(arms: Arms) -> str:
    """Return the remedy that every fixed cost has."""
    one, other = (arm.profile.samples_per_gpu * arm.gpus for arm in (arms.baseline, arms.scaled))
    size = arms.baseline.first.micro_batch_size
    text = f"{LARGER_BATCH}{2 * size}"
    if one == other:  # else it grows with the GPUs and the micro batch
        text += f" --set training.global_batch_size={2 * one:g}"
    return f"{text}, in both arms"


TELL: Mapping[str, Callable[[Arms, float], Told]] = {
    "forward_backward": tell_compute,
    "exchange": tell_exchange,
    "waiting": tell_waiting,
    "optimizer": tell_optimizer,
    "input": tell_input,
    "gaps": tell_gaps,
    "rest": tell_rest,
}
