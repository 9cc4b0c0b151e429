# SPDX-License-Identifier: Apache-2.0
"""The state of delayed scaling, from step to step: how calls record in it, and how it moves on."""
from __future__ import annotations

import jax

from moejit.errors import Error
from moejit.jax import calls
from moejit.jax.calls import Arrays
from moejit.jax.plans import Plan


def update_scales(state: Arrays, *, layer: Plan) -> dict[str, jax.Array]:
    """Moves a state on by a step: finds the scales of the next step from the magnitudes that were recorded.

    The gradient of experts() has moved on already unless the call has `update_scales=False`.

    Args:
        state: What calls of the step have recorded.
        layer: The layer.

    Returns:
        The state of the next step, in the same memory if the caller's jit donates it.
    """
    moved = dict(state)
    for call in ("update_forward_scales", "update_backward_scales"):
        if layer.has_call(call) and layer.writes(call):
            moved |= calls.run(layer, call, moved, 0)
    return moved


def checked(state: Arrays | None, layer: Plan) -> dict[str, jax.Array]:
    """Returns the arrays of a state that a layer keeps.

    Raises:
        moejit.Error: "missing_tensor": there is no state, or a part of it is missing. "unsupported": see below.
    """
    missing = [name for name in layer.state if name not in (state or {})]
    if missing:
        raise Error("missing_tensor", "launch", f'the recipe "{layer.description["recipe"]}" keeps {missing[0]} from step to '
                    "step, and the state has none", "begin with moejit.jax.init_state(layer), and go on with the gradient "
                    "of the state")
    manual = jax.sharding.get_abstract_mesh().manual_axes if layer.state else ()
    # JAX would sum what devices have recorded, not take the largest: without the check nothing tells whether it does.
    if any(not calls.varying_axes(jax.lax.axis_index(axis)) for axis in manual):
        raise Error("unsupported", "plan", "a state in shard_map with check_vma=False: magnitudes of devices would be summed",
                    "leave check_vma at True")
    return {name: state[name] for name in layer.state}


def largest(recorded: Arrays, before: Arrays, axes: tuple[str, ...]) -> dict[str, jax.Array]:
    """Returns what all devices of mesh axes have recorded in a state that was the same on all."""
    if not axes:
        return dict(recorded)
    return {name: before[name].at[0].set(jax.lax.pmax(array[0], axes)) if array.ndim == 2 else before[name]
            for name, array in recorded.items()}
