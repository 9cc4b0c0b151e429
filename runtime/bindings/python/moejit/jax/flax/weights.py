# SPDX-License-Identifier: Apache-2.0
"""What both modules know of their parameters."""
from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.nn.initializers import Initializer, lecun_normal

from moejit.errors import Error
from moejit.jax.plans import Plan

kernel_init = lecun_normal(in_axis=-1, out_axis=-2, batch_axis=(0,))


def shapes_of(layer: Plan) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of parameters by name.

    Raises:
        moejit.Error: "unsupported": the layer has packed weights, which have no initial values.
    """
    structs = {name: layer.struct(name, 0) for name in layer.weights}
    for name, struct in structs.items():
        if struct.dtype != jnp.bfloat16:
            raise Error("unsupported", "plan", f"modules of flax have no packed weights, and the layer has {name}",
                        "give them to moejit.jax.experts()")
    return {name: struct.shape for name, struct in structs.items()}


def init_of(shape: tuple[int, ...], kernel: Initializer, bias: Initializer) -> Initializer:
    """Returns the initializer of a parameter by its shape."""
    return kernel if len(shape) == 3 else bias


def rounded(params: dict[str, Any]) -> dict[str, jax.Array]:
    """Returns parameters as layers take them, in bf16."""
    return {name: jnp.asarray(array, jnp.bfloat16) for name, array in params.items()}
