"""Megatron's local transformer layer with torch's own attention kernel.

Use: `--spec dpbench.child.sdpa_spec sdpa_layer`. Megatron's local attention writes the whole matrix
of scores to memory, in four passes; torch's scaled_dot_product_attention computes the same in one
kernel (FlashAttention on a GPU). Weights, their names and everything around the attention stay
Megatron's own.
"""

from contextlib import nullcontext

import torch

from .versions import check_version, refuse

check_version("sdpa_spec")

from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.enums import AttnMaskType


class SdpaAttention(DotProductAttention):
    """Causal self-attention by torch.nn.functional.scaled_dot_product_attention."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        refused = {
            "a mask that is not causal": self.attn_mask_type != AttnMaskType.causal,
            "a sliding window (--window-size)": self.scale_mask_softmax.window_size is not None,
            "a softmax offset (--softmax-type)": getattr(self.config, "softmax_type", "vanilla")
            != "vanilla",
        }
        for what, is_asked in refused.items():
            if is_asked:
                refuse(f"the attention of sdpa_spec does not serve {what}")

    @property
    def whole_scale(self):
        """What the scores are multiplied with.

        Query-key layer scaling divides by the layer's number before the softmax and multiplies with
        it inside, which only matters to the range of fp16.
        """
        return self.softmax_scale * (self.scale_mask_softmax.scale or 1)

    def forward(
        self,
        query,
        key,
        value,
        attention_mask,
        attn_mask_type=None,
        attention_bias=None,
        packed_seq_params=None,
    ):
        """Return the context [sequence, batch, hidden] of query, key, value [s, b, heads, d]."""
        if attention_mask is not None:
            refuse("sdpa_spec makes its own causal mask: --no-create-attention-mask-in-dataloader")
        if attention_bias is not None or packed_seq_params is not None:
            refuse("the attention of sdpa_spec serves neither a bias nor packed sequences")
        if attn_mask_type not in (None, AttnMaskType.causal) or len(query) != len(key):
            refuse("the attention of sdpa_spec is causal self-attention over whole sequences")
        rate = self.attention_dropout.p if self.training else 0.0
        # as in Megatron: GPUs that share the heads drop different scores, copies the same
        with own_random_numbers(self.config) if rate else nullcontext():
            context = torch.nn.functional.scaled_dot_product_attention(
                *(tensor.permute(1, 2, 0, 3) for tensor in (query, key, value)),
                dropout_p=rate,
                is_causal=True,
                scale=self.whole_scale,
                enable_gqa=key.size(2) != query.size(2),
            )
        return context.permute(2, 0, 1, 3).flatten(2)


def own_random_numbers(config):
    """Draw from this tensor parallel rank's random state, where Megatron does."""
    return nullcontext() if config.sequence_parallel else get_cuda_rng_tracker().fork()


def local_spec():
    """Return the specification of Megatron's local layer with this attention."""
    spec = get_gpt_layer_local_spec()
    spec.submodules.self_attention.submodules.core_attention = SdpaAttention
    return spec


sdpa_layer = local_spec()
