"""A set port belongs to one run from before its start to its end; runs without one never meet."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from conftest import start as start_dpbench
from dpbench.errors import SetupError
from dpbench.log import read_log
from dpbench.port import check_port, hold_port
from dpbench.results import read_run
from processes import MARK, PATIENCE_SECONDS, mark
from stand_in import Start, finish, folder, start, wait_for

__all__ = ["folder", "mark", "start"]  # fixtures


@pytest.fixture
def port() -> int:
    """A port that nobody listens on."""
    return free_port()


def free_port() -> int:
    """Return a port that nobody listens on, nor will by chance.

    It is outside of the range from which the system serves those who ask for any port.
    """
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    low, high = map(int, given)
    outside = [port for port in range(1024, 1 << 16) if not low <= port <= high]
    for port in random.sample(outside, len(outside)):
        with suppress(OSError), socket.create_server(("", port)):
            return port
    raise AssertionError("every port is taken")


def test_a_port_is_held_although_nobody_listens_on_it_yet(port: int) -> None:
    with hold_port(port):
        with pytest.raises(SetupError, match=f"port {port}: another dpbench run has it") as refused:
            check_port(port)
        assert "choose another launch.master_port" in refused.value.hint
    check_port(port)


def test_other_ports_and_no_port_are_free_meanwhile(port: int) -> None:
    with hold_port(port), hold_port(None), hold_port(None):
        check_port(next(other for other in iter(free_port, None) if other != port))


ADDRESSES = ["127.0.0.1", "0.0.0.0", *(["::"] if socket.has_dualstack_ipv6() else [])]
"""PyTorch takes the last."""


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_port_that_somebody_listens_on_is_refused(address: str) -> None:
    kind = {"family": socket.AF_INET6, "dualstack_ipv6": True} if address == "::" else {}
    with socket.create_server((address, 0), **kind) as server:  # type: ignore[arg-type]
        taken = server.getsockname()[1]
        with pytest.raises(SetupError, match=f"port {taken}: Address already in use"):
            check_port(taken)


def test_the_hold_ends_with_a_process_that_is_killed(port: int) -> None:
    code = f"from dpbench.port import *\nwith hold_port({port}):\n print(flush=True)\n input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout
    holder.stdout.readline()
    with pytest.raises(SetupError):
        check_port(port)
    holder.kill()
    holder.communicate()
    check_port(port)


def test_of_many_that_want_a_port_at_once_one_gets_it(port: int) -> None:
    code = (
        "import sys\nfrom dpbench.port import *\nprint(flush=True)\ninput()\n"
        f"try:\n  with hold_port({port}):\n    print('mine', flush=True); input()\n"
        "except SetupError: print('refused', flush=True)\n"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]
    for racer in racers:
        assert racer.stdout
        racer.stdout.readline()
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("\n")
        racer.stdin.flush()
    answers = [racer.stdout.readline().strip() for racer in racers if racer.stdout]
    for racer in racers:
        racer.communicate()
    assert sorted(answers) == ["mine"] + ["refused"] * 7


def test_a_second_run_on_the_port_is_refused_in_one_line_until_the_first_has_ended(
    start: Start, folder: Path, mark: str, port: int
) -> None:
    config = folder / "fake.yaml"
    config.write_text(
        config.read_text().replace("device: cpu", f"device: cpu, master_port: {port}")
    )
    first = start("hang training")
    wait_for(folder, "iteration        1/")
    out, err = start("ok").communicate(timeout=PATIENCE_SECONDS)
    assert out == ""
    error, fix = err.splitlines()
    assert error == f"error: port {port}: another dpbench run has it"
    assert fix.startswith("  fix: choose another launch.master_port")
    first.terminate()
    assert finish(first, folder, mark).code == 130
    assert len(list((folder / "runs").iterdir())) == 1, "the refused one made no folder"
    assert finish(start("ok"), folder, mark).code == 0


def ports_of(mark: str) -> set[str]:
    """The MASTER_PORT of every rank that carries the mark."""
    found = set()
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except psutil.Error:
            continue
        if environment.get(MARK) == mark and "LOCAL_RANK" in environment:
            found.add(environment["MASTER_PORT"])
    return found


@pytest.mark.megatron
def test_two_real_runs_at_once_do_not_meet(tmp_path: Path, tiny_config: Path, mark: str) -> None:
    steps = {"a": 5, "b": 7}
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    runs = {
        name: start_dpbench(
            *("run", "--config", tiny_config, "--gpus", 2),
            f"--set=training.train_iters={count}",
            cwd=tmp_path,
            **{MARK: f"{mark} {name}", "TMPDIR": str(temporary)},
        )
        for name, count in steps.items()
    }
    ports: dict[str, set[str]] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(len(ports.get(name, ())) == 1 for name in runs) and time.monotonic() < deadline:
        ports = {name: ports.get(name, set()) | ports_of(f"{mark} {name}") for name in runs}
        time.sleep(0.1)
    for name, process in runs.items():
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        folder = tmp_path / out.strip()
        assert read_run(folder).status == "finished"
        log = read_log(folder / "run.log")
        assert [step.number for step in log.steps] == list(range(1, steps[name] + 1))
        assert log.world_size == 2
    assert len(ports["a"]) == len(ports["b"]) == 1
    assert ports["a"] != ports["b"]
    assert list(temporary.glob("torchelastic*")) == []
