# SPDX-License-Identifier: Apache-2.0
"""The choice of experts: ids and probabilities of logits in one kernel, and the gradient of the logits in one more."""
from __future__ import annotations

import functools
import json
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from moejit.jax import calls
from moejit.jax.calls import Arrays
from moejit.jax.plans import Plan, plan_operation

_LOGITS = {"float32": "f32", "bfloat16": "bf16"}
_IDS = {"int32": "i32", "int64": "i64"}


def router(logits: jax.Array, top_k: int, *, bias: jax.Array | None = None, expert_scale: jax.Array | None = None,
           topk_ids: jax.Array | None = None, max_tokens: int | None = None, target: str = "auto",
           **formula: Any) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
    """Chooses the experts of tokens. `logits` and `expert_scale` have gradients.

    docs/router.md has the formula and each rounding. If scores are equal, the lower expert wins.

    Args:
        logits: float32 or bf16 [..., A], with the logits of zero experts at the end.
        top_k: K, the experts of a token.
        bias: float32 [A], added to what orders the choice, never to the probabilities.
        expert_scale: float32 [A], factors of the probabilities.
        topk_ids: int32 [..., K], the choice if the caller brings it; -1: none.
        max_tokens: The largest number of tokens of a call. None: the next power of two, at least 256.
        target: As for plan().
        formula: Fields of the formula as keywords: score, groups, groups_kept, normalize, epsilon, scale, ...

    Returns:
        The probabilities, float32 [..., K]; the ids, int32 [..., K], in descending order of scores; and a dict. It has
        "status" for check_status() and "counts" int32 [A], the tokens of each expert. With zero experts it has
        "chosen_ids" and "zero_probs" [...], with `aux` "aux_loss", float32 [], and with `z` "z_loss". Both losses have
        gradients, and are without coefficients: aux_loss = E / (K T T) * sum(counts * score_sums) over the experts, with
        the T tokens of this call, and z_loss is the mean of lse^2. Under shard_map they are those of a device.

    Raises:
        moejit.Error: "tensor_mismatch": an array has another dtype or shape; "unsupported", "invalid_value", ...: fields
            contradict each other, or a value is not known.
    """
    leading, experts = logits.shape[:-1], logits.shape[-1] - int(formula.get("zero_experts", 0))
    tokens = math.prod(leading)
    fields = {**formula, "logits_dtype": _LOGITS.get(logits.dtype.name, logits.dtype.name)}
    fields |= {key: value for key, value, given in (("bias", True, bias), ("expert_scale", True, expert_scale),
                                                    ("ids", "given", topk_ids)) if given is not None}
    described = {"max_tokens": max_tokens or max(256, 1 << (tokens - 1).bit_length()), "experts": experts, "top_k": top_k,
                 "topk_ids_dtype": "i32" if topk_ids is None else _IDS.get(topk_ids.dtype.name, "i32"), "router": fields}
    options = _Options(*(plan_operation(json.dumps({"operation": name, **described}), target)
                         for name in ("router", "router_backward")))
    ids = None if topk_ids is None else topk_ids.reshape(tokens, -1)
    given = {"logits": logits.reshape(tokens, -1), "router_bias": bias, "expert_scale": expert_scale, "topk_ids": ids}
    given = {name: array for name, array in given.items() if array is not None}
    given = calls.vary(given, calls.varying_axes(given))
    differentiable = {name: given.pop(name) for name in ("logits", "expert_scale") if name in given}
    made = _router(options, differentiable, given)
    rows = ("topk_probs", "topk_ids", "chosen_ids", "zero_probs")
    made = {name: array.reshape(*leading, *array.shape[1:]) if name in rows else array for name, array in made.items()}
    return made.pop("topk_probs"), made.pop("topk_ids", topk_ids), made


class _Options(NamedTuple):
    """The plans of both passes."""
    forward: Plan
    backward: Plan

    @property
    def formula(self) -> dict[str, Any]:
        return self.forward.description["router"]

    def of_aux(self, tokens: int) -> float:
        """Returns the factor of sum(counts * score_sums) in the load-balancing loss."""
        return self.forward.description["experts"] / (self.forward.description["top_k"] * max(tokens, 1) ** 2)


def _sum_of(pairs: jax.Array, unit: float) -> jax.Array:
    """Returns 64-bit integers, given as their halves u32 [..., 2], times a unit in float32."""
    high = jax.lax.bitcast_convert_type(pairs[..., 1], jnp.int32).astype(jnp.float32)
    return high * (unit * 2.0 ** 32) + pairs[..., 0].astype(jnp.float32) * unit


def _run(options: _Options, differentiable: Arrays, given: Arrays) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Returns the results, and what backward reads but for the gradients."""
    tokens = differentiable["logits"].shape[0]
    made = calls.run(options.forward, "run", {**differentiable, **given}, tokens)
    kept = {**differentiable, **given, **made}
    if "score_sums" in made:
        kept["counts"] = made.get("unbiased_counts", made["counts"])  # that the loss counts
        made["aux_loss"] = (_sum_of(made.pop("score_sums"), 2.0 ** -32) * kept["counts"]).sum() * options.of_aux(tokens)
    if "z_sum" in made:
        made["z_loss"] = _sum_of(made.pop("z_sum"), 2.0 ** -24)[0] / max(tokens, 1)
    return made, {name: array for name, array in kept.items() if name in options.backward.reads("run")}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _router(options: _Options, differentiable: Arrays, given: Arrays) -> dict[str, jax.Array]:
    return _run(options, differentiable, given)[0]


def _backward_rule(options: _Options, kept: Arrays, gradients: dict[str, jax.Array]) -> Any:
    tokens = kept["logits"].shape[0]
    given = {**kept, "dprobs": gradients["topk_probs"], "dzero_probs": gradients.get("zero_probs")}
    for name, loss, factor in (("aux_coefficient", "aux_loss", options.of_aux(tokens)),
                               ("z_coefficient", "z_loss", 1 / max(tokens, 1))):
        given |= {name: (gradients[loss] * factor).reshape(1)} if loss in gradients else {}
    made = calls.run(options.backward, "run", given, tokens)
    results = {"logits": made["dlogits"]}
    if "expert_scale" in kept:
        ids = kept["chosen_ids" if "chosen_ids" in kept else "topk_ids"]
        of_choices = jnp.where(ids < 0, 0, made["dexpert_scale"])
        results["expert_scale"] = jnp.zeros_like(kept["expert_scale"]).at[jnp.maximum(ids, 0)].add(of_choices)
    return results, None


_router.defvjp(_run, _backward_rule)
