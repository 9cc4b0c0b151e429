# SPDX-License-Identifier: Apache-2.0
"""Experts with a process group of one rank: what backward reads again, and the state of scales in graphs."""
import unittest

import torch
import torch.distributed as dist

from group_case import K_OF_GROUP
from group_compile_test import Module, OneRank
from support import DEVICE, E, H, I, MAX_TOKENS, assert_same_bits
from moejit.torch import Experts


class Recipes(OneRank):

    def test_graphs_move_the_same_state_of_scales(self):
        for fuses in (False, True):
            with self.subTest(fuse_wgrad_accumulation=fuses):
                torch._dynamo.reset()
                one, other = (Module(recipe="fp8_delayed", amax_history_len=3, fuse_wgrad_accumulation=fuses)
                              for _ in range(2))
                for parameter in (*one.parameters(), *other.parameters()):
                    parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
                compiled = torch.compile(one, fullgraph=True, backend="aot_eager", dynamic=False)
                for _ in range(3):
                    got, want = self.step(one, 12, compiled), self.step(other, 12)
                    assert_same_bits(self, got[:3 if fuses else None], want[:3 if fuses else None])
                    assert_same_bits(self, list(one.buffers()), list(other.buffers()))
                assert_same_bits(self, [each.main_grad for each in one.parameters()],
                                 [each.main_grad for each in other.parameters()])
                self.assertEqual(any(each.main_grad.any() for each in one.parameters()), fuses)

    def test_recipes_whose_backward_reads_the_tokens_have_the_bits_of_no_group(self):
        for recipe in ("fp8_blockwise", "fp8_rowwise", "fp8_delayed"):
            with self.subTest(recipe=recipe):
                options = {"max_tokens": MAX_TOKENS, "recipe": recipe, "device": DEVICE}
                one = Experts(E, H, I, K_OF_GROUP, process_group=dist.group.WORLD, **options)
                other = Experts(E, H, I, K_OF_GROUP, **options)
                other.load_state_dict(one.state_dict())
                for tokens in (12, 7):  # the second call repeats the first one's way
                    assert_same_bits(self, self.step(one, tokens), self.step(other, tokens))

    def test_compiled_graphs_find_a_group_over_nccl_that_was_opened_anew(self):
        module = Module(transport="nccl")
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        want = self.step(module, 12)
        assert_same_bits(self, self.step(module, 12, compiled), want)
        for _ in range(2):
            module.layers[0].abort_group()
            with self.assertRaisesRegex(RuntimeError, "moejit: invalid_state: "):
                self.step(module, 12, compiled)
            module.layers[0].reset_group()
            for function in (module, compiled):
                assert_same_bits(self, self.step(module, 12, function), want)
        self.assertEqual(module.layers[1].status(), 0)


if __name__ == "__main__":
    unittest.main()
