"""Launch scripts in the idioms of the wild: what bash would pass is what is imported.

Bash itself is the judge: it runs each script here with stand-ins for python and the launchers that
write down what they are given. The importer must come to the same words without running it.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from dpbench.config_file import load_config
from dpbench.launch import plan_launch
from dpbench.shell_import.files import import_file
from dpbench.shell_import.importer import Request
from dpbench.shell_import.syntax import decode

SCRIPTS = Path(__file__).parent / "scripts"
LAUNCHERS = ("python", "python3", "torchrun", "deepspeed", "srun", "mpirun", "docker")
STAND_IN = """#!/bin/bash
for ((i = 1; i <= $#; i++)); do
  [ "${!i}" = bash ] && exec bash "${@:i+1}"
done
printf '%s\\0' "$@" $'\\n' >> "$DPBENCH_TEST_RECORD"
"""


@dataclass
class Case:
    """A script, what it is given, and what becomes of flags that are not simply kept."""

    script: str
    arguments: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    changed: str = ""
    """Flags that are left out or translated; each must be in the report."""
    gpus: int | None = None
    megatron: dict[str, object] = field(default_factory=dict)
    launch: int | None = None
    record: int = 0
    """Which of the recorded launches is meant."""


def case(script: str, **more: object) -> object:
    return pytest.param(Case(script, **more), id=script)  # type: ignore[arg-type]


COMMON_OLD = "data-impl DDP-impl vocab-file merge-file lr-warmup-fraction layernorm-epsilon "
CASES = [
    case(
        "course_recipe.sh",
        changed="rampup-batch-size DDP-impl use-checkpoint-opt_param-sync vocab-file merge-file "
        "log-throughput distributed-backend optimizer",
        gpus=1,
    ),
    case(
        "torchrun_arrays.sh",
        gpus=2,
        megatron={"swiglu": True, "lr-decay-iters": 430, "adam-beta2": 0.95, "timing-log-level": 2},
    ),
    case("argument_strings.sh", gpus=4, megatron={"loss-scale": 4096}),
    case(
        "defaults.sh",
        gpus=2,
        megatron={"tensorboard-dir": "runs/tb", "wandb-exp-name": "GPT-12L"},
    ),
    case(
        "defaults.sh",
        variables={"MBS": "8", "SAVE_DIR": "ck pt", "DTYPE": "fp16", "STEPS": "77", "NOTHING": "x"},
        gpus=2,
        megatron={
            "save": "ck pt",
            "save-interval": 100,
            "profile": True,
            "tensorboard-dir": "runs/tb",
            "wandb-exp-name": "GPT-12L",
        },
    ),
    case(
        "of_2021.sh",
        changed=COMMON_OLD + "distributed-backend activations-checkpoint-method "
        "activations-checkpoint-num-layers use-checkpoint-lr-scheduler no-query-key-layer-scaling",
        gpus=8,
        megatron={
            "lr-decay-iters": 320,
            "norm-epsilon": "1e-6",
            "recompute-granularity": "full",
            "recompute-method": "uniform",
            "recompute-num-layers": 2,
            "use-checkpoint-opt_param-scheduler": True,
        },
    ),
    case(
        "sizes.sh",
        gpus=1,
        megatron={"recompute-activations": True, "no-bias-gelu-fusion": True},
    ),
    case(
        "sizes.sh",
        variables={"SIZE": "medium-wide"},
        gpus=1,
        megatron={"recompute-activations": True, "no-bias-gelu-fusion": True},
    ),
    case(
        "option_loop.sh",
        arguments=["-m", "2", "--gpus=4", "my data_text_document", "--", "--seed", "5"],
        gpus=4,
    ),
    case("key_value.sh", gpus=1, megatron={"exit-interval": 30}),
    case(
        "key_value.sh",
        arguments=["MBS=2", "GBS=8", "LR=3e-4"],
        gpus=1,
        megatron={"exit-interval": 30},
    ),
    case(
        "positional.sh",
        arguments=["ck", "d_text_document", "--save-interval", "50", "--num-workers", "0"],
        gpus=2,
        megatron={"save": "ck/gpt", "save-interval": 50, "num-workers": 0},
    ),
    case("functions.sh", gpus=4, megatron={"exit-interval": 7, "num-workers": 8}),
    case("sweep.sh", launch=2, record=1, gpus=2),
    case("sweep.sh", launch=5, record=4, gpus=4),
    case("deepspeed.sh", gpus=4),
    case(
        "srun.sh",
        changed="train-samples lr-decay-samples lr-warmup-samples",
        gpus=4,
        megatron={"lr-decay-iters": 126_953_125 // 256},
    ),
    case("mpirun.sh", gpus=8),
    case("heredoc.sh", gpus=2, megatron={"wandb-exp-name": "--data-path $HIDDEN"}),
    case(
        "quoting.sh",
        changed="num_layers hidden_size micro_batch_size lr split seed",
        gpus=1,
        megatron={
            "wandb-exp-name": 'it\'s "quoted"',
            "wandb-project": "a b",
            "loss-scale": "12_8",
            "wandb-save-dir": "tab\tand 'single'",
            "tensorboard-dir": "tb\tx",
            "exit-duration-in-mins": -1,
        },
    ),
    case("comments.sh", gpus=2),
    case("crlf.sh", gpus=2),
    case("nested_shell.sh", gpus=2),
]


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stand-ins")
    for name in LAUNCHERS:
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    return folder


def run_in_bash(case: Case, stand_ins: Path, folder: Path) -> list[list[str]]:
    """Return the arguments of each training, as bash passes them."""
    record = folder / "record"
    script = folder / "script.sh"
    script.write_bytes((SCRIPTS / case.script).read_bytes().replace(b"\r\n", b"\n"))
    environment = {"PATH": f"{stand_ins}:{os.environ['PATH']}", "DPBENCH_TEST_RECORD": str(record)}
    subprocess.run(
        ["bash", str(script), *case.arguments],
        cwd=folder,
        env=environment | case.variables,
        capture_output=True,
        timeout=120,
        check=False,
    )
    launches = []
    for text in record.read_text().split("\n\0")[:-1]:
        words = text.split("\0")[:-1]
        programs = [place for place, word in enumerate(words) if word.endswith(".py")]
        if programs and "preprocess" not in words[programs[0]]:
            launches.append(words[programs[0] + 1 :])
    return launches


@pytest.mark.parametrize("case", CASES)
def test_what_is_imported_is_what_bash_would_pass(
    case: Case, stand_ins: Path, tmp_path: Path
) -> None:
    request = Request(variables=case.variables, arguments=case.arguments, launch=case.launch)
    imported = import_file(SCRIPTS / case.script, request, output=None, force=False)
    passed = run_in_bash(case, stand_ins, tmp_path)[case.record]
    assert [decode(word, "x") for word in imported.launch.arguments] == passed
    assert imported.launch.gpus == case.gpus
    others = yaml.safe_load(imported.yaml).get("megatron", {})
    steps = getattr(imported.config.training, "lr_decay_iters", None)
    assert others | ({"lr-decay-iters": steps} if steps else {}) == case.megatron


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the prefix of a dataset of 4,000 documents of 64 tokens, with a tokenizer folder."""
    folder = tmp_path_factory.mktemp("dataset")
    count, tokens = 4000, 64
    (folder / "d_text_document.bin").write_bytes(bytes(2 * count * tokens))
    with (folder / "d_text_document.idx").open("wb") as index:
        index.write(struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, count, count + 1))
        index.write(struct.pack(f"<{count}i", *[tokens] * count))
        index.write(struct.pack(f"<{count}q", *range(0, 2 * count * tokens, 2 * tokens)))
        index.write(struct.pack(f"<{count + 1}q", *range(count + 1)))
    (folder / "tokenizer").mkdir()
    return folder / "d_text_document"


def flags_of(words: list[str]) -> dict[str, list[str]]:
    """Return flags and values; the last value counts, numbers are as Python reads them."""
    flags: dict[str, list[str]] = {}
    for word in words:
        if re.match(r"--[\w-]+(=|$)", word):
            name, equals, value = word[2:].partition("=")
            flags[name] = [value] if equals else []
        elif flags:
            list(flags.values())[-1].append(word)
    return {name: [as_number(value) for value in values] for name, values in flags.items()}


def as_number(text: str) -> str:
    try:
        return repr(float(text))
    except ValueError:
        return text


FROM_THE_DATA = {"data-path", "data-cache-path", "split", "tokenizer-type", "tokenizer-model"}
WITHOUT_KERNELS = {
    *("transformer-impl", "no-persist-layer-norm", "no-gradient-accumulation-fusion"),
    *("no-masked-softmax-fusion", "log-throughput"),
}
DEFAULTS = (
    "max-position-embeddings init-method-std attention-dropout hidden-dropout log-interval "
    "eval-interval eval-iters min-lr lr-decay-style lr-warmup-iters weight-decay clip-grad seed "
    "tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size"
)


@pytest.mark.parametrize("case", CASES)
def test_what_is_rendered_is_what_the_script_says_but_for_what_was_reported(
    case: Case, stand_ins: Path, dataset: Path, tmp_path: Path
) -> None:
    output = tmp_path / "imported.yaml"
    request = Request(variables=case.variables, arguments=case.arguments, launch=case.launch)
    imported = import_file(SCRIPTS / case.script, request, output=output, force=False)
    script = flags_of(run_in_bash(case, stand_ins, tmp_path)[case.record])

    here = [f"data.path={dataset}", f"data.tokenizer={dataset.parent / 'tokenizer'}"]
    config = load_config(str(output), [*here, "launch.device=cpu"])
    gpus = config.parallel.tensor_model_parallel_size
    command = list(plan_launch(config, gpus=gpus).command)
    place = max(index for index, word in enumerate(command) if word.endswith(".py"))
    rendered = flags_of(command[place + 1 :])

    changed = set(case.changed.split())
    report = "\n".join(imported.report)
    assert [name for name in changed if f"--{name}" not in report] == []
    kept = {name: value for name, value in script.items() if name not in changed | FROM_THE_DATA}
    assert {name: rendered.get(name) for name in kept} == kept
    translated = {name.replace("_", "-") for name in changed | set(case.megatron)}
    expected = set(kept) | FROM_THE_DATA | WITHOUT_KERNELS | set(DEFAULTS.split()) | translated
    added = {name.replace("_", "-") for name in rendered} - expected
    assert added <= {"train-iters", "lr-decay-iters"}
    if "data-path" in script:
        assert imported.config.data.path == script["data-path"][0]
