#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times MoE layers of megatron-core with its own experts and with moejit's, on one rank. Prints a result as JSON.

A step is forward and backward of MoELayer: router, dispatcher, experts, combine. Times are medians, as those of
hf_experts_bench.py. Memory is the peak of PyTorch's allocator during a step, less the memory before it. For moejit it
also tells whether the host waits in a step of the experts, and of the layer (sync debug mode "error"), and whether a
graph of it, captured once with the numbers of rows on the device, has the bits of an eager step with other tokens. Of a
capture that fails it prints the error and the call that ended it. A step of the experts alone is compared with
`moejit bench` of their layer, with as many rows.

With --main-grad gradients of weights are added to float32 buffers that exist before the step, as Megatron's
DistributedDataParallel makes them: moejit adds them itself, and a hook adds those of the other layers. With --fused
all layers have moe_router_fusion and moe_permute_fusion, by moejit.torch.te.patch().

  python3 -m pip install --no-deps --target DIR megatron-core==0.16.1    # DIR into PYTHONPATH, beside moejit
  python3 tests/bench/megatron_bench.py
  python3 tests/bench/megatron_bench.py --main-grad
  python3 tests/bench/megatron_bench.py --fused
  python3 tests/bench/megatron_bench.py --tiny    # small sizes; without a GPU in the simulator
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import shlex
import sys
import tempfile
import traceback

import torch
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "torch"))
os.environ.setdefault("MOEJIT_TEST_DEVICE", "cuda" if torch.cuda.is_available() else "cpu")
import bench_machine
import experts_steps
import experts_tool
import graph_capture
import megatron_device
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.moe.experts import SequentialMLP
from megatron.core.transformer.moe.moe_layer import MoELayer, MoESubmodules
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig

from moejit.torch import te
from moejit.torch.megatron import convert_spec

# (experts, choices, hidden, intermediate, tokens)
CASES = {"8 of 7168 x 2048, 32768 rows": (8, 4, 7168, 2048, 8192),
         "Qwen3-30B-A3B, 65536 rows": (128, 8, 2048, 768, 8192)}
TINY = {"tiny": (8, 2, 64, 32, 32)}
SEQUENTIAL = ModuleSpec(module=MoELayer, submodules=MoESubmodules(experts=ModuleSpec(
    module=SequentialMLP, submodules=MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear))))


class GroupedMM(torch.nn.Module):
    """Experts as Transformer Engine's would compute them, by torch's grouped GEMM."""

    def __init__(self, num_local_experts, config, submodules=None, pg_collection=None):
        super().__init__()
        hidden, intermediate = config.hidden_size, config.moe_ffn_hidden_size
        self.w1, self.w2 = (
            torch.nn.Parameter(torch.empty(num_local_experts, *shape, dtype=torch.bfloat16, device=DEVICE))
            for shape in ((2 * intermediate, hidden), (hidden, intermediate)))

    def forward(self, rows, tokens_per_expert, probs):
        ends = tokens_per_expert.to(rows.device).cumsum(0).int()
        gate, up = F.grouped_mm(rows, self.w1.transpose(1, 2), offs=ends).chunk(2, -1)
        return F.grouped_mm((F.silu(gate) * up * probs[:, None]).bfloat16(), self.w2.transpose(1, 2), offs=ends), None


def of_moejit(recipe, kind, **options):
    def spec_of(tokens, rows):
        return convert_spec(SEQUENTIAL, recipe, input=kind, max_tokens=rows if kind == "grouped" else tokens, **options)
    return spec_of


# (name, dispatcher, spec for so many tokens, and rows for all their choices)
LAYERS = (("SequentialMLP", "alltoall", lambda tokens, rows: SEQUENTIAL),
          ("grouped_mm", "alltoall",
           lambda tokens, rows: ModuleSpec(MoELayer, submodules=MoESubmodules(experts=GroupedMM))),
          *((f"moejit {recipe}, {kind}", dispatcher, of_moejit(recipe, kind)) for recipe in ("bf16", "fp8_flow")
            for kind, dispatcher in (("grouped", "alltoall"), ("tokens", "allgather"))))


def config_of(sizes, dispatcher, adds_itself, is_fused):
    experts, top_k, hidden, intermediate, _ = sizes
    return TransformerConfig(
        num_layers=1, hidden_size=hidden, num_attention_heads=4, ffn_hidden_size=intermediate,
        moe_ffn_hidden_size=intermediate, num_moe_experts=experts, moe_router_topk=top_k, gated_linear_unit=True,
        activation_func=F.silu, add_bias_linear=False, moe_token_dispatcher_type=dispatcher, bf16=True,
        moe_router_load_balancing_type="none", moe_aux_loss_coeff=0.0, moe_router_dtype="fp32",
        params_dtype=torch.bfloat16, gradient_accumulation_fusion=adds_itself, expert_tensor_parallel_size=1,
        moe_permute_fusion=is_fused, moe_router_fusion=is_fused,
        expert_model_parallel_size=moe_utils.get_default_pg_collection().ep.size(),
        use_cpu_initialization=DEVICE.type == "cpu", perform_initialization=False)


class Step:
    """A step of a layer or of its experts alone, as `call` and `leaf` have it."""

    def __init__(self, module, call, leaf, dy):
        self.module, self.call, self.leaf, self.dy = module, call, leaf, dy

    def forget_gradients(self):
        self.leaf.grad = None
        self.module.zero_grad(set_to_none=True)

    def __call__(self):
        self.forget_gradients()
        y, _ = self.call()
        y.backward(self.dy)
        return y

    def results(self):
        return [self().detach().clone(), self.leaf.grad.clone(),
                *(parameter.grad.clone() for parameter in self.module.parameters() if parameter.grad is not None)]


def add_to_main_grad(parameter):
    """Has backward add the parameter's gradient to its attribute main_grad, as Megatron's hooks do."""
    parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
    parameter.grad_added_to_main_grad = False

    def add(parameter):
        if not parameter.grad_added_to_main_grad:
            parameter.main_grad.add_(parameter.grad)
        parameter.grad = None

    parameter.register_post_accumulate_grad_hook(add)


def make_step(sizes, dispatcher, spec, adds_itself=False, main_grad=False, is_fused=False):
    """A layer's step. Weights and tokens are the same for all, since they come from one generator in one order."""
    layer = spec.module(config_of(sizes, dispatcher, adds_itself, is_fused), spec.submodules, layer_number=1,
                        pg_collection=moe_utils.get_default_pg_collection()).to(DEVICE)
    generator = torch.Generator(DEVICE).manual_seed(0)
    with torch.no_grad():
        for linear in "1", "2":  # SequentialMLP has one weight for each expert, and others all in one
            for name, weight in layer.experts.named_parameters():
                if f"fc{linear}.w" in name or name == f"w{linear}":
                    for expert in weight.view(-1, *weight.shape[-2:]):
                        expert.normal_(std=expert.shape[-1] ** -0.5, generator=generator)
        layer.router.weight.normal_(std=sizes[2] ** -0.5, generator=generator)
    x, dy = (torch.randn(sizes[4], 1, sizes[2], generator=generator, device=DEVICE).bfloat16() for _ in range(2))
    x.requires_grad_()
    for parameter in layer.parameters() if main_grad else ():
        add_to_main_grad(parameter)
    return Step(layer, lambda: layer(x), x, dy)


def experts_step(layer, sizes):
    """A step of the experts with numbers of rows on the device, or with tokens and their ids."""
    experts, top_k, hidden, _, tokens = sizes
    generator = torch.Generator(DEVICE).manual_seed(1)
    is_grouped = layer.experts.dispatcher is None
    rows = tokens * top_k if is_grouped else tokens
    x = torch.randn(rows, hidden, generator=generator, device=DEVICE).bfloat16().requires_grad_()
    ids = torch.rand(tokens, experts, generator=generator, device=DEVICE).topk(top_k).indices
    counts = torch.zeros(experts, dtype=torch.int64, device=DEVICE).index_add_(
        0, ids.flatten(), torch.ones(tokens * top_k, dtype=torch.int64, device=DEVICE))
    if not is_grouped:
        ids = experts_tool.with_choices_of_tool(ids)
    probs = torch.rand(rows, *(() if is_grouped else (top_k,)), generator=generator, device=DEVICE)
    dy = torch.randn(rows, hidden, generator=generator, device=DEVICE).bfloat16()
    return Step(layer.experts, lambda: layer.experts(x, counts if is_grouped else ids, probs), x, dy)


def compare_with_tool(alone, milliseconds, settings):
    """Returns fields about `moejit bench` of the layer that a step of the experts runs, beside the step's time."""
    layer = experts_tool.layer_of_calls(alone.module.hosted._state)
    result = experts_tool.run_tool(layer, alone.leaf.shape[0], settings.seconds, "uniform")
    return {"layer": json.loads(layer), **experts_tool.fields_beside(result, milliseconds)}


def wait_of_host(step):
    """What made the host wait in a step; empty: nothing."""
    step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
        return ""
    except RuntimeError as error:
        return str(error).split("\n")[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")


def measure(sizes, name, dispatcher, spec_of, want, settings, watch):
    """One row of a result: figures of a layer, or the error that stopped it."""
    row = {"experts": name, "dispatcher": dispatcher}
    try:
        step = make_step(sizes, dispatcher, spec_of(sizes[4], sizes[4] * sizes[1]),
                         settings.main_grad and "moejit" in name, settings.main_grad, settings.fused)
        y = step().detach()
        row["error_beside_sequential"] = experts_steps.relative_error(y, want.setdefault("y", y))
        row["peak_bytes"] = experts_steps.peak_bytes(step, DEVICE)
        row.update(experts_steps.time_call(step, DEVICE, settings, watch, "step"))
        if "moejit" in name:
            alone = experts_step(step.module, sizes)
            row.update(experts_steps.time_call(alone, DEVICE, settings, watch, "experts_step"))
            if DEVICE.type == "cuda":
                row["waits"] = {"layer": wait_of_host(step), "experts": wait_of_host(alone)}
                kinds = {"experts": alone, "layer": step} if dispatcher == "allgather" else {"experts": alone}
                row["graphs"] = {kind: graph_capture.explained(kinds[kind]) for kind in settings.graphs if kind in kinds}
                row.update(compare_with_tool(alone, row["experts_step_hot_ms"], settings))
                print(f"{name}, experts: {experts_tool.ratio_text(row, 'experts_step')}", file=sys.stderr, flush=True)
    except Exception as error:  # of any kind: the others must still be timed
        row["error"] = f"{type(error).__name__}: {error}".strip().split("\n")[0]
        traceback.print_exc()
    tell_of_graphs(name, row.get("graphs", {}))
    print(f"{name}: " + (row.get("error") or f"{row['step_hot_ms']:.3f} ms a step"), file=sys.stderr, flush=True)
    return row


def tell_of_graphs(name, graphs):
    """Prints what is known of captures that failed."""
    for kind, found in graphs.items():
        for mode in ("error", *graph_capture.MODES) if "error" in found else ():
            told = found.get(mode)
            print(f"{name}, graph of the {kind}, {mode}: " +
                  (told if isinstance(told, str) else json.dumps(told, indent=1)), file=sys.stderr)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="small sizes and few repeats: to try the program")
    parser.add_argument("--case", default="", help="only cases whose names contain this")
    parser.add_argument("--only", default="", help="only layers whose names contain this")
    parser.add_argument("--main-grad", action="store_true", help="add gradients of weights to float32 buffers")
    parser.add_argument("--fused", action="store_true", help="choose experts and permute by moejit.torch.te in all layers")
    parser.add_argument("--graphs", nargs="*", default=["experts", "layer"], choices=("experts", "layer"),
                        help="of what CUDA graphs are captured, in this order")
    parser.add_argument("--seconds", type=float, default=2.0, help="of hot steps, behind half as many of warm-up")
    parser.add_argument("--cool-repeats", type=int, default=10)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds before each cool step")
    parser.add_argument("--warm-ups", type=int, default=3)
    settings = parser.parse_args(arguments)
    if settings.tiny:
        settings.seconds, settings.cool_repeats, settings.warm_ups = 0.1, 1, 1
    return settings


def measure_case(sizes, settings, watch):
    """The rows of the layers that are asked for."""
    if settings.fused:
        te.patch(top_k=sizes[1])
    want = {}
    try:
        with megatron_device.OnCpu() if DEVICE.type == "cpu" else contextlib.nullcontext():
            return [measure(sizes, *layer, want, settings, watch) for layer in LAYERS if settings.only in layer[0]]
    finally:
        te.patch(False)


def main(arguments):
    settings = parse(arguments)
    folder = tempfile.TemporaryDirectory()
    torch.distributed.init_process_group("gloo" if DEVICE.type == "cpu" else "nccl", rank=0, world_size=1,
                                         init_method=f"file://{folder.name}/group")
    megatron_device.start(1)
    watch = bench_machine.Watch(DEVICE)
    cases = [{"name": case, "layers": measure_case(sizes, settings, watch)}
             for case, sizes in (TINY if settings.tiny else CASES).items() if settings.case in case]
    now = datetime.datetime.now(datetime.timezone.utc)
    print(json.dumps({"kind": "megatron", "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
                      "command_line": shlex.join(["python3", "tests/bench/megatron_bench.py", *arguments]),
                      "gpu": bench_machine.gpu_facts(DEVICE, watch), "versions": bench_machine.versions(),
                      "cases": cases}, indent=1))
    megatron_device.stop()
    folder.cleanup()


DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if __name__ == "__main__":
    main(sys.argv[1:])
