# SPDX-License-Identifier: Apache-2.0
"""Weights that are too large to be compared whole: what docs/weights.md promises of samples, and what needs no sample."""
import unittest

import torch

from support import DEVICE
from staleness_case import NAMES
from moejit.torch import Experts

# A little more than 2 MiB together, from where on windows are compared.
EXPERTS, HIDDEN, INTERMEDIATE, MAX_TOKENS = 2, 1024, 192, 16
WINDOWS = 32768


class Samples(unittest.TestCase):

    def make(self):
        torch.manual_seed(0)
        return Experts(EXPERTS, HIDDEN, INTERMEDIATE, 2, max_tokens=MAX_TOKENS, device=DEVICE)

    def setUp(self):
        self.module = self.make()
        self.weights = [getattr(self.module, name).data.view(-1) for name in NAMES]
        elements = sum(map(torch.numel, self.weights))
        self.assertGreater(2 * elements, 2 << 20)
        self.run_of_two = 2 * -(-elements // WINDOWS)
        generator = torch.Generator().manual_seed(0)
        self.given = (torch.randn(1, HIDDEN, generator=generator).bfloat16().to(DEVICE),
                      torch.tensor([[0, 1]], device=DEVICE), torch.ones(1, 2, device=DEVICE))

    def call(self, module):
        with torch.no_grad():
            return module(*self.given)

    def assert_seen(self, write, what):
        before = self.call(self.module)
        write()
        got, fresh = self.call(self.module), self.make()
        for name in NAMES:
            getattr(fresh, name).data.copy_(getattr(self.module, name).data)
        want = self.call(fresh)
        self.assertFalse(torch.equal(want, before), f"{what}: the write changes nothing")
        self.assertTrue(torch.equal(got, want), what)

    def test_runs_of_two_windows_anywhere(self):
        length, generator = self.run_of_two, torch.Generator().manual_seed(1)
        for weight, name in zip(self.weights, NAMES):
            last = weight.numel() - length
            middle = torch.randint(0, last, (), generator=generator).item()
            for begin in (0, middle, last):
                with self.subTest(weight=name, begin=begin):
                    self.assert_seen(lambda part=weight[begin:begin + length]: part.fill_(1), f"{name} from {begin}")

    def test_single_elements_where_a_version_or_another_tensor_tells(self):
        def counted():
            with torch.no_grad():
                self.module.down_proj[1, 1000, 77] = 2.0

        def replaced():
            other = self.module.gate_up_proj.detach().clone()
            other[0, 5, 700] = 2.0
            self.module.gate_up_proj = torch.nn.Parameter(other)

        for write in (counted, replaced):
            with self.subTest(write=write.__name__):
                self.assert_seen(write, write.__name__)

    def test_single_elements_behind_update_weights(self):
        self.call(self.module)
        self.module.down_proj.data[1, 1000, 77] = 2.0
        self.module.update_weights()
        fresh = self.make()
        fresh.down_proj.data[1, 1000, 77] = 2.0
        self.assertTrue(torch.equal(self.call(self.module), self.call(fresh)))


if __name__ == "__main__":
    unittest.main()
