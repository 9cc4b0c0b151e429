# SPDX-License-Identifier: Apache-2.0
"""How megatron-core of August 2026 (main, 0.20) describes and builds an MoE layer's experts: names and signatures."""
import dataclasses
import functools
from typing import Any, Callable


@dataclasses.dataclass
class MoESubmodules:
    """`experts` and `shared_experts` are builders; 0.16 has specs."""
    experts: Callable[..., Any]
    shared_experts: Callable[..., Any] | None = None
    router: Any = object


class MoELayer:
    """Builds its experts, and calls them with positions alone."""

    def __init__(self, config, submodules, pg_collection, name="decoder.layers.0.mlp"):
        self.submodules = submodules
        count = config.num_moe_experts // config.expert_model_parallel_size
        self.experts = submodules.experts(count, config, pg_collection=pg_collection, name=f"{name}.experts")

    def routed_experts_compute(self, dispatched_input, tokens_per_expert, permuted_probs):
        return self.experts(dispatched_input, tokens_per_expert, permuted_probs)


def get_moe_module_spec(experts, shared_experts):
    """The layer's spec is a partial function."""
    return functools.partial(MoELayer, submodules=MoESubmodules(experts=experts, shared_experts=shared_experts))
