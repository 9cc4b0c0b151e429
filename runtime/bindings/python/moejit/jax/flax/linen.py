# SPDX-License-Identifier: Apache-2.0
"""Experts as a module of flax.linen."""
from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.linen.fp8_ops import OVERWRITE_WITH_GRADIENT
from jax.nn.initializers import Initializer, zeros

from moejit.jax.experts import experts
from moejit.jax.flax import weights
from moejit.jax.plans import Plan, init_state


class Experts(nn.Module):
    """The experts of a layer, with a parameter for each name in Plan.weights: `w1` [E, 2I, H], `w2` [E, H, I].

    With the recipe fp8_delayed it has the state of delayed scaling as well. It is in flax's collection of variables that
    flax.training.train_state.TrainState overwrites with their gradients.

    Attributes:
        layer: What moejit.jax.plan() returned.
        param_dtype: The dtype of parameters and of their gradients. Calls round parameters to bf16.
        kernel_init: Initializer of w1 and w2, whose last axis has the inputs.
        bias_init: Initializer of biases.
    """
    layer: Plan
    param_dtype: Any = jnp.float32
    kernel_init: Initializer = weights.kernel_init
    bias_init: Initializer = zeros

    @nn.compact
    def __call__(self, x: jax.Array, topk_ids: jax.Array, topk_probs: jax.Array, **options: Any) -> Any:
        """Computes moejit.jax.experts() of the parameters, with the options of that function."""
        params = {name: self.param(name, weights.init_of(shape, self.kernel_init, self.bias_init), shape, self.param_dtype)
                  for name, shape in weights.shapes_of(self.layer).items()}
        state = {name: self.variable(OVERWRITE_WITH_GRADIENT, name, lambda first=array: first).value
                 for name, array in init_state(self.layer).items()}
        return experts(weights.rounded(params), x, topk_ids, topk_probs, layer=self.layer, state=state, **options)
