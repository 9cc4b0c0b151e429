# SPDX-License-Identifier: Apache-2.0
"""torch.compile, torch.export and AOTInductor: whole graphs, and the bits of eager calls."""
import copy
import pathlib
import pickle
import tempfile
import unittest

import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

from support import DEVICE, E, H, I, K, MAX_TOKENS, RECIPES, Inputs, assert_same_bits, describe
from moejit.torch import Experts, experts


class Module(torch.nn.Module):
    """Experts between operations that Inductor makes kernels of."""

    def __init__(self, recipe="fp8_flow", **options):
        super().__init__()
        torch.manual_seed(0)
        self.experts = Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe=recipe, bias=True, device=DEVICE, **options)

    def forward(self, x, ids, probs):
        return self.experts(x * 2, ids, probs) + 1


class Checkpointed(Module):
    """The same, computed again in backward."""

    def forward(self, x, ids, probs):
        return checkpoint(super().forward, x, ids, probs, use_reentrant=False)


class Compile(unittest.TestCase):

    def setUp(self):
        torch._dynamo.reset()

    def step(self, module, inputs, function=None):
        for leaf in (inputs.x, inputs.probs, *module.parameters()):
            leaf.grad = None
        y = (module if function is None else function)(inputs.x, inputs.ids, inputs.probs)
        y.backward(inputs.dy)
        return [y.detach(), inputs.x.grad, inputs.probs.grad, *(each.grad for each in module.parameters())]

    def test_one_graph_has_the_bits_of_eager_with_every_backend(self):
        for recipe in RECIPES:
            for backend in ("eager", "aot_eager", "inductor"):
                with self.subTest(recipe=recipe, backend=backend):
                    torch._dynamo.reset()
                    module, inputs = Module(recipe), Inputs()
                    compiled = torch.compile(module, fullgraph=True, backend=backend)
                    assert_same_bits(self, self.step(module, inputs, compiled), self.step(module, inputs))
                    self.assertEqual(module.experts.status(), 0)

    def test_checkpoints_are_part_of_the_graph(self):
        for backend in ("aot_eager", "inductor"):
            with self.subTest(backend=backend):
                torch._dynamo.reset()
                module, eager, inputs = Checkpointed(), Module(), Inputs()
                compiled = torch.compile(module, fullgraph=True, backend=backend)
                assert_same_bits(self, self.step(module, inputs, compiled), self.step(eager, inputs))

    def test_a_compiled_block_below_a_checkpoint(self):
        module, inputs = Module(), Inputs()
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        call = lambda *given: checkpoint(compiled, *given, use_reentrant=False)
        assert_same_bits(self, self.step(module, inputs, call), self.step(module, inputs))

    def test_the_status_word_of_a_compiled_call(self):
        for kind in (Module, Checkpointed):
            for with_gradients in (True, False):
                with self.subTest(kind=kind.__name__, with_gradients=with_gradients):
                    torch._dynamo.reset()
                    module, inputs = kind(), Inputs()
                    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
                    with torch.set_grad_enabled(with_gradients):
                        for foreign in (0, 1, 0):
                            given = inputs.ids.clone()
                            if foreign:
                                given[0, 0] = E
                            compiled(inputs.x, given, inputs.probs)
                            self.assertEqual(module.experts.status(), foreign)

    def test_status_words_of_compiled_calls_and_others_are_joined(self):
        module, inputs = Module(), Inputs()
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        foreign = inputs.ids.clone()
        foreign[0, 0] = E
        for of_compiled, of_eager in ((foreign, inputs.ids), (inputs.ids, foreign)):
            compiled(inputs.x, of_compiled, inputs.probs)
            module(inputs.x, of_eager, inputs.probs)
            self.assertEqual(module.experts.status(), 1)
        compiled(inputs.x, inputs.ids, inputs.probs)
        module(inputs.x, inputs.ids, inputs.probs)
        self.assertEqual(module.experts.status(), 0)

    def test_copies_and_moved_modules_tell_their_status(self):
        inputs = Inputs()
        inputs.ids[0, 0] = E
        moved = Module().to("meta")
        self.assertTrue(moved.experts._state.compiled_status.is_meta)
        assigned = Module().to("meta")
        assigned.load_state_dict(Module().state_dict(), assign=True)
        for module in (copy.deepcopy(Module()), pickle.loads(pickle.dumps(Module())), moved.to_empty(device=DEVICE),
                       assigned):
            torch._dynamo.reset()
            self.assertEqual(module.experts.status(), 0)
            self.assertEqual(module.experts._state.compiled_status.device, module.experts.down_proj.device)
            self.assertIs(module.experts._call.state, module.experts._state)
            module.experts.reset_parameters()
            torch.compile(module, fullgraph=True, backend="aot_eager")(inputs.x, inputs.ids, inputs.probs)
            self.assertEqual(module.experts.status(), 1)

    def test_a_module_that_was_made_in_inference_mode(self):
        inputs = Inputs()
        for recipe in ("bf16", "fp8_delayed"):  # a status word is written, and the state of scales
            made = []
            for is_inference in (True, False):
                torch.manual_seed(0)
                with torch.inference_mode(is_inference):
                    made.append(Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe=recipe, device=DEVICE))
            compiled = torch.compile(made[0], fullgraph=True, backend="aot_eager")
            with self.subTest(recipe=recipe), torch.no_grad():
                want = made[1](inputs.x, inputs.ids, inputs.probs)
                assert_same_bits(self, [compiled(inputs.x, inputs.ids, inputs.probs)], [want])
                self.assertEqual(made[0].status(), 0)

    def test_the_function_with_a_description_as_a_dict(self):
        inputs = Inputs()
        layer = describe("fp8_flow")
        compiled = torch.compile(lambda x: experts(x, inputs.ids, inputs.probs, inputs.w1, inputs.w2,
                                                   layer=describe("fp8_flow")), fullgraph=True, backend="aot_eager")
        want = experts(inputs.x, inputs.ids, inputs.probs, inputs.w1, inputs.w2, layer=layer)
        assert_same_bits(self, [compiled(inputs.x)], [want])

    def test_one_graph_serves_all_numbers_of_tokens(self):
        module = Module()
        counter = CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(module, fullgraph=True, backend=counter, dynamic=True)
        for tokens in (12, 20, MAX_TOKENS, 3):
            inputs = Inputs(tokens)
            assert_same_bits(self, self.step(module, inputs, compiled), self.step(module, inputs))
        self.assertEqual(counter.frame_count, 1)
        inputs = Inputs(0)  # torch makes a graph of its own for sizes of 0 and 1
        assert_same_bits(self, self.step(module, inputs, compiled), self.step(module, inputs))
        with self.assertRaisesRegex(RuntimeError, f"{MAX_TOKENS}"):
            self.step(module, Inputs(MAX_TOKENS + 1), compiled)

    def test_calls_without_gradients_use_the_weights_that_were_kept(self):
        module, inputs = Module(), Inputs()
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        with torch.no_grad():
            want = module(inputs.x, inputs.ids, inputs.probs)
            module.experts.update_weights()
            assert_same_bits(self, [compiled(inputs.x, inputs.ids, inputs.probs)], [want])
            module.experts.down_proj.mul_(2)
            assert_same_bits(self, [compiled(inputs.x, inputs.ids, inputs.probs)], [want])
            module.experts.update_weights()
            assert_same_bits(self, [compiled(inputs.x, inputs.ids, inputs.probs)],
                             [module(inputs.x, inputs.ids, inputs.probs)])

    def test_main_gradients_are_added_to(self):
        inputs, module = Inputs(), Module(fuse_wgrad_accumulation=True)
        compiled = torch.compile(module, fullgraph=True, backend="inductor")
        sums = []
        for function in (module, compiled):
            for parameter in module.parameters():
                parameter.main_grad = torch.zeros(parameter.shape, device=DEVICE)
                parameter.grad_added_to_main_grad = False
            for _ in range(2):
                self.step(module, inputs, function)
            self.assertTrue(all(parameter.grad_added_to_main_grad for parameter in module.parameters()))
            sums.append([parameter.main_grad for parameter in module.parameters()])
        assert_same_bits(self, sums[1], sums[0])

    def test_microbatches(self):
        module, inputs = Module(), Inputs()
        run = lambda first: module.experts(inputs.x, inputs.ids, inputs.probs, is_first_microbatch=first)
        want = run(True)
        compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
        with torch.no_grad():
            module.experts.down_proj.mul_(2)
        assert_same_bits(self, [compiled(False)], [want])
        assert_same_bits(self, [compiled(True)], [2 * want])
        assert_same_bits(self, [compiled(False)], [2 * want])


class Export(unittest.TestCase):

    def setUp(self):
        torch._dynamo.reset()
        self.module = Module().requires_grad_(False)
        inputs = Inputs()
        self.given = (inputs.x.detach(), inputs.ids, inputs.probs.detach())

    def export(self):
        tokens = torch.export.Dim("tokens", min=2, max=MAX_TOKENS)
        return torch.export.export(self.module, self.given, dynamic_shapes=[{0: tokens}] * 3)

    def test_an_exported_program_has_the_bits_of_eager(self):
        program = self.export().module()
        for tokens in (12, 5, MAX_TOKENS):
            inputs = Inputs(tokens)
            given = (inputs.x.detach(), inputs.ids, inputs.probs.detach())
            assert_same_bits(self, [program(*given)], [self.module(*given)])

    @unittest.skipUnless(DEVICE.type == "cpu", "PyTorch 2.11 ends in loading a package on an H200, of a plain Linear too")
    def test_a_package_of_aot_inductor_has_the_bits_of_eager(self):
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            path = torch._inductor.aoti_compile_and_package(
                self.export(), package_path=str(pathlib.Path(folder) / "experts.pt2"))
            package = torch._inductor.aoti_load_package(path)
            assert_same_bits(self, [package(*self.given)], [self.module(*self.given)])


if __name__ == "__main__":
    unittest.main()
