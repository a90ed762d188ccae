"""`dpbench render`, `flags` and `configs` as a user runs them, and the pasted command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import Dpbench
from dpbench.arguments import OWN_KEYS
from dpbench.cli import main
from dpbench.config import Config
from dpbench.config_file import load_config
from dpbench.launch import plan_launch
from dpbench.log import parse_log
from dpbench.render import parse_counts, render_launches

ROOT = Path(__file__).parents[1]


def command_of(text: str) -> str:
    """Return the command of a rendering, without its comments."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


@pytest.mark.megatron
def test_the_rendered_text_trains_when_it_is_pasted_where_there_is_no_dpbench(
    dpbench: Dpbench, tmp_path: Path, tiny_config: Path
) -> None:
    save = ["--set=megatron.save=c d", "--set=megatron.save-interval=8"]
    rendered = dpbench("render", "--config", tiny_config, *save)
    assert rendered.returncode == 0, rendered.stderr
    canary = tmp_path / "canary" / "dpbench"
    canary.mkdir(parents=True)
    (canary / "__init__.py").write_text("raise SystemExit('dpbench was imported')")
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "RANK": "7"}
    environment["PYTHONPATH"] = str(canary.parent)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    done = subprocess.run(
        ["bash", "-c", rendered.stdout], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    log = parse_log(done.stdout.splitlines())
    assert [step.number for step in log.steps] == list(range(1, 9))
    assert (folder / "c d" / "latest_checkpointed_iteration.txt").is_file()


def test_a_laptop_without_gpu_or_dataset_is_told_what_is_not_known(dpbench: Dpbench) -> None:
    done = dpbench("render", "--gpus", "1,2", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "# scaling: strong: the global batch stays" in text
    assert re.search(r"^# micro batches a step  4 +2$", text, re.MULTILINE)
    assert (
        "# note: no NVIDIA GPU is visible here: whether the GPUs can do fp16 is not known" in text
    )
    assert re.search(r"# note: no dataset at data/wikitext2: .* epochs are not known", text)
    assert text.count("--global-batch-size 16 \\\n") == 2
    assert text.count("--nproc-per-node=2") == 1
    assert "data/wikitext2/wikitext2_text_document" in text


def test_each_flag_stands_on_a_line_of_its_own_with_its_values(
    dpbench: Dpbench, tiny_config: Path
) -> None:
    done = dpbench("render", "--config", tiny_config, "--set=megatron.spec=[a, b]", "--gpus", "2")
    lines = [line.strip().removesuffix(" \\") for line in command_of(done.stdout).splitlines()]
    assert "--spec a b" in lines
    assert "--log-throughput" in lines
    assert "-m torch.distributed.run" in lines
    words = shlex.split(command_of(done.stdout).replace("\\\n", ""))
    flags = [word for word in words if word.startswith("--")]
    assert len(flags) == len(set(flags))
    assert sum(line.startswith("--") for line in lines) == len(flags)


def test_a_weak_scaling_configuration_says_so_and_renders_its_global_batch(
    dpbench: Dpbench, tiny_config: Path
) -> None:
    weak = ["--set=training.global_batch_size=", "--set=training.micro_batches_per_step=3"]
    done = dpbench("render", "--config", tiny_config, "--gpus", "1,2", *weak)
    assert "# scaling: weak: " in done.stdout
    assert "--global-batch-size 6 \\" in done.stdout
    assert "--global-batch-size 12 \\" in done.stdout
    assert re.search(r"^# epochs +0\.\d+ +0\.\d+$", done.stdout, re.MULTILINE)


def test_tensor_parallelism_is_labelled(dpbench: Dpbench, tiny_config: Path) -> None:
    option = "--set=parallel.tensor_model_parallel_size=2"
    done = dpbench("render", "--config", tiny_config, "--gpus", "2", option)
    assert "# not pure data parallel: tensor parallel 2" in done.stdout
    assert "CUDA_DEVICE_MAX_CONNECTIONS=1" in done.stdout


def test_a_dry_run_prints_what_render_prints(dpbench: Dpbench, tiny_config: Path) -> None:
    rendered = dpbench("render", "--config", tiny_config, "--gpus", "2")
    dry = dpbench("run", "--config", tiny_config, "--gpus", "2", "--dry-run")
    assert dry.returncode == 0
    assert dry.stdout == rendered.stdout


def test_two_renderings_differ_where_they_differ(
    dpbench: Dpbench, tmp_path: Path, tiny_config: Path
) -> None:
    same = dpbench("render", "--config", tiny_config, "--diff", tiny_config)
    assert re.match(r"1 CPU process: no difference in \d+ settings and flags\n$", same.stdout)
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(tiny_config.read_text())
    change = ["--set=training.lr=2e-3", "--set=precision=bf16", "--set=launch.cpu_threads=2"]
    done = dpbench("render", "--config", tiny_config, "--diff", run, *change)
    assert [line.split() for line in done.stdout.splitlines()[:-1]] == [
        ["1", "CPU", "process", "tiny", "run"],
        ["OMP_NUM_THREADS", "2", "1"],
        ["--lr", "0.002", "0.001"],
        ["--bf16", "yes", "-"],
    ]


@pytest.mark.parametrize(
    ("arguments", "message", "fix"),
    [
        (["--set=megatron.recompute-granularty=full"],
         "--set megatron.recompute-granularty: megatron.recompute-granularty: Megatron-Core 0.19",
         "did you mean --recompute-granularity"),
        (["--set=megatron.fp16=true"], "precision sets this flag", "write it as precision"),
        (["--set=megatron.train_iters=3"], "training.train_iters sets this flag", "training."),
        (["--set=megatron.tokenizer-type=X"], "data.tokenizer sets this flag", "data.tokenizer"),
        (["--set=megatron.load=a", "--set=megatron.Load=b"], "as megatron.load does", "leave"),
        (["--set=megatron.batch-size=1"], "sets --micro-batch-size, as training.", "leave"),
        (["--set=training.rampup_batch_size=[2, 2, 8]"], "parses --rampup-batch-size and ignores",
         "leave it out"),
        (["--set=megatron.optimizer=adm"], "--optimizer is 'adm'", "did you mean adam?"),
        (["--gpus=0"], "--gpus 0", "give 1 or more"),
        (["--gpus=1,x"], "--gpus 1,x", "counts such as 1,2"),
        (["--gpus=3"], "8 is not divisible by micro_batch_size 2", "use 6 or 12"),
        (["--diff=nowhere"], "no configuration is named 'nowhere'", "known:"),
        (["--megatron=/nowhere"], "/nowhere: not a checkout", "pretrain_gpt.py"),
        (["--config=a\udcffb"], "no configuration is named", "known:"),
        (["--set=megatron.save=c"], "megatron.save: ", "megatron.save-interval"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_in_two_lines_before_anything_starts(
    tiny_config: Path,
    arguments: list[str],
    message: str,
    fix: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DPBENCH_MEGATRON", raising=False)
    command = ["dpbench", "render", "--config", str(tiny_config), *arguments]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    status = ended.value.code
    assert isinstance(status, int)
    expect_refusal(subprocess.CompletedProcess(command, status, out, err), message, fix)


def test_a_run_is_refused_like_its_rendering_and_leaves_no_folder(
    dpbench: Dpbench, tmp_path: Path, tiny_config: Path
) -> None:
    done = dpbench("run", "--gpus", "1", "--config", tiny_config, "--set=megatron.optimizer=adm")
    expect_refusal(done, "--optimizer is 'adm'", "did you mean adam?")
    assert not (tmp_path / "runs").exists()


def expect_refusal(done: subprocess.CompletedProcess[str], message: str, fix: str) -> None:
    """Exit status 2 and two lines: what is wrong, and what to do."""
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    told = done.stderr.splitlines()
    assert len(told) == 2, done.stderr
    assert told[0].startswith("error: ")
    assert message in told[0]
    assert told[1].startswith("  fix: ")
    assert fix in told[1]


def test_rendering_imports_neither_torch_nor_numpy(tiny_config: Path) -> None:
    code = (
        "import sys; from dpbench.cli import app\n"
        f"app(['render', '--config', {str(tiny_config)!r}], standalone_mode=False)\n"
        "print('imported:', *{'torch', 'transformers', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "imported:", done.stderr


def test_flags_are_found_by_name_by_help_and_by_history(dpbench: Dpbench) -> None:
    found = dpbench("flags", "ckpt_format").stdout
    assert found.startswith("--ckpt-format: one value (text), torch_dist by default\n")
    assert "    one of: torch, torch_dist" in found
    assert "--lr-decay-style: one value" in dpbench("flags", "decay function").stdout
    gone = dpbench("flags", "DDP-impl")
    assert (gone.returncode, gone.stdout) == (2, "")
    assert "removed in core_v0.4" in gone.stderr
    near = dpbench("flags", "recompute-granularty")
    assert "did you mean --recompute-granularity" in near.stderr
    assert dpbench("flags", "").stdout.count("\n--") > 600


def test_configurations_are_listed_with_what_they_are_for(dpbench: Dpbench, tmp_path: Path) -> None:
    lines = dpbench("configs").stdout.splitlines()
    assert lines[0].split(maxsplit=1)[0] == "demo-cpu"
    assert "  A small GPT on CPU" in lines[0]
    schema = dpbench("configs", "--schema").stdout
    assert schema == (ROOT / "configs" / "dpbench.schema.json").read_text()
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mine.yaml").write_text("model: {}\n")
    assert "mine" in dpbench("configs").stdout.splitlines()


def test_bash_reads_every_word_as_it_was_meant(tiny_config: Path) -> None:
    launch = plan_launch(load_config(str(tiny_config)), gpus=1)
    values = ["a b", "it's", '"', "$HOME", "`id`", "a\nb", "!x", "", "é", "\\", "*", "~", "-1", "#"]
    words = [word for value in values for word in ("--flag", value)]
    odd = replace(launch, command=("printf", "%s\\0", *words), environment={"A_B": "x 'y'\n$z"})
    done = subprocess.run(["bash", "-c", odd.shell_command()], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == words
    shown = replace(launch, command=("printenv", "A_B"), environment=odd.environment)
    done = subprocess.run(["bash", "-c", shown.shell_command()], capture_output=True, check=True)
    assert done.stdout.decode() == "x 'y'\n$z\n"


def test_comments_stay_comments_whatever_a_name_or_value_holds(tiny_config: Path) -> None:
    override = 'megatron.tiktoken-special-tokens="a\\nid\\n"'
    launch = plan_launch(load_config(str(tiny_config), [override]), gpus=1)
    assert any("\n" in note for note in launch.notes)
    text = render_launches([launch], "x\nid")
    comments, _, command = text.partition("\n\n")
    assert all(line.startswith("#") for line in comments.splitlines())
    assert "id" in command


def test_a_translated_flag_is_noted(tiny_config: Path) -> None:
    config = load_config(str(tiny_config), ["megatron.DDP-impl=local"])
    launch = plan_launch(config, gpus=1)
    assert not any("DDP" in word for word in launch.command)
    text = render_launches([launch], "tiny")
    assert "# note: --DDP-impl: left out: there is one data-parallel implementation\n" in text


def test_variables_of_a_job_scheduler_do_not_reach_the_pasted_command(
    tiny_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", "3")
    launch = plan_launch(load_config(str(tiny_config)), gpus=1)
    assert "-u SLURM_PROCID" in launch.shell_lines()[0]
    assert "SLURM_PROCID" not in launch.full_environment()


def test_every_key_of_model_training_and_parallel_is_a_flag_of_its_own() -> None:
    assert OWN_KEYS["lr"] == "training.lr"
    assert OWN_KEYS["rampup-batch-size"] == "training.rampup_batch_size"
    assert "micro-batches-per-step" not in OWN_KEYS
    sections = {key.split(".")[0] for key in OWN_KEYS.values()}
    assert sections <= set(Config.model_fields)


def test_gpu_counts() -> None:
    assert parse_counts("1, 2,2,8") == [1, 2, 8]
    assert os.linesep not in str(parse_counts("4"))
