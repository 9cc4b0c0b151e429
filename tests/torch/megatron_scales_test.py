# SPDX-License-Identifier: Apache-2.0
"""Megatron's experts with recipe fp8_delayed: what their scales follow from, in training and in checkpoints."""
import functools
import pathlib
import tempfile
import unittest

import megatron_device
import torch
import torch.distributed as dist
from ranks import BACKEND, run_on_ranks
from support import E, assert_same_bits

if megatron_device.IS_THERE:
    import megatron_case as case
    from megatron.core import dist_checkpointing, parallel_state

PREFIX = "decoder.layers.0.mlp.experts."
BOUND = 0.1  # one scale for all rows of an expert
FIRST = {"amax_history": 0.0, "scale": 1.0, "grad_amax_history": 0.0, "grad_scale": 1.0}


def make(kind):
    config = case.config_of()
    return case.layer_of(case.SEQUENTIAL, config) if kind == "sequential" else case.ours(kind, config)


def steps_of(layer, count):
    """results_of() the last of some steps."""
    for _ in range(count):
        layer.zero_grad()
        results = case.results_of(layer, torch.bfloat16, dist.get_rank())
    return results


def states_of(experts):
    """{name: [the state of each expert]} of experts on this rank."""
    return {name: list(value.clone().chunk(experts.num_local_experts, dim=-1))
            for name, value in experts.named_buffers()}


def sharded(experts, is_singleton):
    return experts.sharded_state_dict(PREFIX, (), {
        "singleton_local_shards": is_singleton,
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)})


def save(experts, folder, is_singleton):
    if dist.get_rank() == 0:
        folder.mkdir()
    dist.barrier()
    dist_checkpointing.save(sharded(experts, is_singleton), str(folder))


def load(kind, folder, is_singleton):
    """A layer of that kind whose experts are those of a checkpoint."""
    layer = make(kind)
    with torch.no_grad():
        for parameter in layer.experts.parameters():
            parameter.zero_()
    state = dist_checkpointing.load(sharded(layer.experts, is_singleton), str(folder))
    layer.experts.load_state_dict({key.removeprefix(PREFIX): value for key, value in state.items()})
    return layer


def work(folder, device):
    megatron_device.start(2)
    folder, found = pathlib.Path(folder), {"loaded": {}, "next step": {}}
    layer = make("fp8_delayed")
    steps_of(layer, 2)
    found["states"] = states_of(layer.experts)
    for is_singleton in (False, True):
        save(layer.experts, folder / f"ours-{is_singleton}", is_singleton)
        save(make("sequential").experts, folder / f"sequential-{is_singleton}", is_singleton)
    want = steps_of(layer, 1)
    for is_singleton in (False, True):
        ours, sequential = folder / f"ours-{is_singleton}", folder / f"sequential-{is_singleton}"
        again = load("fp8_delayed", ours, is_singleton)
        found["loaded"][is_singleton] = states_of(again.experts)
        found["next step"][is_singleton] = all(map(torch.equal, steps_of(again, 1), want))
        found["others", is_singleton] = [case.are_equal(load(kind, ours, is_singleton).experts, layer.experts)
                                         for kind in ("sequential", "bf16")]
        found["first", is_singleton] = {name: [part.unique().tolist() for part in parts] for name, parts
                                        in states_of(load("fp8_delayed", sequential, is_singleton).experts).items()}
    return found


@megatron_device.needed
class Checkpoints(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.results = run_on_ranks(functools.partial(work, cls.folder.name), method="fork")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def assert_same_states(self, got, want):
        self.assertEqual(set(got), {f"linear_{linear}.{name}" for linear in ("fc1", "fc2") for name in FIRST})
        for name, parts in got.items():
            assert_same_bits(self, parts, want[name])

    def test_a_run_goes_on_with_the_same_bits(self):
        for results in self.results:
            self.assertGreater(sum(part.count_nonzero() for part in results["states"]["linear_fc1.amax_history"]), 0)
            for is_singleton in (False, True):
                self.assert_same_states(results["loaded"][is_singleton], results["states"])
                self.assertTrue(results["next step"][is_singleton])

    def test_other_experts_load_what_has_a_state(self):
        for results in self.results:
            for is_singleton in (False, True):
                self.assertEqual(results["others", is_singleton], [True, True])

    def test_checkpoints_of_other_experts_begin_with_a_first_state(self):
        for results in self.results:
            for is_singleton in (False, True):
                for name, parts in results["first", is_singleton].items():
                    self.assertEqual(parts, [[FIRST[name.split(".")[1]]]] * (E // 2))

    def test_one_rank_loads_the_states_of_two(self):
        dist.init_process_group(BACKEND, init_method=f"file://{self.folder.name}/group-of-one", rank=0, world_size=1)
        megatron_device.start(1)
        try:
            loaded = {is_singleton: states_of(load("fp8_delayed", pathlib.Path(self.folder.name) /
                                                   f"ours-{is_singleton}", is_singleton).experts)
                      for is_singleton in (False, True)}
        finally:
            megatron_device.stop()
        one, two = (results["states"] for results in self.results)
        for states in loaded.values():
            self.assert_same_states(states, {name: parts + two[name] for name, parts in one.items()})


class Modules(megatron_device.OnOneRank):

    def test_steps_are_near_float32_and_move_the_scales(self):
        want = case.results_of(case.layer_of(case.SEQUENTIAL, case.config_of(torch.float32)), torch.float32, 0)
        layer = make("fp8_delayed")
        for pair in zip(steps_of(layer, 3), want, strict=True):
            self.assertLessEqual(case.relative_error(*pair), BOUND)
        self.assertGreater(len(layer.experts.linear_fc1.scale.unique()), 1)

    def test_states_stay_float32_and_begin_anew_with_the_parameters(self):
        experts = make("fp8_delayed").experts
        experts.linear_fc1.scale.fill_(1 + 2 ** -20)
        experts.bfloat16()
        self.assertEqual(experts.linear_fc1.scale.unique().tolist(), [1 + 2 ** -20])
        experts.to_empty(device="cpu")
        for linear in experts.linear_fc1, experts.linear_fc2:
            linear.reset_parameters()
            self.assertEqual({name: value.unique().tolist() for name, value in linear.named_buffers()},
                             {name: [value] for name, value in FIRST.items()})

    def test_state_dicts_have_the_state(self):
        layer, other = make("fp8_delayed"), make("fp8_delayed")
        steps_of(layer, 1)
        for recipe, state in (("fp8_delayed", layer.experts.state_dict()), ("bf16", layer.experts.state_dict())):
            loaded = other.experts if recipe == "fp8_delayed" else make(recipe).experts
            self.assertEqual(str(loaded.load_state_dict(state)), "<All keys matched successfully>")
        assert_same_bits(self, list(other.experts.buffers()), list(layer.experts.buffers()))
        self.assertEqual(str(other.experts.load_state_dict(make("sequential").experts.state_dict())),
                         "<All keys matched successfully>")
        self.assertEqual(other.experts.linear_fc2.scale.unique().tolist(), [1.0])

    def test_delayed_gradients_of_weights_have_the_bits(self):
        layer = case.ours("fp8_delayed", case.config_of(delay_wgrad_compute=True))
        x, sizes, probs = case.rows()
        for experts in layer.experts, make("fp8_delayed").experts:
            y, _ = experts(x, sizes, probs)
            y.float().square().sum().backward()
            experts.backward_dw()
        assert_same_bits(self, [each.grad for each in layer.experts.parameters()],
                         [each.grad for each in experts.parameters()])


if __name__ == "__main__":
    unittest.main()
