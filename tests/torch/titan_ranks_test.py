# SPDX-License-Identifier: Apache-2.0
"""torchtitan's models with experts of moejit on two ranks: FSDP2, experts of both ranks, and DTensors."""
import unittest

import titan_case as case
import torch
import torch.distributed as dist
from ranks import run_on_ranks
from support import BOUNDS, DEVICE, E, H, K, assert_same_bits, relative_error
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

if case.IS_THERE:
    from torchtitan.distributed.utils import set_spmd_backend
    from torchtitan.models.common.token_dispatcher import AllToAllTokenDispatcher


def sharded():
    """[loss and gradients] of a model whose blocks FSDP2 shards. Both ranks have the same tokens."""
    model = case.model_of("fp8_flow", torch.float32, layers=2)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for module in (*model.layers.values(), model):
        fully_shard(module, mesh=init_device_mesh("cpu", (2,)), mp_policy=policy)
    loss, *gradients = case.results_of(model)
    return [loss, *(gradient.full_tensor() for gradient in gradients)]


def layer_results(experts_of_rank, dispatcher=None):
    """[y, dx, and the gradients of the experts] of an MoE layer whose experts are these. Each rank has its tokens."""
    moe = case.model_of("bf16", torch.float32).layers["0"].moe
    experts = moe.routed_experts.inner_experts
    for name, parameter in list(experts.named_parameters()):
        setattr(experts, name, torch.nn.Parameter(experts_of_rank(parameter.detach())))
    moe.routed_experts.token_dispatcher = dispatcher or moe.routed_experts.token_dispatcher
    generator = torch.Generator().manual_seed(dist.get_rank())
    x, dy = torch.randn(2, case.BATCH, case.LENGTH, H, generator=generator)
    y = moe(x.requires_grad_())
    y.backward(dy)
    gradients = [parameter.grad for parameter in experts.parameters()]
    return [y.detach(), x.grad, *(getattr(gradient, "to_local", lambda: gradient)() for gradient in gradients)]


def work(device):
    set_spmd_backend("partial_dtensor")  # groups are those of the dispatcher
    mesh, rank = init_device_mesh("cpu", (2,), mesh_dim_names=("ep",)), dist.get_rank()
    exchanging = AllToAllTokenDispatcher.Config(num_experts=E, top_k=K).build()
    exchanging.wire_meshes(ep_mesh=mesh)

    def of_rank(parameter):
        return parameter[rank * E // 2:(rank + 1) * E // 2].clone()

    whole = layer_results(lambda parameter: parameter)
    y, dx, *gradients = whole
    for gradient in gradients:
        dist.all_reduce(gradient)
    return {"sharded": sharded(),
            "whole": [y, dx, *(of_rank(gradient) for gradient in gradients)],
            "exchanged": layer_results(of_rank, exchanging),
            "DTensors": layer_results(lambda parameter: distribute_tensor(parameter, mesh, [Shard(0)]), exchanging)}


@case.needed
@unittest.skipIf(DEVICE.type == "cuda", "the models of these tests are on the CPU")
class Ranks(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.results = run_on_ranks(work)

    def test_sharded_models_have_the_bits_of_one_rank(self):
        want = case.results_of(case.model_of("fp8_flow", layers=2))
        for results in self.results:
            assert_same_bits(self, results["sharded"], [want[0], *(gradient.float() for gradient in want[1:])])

    def test_experts_may_be_on_both_ranks(self):
        for results in self.results:
            for index, pair in enumerate(zip(results["exchanged"], results["whole"], strict=True)):
                self.assertLessEqual(relative_error(*pair), BOUNDS["bf16"], f"result {index}")

    def test_parameters_may_be_dtensors(self):
        for results in self.results:
            assert_same_bits(self, results["DTensors"], results["exchanged"])


if __name__ == "__main__":
    unittest.main()
