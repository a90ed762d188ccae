"""Program: what Megatron's layers and dpbench's compute from the same weights, printed as JSON.

Started by `conftest.numbers` under child/on_cpu.py, one process, gloo; nothing is compiled.
"""

import json
import os
from functools import partial

import torch
import torch.nn.functional as F
from megatron.core import package_info, parallel_state
from megatron.core.models.common.language_module import language_module
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import clip_grads
from megatron.core.optimizer import optimizer as mixed_precision
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.spec_utils import build_module

MEGATRONS = {  # before fast_spec puts its own in their places
    "norm": clip_grads.l2_norm_impl,
    "scale": clip_grads.multi_tensor_scale_impl,
    "copy": mixed_precision._multi_tensor_copy_this_to_that,
    "loss": language_module.fused_vocab_parallel_cross_entropy,
}

# ruff: noqa: E402
from dpbench.child import fast_spec, sdpa_spec, torch_kernels
from dpbench.child.versions import check_version

SEQUENCE, BATCH, HEADS, CHANNELS = 24, 3, 4, 8


def config(**changes):
    values = {
        "num_layers": 3, "hidden_size": HEADS * CHANNELS, "num_attention_heads": HEADS,
        "attention_dropout": 0.0, "hidden_dropout": 0.0, "bias_activation_fusion": True,
        "activation_func": F.gelu, "attention_softmax_in_fp32": True,
        "masked_softmax_fusion": False, "persist_layer_norm": False,
        "gradient_accumulation_fusion": False,
    }  # fmt: skip
    dtype = changes.pop("dtype", torch.float32)
    changes |= {"params_dtype": dtype, "bf16": dtype == torch.bfloat16}
    return TransformerConfig(**(values | changes))


def difference(one, other):
    """Return the largest difference over the largest size of the first."""
    one, other = one.detach().double(), other.detach().double()
    return float((one - other).abs().max() / one.abs().max())


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype).requires_grad_()


def results_of(call, inputs, out_grad):
    """Return the output and the gradients of the inputs."""
    out = call(*inputs)
    return [out, *torch.autograd.grad(out, inputs, out_grad)]


def attention(kind, layer_number=2, mask=AttnMaskType.causal, **changes):
    scale = changes.pop("scale", None)
    return kind(config(**changes), layer_number, mask, "self", softmax_scale=scale)


def attention_difference(dtype=torch.float32, groups=HEADS, **changes):
    changes |= {"dtype": dtype, "num_query_groups": groups}
    heads = (HEADS, groups, groups)
    inputs = [leaf(SEQUENCE, BATCH, number, CHANNELS, dtype=dtype) for number in heads]
    out_grad = torch.randn(SEQUENCE, BATCH, HEADS * CHANNELS).to(dtype)
    kinds = (DotProductAttention, sdpa_spec.SdpaAttention)
    modules = [attention(kind, **changes) for kind in kinds]
    theirs, ours = (
        results_of(partial(module, attention_mask=None), inputs, out_grad) for module in modules
    )
    return max(map(difference, theirs, ours))


def said(call):
    """Return the sentence with which a call refuses; None when it does not."""
    try:
        call()
    except SystemExit as refusal:
        return str(refusal.code)
    return None


def attention_refusals():
    kind = sdpa_spec.SdpaAttention
    qkv = [torch.zeros(4, 1, HEADS, CHANNELS)] * 3
    one = attention(kind)
    bias = {"attention_bias": torch.zeros(1)}
    return {
        "window": said(lambda: attention(kind, window_size=(4, 0))),
        "offset": said(lambda: attention(kind, softmax_type="off-by-one")),
        "padding": said(lambda: attention(kind, mask=AttnMaskType.padding)),
        "mask": said(lambda: one(*qkv, torch.zeros(1, 1, 4, 4, dtype=torch.bool))),
        "bias": said(lambda: one(*qkv, None, **bias)),
        "packed": said(lambda: one(*qkv, None, packed_seq_params=object())),
        "no mask": said(lambda: one(*qkv, None, AttnMaskType.no_mask)),
        "one query": said(lambda: one(qkv[0][:1], *qkv[1:], None)),
        "served": said(lambda: one(*qkv, None)),
    }


def attention_dropped(rate):
    """Return the share of dropped scores: keys that are all alike, values that tell the key."""
    size = 64
    one = attention(sdpa_spec.SdpaAttention, attention_dropout=rate).train()
    query = torch.zeros(size, 8, HEADS, size)
    value = torch.eye(size)[:, None, None].expand(size, 8, HEADS, size)
    kept = one(query, query, value, None).view(size, 8, HEADS, size)[-1] != 0
    assert (one.eval()(query, query, value, None).view(size, 8, HEADS, size)[-1] != 0).all()
    return 1 - float(kept.double().mean())


def layers(**changes):
    """Return Megatron's local layer and the compiled one with the same weights."""
    settings = config(**changes)
    theirs, ours = (
        build_module(spec, config=settings, layer_number=1).to(settings.params_dtype)
        for spec in (get_gpt_layer_local_spec(), fast_spec.compiled_layer)
    )
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    assert type(ours) is fast_spec.CompiledLayer
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def layer_difference(**changes):
    theirs, ours = layers(**changes)
    assert [n for n, _ in theirs.named_parameters()] == [n for n, _ in ours.named_parameters()]
    dtype = changes.get("dtype", torch.float32)
    x = leaf(SEQUENCE, BATCH, HEADS * CHANNELS, dtype=dtype)
    out_grad = torch.randn(x.shape).to(dtype)
    found = []
    for one in (theirs, ours):
        inputs = [x, *one.parameters()]
        out, context = one(hidden_states=x, attention_mask=None)
        assert context is None
        found.append([out, *torch.autograd.grad(out, inputs, out_grad)])
    return max(map(difference, *found))


def layer_dropped(rate):
    """Return the share of the output that is dropped where only the last bias is not zero."""
    _, ours = layers(hidden_dropout=rate)
    for parameter in ours.parameters():
        torch.nn.init.zeros_(parameter)
    torch.nn.init.ones_(ours.mlp.linear_fc2.bias)
    x = torch.zeros(64, 16, HEADS * CHANNELS)
    out, _ = ours.train()(x, None)
    assert torch.allclose(out.unique(), torch.tensor([0, 1 / (1 - rate)])), out.unique()
    assert (ours.eval()(x, None)[0] == 1).all()
    return float((out == 0).double().mean())


def layer_refusals():
    def build(**changes):
        return build_module(fast_spec.compiled_layer, config=config(**changes), layer_number=1)

    x = torch.zeros(4, 1, HEADS * CHANNELS)
    one = build()
    return {
        "gated": said(lambda: build(gated_linear_unit=True)),
        "relu": said(lambda: build(activation_func=F.relu, bias_activation_fusion=False)),
        "no bias": said(lambda: build(add_bias_linear=False, bias_activation_fusion=False)),
        "groups": said(lambda: build(num_query_groups=2)),
        "residual": said(lambda: build(fp32_residual_connection=True)),
        "recompute": said(
            lambda: build(recompute_granularity="selective", recompute_modules=["mlp"])
        ),
        "window": said(lambda: build(window_size=(4, 0))),
        "mask": said(lambda: one(hidden_states=x, attention_mask=torch.ones(1))),
        "positional mask": said(lambda: one(x, torch.ones(1))),
        "rotary": said(lambda: one(hidden_states=x, rotary_pos_emb=torch.ones(1))),
        "served": said(lambda: one(hidden_states=x, attention_mask=None, rotary_pos_emb=None)),
    }


def hooks_called():
    """Return the submodules whose forward pre-hooks a layer runs, as when they were called."""
    _, ours = layers()
    seen = []
    for name, module in ours.named_modules():
        module.register_forward_pre_hook(lambda *unused, name=name: seen.append(name))
    ours(torch.zeros(4, 1, HEADS * CHANNELS), None)
    wanted = [name for name, module in ours.named_modules() if list(module.parameters(False))]
    return {"wanted": wanted, "seen": seen}


def kernel_differences():
    grads = [torch.randn(3, 5), torch.randn(7) * 1e3, torch.zeros(2), torch.randn(4, 2, 2)]
    theirs, _ = MEGATRONS["norm"](1, None, [grads], False)
    ours, none = clip_grads.l2_norm_impl(1, None, [grads], False)
    assert none is None
    assert ours.shape == theirs.shape == (1,)
    copies = [[torch.zeros_like(one) for one in grads] for _ in range(2)]
    MEGATRONS["scale"](1, None, [grads, copies[0]], 0.37)
    clip_grads.multi_tensor_scale_impl(1, None, [grads, copies[1]], 0.37)
    narrow = [[torch.zeros_like(one, dtype=torch.bfloat16) for one in grads] for _ in range(2)]
    MEGATRONS["copy"](grads, narrow[0])
    mixed_precision._multi_tensor_copy_this_to_that(grads, narrow[1])
    mixed_precision._multi_tensor_copy_this_to_that([], [])
    clip_grads.multi_tensor_scale_impl(1, None, [[], []], 0.37)
    return {
        "norm": difference(theirs, ours),
        "scale": max(
            map(difference, *([one.flatten() for one in side if one.any()] for side in copies))
        ),
        "copy": all(map(torch.equal, *narrow)),
    }


def clipped(impls, limit):
    """Return norm and clipped gradients by Megatron's own clipping, with these functions."""
    for name, function in impls.items():
        if hasattr(clip_grads, name):
            setattr(clip_grads, name, function)
    torch.manual_seed(5)
    parameters = [torch.nn.Parameter(torch.zeros(4, 3)) for _ in range(3)]
    for parameter in parameters:
        parameter.grad = torch.randn(4, 3)
    group = parallel_state.get_model_parallel_group()
    norm = clip_grads.get_grad_norm_fp32(
        [one.grad for one in parameters], grad_stats_parallel_group=group
    )
    clip_grads.clip_grad_by_total_norm_fp32(parameters, limit, norm)
    return (
        isinstance(norm, torch.Tensor),
        torch.tensor(float(norm)),
        torch.stack([one.grad for one in parameters]),
    )


def clip_differences():
    names = ("l2_norm_impl", "multi_tensor_scale_impl", "multi_tensor_scale_tensor_impl")
    ours = {name: getattr(clip_grads, name, None) for name in names}
    theirs = dict(zip(names, (MEGATRONS["norm"], MEGATRONS["scale"], None), strict=True))
    found = {}
    for limit in (0.5, 100.0):
        _, norm, grads = clipped(theirs, limit)
        on_device, our_norm, our_grads = clipped(ours, limit)
        found[str(limit)] = [difference(norm, our_norm), difference(grads, our_grads)]
    found["on device"] = [on_device, hasattr(clip_grads, names[2])]
    return found


def loss_differences(dtype):
    logits = leaf(SEQUENCE, BATCH, 50, dtype=dtype)
    target = torch.randint(50, (SEQUENCE, BATCH))
    group = parallel_state.get_tensor_model_parallel_group()
    found = []
    for function in (MEGATRONS["loss"], language_module.fused_vocab_parallel_cross_entropy):
        losses = function(logits.clone(), target, group)
        assert losses.shape == target.shape
        found.append([losses, *torch.autograd.grad(losses.mean(), [logits])])
    return [difference(*pair) for pair in zip(*found, strict=True)]


def adamw_steps(kind, fused_from, saved_at=None):
    """Return the weights after some steps; fused from one of them on, through a checkpoint."""
    torch.manual_seed(3)
    weight = torch.nn.Parameter(torch.randn(5, 4))
    optimizer = kind([weight], lr=0.1, weight_decay=0.1)
    for step in range(6):
        if step == saved_at:
            state = optimizer.state_dict()
            optimizer = kind([weight], lr=0.1, weight_decay=0.1)
            optimizer.load_state_dict(state)
        if step >= fused_from:
            torch_kernels.fuse_adamw(optimizer, device="cpu")
            assert optimizer.param_groups[0]["fused"] is True
        weight.grad = torch.randn(5, 4)
        optimizer.step()
    return weight.detach()


def adamw_differences():
    kind = torch.optim.AdamW
    never = adamw_steps(kind, 99)
    gpu_only = kind([torch.nn.Parameter(torch.ones(1))])
    torch_kernels.fuse_adamw(gpu_only)
    assert not gpu_only.param_groups[0]["fused"]
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    torch_kernels.fuse_adamw(sgd, device="cpu")
    assert not sgd.param_groups[0].get("fused")
    return {
        "from the first": difference(never, adamw_steps(kind, 0)),
        "from the third": difference(never, adamw_steps(kind, 2)),
        "from a checkpoint": difference(never, adamw_steps(kind, 3, saved_at=3)),
        "fused and saved": difference(never, adamw_steps(kind, 0, saved_at=3)),
        "unfused after": difference(
            adamw_steps(torch.optim.Adam, 99), adamw_steps(torch.optim.Adam, 1)
        ),
    }


def model_names():
    """Return whether a whole model's state has the same names and shapes with each layer."""
    states = [
        {
            name: list(value.shape)
            for name, value in GPTModel(config(), spec, vocab_size=64, max_sequence_length=SEQUENCE)
            .state_dict()
            .items()
            if isinstance(value, torch.Tensor)
        }
        for spec in (get_gpt_layer_local_spec(), fast_spec.compiled_layer, sdpa_spec.sdpa_layer)
    ]
    return [state == states[0] for state in states]


def setup():
    """Return what the switch, the version and the ranks lead to."""
    os.environ[torch_kernels.SWITCH] = "norm,adam"
    pieces = said(torch_kernels.wanted)
    versions = {}
    for version in ("0.15.3", "0.16.1", "0.19.2", "0.20.0rc1", "1.0"):
        package_info.__version__ = version
        versions[version] = said(lambda: check_version("this"))
    for rank in "01":
        os.environ["RANK"] = rank
        torch_kernels.say(f"by rank {rank}")
    return {"pieces": pieces, "versions": versions}


def main():
    torch.distributed.init_process_group("nccl")
    parallel_state.initialize_model_parallel()
    torch.manual_seed(1)
    model_parallel_cuda_manual_seed(1)
    bf16 = torch.bfloat16
    print(json.dumps({
        "attention": attention_difference(),
        "attention bf16": attention_difference(bf16),
        "attention groups": attention_difference(groups=2),
        "attention scale": attention_difference(scale=0.7),
        "attention layer scaling": attention_difference(apply_query_key_layer_scaling=True),
        "attention refusals": attention_refusals(),
        "attention dropped": attention_dropped(0.3),
        "layer": layer_difference(),
        "layer exact gelu": layer_difference(bias_activation_fusion=False),
        "layer other gelu": layer_difference_of_gelus(),
        "layer bf16": layer_difference(dtype=bf16),
        "layer scaling": layer_difference(apply_query_key_layer_scaling=True),
        "layer channels": layer_difference(kv_channels=6),
        "layer dropped": layer_dropped(0.3),
        "layer refusals": layer_refusals(),
        "hooks": hooks_called(),
        "kernels": kernel_differences(),
        "clip": clip_differences(),
        "loss": loss_differences(torch.float32),
        "loss bf16": loss_differences(bf16),
        "adamw": adamw_differences(),
        "model": model_names(),
        "setup": setup(),
    }))  # fmt: skip


def layer_difference_of_gelus():
    """Return how far the two kinds of GELU are apart in a layer, which is what the test can see."""
    theirs, _ = layers(bias_activation_fusion=True)
    _, ours = layers(bias_activation_fusion=False)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(SEQUENCE, BATCH, HEADS * CHANNELS)
    return difference(theirs(x, None)[0], ours(x, None)[0])


if __name__ == "__main__":
    main()
