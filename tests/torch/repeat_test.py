# SPDX-License-Identifier: Apache-2.0
"""Calls that repeat an earlier one of their module: they have its bits, and decline whatever differs."""
import copy
import gc
import io
import unittest
import weakref
from unittest import mock

import torch
import torch.nn.utils.parametrize
from torch.utils.checkpoint import checkpoint

from support import DEVICE, E, H, I, K, MAX_TOKENS, RECIPES, Inputs, Recorder, assert_same_bits
from moejit.torch import Experts, call


def make(inputs, recipe="fp8_flow", **arguments):
    """A module with the weights of the inputs, as parameters of its own."""
    module = Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe=recipe, bias=inputs.b1 is not None, device=DEVICE,
                     **arguments)
    with torch.no_grad():
        for own, given in zip(module._weights(), (inputs.w1, inputs.w2, inputs.b1, inputs.b2)):
            if own is not None:
                own.copy_(given)
    return module


def step(module, inputs):
    """[y, the gradients of x, probabilities and parameters] of a call."""
    leaves = [inputs.x, inputs.probs, *module.parameters()]
    for leaf in leaves:
        leaf.grad = None
    y = module(inputs.x, inputs.ids, inputs.probs)
    y.backward(inputs.dy)
    return [y.detach()] + [leaf.grad for leaf in leaves if leaf.requires_grad]


def infer(module, inputs):
    with torch.no_grad():
        return module(inputs.x, inputs.ids, inputs.probs)


def only_repeats():
    """A context in which calls fail unless they repeat an earlier one."""
    return mock.patch.multiple(call, _without_gradients=mock.DEFAULT, _with_gradients=mock.DEFAULT)


class RepeatedCalls(unittest.TestCase):

    def test_have_the_bits_of_the_first_one_and_go_the_short_way(self):
        for recipe in RECIPES:
            for biases in (False, True):
                for recompute in ("none", "moe_expert"):
                    with self.subTest(recipe=recipe, biases=biases, recompute=recompute):
                        inputs = Inputs(biases=biases)
                        module = make(inputs, recipe, recompute=recompute)
                        want, y = step(module, inputs), infer(module, inputs)
                        with only_repeats():
                            for _ in range(2):
                                assert_same_bits(self, step(module, inputs), want)
                        infer(module, inputs)  # quantizes again: steps forget the kept weights
                        with only_repeats():
                            assert_same_bits(self, [infer(module, inputs)], [y])
                        self.assertEqual(module.status(), 0)

    def test_have_another_number_of_tokens(self):
        for tokens in (0, 1, MAX_TOKENS):
            inputs = Inputs(tokens, seed=1)
            module = make(inputs)
            step(module, Inputs()), infer(module, Inputs())
            want, y = step(make(inputs), inputs), infer(make(inputs), inputs)
            with only_repeats():
                got = step(module, inputs)
            infer(module, inputs)
            with only_repeats():
                assert_same_bits(self, [*got, infer(module, inputs)], [*want, y])

    def test_tell_the_status_of_their_own(self):
        inputs = Inputs()
        module = make(inputs)
        step(module, inputs), infer(module, inputs)
        wrong = copy.copy(inputs)
        wrong.ids = torch.full_like(inputs.ids, E)
        for run in (step, infer):
            run(module, wrong)
            self.assertNotEqual(module.status(), 0)
            run(module, inputs)
            self.assertEqual(module.status(), 0)

    def test_give_only_the_gradients_that_are_asked_for(self):
        inputs = Inputs()
        module = make(inputs)
        _, want, *_ = step(module, inputs)
        with only_repeats():
            dx, = torch.autograd.grad(module(inputs.x, inputs.ids, inputs.probs), [inputs.x], inputs.dy)
        assert_same_bits(self, [dx], [want])

    def test_have_no_second_derivative(self):
        inputs = Inputs()
        module = make(inputs)
        step(module, inputs)
        y = module(inputs.x, inputs.ids, inputs.probs)
        dx, = torch.autograd.grad(y.float().square().sum(), [inputs.x], create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "second derivative|does not require grad"):
            dx.float().sum().backward()

    def test_keep_nothing_but_what_backward_reads(self):
        inputs = Inputs()
        kept = []
        module = make(inputs)
        for _ in range(2):
            shapes = []
            with torch.autograd.graph.saved_tensors_hooks(lambda each: shapes.append(list(each.shape)) or each,
                                                          lambda each: each):
                module(inputs.x, inputs.ids, inputs.probs)
            kept.append(shapes)
        self.assertEqual(kept[0], kept[1])
        self.assertEqual(len(kept[0]), 2, "saved and the column-wise weights")

    def test_repeat_a_forward_call_of_a_checkpoint(self):
        for recipe in RECIPES:
            for biases in (False, True):
                for recompute in ("none", "moe_expert"):
                    inputs = Inputs(biases=biases)
                    want = step(make(inputs, recipe, recompute=recompute), inputs)
                    module = make(inputs, recipe, recompute=recompute)
                    for _ in range(2):  # forward goes the whole way in the first step, and repeats in the second
                        assert_same_bits(self, step(calls_by(
                            module, lambda *given: checkpoint(module, *given, use_reentrant=False)), inputs), want)

    def test_do_not_hide_steps_from_dispatch_modes(self):
        inputs = Inputs()
        module = make(inputs)
        step(module, inputs), infer(module, inputs)
        with Recorder() as recorder:
            step(module, inputs)
            infer(module, inputs)
            infer(module, inputs)
        self.assertEqual([name for name, _ in recorder.calls],
                         ["update_weights+forward", "backward", *["update_weights", "forward"] * 2])

    def test_see_changes_of_weights(self):
        inputs, other = Inputs(), Inputs(seed=1)
        module = make(inputs)
        infer(module, inputs), infer(module, inputs)
        want = infer(make(other), inputs)
        with torch.no_grad():
            module.gate_up_proj.copy_(other.w1)
            module.down_proj.copy_(other.w2)
        assert_same_bits(self, [infer(module, inputs)], [want])
        module.gate_up_proj = torch.nn.Parameter(inputs.w1.detach().clone())
        module.down_proj.data = inputs.w2.detach().clone()
        assert_same_bits(self, [infer(module, inputs)], [infer(make(inputs), inputs)])

    def test_see_changes_through_data_behind_a_step(self):
        inputs, other = Inputs(), Inputs(seed=1)
        module = make(inputs)
        for _ in range(2):
            step(module, inputs), infer(module, inputs)
        with only_repeats():
            step(module, inputs)
        module.gate_up_proj.data.copy_(other.w1)  # no version tells
        inputs.w1 = other.w1
        assert_same_bits(self, [infer(module, inputs)], [infer(make(inputs), inputs)])

    def test_keep_no_replaced_weight_alive(self):
        inputs = Inputs()
        module = make(inputs)
        step(module, inputs), infer(module, inputs)
        old = weakref.ref(module.gate_up_proj)
        module.gate_up_proj = torch.nn.Parameter(inputs.w1.detach().clone())
        gc.collect()
        self.assertIsNone(old())

    def test_are_not_taken_over_by_copies(self):
        inputs = Inputs()
        module = make(inputs)
        want, y = step(module, inputs), infer(module, inputs)
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        for other in (copy.deepcopy(module), torch.load(file, weights_only=False)):
            self.assertEqual((other._call.inference, other._call.training, other._call.layers), (None, None, {}))
            self.assertIs(other._call.state, other._state)
            assert_same_bits(self, [*step(other, inputs), infer(other, inputs)], [*want, y])

    def test_look_on_the_device_for_writes_that_nothing_tells_of(self):
        inputs = Inputs()
        module = make(inputs)
        before = infer(module, inputs)
        module.down_proj.data.mul_(-1)
        with only_repeats():
            assert_same_bits(self, [infer(module, inputs)], [-before])

    def test_compile_to_the_same_graph(self):
        inputs = Inputs()
        module = make(inputs)
        want = step(module, inputs)
        step(module, inputs)
        compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
        assert_same_bits(self, step(calls_by(module, compiled), inputs), want)


def calls_by(module, run):
    """Something that step() takes, which calls `run` and has the module's parameters."""
    class Wrapped:
        __call__ = staticmethod(run)
        parameters = staticmethod(module.parameters)
    return Wrapped()


class Differing(unittest.TestCase):
    """Calls that differ from the earlier one in one thing give what a new module gives, also errors."""

    def setUp(self):
        self.inputs = Inputs()
        self.module = make(self.inputs)
        for _ in range(2):
            step(self.module, self.inputs)
            infer(self.module, self.inputs)

    def assert_like_new(self, inputs, run):
        new = make(self.inputs)
        for own, other in zip(new.parameters(), self.module.parameters()):
            own.requires_grad_(other.requires_grad)
            if hasattr(other, "grad_dtype"):
                own.grad_dtype = other.grad_dtype
        got, want = outcome(self.module, inputs, run), outcome(new, inputs, run)
        self.assertEqual(type(got), type(want))
        if isinstance(want, str):
            self.assertEqual(got, want)
        else:
            assert_same_bits(self, got, want)
            self.assertEqual([each.dtype for each in got], [each.dtype for each in want])
        return want

    def changed(self, **fields):
        inputs = copy.copy(self.inputs)
        for name, value in fields.items():
            setattr(inputs, name, value)
        return inputs

    def test_in_dtypes_and_layout_of_inputs(self):
        for inputs in (self.changed(ids=self.inputs.ids.int()), self.changed(ids=self.inputs.ids.short()),
                       self.changed(probs=self.inputs.probs.detach().bfloat16().requires_grad_()),
                       self.changed(ids=self.inputs.ids.T.contiguous().T),
                       self.changed(x=self.inputs.x.detach().T.contiguous().T.requires_grad_())):
            for run in (step, infer):
                self.assertNotIsInstance(self.assert_like_new(inputs, run), str)

    def test_in_dimensions(self):
        shaped = self.changed(x=self.inputs.x.detach().view(3, 4, H).requires_grad_(),
                              ids=self.inputs.ids.view(3, 4, K),
                              probs=self.inputs.probs.detach().view(3, 4, K).requires_grad_(),
                              dy=self.inputs.dy.view(3, 4, H))
        for run in (step, infer):
            self.assertNotIsInstance(self.assert_like_new(shaped, run), str)

    def test_in_what_is_refused(self):
        x = self.inputs.x.detach()
        for inputs in (self.changed(x=x.float()), self.changed(x=x[:, :32].contiguous()), self.changed(x=x.to("meta")),
                       self.changed(ids=self.inputs.ids.float()), self.changed(ids=self.inputs.probs.detach()),
                       self.changed(probs=self.inputs.ids), self.changed(ids=self.inputs.ids[:, :1].contiguous()),
                       self.changed(ids=self.inputs.ids[:5].contiguous()), self.changed(x=x.repeat(8, 1)),
                       self.changed(x=x[0])):
            for run in (step, infer):
                self.assertIsInstance(self.assert_like_new(inputs, run), str)

    def test_in_the_gradients_that_are_wanted(self):
        self.module = make(self.inputs)
        self.module.gate_up_proj.requires_grad_(False)
        self.assert_like_new(self.inputs, step)
        self.assertEqual(len(self.assert_like_new(self.inputs, step)), 4)
        self.module.gate_up_proj.requires_grad_(True)
        self.assertEqual(len(self.assert_like_new(self.inputs, step)), 5)
        self.assert_like_new(self.changed(probs=self.inputs.probs.detach()), step_of_weights)
        self.assert_like_new(self.inputs, step)

    def test_in_weights_that_are_no_parameters(self):
        def with_computed_weights(module, inputs):
            with torch.nn.utils.parametrize.cached():
                return step(module, inputs)
        for module in (self.module, new := make(self.inputs)):
            torch.nn.utils.parametrize.register_parametrization(module, "gate_up_proj", Doubled())
        self.assertNotIsInstance(got := outcome(self.module, self.inputs, with_computed_weights), str)
        assert_same_bits(self, got, outcome(new, self.inputs, with_computed_weights))

    @unittest.skipUnless(hasattr(torch.Tensor, "grad_dtype"), "from torch 2.11 on")
    def test_in_the_dtype_of_gradients(self):
        for parameter in self.module.parameters():
            parameter.grad = None
            parameter.grad_dtype = torch.float32
        for _ in range(2):
            results = self.assert_like_new(self.inputs, step)
            self.assertEqual([each.dtype for each in results[3:]], [torch.float32, torch.float32])

    def test_in_autocast(self):
        inputs = self.changed(x=self.inputs.x.detach().float().requires_grad_())
        with torch.autocast(DEVICE.type, torch.bfloat16):
            for run in (step, infer):
                self.assertNotIsInstance(self.assert_like_new(inputs, run), str)

    def test_in_microbatches(self):
        def first(module, inputs):
            return [module(inputs.x, inputs.ids, inputs.probs, is_first_microbatch=True).detach()]
        self.assert_like_new(self.inputs, first)
        self.assert_like_new(self.inputs, step)

    def test_in_transforms(self):
        def by_transform(module, inputs):
            return [torch.func.grad(lambda x: module(x, inputs.ids, inputs.probs).float().sum())(inputs.x)]
        self.assertIn("setup_context", self.assert_like_new(self.inputs, by_transform))

    def test_in_inference_mode(self):
        def in_inference_mode(module, inputs):
            with torch.inference_mode():
                return [module(inputs.x, inputs.ids, inputs.probs).clone()]
        self.assert_like_new(self.inputs, in_inference_mode)
        self.assert_like_new(self.inputs, step)


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return 2 * weight


def step_of_weights(module, inputs):
    return step(calls_by(module, module), inputs)[:1]


def outcome(module, inputs, run):
    """The results of a call, or the sentence of its error."""
    try:
        results = run(module, inputs)
    except (RuntimeError, TypeError) as error:
        return str(error)
    return [results.detach()] if isinstance(results, torch.Tensor) else results


if __name__ == "__main__":
    unittest.main()
