"""How the verdict follows from the intervals, in words and with its constants: a part of --json."""

from __future__ import annotations

from dpbench.curves import BLOWN_NOISES, BLOWN_SHARE, CLEARLY, END_LINES
from dpbench.loss_gates import OUTSIDE
from dpbench.pairs import ONE_PAIR, PRIOR_SD, PRIOR_WEIGHT, T975
from dpbench.verdict import ABOVE_IDEAL

RULE = {
    "samples_per_second": "global_batch_size * 1000 / median(step_time_ms of counted intervals)",
    "undisturbed_samples_per_second": (
        "of the ceil(n / 4) counted intervals with the least step_time_ms (of equal ones, those "
        "with fewer steps first): global_batch_size * 1000 * sum(steps) / sum(step_time_ms * steps)"
    ),
    "speedup": (
        "runs are paired in their order; x = ln(undisturbed rate of scaled / of baseline); "
        "exp(mean(x)), or with one pair the ratio"
    ),
    "bounds_of_two_or_more_pairs": (
        "exp(mean(x) -/+ t * sd / sqrt(pairs)); sd = sqrt((prior_weight * prior_sd^2 + (pairs - 1) "
        "* variance(x)) / (prior_weight + pairs - 1)); t = t975[pairs - 2], or the last"
    ),
    "bounds_of_one_pair": (
        "with inclusive quartiles of the step times: low = min(speedup, scaled batch / its upper "
        "quartile / (baseline batch / its lower quartile)), high = max(speedup, scaled batch / its "
        "lower quartile / (baseline batch / its upper quartile)); where gpu_ratio is 1, with "
        "speedup / one_pair and speedup * one_pair instead of speedup"
    ),
    "gate_speedup": (
        "pass if low >= needed, fail if high < needed and neither a gate_steady nor "
        "gate_log_interval is inconclusive, else inconclusive"
    ),
    "gate_speed": "instead of gate_speedup where needed is null: pass",
    "gate_stalls": (
        "inconclusive if low >= needed but exp(mean(ln of the ratios of the rates over all counted "
        "intervals, sum(steps) / sum(step_time_ms * steps))) < needed"
    ),
    "gate_baseline": "where speedup > gpu_ratio * above_ideal ** log2(gpu_ratio): "
    "pass if pairs > 1 and low <= gpu_ratio and the work is the same, else inconclusive",
    "gate_log_interval": (
        "inconclusive if the intervals of the runs are unequally long; intervals are the lines of "
        "the log, put together to the least common multiple where that leaves 3 of each run"
    ),
    "gate_steady": (
        "of the worst finding of any run, of one without a "
        "partner NaN only; drifting counts with one pair only and if low / (1 + |change|) < needed "
        "(1 if null) <= high * (1 + |change|): fail if NaN, else inconclusive; named finished if "
        "incomplete"
    ),
    "course_of_a_loss": (
        "y: the n losses of a run that are numbers; noise = 1.4826 * median(|y[i-1] - 2 y[i] + "
        "y[i+1]|) / sqrt(6); end = median of the last end_lines, the last of as few; first, last = "
        "medians of the first and the last third = max(n // 3, 1); error = 1.2533 * noise * "
        "sqrt(2 / third); stretches = medians of ceil(n / 20) lines each of all but the last "
        "end_lines, of all where there are no more"
    ),
    "gate_loss": (
        "inconclusive if no line has a loss and none shows a NaN; "
        "fail if the last line lacks its loss, last - first > clearly * error, end - "
        "min(stretches) > max(blown_noises * noise, blown_share * (max(stretches) - "
        "min(stretches))), end > max_final_loss, or, in a run whose log has its beginning "
        "(from_start), first - last <= clearly * error"
    ),
    "gate_skipped_updates": (
        "absent if none: after the first interval without one, the largest sum(skipped) / steps of "
        "a run; fail if above max_skipped_share"
    ),
    "gate_losses_agree": (
        "strong scaling, or equal GPU counts, and no gate_log_interval: inconclusive if every run "
        "has losses and no pair has them at common steps; of each pair at the steps that both "
        "logged a loss for, |scaled - baseline| / baseline less (relative slope of the baseline a "
        "step * difference of the updates skipped so far); the largest of the medians over the "
        "three thirds; fail if above max_loss_difference (twice the relative noise more with "
        "another seed, dataset or length), but inconclusive if at most twice what repeats of one "
        "arm lie apart. Else inconclusive if the bends of ln(loss) of the second half are "
        "independent: sum (u - v)^2 > 0.5 * (sum u^2 + sum v^2), from 8 lines and a relative "
        "noise of 0.2 % on"
    ),
    "gate_losses_agree_weak": (
        "weak scaling: inconclusive if the median over the second half of the common steps of "
        "scaled / baseline - 1, or of the common samples of baseline / scaled - 1, is above "
        "outside, or no pair has any of them; baseline between its lines by straight lines"
    ),
    "gate_gpu_utilization": (
        "only with min_gpu_utilization: over the runs and GPUs of an arm, the median of "
        "gpus.utilization_percent; inconclusive if unknown, fail if below min_gpu_utilization"
    ),
    "outcome": "fail if any gate fails, else inconclusive if any is, else pass",
    "prior_sd": PRIOR_SD,
    "prior_weight": PRIOR_WEIGHT,
    "t975": list(T975),
    "one_pair": ONE_PAIR,
    "above_ideal": ABOVE_IDEAL,
    "end_lines": END_LINES,
    "clearly": CLEARLY,
    "blown_noises": BLOWN_NOISES,
    "blown_share": BLOWN_SHARE,
    "outside": OUTSIDE,
}
"""The rules by the name of what they give; tests/test_report_data.py follows them."""
