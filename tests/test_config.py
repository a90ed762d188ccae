"""YAML files -> Config: places, fixes, merging, environment variables, the saved configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpbench.config import BATCH, Config
from dpbench.config_file import dump_config, json_schema, load_config
from dpbench.errors import ConfigError, DpbenchError
from dpbench.named_configs import first_line, named_configs, title_of

CONFIGS = Path(__file__).parents[1] / "configs"
SMALL = """\
model: {num_layers: 2, hidden_size: 64, num_attention_heads: 4, seq_length: 32}
training:
  micro_batch_size: 2
  global_batch_size: 8
  train_iters: 10
  lr: 1e-3
data:
  path: data/small
"""


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a configuration and returns its path."""

    def write_config(text: str | bytes = SMALL, name: str = "c.yaml") -> str:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write_config


def refusal(names, *overrides) -> tuple[str, str]:
    """Return message and fix of a configuration that is refused."""
    with pytest.raises(ConfigError) as caught:
        load_config(names, overrides)
    message, hint = str(caught.value), caught.value.hint
    assert "\n" not in message + hint
    return message, hint


@pytest.mark.parametrize("name", ["wikitext2-gpt2", "demo-cpu", "wikitext2-gpt2-fast"])
def test_a_configuration_that_ships_loads_by_name_and_survives_saving(name, write, monkeypatch):
    monkeypatch.chdir("/")
    config = load_config(name)
    assert load_config(write(dump_config(config))) == config


def test_numbers_are_read_as_yaml_1_2_reads_them(write):
    text = SMALL + "megatron: {a: 0512, b: 1_000, c: 1:30, d: yes, e: 2026-12-01, f: -.5e3, g: 0o7}"
    values = load_config(write(text)).megatron
    assert values == {
        "a": 512,
        "b": 1000,
        "c": "1:30",
        "d": "yes",
        "e": "2026-12-01",
        "f": -500.0,
        "g": "0o7",
    }
    assert load_config(write()).training.lr == 0.001


@pytest.mark.parametrize(
    ("old", "new", "place", "message", "hint"),
    [
        ("micro_batch_size", "micro_batch_sise", ":3:3:", "unknown key training.micro_batch_sise",
         "did you mean training.micro_batch_size?"),
        ("micro_batch_size", "micro-batch-size", ":3:3:", "unknown key training.micro-batch-size",
         "write training.micro_batch_size"),
        ("lr: 1e-3", "lr: 1e-3\nhidden_size: 3", ":7:1:", "unknown key hidden_size",
         "write it as model.hidden_size"),
        ("data:\n", "zzz: 1\ndata:\n", ":7:1:", "unknown key zzz",
         "flags of Megatron itself go under megatron:"),
        ("global_batch_size: 8", "global_batch_size: '8'", ":4:3:",
         "training.global_batch_size is '8'", "must be a whole number, without quotes"),
        ("lr: 1e-3", "lr: .nan", ":6:3:", "training.lr is nan", "must be a finite number"),
        ("lr: 1e-3", "lr: -1", ":6:3:", "training.lr is -1", "greater than or equal to 0"),
        ("train_iters: 10", f"train_iters: {10**30}", ":5:3:", "training.train_iters is 1000000",
         "less than or equal to 2147483647"),
        ("train_iters: 10", f"train_iters: {'9' * 5000}", ":5:16:", "is no int", "plain number"),
        ("data:\n", "precision: fp61\ndata:\n", ":7:1:", "precision is 'fp61'",
         "did you mean fp16? precision is one of: fp32, fp16, bf16"),
        ("data:\n", "launch: {device: CPU}\ndata:\n", ":7:10:", "launch.device is 'CPU'",
         "did you mean cpu?"),
        ("data:\n", "launch: 3\ndata:\n", ":7:1:", "launch is 3, not a section", "master_port"),
        ("  path: data/small\n", "  split: 98,2,0\n", ":7:1:", "data.path is missing",
         "add data.path"),
        ("data/small", "''", ":8:3:", "data.path is ''", "must not be empty"),
        ("data/small", '"a\\0b"', ":8:9:", "NUL", "plain text"),
        ("train_iters: 10", "log_interval: 10", ":2:1:",
         "neither train_iters nor train_samples is given", "give train_iters or train_samples"),
        ("train_iters: 10", "train_iters: 10\n  train_samples: 9", ":2:1:",
         "train_iters and train_samples are both given", "give train_iters or train_samples"),
        ("data:\n", "megatron: {lr: {a: 1}}\ndata:\n", ":7:12:", "megatron.lr is {'a': 1}",
         "null leaves the flag out"),
        ("data:\n", "megatron: {'--x y': 1}\ndata:\n", ":7:12:", "is no flag's name", "name"),
        ("data:\n", "training: {}\ndata:\n", ":7:1:", "training is given twice", "c.yaml:2:1"),
        ("data:\n", "checks: !!python/object/apply:os.system [exit]\ndata:\n", ":7:9:",
         "unknown tag", "!tags"),
        ("data:\n", "checks: !mine x\ndata:\n", ":7:9:", "YAML syntax", "!tags"),
        ("data:\n", "data\n", ":8:", "YAML syntax", "indentation"),
        ("data:\n", "? [a]\n: 1\ndata:\n", ":7:3:", "a key must be a word", "key: value"),
        ("data:\n", "megatron: {<<: 3}\ndata:\n", ":7:16:", "<< needs a mapping", "<<: *name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place_and_its_fix(write, old, new, place, message, hint):
    assert old in SMALL
    told, fix = refusal(write(SMALL.replace(old, new, 1)))
    assert f"c.yaml{place}" in told
    assert message in told
    assert hint in fix


def test_further_findings_are_counted(write):
    message, _ = refusal(write(SMALL.replace("lr: 1e-3", "lr: x\n  seed: y")))
    assert message.endswith("(and 1 more such)")


@pytest.mark.parametrize(
    ("override", "message", "hint"),
    [
        ("training.lr", "not of the form key=value", "--set section.key=value"),
        ("..=1", "not of the form key=value", "--set section.key=value"),
        (f"{'a.' * 50_000}b=1", "not of the form key=value", "--set section.key=value"),
        ("training.lr.x=1", "training.lr has no keys", "--set training.lr="),
        ("training.seed.x=1", "--set training.seed.x: training.seed is", "a whole number"),
        ("training.lr=[", "not a YAML value", "quote"),
        ("training.lr=\x01", "not a YAML value", "quote"),
        ("training.seed=two", "--set training.seed: training.seed is 'two'", "whole number"),
        ("trainin.seed=2", "--set trainin.seed: unknown key trainin", "did you mean training?"),
        ("data.path=\udcff", "not a YAML value", "quote"),
        ('data.path="\\ud800"', "half a character", "plain text"),
        (f"data.path={'[' * 5000}", "not a YAML value", "quote"),
    ],
)
def test_an_override_is_typed_like_the_file(write, override, message, hint):
    told, fix = refusal(write(), override)
    assert message in told
    assert hint in fix


def test_overrides_apply_from_left_to_right_and_make_sections(write):
    config = load_config(
        write(), ["training.seed=7", "training.seed=8", "megatron.save=null", "checks="]
    )
    assert (config.training.seed, config.megatron) == (8, {"save": None})


def test_several_files_merge_from_left_to_right_section_by_section(write):
    base = write()
    later = write("training: {lr: 2e-3}\nlaunch:\nmegatron: {a: [1, 2]}\n", "b.yaml")
    last = write("megatron: {a: [3], b: 1}\ntraining:\nprecision: fp16\n", "a.yaml")
    config = load_config([base, later, last])
    assert config.training.lr == 0.002
    assert config.training.micro_batch_size == 2
    assert config.megatron == {"a": [3], "b": 1}
    assert config.precision == "fp16"


def test_a_mistake_in_a_later_file_is_told_with_that_file(write):
    message, _ = refusal([write(), write("training:\n  lr: fast\n", "b.yaml")])
    assert "b.yaml:2:3: training.lr is 'fast'" in message


def test_only_marked_environment_variables_are_replaced_and_saving_keeps_them_as_text(
    write, monkeypatch
):
    monkeypatch.setenv("WHERE", "/data/${env:HOME}")
    text = SMALL.replace("data/small", "'${env:WHERE}/$HOME/$${env:WHERE}'")
    config = load_config(write(text))
    assert config.data.path == "/data/${env:HOME}/$HOME/${env:WHERE}"
    monkeypatch.delenv("WHERE")
    assert load_config(write(dump_config(config))) == config


def test_a_variable_that_is_not_set_is_an_error_with_its_place(write, monkeypatch):
    monkeypatch.delenv("NOT_THERE", raising=False)
    message, hint = refusal(write(SMALL.replace("data/small", "${env:NOT_THERE}")))
    assert "c.yaml:8:9: environment variable 'NOT_THERE' is not set" in message
    assert "export NOT_THERE" in hint


def test_anchors_and_merge_keys_work_and_what_a_mapping_says_itself_wins(write):
    text = SMALL + "megatron:\n  <<: &a {x: 1, y: 2}\n  y: 3\n"
    assert load_config(write(text)).megatron == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)),
         "more than 10,000 values"),
        ("megatron: &a {b: *a}\n", "nested more than 20 deep"),
        ("megatron: &a [*a]\n", "nested more than 20 deep"),
        ("megatron: &a {<<: *a}\n", "nested more than 20 deep"),
        ("a: " + "[" * 3000, "nested too deeply"),
        ("[1, 2]", "not a mapping of sections"),
        ("--- {}\n--- {}\n", "YAML syntax"),
        ("a: \x01", "YAML syntax: special characters"),
        (b"a: \xff\xfe", "not UTF-8 text"),
        ("a: 1\n" * 300_000, "larger than 1 MiB"),
    ],
    ids="bomb cycle list-cycle merge-cycle deep list two control latin large".split(),
)  # fmt: skip
def test_hostile_files_end_in_one_line(write, text, message):
    assert message in refusal(write(text))[0]


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("demo-cqu", "no configuration is named 'demo-cqu'", "did you mean demo-cpu?"),
        ("nowhere/x.yaml", "does not exist", "demo-cpu, wikitext2-gpt2"),
        ("./", "is a folder", "give a YAML file"),
        ("/tmp/.yaml/", "does not exist", "demo-cpu"),
    ],
)
def test_a_configuration_that_is_not_found_names_its_neighbours(name, message, hint):
    told, fix = refusal(name)
    assert message in told
    assert hint in fix


def test_the_schema_that_ships_is_the_models_schema():
    shipped = json.loads((CONFIGS / "dpbench.schema.json").read_text())
    assert shipped == json_schema(), "write it again: dpbench configs --schema > that file"


@pytest.mark.parametrize(
    ("name", "override", "unwanted"),
    [
        ("demo-cpu", "training.micro_batches_per_step=1", "micro_batch_size"),
        ("wikitext2-gpt2-fast", "training.micro_batch_size=4", "micro_batches_per_step"),
        ("wikitext2-gpt2-fast-weak", "training.global_batch_size=64", "micro_batch_size"),
        ("demo-cpu", "training.train_samples=64", "train_iters"),
    ],
)
def test_of_too_many_keys_the_one_on_the_command_line_stays(name, override, unwanted):
    with pytest.raises(ConfigError) as told:
        load_config(name, [override])
    fix = f"--set training.{unwanted}=null"
    assert told.value.hint == f"leave one out: {fix}"
    load_config(name, [override, fix.removeprefix("--set ")])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "neither global_batch_size nor micro_batches_per_step is given"),
        ({"micro_batch_size"}, "neither global_batch_size nor micro_batches_per_step is given"),
        ({"global_batch_size"}, "neither micro_batch_size nor micro_batches_per_step is given"),
        ({"micro_batches_per_step"}, "neither micro_batch_size nor global_batch_size is given"),
        (set(BATCH), ", global_batch_size and micro_batches_per_step are all given"),
        ({"micro_batch_size", "global_batch_size"}, None),
        ({"micro_batch_size", "micro_batches_per_step"}, None),
        ({"global_batch_size", "micro_batches_per_step"}, None),
    ],
)
def test_two_of_three_batch_keys_are_given(write, given, message):
    changes = [f"training.{name}={'4' if name in given else ''}" for name in BATCH]
    data = load_config(write()).model_dump(mode="json")
    data["training"] = {k: v for k, v in data["training"].items() if k not in BATCH}
    data["training"] |= dict.fromkeys(given, 4)
    schema = jsonschema.Draft202012Validator(json_schema())
    assert bool(list(schema.iter_errors(data))) == (message is not None and len(given) < 2)
    if message is None:
        assert load_config(write(), changes)
        return
    with pytest.raises(ConfigError, match=message):
        load_config(write(), changes)


def test_the_schema_accepts_what_ships_and_refuses_a_mistyped_key(write):
    check = jsonschema.Draft202012Validator(json_schema())
    for path in CONFIGS.glob("*.yaml"):
        check.validate(load_config(str(path)).model_dump(mode="json"))
    for edit in ({"seed": "1"}, {"lrr": 1}, {"global_batch_size": 0}):
        data = load_config(write()).model_dump(mode="json")
        data["training"] |= edit
        assert list(check.iter_errors(data))
    only = {"micro_batch_size": 1, "lr": 1, "global_batch_size": 1}
    data = {**load_config(write()).model_dump(mode="json"), "training": only}
    assert list(check.iter_errors(data)), "neither train_iters nor train_samples"


def test_every_key_is_described_where_its_name_does_not_say_it_all():
    undescribed = {
        name
        for section in json_schema()["$defs"].values()
        for name, field in section["properties"].items()
        if "description" not in field
    }
    assert undescribed == set("attention_dropout hidden_dropout min_lr lr_decay_style weight_decay "
                              "clip_grad seed".split())  # fmt: skip


def test_each_configuration_says_in_its_first_line_what_it_is_for():
    found = named_configs()
    assert {"demo-cpu", "wikitext2-gpt2"} <= found.keys()
    assert all(len(first_line(path)) > 20 for path in found.values())
    assert title_of(["a/b.yaml", "demo-cpu"]) == "b+demo-cpu"


def test_a_local_folder_of_configurations_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "demo-cpu.yaml").write_text(SMALL)
    assert load_config("demo-cpu").data.path == "data/small"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    "model training data megatron lr seed path num_layers precision launch device x".split()
) | st.text(max_size=5)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(KEYS, VALUES | st.dictionaries(KEYS, VALUES, max_size=4), max_size=5))
def test_any_mapping_is_a_configuration_or_one_line(write, data):
    survives(write(SMALL), write(yaml.safe_dump(data), "more.yaml"))


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.text(alphabet="ab01:{}[]&*!|>-?,#'\"% \n\t$<=.~\\é\x00\x85", max_size=60))
def test_any_text_is_a_configuration_or_one_line(write, text):
    survives(write(SMALL), write(text, "more.yaml"))


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=30) | st.builds("training.{}={}".format, KEYS, st.text(max_size=10)))
def test_any_override_is_applied_or_one_line(write, override):
    survives(write(SMALL), override=override)


def survives(*names: str, override: str = "training.seed=1") -> None:
    """Load; what loads also survives saving, what does not is one line."""
    try:
        config = load_config(names, [override])
    except DpbenchError as error:
        told = f"{error}{error.hint}"
        assert told.isprintable()
        return
    saved = Path(names[0]).with_name("saved.yaml")
    saved.write_text(dump_config(config), encoding="utf-8")
    assert load_config(str(saved)) == config


def test_a_configuration_imports_nothing_heavy():
    code = "import dpbench.config_file, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"
    environment = {"PYTHONPATH": str(Path(__file__).parents[1] / "src"), "PATH": os.defpath}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert done.stdout.split() == [b"False", b"False"], done.stderr


def test_two_configurations_are_equal_wherever_they_were_written(write):
    assert load_config(write()) == load_config(write(SMALL + "\n", "other.yaml"))
    assert load_config(write()) != load_config(write(), ["training.seed=2"])
    assert isinstance(load_config(write()), Config)
