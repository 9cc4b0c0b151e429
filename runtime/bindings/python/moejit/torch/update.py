# SPDX-License-Identifier: Apache-2.0
"""Updates of whole models: kept weights, for compiled and captured inference, and scales."""
from __future__ import annotations

import torch

from moejit.torch import hf, scales
from moejit.torch.experts import Experts
from moejit.torch.gathered import is_sharded


def update_weights(model: torch.nn.Module) -> None:
    """Quantizes the weights of all experts of a model now, and promises that they change only before the next
    update_weights().

    Calls without gradients then do not look whether weights have changed, which takes some microseconds otherwise. Call
    this before a model is compiled or captured, and after each change of its weights: an optimizer's step,
    load_state_dict(), another model in its place. The kept weights stay in the same memory, so nothing is compiled or
    captured again. An eager call with gradients takes the promise back. docs/weights.md has the rules.

    Args:
        model: A model with moejit.torch.Experts, with modules that moejit.torch.convert() changed, or with an
            implementation of moejit.torch.register_hf() set. Modules with `cache_weights=False` keep nothing.

    Raises:
        RuntimeError: There are no such modules, or FSDP shards one, whose weights then exist only while calls run.
            Nothing is kept in these cases.

    Example:
        >>> moejit.torch.update_weights(model)
        >>> model.forward = torch.compile(model.forward)
        >>> model.load_state_dict(state)
        >>> moejit.torch.update_weights(model)
    """
    found = hf.experts_of(model)
    for name, module in found.items():
        if is_sharded(module):
            raise RuntimeError(f"moejit: unsupported: {name or '(model)'} is sharded by FSDP, which frees the weights "
                               "between calls\nhint: nothing is kept then; leave update_weights() out")
    for module in found.values():
        if not isinstance(module, Experts):
            hf.keep_weights(module)
        elif module._call.cache_weights is not False:
            module.update_weights()


def update_scales(model: torch.nn.Module, amax_reduction_group: torch.distributed.ProcessGroup | None = None) -> None:
    """Calls update_scales() of all Experts of a model whose recipe is "fp8_delayed".

    Args:
        model: A model with such modules, made with `update_scales_in_backward=False`.
        amax_reduction_group: Ranks with copies of the model. They reduce what all modules have recorded, with max, in
            one collective.

    Raises:
        RuntimeError: There are no such modules.
    """
    found = [module for module in model.modules() if isinstance(module, Experts) and module._scaling_state()]
    if not found:
        raise RuntimeError(f'moejit: unsupported: {type(model).__name__} has no experts of recipe "fp8_delayed"\nhint: '
                           "other recipes have no scales that follow from the steps before: leave update_scales() out")
    if amax_reduction_group is not None:
        scales.reduce_amaxes([module._scaling_state() for module in found], amax_reduction_group)
    for module in found:
        module.update_scales()
