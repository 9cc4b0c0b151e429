# SPDX-License-Identifier: Apache-2.0
"""Experts of megatron-core's layers on moejit, which two ranks share, and checkpoints between them and one rank."""
import functools
import pathlib
import tempfile
import unittest

import megatron_cpu
import torch
import torch.distributed as dist
from ranks import run_on_ranks
from support import BOUNDS, H, relative_error

if megatron_cpu.IS_THERE:
    import megatron_case as case
    from megatron.core import dist_checkpointing, parallel_state

LAYERS = (("bf16", "alltoall", {"add_bias_linear": True}), ("fp8_flow", "allgather", {"add_bias_linear": True}),
          ("fp8_flow", "alltoall", {}))
PREFIX = "decoder.layers.0.mlp.experts."
KINDS = ("sequential", "moejit")
MARKS = "allreduce", "tensor_model_parallel"


def make(kind, **fields):
    """A layer whose experts are SequentialMLP or moejit's, all in bf16."""
    config = case.config_of(add_bias_linear=True, **fields)
    return case.ours("bf16", config) if kind == "moejit" else case.layer_of(case.SEQUENTIAL, config)


def sharded(experts, is_singleton):
    return experts.sharded_state_dict(PREFIX, (), {
        "singleton_local_shards": is_singleton,
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)})


def place(folder, kind, is_singleton):
    return pathlib.Path(folder) / f"{kind}-{is_singleton}"


def save_all(folder):
    for kind in KINDS:
        experts = make(kind).experts
        for is_singleton in (False, True):
            if dist.get_rank() == 0:
                place(folder, kind, is_singleton).mkdir()
            dist.barrier()
            dist_checkpointing.save(sharded(experts, is_singleton), str(place(folder, kind, is_singleton)))


def load_all(folder):
    """{(saved by, loaded into, singleton): whether all parameters are what was saved}."""
    found = {}
    for kind in KINDS:
        want, experts = make(kind).experts, make(kind).experts
        for other in KINDS:
            for is_singleton in (False, True):
                with torch.no_grad():
                    for parameter in experts.parameters():
                        parameter.zero_()
                state = dist_checkpointing.load(sharded(experts, is_singleton), str(place(folder, other, is_singleton)))
                experts.load_state_dict({key.removeprefix(PREFIX): value for key, value in state.items()})
                found[other, kind, is_singleton] = case.are_equal(experts, want)
    return found


def all_to_one(layer):
    """[y, gradients of weights] of tokens whose experts are all on rank 0."""
    layer.zero_grad()
    with torch.no_grad():
        layer.router.weight[:] = -1
        layer.router.weight[:2] = 1
    x = torch.rand(case.SEQUENCE, case.BATCH, H, generator=torch.Generator().manual_seed(dist.get_rank())).bfloat16()
    y, _ = layer(x.requires_grad_())
    y.float().sum().backward()
    return [y.detach(), *(parameter.grad for parameter in layer.experts.parameters())]


def work(folder, device):
    megatron_cpu.start(2)
    results = {"errors": {}}
    for recipe, dispatcher, fields in LAYERS:
        fields = {"moe_token_dispatcher_type": dispatcher, **fields}
        reference = case.layer_of(case.SEQUENTIAL, case.config_of(torch.float32, **fields))
        want = case.results_of(reference, torch.float32, dist.get_rank())
        layer = case.ours(recipe, case.config_of(**fields))
        got = case.results_of(layer, torch.bfloat16, dist.get_rank())
        results["errors"][recipe, dispatcher] = [relative_error(*pair) for pair in zip(got, want, strict=True)]
    results["marks"] = [[getattr(parameter, mark) for mark in MARKS] for parameter in layer.experts.parameters()]
    results["all to one"] = all_to_one(layer)
    save_all(folder)
    results["loaded"] = load_all(folder)
    return results


@megatron_cpu.needed
class Ranks(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.results = run_on_ranks(functools.partial(work, cls.folder.name))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_results_are_near_float32(self):
        for results in self.results:
            self.assertEqual(len(results["errors"]), len(LAYERS))
            for (recipe, dispatcher), errors in results["errors"].items():
                with self.subTest((recipe, dispatcher)):
                    self.assertLessEqual(max(errors), BOUNDS[recipe])

    def test_no_other_rank_has_an_expert(self):
        for results in self.results:
            self.assertEqual(results["marks"], [[False, True]] * 2)

    def test_a_rank_without_rows_goes_on(self):
        (y, *busy), (_, *idle) = (results["all to one"] for results in self.results)
        self.assertTrue(y.isfinite().all() and y.any())
        self.assertTrue(all(gradient.any() for gradient in busy))
        self.assertFalse(any(gradient.any() for gradient in idle))

    def test_checkpoints_are_interchangeable(self):
        for results in self.results:
            self.assertEqual(results["loaded"], dict.fromkeys(results["loaded"], True))

    def test_one_rank_loads_what_two_have_saved(self):
        dist.init_process_group("gloo", init_method=f"file://{self.folder.name}/group-of-one", rank=0, world_size=1)
        megatron_cpu.start(1)
        try:
            loaded = load_all(self.folder.name)
        finally:
            megatron_cpu.stop()
        self.assertEqual(len(loaded), 8)
        self.assertEqual(loaded, dict.fromkeys(loaded, True))


if __name__ == "__main__":
    unittest.main()
