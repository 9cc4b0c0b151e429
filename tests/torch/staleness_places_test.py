# SPDX-License-Identifier: Apache-2.0
"""Every place of a weight counts: whoever looks whether weights have changed has to look at all of them.

The layer has several blocks of 128x128 in each expert's matrices, and the last ones are smaller. Writes go through
`.data`, so that nothing but the values tells.
"""
import itertools
import os
import random
import unittest

import torch

from support import DEVICE
from staleness_case import NAMES, RECIPES
from moejit.torch import Experts

# As in gathered_test.py and tests/support/edge_cases.cpp, so that most kernels are kept already.
EXPERTS, HIDDEN, INTERMEDIATE, MAX_TOKENS, TOKENS, BLOCK = 2, 272, 144, 40, 8, 128
PLACES = 16 if os.environ.get("MOEJIT_STALENESS") == "all" else 1  # of each block, beside its corners


def make(recipe):
    torch.manual_seed(0)
    return Experts(EXPERTS, HIDDEN, INTERMEDIATE, 2, max_tokens=MAX_TOKENS, recipe=recipe, device=DEVICE)


def blocks(weight):
    """(expert, rows, columns) of all blocks."""
    def ranges(size):
        return [range(begin, min(begin + BLOCK, size)) for begin in range(0, size, BLOCK)]
    return itertools.product(range(weight.shape[0]), ranges(weight.shape[1]), ranges(weight.shape[2]))


class Places(unittest.TestCase):

    def setUp(self):
        generator = torch.Generator().manual_seed(0)
        self.changes = []  # of each write, whether a fresh module gives other results after it
        self.given = (torch.randn(TOKENS, HIDDEN, generator=generator).bfloat16().to(DEVICE),
                      torch.tensor([[0, 1], [1, 0]] * (TOKENS // 2), device=DEVICE),
                      torch.full((TOKENS, 2), 0.5, device=DEVICE))

    def assert_changes(self):
        """Fails unless nearly all writes have changed results: a 4-bit format rounds a few away."""
        self.assertGreater(sum(self.changes), 0.9 * len(self.changes))

    @torch.no_grad()
    def assert_seen(self, module, recipe, write, *of):
        """Fails unless a call behind the write has the bits of a fresh module."""
        before = module(*self.given)
        write()
        got, fresh = module(*self.given), make(recipe)
        for name in NAMES:
            getattr(fresh, name).data = getattr(module, name).detach().clone()
        want = fresh(*self.given)
        self.changes.append(not torch.equal(want, before))
        self.assertTrue(torch.equal(got, want), f"{recipe}, {of}")

    def test_one_element_anywhere(self):
        places = random.Random(0)
        for recipe in ("fp8_flow",) if PLACES == 1 else RECIPES:
            module = make(recipe)
            for name in NAMES:
                weight = getattr(module, name).data
                for expert, rows, columns in blocks(weight):
                    chosen = [(rows[0], columns[-1]), (rows[-1], columns[0])] if PLACES > 1 else []
                    chosen += [(places.choice(rows), places.choice(columns)) for _ in range(PLACES)]
                    for row, column in chosen:
                        # Larger than the others, and never smaller than it was: no scale falls.
                        def write(element=weight[expert, row, column]):
                            element.copy_(torch.where(element < 0, 0.5, -0.5))

                        with self.subTest(recipe=recipe, weight=name, expert=expert, row=row, column=column):
                            self.assert_seen(module, recipe, write, name, expert, row, column)
        self.assert_changes()

    def test_places_that_change_places(self):
        for recipe in ("fp8_flow",) if PLACES == 1 else RECIPES:
            for name in NAMES:
                module = make(recipe)
                weight = getattr(module, name).data
                for title, one, other in (
                        ("blocks below each other", weight[0, :16, :128], weight[0, 128:144, :128]),
                        ("blocks of experts", weight[0, :128, :128], weight[1, :128, :128]),
                        ("blocks beside each other", weight[1, :128, :16], weight[1, :128, 128:144]),
                        ("parts of a row", weight[1, 5, :8], weight[1, 5, 8:16]),
                        ("parts of two rows", weight[0, 7, :64], weight[0, 9, 64:128]),
                        ("words", weight[1, 130, :2], weight[1, 131, 14:16]),
                        ("words of 16 bytes", weight[0, 11, :2], weight[0, 11, 2:4]),
                        ("neighbours", weight[0, 3, 4], weight[0, 3, 5])):
                    # Opposite signs make places differ in every format.
                    one.copy_(one.abs() + 0.1)
                    other.copy_(-other.abs() - 0.1)

                    def write(one=one, other=other):
                        kept = one.clone()
                        one.copy_(other)
                        other.copy_(kept)

                    with self.subTest(recipe=recipe, weight=name, what=title):
                        self.assert_seen(module, recipe, write, name, title)
        self.assert_changes()


if __name__ == "__main__":
    unittest.main()
