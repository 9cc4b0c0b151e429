# SPDX-License-Identifier: Apache-2.0
"""The state of fp8_delayed in CUDA graphs."""
import copy
import unittest

import torch

from scales_case import assert_same_state, make, state_of, step
from support import DEVICE, Inputs, assert_same_bits


@unittest.skipIf(DEVICE.type == "cpu", "there are no CUDA graphs without a GPU")
class Captured(unittest.TestCase):
    """The state moves on at replay, not at capture."""

    def capture(self, module, inputs, explicit):
        """A graph of a step, and its results. The calls before the capture load kernels, and change the state."""
        def whole():
            results = torch.autograd.grad(module(inputs.x, inputs.ids, inputs.probs),
                                          [inputs.x, inputs.probs, *module.parameters()], inputs.dy)
            if explicit:
                module.update_scales()
            return results
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            whole()
            whole()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = whole()
        return graph, results

    def test_replays_of_a_step(self):
        for explicit in (False, True):
            with self.subTest(explicit=explicit):
                module, eager = (make(update_scales_in_backward=not explicit) for _ in range(2))
                first, static = copy.deepcopy(module.state_dict()), Inputs()
                graph, results = self.capture(module, static, explicit)
                module.load_state_dict(first)
                for seed in range(30):
                    inputs = Inputs(seed=seed)
                    with torch.no_grad():
                        for name in ("x", "ids", "probs", "dy"):
                            getattr(static, name).copy_(getattr(inputs, name))
                    graph.replay()
                    want = step(eager, seed)
                    if explicit:
                        eager.update_scales()
                    assert_same_bits(self, list(results), want[1:])
                    assert_same_state(self, state_of(module), state_of(eager), f"in replay {seed}")

    def test_graphed_callables(self):
        module, eager, sample = make(), make(), Inputs()
        first = copy.deepcopy(module.state_dict())
        torch.cuda.make_graphed_callables(module, (sample.x, sample.ids, sample.probs))
        module.load_state_dict(first)
        for seed in range(10):
            assert_same_bits(self, [each.clone() for each in step(module, seed)], step(eager, seed))
            assert_same_state(self, state_of(module), state_of(eager), f"in replay {seed}")

    def test_reduce_overhead(self):
        torch._dynamo.reset()
        module, eager = make(), make()
        compiled = torch.compile(module, mode="reduce-overhead", fullgraph=True, dynamic=False)
        for seed in range(10):
            torch.compiler.cudagraph_mark_step_begin()
            assert_same_bits(self, [each.clone() for each in step(module, seed, compiled)], step(eager, seed))
            assert_same_state(self, state_of(module), state_of(eager), f"in step {seed}")


if __name__ == "__main__":
    unittest.main()
