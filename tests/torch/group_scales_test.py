# SPDX-License-Identifier: Apache-2.0
"""Scales that follow from the steps before, of experts that the ranks of a process group share, and of replicas."""
import copy
import unittest

import torch
from torch.utils.checkpoint import checkpoint

from group_case import Case
from scales_case import STATE, assert_same_state, make, state_of, step
from support import DEVICE, assert_same_bits
from thread_ranks import run_on_threads
from moejit.torch import update_scales

STEPS = 3


@unittest.skipUnless(DEVICE.type == "cpu", "simulated ranks; on GPUs gpu_group.py")
class Shared(unittest.TestCase):
    """Each rank has the scales of its experts, whose rows, of all ranks' tokens, it casts: nothing is reduced."""

    def check(self, tokens, checkpoints=False, **options):
        case = Case("fp8_delayed", tokens, amax_history_len=2, **options)
        first = {name: tensor.clone() for name, tensor in case.whole.state_dict().items()}

        def run(group, rank):
            module, steps = case.module(group), []
            for seed in range(STEPS):
                call = (lambda *given: checkpoint(module, *given, use_reentrant=False)) if checkpoints else None
                results = case.step(module, rank, seed, call)
                if not options.get("update_scales_in_backward", True):
                    module.update_scales()
                steps.append((results, state_of(module)))
            return steps

        ranks = run_on_threads(run, len(tokens))
        self.assertTrue(first["fc1_scale"].eq(1).all())
        for seed in range(STEPS):
            x, ids, probs, dy = case.all_inputs(seed)
            _, _, dprobs, of_weights = case._whole_step(x, ids, probs, dy)
            if not options.get("update_scales_in_backward", True):
                case.whole.update_scales()
            for rank, steps in enumerate(ranks):
                results, state = steps[seed]
                want, begin = case.part_of_rank(rank), sum(tokens[:rank])
                for name in STATE:
                    self.assertTrue(torch.equal(state[name], want[name]), f"{name} of rank {rank} in step {seed}")
                self.assertTrue(torch.equal(results["dprobs"], dprobs[begin:begin + tokens[rank]]))
                for name, gradient in of_weights.items():
                    own = gradient[rank * case.local:(rank + 1) * case.local]
                    self.assertTrue(torch.equal(results[name], own), f"{name} of rank {rank} in step {seed}")

    def test_ranks_have_the_state_of_one_rank_with_all_tokens(self):
        self.check((9, 5))

    def test_a_rank_without_tokens(self):
        self.check((0, 12))

    def test_explicit_updates_and_checkpoints(self):
        self.check((9, 5), checkpoints=True, update_scales_in_backward=False)

    def test_calls_without_gradients_and_kept_weights(self):
        case = Case("fp8_delayed", (7, 4))

        def run(group, rank):
            module, (x, ids, probs, _) = case.module(group, cache_weights=True), case.inputs(rank)
            with torch.no_grad():
                first, again = module(x, ids, probs), module(x, ids, probs)
            assert_same_bits(self, [first], [again])
            return bool(module.fc1_amax_history[0].any()) and bool(module.fc1_scale.eq(1).all())
        self.assertEqual(run_on_threads(run), [True, True])


@unittest.skipUnless(DEVICE.type == "cpu", "threads as ranks")
class Replicas(unittest.TestCase):
    """Ranks with copies of the experts and tokens of their own."""

    def test_scales_stay_equal_if_the_ranks_reduce_what_they_have_recorded(self):
        first = make(update_scales_in_backward=False)

        def run(group, rank):
            module = copy.deepcopy(first)
            for number in range(STEPS):
                step(module, 10 * number + rank)
                module.update_scales(amax_reduction_group=group)
            return state_of(module)
        one, other = run_on_threads(run)
        for name in STATE:
            self.assertTrue(torch.equal(one[name], other[name]), name)
        both = make(update_scales_in_backward=False)  # two microbatches have the largest of both, too
        for number in range(STEPS):
            for rank in range(2):
                step(both, 10 * number + rank)
            both.update_scales()
        for name in ("fc1_amax_history", "fc1_scale", "fc2_scale"):
            self.assertTrue(torch.equal(one[name], state_of(both)[name]), name)

    def test_a_model_has_the_state_of_its_modules_one_by_one(self):
        first = [make(seed, update_scales_in_backward=False) for seed in range(2)]  # threads share torch's generator

        def run(group, rank):
            model, alone = copy.deepcopy(first), copy.deepcopy(first)
            for each in (*model, *alone):
                step(each, rank)
            update_scales(torch.nn.ModuleList(model), amax_reduction_group=group)
            for each in alone:
                each.update_scales(amax_reduction_group=group)
            return [[state_of(each) for each in modules] for modules in (model, alone)]
        (model, alone), (other, _) = run_on_threads(run)
        for got, *wanted in zip(model, alone, other):
            for want in wanted:
                assert_same_state(self, got, want)

    def test_models_without_such_experts_are_refused(self):
        with self.assertRaisesRegex(RuntimeError, 'Linear has no experts of recipe "fp8_delayed"'):
            update_scales(torch.nn.Linear(4, 4))


if __name__ == "__main__":
    unittest.main()
