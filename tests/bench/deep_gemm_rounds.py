# SPDX-License-Identifier: Apache-2.0
"""Rounds of deep_gemm_bench.py: blocks of launches in turns, with clock and power while they run."""
import ctypes
import math
import statistics
import time

import torch

import bench_machine

_SM_CLOCK = 1  # NVML_CLOCK_SM
_SAMPLE_SECONDS = 0.005
_SETTLE_SECONDS = 0.1  # of a block: until then the energy counter may tell of what ran before
_ESTIMATE_LAUNCHES = 5
_GRAPH_MS = 5.0  # of launches in a graph: so long that the host is ahead of the GPU whatever a launch costs it


class EnergyWatch(bench_machine.Watch):
    """Clock and energy counter of the current GPU while a block runs."""

    def begin(self):
        """Starts a block: the first record waits, so that the host gets ahead of the GPU."""
        self.samples, self.last = [], time.monotonic()

    def sample(self):
        """Records clock and energy, if the last record is old enough."""
        if self.handle is None or time.monotonic() - self.last < _SAMPLE_SECONDS:
            return
        clock = self._ask("nvmlDeviceGetClockInfo", _SM_CLOCK)
        energy = self._ask("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong)
        self.last = time.monotonic()  # NVML may take milliseconds: between records the host catches up
        self.samples.append((self.last, clock, energy))

    def take(self):
        """Returns and forgets the records: the median MHz, and watts if the energy counter made steps enough for them.
        """
        samples, self.samples = self.samples, []
        found = {}
        clocks = [clock for _, clock, _ in samples if clock is not None]
        if clocks:
            found["mhz"] = statistics.median(clocks)
        watts = watts_of([(when, energy) for when, _, energy in samples if energy is not None])
        if watts is not None:
            found["watts"] = round(watts, 1)
        return found


def watts_of(readings):
    """Returns the power between the first and the last step of the energy counter, or None if they are too close.

    Args:
        readings: Pairs of seconds and millijoules. The counter advances in steps, some of them far apart.
    """
    if not readings:
        return None
    begin, end = readings[0][0], readings[-1][0]
    settled = begin + min(_SETTLE_SECONDS, (end - begin) / 4)
    steps = [now for before, now in zip(readings, readings[1:]) if now[1] != before[1] and now[0] >= settled]
    if len(steps) < 2 or steps[-1][0] - steps[0][0] < 0.4 * (end - begin):
        return None
    return (steps[-1][1] - steps[0][1]) / 1000 / (steps[-1][0] - steps[0][0])


class Graph:
    """Back-to-back launches as a CUDA graph, so that no block waits for the host.

    Attributes:
        launches: How many it has.
    """

    def __init__(self, call):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        call()
        begin.record()
        for _ in range(_ESTIMATE_LAUNCHES):
            call()
        end.record()
        end.synchronize()
        self.launches = max(1, math.ceil(_GRAPH_MS * _ESTIMATE_LAUNCHES / begin.elapsed_time(end)))
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for _ in range(self.launches):
                call()

    def __call__(self):
        self._graph.replay()


def time_block(graph, replays, watch):
    """Returns the mean milliseconds of a launch in back-to-back replays, with clock and power where they are known."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph()  # while it runs, those that count are queued
    begin.record()
    watch.begin()
    for _ in range(replays):
        graph()
        watch.sample()
    end.record()
    is_host_bound = end.query()  # then the GPU has waited for the host, and the time is the host's
    while not end.query():
        watch.sample()
        time.sleep(0.0005)
    launches = replays * graph.launches
    return {"launches": launches, "ms": begin.elapsed_time(end) / launches, "is_host_bound": is_host_bound,
            **watch.take()}


def run(calls, settings, watch, order):
    """Returns the blocks of all rounds, and those for energy.

    Args:
        calls: Functions that launch once on the current stream, by the variant's name; the first heats the GPU.
        order: A random.Random.
    """
    graphs = {name: Graph(call) for name, call in calls.items()}
    times = {name: time_block(graph, 1, watch)["ms"] for name, graph in graphs.items()}

    def block(name, milliseconds):
        # A tenth more: clocks are not those of the estimate.
        graph = graphs[name]
        found = time_block(graph, math.ceil(1.1 * milliseconds / times[name] / graph.launches), watch)
        times[name] = found["ms"]
        return {"variant": name, **found}

    block(next(iter(calls)), 1000 * settings.heat_seconds)
    blocks, energy = [], []
    for number in range(settings.rounds):
        for name in order.sample(list(calls), len(calls)):
            blocks.append({"round": number, **block(name, settings.block_ms)})
    if settings.energy_ms > 0:
        names = list(calls)
        for name in names + names[::-1]:
            energy.append(block(name, settings.energy_ms))
    return blocks, energy


def _median(blocks, key):
    values = [block[key] for block in blocks if block.get(key) is not None]
    return statistics.median(values) if values else None


def summarize(blocks, energy, flops):
    """Returns by variant: TFLOP/s, clock, power, energy, and the ratio to DeepGEMM in the same round."""
    rival = {block["round"]: block["ms"] for block in blocks if block["variant"] == "DeepGEMM"}
    found = {}
    for name in dict.fromkeys(block["variant"] for block in sorted(blocks, key=_place)):
        own = [block for block in blocks if block["variant"] == name]
        ratios = [rival[block["round"]] / block["ms"] for block in own]
        row = {"ms": _median(own, "ms"), "mhz": _median(own, "mhz"), "ratio": statistics.median(ratios),
               "least": min(ratios), "greatest": max(ratios)}
        row["tflops"] = flops / row["ms"] / 1e9
        row["host_bound_blocks"] = sum(block["is_host_bound"] for block in own)
        long = [block for block in energy if block["variant"] == name]
        row["watts"] = _median(long, "watts")
        joules = [block["watts"] * block["ms"] / 1e3 for block in long if block.get("watts")]
        row["energy_mhz"] = _median(long, "mhz")
        row["joules_per_launch"] = statistics.fmean(joules) if joules else None
        row["pj_per_flop"] = row["joules_per_launch"] / flops * 1e12 if joules else None
        found[name] = row
    return found


def _place(block):
    return ("usual", "DeepGEMM", "tuned").index(block["variant"])


def mean_text(name, cases):
    """Returns a line with the geometric mean of a variant's ratios over the cases, or nothing without the variant."""
    ratios = [case[name]["ratio"] for case in cases if name in case]
    if not ratios:
        return ""
    return (f"{name} by DeepGEMM, geometric mean of {len(ratios)}: {statistics.geometric_mean(ratios):.4f}, "
            f"{min(ratios):.3f} to {max(ratios):.3f}\n")
