"""The numbers of a run, and which scaling two runs show."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.arithmetic import Arithmetic, ramp_up, scaling_of, train_share, work_out
from dpbench.config import Config
from dpbench.config_file import load_config
from dpbench.errors import ConfigError


def configure(*overrides: str) -> Config:
    """Return the course recipe with changes."""
    return load_config("wikitext2-gpt2", overrides)


def numbers(gpus: int, *overrides: str) -> Arithmetic:
    """Return the numbers of the course recipe with changes."""
    return work_out(configure(*overrides), gpus)


def test_the_default_recipe_on_two_gpus() -> None:
    run = work_out(configure(), 2, train_tokens=1_638_400)
    assert (run.data_parallel_size, run.micro_batches_per_step, run.global_batch_size) == (2, 2, 16)
    assert (run.steps, run.samples, run.tokens) == (200, 3200, 3200 * 512)
    assert run.epochs == 1.0
    assert run.label is None
    assert work_out(configure(), 2).epochs is None


def test_other_parallel_sizes_are_labelled_and_take_gpus_from_data_parallelism() -> None:
    run = numbers(
        8, "parallel.tensor_model_parallel_size=2", "parallel.pipeline_model_parallel_size=2"
    )
    assert run.data_parallel_size == 2
    assert run.micro_batches_per_step == 2
    assert run.label == "not pure data parallel: tensor parallel 2, pipeline parallel 2"


@pytest.mark.parametrize(
    ("gpus", "overrides", "message", "hint"),
    [
        (3, (), "training.global_batch_size: 16 is not divisible by micro_batch_size 4 x data "
         "parallel size 3", "use 12 or 24, or another GPU count"),
        (8, (), "micro_batch_size 4 x data parallel size 8", "use 32, or micro_batch_size 2"),
        (3, ("parallel.tensor_model_parallel_size=2",), "3 GPUs cannot hold copies of 2 GPUs each",
         "use a multiple of 2 GPUs"),
        (1, ("training.train_iters=null", "training.train_samples=15"),
         "training.train_samples: 15 is below one batch", "use 16 or more"),
    ],
)  # fmt: skip
def test_what_does_not_divide_is_refused_with_the_nearest_that_does(
    gpus: int, overrides: tuple[str, ...], message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        numbers(gpus, *overrides)
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_global_batch_and_passes_give_the_micro_batch() -> None:
    one_pass = ("training.micro_batch_size=null", "training.micro_batches_per_step=1")
    runs = [numbers(gpus, *one_pass) for gpus in (1, 2, 16)]
    assert [run.micro_batch_size for run in runs] == [16, 8, 1]
    assert {run.micro_batches_per_step for run in runs} == {1}
    assert {run.global_batch_size for run in runs} == {16}
    assert scaling_of(runs[0], runs[1]) == "strong"
    for gpus in (3, 32):
        with pytest.raises(
            ConfigError, match=f"micro_batches_per_step 1 x data parallel .* {gpus}"
        ):
            numbers(gpus, *one_pass)


def test_strong_weak_and_neither() -> None:
    base = numbers(1)
    weak = ("training.global_batch_size=null", "training.micro_batches_per_step=4")
    assert scaling_of(base, numbers(4)) == "strong"
    assert scaling_of(numbers(1, *weak), numbers(4, *weak)) == "weak"
    assert numbers(4, *weak).global_batch_size == 64
    assert (
        scaling_of(base, numbers(2, "training.global_batch_size=24")) == "neither strong nor weak"
    )
    halved = ("training.global_batch_size=32", "training.micro_batch_size=2")
    assert scaling_of(base, numbers(4, *halved)) == "neither strong nor weak"


def test_a_run_of_samples_throws_the_last_part_of_a_batch_away() -> None:
    run = numbers(1, "training.train_iters=null", "training.train_samples=100")
    assert (run.steps, run.samples) == (6, 96)


@given(
    start=st.integers(1, 8),
    increment=st.integers(1, 8),
    increments=st.integers(1, 12),
    length=st.integers(1, 3000),
    limit=st.integers(1, 4000),
)
def test_a_ramp_up_takes_as_many_steps_as_its_simulation(
    start: int, increment: int, increments: int, length: int, limit: int
) -> None:
    batch = start + increment * increments
    assert ramp_up([start, increment, length], batch, limit) == simulate(
        start, increment, length, batch, limit
    )


def simulate(start: int, increment: int, length: int, batch: int, limit: int) -> tuple[int, int]:
    """Step through the ramp-up one batch at a time, in exact fractions of its length."""
    increments = (batch - start) // increment
    steps = samples = 0
    while samples <= length and samples <= limit:
        steps += 1
        samples += start + samples * increments // length * increment
    return steps, samples


def test_without_a_ramp_up_it_takes_nothing() -> None:
    assert ramp_up(None, 16, 100) == (0, 0)


@pytest.mark.parametrize(
    ("split", "share"),
    [("98,2,0", 0.98), ("1", 1.0), ("0,1,0", 0.0), ("969, 30, 1", 0.969), ("x", None), ("0", None)],
)
def test_the_train_share_of_a_split(split: str, share: float | None) -> None:
    assert train_share(split) == share


def test_an_error_names_the_file_and_line_of_its_key(tmp_path: Path) -> None:
    text = Path(__file__).parents[1].joinpath("configs/demo-cpu.yaml").read_text()
    path = tmp_path / "c.yaml"
    path.write_text(text)
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "global_batch_size" in one)
    with pytest.raises(ConfigError, match=rf"c\.yaml:{line}:3: training\.global_batch_size"):
        work_out(load_config(str(path)), 3)
