# SPDX-License-Identifier: Apache-2.0
"""Experts that the ranks of a process group share: simulated ranks give the bits of one rank with all tokens.

Ranks are threads here. tests/torch/gpu_group.py runs the same on GPUs.
"""
import threading
import unittest
import unittest.mock

import torch
from torch.utils.checkpoint import checkpoint

from group_case import K_OF_GROUP, Case
from support import DEVICE, E, H, I, K, MAX_TOKENS, assert_same_bits
from thread_ranks import run_on_threads
from moejit.torch import Experts, call, explain
from moejit.torch.group_memory import Memories


@unittest.skipUnless(DEVICE.type == "cpu", "simulated ranks; on GPUs gpu_group.py")
class Bits(unittest.TestCase):

    def check(self, recipe, tokens, **options):
        case = Case(recipe, tokens, **options)
        ranks = run_on_threads(lambda group, rank: case.step(case.module(group), rank), len(tokens))
        case.check(self, ranks, f"{recipe}, {tokens}")

    def test_two_ranks_have_the_bits_of_one_rank_with_all_tokens(self):
        for recipe in ("fp8_flow", "bf16", "fp8_blockwise", "mxfp8"):
            for tokens in ((9, 5), (0, 12)):
                with self.subTest(recipe=recipe, tokens=tokens):
                    self.check(recipe, tokens)

    def test_calls_without_gradients_pad_less_and_have_these_bits(self):
        for recipe, padding in (("bf16", (1, 2 * MAX_TOKENS * K_OF_GROUP)), ("fp8_flow", (1, 2 * MAX_TOKENS * K_OF_GROUP)),
                                ("nvfp4", (16, 2 * MAX_TOKENS * K_OF_GROUP + 48))):  # 4 experts, 15 rows each
            def run(group, rank):
                module = case.module(group)
                with module.plan(has_gradients=False) as layer, torch.no_grad():
                    fields = layer.description["splits_alignment"], layer.description["max_permuted_rows"]
                    return module(*case.inputs(rank)[:3]), fields, module.status()
            case = Case(recipe, (9, 5))
            for (y, fields, status), want in zip(run_on_threads(run, 2), case.expected()):
                with self.subTest(recipe=recipe):
                    assert_same_bits(self, [y], [want["y"]])
                    self.assertEqual((fields, status), (padding, 0))

    def test_four_ranks(self):
        self.check("fp8_flow", (4, 0, 7, 1))

    def test_no_rank_has_tokens(self):
        self.check("fp8_flow", (0, 0))

    def test_an_exchange_on_one_sm(self):
        for recipe in ("fp8_flow", "fp8_rowwise"):
            with self.subTest(recipe=recipe):
                self.check(recipe, (9, 5), of_group={"sms": 1})

    def test_biases_and_recomputed_activations(self):
        self.check("bf16", (9, 5), bias=True)
        self.check("fp8_flow", (9, 5), bias=True, recompute="moe_expert")


@unittest.skipUnless(DEVICE.type == "cpu", "simulated ranks; on GPUs gpu_group.py")
class Steps(unittest.TestCase):
    """What a training step does with calls: many of them, in orders that autograd chooses."""

    def on_ranks(self, function, tokens=(7, 4), **options):
        case = Case("fp8_flow", tokens, **options)
        return case, run_on_threads(lambda group, rank: function(case, group, rank), len(tokens))

    def test_a_rank_explains_its_plan_alone(self):
        def run(case, group, rank):
            module = case.module(group)
            with module.plan() as layer:
                self.assertEqual((layer.info.rank, layer.info.ranks), (rank, 2))
                self.assertGreater(layer.sizes(7).saved_bytes, 0)
                self.assertEqual(layer.place("y", 7).shape, (7, H))
            return module.explain(), explain(module, plans=True)
        _, ranks = self.on_ranks(run)
        for rank, (told, of_model) in enumerate(ranks):
            self.assertIn("on a group of 2 ranks", told)
            self.assertRegex(told, r"64 SMs send(?s:.)*tokens send \d+ bytes to the other rank")
            self.assertIn(f"group_status_{rank}", told)
            self.assertIn(told, of_model)

    def test_one_seed_for_all_ranks_draws_other_experts_on_each(self):
        one_at_a_time = threading.Lock()  # threads share torch's generator

        def run(case, group, rank):
            with one_at_a_time:
                torch.manual_seed(3)
                return Experts(*case.sizes, max_tokens=MAX_TOKENS, process_group=group).state_dict()
        _, ranks = self.on_ranks(run)
        torch.manual_seed(3)
        for name in ("gate_up_proj", "down_proj"):
            for weights in ranks:
                want = torch.nn.init.normal_(torch.empty_like(weights[name]), std=weights[name].shape[-1] ** -0.5)
                assert_same_bits(self, [weights[name]], [want])

    def test_several_forward_calls_come_before_their_backward_calls(self):
        def run(case, group, rank):
            module = case.module(group)
            apart = [case.step(module, rank, seed) for seed in range(3)]
            inputs = [case.inputs(rank, seed) for seed in range(3)]
            results = [(*given, module(*given[:3])) for given in inputs]
            for x, _, probs, dy, y in reversed(results):
                for parameter in module.parameters():
                    parameter.grad = None
                y.backward(dy)
                step = apart.pop()
                assert_same_bits(self, [y, x.grad, probs.grad, module.gate_up_proj.grad, module.down_proj.grad],
                                 [step[name] for name in ("y", "dx", "dprobs", "dw1", "dw2")])
        self.on_ranks(run)

    def test_layers_of_a_model_share_the_memory_of_one_group(self):
        def run(case, group, rank):
            torch.manual_seed(0)
            other = Experts(E, H, 2 * I, K_OF_GROUP, max_tokens=MAX_TOKENS, process_group=group)
            module, (x, ids, probs, dy) = case.module(group), case.inputs(rank)
            with torch.no_grad():
                module(x, ids, probs)
            y = other(module(module(x, ids, probs), ids, probs), ids, probs)
            y.backward(dy)
            return all(parameter.grad.any() for each in (module, other) for parameter in each.parameters())
        with unittest.mock.patch.object(Memories, "open", autospec=True, side_effect=Memories.open) as opened:
            _, ranks = self.on_ranks(run)
        self.assertEqual(ranks, [True, True])
        self.assertEqual(opened.call_count, 2)  # once by each rank

    def test_checkpoints_repeat_forward_calls_on_all_ranks(self):
        def run(case, group, rank):
            module = case.module(group)
            want = case.step(module, rank)
            for use_reentrant in (False, True):
                got = case.step(module, rank, call=lambda *given: checkpoint(module, *given, use_reentrant=use_reentrant))
                assert_same_bits(self, list(got.values())[:5], list(want.values())[:5])
        self.on_ranks(run)

    def test_main_gradients_are_added_to(self):
        def run(case, group, rank):
            plain, fused = case.module(group), case.module(group, fuse_wgrad_accumulation=True)
            for parameter in plain.parameters():
                parameter.grad_dtype = torch.float32
            for parameter in fused.parameters():
                parameter.main_grad = torch.ones_like(parameter, dtype=torch.float32)
                parameter.grad_added_to_main_grad = False
            want = case.step(plain, rank)
            got = case.step(fused, rank)
            assert_same_bits(self, [got[name] for name in ("y", "dx", "dprobs")],
                             [want[name] for name in ("y", "dx", "dprobs")])
            for parameter, name in zip(fused.parameters(), ("dw1", "dw2")):
                self.assertTrue(parameter.grad_added_to_main_grad)
                self.assertEqual(want[name].dtype, torch.float32)
                self.assertTrue(torch.equal(parameter.main_grad, 1 + want[name]))
        self.on_ranks(run)

    def test_frozen_weights_and_tokens_without_gradients(self):
        def run(case, group, rank):
            module = case.module(group)
            want = case.step(module, rank)
            module.requires_grad_(False)
            got = case.step(module, rank)
            assert_same_bits(self, [got[name] for name in ("y", "dx", "dprobs")],
                             [want[name] for name in ("y", "dx", "dprobs")])
            module.requires_grad_(True)
            x, ids, probs, dy = case.inputs(rank)
            module(x.detach(), ids, probs.detach() if rank else probs).backward(dy)  # ranks need not want the same
            assert_same_bits(self, [module.gate_up_proj.grad], [want["dw1"]])
        self.on_ranks(run)

    def test_calls_without_gradients_and_kept_weights(self):
        def run(case, group, rank):
            module, (x, ids, probs, _) = case.module(group, cache_weights=True), case.inputs(rank)
            want = case.step(module, rank)["y"]
            with torch.no_grad():
                results = [module(x, ids, probs) for _ in range(2)]
                module.update_weights()
                results += [module(x, ids, probs, is_first_microbatch=True),
                            module(x[None], ids.int()[None], probs[None], is_first_microbatch=False)[0]]
                module.gate_up_proj.mul_(2)
                assert not torch.equal(module(x, ids, probs), want)
                module.gate_up_proj.div_(2)
            assert_same_bits(self, [*results, case.step(module, rank)["y"]], [want] * 5)
        self.on_ranks(run)

    def test_calls_without_gradients_repeat_those_that_kept_weights(self):
        def run(case, group, rank):
            module, (x, ids, probs, _) = case.module(group, cache_weights=True), case.inputs(rank)
            with torch.no_grad():
                want = module(x, ids, probs)                                        # goes the whole way
                got = [module(x, ids, probs), module(x, ids, probs)]
                assert_same_bits(self, [module(x[:2], ids[:2], probs[:2])], [want[:2]])
                module.gate_up_proj.mul_(2)
                assert not torch.equal(module(x, ids, probs), want)                 # quantizes
                module.gate_up_proj.div_(2)
                got += [module(x, ids, probs), module(x, ids, probs)]               # and again
            assert_same_bits(self, got, [want] * 4)
        ways = []  # a mock would keep the arguments, and with them the simulated ranks

        def whole_way(*arguments, goes=call._without_gradients):
            ways.append(arguments[0].cache_weights)
            return goes(*arguments)
        with unittest.mock.patch.object(call, "_without_gradients", whole_way):
            self.on_ranks(run)
        self.assertEqual(ways, [True] * 3 * 2)  # of seven calls of each rank

    def test_autocast(self):
        def run(case, group, rank):
            module, (x, ids, probs, _) = case.module(group), case.inputs(rank)
            want = module(x, ids, probs)
            with torch.autocast("cpu", torch.bfloat16):
                assert_same_bits(self, [module.float()(x.float(), ids, probs)], [want])
        self.on_ranks(run)

    def test_ids_out_of_range_are_told_to_all_ranks(self):
        def run(case, group, rank):
            module, (x, ids, probs, _) = case.module(group), case.inputs(rank)
            if rank == 1:
                ids[0, 0] = E
            module(x, ids, probs)
            return module.status()
        self.assertEqual(self.on_ranks(run)[1], [1, 1])


if __name__ == "__main__":
    unittest.main()
