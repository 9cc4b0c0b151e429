# SPDX-License-Identifier: Apache-2.0
"""Experts as a module of flax.nnx."""
from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.nn.initializers import Initializer, zeros

from moejit.jax.experts import experts
from moejit.jax.flax import weights
from moejit.jax.plans import Plan, init_state


class ScalingState(nnx.Variable):
    """A part of the state of delayed scaling. Its gradient is the state after the step, with which nnx.update() replaces it."""


class Experts(nnx.Module):
    """The experts of a layer, with a parameter for each name in Plan.weights: nnx.Param `w1` [E, 2I, H], `w2` [E, H, I].

    With the recipe fp8_delayed it has a ScalingState for each name in Plan.state as well.

    Attributes:
        layer: The layer.
    """

    def __init__(self, layer: Plan, *, param_dtype: Any = jnp.float32, kernel_init: Initializer = weights.kernel_init,
                 bias_init: Initializer = zeros, rngs: nnx.Rngs) -> None:
        """Draws the parameters.

        Args:
            layer: What moejit.jax.plan() returned.
            param_dtype: The dtype of parameters and of their gradients. Calls round parameters to bf16.
            kernel_init, bias_init: Initializers of w1 and w2, whose last axis has the inputs, and of biases.
            rngs: The keys; the stream "params" is used.
        """
        self.layer = layer
        for name, shape in weights.shapes_of(layer).items():
            draw = weights.init_of(shape, kernel_init, bias_init)
            setattr(self, name, nnx.Param(draw(rngs.params(), shape, param_dtype)))
        for name, array in init_state(layer).items():
            setattr(self, name, ScalingState(array))

    def __call__(self, x: jax.Array, topk_ids: jax.Array, topk_probs: jax.Array, **options: Any) -> Any:
        """Computes moejit.jax.experts() of the parameters, with the options of that function."""
        params = weights.rounded({name: getattr(self, name)[...] for name in self.layer.weights})
        state = {name: getattr(self, name)[...] for name in self.layer.state}
        return experts(params, x, topk_ids, topk_probs, layer=self.layer, state=state, **options)
