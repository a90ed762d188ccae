"""`dpbench run` on the stand-in for Megatron, without importing torch for it.

`python fake_run.py CONFIG GPUS DETAIL`: plans the run as the command line does, takes the program
that redirects torch to the CPU out of the command, trains in ./runs and reports as it does.
"""

import dataclasses
import os
import sys
from pathlib import Path

from dpbench import cli, process
from dpbench.config_file import load_config
from dpbench.launch import plan_launch
from dpbench.training import train


@cli.app.command("fake")
def fake(config: str, gpus: int, detail: str) -> None:
    """Train once."""
    process.GRACE_SECONDS = float(os.environ.get("FAKE_GRACE_SECONDS", "10"))
    launch = plan_launch(load_config(config), gpus=gpus)
    command = tuple(word for word in launch.command if not word.endswith("on_cpu.py"))
    launch = dataclasses.replace(launch, command=command)
    print(train(launch, name="fake", runs=Path("runs"), show=sys.stderr, detail=detail))  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.argv.insert(1, "fake")
    cli.main()
