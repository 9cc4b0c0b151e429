# SPDX-License-Identifier: Apache-2.0
"""torch.compile and torch's checks of the operators of groups, on a group of one rank: Dynamo takes no threads."""
import pathlib
import tempfile
import unittest

import torch
import torch.distributed as dist
from torch._dynamo.backends.common import aot_autograd
from torch.utils.checkpoint import checkpoint

from group_case import K_OF_GROUP
from support import DEVICE, E, H, I, MAX_TOKENS, assert_same_bits, check_call, main_grads
from moejit.torch import Experts, ops, run
from moejit.torch.layers import GRADIENTS


class Module(torch.nn.Module):
    """Two layers between operations that Inductor makes kernels of."""

    def __init__(self, **options):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(
            Experts(E, H, I, K_OF_GROUP, max_tokens=MAX_TOKENS, device=DEVICE, process_group=dist.group.WORLD, **options)
            for _ in range(2))

    def forward(self, x, ids, probs):
        for layer in self.layers:
            x = layer(x * 2, ids, probs)
        return x + 1


class OneRank(unittest.TestCase):
    """A process group of this process alone."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        dist.init_process_group("gloo" if DEVICE.type == "cpu" else "nccl", rank=0, world_size=1,
                                init_method=f"file://{pathlib.Path(folder.name) / 'group'}")
        cls.addClassCleanup(dist.destroy_process_group)

    def setUp(self):
        torch._dynamo.reset()

    def inputs(self, tokens):
        generator = torch.Generator().manual_seed(tokens)
        x = torch.randn(tokens, H, generator=generator).bfloat16().to(DEVICE).requires_grad_()
        ids = torch.stack([torch.randperm(E, generator=generator)[:K_OF_GROUP] for _ in range(tokens)]).to(DEVICE)
        return x, ids, torch.rand(tokens, K_OF_GROUP, generator=generator).to(DEVICE).requires_grad_()

    def step(self, module, tokens, function=None):
        x, ids, probs = self.inputs(tokens)
        for parameter in module.parameters():
            parameter.grad = None
        y = (module if function is None else function)(x, ids, probs)
        y.float().square().sum().backward()
        return [y.detach(), x.grad, probs.grad, *(each.grad for each in module.parameters())]


class Compile(OneRank):

    def test_one_graph_has_the_bits_of_eager_with_every_backend(self):
        for backend, options in (("eager", {}), ("aot_eager", {"recipe": "bf16", "bias": True}), ("inductor", {})):
            with self.subTest(backend=backend, **options):
                torch._dynamo.reset()
                module = Module(**options)
                compiled = torch.compile(module, fullgraph=True, backend=backend)
                assert_same_bits(self, self.step(module, 12, compiled), self.step(module, 12))
                self.assertEqual(module.layers[0].status(), 0)

    def test_checkpoints_are_part_of_the_graph(self):
        for options in ({}, {"recipe": "fp8_delayed"}):
            with self.subTest(**options):
                torch._dynamo.reset()
                module, eager = Module(**options), Module(**options)
                compiled = torch.compile(lambda *given: checkpoint(module, *given, use_reentrant=False), fullgraph=True,
                                         backend="aot_eager")
                for _ in range(2):
                    assert_same_bits(self, self.step(module, 12, compiled), self.step(eager, 12))
                    assert_same_bits(self, list(module.buffers()), list(eager.buffers()))
                self.assertEqual(module.layers[0].status(), 0)

    def test_one_graph_serves_all_numbers_of_tokens_and_calls_without_gradients(self):
        module = Module()
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=True)
        for tokens in (12, 20, MAX_TOKENS, 3):
            assert_same_bits(self, self.step(module, tokens, compiled), self.step(module, tokens))
        with torch.no_grad():
            assert_same_bits(self, [compiled(*self.inputs(9))], [module(*self.inputs(9))])

    def test_main_gradients(self):
        module = Module(fuse_wgrad_accumulation=True)
        compiled, results = torch.compile(module, fullgraph=True, backend="aot_eager"), []
        for function in (module, compiled):
            for parameter in module.parameters():
                parameter.main_grad = torch.ones_like(parameter, dtype=torch.float32)
            x, ids, probs = self.inputs(12)
            function(x, ids, probs).float().square().sum().backward()
            results.append([x.grad, probs.grad, *(parameter.main_grad for parameter in module.parameters())])
        assert_same_bits(self, *results)

    def test_no_graph_makes_one_of_two_equal_calls(self):
        module = Module().layers[0].requires_grad_(False)
        calls = []

        def backend(graph, _):
            calls.append(sum(ops.call_ in (node.target, *node.args) for node in graph.graph.nodes))
            return graph.forward
        x, ids, probs = (each.detach() for each in self.inputs(12))
        torch.compile(lambda: (module(x, ids, probs), module(x, ids, probs))[0], fullgraph=True,
                      backend=aot_autograd(fw_compiler=backend))()
        self.assertEqual(calls, [2])

    def test_an_export_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "moejit: unsupported: torch.export of experts with process_group"):
            torch.export.export(Module(), self.inputs(12), strict=False)

    def test_the_operators_keep_what_their_schemas_and_fake_kernels_promise(self):
        module = Module(bias=True, fuse_wgrad_accumulation=True).layers[0]
        for parameter in module.parameters():
            parameter.main_grad = torch.zeros(parameter.shape)
        x, ids, probs = (each.detach() for each in self.inputs(12))
        module(x, ids, probs)
        layer = module._call.text_of(x.device, GRADIENTS)
        tensors = {"x": x, "topk_ids": ids, "topk_probs": probs, "dy": torch.randn_like(x)}
        tensors.update(zip(("w1", "w2", "b1", "b2"), (parameter.detach() for parameter in module.parameters())))
        tensors.update(run(layer, "update_weights", tensors))
        tensors["saved"] = run(layer, "forward", tensors)["saved"]
        order = [module._call.group.order]
        for call, more in (("update_weights", {}), ("forward", {}), ("backward", {}),
                           ("backward+add", main_grads(tensors))):
            with self.subTest(call=call):
                check_call(layer, call, {**tensors, **more}, () if call == "update_weights" else order)


if __name__ == "__main__":
    unittest.main()
