"""A trace of torch's profiler -> what a GPU did in a step: `reduce_trace(events)`.

The events are those of a Chrome trace (`export_chrome_trace`): `ts` and `dur` in microseconds;
`kernel`, `gpu_memcpy` and `gpu_memset` on the GPU, `cuda_runtime` and `cuda_driver` for the calls
that start them (the same `correlation`), `user_annotation` for ranges of the program. Only
durations of kernels, which the profiler does not stretch, and orders of magnitude of the rest are
taken from a trace; how long a step takes is measured without the profiler.
"""

from bisect import bisect_right

PREFIX = "dpbench:"
"""Begins the names of the ranges that profile_steps.py marks."""
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
HOST_CALLS = ("cuda_runtime", "cuda_driver")
LAUNCHES = ("LaunchKernel", "GraphLaunch")
MOST_COLLECTIVES = 2000
"""So many exchanges a trace are kept one by one; more of them are only summed."""


def reduce_trace(events):
    """Return the figures of one rank, a mean over the steps of the trace; None without a step.

    Times in milliseconds a step: `busy_ms` of kernels and copies that are no collective, with
    `optimizer_busy_ms` of it; `collective_ms` of NCCL's kernels and `exposed_ms`, the part of it
    during which nothing else ran; `idle_ms` when nothing ran at all; `sync_ms` in which the host
    waited for the GPU. `collectives` lists [duration, exposed part] in order, of all steps.
    """
    events = [event for event in events if event.get("ph") == "X" and "dur" in event]
    steps = ranges(events, "step")
    if not steps:
        return None
    first, last = steps[0][0], steps[-1][1]
    if all(event.get("cat") not in ON_GPU for event in events):
        return reduce_cpu_trace(events, first, last, len(steps))
    on_gpu = [event for event in events if event.get("cat") in ON_GPU and first <= event["ts"]]
    on_gpu = sorted(
        (event for event in on_gpu if event["ts"] < last), key=lambda event: event["ts"]
    )
    collectives = [interval(event) for event in on_gpu if is_collective(event)]
    others = [event for event in on_gpu if not is_collective(event)]
    busy = union([interval(event) for event in others])
    optimizer = within(events, others, ranges(events, "optimizer"))
    exposed = [length(outside([one], busy)) for one in collectives]
    calls = [event for event in events if event.get("cat") in HOST_CALLS]
    calls = [event for event in calls if first <= event["ts"] < last]
    a_step = 1000 * len(steps)
    working = length(union(busy + collectives))
    return {
        "steps": len(steps),
        "step_ms": (last - first) / a_step,
        "busy_ms": length(busy) / a_step,
        "optimizer_busy_ms": length(union(optimizer)) / a_step,
        "collective_ms": sum(end - start for start, end in collectives) / a_step,
        "exposed_ms": length(outside(union(collectives), busy)) / a_step,
        "idle_ms": max(last - first - working, 0) / a_step,
        "copy_ms": sum(event["dur"] for event in others if event["cat"] != "kernel") / a_step,
        "sync_ms": sum(event["dur"] for event in calls if "Synchronize" in event["name"]) / a_step,
        "kernels": sum(event["cat"] == "kernel" for event in on_gpu) / len(steps),
        "launches": sum(is_launch(event) for event in calls) / len(steps),
        "collectives": [
            [(end - start) / 1000, alone / 1000]
            for (start, end), alone in zip(collectives, exposed, strict=True)
        ][:MOST_COLLECTIVES],
    }


def reduce_cpu_trace(events, first, last, steps):
    """Return what a trace without a GPU tells: how long gloo's threads exchanged."""
    gloo = [event for event in events if event.get("name", "").startswith("gloo:")]
    gloo = [event for event in gloo if first <= event["ts"] < last]
    return {
        "steps": steps,
        "step_ms": (last - first) / 1000 / steps,
        "collective_ms": length(union(map(interval, gloo))) / 1000 / steps,
        "collectives": [[event["dur"] / 1000, None] for event in gloo][:MOST_COLLECTIVES],
    }


def is_collective(event):
    """Tell whether a kernel is one of NCCL's."""
    return event["cat"] == "kernel" and event["name"].startswith("nccl")


def is_launch(event):
    """Tell whether a call starts a kernel or a graph of them."""
    return any(word in event["name"] for word in LAUNCHES)


def interval(event):
    """Return start and end of an event."""
    return event["ts"], event["ts"] + event["dur"]


def ranges(events, name):
    """Return start and end of each range of the program with this name, in order."""
    found = [event for event in events if event.get("name") == PREFIX + name]
    return sorted(interval(event) for event in found if event.get("cat") == "user_annotation")


def within(events, on_gpu, spans):
    """Return the intervals of those GPU events that were started inside one of the spans."""
    starts = [start for start, _ in spans]

    def inside(moment):
        place = bisect_right(starts, moment) - 1
        return place >= 0 and moment < spans[place][1]

    calls = {
        event["args"]["correlation"]
        for event in events
        if event.get("cat") in HOST_CALLS
        and "correlation" in event.get("args", {})
        and inside(event["ts"])
    }
    return [
        interval(event) for event in on_gpu if event.get("args", {}).get("correlation") in calls
    ]


def union(intervals):
    """Return disjoint intervals, in order, that cover the same time."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def outside(intervals, covered):
    """Return the parts of intervals that are in none of `covered`, which are disjoint, in order."""
    ends = [end for _, end in covered]
    parts = []
    for start, end in intervals:
        for place in range(bisect_right(ends, start), len(covered)):
            if covered[place][0] >= end:
                break
            if covered[place][0] > start:
                parts.append((start, covered[place][0]))
            start = max(start, covered[place][1])
        if start < end:
            parts.append((start, end))
    return parts


def length(intervals):
    """Return the time that disjoint intervals cover."""
    return sum(end - start for start, end in intervals)
