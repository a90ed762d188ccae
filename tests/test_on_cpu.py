"""child/on_cpu.py: what a Megatron script asks of CUDA is answered by the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import ROOT

ON_CPU = ROOT / "src" / "dpbench" / "child" / "on_cpu.py"
SCRIPT = """\
import sys, threading
import torch
import beside

assert sys.argv[1:] == ["--flag", "a value"], sys.argv
assert __name__ == "__main__"
assert torch.cuda.is_available()
assert torch.cuda.device_count() == 1
assert f"cuda:{torch.cuda.current_device()}" == "cuda:0"

made = [
    torch.zeros(2, device="cuda"),
    torch.tensor([1.0], device=torch.device("cuda", 0)),
    torch.rand(2, device=torch.cuda.current_device()),
    torch.ones(2).cuda(),
    torch.ones(2).to("cuda"),
    torch.ones(2).to(device="cuda:0", dtype=torch.float64),
    torch.ones(2).new_zeros(3, device="cuda"),
    torch.empty_like(torch.ones(2), device="cuda"),
]
assert {str(tensor.device) for tensor in made} == {"cpu"}
assert torch.ones(2).to(torch.float64).dtype == torch.float64
assert torch.nn.Linear(2, 2).cuda().to("cuda").weight.device.type == "cpu"
assert torch.ones(1).type() == "torch.cuda.FloatTensor"
assert torch.ones(1).type("torch.cuda.HalfTensor").dtype == torch.float16

# inside a backward hook and in another thread, where a TorchFunctionMode would not be active
seen = []
weight = torch.ones(2, requires_grad=True)
weight.register_hook(lambda grad: seen.append(torch.zeros(1, device="cuda")))
weight.sum().backward()
thread = threading.Thread(target=lambda: seen.append(torch.zeros(1, device="cuda")))
thread.start()
thread.join()
assert len(seen) == 2

# one random state for both devices, saved and set back by either name
torch.cuda.manual_seed(5)
state = torch.cuda.get_rng_state()
first = torch.rand(3)
torch.cuda.set_rng_state(state)
assert torch.equal(first, torch.rand(3, device="cuda"))

start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
with torch.cuda.stream(torch.cuda.Stream()):
    end.record()
assert start.elapsed_time(end) >= 0

torch.distributed.init_process_group("nccl", device_id=torch.device("cuda:0"))
total = torch.ones(1)
torch.distributed.all_reduce(total)
assert torch.distributed.get_backend() == "gloo"
print("all answered", beside.NAME)
"""


def test_a_script_that_wants_cuda_runs_on_cpu(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("NAME = 'by a module beside the script'\n")
    environment = {
        "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, ON_CPU, tmp_path / "script.py", "--flag", "a value"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "all answered by a module beside the script\n"
