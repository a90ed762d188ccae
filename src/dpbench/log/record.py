"""One training record, found by the names of its fields in any order and in every known spelling.

Sources: training_log() in megatron/training/training.py, v2.5 to core_v0.19, and what its forks
print: Megatron-DeepSpeed and that of Argonne, the BLOOM fork, gpt-neox, Primus, FlagScale,
MindSpeed, LoongForge.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from dpbench.log.equals_signs import spell_out

HEAD = re.compile(r"\biteration[ \t]+(\d{1,15})[ \t]*/[ \t]*(\d{1,15})[ \t]*\|", re.ASCII)
AT_STEP = re.compile(r"iteration[ \t]+\d", re.ASCII)
OPEN_HEAD = re.compile(r"\biteration[ \t]+\d{1,15}[ \t]*(?:/[ \t]*\d{0,15}[ \t]*)?\Z", re.ASCII)
"""A head that the end of its line cuts."""
LEADING_RATE = re.compile(r"samples/sec: (\d+\.?\d*) \| *\Z")
"""gpt-neox prints this field before the head."""
RANK = re.compile(r"(?:\[rank-?|\[default|^)(\d{1,6})(?:/(\d{1,7}))?(?:\]|:(?=[ \[]))")
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
DIGITS = r"\d{1,20}+(?:\.\d{0,20}+)?+(?:[eE][-+]?\d{1,4}+)?+"
"""Bounded, as every repetition here: a hostile line must not take quadratic time. Possessive (`+`
after a quantifier): nothing that may stand behind a number can be a part of it.
"""
VALUE = re.compile(
    rf"\s*([-+]?(?:{DIGITS}|nan|inf))"  # "2698.4/2712.8": this interval / mean
    rf"(?:\s*/\s*[-+]?{DIGITS}|\s*\(avg [-+]?{DIGITS}\))?\s*([KMGTP]FLOPS|[KMBT])?\s*\Z",
    re.IGNORECASE,
)
PAIR_END = re.compile(r"\d\.\d ?/ ?\d{1,15}\.\d\Z")
OLD_FIELD = re.compile(r" *(learning rate|lm loss|loss scale) +(\S{1,30}) *\Z")
"""Before v1.0 some fields had no colon."""
UNIT = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
TFLOPS_UNIT = {"K": 1e-9, "M": 1e-6, "G": 1e-3, "T": 1.0, "P": 1e3}

NAMES = {
    "elapsedtimeperiteration(ms)": "step_time_ms",
    "elapsedtimeperiterationms": "step_time_ms",
    "elapsedtimeperiteration(s)": "step_time_seconds",
    "globalbatchsize": "global_batch_size",
    "gloablbatchsize": "global_batch_size",
    "consumedsamples": "consumed_samples",
    "consumedtokens": "consumed_tokens",
    "learningrate": "learning_rate",
    "lmloss": "loss:lm loss",
    "lossscale": "loss_scale",
    "gradnorm": "grad_norm",
    "numberofskippediterations": "skipped",
    "numberofnaniterations": "nan",
    "throughputpergpu(tflop/s/gpu)": "tflops_per_gpu",
    "computepergpu(tflop/s/gpu)": "tflops_per_gpu",
    "approxflopspergpu": "tflops_per_gpu",
    "tflops": "tflops_per_gpu",
    "[lm]tflops": "tflops_per_gpu",
    "[lm]-tflops": "tflops_per_gpu",
    "energypergpu(j/iter/gpu)": "energy_per_gpu_joules",
    "powerpergpu(w/gpu)": "power_per_gpu_watts",
    "samplespersecond": "samples_per_second",
    "samples/sec": "samples_per_second",
    "throughput(samples/sec/per_device)": "samples_per_second_per_gpu",
    "tokenspergpu(tokens/s/gpu)": "tokens_per_second_per_gpu",
    "tokens/s/gpuinst/harmonicmean": "tokens_per_second_per_gpu",
    "tokenspergpupersecond(tgs)": "tokens_per_second_per_gpu",
    "tokenspergpupersecondtgs": "tokens_per_second_per_gpu",
    "tokens/sec/gpu": "tokens_per_second_per_gpu",
    "tokens/s/gpu": "tokens_per_second_per_gpu",
    "actualseqlen": "sequence_length",
    "actualseqlength": "sequence_length",
}
"""Field names without their spaces, so that a wrapped line cannot change them."""
OPTIONAL = frozenset(
    "loss_scale grad_norm learning_rate samples_per_second samples_per_second_per_gpu "
    "tokens_per_second_per_gpu energy_per_gpu_joules power_per_gpu_watts".split()
)
NAN_FIELD, PAIR_FIELD = "numberofnaniterations:", "inst/harmonicmean:"
NAN_COUNT = re.compile(NAN_FIELD + r"(?:\d+\||0`*\Z)")
"""Without its `|` only a zero is known to be whole."""
OLD_RECORD = re.compile(r"\blearning rate [\d.eE+-]{1,20} \|.{1,200}\bloss scale [\d.]{1,20} \|")
LEAST_MS, MOST_MS = 1e-3, 1e10
"""A step time outside is no measurement."""
LOSS_PREFIX = "loss:"
MAIN_LOSSES = ("lm loss", "lm_loss", "loss")
LOSS_NAME = re.compile(r"[a-z]\w{0,40}(?:[ ./-]\w{1,40}){0,5}", re.ASCII | re.IGNORECASE)
"""Other characters are those of another writer."""
SIDE_LOSS = re.compile(r"z_?loss|mtp|balanc|aux|router|sop|nsp|indexer", re.IGNORECASE)

Values = dict[str, float]
"""A record as numbers by the names of Step's fields; losses are `loss:NAME`, `ranks` how many."""


@dataclass(frozen=True, slots=True)
class Step:
    """One logged interval: it ends with step `number` and is the mean since the line before."""

    number: int
    last: int
    """The number of steps that the run will take."""
    step_time_ms: float
    global_batch_size: int | None
    loss: float | None
    """The language model's loss, or the first one that is not an auxiliary loss."""
    tflops_per_gpu: float | None
    skipped: int
    """Steps of this interval whose update was skipped (fp16 overflow)."""
    nan: int
    """Of the skipped steps, those with a NaN; bf16 runs skip none and count none."""
    losses: Mapping[str, float] = field(default_factory=dict)
    """Every loss of the record, by its name."""
    loss_scale: float | None = None
    grad_norm: float | None = None
    """NaN when the record says so."""
    learning_rate: float | None = None
    consumed_samples: int | None = None
    consumed_tokens: int | None = None
    samples_per_second: float | None = None
    """As printed; some forks count micro batches here, so global batch / time comes first."""
    samples_per_second_per_gpu: float | None = None
    tokens_per_second_per_gpu: float | None = None
    energy_per_gpu_joules: float | None = None
    """Joules a step and GPU."""
    power_per_gpu_watts: float | None = None
    sequence_length: int | None = None
    rank: int | None = None
    """The rank that printed it, when its prefix says so."""


def parse_step(line: str) -> Step | None:
    """Return the first step that a line reports; None for any other line and for one cut short.

    Units: step_time_ms is the mean over the interval.
    """
    for text, complete in split_records(spell_out(ANSI.sub("", line))):
        if complete and (values := parse_record(text)):
            return build_step(values)
    return None


def split_records(line: str) -> Iterator[tuple[str, bool]]:
    """Yield each record of a line with what stands before it, and whether it is complete.

    A line holds several when ranks or a log collector glued them together.
    """
    heads = list(HEAD.finditer(line))
    starts = [leading_start(line, head.start()) for head in heads]
    for index, head in enumerate(heads):
        end = starts[index + 1] if index + 1 < len(heads) else len(line)
        yield line[starts[index] if index else 0 : end], is_complete(line[head.end() : end])


def leading_start(line: str, head: int) -> int:
    """Return where a record starts whose head may have gpt-neox's rate before it."""
    window = line[max(0, head - 60) : head]
    rate = LEADING_RATE.search(window)
    return head - len(window) + rate.start() if rate else head


def is_complete(body: str) -> bool:
    """Tell whether a record reaches its last field; what stands behind that may be lost.

    Every Megatron since v1.0 prints the NaN count near the end; one Primus layout has none and
    ends with a pair, the oldest logs end with the loss scale. A number needs its `|`, or the end of
    the line for the first two.
    """
    squeezed = squeeze(body)
    if squeezed.rfind(NAN_FIELD) >= 0:
        return NAN_COUNT.match(squeezed, squeezed.rfind(NAN_FIELD)) is not None
    if squeezed.rfind(PAIR_FIELD) >= 0:
        return PAIR_END.search(body.rstrip("|` \t\r\n")) is not None
    return OLD_RECORD.search(body) is not None


def ends_without_counts(body: str) -> bool:
    """Tell whether a record that is not complete may be one of a layout without a NaN count.

    MindSpeed's trainers on FSDP2 have none. So may half a record that was wrapped: it is whole
    where its other half does not follow. One with a loss scale skips updates: it lacks their count.
    """
    *fields, rest = squeeze(body).split("|")
    names = {field.partition(":")[0] for field in fields}
    lacks_more = "lossscale" in names or any(name.startswith("numberof") for name in names)
    has_loss = any(name.endswith("loss") for name in names)
    return not rest and "gradnorm" in names and has_loss and not lacks_more


def parse_record(text: str) -> Values | None:
    """Return the numbers of a complete record; None when one of them cannot be trusted.

    A known field with a garbled value, a loss with a garbled name, or the same field twice with two
    values mean that another rank wrote into the record: it is left out rather than guessed.
    """
    head = HEAD.search(text)
    if not head:
        return None
    values: Values = {"number": float(head[1]), "last": float(head[2])}
    if rank := RANK.search(text[: head.start()]):
        values["rank"] = float(rank[1])
        if rank[2]:
            values["ranks"] = float(rank[2])
    if rate := LEADING_RATE.search(text[: head.start()]):
        values["samples_per_second"] = float(rate[1])
    for part in closed_fields(text[head.end() :]):
        key, value_text = split_field(part)
        if key is None:
            if "nan" not in values and AT_STEP.search(part):
                return None  # half a record, and half of the next
            continue
        value = read_number(value_text, tflops=key == "tflops_per_gpu")
        if value is None or (key in values and repr(values[key]) != repr(value)):
            return None
        if is_loss(key) and not LOSS_NAME.fullmatch(key.removeprefix(LOSS_PREFIX)):
            return None
        values[key] = value
    if "step_time_seconds" in values:
        values["step_time_ms"] = values.pop("step_time_seconds") * 1e3
    return values if LEAST_MS < values.get("step_time_ms", 0.0) < MOST_MS else None


def closed_fields(body: str) -> list[str]:
    """Return the `NAME: VALUE` parts of a record that are closed by a `|` or by the line's end."""
    parts = body.split("|")
    tail = squeeze(parts[-1])
    if not (NAN_FIELD in tail or PAIR_FIELD in tail):
        parts.pop()  # another rank's text, or a number that was cut
    return parts


def split_field(part: str) -> tuple[str | None, str]:
    """Return the name that Values has for a field, None for one not needed, and its value."""
    name, colon, value = part.partition(":")
    if not colon:
        old = OLD_FIELD.match(part)
        if not old:
            return None, ""
        name, value = old[1], old[2]
    if key := NAMES.get(squeeze(name)):
        return key, value
    name = name.strip()
    return (LOSS_PREFIX + name if name.lower().endswith("loss") else None), value


def squeeze(text: str) -> str:
    """Return text in lower case without blanks."""
    return "".join(text.split()).lower()


def read_number(text: str, *, tflops: bool = False) -> float | None:
    """Return the number of a field, None for anything else; -inf counts as NaN.

    Of a pair "this interval/mean so far" the first is taken. `tflops` reads the unit as FLOP/s.
    """
    match = VALUE.match(text)
    if not match:
        return None
    unit = (match[2] or "").upper()
    if unit and unit.endswith("FLOPS") != tflops:
        return None
    value = float(match[1]) * (TFLOPS_UNIT if tflops else UNIT).get(unit[:1], 1.0)
    return math.nan if value == -math.inf else value


def build_step(values: Mapping[str, float]) -> Step:
    """Return a record as a Step."""
    losses = {
        name.removeprefix(LOSS_PREFIX): value for name, value in values.items() if is_loss(name)
    }
    main = main_loss_name(losses)
    rest = {name: value for name, value in values.items() if name in OPTIONAL}
    return Step(
        number=int(values["number"]),
        last=int(values["last"]),
        step_time_ms=values["step_time_ms"],
        global_batch_size=whole(values.get("global_batch_size")) or None,
        loss=losses[main] if main else None,
        tflops_per_gpu=values.get("tflops_per_gpu"),
        skipped=whole(values.get("skipped")) or 0,
        nan=whole(values.get("nan")) or 0,
        losses=losses,
        consumed_samples=whole(values.get("consumed_samples")),
        consumed_tokens=whole(values.get("consumed_tokens")),
        sequence_length=whole(values.get("sequence_length")),
        rank=whole(values.get("rank")),
        **rest,
    )


def step_values(step: Step) -> Values:
    """Return a Step as the numbers of its record."""
    losses = step.losses or ({} if step.loss is None else {MAIN_LOSSES[0]: step.loss})
    values = {item.name: getattr(step, item.name) for item in dataclasses.fields(step)}
    del values["losses"], values["loss"]
    numbers = {name: float(value) for name, value in values.items() if value is not None}
    return numbers | {LOSS_PREFIX + name: value for name, value in losses.items()}


def whole(value: float | None) -> int | None:
    """Return a whole number that is not negative, None for anything else."""
    return int(value) if value is not None and 0 <= value < 2**53 else None


def is_loss(name: str) -> bool:
    """Tell whether a name of Values is that of a loss."""
    return name.startswith(LOSS_PREFIX)


def main_loss_name(names: Collection[str]) -> str | None:
    """Return the loss that is trained for: not the largest, and no auxiliary one."""
    for name in MAIN_LOSSES:
        if name in names:
            return name
    return next((name for name in names if not SIDE_LOSS.search(name)), None)
