"""GPT pretraining on the pip package: the shortest entry that `megatron.training` 0.19 allows.

The wheel ships `megatron.core` and `megatron.training` but not the repository's top-level
`pretrain_gpt.py`. This file is that entry for plain GPT: a forward step, a masked token loss, the
GPT dataset, and `pretrain`. Everything else is Megatron's own code. What only the repository's
script offers (fine-tuning, fill-in-the-middle, packed documents, multi-token prediction,
distillation) is refused: use a checkout for those.
"""

import faulthandler
import os
import signal
import sys
import warnings

faulthandler.register(signal.SIGUSR2)  # dpbench's guard asks for stacks with it
if os.environ.get("RANK", "0") != "0":  # one copy of each import warning is enough
    warnings.filterwarnings("ignore")

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
from leave import leave
from megatron.core import package_info, parallel_state
from megatron.core.datasets import utils as dataset_utils
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig, MockGPTDataset
from megatron.core.enums import ModelType
from megatron.core.rerun_state_machine import get_rerun_state_machine
from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer
from megatron.core.utils import (
    get_attr_wrapped_model,
    get_batch_on_this_cp_rank,
    get_batch_on_this_tp_rank,
)
from megatron.training import get_args, get_timers, pretrain, print_rank_0
from megatron.training.argument_utils import gpt_config_from_args, pretrain_cfg_container_from_args
from megatron.training.arguments import parse_and_validate_args
from megatron.training.utils import get_blend_and_blend_per_split, is_first_or_last_pipeline_stage

BATCH_KEYS = ("tokens", "labels", "loss_mask", "attention_mask", "position_ids")
PACKING_KEYS = ("cu_seqlens", "cu_seqlens_padded", "max_seqlen", "local_cp_size")
ONLY_IN_A_CHECKOUT = (
    "sft",
    "fim_data",
    "mtp_num_layers",
    "dataloader_inter_document_masking",
    "hybrid_context_parallel",
    "logits_load_dir",
    "overlap_moe_expert_parallel_comm",
    "check_for_spiky_loss",
    "per_dataset_sequences_path",
    "full_validation",
    "multiple_validation_sets",
    "object_storage_cache_path",
    "allow_ambiguous_pad_tokens",
    "dataloader_fast_cache_load",
    "dataloader_defer_npy_index_mmap",
    "inprocess_restart",
    "log_straggler",
)


def get_batch(data_iterator, vp_stage):
    """Return the tensors of BATCH_KEYS, each [micro batch, sequence]; all None on middle stages."""
    if not is_first_or_last_pipeline_stage(vp_stage):
        return [None] * len(BATCH_KEYS)
    args = get_args()
    tensor_rank = parallel_state.get_tensor_model_parallel_rank()
    batch = {}
    if tensor_rank == 0:
        sample = next(data_iterator)
        for key in (*BATCH_KEYS, *PACKING_KEYS):
            tensor = sample.get(key)
            batch[key] = None if tensor is None else tensor.cuda(non_blocking=True)
    batch = get_batch_on_this_tp_rank(
        batch,
        has_cu_seqlens=False,
        is_hybrid_cp=False,
        create_attention_mask_in_dataloader=args.create_attention_mask_in_dataloader,
        broadcast_src_rank=parallel_state.get_tensor_model_parallel_src_rank(),
        broadcast_group=parallel_state.get_tensor_model_parallel_group(),
        cp_size=args.context_parallel_size,
        tp_rank=tensor_rank,
        micro_batch_size=args.micro_batch_size,
        seq_length=args.seq_length,
        mtp_on_this_rank=False,
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        is_pipeline_first_stage=parallel_state.is_pipeline_first_stage(),
        is_pipeline_last_stage=parallel_state.is_pipeline_last_stage(),
    )
    batch = get_batch_on_this_cp_rank(
        batch, is_hybrid_cp=False, cp_group=parallel_state.get_context_parallel_group()
    )
    return [batch.get(key) for key in BATCH_KEYS]


def token_loss(loss_mask, losses):
    """Sum the per-token losses that the mask keeps.

    Returns the sum, the number of tokens, and what Megatron averages over the ranks and logs.
    """
    mask = loss_mask.view(-1).float()
    loss = torch.sum(losses.view(-1).float() * mask)
    tokens = mask.sum().detach().to(torch.int)
    if get_args().check_for_nan_in_loss_and_grad:
        for name, is_bad in (("NaN", torch.isnan), ("Inf", torch.isinf)):
            get_rerun_state_machine().validate_result(
                result=loss,
                rejection_func=is_bad,
                message=f"found {name} in local forward loss calculation",
                tolerance=0.0,
                fatal=True,
            )
    report = torch.cat([loss.detach().clone().view(1), tokens.view(1)])
    return loss, tokens, {"lm loss": report}


def forward_step(data_iterator, model):
    """Run the model on one micro batch; return its per-token losses and how to reduce them."""
    timers = get_timers()
    timers("batch-generator", log_level=2).start()
    vp_stage = get_attr_wrapped_model(model, "vp_stage")
    tokens, labels, loss_mask, attention_mask, position_ids = get_batch(data_iterator, vp_stage)
    timers("batch-generator").stop()
    losses = model(tokens, position_ids, attention_mask, labels=labels, loss_mask=loss_mask)
    return losses, partial(token_loss, loss_mask)


def build_datasets(samples, vp_stage=None):
    """Return the train, validation and test datasets for the given numbers of samples."""
    args = get_args()
    blend, blend_per_split = get_blend_and_blend_per_split(args)
    config = GPTDatasetConfig(
        random_seed=args.seed,
        sequence_length=args.seq_length,
        blend=blend,
        blend_per_split=blend_per_split,
        split=args.split,
        num_dataset_builder_threads=args.num_dataset_builder_threads,
        path_to_cache=args.data_cache_path,
        mmap_bin_files=args.mmap_bin_files,
        tokenizer=build_tokenizer(args),
        reset_position_ids=args.reset_position_ids,
        reset_attention_mask=args.reset_attention_mask,
        eod_mask_loss=args.eod_mask_loss,
        create_attention_mask=args.create_attention_mask_in_dataloader,
        mid_level_dataset_surplus=args.mid_level_dataset_surplus,
        context_parallel_size=args.context_parallel_size,
        data_parallel_size=args.data_parallel_size,
        sequence_parallel_size=args.tensor_model_parallel_size * args.sequence_parallel,
    )

    def on_this_rank():
        return parallel_state.get_tensor_model_parallel_rank() == 0 and (
            is_first_or_last_pipeline_stage(vp_stage)
        )

    kind = MockGPTDataset if args.mock_data else GPTDataset
    return BlendedMegatronDatasetBuilder(kind, samples, on_this_rank, config).build()


build_datasets.is_distributed = True  # Megatron asks every rank, not only rank 0 of each group


def use_the_wheels_helpers():
    """Keep Megatron from running `make` where there is no Makefile.

    The wheel has the compiled dataset helpers but no Makefile beside them, and Megatron's
    `compile_helpers` ends the process with status 1 when `make` fails.
    """
    has_makefile = (Path(dataset_utils.__file__).parent / "Makefile").exists()
    if not has_makefile and find_spec("megatron.core.datasets.helpers_cpp"):
        dataset_utils.compile_helpers = lambda: None


def main():
    """Parse Megatron's arguments and train."""
    print_rank_0(f"> PyTorch version ................ {torch.__version__}")
    print_rank_0(f"> Megatron-Core version .......... {package_info.__version__}")
    use_the_wheels_helpers()
    args = parse_and_validate_args(args_defaults={"tokenizer_type": "GPT2BPETokenizer"})
    if asked := [name for name in ONLY_IN_A_CHECKOUT if getattr(args, name, None)]:
        flags = ", ".join("--" + name.replace("_", "-") for name in asked)
        sys.exit(f"dpbench: the pip package's entry does not serve {flags}; use a checkout")
    if args.spec:  # Megatron would log that the import failed, and train with its default layer
        import_module(args.spec[0])
    config = pretrain_cfg_container_from_args(args, gpt_config_from_args(args))
    pretrain(config, build_datasets, ModelType.encoder_or_decoder, forward_step)
    leave(always=True)


if __name__ == "__main__":
    main()
