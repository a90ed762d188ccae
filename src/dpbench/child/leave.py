"""End a training process in the order that NCCL needs: CUDA graphs first, then the communicators.

NCCL does not close a communicator while a CUDA graph that recorded it is alive, and waits for ever.
Megatron keeps its graphs in attributes of classes, which live until the interpreter is gone.
"""

import gc
import sys

import torch


def drop_graphs():
    """Forget every CUDA graph that Megatron keeps and return whether there was one."""
    found = False
    modules = sys.modules  # what training did not import holds no graph
    if module := modules.get("megatron.core.full_cuda_graph"):
        wrapper = module.FullCudaGraphWrapper
        for kept in (wrapper.cuda_graph, wrapper.result):
            found |= any(value is not None for value in kept.values())
            kept.update(dict.fromkeys(kept))
    if module := modules.get("megatron.core.optimizer.optimizer_cuda_graph"):
        wrapper = module.OptimizerCudaGraphWrapper
        found |= wrapper.cuda_graph is not None
        wrapper.cuda_graph = wrapper.result = None
    module = modules.get("megatron.core.transformer.cuda_graphs")
    if module and (record := module._CudagraphGlobalRecord).cudagraph_created:
        found = True
        module.delete_cuda_graphs()
        record.cudagraph_created = False
    return found


def leave(*, always):
    """Close the process groups; with `always` false only where CUDA graphs stand in the way."""
    if not (drop_graphs() or always):
        return
    gc.collect()  # layers keep graphs of their own, in cycles
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def leave_at_exit():
    """Do so when the interpreter ends, unless it ends with an error: others may not come then."""
    if getattr(sys, "last_value", None) is None:
        leave(always=False)
