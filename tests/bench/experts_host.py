# SPDX-License-Identifier: Apache-2.0
"""Measures what a call costs the host, outside of the driver, beside what torch takes for calls that do nothing.

libmoejit_timed_cuda.so measures the time that the library's calls spend in the driver, mainly in launches: build the
target `moejit_timed_cuda` and name the file in MOEJIT_CUDA_DRIVER. Without it the times include the launches. In the
simulator the times include the kernels themselves and say nothing, unless calls of layers do nothing: build the target
`moejit_idle_layer` and name the file in LD_PRELOAD. The blocks of quantized weights are cleared there, which takes as
long as they are large: `--experts 1`.

With MOEJIT_TORCH_FLOOR there are rows of the floor under these calls (experts_floor). With --group there are rows of
modules whose process group has one rank: what a group's calls add, without waits for other ranks.
"""
import ctypes
import json
import os
import pathlib
import statistics
import sys
import time

import torch

import experts_floor

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "torch"))
import thread_ranks  # noqa: E402 (lies in another folder)

_HIDDEN, _INTERMEDIATE, _TOP_K, _TOKENS = 256, 128, 2, 16


class Driver:
    """The counters of libmoejit_timed_cuda.so."""

    NAMES = ("nanoseconds", "calls", "launches", "waits")

    def __init__(self):
        path = os.environ.get("MOEJIT_CUDA_DRIVER")
        library = ctypes.CDLL(path) if path and torch.cuda.is_available() else None
        self.functions = []
        if library is not None and hasattr(library, "timed_cuda_nanoseconds"):
            self.functions = [getattr(library, f"timed_cuda_{name}") for name in self.NAMES]
            for function in self.functions:
                function.restype = ctypes.c_int64

    @property
    def is_timed(self):
        return bool(self.functions)

    def read(self):
        return [function() for function in self.functions]

    def overhead_us(self):
        """Returns the median cost of timing one call of the driver, outside of the time that it counts as inside."""
        library = ctypes.CDLL(os.environ["MOEJIT_CUDA_DRIVER"])
        context, samples = ctypes.c_void_p(), []
        for _ in range(2000):
            before, start = self.read()[0], time.perf_counter_ns()
            for _ in range(64):
                library.cuCtxGetCurrent(ctypes.byref(context))
            inside = self.read()[0] - before
            samples.append((time.perf_counter_ns() - start - inside) / 64)
        call_by_ctypes = []
        for _ in range(2000):
            start = time.perf_counter_ns()
            for _ in range(64):
                self.functions[1]()
            call_by_ctypes.append((time.perf_counter_ns() - start) / 64)
        return max(0.0, statistics.median(samples) - statistics.median(call_by_ctypes)) * 1e-3


def timed(call, prepare, driver, overhead_us, repeats, device, calls_between_waits):
    """Returns the median time of a call in us, the driver's part of it, and its numbers of launches and waits.

    The host waits for the device after each `calls_between_waits` calls.
    """
    whole, inside, counts = [], [], None
    for index in range(repeats + repeats // 10):
        prepare()
        if device.type == "cuda" and index % calls_between_waits == 0:
            torch.cuda.synchronize()
        before, start = driver.read(), time.perf_counter_ns()
        call()
        end, after = time.perf_counter_ns(), driver.read()
        if index < repeats // 10:  # to warm up
            continue
        whole.append((end - start) * 1e-3)
        if driver.is_timed:
            counts = [second - first for first, second in zip(before, after)]
            inside.append(counts[0] * 1e-3 + counts[1] * overhead_us)
    fields = {"whole_us": round(statistics.median(whole), 2)}
    if driver.is_timed:
        own = statistics.median(first - second for first, second in zip(whole, inside))
        fields.update(own_us=round(own, 2), driver_us=round(statistics.median(inside), 2), launches=counts[2],
                      waits=counts[3])
    return fields


def times(call, prepare, driver, overhead_us, repeats, device):
    """Returns times of back-to-back calls, and those of calls after a wait, whose names begin with "cool"."""
    # 16 calls with at most 20 launches each fit into the device's queue, so no launch waits for a place.
    hot = timed(call, prepare, driver, overhead_us, repeats, device, 16)
    cool = timed(call, prepare, driver, overhead_us, repeats, device, 1)
    return {**hot, **{f"cool_{name}": cool[name] for name in ("whole_us", "own_us") if name in cool}}


def allocations(call, prepare, device):
    """Returns how often a call asks PyTorch's allocator for memory; None on the CPU."""
    if device.type != "cuda":
        return None
    prepare()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    call()
    return torch.cuda.memory_stats()["allocation.all.allocated"] - before


def syncs(call, prepare, device):
    """Returns PyTorch's message about a wait for the device during a call; empty if there was none."""
    if device.type != "cuda":
        return ""
    prepare()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
        return ""
    except RuntimeError as error:
        return str(error).split("\n")[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")


def nothing():
    pass


class ModuleCalls:
    """Calls of a module, with and without gradients."""

    def __init__(self, module, x, ids, probs, dy):
        self.module, self.ids, self.dy = module, ids, dy
        self.plain = (x, probs)
        self.leaves = (x.clone().requires_grad_(), probs.clone().requires_grad_())
        self.y = None

    def without_gradients(self):
        with torch.no_grad():
            self.module(self.plain[0], self.ids, self.plain[1])

    def forward(self):
        self.y = self.module(self.leaves[0], self.ids, self.leaves[1])

    def before_backward(self):
        for leaf in (*self.leaves, *self.module.parameters()):
            leaf.grad = None
        self.forward()

    def backward(self):
        self.y.backward(self.dy)

    def rows(self, prefix):
        yield f"{prefix}module, no_grad", self.without_gradients, nothing
        # This call quantizes the weights too.
        yield f"{prefix}module, forward with autograd", self.forward, nothing
        yield f"{prefix}backward", self.backward, self.before_backward


def calls_of(experts, recipe, device):
    """Yields the name, the call, and a function to run before each call, outside of the measured time."""
    import moejit.torch
    from moejit.torch.layers import inputs_of, reads_of
    module = moejit.torch.Experts(experts, _HIDDEN, _INTERMEDIATE, _TOP_K if experts > 1 else 1, max_tokens=_TOKENS,
                                  recipe=recipe, device=device)
    x = torch.randn(_TOKENS, _HIDDEN, device=device, dtype=torch.bfloat16)
    # These inputs need no cast: PyTorch's own launches are not the module's cost.
    ids = torch.randint(experts, (_TOKENS, _TOP_K if experts > 1 else 1), device=device, dtype=torch.int32)
    probs = torch.rand(ids.shape, device=device)
    dy = torch.randn_like(x)
    fields = json.loads(module.description)
    layer = moejit.torch.layer_text({**fields, "passes": ["forward"]},
                                    "sim" if device.type == "cpu" else "cuda:sm_90a")
    w1, w2 = module.gate_up_proj.detach(), module.down_proj.detach()
    none = x.new_empty(0)
    quantized = moejit.torch.run(layer, "update_weights", {"w1": w1, "w2": w2}).get("quantized", none.byte())
    given = dict(zip(inputs_of(layer), (x, ids, probs, w1, w2, none, none, quantized)))
    reads = [given[name] for name in reads_of(layer, "forward")]
    on_cpu = torch.ones(2)
    yield "torch.add on the CPU, to compare with", lambda: torch.add(on_cpu, on_cpu), nothing
    yield "torch.add, to compare with", lambda: torch.add(x, x), nothing
    yield "torch.empty, to compare with", lambda: torch.empty(16, device=device), nothing
    if experts_floor.is_available():
        floor_call = experts_floor.operator()
        yield "floor: operator", lambda: floor_call(reads, "forward", layer), nothing
        floor = experts_floor.module_of(w1, w2, quantized, layer)
        yield from ModuleCalls(floor, x, ids, probs, dy).rows("floor: ")
    operator = torch.ops.moejit.call.default
    yield "operator moejit::call", lambda: operator(reads, "forward", layer), nothing
    yield from ModuleCalls(module, x, ids, probs, dy).rows("")


def calls_of_group(experts, recipe, device, group):
    """Yields what calls_of() does of modules alone, for one whose process group is given."""
    import moejit.torch
    top_k = _TOP_K if experts > 1 else 1
    for name, cache_weights in (("group: ", None), ("group, kept weights: ", True)):
        module = moejit.torch.Experts(experts, _HIDDEN, _INTERMEDIATE, top_k, max_tokens=_TOKENS, recipe=recipe,
                                      device=device, process_group=group, cache_weights=cache_weights)
        x = torch.randn(_TOKENS, _HIDDEN, device=device, dtype=torch.bfloat16)
        ids = torch.randint(experts, (_TOKENS, top_k), device=device, dtype=torch.int32)
        yield from ModuleCalls(module, x, ids, torch.rand(ids.shape, device=device), torch.randn_like(x)).rows(name)


def with_group_of_one(device, function):
    """Returns what the function returns, of a process group that has one rank."""
    if device.type == "cpu":
        return thread_ranks.run_on_threads(lambda group, rank: function(group), 1)[0]
    torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1,
                                         device_id=torch.device("cuda", torch.cuda.current_device()))
    try:
        return function(torch.distributed.group.WORLD)
    finally:
        torch.distributed.destroy_process_group()


def measure(device, settings):
    """Returns the fields of a result."""
    driver = Driver()
    overhead_us = driver.overhead_us() if driver.is_timed else 0.0
    repeats = 1 if settings.tiny else 2000

    def rows_of(calls, experts):
        for name, call, prepare in calls:
            prepare()
            call()
            yield {"call": name, "experts": experts, **times(call, prepare, driver, overhead_us, repeats, device),
                   "allocations": allocations(call, prepare, device), "sync": syncs(call, prepare, device)}

    rows = []
    for experts in (int(number) for number in settings.experts.split(",")):
        rows += rows_of(calls_of(experts, settings.recipe, device), experts)
        if settings.group:
            rows += with_group_of_one(device, lambda group, number=experts: list(
                rows_of(calls_of_group(number, settings.recipe, device, group), number)))
    return {"recipe": settings.recipe, "hidden": _HIDDEN, "intermediate": _INTERMEDIATE, "top_k": _TOP_K,
            "tokens": _TOKENS, "driver_is_timed": driver.is_timed, "timing_overhead_us": round(overhead_us, 4),
            "calls": rows}
