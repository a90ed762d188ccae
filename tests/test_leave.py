"""child/leave.py: graphs go before the communicators, and nothing happens where there are none."""

from __future__ import annotations

import subprocess
import sys

from conftest import ROOT

CHILD = ROOT / "src" / "dpbench" / "child"
GRAPHS = """

import gc, sys
sys.path.insert(0, CHILD)
import torch
import leave
from megatron.core.full_cuda_graph import FullCudaGraphWrapper as Full
from megatron.core.optimizer import optimizer_cuda_graph
from megatron.core.transformer import cuda_graphs
Optimizer = optimizer_cuda_graph.OptimizerCudaGraphWrapper

calls = []

class Graph:
    def __init__(self, name):
        self.name, self.itself = name, self  # in a cycle, as layers are

    def __del__(self):
        calls.append(self.name)

Full.cuda_graph.update(training=Graph("training"), validation=Graph("validation"))
Full.result.update(training=[torch.ones(1)])
Optimizer.cuda_graph, Optimizer.result = Graph("optimizer"), True
cuda_graphs._CudagraphGlobalRecord.cudagraph_created = True
real = cuda_graphs.delete_cuda_graphs
cuda_graphs.delete_cuda_graphs = lambda: (calls.append("layers"), real())
torch.cuda.is_available = lambda: True
torch.cuda.synchronize = lambda: calls.append("synchronize")
torch.cuda.empty_cache = lambda: None
torch.distributed.is_initialized = lambda: True
torch.distributed.destroy_process_group = lambda: calls.append("destroy")
"""
FULL = """
gc.disable()
leave.leave(always=False)
assert sorted(calls[:4]) == ["layers", "optimizer", "training", "validation"], calls
assert calls[4:] == ["synchronize", "destroy"], calls
assert set(Full.cuda_graph) == set(Full.result) == {"training", "validation"}
assert not any([*Full.cuda_graph.values(), *Full.result.values()])
assert Optimizer.cuda_graph is None
assert not cuda_graphs._CudagraphGlobalRecord.cudagraph_created
calls.clear()
leave.leave(always=False)
assert calls == [], calls
leave.leave(always=True)
assert calls == ["synchronize", "destroy"], calls
"""
AT_EXIT = """
import atexit, sys
from types import SimpleNamespace
sys.path.insert(0, CHILD)
import torch
import leave

wrapper = SimpleNamespace(cuda_graph={"training": GRAPH}, result={"training": None})
sys.modules["megatron.core.full_cuda_graph"] = SimpleNamespace(FullCudaGraphWrapper=wrapper)
torch.distributed.is_initialized = lambda: True
torch.distributed.destroy_process_group = lambda: print("closed")
atexit.register(leave.leave_at_exit)
if FAILS:
    raise ValueError("a step failed")
"""


def run(*parts: str) -> subprocess.CompletedProcess[str]:
    code = f"CHILD = {str(CHILD)!r}\n" + "".join(parts)
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_graphs_are_gone_before_the_process_groups_are_closed() -> None:
    done = run(GRAPHS, FULL)
    assert done.returncode == 0, done.stderr


def test_at_exit_the_groups_are_closed_where_graphs_are_unless_the_process_fails() -> None:
    assert run("FAILS, GRAPH = False, 1\n", AT_EXIT).stdout == "closed\n"
    assert run("FAILS, GRAPH = False, None\n", AT_EXIT).stdout == ""
    failed = run("FAILS, GRAPH = True, 1\n", AT_EXIT)
    assert failed.returncode == 1
    assert failed.stdout == ""


def test_without_megatron_graphs_gpu_and_groups_it_does_nothing() -> None:
    done = run("import sys; sys.path.insert(0, CHILD)\nimport leave; leave.leave(always=True)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
