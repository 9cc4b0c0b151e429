# SPDX-License-Identifier: Apache-2.0
"""Experts of a process group over NCCL: simulated ranks, whose bytes the simulator moves, give the bits of one rank.

Ranks are threads here. tests/torch/gpu_group.py --transport nccl runs the same on GPUs.
"""
import threading
import unittest

import torch
from torch.utils.checkpoint import checkpoint

from group_case import Case
from support import DEVICE, assert_same_bits, told
from thread_ranks import run_on_threads
from moejit.torch import Experts
from moejit.torch.groups import layers_of

OVER_NCCL = {"transport": "nccl"}
STEP = ("y", "dx", "dprobs", "dw1", "dw2")


@unittest.skipUnless(DEVICE.type == "cpu", "simulated ranks; on GPUs gpu_group.py")
class OverNccl(unittest.TestCase):

    def on_ranks(self, function, tokens=(7, 4), recipe="fp8_flow", **of_group):
        case = Case(recipe, tokens, of_group={**OVER_NCCL, **of_group})
        return run_on_threads(lambda group, rank: function(case, group, rank), len(tokens))

    def check(self, recipe, tokens, **of_group):
        case = Case(recipe, tokens, of_group=of_group)
        ranks = run_on_threads(lambda group, rank: case.step(case.module(group), rank), len(tokens))
        case.check(self, ranks, f"{recipe}, {tokens}, {of_group}")

    def test_ranks_have_the_bits_of_one_rank_with_all_tokens(self):
        for recipe in ("fp8_flow", "bf16"):
            for combine in ("partial", "rows"):
                self.check(recipe, (9, 5), combine=combine, **OVER_NCCL)
        self.check("fp8_flow", (0, 12), combine="rows", **OVER_NCCL)
        self.check("fp8_flow", (0, 0), **OVER_NCCL)
        self.check("bf16", (4, 0, 7, 1), **OVER_NCCL)

    def test_peers_send_rows_too(self):
        self.check("fp8_flow", (9, 5), combine="rows")

    def test_one_rank(self):
        self.check("fp8_flow", (9,), **OVER_NCCL)

    def test_scales_of_delayed_scaling(self):
        def run(case, group, rank):
            module = case.module(group)
            results = [case.step(module, rank, seed) for seed in range(2)]
            return results, module.fc1_scale.clone(), module.fc1_grad_scale.clone()
        options = {"update_scales_in_backward": True, "amax_history_len": 2}
        case = Case("fp8_delayed", (7, 4), of_group=OVER_NCCL, **options)
        over = run_on_threads(lambda group, rank: run(case, group, rank))
        peers = Case("fp8_delayed", (7, 4), **options)
        want = run_on_threads(lambda group, rank: run(peers, group, rank))
        for (steps, *scales), (other_steps, *other_scales) in zip(over, want):
            for got, other in zip(steps, other_steps):
                assert_same_bits(self, [got[name] for name in STEP], [other[name] for name in STEP])
            assert_same_bits(self, scales, other_scales)

    def test_calls_of_a_training_step(self):
        def run(case, group, rank):
            module, other = case.module(group), case.module(group)
            apart = [case.step(module, rank, seed) for seed in range(2)]
            inputs = [case.inputs(rank, seed) for seed in range(2)]
            with torch.no_grad():
                module(*inputs[0][:3])
            results = [(*given, module(*given[:3])) for given in inputs]
            for x, _, probs, dy, y in reversed(results):  # backward calls in another order than forward calls
                for parameter in module.parameters():
                    parameter.grad = None
                y.backward(dy)
                step = apart.pop()
                assert_same_bits(self, [y, x.grad, probs.grad, module.gate_up_proj.grad, module.down_proj.grad],
                                 [step[name] for name in STEP])
            want = case.step(other, rank)
            for use_reentrant in (False, True):
                got = case.step(other, rank, call=lambda *given: checkpoint(other, *given, use_reentrant=use_reentrant))
                assert_same_bits(self, [got[name] for name in STEP], [want[name] for name in STEP])
            return len(layers_of(group).groups)
        self.assertEqual(self.on_ranks(run), [1, 1])  # all of them share it

    def test_main_gradients_are_added_to(self):
        def run(case, group, rank):
            module = case.module(group, fuse_wgrad_accumulation=True)
            for parameter in module.parameters():
                parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
                parameter.grad_added_to_main_grad = False
            case.step(module, rank)
            once = [parameter.main_grad.clone() for parameter in module.parameters()]
            case.step(module, rank)
            for parameter, first in zip(module.parameters(), once):
                self.assertTrue(first.any())
                self.assertTrue(torch.equal(parameter.main_grad, first + first))
        self.on_ranks(run)

    def test_a_silent_rank_and_groups_that_are_opened_anew(self):
        is_told = threading.Event()

        def run(case, group, rank):
            module, other = case.module(group, timeout_ms=2000), case.module(group, transport="peer")
            of_peers = case.step(other, rank)
            want = case.step(module, rank)
            given = case.inputs(rank)[:3]
            sentences = [told(lambda: module(*given)), told(lambda: module(*given)), told(module.status)] if rank == 0 else []
            is_told.set() if rank == 0 else is_told.wait()  # a reset ends what waits
            for _ in range(2):  # it may be done again
                module.reset_group()
                got = case.step(module, rank)
                assert_same_bits(self, [got[name] for name in STEP], [want[name] for name in STEP])
                layers_of(group).ranks.gather(None, DEVICE)  # no rank waits for results any more
            got = case.step(other, rank)
            assert_same_bits(self, [got[name] for name in STEP], [of_peers[name] for name in STEP])
            self.assertEqual((module.status(), len(layers_of(group).groups)), (0, 2))
            return sentences
        for sentence in self.on_ranks(run)[0]:
            self.assertIn("rank 0 waits for the others in step", sentence)

    def test_abort_ends_what_waits(self):
        is_told = threading.Event()

        def run(case, group, rank):
            module = case.module(group)
            want = case.step(module, rank)
            sentences = []
            if rank == 0:
                threading.Timer(1, module.abort_group).start()  # as a rank that waits cannot
                waited = told(lambda: module(*case.inputs(rank)[:3]))
                sentences = [told(lambda: module(*case.inputs(rank)[:3])), told(module.status)]
                self.assertIsNone(waited)
            is_told.set() if rank == 0 else is_told.wait()
            module.reset_group()
            got = case.step(module, rank)
            assert_same_bits(self, [got[name] for name in STEP], [want[name] for name in STEP])
            return sentences
        call, status = self.on_ranks(run)[0]
        self.assertIn("moejit: invalid_state: the transport was aborted", call)
        self.assertRegex(status, "moejit: invalid_state: the transport was aborted.*\nhint: call reset_group\\(\\) on all")

    def test_ranks_that_differ(self):
        def run(case, group, rank):
            modules = [case.module(group, **of_group[rank]) for of_group in
                       (({"transport": "peer"}, {"transport": "nccl"}), ({"combine": "rows"}, {"combine": "partial"}))]
            return [told(lambda module=module: module(*case.inputs(rank)[:3])) for module in modules]
        transports, combines = zip(*self.on_ranks(run))
        self.assertEqual(len({*transports}), 1, transports)
        self.assertIn("moejit: tensor_mismatch: ranks 0 and 1 of the process group differ in expert_parallel", transports[0])
        self.assertEqual(len({*combines}), 1, combines)
        self.assertIn('"rows"', combines[0])

    def test_arguments_that_cannot_be(self):
        sizes = {"num_experts": 4, "hidden_size": 32, "intermediate_size": 16, "top_k": 2, "max_tokens": 8}
        for options in (OVER_NCCL, {"combine": "rows"}, {"sms": 24}):
            with self.assertRaisesRegex(RuntimeError, "invalid_value: transport, combine or sms .* without process_group"):
                Experts(**sizes, **options)
        module = Experts(**sizes)
        for function in (module.abort_group, module.reset_group):
            with self.assertRaisesRegex(RuntimeError, r"_group\(\) of a module without process_group"):
                function()

        def run(group, rank):
            return [told(lambda: Experts(**sizes, process_group=group, transport="mpi"))]
        for sentence, in run_on_threads(run):
            self.assertRegex(sentence, 'moejit: .*transport.*"mpi".*\n?.*"?peer"?.*"?nccl"?')


if __name__ == "__main__":
    unittest.main()
