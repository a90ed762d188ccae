"""Stands in for a checkout of Megatron-LM: prints the lines of a run and fails on request.

FAKE_MEGATRON says how, as words: `ok`; `hang STAGE`, where STAGE is importing, rendezvous,
building, first-step, training, evaluating, saving or exiting; `oom N`, a micro batch above N is
too large; `crash RANK`; `die SIGNAL`; `deaf`, SIGTERM is noted in the log and not obeyed (also
`deaf hang STAGE`); `halt RANKS`, a run of so many ranks goes no further than step 3;
`family`, processes in sessions of their own; `flood MEGABYTES`, in lines of 949 bytes; `noise`;
`nothing`, a checkpoint that is finished; `nan`. Rank 0 prints what Megatron prints on rank 0, the
last rank the steps. What a rank prints it also writes to said.RANK in FAKE_SAID, where that is set,
beside its DPBENCH_RUN. Where FAKE_GO names a folder, step N waits for a file N in it. Needs nothing
but Python.
"""

import faulthandler
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

faulthandler.register(signal.SIGUSR2)
RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
MODE, *DETAIL = os.environ.get("FAKE_MEGATRON", "ok").split()
STEP_SECONDS = float(os.environ.get("FAKE_STEP_SECONDS", "0.01"))
SLEEPER = "import time; time.sleep(600)"
DAEMON = f"import os, time; os.fork() and os._exit(0); os.setsid(); {SLEEPER}"


def flag(name, default):
    """Return the value of a flag on the command line."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def say(text, rank=0):
    """Print a line on one rank."""
    if rank == RANK:
        put(f"{text}\n".encode())


def put(data):
    """Print bytes, and keep a copy of what has been printed."""
    printed = 0
    while printed < len(data):
        printed += os.write(1, data[printed:])
    if folder := os.environ.get("FAKE_SAID"):
        with Path(folder, f"said.{RANK}").open("ab") as copy:
            copy.write(data)


def meet():
    """Wait until every rank has come here, as in a collective."""
    for rank in (RANK, *range(WORLD)):
        file = Path(f".rank{rank}-of-{os.getppid()}")
        if rank == RANK:
            file.touch()
        while not file.exists():
            time.sleep(0.005)


def begin(stage, line=None):
    """Print the line that begins a stage; stop there when asked to."""
    if line:
        say(line)
    if [MODE, *DETAIL][-2:] == ["hang", stage]:
        time.sleep(600)


def fail(error, rank):
    """End a rank as an exception ends it; the others wait for it, as in a collective."""
    if WORLD > 1:
        meet()
    if rank != RANK:
        time.sleep(600)
    for line in ("Traceback (most recent call last):", '  File "train.py", line 1, in step', error):
        say(f"[rank{RANK}]: {line}", RANK)
    os._exit(1)


def misbehave(step):
    """Do at step 3 what was asked for."""
    if step != 3:
        return
    begin("training")
    if MODE == "halt" and int(DETAIL[0]) == WORLD:
        time.sleep(600)
    if MODE == "crash":
        fail("AssertionError: an invented failure", int(DETAIL[0]))
    if MODE == "die":
        if RANK == WORLD - 1:
            os.kill(os.getpid(), getattr(signal, DETAIL[0]))
        time.sleep(600)
    if MODE == "flood":
        line = b"a line that tells nothing, again and again, until the disk is full of it; " * 13
        line = line[:-2] + b"\n"
        for _ in range(int(DETAIL[0])):
            put(line * (1_000_000 // len(line)))
    if MODE == "noise":
        put(bytes(range(256)) * 1000 + b"\n")


def wait_for_go(step):
    """Wait until a step may begin."""
    folder = os.environ.get("FAKE_GO")
    while folder and not Path(folder, str(step)).exists():
        time.sleep(0.005)


def print_step(step, last):
    """Print a training line as core_v0.19 does."""
    loss = "" if MODE == "nan" and step > 4 else f" lm loss: {9 / (step + 1):.6E} |"
    say(
        f" [2026-01-01 00:00:00.000000] iteration {step:>8}/{last:>8} | consumed samples: "
        f"{step * 8:>12} | elapsed time per iteration (ms): {STEP_SECONDS * 1e3:.1f} | throughput "
        f"per GPU (TFLOP/s/GPU): 1.5 | learning rate: 1.000000E-03 | global batch size: {8:>5} |"
        f"{loss} loss scale: 1.0 | grad norm: 1.000 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |",
        WORLD - 1,
    )


def main():
    """Go through the stages of a run."""
    if folder := os.environ.get("FAKE_SAID"):
        Path(folder, "run-mark").write_text(os.environ["DPBENCH_RUN"])
    if MODE == "deaf":
        signal.signal(signal.SIGTERM, lambda number, frame: os.write(1, b"deaf to SIGTERM\n"))
    if MODE == "family":
        subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True)
        # once this has ended its daemon is there
        subprocess.run([sys.executable, "-c", DAEMON], start_new_session=True, check=True)
    micro, last = int(flag("--micro-batch-size", "1")), int(flag("--train-iters", "8"))
    begin("importing", "> Megatron-Core version .......... 0.19.0")
    say("------------------------ arguments ------------------------")
    say(f"  micro_batch_size ................................ {micro}")
    say("-------------------- end of arguments ---------------------")
    begin("rendezvous", "> initializing torch distributed ...")
    begin("building", "> compiling dataset index builder ...")
    if MODE == "nothing":
        say("  successfully loaded checkpoint from /c [ t 1/1, p 1/1 ] at iteration 8")
        return
    begin("first-step", "[before the start of training step] datetime: 2026-01-01 00:00:00")
    if MODE == "oom" and micro > int(DETAIL[0]):
        fail(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU "
            f"{RANK} has a total capacity of 8.00 GiB of which 1.00 GiB is free.",
            WORLD - 1,
        )
    for step in range(1, last + 1):
        wait_for_go(step)
        time.sleep(STEP_SECONDS)
        print_step(step, last)
        misbehave(step)
    say("[after training is done] datetime: 2026-01-01 00:00:00 ")
    begin("saving", f"saving checkpoint at iteration {last:>8} to /c in torch_dist format")
    say(f"  successfully saved checkpoint from iteration {last:>8} to /c")
    begin("evaluating", "Evaluating on 8 samples")
    say(f" validation loss at iteration {last} on validation set | lm loss value: 5.0E+00 | ")
    begin("exiting")


if __name__ == "__main__":
    main()
