#!/usr/bin/env python3
"""The recipe, the fast preset and a peer on the same tokens, in turns, with the floor beneath them.

    python scripts/benchmark_peers.py -o runs/peers
    python scripts/benchmark_peers.py -o runs/peers-weak --configs wikitext2-gpt2-fast-weak

Every round trains each configuration through `dpbench run` and, after the sizes and the schedule of
the last one, the peer: Hugging Face's GPT-2 with torch.compile and DDP (peer_gpt2.py). Odd rounds
go through the list forwards, even ones backwards. All rates are read from the logs by one parser; a
rate is that of a run's fastest quarter, as in `dpbench compare`. The floor is the time of the
model's operations at the rate of a large matrix product on the same GPU.

Finished runs under -o are taken as they are, so that a benchmark that was stopped goes on. --set
goes to all of them. Exit status 1 when a run failed: its log is named, the table is of the others.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from dpbench import process
from dpbench.config_file import load_config
from dpbench.doctor.trial import try_devices
from dpbench.errors import DpbenchError
from dpbench.launch import launcher, plan_launch
from dpbench.pairs import estimate_speedup
from dpbench.rates import bf16_peak_tflops, model_flops_per_sample
from dpbench.runs import LoggedRun, load_run

PEER = "peer"
SCRIPT = Path(__file__).with_name("peer_gpt2.py")
Arm = tuple[str, int]
"""Name of a configuration or PEER, and the GPU count."""
Rounds = dict[int, LoggedRun]
"""Runs of an arm by their round; a round that is missing on one side is in no ratio."""


def main() -> int:
    """Make the runs that are missing, and print the table of all."""
    options = read_options()
    options.output.mkdir(parents=True, exist_ok=True)
    arms = [(name, gpus) for gpus in options.gpus for name in [*options.configs, PEER]]
    failed = False
    for number in range(1, options.repeat + 1):
        for arm in arms if number % 2 else reversed(arms):
            failed |= not train(arm, number, options)
    runs = {arm: found for arm in arms if (found := load_all(arm, options))}
    if not runs:
        raise SystemExit("error: no run finished")
    print_table(runs, options)
    return int(failed)


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    about, _, more = str(__doc__).partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the runs")
    parser.add_argument(
        "--configs", nargs="+", default=["wikitext2-gpt2", "wikitext2-gpt2-fast"],
        help="configurations; the peer follows the last one",
    )  # fmt: skip
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeat", type=int, default=3, help="rounds, 3 by default")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--compile-mode", default="default", help="of the peer's torch.compile")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a run, 300 by default")
    return parser.parse_args()


def place(arm: Arm, number: int, output: Path) -> Path:
    """Return where a run of an arm is: a folder of run folders, or the peer's log."""
    name, gpus = arm
    return output / f"{Path(name).stem}_gpus{gpus}_{number}{'.log' if name == PEER else ''}"


def train(arm: Arm, number: int, options: argparse.Namespace) -> bool:
    """Make a run unless it is there; return whether it is there now."""
    where = place(arm, number, options.output)
    if load_one(where):
        return True
    print(f"{where.stem} ...", file=sys.stderr, flush=True)
    command = peer_command if arm[0] == PEER else dpbench_command
    words, environment = command(arm, where, options)
    said = where.with_suffix(".log")
    ended = process.run(
        ["timeout", "-k", "20", f"{options.timeout:.0f}", *words],
        environment=environment,
        log_path=said,
        on_line=lambda line: None,
        on_tick=lambda: None,
    )
    if ended.stopped_by:
        raise SystemExit(130)
    if load_one(where):
        return True
    print(f"{where.stem}: no figures, exit status {ended.status}: see {said}", file=sys.stderr)
    return False


def dpbench_command(
    arm: Arm, where: Path, options: argparse.Namespace
) -> tuple[list[str], Mapping[str, str]]:
    """Return the command of a run of dpbench, and its environment."""
    name, gpus = arm
    words = [sys.executable, "-m", "dpbench.cli", "run", "--quiet", "--runs", str(where)]
    words += ["--config", name, "--gpus", str(gpus)]
    return [*words, *(f"--set={text}" for text in options.set)], os.environ


def peer_command(
    arm: Arm, where: Path, options: argparse.Namespace
) -> tuple[list[str], Mapping[str, str]]:
    """Return the command of the peer, in the environment that Megatron would have."""
    launch = plan_launch(load_config(options.configs[-1], options.set), gpus=arm[1])
    words = [*launcher(arm[1], 0), str(SCRIPT), "--config", options.configs[-1]]
    words += ["--device", launch.device, "--compile-mode", options.compile_mode]
    return [*words, *(f"--set={text}" for text in options.set)], launch.full_environment()


def load_one(where: Path) -> LoggedRun | None:
    """Return a finished run; None when there is none."""
    for path in [where] if where.suffix == ".log" else sorted(where.glob("*/")):
        try:
            run = load_run(path)
        except (DpbenchError, OSError):
            continue
        if run.run or run.log.training_done:
            return run
    return None


def load_all(arm: Arm, options: argparse.Namespace) -> Rounds:
    """Return the finished runs of an arm by their round."""
    places = {number: place(arm, number, options.output) for number in range(1, options.repeat + 1)}
    return {number: run for number, where in places.items() if (run := load_one(where))}


def print_table(runs: Mapping[Arm, Rounds], options: argparse.Namespace) -> None:
    """Print the figures of each arm, the ratios that are asked for, and the floor."""
    print("| training | GPUs | runs | samples/s (range) | tokens/s | MFU | last loss (range) |")
    print("|---|---|---|---|---|---|---|")
    peak = find_peak(runs)
    for (name, gpus), repeats in runs.items():
        print(describe_arm(name, gpus, list(repeats.values()), peak))
    print("\n| ratio of samples/s | pairs | value (range) |\n|---|---|---|")
    least, most = min(options.gpus), max(options.gpus)
    names = [*options.configs, PEER]
    if least < most:
        for name in names:
            print_ratio(
                f"{Path(name).stem}: {most} GPUs over {least}", runs, (name, least), (name, most)
            )
    for gpus in options.gpus:
        for name in [name for name in names if name != options.configs[-1]]:
            title = f"{Path(options.configs[-1]).stem} over {Path(name).stem}, {gpus} GPU"
            print_ratio(title, runs, (name, gpus), (options.configs[-1], gpus))
    print(f"\n{describe_floor(runs)}")


def describe_arm(name: str, gpus: int, repeats: Sequence[LoggedRun], peak: float | None) -> str:
    """Return the row of an arm: medians over its runs, and the ends."""
    rates = [run.throughput.undisturbed_samples_per_second for run in repeats]
    losses = [run.throughput.last_loss for run in repeats]
    known = [loss for loss in losses if loss is not None]
    length, flops = repeats[0].log.sequence_length, operations(repeats[0])
    tokens = f"{median(rates) * length:,.0f}" if length else ""
    mfu = f"{median(rates) * flops / gpus / peak:.1%}" if flops and peak else ""
    loss = f"{median(known):.3f} ({min(known):.3f} to {max(known):.3f})" if known else ""
    return (
        f"| {Path(name).stem} | {gpus} | {len(repeats)} | {median(rates):,.1f} "
        f"({min(rates):,.1f} to {max(rates):,.1f}) | {tokens} | {mfu} | {loss} |"
    )


def print_ratio(title: str, runs: Mapping[Arm, Rounds], baseline: Arm, other: Arm) -> None:
    """Print how much faster one arm is than another, by the pairs of each round."""
    below, above = (runs.get(arm, {}) for arm in (baseline, other))
    pairs = [(below[key].throughput, above[key].throughput) for key in below if key in above]
    if pairs:
        found = estimate_speedup(pairs, alike=baseline[1] == other[1])
        value = f"{found.speedup:.2f}x ({found.low:.2f}x to {found.high:.2f}x)"
        print(f"| {title} | {len(pairs)} | {value} |")


def operations(run: LoggedRun) -> float | None:
    """Return the floating-point operations of a sample."""
    return model_flops_per_sample(run.log.arguments, run.log.facts.padded_vocabulary)


def find_peak(runs: Mapping[Arm, Rounds]) -> float | None:
    """Return the bf16 peak of the GPU in FLOP/s; None when it is not known, or on CPU."""
    names = [run.gpu_name for found in runs.values() for run in found.values() if run.gpu_name]
    tflops = bf16_peak_tflops(names[0]) if names else None
    return tflops * 1e12 if tflops else None


def describe_floor(runs: Mapping[Arm, Rounds]) -> str:
    """Measure a matrix product; return the samples a second that it would allow one GPU."""
    every = (run for found in runs.values() for run in found.values())
    first = next((run for run in every if run.device == "cuda"), None)
    if first is None:
        return "floor: none without a GPU"
    trial = try_devices("cuda", 1, 60)
    told, flops = trial.told("matmul"), operations(first)
    if not told or not flops:
        return "floor: not known, the matrix product could not be measured"
    rate = told[0]["flops_per_second"]
    return (
        f"floor: {flops / 1e9:,.1f} GFLOP a sample at {rate / 1e12:,.1f} TFLOP/s of a large "
        f"{told[0]['dtype']} matrix product: no more than {rate / flops:,.1f} samples/s a GPU"
    )


if __name__ == "__main__":
    raise SystemExit(main())
