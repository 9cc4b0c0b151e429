# SPDX-License-Identifier: Apache-2.0
"""Memory of backward: dx takes the memory of dy where nobody else holds dy, and two steps free what one would keep."""
import contextlib
import gc
import json
import unittest
from unittest import mock

import torch

from moejit.torch import HostedExperts, halves, ops, own_gradient
from moejit.torch.layers import call_text
from moejit.torch.linears import with_linears
from moejit.torch.plans import plan_of, row_of
from support import DEVICE, Inputs, ModuleTest, assert_same_bits, describe

KINDS = ("whole", "repeated", "delayed", "main_grad", "split")


class Made:
    """A module of some kind, with what its last backward pass was given and has made."""

    def __init__(self, kind, inputs, recipe="fp8_flow"):
        self.kind, self.inputs = kind, inputs
        self.weights = [torch.nn.Parameter(each.detach().clone()) for each in (inputs.w1, inputs.w2)]
        self.hosted = HostedExperts(describe(recipe), device=DEVICE, delay_wgrad_compute=kind == "delayed",
                                    fuse_wgrad_accumulation=kind == "main_grad", splits_backward=kind == "split")
        if kind == "repeated":
            self.step()

    def step(self, watch=lambda y: None):
        """[dx, dprobs, gradients of weights]; `watch` gets y before backward."""
        leaves = [self.inputs.x, self.inputs.probs, *self.weights]
        for leaf in leaves:
            leaf.grad = None
            leaf.main_grad = torch.zeros_like(leaf, dtype=torch.float32)
        y = self.hosted(self.inputs.x, self.inputs.ids, self.inputs.probs, *self.weights)
        self.at_dy = self.at_dx = None
        y.register_hook(lambda dy: setattr(self, "at_dy", dy.data_ptr()))
        self.inputs.x.register_hook(lambda dx: setattr(self, "at_dx", dx.data_ptr()))
        watch(y)
        (2 * y).backward(self.inputs.dy)
        if self.kind == "delayed":
            self.hosted.backward_dw()
        of_weights = [weight.main_grad if self.kind == "main_grad" else weight.grad for weight in self.weights]
        return [self.inputs.x.grad, self.inputs.probs.grad, *of_weights]


def of_any_size():
    return mock.patch.object(own_gradient, "FEWEST_ELEMENTS", 0)


class Memory(unittest.TestCase):

    def test_dx_takes_the_memory_of_dy(self):
        for kind in KINDS:
            inputs = Inputs()
            made = Made(kind, inputs)
            want = made.step()
            self.assertNotEqual(made.at_dx, made.at_dy)  # a small one is not worth the while
            with of_any_size(), self.subTest(kind):
                got = made.step()
                self.assertEqual(made.at_dx, made.at_dy)
                assert_same_bits(self, got, want)

    def test_a_gradient_that_others_hold_stays_as_it_is(self):
        held = []

        def by_view(y):
            y.register_hook(lambda dy: held.append(dy.detach()))

        def by_name(y):
            y.register_hook(lambda dy: held.append(dy))
        with of_any_size():
            for kind in KINDS:
                made = Made(kind, Inputs())
                for watch in by_name, by_view, torch.Tensor.retain_grad:
                    with self.subTest((kind, watch)):
                        held.clear()
                        made.step(lambda y: (watch(y), held.append(y) if watch is torch.Tensor.retain_grad else None))
                        dy, = held
                        assert_same_bits(self, [dy.grad if dy.requires_grad else dy], [2 * made.inputs.dy])

    def test_a_gradient_that_a_sum_shares_stays_as_it_is(self):
        inputs = Inputs()
        made = Made("whole", inputs)
        with of_any_size():
            other = torch.zeros_like(inputs.dy, requires_grad=True)
            later = 1 * other  # autograd runs functions of earlier calls later
            y = made.hosted(inputs.x, inputs.ids, inputs.probs, *made.weights)
            (2 * (y + later)).backward(inputs.dy)
        assert_same_bits(self, [other.grad], [2 * inputs.dy])

    def test_a_gradient_that_is_read_late_is_not_overwritten(self):
        layer = call_text(json.dumps(describe("bf16", input="grouped", top_k=1)), "sim", ("dx", "dw1", "dw2"), "bf16",
                          has_halves=True)
        self.assertFalse(own_gradient.may_overwrite(layer, "backward"))  # of its halves, the second reads dy
        self.assertFalse(own_gradient.may_overwrite(layer, "backward_weights"))


class Steps(ModuleTest):

    def test_two_steps_have_the_bits_of_one_and_free_memory_between(self):
        alive = {}
        run = ops.run

        def watching(layer, call, given, order=None):
            if call == "backward_data":
                alive["colwise"] = torch.multiprocessing.reductions.StorageWeakRef(
                    given["quantized_colwise"].untyped_storage())
            if call == "backward_weights":
                gc.collect()
                alive["at weights"] = not alive.pop("colwise").expired()
            return run(layer, call, given, order)
        inputs = Inputs()
        want = Made("whole", inputs).step()
        made = Made("split", inputs)
        with mock.patch.object(ops, "run", watching):
            assert_same_bits(self, made.step(), want)
        self.assertEqual(alive, {"at weights": False})

    def test_gradients_of_parts_and_of_graphs_that_stay(self):
        inputs = Inputs()
        want = Made("whole", inputs).step()
        made = Made("split", inputs)
        y = 2 * made.hosted(inputs.x, inputs.ids, inputs.probs, *made.weights)
        dx, = torch.autograd.grad(y, inputs.x, 3 * inputs.dy, retain_graph=True)  # leaves the other half undone
        assert_same_bits(self, torch.autograd.grad(y, [inputs.x, *made.weights], inputs.dy), [want[0], *want[2:]])
        self.assertFalse(torch.equal(dx, want[0]))

    def test_missing_main_gradients_are_told_by_forward(self):
        inputs = Inputs()
        made = Made("main_grad", inputs)
        hosted = HostedExperts(describe("fp8_flow"), device=DEVICE, fuse_wgrad_accumulation=True, splits_backward=True)
        with self.assertRaisesRegex(RuntimeError, "gate_up_proj has no main_grad"):
            hosted(inputs.x, inputs.ids, inputs.probs, *made.weights)
        want = [2 * each for each in made.step()[2:]]
        hosted(inputs.x, inputs.ids, inputs.probs, *made.weights).backward(2 * inputs.dy)
        assert_same_bits(self, [weight.main_grad for weight in made.weights], want)

    def test_layers_that_would_need_more_have_one_step(self):
        calls = []
        run = ops.run
        with mock.patch.object(ops, "run", lambda layer, call, *rest: (calls.append(call), run(layer, call, *rest))[1]):
            Made("split", Inputs(), "bf16").step()
        self.assertNotIn("backward_weights", calls)


class Parts(unittest.TestCase):
    """Backward of grouped rows in bf16, in the parts of fc2 and of fc1."""
    recipe = "bf16"

    def setUp(self):
        self.inputs = Inputs(tokens=40)
        self.inputs.probs = self.inputs.probs.detach()[:, 0].contiguous().requires_grad_()
        self.sizes = torch.tensor((3, 0, 1, 17, 0, 9, 2, 4), device=DEVICE)

    def call(self, splits_backward=True, **options):
        of, layer = self.inputs, describe(self.recipe, input="grouped")
        del layer["top_k"]
        hosted = HostedExperts(layer, device=DEVICE, splits_backward=splits_backward, **options)
        return 2 * hosted(of.x, self.sizes, of.probs, of.w1, of.w2)

    def results(self, *leaves, **options):
        return torch.autograd.grad(self.call(**options), leaves or self.leaves(), self.inputs.dy)

    def leaves(self):
        return self.inputs.x, self.inputs.probs, self.inputs.w1, self.inputs.w2

    def test_they_have_the_bits_of_one_call_and_free_memory_between(self):
        of_storage = torch.multiprocessing.reductions.StorageWeakRef
        refs, alive, run = [], [], ops.run

        def watching(layer, call, given, order=None):
            if call == "backward_fc2":
                refs.extend(of_storage(given[name].untyped_storage()) for name in ("saved", "dy"))
            if call == "backward_fc1":
                alive.extend(not ref.expired() for ref in refs)
            return run(layer, call, given, order)
        want = self.results(splits_backward=False)
        with mock.patch.object(ops, "run", watching):
            assert_same_bits(self, self.results(), want)
        self.assertEqual(alive, [False, False])

    def test_gradients_of_parts_and_of_graphs_that_stay(self):
        want = self.results(splits_backward=False)
        y = self.call()
        x, probs, w1, w2 = self.leaves()
        dx, dw2 = torch.autograd.grad(y, (x, w2), self.inputs.dy, retain_graph=True)
        assert_same_bits(self, [dx, dw2], [want[0], want[3]])
        assert_same_bits(self, torch.autograd.grad(y, (w1, probs), self.inputs.dy), [want[2], want[1]])
        self.inputs.w1.requires_grad_(False)
        assert_same_bits(self, self.results(x, w2), [want[0], want[3]])

    def test_main_gradients_are_added_to_in_one_call(self):
        for weight in self.leaves()[2:]:
            weight.main_grad = torch.zeros_like(weight, dtype=torch.float32)
        want = self.results(splits_backward=False)[2:]
        self.call(fuse_wgrad_accumulation=True).backward(self.inputs.dy)
        assert_same_bits(self, [weight.main_grad.bfloat16() for weight in self.leaves()[2:]], want)


class PartsOfTiles(Parts):
    """The same in FP8, where the first part casts the columns of weights."""
    recipe = "fp8_flow"

    def calls(self, step=None):
        """The calls of a step, and whether each reads or makes columns that are held between the passes."""
        made, run = [], ops.run

        def watching(layer, call, given, order=None):
            results = run(layer, call, given, order)
            made.append((call, "quantized_colwise" in {**given, **results}))
            return results
        with mock.patch.object(ops, "run", watching):
            (step or self.results)()
        return made

    def test_nothing_of_the_columns_is_held_between_the_passes(self):
        self.assertEqual(self.calls(),
                         [("update_weights+forward", False), ("backward_fc2", False), ("backward_fc1", False)])

    def test_nothing_of_the_columns_is_held_where_main_gradients_are_added_to(self):
        want = [2 * gradient for gradient in self.results()[2:]]
        for weight in self.leaves()[2:]:
            weight.main_grad = torch.zeros_like(weight, dtype=torch.float32)

        def step():
            self.call(fuse_wgrad_accumulation=True).backward(2 * self.inputs.dy)
        self.assertEqual(self.calls(step), [("update_weights+forward", False), ("backward_data", False),
                                            ("backward_weights+add", False)])
        assert_same_bits(self, [weight.main_grad.bfloat16() for weight in self.leaves()[2:]], want)

    def test_columns_are_held_in_the_place_of_a_copy_of_weights(self):
        want = self.results()
        self.inputs.w1 = self.inputs.w1.clone()
        self.assertIn(("update_weights+forward", True), self.calls())
        assert_same_bits(self, self.results(), want)


# (hidden, intermediate, experts, rows)
SHAPES = {"8 of 7168 x 2048": (7168, 2048, 8, 32768), "128 of 2048 x 768": (2048, 768, 128, 65536)}


class Accounting(unittest.TestCase):
    """MiB that a backward pass of grouped rows holds at its peak on the GPU, by the plans: what is kept for it, the
    gradients of y and of rows, workspace, and gradients of weights in bf16."""

    def peaks(self, recipe, hidden, intermediate, experts, rows):
        """(before, now): in one call with gradients of its own, and as HostedExperts has it.

        The second one has dx over the gradient of y where its kernels allow this.
        """
        description = json.dumps({"experts": experts, "hidden": hidden, "intermediate": intermediate, "recipe": recipe,
                                  "input": "grouped", "max_tokens": rows})
        whole = call_text(description, "cuda:sm_90a", ("dx", "dprobs", "dw1", "dw2"), "bf16")
        facts = plan_of(whole)
        dx, dw = 2 * rows * hidden, 2 * 3 * experts * hidden * intermediate
        x = dx if any(argument.name == "x" for argument in row_of(whole, "backward").reads) else 0
        kept = facts.saved.most + facts.quantized_colwise.bytes + x
        before = kept + 2 * dx + facts.workspace_bytes + dw
        parted = with_linears(whole, casts_columns=True)
        facts, dw2 = plan_of(parted), dw // 3
        of_fc2, of_fc1 = (facts.calls[f"backward_{linear}"].workspace_bytes for linear in ("fc2", "fc1"))
        of_fc2 += dx * (not own_gradient.may_overwrite(parted, "backward_fc2")) + facts.quantized_colwise.bytes
        return before, x + dx + facts.deferred.most + max(of_fc2 + facts.saved.most + dw2, of_fc1 + dw)

    def test_a_backward_pass_holds_less(self):
        for shape, recipe, most in (("8 of 7168 x 2048", "bf16", 1895), ("8 of 7168 x 2048", "fp8_flow", 2190),
                                    ("128 of 2048 x 768", "bf16", 1860), ("128 of 2048 x 768", "fp8_flow", 1795)):
            with self.subTest((shape, recipe)):
                before, now = (round(bytes_ / 2 ** 20) for bytes_ in self.peaks(recipe, *SHAPES[shape]))
                self.assertLessEqual(now, most, f"before {before}")
                self.assertLess(now, before - 250)


if __name__ == "__main__":
    unittest.main()
