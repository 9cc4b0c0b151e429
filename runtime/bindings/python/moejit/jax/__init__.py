# SPDX-License-Identifier: Apache-2.0
"""The experts of Mixture-of-Experts layers as functions of JAX with gradients, on GPUs and in the simulator."""
from moejit.frameworks import require_jax as _require_jax

_require_jax()

from moejit.jax.accumulate import accumulate, forward
from moejit.jax.experts import check_status, experts, quantize
from moejit.jax.kernels import from_flax, to_flax
from moejit.jax.parallel import expert_parallel
from moejit.jax.plans import Plan, init, init_state, plan
from moejit.jax.router import router
from moejit.jax.state import update_scales

__all__ = ["Plan", "accumulate", "check_status", "expert_parallel", "experts", "forward", "from_flax", "init", "init_state",
           "plan", "quantize", "router", "to_flax", "update_scales"]
