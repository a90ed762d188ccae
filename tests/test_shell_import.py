"""What the importer says, refuses and never does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dpbench.cli import app
from dpbench.config_file import load_config
from dpbench.errors import ConfigError, DpbenchError
from dpbench.shell_import.files import import_file, parse_variables
from dpbench.shell_import.importer import Imported, Request, import_script

SCRIPTS = Path(__file__).parent / "scripts"
MODEL = "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 64 "
TRAINING = "--micro-batch-size 1 --global-batch-size 4 --train-iters 100 --lr 1e-3 "
ALL = MODEL + TRAINING + "--data-path d_text_document "
LAUNCH = "torchrun --nproc_per_node 2 pretrain_gpt.py " + ALL


def read(text: str | bytes, *arguments: str, **variables: str) -> Imported:
    data = text if isinstance(text, bytes) else text.encode()
    request = Request(variables=variables, arguments=arguments)
    return import_script(data, "train.sh", request)


def read_or_refuse(text: bytes) -> Imported | None:
    """Return what was imported; None when it was refused in one line."""
    try:
        return read(text)
    except DpbenchError as error:
        if "\n" in str(error) or "\n" in error.hint:
            raise
        return None


def refusal(text: str | bytes, *arguments: str, **variables: str) -> str:
    """Return message and hint of the refusal."""
    with pytest.raises(ConfigError) as caught:
        read(text, *arguments, **variables)
    assert "\n" not in str(caught.value)
    return f"{caught.value} | {caught.value.hint}"


def test_the_printed_recipe_becomes_the_default_configuration(tmp_path: Path) -> None:
    output = tmp_path / "config.yaml"
    request = Request(variables={}, data_path=None)
    imported = import_file(SCRIPTS / "course_recipe.sh", request, output=output, force=False)
    mine = load_config(str(output)).model_dump()
    recipe = load_config("wikitext2-gpt2").model_dump()
    assert mine["data"].pop("path") == "data/wikitext2_tokenized"
    assert recipe["data"].pop("path") == "data/wikitext2"
    assert mine == recipe
    report = "\n".join(imported.report)
    for said in (
        *("--DDP-impl local", "--use-checkpoint-opt_param-sync", "--nproc-per-node 2"),
        *("--rampup-batch-size 4-16-1000", "_text_document", "dpbench prep --vocab-file"),
        *("--log-throughput", "MASTER_ADDR", "follow what is installed", "eval_interval: 1000"),
        *("max_final_loss: 5.0", "--gpus 1 or --gpus 2"),
    ):
        assert said in report


def test_another_model_is_not_taken_for_the_recipe() -> None:
    text = (SCRIPTS / "course_recipe.sh").read_text().replace("--seed 42", "--seed 43")
    config = read(text).config
    assert config.checks.max_final_loss is None
    assert config.training.eval_iters == 100  # Megatron's default


def test_everything_that_only_running_it_would_tell_is_named_with_its_line() -> None:
    text = refusal((SCRIPTS / "refused.sh").read_bytes())
    for part in (
        *("6 values are not known", "$(nvidia-smi -L | wc -l) (line 4", 'latest" ] (line 6'),
        *("$LEARNING_RATE (line 7", "<path to the data> (line 5", "$1 (line 7", "$(date +%s)"),
        *("--var GPUS=VALUE", "--var ITERS=VALUE", "--var DATA_PATH=VALUE", "--arg VALUE1"),
    ):
        assert part in text


def test_values_that_were_missing_are_taken_from_the_command_line() -> None:
    text = (SCRIPTS / "refused.sh").read_text().replace("$(date +%s)", "5")
    given = {"GPUS": "4", "ITERS": "30", "LEARNING_RATE": "1e-4", "DATA_PATH": "dé"}
    imported = read(text, "17", **given)
    assert imported.config.training.global_batch_size == 8
    assert imported.config.training.train_iters == 30
    assert imported.config.training.seed == 17
    assert imported.config.data.path == "dé"
    assert imported.launch.gpus == 4
    assert any("source ./cluster.env: not read" in line for line in imported.report)


def test_a_variable_that_is_given_wins_over_what_the_script_assigns() -> None:
    text = f"LR=9\nexport LR=8\nLR+=7\n{LAUNCH} --lr $LR"
    assert read(text, LR="0.5").config.training.lr == 0.5


@pytest.mark.parametrize(
    ("script", "part"),
    [
        pytest.param("", "no launch of a training", id="empty"),
        pytest.param("echo " + LAUNCH, "no launch of a training", id="only printed"),
        pytest.param(f"cat <<E\n{LAUNCH}\nE\n", "no launch of a training", id="only in a heredoc"),
        pytest.param("srun bash inner.sh", "line 1 runs inner.sh: import that", id="another"),
        pytest.param(f"exit 0\n{LAUNCH}", "exits in line 1", id="after the exit"),
        pytest.param(f"if true; then\n{LAUNCH}", "not understood", id="open if"),
        pytest.param(f"X='\n{LAUNCH}", "not understood", id="open quote"),
        pytest.param(f"{LAUNCH} --seed", "--seed is given nothing", id="no value"),
        pytest.param(f"{LAUNCH} --seed 1 2", "--seed is given 1 2", id="two values"),
        pytest.param(f"{LAUNCH} --seed x", "--seed x: not a whole number", id="no number"),
        pytest.param(f"{LAUNCH} --lr nan", "not finite", id="nan"),
        pytest.param(f"{LAUNCH} --seed 0", "training.seed is 0", id="impossible"),
        pytest.param(f"{LAUNCH} --lr-decay-style saw", "lr_decay_style is 'saw'", id="choice"),
        pytest.param(f"{LAUNCH} --fp16 --bf16", "--fp16 and --bf16", id="two precisions"),
        pytest.param(f"{LAUNCH} --data-path .5 a .5 b", "blends 4 values", id="a blend"),
        pytest.param(LAUNCH.replace("--lr 1e-3", ""), "gives no --lr", id="no learning rate"),
        pytest.param(
            LAUNCH.replace("--num-layers 2", "--num-layers 2 \\ #x"), "before a blank", id="cut"
        ),
        pytest.param(f"{LAUNCH} --seed 1 \\  # note", "an argument is a blank", id="blank"),
        pytest.param(f"{LAUNCH} -x", "'-x' belongs to no flag", id="a short option"),
        pytest.param("torchrun pretrain_gpt.py x=1 " + ALL, "'x=1' belongs to no flag", id="stray"),
        pytest.param(f"{LAUNCH} --data-path *.bin", "pattern of file names", id="a pattern"),
        pytest.param(f"{LAUNCH} --save ~/x", "home folder is not known", id="home"),
        pytest.param(f"{LAUNCH} --save $HOME/x", "--var HOME=VALUE", id="the environment"),
        pytest.param(f"{LAUNCH} $EXTRA", "--var EXTRA=VALUE", id="flags nobody set"),
        pytest.param(f"{LAUNCH} --$X", "--var X=VALUE", id="a flag's name"),
        pytest.param(f"X=$(date); {LAUNCH} --save $X", "--var X=VALUE", id="a command's output"),
        pytest.param(f"read X; {LAUNCH} --save $X", "it asks when it runs", id="read"),
        pytest.param(f"f() {{ f; }}; f; {LAUNCH}", "calls without an end", id="recursion"),
        pytest.param(b"\x00" + LAUNCH.encode(), "not a text file", id="binary"),
        pytest.param(LAUNCH.encode() + b"--save \xff", "not UTF-8", id="not UTF-8"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_one_line(script: str | bytes, part: str) -> None:
    assert part in refusal(script)


def test_a_test_that_depends_on_the_machine_makes_unknown_only_what_it_sets() -> None:
    text = "if [ -d ck ]; then A=1; B=2; else A=1; B=3; fi\n"
    assert read(f"{text}{LAUNCH} --seed $A").config.training.seed == 1
    assert "--var B=VALUE" in refusal(f"{text}{LAUNCH} --seed $B")
    assert read(f"{text}{LAUNCH} --seed $B", B="7").config.training.seed == 7


def test_a_guard_that_ends_the_script_is_passed() -> None:
    text = f"[ -f d.bin ] || {{ echo missing; exit 1; }}\ncd /w || exit 1\n{LAUNCH}"
    assert read(text).launch.condition is None


def test_a_launch_under_a_test_says_so() -> None:
    imported = read(f"if [ -d ck ]; then\n{LAUNCH}\nfi")
    assert "runs only if [ -d ck ]" in imported.report


def test_a_usage_guard_asks_for_arguments() -> None:
    text = refusal((SCRIPTS / "positional.sh").read_bytes())
    assert "it exits in line 5" in text
    assert "--arg VALUE" in text


def test_launches_that_differ_must_be_chosen_and_equal_ones_not() -> None:
    other = LAUNCH.replace("--lr 1e-3", "--lr 2e-3")
    assert "2 trainings: 1: line 1" in refusal(f"{LAUNCH}\n{other}")
    assert "choose one with --launch N" in refusal(f"{LAUNCH}\n{other}")
    same = LAUNCH.replace("--nproc_per_node 2", "--nproc_per_node 4")
    assert "--gpus 2 or --gpus 4" in read(f"{LAUNCH}\n{same}").report[0]
    request = Request(variables={}, launch=3)
    with pytest.raises(ConfigError, match="there is no launch 3"):
        import_script(f"{LAUNCH}\n{other}".encode(), "train.sh", request)


def test_a_batch_that_the_gpus_cannot_share_is_said_with_the_nearest_that_they_can() -> None:
    report = read((SCRIPTS / "mpirun.sh").read_bytes()).report
    assert report[-2] == (
        "cannot run as it stands: training.global_batch_size: 20 is not divisible by "
        "micro_batch_size 2 x data parallel size 8; use 16 or 32, or another GPU count"
    )
    assert report[-1].startswith("too few lines of log to measure speed: 1 in 100 steps")


@pytest.mark.parametrize(
    ("extra", "part"),
    [
        ("--num-attention-heads 3", "not divisible by 3 attention heads"),
        ("--max-position-embeddings 32", "is below seq_length 64"),
        ("--lr-warmup-iters 100", "100 warm-up steps, but train_iters is 100"),
        ("--min-lr 1", "1.0 is above lr 0.001"),
        ("--tensor-model-parallel-size 4", "4 does not divide 2 attention heads"),
    ],
)
def test_arithmetic_that_cannot_run_is_said(extra: str, part: str) -> None:
    report = [line for line in read(LAUNCH + extra).report if line.startswith("cannot run")]
    assert len(report) == 1
    assert part in report[0]


def test_a_batch_that_is_not_given_is_what_megatron_makes_of_it() -> None:
    imported = read(LAUNCH.replace("--global-batch-size 4", "") + "--micro-batch-size 3")
    assert imported.config.training.global_batch_size == 6
    assert any("not given, so micro batch x data parallel size" in line for line in imported.report)


def test_how_many_values_a_flag_takes_can_be_told() -> None:
    text = (LAUNCH + "--bf16 stray").encode()
    request = Request(variables={})
    with pytest.raises(ConfigError, match="'stray' belongs to no flag"):
        import_script(text, "train.sh", request, {"--bf16": 0})


def test_words_after_a_commented_line_are_said_to_be_lost() -> None:
    imported = read((SCRIPTS / "comments.sh").read_bytes())
    assert imported.config.precision == "fp32"
    assert any(line.startswith("line 8: --bf16 stands alone") for line in imported.report)


def test_the_configuration_is_written_and_reads_back_the_same(tmp_path: Path) -> None:
    odd = "--wandb-exp-name 'a: #b' --wandb-project 1e-5 --save é --log-x true --spec a 'b c' 3"
    script, output = tmp_path / "train.sh", tmp_path / "config.yaml"
    script.write_text(f"{LAUNCH} {odd}")
    run = CliRunner().invoke(app, ["import", str(script), "-o", str(output)])
    assert run.exit_code == 0, run.output
    config = load_config(str(output))
    assert config.megatron == {
        "wandb-exp-name": "a: #b",
        "wandb-project": "1e-5",
        "save": "é",
        "log-x": "true",
        "spec": ["a", "b c", 3],
    }


def test_a_file_is_not_overwritten_unless_forced(tmp_path: Path) -> None:
    script, output = tmp_path / "train.sh", tmp_path / "config.yaml"
    script.write_text(LAUNCH)
    output.write_text("mine")
    request = Request(variables={})
    with pytest.raises(ConfigError, match="exists"):
        import_file(script, request, output=output, force=False)
    assert output.read_text() == "mine"
    import_file(script, request, output=output, force=True)
    assert load_config(str(output)).training.lr == 1e-3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "train.sh"]


def test_a_refused_script_leaves_no_file(tmp_path: Path) -> None:
    output = tmp_path / "config.yaml"
    program = [sys.executable, "-m", "dpbench.cli", "import", str(SCRIPTS / "refused.sh")]
    run = subprocess.run(
        [*program, "-o", str(output)], capture_output=True, text=True, env=os.environ, check=False
    )
    assert run.returncode == 2
    assert run.stderr.startswith("error: ")
    assert run.stderr.count("\n") == 2
    assert not output.exists()


@pytest.mark.parametrize("given", ["X", "=1", "1X=2", "X Y=1", ""])
def test_a_variable_option_without_name_and_value_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="not of the form NAME=VALUE"):
        parse_variables([given])


CANARY = """
X=$(touch {canary})
Y=`touch {canary}`
touch {canary}
echo x > {canary}
eval "touch {canary}"
bash -c 'touch {canary}'
: ${{Z:=$(touch {canary})}} $(( A[$(touch {canary})] ))
[[ -n $(touch {canary}) ]]
cat <<E > {canary}
$(touch {canary})
E
cat <(touch {canary}) | tee {canary}
exec 3> {canary}
. {canary}
trap 'touch {canary}' EXIT
python -c 'open("{canary}", "w")'
f() {{ touch {canary}; }}; f
coproc touch {canary}
"""


def test_nothing_of_a_script_is_executed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    read(CANARY.format(canary=canary) + LAUNCH)
    assert not canary.exists()
    assert "--var X=VALUE" in refusal(CANARY.format(canary=canary) + LAUNCH + "--save $X")
    assert list(tmp_path.iterdir()) == []


ENDLESS = {
    "doubling": "A=xxxxxxxx\nfor i in {1..60}; do A=$A$A; done\n",
    "for ever": "while true; do A=$A$B; done\n",
    "counting": "for ((i = 0; i < 999999999; i++)); do :; done\n",
    "loops in loops": "for a in {1..900}; do for b in {1..900}; do X=$a; done; done\n",
    "braces": "echo {1..99}{1..99}{1..99}\n",
    "evaluating": "A='eval $A'; eval $A\n",
    "calling twice": "f() { if [ -e x ]; then f; else f; fi; f; }; f\n",
    "brackets": "(" * 5000,
    "arrays": "A=(" * 30000,
    "substitutions": "$(" * 5000 + "\n",
    "braces inside": "${A:-" * 5000 + "}" * 5000 + "\n",
    "a long list": "true && " * 20000 + "true\n",
    "quotes": '"$(' * 3000 + "\n",
    "a large file": "# " + "x" * 300_000,
    "negations": "! " * 30000 + "true\n",
    "sums": "X=$((" + "1+" * 40000 + "1))\n",
    "signs": "X=$((" + "-" * 40000 + "1))\n",
    "powers": "X=$((9**9**9**9))\n",
    "patterns": "A=" + "a" * 3000 + '\nB="${A//*a*a*a*a*b/}"; [[ $A == *a*a*a*a*a*a*b ]]\n',
    "expressions": "A=" + "a" * 3000 + "; [[ $A =~ (a+)+b ]]; [[ $A =~ a*a*a*a*a*b ]]\n",
    "pipes": "a | " * 20000 + "b\n",
    "heredocs": "cat <<A\n" * 5000,
    "branches": "if a; then X=1; fi\n" * 5000,
}


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS.keys())
@pytest.mark.timeout(20)
def test_a_script_without_an_end_comes_to_one(text: str) -> None:
    read_or_refuse(text.encode() + LAUNCH.encode())


VOCABULARY = """if then else elif fi for in do done while until case esac function { } ( ) (( ))
[ ] [[ ]] ! && || ; & | < > << <<- <<< >& &> $ ${ $( $(( ` " ' \\ # = += A=( A B $A "$A" ${A:- } $@
$1 $# echo eval exec set shift local export exit return break continue source read test -n -z ==
-eq torchrun pretrain_gpt.py --num-layers --lr 1 x * ? ~ {a,b} {1..3} bash -c E <x> EOF : true"""
WORDS = st.sampled_from([*VOCABULARY.split(), "\n", "\n", " ", "\t", "\r\n", "é"])


@settings(max_examples=200)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.lists(WORDS, max_size=40).map(lambda words: " ".join(words).encode()),
        st.lists(WORDS, max_size=40).map(lambda words: "".join(words).encode()),
    ),
    st.booleans(),
)
def test_any_bytes_are_imported_or_refused(text: bytes, launch: bool) -> None:
    read_or_refuse(text + b"\n" + (LAUNCH.encode() if launch else b""))


@settings(max_examples=100)
@given(st.lists(st.text(st.characters(exclude_characters="\0'", exclude_categories=["Cs"]))))
def test_any_quoted_argument_reaches_the_configuration_or_is_refused(values: list[str]) -> None:
    quoted = " ".join(f"'{value}'" for value in values)
    imported = read_or_refuse(f"{LAUNCH} --spec {quoted}".encode())
    if imported is None:
        return
    rendered = imported.config.megatron["spec"]
    shown = rendered if isinstance(rendered, list) else [rendered]
    if values and not any(value.startswith("-") for value in values):
        assert [str(value) for value in shown] == values
