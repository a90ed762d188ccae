"""What Transformer Engine or apex bring to Megatron's optimizer and loss, from torch.

Without them Megatron falls back to loops: a kernel and a wait for each tensor's norm, a kernel for
each tensor's scale and copy, an AdamW that goes over memory several times. torch has one kernel for
many tensors. `install` fills the very slots that Megatron fills from Transformer Engine, apex or
its loops, only where neither is installed, and says so in one line.

DPBENCH_FAST_WITHOUT names pieces to leave as they are, for experiments: norm,scale,copy,adamw,loss.
"""

import os
from importlib.util import find_spec

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .versions import check_version, refuse

check_version("torch_kernels")

from megatron.core.models.common.language_module import language_module
from megatron.core.optimizer import clip_grads
from megatron.core.optimizer import optimizer as mixed_precision

SWITCH = "DPBENCH_FAST_WITHOUT"
SLOTS = {
    "norm": (clip_grads, "l2_norm_impl"),
    "scale": (clip_grads, "multi_tensor_scale_impl"),
    "clip": (clip_grads, "multi_tensor_scale_tensor_impl"),
    "copy": (mixed_precision, "_multi_tensor_copy_this_to_that"),
    "loss": (language_module, "fused_vocab_parallel_cross_entropy"),
}
"""Module and name of each function that is replaced; `clip` belongs to the piece `scale`."""
PIECES = ("norm", "scale", "copy", "adamw", "loss")
SAYS = {
    "norm": "norm of all gradients by torch._foreach_norm",
    "scale": "their scale by torch._foreach_mul_",
    "clip": "clipping without a wait for the norm",
    "copy": "copies of parameters by torch._foreach_copy_",
    "adamw": "AdamW fused by torch",
    "loss": "fused loss compiled",
}


def norm_of_many(chunk_size, overflow, lists, per_tensor, *unused):
    """Return the L2 norm of all tensors of lists[0], shape [1], and of each where it is asked."""
    norms = torch.stack(torch._foreach_norm(lists[0], 2, dtype=torch.float32))
    return torch.linalg.vector_norm(norms).view(1), norms if per_tensor else None


def scale_many(chunk_size, overflow, lists, scale):
    """Write lists[0] x scale, a number or a tensor of one, to lists[1]; they may be the same."""
    source, target = lists
    if not target:
        return
    if source is not target:
        torch._foreach_copy_(target, source)
    torch._foreach_mul_(target, scale.view(()) if isinstance(scale, torch.Tensor) else scale)


def copy_many(this, that, overflow_buf=None):
    """Copy a list of tensors to another, converting as the loop of Tensor.copy_ does."""
    if that:
        torch._foreach_copy_(that, this)


def cross_entropy(logits, target):
    """Return the loss of each token, shape of target [sequence, batch], computed in fp32."""
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), target.flatten(), reduction="none"
    )
    return losses.view_as(target)


def loss_in_one_pass(megatrons):
    """Return a replacement of Megatron's fused loss, which still serves a divided vocabulary."""
    compiled = torch.compile(cross_entropy, dynamic=False)

    def loss(logits, target, group):
        if group.size() > 1:
            return megatrons(logits, target, group)
        return compiled(logits, target)

    return loss


def fuse_adamw(optimizer, device="cuda"):
    """Let a plain AdamW or Adam of torch whose parameters are on `device` use its fused kernel.

    A checkpoint of an optimizer that was not fused brings step counters on the CPU and resets the
    group's setting, so this looks again before every step.
    """
    if type(optimizer) not in (torch.optim.AdamW, torch.optim.Adam):
        return
    for group in optimizer.param_groups:
        parameters = group["params"]
        if group.get("fused") or any(one.device.type != device for one in parameters):
            continue
        group.update(fused=True, foreach=False)
        for parameter in parameters:
            state = optimizer.state.get(parameter, {})
            if "step" in state:
                state["step"] = torch.as_tensor(state["step"]).to(parameter.device, torch.float32)


def wanted():
    """Return the pieces that the environment does not switch off."""
    without = {name.strip() for name in os.environ.get(SWITCH, "").split(",")} - {""}
    if unknown := without - set(PIECES):
        known = ", ".join(PIECES)
        refuse(f"{SWITCH} names {', '.join(sorted(unknown))}; the pieces are {known}")
    return [piece for piece in PIECES if piece not in without]


def install():
    """Put the pieces in their places where no other library fills them; rank 0 says which."""
    brought = [name for name in ("transformer_engine", "amp_C") if find_spec(name)]
    if brought:
        say(f"{brought[0]} is installed and brings its own kernels: none replaced")
        return
    functions = {"norm": norm_of_many, "scale": scale_many, "clip": scale_many, "copy": copy_many}
    names = [
        slot for piece in wanted() for slot in ([piece, "clip"] if piece == "scale" else [piece])
    ]
    done, missing = [], []
    for name in names:
        if name == "adamw":
            register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: fuse_adamw(optimizer))
            done.append(SAYS[name])
            continue
        module, attribute = SLOTS[name]
        if not hasattr(module, attribute):
            missing.append(attribute)
            continue
        megatrons = getattr(module, attribute)
        setattr(module, attribute, functions.get(name) or loss_in_one_pass(megatrons))
        done.append(SAYS[name])
    left = f"; not in this Megatron-Core: {', '.join(missing)}" if missing else ""
    say(f"{', '.join(done) or 'nothing'}, in place of Megatron's loops{left}")


def say(text):
    """Print a line about the kernels, once for all ranks."""
    if os.environ.get("RANK", "0") == "0":
        print(f"dpbench kernels: {text}", flush=True)
