"""Flags against option tables: what is refused, what is spelled otherwise, what argparse makes."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpbench.config_file import load_config
from dpbench.errors import ConfigError
from dpbench.flag_check import FlagCheck
from dpbench.options import OptionTable
from tables import recorded

NEW, OLD = recorded("0.19.0"), recorded("0.16.1")
VERSIONS = {id(NEW): "0.19.0", id(OLD): "0.16.1"}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("c") / "c.yaml"
    base = (Path(__file__).parents[1] / "configs" / "demo-cpu.yaml").read_text()
    path.write_text(base + "megatron:\n  DDP-impl: local\n  x: 1\n")
    return load_config(str(path))


def check(config, table: OptionTable, name: str, value, key: str = "megatron.x"):
    """Return the arguments of one flag, and the notes about it."""
    one = FlagCheck(table=table, version=VERSIONS[id(table)], config=config)
    return one.add(name, value, key), one.notes


@pytest.mark.parametrize(
    ("name", "value", "arguments"),
    [
        ("lr", 1e-4, ["--lr", "0.0001"]),
        ("lr", -1e-5, ["--lr=-1e-05"]),
        ("lr", -1, ["--lr", "-1"]),
        ("lr", "2e-4", ["--lr", "2e-4"]),
        ("lr", [3], ["--lr", "3"]),
        ("fp16", True, ["--fp16"]),
        ("fp16", False, []),
        ("seed", None, []),
        ("use_distributed_optimizer", True, ["--use-distributed-optimizer"]),
        ("override-opt-param-scheduler", True, ["--override-opt-param-scheduler"]),
        ("override-opt_param-scheduler", True, ["--override-opt_param-scheduler"]),
        ("data-path", ["0.5", "a", 0.5, "b"], ["--data-path", "0.5", "a", "0.5", "b"]),
        ("data-path", "a", ["--data-path", "a"]),
        ("spec", ["m", "f"], ["--spec", "m", "f"]),
        ("rl-partial-rollouts", True, ["--rl-partial-rollouts"]),
        ("rl-partial-rollouts", False, ["--no-rl-partial-rollouts"]),
        ("no-rl-partial-rollouts", True, ["--no-rl-partial-rollouts"]),
        ("no-rl-partial-rollouts", False, ["--rl-partial-rollouts"]),
        ("timing-log-level", 2, ["--timing-log-level", "2"]),
        ("attention-backend", "flash", ["--attention-backend", "flash"]),
        ("exit-signal", "SIGTERM", ["--exit-signal", "SIGTERM"]),
        ("save", "-odd", ["--save=-odd"]),
        ("onnx-safe", "yes", ["--onnx-safe", "yes"]),
    ],
)
def test_a_flag_becomes_the_arguments_that_argparse_reads(config, name, value, arguments):
    assert check(config, NEW, name, value) == (arguments, [])


@pytest.mark.parametrize(
    ("table", "name", "value", "message", "hint"),
    [
        (NEW, "recompute-granularty", "full", "0.19.0 has no flag --recompute-granularty",
         "did you mean --recompute-granularity"),
        (NEW, "recompute-granularty", False, "has no flag", "--recompute-granularity"),
        (NEW, "check-for-nan-in-loss-and-grad", False, "has no flag",
         "no-check-for-nan-in-loss-and-grad: true"),
        (NEW, "zzzzzzzz", 1, "has no flag --zzzzzzzz", "dpbench flags WORD"),
        (NEW, "embedding-weights-in-fp32", True, "removed in core_v0.4", "leave"),
        (NEW, "lr", "fast", "--lr takes one value (number), not 'fast'", "write a number"),
        (NEW, "seed", 1.5, "--seed takes one value (whole number), not '1.5'", "a whole number"),
        (NEW, "seed", True, "--seed takes one value (whole number), not true", "a whole number"),
        (NEW, "seed", False, "not false", "or null to leave it out"),
        (NEW, "seed", [1, 2], "--seed takes one value (whole number), not [1, 2]", "whole"),
        (NEW, "fp16", 1, "--fp16 takes no value, not 1", "write true"),
        (NEW, "data-path", True, "any number of values", "its value"),
        (NEW, "moe-layer-freq", [], "not []", "its value"),
        (OLD, "rampup-batch-size", "4-16-1000", "3 values (whole numbers), not '4-16-1000'",
         "a list of 3"),
        (OLD, "rampup-batch-size", [4, 16], "3 values", "a list of 3"),
        (NEW, "ckpt-format", "zarr", "--ckpt-format is 'zarr'", "one of: torch, torch_dist"),
        (NEW, "attention-backend", "flsh", "--attention-backend is 'flsh'", "did you mean flash?"),
        (NEW, "timing-log-level", 3, "--timing-log-level is '3'", "one of: 0, 1, 2"),
        (NEW, "data-path", ["-a", "b"], "for the next flag", "dash"),
        (NEW, "onnx-safe", "False", "reads every text here as true", "null"),
        (NEW, "layernorm-epsilon", "small", "--norm-epsilon takes one value", "a number"),
        (NEW, "layernorm-epsilon", True, "--norm-epsilon takes one value", "a number"),
        (NEW, "checkpoint-activations", 3, "takes no value, not 3", "write true"),
        (OLD, "step-batch-size-schedule", "0:2", "0.16.1 has no flag", ""),
        (OLD, "cuda-graph-impl", "ful_iteration", "--cuda-graph-impl is", "one of: none, local"),
    ],
)  # fmt: skip
def test_what_the_parser_would_not_take_is_refused(config, table, name, value, message, hint):
    with pytest.raises(ConfigError) as caught:
        check(config, table, name, value)
    assert message in str(caught.value)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("table", "name", "value", "arguments", "note"),
    [
        (NEW, "DDP-impl", "local", [], "left out: there is one data-parallel"),
        (NEW, "use-checkpoint-opt_param-sync", True, [], "no version of Megatron ever had it"),
        (NEW, "use-mcore-models", True, [], "left out"),
        (NEW, "use-mcore-models", False, [], None),
        (NEW, "layernorm-epsilon", 1e-5, ["--norm-epsilon", "1e-05"],
         "written as --norm-epsilon 1e-05"),
        (NEW, "batch-size", 4, ["--micro-batch-size", "4"], "micro-batch-size since v2"),
        (NEW, "checkpoint-activations", True,
         "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1".split(),
         "Megatron ends at once"),
        (NEW, "enable-cuda-graph", True, ["--cuda-graph-impl", "local"], "written as"),
        (NEW, "legacy-tokenizer", True, [], "left out"),
        (OLD, "legacy-tokenizer", True, ["--legacy-tokenizer"], None),
        (NEW, "tiktoken-special-tokens", ["a"], ["--tokenizer-special-tokens", "a"], "written as"),
        (NEW, "muon-use-nesterov", True, ["--muon-nesterov"], "written as"),
        (OLD, "muon-nesterov", True, ["--muon-use-nesterov"], "its name in Megatron-Core 0.16.1"),
        (OLD, "cuda-graph-modules", ["attn"], ["--cuda-graph-scope", "attn"], "its name in"),
        (NEW, "cuda-graph-modules", ["attn"], ["--cuda-graph-modules", "attn"], None),
        (OLD, "cuda-graph-impl", "full_iteration",
         "--cuda-graph-impl local --cuda-graph-scope full_iteration".split(), "written as"),
        (NEW, "cuda-graph-impl", "full_iteration", ["--cuda-graph-impl", "full_iteration"], None),
        (OLD, "disable-ckpt-fully-parallel-save", True, ["--disable-ckpt-fully-parallel-save"],
         None),
        (NEW, "disable-ckpt-fully-parallel-save", True, ["--no-ckpt-fully-parallel-save"],
         "written as"),
        (OLD, "lazy-mpu-init", "1", ["--lazy-mpu-init", "1"], None),
        (NEW, "lazy-mpu-init", True, ["--lazy-mpu-init"], None),
    ],
)  # fmt: skip
def test_a_flag_is_spelled_as_the_version_in_use_spells_it(
    config, table, name, value, arguments, note
):
    written, notes = check(config, table, name, value)
    assert written == arguments
    assert len(notes) == (0 if note is None else 1)
    assert note is None or (note in notes[0] and notes[0].startswith(f"--{name}"))


def test_a_refusal_is_told_with_the_place_of_the_key(config):
    with pytest.raises(ConfigError, match=r"c\.yaml:\d+:3: megatron\.DDP-impl: "):
        check(config, NEW, "sequence-paralel", True, "megatron.DDP-impl")


def test_an_option_that_two_keys_give_is_refused(config):
    one = FlagCheck(table=NEW, version="0.19.0", config=config)
    one.add("micro-batch-size", 4, "training.micro_batch_size")
    one.add("save", "a", "megatron.save")
    with pytest.raises(ConfigError) as caught:
        one.add("batch-size", 8, "megatron.x")
    assert "sets --micro-batch-size, as training.micro_batch_size does" in str(caught.value)
    assert "leave megatron.x or training.micro_batch_size out" in caught.value.hint


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["full", "1", "-1", "-x", "a b", "", "local", "--lr", "1e-3", "torch"])
)


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(
    table=st.sampled_from([NEW, OLD]),
    index=st.integers(0, 200),
    value=VALUES | st.lists(st.integers(-5, 5) | st.sampled_from(["-x", "a", "1"]), max_size=4),
)
def test_what_is_let_through_argparse_takes_and_reads_as_the_same_flags(
    config, table, index, value
):
    option = table.options[index % len(table.options)]
    name = option.names[0].removeprefix("--")
    try:
        arguments, _ = check(config, table, name, value)
    except ConfigError:
        return
    read, unknown = build_parser(table).parse_known_args(arguments)
    assert unknown == []
    if value is None or (value is False and not option.negated):
        assert arguments == []
    else:
        assert arguments == [] or any(field is not None for field in vars(read).values())


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of ending the process."""

    def error(self, message):
        raise AssertionError(message)


def build_parser(table: OptionTable) -> Parser:
    """Return an argparse parser with the options of a table, as Megatron builds its own."""
    parser = Parser(allow_abbrev=False)
    types = {"int": int, "float": float, "bool": bool}
    for number, option in enumerate(table.options):
        dest = {"dest": f"option_{number}", "default": None}
        if option.negated:
            positive = [name for name in option.names if not name.startswith("--no-")]
            parser.add_argument(*positive, action=argparse.BooleanOptionalAction, **dest)
        elif option.arity == 0:
            parser.add_argument(*option.names, action="store_true", dest=f"option_{number}")
        else:
            kind = types.get(option.type or "", str)
            choices = [kind(one) for one in option.choices] if option.choices else None
            count = None if option.arity == 1 else option.arity
            parser.add_argument(*option.names, type=kind, choices=choices, nargs=count, **dest)
    return parser
