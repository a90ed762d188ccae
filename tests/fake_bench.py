"""`dpbench bench` on the stand-in for Megatron, without importing torch for it.

`python fake_bench.py bench ...`: the command line itself, but the program that redirects torch to
the CPU is taken out of the command of every training.
"""

import dataclasses

from dpbench import bench, cli
from dpbench.launch import Launch, plan_launch


def plan_without_torch(*arguments: object, **options: object) -> Launch:
    """Plan a launch as dpbench does."""
    launch = plan_launch(*arguments, **options)  # type: ignore[arg-type]
    command = tuple(word for word in launch.command if not word.endswith("on_cpu.py"))
    return dataclasses.replace(launch, command=command)


if __name__ == "__main__":
    bench.plan_launch = plan_without_torch  # type: ignore[attr-defined]
    cli.main()
