# SPDX-License-Identifier: Apache-2.0
"""Experts as modules of flax: moejit.jax.flax.nnx.Experts and moejit.jax.flax.linen.Experts."""
from moejit.frameworks import require_flax as _require_flax

_require_flax()

from moejit.jax.flax import linen, nnx

__all__ = ["linen", "nnx"]
