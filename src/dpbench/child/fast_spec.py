"""Megatron's local transformer layer as one compiled function over the layer's own parameters.

Use: `--spec dpbench.child.fast_spec compiled_layer`. A small model on a fast GPU waits for kernel
launches; torch.compile turns the fifty kernels of a layer into a dozen. The parameters are built,
named, initialized, reduced and saved by Megatron, so checkpoints fit both layers.

Importing this also puts torch's kernels where Transformer Engine or apex would be, see
torch_kernels.py, and closes the communicators at exit, see leave.py.
"""

import atexit

import torch
import torch.nn.functional as F

from .sdpa_spec import local_spec
from .versions import check_version, refuse

check_version("fast_spec")

from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.transformer_layer import TransformerLayer

from .leave import leave_at_exit
from .torch_kernels import install

NOT_SERVED = {
    "gated_linear_unit": "a gated MLP (--swiglu)",
    "multi_latent_attention": "latent attention",
    "qk_layernorm": "--qk-layernorm",
    "qk_l2_norm": "--qk-l2-norm",
    "qk_clip": "--qk-clip",
    "log_max_attention_logit": "--log-max-attention-logit",
    "attention_output_gate": "an output gate",
    "layernorm_zero_centered_gamma": "--apply-layernorm-1p",
    "fp32_residual_connection": "--fp32-residual-connection",
    "sequence_parallel": "--sequence-parallel",
    "recompute_granularity": "recomputation",
    "fp8": "fp8",
    "fp4": "fp4",
    "cpu_offloading": "CPU offloading",
    "fine_grained_activation_offloading": "activation offloading",
    "use_te_activation_func": "Transformer Engine's activation",
}
"""Settings that change what a layer computes, and their names; none may be on."""
ARGUMENTS_SERVED = {"attention_mask", "sequence_len_offset", "padding_mask"}
"""What the block may give a layer; the first must be None, the others change nothing."""


def layer(x, norm1, qkv, projection, norm2, up, down, shape, eps, dropout, gelu):
    """Return the output [sequence, batch, hidden] of a layer.

    Each of norm1 ... down is (weight, bias); shape is (heads, scale of the scores); dropout is
    (rate of the attention, rate of the outputs).
    """
    sequence, batch, hidden = x.shape
    heads, scale = shape
    y = F.layer_norm(x, (hidden,), *norm1, eps)
    y = F.linear(y, *qkv).view(sequence, batch, heads, -1)
    query, key, value = (part.permute(1, 2, 0, 3) for part in y.chunk(3, dim=-1))
    y = F.scaled_dot_product_attention(
        query, key, value, dropout_p=dropout[0], is_causal=True, scale=scale
    )
    y = F.linear(y.permute(2, 0, 1, 3).flatten(2), *projection)
    x = x + F.dropout(y, dropout[1])
    y = F.layer_norm(x, (hidden,), *norm2, eps)
    y = F.gelu(F.linear(y, *up), approximate=gelu)
    return x + F.dropout(F.linear(y, *down), dropout[1])


compiled = torch.compile(layer, dynamic=False, fullgraph=True)


class CompiledLayer(TransformerLayer):
    """The layer of GPT-2: LayerNorm, biases, GELU, causal attention; one tensor parallel rank."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if asked := self.find_not_served():
            refuse(f"the layer of fast_spec does not serve {asked}; leave --spec out")

    def find_not_served(self):
        """Return what is configured and not computed here; None when all is."""
        config, attention = self.config, self.self_attention
        for name, what in NOT_SERVED.items():
            if getattr(config, name, None):
                return what
        conditions = {
            "tensor parallelism": self.tp_group.size() != 1,
            f"--normalization {config.normalization}": config.normalization != "LayerNorm",
            "--disable-bias-linear": not config.add_bias_linear,
            "an activation other than GELU": config.activation_func is not F.gelu,
            "experts": config.num_moe_experts is not None,
            "query groups": config.num_query_groups != config.num_attention_heads,
            "cross-attention": not isinstance(self.cross_attention, IdentityOp),
            "a layer without attention or MLP": isinstance(attention, IdentityOp)
            or isinstance(self.mlp, IdentityOp),
        }
        return next((what for what, is_asked in conditions.items() if is_asked), None)

    def forward(self, hidden_states, *args, **kwargs):
        """Return the output [sequence, batch, hidden], and no context."""
        extra = [name for name, value in kwargs.items() if value is not None]
        if kwargs.get("attention_mask", args[0] if args else None) is not None:
            refuse("fast_spec makes its own causal mask: --no-create-attention-mask-in-dataloader")
        if unserved := [name for name in extra if name not in ARGUMENTS_SERVED]:
            refuse(f"the layer of fast_spec does not serve {unserved[0]}; leave --spec out")
        # the submodules are not called, and their hooks wait for parameters that are on their way
        for module in self.modules():
            for hook in module._forward_pre_hooks.values() if module is not self else ():
                hook(module, ())
        attention, mlp, on = self.self_attention, self.mlp, float(self.training)
        core = attention.core_attention
        norms = self.input_layernorm, self.pre_mlp_layernorm
        linears = attention.linear_qkv, attention.linear_proj, mlp.linear_fc1, mlp.linear_fc2
        norm1, norm2, qkv, projection, up, down = (
            (module.weight, module.bias) for module in (*norms, *linears)
        )
        output = compiled(
            hidden_states,
            norm1,
            qkv,
            projection,
            norm2,
            up,
            down,
            (attention.num_attention_heads_per_partition, core.whole_scale),
            self.config.layernorm_epsilon,
            (core.attention_dropout.p * on, self.hidden_dropout * on),
            "tanh" if self.config.bias_activation_fusion else "none",
        )
        return output, None


compiled_layer = local_spec()
compiled_layer.module = CompiledLayer
install()
atexit.register(leave_at_exit)
