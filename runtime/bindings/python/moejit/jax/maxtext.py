# SPDX-License-Identifier: Apache-2.0
"""The experts of MaxText's RoutedMoE: what its sparse_matmul() computes once the router has chosen."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from moejit.jax.experts import experts
from moejit.jax.kernels import from_flax
from moejit.jax.parallel import expert_parallel
from moejit.jax.plans import Plan

# Arguments of sparse_matmul() in the order of MaxText, by the names of from_flax().
_KERNELS = ("wi_0", "wi_1", "wo", "wi_0_bias", "wi_1_bias", "wo_bias")


def sparse_matmul(inputs: jax.Array, top_k_weights: jax.Array, top_k_indices: jax.Array, *kernels: jax.Array | None,
                  layer: Plan, mesh: Mesh, batch: Sequence[str], expert: str = "expert", how: str = "ragged") -> jax.Array:
    """Computes the experts of RoutedMoE, each device its share, in place of permute, gmm and unpermute.

    Works under jit, with gradients to inputs, weights and kernels. XLA gathers kernels that are sharded along other axes.

    Args:
        inputs: Tokens [batch, sequence, H].
        top_k_weights, top_k_indices: What get_topk() returned, [batch, sequence, K].
        kernels: w0_kernel and w1_kernel [E, H, I] and wo_kernel [E, I, H]; w0_bias, w1_bias [E, I] and wo_bias [E, H], or
            None, as RoutedMoE hands them over. Any float dtype: they are rounded to bf16.
        layer: A layer with the experts of one device of the axis `expert` as "local_experts".
        mesh: RoutedMoE.mesh.
        batch: The axes of the mesh that share the batch, such as ("data", "fsdp", "expert"). `expert` is one of them.
        expert: The axis that shares the experts. Without such an axis in the mesh, each device has all.
        how: As for expert_parallel().

    Returns:
        The outputs, in the shape and dtype of the inputs.

    Raises:
        moejit.Error: As expert_parallel() and from_flax().
    """
    given = {name: kernel for name, kernel in zip(_KERNELS, kernels) if kernel is not None}

    def local(x: jax.Array, weights: jax.Array, indices: jax.Array, kernels: dict[str, jax.Array]) -> Any:
        arrays = (from_flax(kernels, layer), x.astype(jnp.bfloat16), indices.astype(jnp.int32), weights.astype(jnp.float32))
        if mesh.shape.get(expert, 1) == 1:
            return experts(*arrays, layer=layer).astype(x.dtype)
        return expert_parallel(*arrays, layer=layer, axis=expert, how=how).astype(x.dtype)

    tokens, shares = PartitionSpec(tuple(batch)), PartitionSpec(expert if expert in mesh.shape else None)
    function = jax.shard_map(local, mesh=mesh, in_specs=(tokens, tokens, tokens, shares), out_specs=tokens)
    return function(inputs, top_k_weights, top_k_indices, given)
