# SPDX-License-Identifier: Apache-2.0
"""Measures times, memory and errors of a step."""
import statistics
import time

import torch

_STEPS_AHEAD = 4  # the host may enqueue so many before it waits
_FLUSHED_BYTES = 256 << 20
_CYCLES_FOR_THE_HOST = 2_000_000  # about a millisecond, in which the host enqueues the step


def relative_error(got, want):
    """Returns the Frobenius norm of the difference, relative to that of the wanted tensor."""
    got, want = got.float(), want.float()
    return float(torch.linalg.vector_norm(got - want) / torch.linalg.vector_norm(want))


def hot_cuda(call, seconds, watch):
    """Returns the times of back-to-back calls, in ms: from the end of one call to the end of the next."""
    marks = [torch.cuda.Event(enable_timing=True)]
    marks[0].record()
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(marks) < 4:
        call()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        if len(marks) > _STEPS_AHEAD:
            marks[-1 - _STEPS_AHEAD].synchronize()
            watch.sample()
    marks[-1].synchronize()
    return [first.elapsed_time(second) for first, second in zip(marks, marks[1:])]


def cool_cuda(call, repeats, device, pause):
    """Returns the times of single calls, in ms, each after a pause and with an empty L2 cache.

    A spinning kernel keeps the GPU busy while the host enqueues the call, so the time is that of the device alone,
    unless the call waits for the device.
    """
    flushed = torch.empty(_FLUSHED_BYTES // 4, dtype=torch.int32, device=device)
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        time.sleep(pause)
        flushed.zero_()
        torch.cuda._sleep(_CYCLES_FOR_THE_HOST)
        first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        call()
        second.record()
        second.synchronize()
        times.append(first.elapsed_time(second))
    return times


def host_times(call, repeats):
    """Returns the times of calls by the host's clock, in ms."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def time_call(call, device, settings, watch, name):
    """Returns the median hot and cool times of a call, as fields of a result whose names begin with `name`."""
    for _ in range(settings.warm_ups):
        call()
    if device.type != "cuda":
        return {f"{name}_hot_ms": statistics.median(host_times(call, settings.cool_repeats))}
    torch.cuda.synchronize()
    hot_cuda(call, settings.seconds / 2, watch)
    watch.take(name)
    hot = hot_cuda(call, settings.seconds, watch)
    fields = {f"{name}_hot_ms": statistics.median(hot), f"{name}_hot_calls": len(hot), **watch.take(f"{name}_hot")}
    cool = cool_cuda(call, settings.cool_repeats, device, settings.pause)
    fields[f"{name}_cool_ms"] = statistics.median(cool)
    return fields


def peak_bytes(step, device):
    """Returns a step's peak memory beyond that which exists before it: weights, inputs, gradient of the result.

    Gradients of weights and inputs count, since the step makes them. Returns None on the CPU.
    """
    if device.type != "cuda":
        return None
    step()
    step.forget_gradients()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    resident = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - resident
    step.forget_gradients()
    return peak
