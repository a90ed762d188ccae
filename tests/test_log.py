"""Every layout of tests/logs, whole and line by line, and text that is no log at all."""

import contextlib
import csv
import dataclasses
import io
import math
import re
import statistics
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.errors import SetupError
from dpbench.log import Log, Step, parse_log, parse_step, parse_stream, read_log
from dpbench.metrics import measure
from dpbench.steady import Status

LOGS = Path(__file__).parent / "logs"
INDEX = list(csv.DictReader((LOGS / "index.tsv").open(encoding="utf-8"), delimiter="\t"))
MEGATRON = [row for row in INDEX if row["records"] != "0"]
FOREIGN = [row for row in INDEX if row["records"] == "0"]
RECORD = (
    " [2026-01-02 03:04:05.5] iteration {:8d}/     200 | consumed samples: {:12d} |"
    " elapsed time per iteration (ms): {:.1f} | learning rate: 1.0E-04 | global batch size:    16 |"
    " lm loss: 5.100000E+00 | loss scale: 1.0 | grad norm: 0.700 |"
    " number of skipped iterations:   0 | number of nan iterations:   0 |"
)


def record(number, time_ms=50.0):
    return RECORD.format(number, number * 16, time_ms)


def answer(log):
    steps = list(log.steps)
    losses = [s.loss for s in steps if s.loss is not None and not math.isnan(s.loss)]
    tflops = [s.tflops_per_gpu for s in steps if s.tflops_per_gpu]
    return {
        "records": len(steps),
        "first": steps[0].number,
        "last": steps[-1].number,
        "sum_ms": sum(step.step_time_ms for step in steps),
        "batch": steps[-1].global_batch_size,
        "loss": losses[-1] if losses else None,
        "tflops": statistics.median(tflops) if tflops else None,
        "world": log.world_size,
        "sequence": log.sequence_length,
        "attempts": log.attempts,
        "copies": log.copies,
    }


def expected(row):
    return {
        name: pytest.approx(float(row[name]), abs=1e-3) if row[name] else None
        for name in row
        if name not in ("file", "note")
    }


def same(one, other):
    """Compare two logs; a NaN equals a NaN."""
    visible = ("facts", "first_error", "training_done", "attempts", "records", "copies")
    assert list(map(repr, one.steps)) == list(map(repr, other.steps))
    assert {n: getattr(one, n) for n in visible} == {n: getattr(other, n) for n in visible}


def line_by_line(data):
    return parse_log(data.decode("utf-8", "replace").split("\n"))


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: row["file"])
def test_every_layout_gives_its_right_answer(row):
    assert answer(read_log(LOGS / row["file"])) == expected(row)


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: row["file"])
def test_a_file_read_in_any_chunks_is_the_same_as_line_by_line(row):
    data = (LOGS / row["file"]).read_bytes()
    for chunk_bytes in (1, 7, 333, 4096, 1 << 20):
        same(parse_stream(io.BytesIO(data), chunk_bytes), line_by_line(data))


@pytest.mark.parametrize(
    ("end", "planned"),
    [
        ("[after training is done] datetime: 2026-11-30 10:10:10 ", True),
        ("[exiting program at iteration 40] datetime: 2026-11-30 10:10:10 ", True),
        ("[exiting program after 30.017 minutes] datetime: 2026-11-30 10:10:10 ", True),
        ("[exiting program after receiving SIGTERM.] datetime: 2026-11-30 10:10:10 ", False),
        ("", False),
    ],
)
def test_a_training_that_ends_by_an_exit_option_ended_as_planned(end, planned):
    text = "\n".join([*(record(number) for number in (10, 20, 30, 40)), end])
    for log in (parse_log(text.split("\n")), parse_stream(io.BytesIO(text.encode()))):
        assert log.training_done is planned
        status = measure(log.steps, finished=log.training_done).status
        assert status == (Status.OK if planned else Status.INCOMPLETE)


def test_arguments_of_gpt_neox_are_read_without_where_they_come_from():
    log = read_log(LOGS / "neox_dump-with-origin.log")
    assert log.arguments["num_layers"] == "12"
    assert log.arguments["micro_batch_size"] == "8"
    assert (log.facts.global_batch_size, log.facts.precision) == (32, "bf16")


@pytest.mark.parametrize("row", FOREIGN, ids=lambda row: row["file"])
def test_the_log_of_another_trainer_is_named(row):
    with pytest.raises(SetupError, match=f"looks like a log of {row['note']}"):
        read_log(LOGS / row["file"])


def test_a_record_gives_every_field_by_its_name():
    line = (
        "[default3]: [2026-02-06 20:55:02.918469] iteration      292/  95367 | consumed samples: "
        "        9344 | consumed tokens:     19136512 | elapsed time per iteration (ms): 3075.7 | "
        "throughput per GPU (TFLOP/s/GPU): 478.0 | energy per GPU (J/iter/GPU): 1992.5 | power per "
        "GPU (W/GPU): 647.8 | learning rate: 9.568256E-08 | global batch size:    32 | lm loss: "
        "2.401035E+00 | z_loss: 1.1E+01 | loss scale: 2.0 | grad norm: 1.797 | actual seqlen:  2048"
        " | number of skipped iterations:   1 | number of nan iterations:   2 | samples per second:"
        " 10.4 | tokens per gpu per second (tgs): 532.7 |"
    )
    assert parse_step(line) == Step(
        number=292,
        last=95367,
        step_time_ms=3075.7,
        global_batch_size=32,
        loss=2.401035,
        tflops_per_gpu=478.0,
        skipped=1,
        nan=2,
        losses={"lm loss": 2.401035, "z_loss": 11.0},
        loss_scale=2.0,
        grad_norm=1.797,
        learning_rate=9.568256e-08,
        consumed_samples=9344,
        consumed_tokens=19136512,
        samples_per_second=10.4,
        tokens_per_second_per_gpu=532.7,
        energy_per_gpu_joules=1992.5,
        power_per_gpu_watts=647.8,
        sequence_length=2048,
        rank=3,
    )


@pytest.mark.parametrize("length", range(len(RECORD.format(10, 160, 123.4)) - 1))
def test_a_record_cut_anywhere_before_its_end_is_no_step(length):
    assert parse_step(record(10, 123.4)[:length]) is None or length >= len(record(10, 123.4)) - 2


def test_only_a_zero_is_a_whole_nan_count_at_the_end_of_a_line():
    assert parse_step(record(10).rstrip(" |")) == parse_step(record(10))
    assert parse_step(record(10).rstrip(" |")[:-1] + "1") is None


def test_a_missing_loss_is_none_and_a_printed_nan_is_nan():
    assert parse_step(record(10).replace(" lm loss: 5.100000E+00 |", "")).loss is None
    assert math.isnan(parse_step(record(10).replace("5.100000E+00", "nan")).loss)


@pytest.mark.parametrize("time", ["0.0", "nan", "inf", "-3.0", "abc", "12.3.4", "1e999"])
def test_a_record_without_a_possible_time_is_no_step(time):
    line = record(10, 50.0).replace("50.0", time)
    assert parse_step(line) is None
    same(parse_stream(io.BytesIO(f"{record(5)}\n{line}\n".encode())), parse_log([record(5)]))


def test_the_dump_of_the_arguments_gives_sizes_versions_and_precision():
    log = read_log(LOGS / "core_0.16_first-step-logged.log")
    facts = log.facts
    assert (facts.megatron_version, facts.torch_version) == ("0.16.1", "2.9.1")
    assert (facts.world_size, facts.micro_batch_size, facts.global_batch_size) == (2, 3, 24)
    assert (facts.sequence_length, facts.precision, facts.padded_vocabulary) == (256, "bf16", 32000)
    assert (log.last_step, log.train_iters, log.training_done) == (60, 60, True)
    assert log.arguments["hidden_size"] == "128"


def test_peak_memory_is_the_most_that_any_rank_had():
    line = "[Rank {}] (after 1 iterations) memory (MB) | allocated: 1.0 | max allocated: {} | x: 1"
    log = parse_log([record(1), line.format(0, 2987.51), line.format(1, 3001.25), record(2)])
    assert log.facts.peak_memory_mb == 3001.25


def test_dots_behind_the_dump_of_the_arguments_are_no_argument():
    dump = [
        "---- arguments ----",
        "  lr ......... 0.1",
        "---- end of arguments ----",
        "  size ... 3",
    ]
    assert parse_log(dump).arguments == {"lr": "0.1"}


def test_an_attempt_that_dies_before_a_step_keeps_the_arguments_of_the_steps():
    log = read_log(LOGS / "attempt_second-died-before-a-step.log")
    assert (log.arguments["world_size"], log.first_error) == ("2", "RuntimeError: CUDA error")


def test_an_error_that_a_step_follows_is_not_the_first_error():
    error = "[rank1]: ImportError: no apex"
    assert parse_log([error]).first_error == "ImportError: no apex"
    for lines in ([error, record(1)], [error, record(1), "ValueError: bad", "KeyError: 'x'"]):
        log = parse_log(lines)
        same(parse_stream(io.BytesIO("\n".join(lines).encode())), log)
        assert log.first_error == (lines[2] if lines[2:] else None)


@pytest.mark.parametrize("count", [2, 5, 20])
@pytest.mark.parametrize("copied", [False, True])
def test_only_errors_behind_the_last_new_step_count(count, copied):
    records = [record(number) for number in range(1, count + 1)]
    records += records[-1:] if copied else []
    for place in range(len(records) + 1):
        lines = [*records[:place], "KeyError: 'x'", *records[place:]]
        log = parse_stream(io.BytesIO("\n".join(lines).encode()))
        same(log, parse_log(lines))
        assert (log.first_error is None) == (place < count)


def test_reading_line_by_line_returns_each_step_when_it_is_complete():
    log = Log()
    given = [record(1), "noise", record(1), record(2)[:100], record(2)[100:], "noise"]
    numbers = [step.number if (step := log.read(line)) else None for line in given]
    assert numbers == [1, None, None, None, 2, None]


@pytest.mark.parametrize("repeat", ["twice each", "back to the start", "one step back"])
def test_a_long_run_of_one_layout_that_repeats_itself_is_read_as_line_by_line(repeat):
    numbers = list(range(1, 21))
    again = {
        "twice each": ([n for n in numbers for _ in range(2)], (20, 1, 20)),
        "back to the start": (numbers + numbers, (20, 2, 0)),
        "one step back": ([*numbers, 19, 21], (21, 1, 1)),
    }
    order, answers = again[repeat]
    lines = [record(number) for number in order]
    log = parse_stream(io.BytesIO("\n".join(lines).encode()))
    same(log, parse_log(lines))
    assert (len(log.steps), log.attempts, log.copies) == answers


def test_a_step_printed_twice_with_other_times_is_one_step():
    log = parse_log([record(1, 50.0), record(1, 50.1), record(2, 51.0), record(2, 51.2)])
    assert [step.step_time_ms for step in log.steps] == [50.0, 51.0]
    assert (log.attempts, log.copies) == (1, 2)


def test_a_rank_that_lags_is_no_new_attempt_but_its_own_step_back_is_one():
    first, second = "[rank-0/2]" + record(1, 50.0), "[rank-0/2]" + record(2, 50.0)
    lagging = "[rank-1/2]" + record(1, 50.3)
    assert parse_log([first, second, lagging]).copies == 1
    log = parse_log([first, second, "[rank-0/2]" + record(1, 50.3)])
    assert (log.attempts, len(log.steps)) == (2, 1)


def test_a_number_that_lines_split_is_put_together_only_when_they_are_equally_wide():
    text = "0: " + record(10, 123.4)
    at = text.index("3.4")
    uneven = [text[: at - 90], text[at - 90 : at], text[at:]]
    assert len(parse_log(uneven).steps) == 0
    assert at == 2 * 63
    even = [text[start : start + 63] for start in range(0, len(text), 63)]
    assert parse_log(even).steps[0] == parse_step(text)


COUNTLESS = (
    " iteration {:8d}/    1000 | elapsed time per iteration (ms): 2906.7 | global batch size:   "
    "48 | lm loss: 8.2E+00 | grad norm: 1.5 |"
)
COUNTS = " number of skipped iterations:   3 | number of nan iterations:   0 | TFLOPs: 71.25 |"


def test_a_record_without_counts_is_whole_where_the_log_never_has_them():
    lines = [COUNTLESS.format(1), "noise", COUNTLESS.format(2), COUNTLESS.format(3)]
    for log in (parse_log(lines), parse_stream(io.BytesIO("\n".join(lines).encode()))):
        assert [step.number for step in log.steps] == [1, 2, 3]


@pytest.mark.parametrize("noise", [0, 30])
def test_what_is_said_after_a_record_without_counts_counts(noise):
    lines = ["ValueError: before", COUNTLESS.format(1), COUNTLESS.format(2)]
    error, done = "torch.OutOfMemoryError: CUDA out of memory.", "[exiting program at iteration 2]"
    for end in (error, done):
        printed = [*lines, end, *(f"noise {number}" for number in range(noise))]
        for log in (parse_log(printed), parse_stream(io.BytesIO("\n".join(printed).encode()))):
            assert log.last_step == 2
            assert (log.first_error, log.training_done) == (
                error if end is error else None,
                end is done,
            )


def test_a_record_without_counts_is_half_a_record_where_they_follow_or_others_have_them():
    lines = [COUNTLESS.format(1), COUNTS, COUNTLESS.format(2) + COUNTS, COUNTLESS.format(3)]
    for log in (parse_log(lines), parse_stream(io.BytesIO("\n".join(lines).encode()))):
        assert [(step.number, step.skipped) for step in log.steps] == [(1, 3), (2, 3)]


@pytest.mark.parametrize("lost", ["loss scale: 1.0 | grad norm: 1.5 |", "lm loss: 8.2E+00 |", "gr"])
def test_a_record_that_was_cut_before_its_counts_is_no_step(lost):
    text = COUNTLESS.format(1).replace(" grad norm: 1.5 |", " " + lost)
    assert not parse_log([text, text.replace("1/", "2/")]).steps


def test_a_wrapped_record_of_which_a_line_is_lost_is_no_step():
    first, second = record(1), record(2)
    cut, rest = second.index("50.0 |") + 4, second.index(" | number of nan")
    parts = [second[:cut], second[cut:rest], second[rest:]]
    assert [step.number for step in parse_log([first, *parts]).steps] == [1, 2]
    assert [step.number for step in parse_log([first, parts[0], parts[2]]).steps] == [1]


def test_a_wrapped_record_without_its_loss_is_a_step_as_the_loss_of_a_nan_is_left_out():
    lost = record(2).replace(" lm loss: 5.100000E+00 |", "")
    cut = lost.index("| loss scale")
    assert len(parse_log([record(1), lost[:cut], lost[cut:]]).steps) == 2


def test_half_a_record_does_not_take_the_numbers_of_the_next():
    one, other = record(3)[: record(3).index("consumed")], record(4)
    for garbled in (other.replace("/", "/ x "), other.replace("iteration ", "iteration\n")):
        assert parse_log((one + garbled).split("\n")).steps == parse_log([]).steps


def test_a_loss_with_a_garbled_name_is_another_record_inside():
    assert parse_step(record(1).replace("lm loss", "lm\x00 loss")) is None
    assert parse_step(record(1).replace("lm loss", "mtp_1 loss")).losses == {"mtp_1 loss": 5.1}


def test_a_checkpoint_is_loaded_where_its_step_is_in_the_line():
    loaded = "  successfully loaded checkpoint from /c [ t 1/1, p 1/1 ] at iteration {}10"
    for gap, attempts in ((" ", 2), ("\n", 1)):
        lines = [record(10), record(20), loaded.format(gap), record(20, 51.0), record(30)]
        data = "\n".join(lines).encode()
        same(parse_stream(io.BytesIO(data)), line_by_line(data))
        assert parse_stream(io.BytesIO(data)).attempts == attempts


def test_the_same_field_with_two_values_is_another_record_inside():
    twice = record(10).replace("| loss scale", "| global batch size: 32 | loss scale")
    assert parse_step(twice) is None
    assert parse_step(record(10).replace("| loss scale", "| lm loss: 5.1 | loss scale"))


def test_a_number_behind_the_last_bar_may_be_cut_and_is_not_taken():
    rate = " samples per second: 50.46"
    assert parse_step(record(10) + rate).samples_per_second is None
    assert parse_step(record(10) + rate + "8 |").samples_per_second == 50.468


def test_steps_are_a_sequence():
    steps = parse_log([record(n) for n in range(1, 6)]).steps
    assert [steps[-1].number, steps[0].number, len(steps)] == [5, 1, 5]
    assert [step.number for step in steps[1:3]] == [2, 3]
    with pytest.raises(IndexError):
        steps[5]


def test_a_long_log_takes_little_memory():
    count = 10_000
    data = "".join(record(n) + "\n" for n in range(count)).encode()
    stream = io.BytesIO(data)
    tracemalloc.start()
    log = parse_stream(stream)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(log.steps) == count
    assert kept < 150 * count
    assert peak < 10e6


def test_a_line_without_an_end_takes_bounded_memory():
    class Endless(io.RawIOBase):
        left = 60

        def read(self, size=-1):
            self.left -= 1
            return b"x" * min(size, 1 << 19) if self.left > 0 else b""

    tracemalloc.start()
    assert not parse_stream(Endless()).steps
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16e6


@pytest.mark.timeout(30)  # a quadratic search takes minutes here
@pytest.mark.parametrize(
    "piece",
    [
        "iteration 1/ 2 |", "iteration 1", "load checkpoint ", "memory (MB) | ", "-", " ", "9",
        "--- arguments ---", "> padded vocab (size: 1) ", "learning rate 1 | ", "Error.", "\x1b[1",
        "number of nan iterations: ", "samples/sec: 1 | ", "> PyTorch version ....", "|", "A",
        "iteration 1/ 2 | elapsed time per iteration (ms): 5", "{'loss': ", "[rank1]:", "1.",
        "step: 1 tps: 1 ",
    ],
)  # fmt: skip
def test_a_hostile_line_takes_no_more_time_than_its_length(tmp_path, piece):
    path = tmp_path / "hostile.log"
    path.write_text(record(1) + "\n" + piece * (400_000 // len(piece)) + " iteration 3/")
    assert len(read_log(path).steps) == 1
    path.write_text(piece * (400_000 // len(piece)) + "\n" + record(2))
    same(parse_log([path.read_text()]), read_log(path))


def test_many_loss_names_do_not_make_many_columns():
    lines = [record(n).replace("lm loss", f"expert {n} loss") for n in range(1, 500)]
    log = parse_log(lines)
    assert len(log.steps) == 499
    assert len(log.steps[0].losses) == 1
    assert log.steps[498].losses == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no iteration of Megatron in it$"),
        (b"\x1f\x8b\x08 rest", "gzip file"),
        ("\ufeffiteration".encode("utf-16"), "UTF-16"),
        (
            b"x.py: error: unrecognized arguments: --DDP-impl\n",
            "unrecognized arguments: --DDP-impl",
        ),
        (b"ValueError: bad\n", r"it failed: ValueError: bad"),
    ],
)
def test_a_file_without_steps_says_what_it_is(tmp_path, content, words):
    path = tmp_path / "some.log"
    path.write_bytes(content)
    with pytest.raises(SetupError, match=words) as caught:
        read_log(path)
    assert caught.value.hint


WHOLE = record(7)
TIME = "elapsed time per iteration (ms): 50.0 |"


@pytest.mark.parametrize(
    ("lines", "words", "fix"),
    [
        (
            [WHOLE.replace(TIME, "")] * 3,
            "none of its 3 iterations can be read: without 'elapsed time per iteration'$",
            "the speed",
        ),
        ([WHOLE.replace(" 50.0", " 0.0")], r": with an 'elapsed .* that is none \(0.0\)$", "speed"),
        ([WHOLE.replace(" 50.0", " -3.5")], r"that is none \(-3.5\)$", "speed"),
        (
            [WHOLE[:150], WHOLE[:150]],
            "none of its 2 iterations can be read: without 'number",
            "whole",
        ),
        ([WHOLE.replace("loss scale: 1.0", "loss scale: 1..0")], ": with a garbled field", "rank"),
        (
            [WHOLE[:150], WHOLE[:150], WHOLE.replace(TIME, "")],
            "none of its 3 iterations can be read: 2 .* cut, 1 without 'elapsed",
            "whole",
        ),
        (["iteration= 1/ 9 | lm loss=8.2 |"] * 2, "none of its 2 iterations .* as if cut", "whole"),
        ([WHOLE[:150], "ValueError: bad"], r"as if cut \(it failed: ValueError: bad\)$", "whole"),
    ],
)
def test_records_that_cannot_be_read_are_counted_with_what_they_lack(tmp_path, lines, words, fix):
    path = tmp_path / "some.log"
    path.write_text("\n".join(lines))
    with pytest.raises(SetupError, match=words) as caught:
        read_log(path)
    assert fix in caught.value.hint


def test_one_record_that_can_be_read_is_a_log(tmp_path):
    path = tmp_path / "some.log"
    path.write_text(f"{WHOLE[:150]}\n{record(8)}\n")
    assert len(read_log(path).steps) == 1


@pytest.mark.parametrize("name", ["absent.log", "."])
def test_a_path_that_cannot_be_read_is_an_error_with_a_fix(tmp_path, name):
    with pytest.raises(SetupError, match=r"No such file|Is a directory"):
        read_log(tmp_path / name)


PIECES = st.sampled_from(
    [
        *(record(n, t) for n in (1, 2, 3, 10, 20) for t in (50.0, 51.5)),
        record(2)[:60], record(2)[60:150], record(2)[150:], record(3)[:111], record(3)[111:],
        record(4)[:80], record(4)[80:160], record(4)[160:240], record(4)[240:],
        "3: ", "[rank-1/2]", "[default1]:", "\x1b[31m", "`", "\n", "\n", "\n", "\r", "\r\n", " ",
        record(5).replace("(ms): 50.0", "(ms): 50.0/60.0"), record(6).replace("5.1", "nan"),
        record(7).replace("(ms)", "(s)"), record(8).replace(" 50.0", " 0.0"), " iteration   9/ 10",
        " samples/sec: 3.404 |", "\n------------ arguments ------------\n  world_size ........ 2\n",
        "------- end of arguments -------\n", "> Megatron-Core version .......... 0.19.2\n",
        "using world size: 4, ", "\nRuntimeError: x", "[after training is done] datetime: now\n",
        "successfully loaded checkpoint from x at iteration 20\n", "x.py: error: bad\n", "\x00é",
        "(after 1 iterations) memory (MB) | allocated: 1.0 | max allocated: 2.0 | reserved: 1 |",
        "> padded vocab (size: 10) with 6 dummy tokens (new size: 16)\n", "5.1\n", "|", "nan", "-",
        "iter\x1b[1mation 3/ 9 |", "iteration \u0663/ \u0664 |", "KeyErr\x1b[0mor", "\x1b[", "\x1b",
    ]
)  # fmt: skip
LAYOUTS = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=40).map("".join)
QUICK = settings(max_examples=150, database=None)


@QUICK
@given(LAYOUTS, st.integers(1, 500))
def test_where_the_chunks_end_does_not_matter(text, chunk_bytes):
    data = text.encode("utf-8", "surrogatepass")
    same(parse_stream(io.BytesIO(data), chunk_bytes), line_by_line(data))


ROWS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from(["5.1", "50.0", "0.0", "nan", "7.25/8.5", "9.5 (avg 9.0)", "1e400", "x"]),
        st.sampled_from(["", " lm loss: 4.0 |", " lm loss: nan |", " z_loss: 3 | lm loss: 2 |"]),
        st.sampled_from(["", "[rank-1/4] ", "[rank-2/4] ", "[default1]: ", "[2024-01-01 1:2] "]),
        st.sampled_from(["0", "1", "0.5", "12"]),
    ),
    max_size=40,
)


@QUICK
@given(ROWS)
def test_a_known_layout_is_read_as_an_unknown_one(rows):
    lines = [
        f"{prefix}iteration {number:8d}/ 90 | elapsed time per iteration (ms): {time} |{loss}"
        f" number of skipped iterations: {skipped} | number of nan iterations: 0 |"
        for number, time, loss, prefix, skipped in rows
    ]
    same(parse_stream(io.BytesIO("\n".join(lines).encode())), parse_log(lines))


@QUICK
@given(st.one_of(LAYOUTS.map(str.encode), st.binary(max_size=300)))
def test_no_input_raises_anything_but_a_setup_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.log"
    path.write_bytes(data)
    with contextlib.suppress(SetupError):
        log = read_log(path)
        assert log.steps[-1].step_time_ms > 0
        assert log.train_iters is not None
        assert isinstance(log.world_size, int | None)
        assert isinstance(log.sequence_length, int | None)


DAMAGED = [row["file"] for row in MEGATRON if not re.search("wrapped|garbled", row["file"])]


def break_line(lines, place, at, how):
    """Do to a line what terminals, collectors and ranks that write at once do."""
    line = lines[place]
    start, rest = line[: at % (len(line) + 1)], line[at % (len(line) + 1) :]
    following = lines[place + 1 : place + 2]
    lines[place : place + 2] = {
        "cut": [start, *following],
        "glued": [line + b"".join(following)],
        "cut and glued": [start + b"".join(following)],
        "other text inside": [start, b"NCCL INFO \xff", rest, *following],
        "broken": [start, rest, *following],
        "carriage return": [start + b"\r" + rest, *following],
        "twice": [line, line, *following],
        "bytes": [start + b"\x00\xfe" + rest, *following],
    }[how]


def numbers_of(step):
    """Return what a step says, losses without their names, but not what stood before it."""
    values = {item.name: getattr(step, item.name) for item in dataclasses.fields(step)}
    del values["losses"], values["rank"], values["samples_per_second"]
    return {(step.number, name, repr(value)) for name, value in values.items() if value} | {
        (step.number, "loss", repr(value)) for value in step.losses.values()
    }


DAMAGES = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.integers(0, 600),
        st.sampled_from(
            ["cut", "glued", "cut and glued", "other text inside", "broken", "carriage return",
             "twice", "bytes"]
        ),
    ),
    min_size=1, max_size=6,
)  # fmt: skip


@QUICK
@given(st.sampled_from(DAMAGED), DAMAGES)
def test_a_damaged_log_gives_no_number_that_it_did_not_have(name, damages):
    data = (LOGS / name).read_bytes()
    lines = data.split(b"\n")
    known, log = set(), Log()
    for line in lines:
        if log.read(line.decode("utf-8", "replace")):
            known |= set().union(*map(numbers_of, log.steps))
    for place, at, how in damages:
        break_line(lines, place % len(lines), at, how)
    steps = parse_stream(io.BytesIO(b"\n".join(lines))).steps
    assert set().union(*map(numbers_of, steps)) <= known
