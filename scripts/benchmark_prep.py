"""Time `dpbench prep` against Megatron's tools/preprocess_data.py on this machine, in turn.

    python scripts/benchmark_prep.py --megatron ~/Megatron-LM --tokenizer FOLDER \
        --input wiki.test.tokens --input wiki.valid.tokens --megabytes 500

Both tools read the same JSON lines and write to the same disk; the best of --repeat runs counts,
and their .bin and .idx are compared byte by byte. The large corpus is the small one again and
again, with --new-words in a hundred words replaced by ones that did not occur before: a word that
was seen costs dpbench next to nothing, and real text keeps bringing new ones.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

TREE_SAMPLE_SECONDS = 0.1


def main() -> None:
    """Run the small and the large comparison and print a Markdown table."""
    options = read_options()
    with tempfile.TemporaryDirectory(prefix="benchmark_prep.", dir=options.work) as work:
        small = make_small(Path(work), options)
        print("| corpus | tool | seconds | MB/s | peak RSS, MB | ratio |")
        print("| --- | --- | ---: | ---: | ---: | ---: |")
        compare("small", small, Path(work), options, options.repeat)
        if options.megabytes:
            large = Path(work) / "large.jsonl"
            write_large(small, large, options)
            compare("large", large, Path(work), options, options.large_repeat)
            report_library(large, Path(work), options)


def read_options() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megatron", type=Path, help="checkout; left out: dpbench alone")
    parser.add_argument("--tokenizer", required=True, help="folder")
    parser.add_argument("--input", action="append", required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=0, help="of the large corpus; 0: none")
    parser.add_argument("--new-words", type=float, default=3.0, help="in a hundred")
    parser.add_argument("--large-repeat", type=int, default=1)
    parser.add_argument("--work", help="folder for temporary files")
    return parser.parse_args()


def make_small(work: Path, options: argparse.Namespace) -> Path:
    """Write the inputs as JSON lines, by prep itself."""
    inputs = [word for path in options.input for word in ("--input", path)]
    command = [*dpbench(), *inputs, "--tokenizer", options.tokenizer, "--save-jsonl"]
    subprocess.run([*command, "--output", str(work / "made")], check=True, stdout=sys.stderr)
    return work / "made" / "made.jsonl"


def dpbench() -> list[str]:
    """Return the command of prep."""
    return [sys.executable, "-m", "dpbench.cli", "prep"]


def write_large(small: Path, large: Path, options: argparse.Namespace) -> None:
    """Write a corpus of many megabytes."""
    texts = [json.loads(line)["text"] for line in small.open(encoding="utf-8")]
    dice = random.Random(1)
    with large.open("w", encoding="utf-8") as lines:
        while large.stat().st_size < options.megabytes * 1_000_000:
            for text in texts:
                words = text.split(" ")
                for _ in range(round(len(words) * options.new_words / 100)):
                    letters = dice.choices("aaabcdeeeefghiiijklmnoooprrsstttuvwxyz", k=8)
                    words[dice.randrange(len(words))] = "".join(letters)
                lines.write(json.dumps({"text": " ".join(words)}, ensure_ascii=False) + "\n")
            lines.flush()


def compare(name: str, corpus: Path, work: Path, options: argparse.Namespace, repeat: int) -> None:
    """Print a row a tool: best time, speed, largest memory of all its processes."""
    ours = [*dpbench(), "--input", str(corpus), "--tokenizer", options.tokenizer, "--force"]
    ours += ["--workers", str(options.workers), "--output", str(work / name)]
    theirs = [
        sys.executable, str(options.megatron / "tools" / "preprocess_data.py"),
        "--input", str(corpus), "--output-prefix", str(work / "megatron"),
        "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model",
        str(work / "made" / "tokenizer"), "--workers", str(options.workers), "--append-eod",
    ] if options.megatron else []  # fmt: skip
    times: dict[str, list[tuple[float, float]]] = {"Megatron": [], "dpbench": []}
    for _ in range(repeat):
        if theirs:
            environment = {"PYTHONPATH": str(options.megatron), "HF_HUB_OFFLINE": "1"}
            times["Megatron"].append(measure(theirs, environment))
        times["dpbench"].append(measure(ours, {}))
    megabytes = corpus.stat().st_size / 1e6
    best = {tool: min(runs) for tool, runs in times.items() if runs}
    for tool, (seconds, _) in best.items():
        memory = max(peak for _, peak in times[tool])
        ratio = best.get("Megatron", best["dpbench"])[0] / seconds
        speed = f"{megabytes / seconds:.1f} | {memory:.0f} | {ratio:.1f}"
        print(f"| {name}, {megabytes:.1f} MB | {tool} | {seconds:.2f} | {speed} |", flush=True)
    for suffix in (".bin", ".idx") if theirs else ():
        pair = (work / f"megatron_text_document{suffix}",
                work / name / f"{name}_text_document{suffix}")  # fmt: skip
        if not filecmp.cmp(*pair, shallow=False):
            sys.exit(f"{pair[0]} and {pair[1]} differ")


def measure(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return seconds, and the largest sum of resident memory of all processes in MB."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE if "dpbench.cli" in command else subprocess.DEVNULL,
    )
    root, peak = psutil.Process(process.pid), 0
    while process.poll() is None:
        peak = max(peak, sum(resident(root)))
        time.sleep(TREE_SAMPLE_SECONDS if time.perf_counter() - started > 5 else 0.01)
    seconds = time.perf_counter() - started
    if process.returncode:
        sys.exit(f"{command[:3]} failed: {process.stderr.read() if process.stderr else ''!r}")
    return seconds, peak / 1e6


def resident(root: psutil.Process) -> Iterator[int]:
    """Yield the resident memory of a process and of all that it started."""
    try:
        for process in (root, *root.children(recursive=True)):
            yield process.memory_info().rss
    except psutil.NoSuchProcess:
        return


def report_library(corpus: Path, work: Path, options: argparse.Namespace) -> None:
    """Print how fast the tokenizers library alone encodes the corpus with as many threads."""
    os.environ["RAYON_NUM_THREADS"] = str(options.workers)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(work / "made" / "tokenizer" / "tokenizer.json"))
    lines = [line for line, _ in zip(corpus.open(encoding="utf-8"), range(2000), strict=False)]
    texts = [json.loads(line)["text"] for line in lines]
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        for first in range(0, len(texts), 50):
            tokenizer.encode_batch_fast(texts[first : first + 50], add_special_tokens=False)
        seconds.append(time.perf_counter() - started)
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    speed = f"{megabytes / min(seconds):.1f}"
    print(f"| {megabytes:.1f} MB of it | tokenizers library | {min(seconds):.2f} | {speed} | | |")


if __name__ == "__main__":
    main()
