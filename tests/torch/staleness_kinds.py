# SPDX-License-Identifier: Apache-2.0
"""Kinds of calls in the matrix of stale weights: modules of ours, and what was called before the write."""
import torch

from support import DEVICE, H, I, K, MAX_TOKENS
from moejit.torch import Experts
from staleness_calls import (autocast, autocast_step, captured, captured_step, checkpointed_step, compiled,
                             compiled_step, eager, exported, first_microbatch, frozen, inference_mode, next_microbatch,
                             step, unskipped_step, update)
from staleness_case import RECIPES, E, Kind, float32

SHARDED = ("memory", "optimizer")
MEMORY = (*SHARDED, "unsharded")
COPIED = (*MEMORY, "replace", "swap", "structure", "copy")
ALL = (*COPIED, "functional")
WITHOUT_GRADIENTS = (*ALL, "inference")


def make(recipe, **options):
    torch.manual_seed(0)
    return Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe=recipe, device=DEVICE, **options), ""


def kind(name, prime, calls, sorts=ALL, device=None, recipes=RECIPES, **options):
    return Kind(name, make, prime, calls, sorts, options, recipes, float32, device=device)


KEPT = {"cache_weights": True}
KINDS = (
    kind("eager", (eager,), (eager,), WITHOUT_GRADIENTS),
    kind("inference mode", (inference_mode,), (inference_mode,), WITHOUT_GRADIENTS),
    kind("frozen", (frozen,), (frozen,), COPIED),
    kind("compiled behind eager", (eager, compiled), (compiled,)),
    kind("compiled first", (compiled, eager), (compiled, eager)),
    kind("eager behind compiled", (compiled, eager), (eager, compiled)),
    kind("compiled training behind evaluation", (eager, compiled_step), (compiled_step, compiled, eager)),
    kind("evaluation in compiled training", (compiled_step, eager), (eager, compiled_step)),
    kind("training behind evaluation", (eager, step), (step, eager)),
    kind("evaluation in training", (step, eager), (eager, step)),
    kind("kept in training", (step,), (step, eager), **KEPT),
    kind("kept in evaluation", (step, eager), (eager, step), **KEPT),
    kind("kept in compiled training", (step, compiled_step), (compiled_step, compiled, eager), **KEPT),
    kind("kept and computed again", (step,), (step, eager), recompute="moe_expert", **KEPT),
    kind("microbatches", (first_microbatch, next_microbatch), (first_microbatch, next_microbatch, eager)),
    kind("evaluation behind microbatches", (first_microbatch, next_microbatch, eager), (eager, step, compiled)),
    kind("skip_update of 0", (unskipped_step, eager), (unskipped_step, eager), **KEPT),
    kind("reentrant checkpoint", (checkpointed_step,), (checkpointed_step, eager), COPIED),
    kind("autocast", (autocast,), (autocast, autocast_step), (*MEMORY, "replace", "swap", "copy"),
         dtype=torch.float32),
    kind("updated", (update, eager, compiled), (update, compiled, eager, step), COPIED),
    kind("exported", (exported,), (exported,), MEMORY),
    kind("captured behind eager", (eager, captured), (captured, eager), MEMORY, device="cuda"),
    kind("captured training", (eager, captured_step), (captured_step, eager), MEMORY, device="cuda"))
