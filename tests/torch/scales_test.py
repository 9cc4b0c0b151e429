# SPDX-License-Identifier: Apache-2.0
"""Experts of the recipe fp8_delayed: the state that their scales follow from, step by step."""
import copy
import io
import unittest

import numpy as np
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from scales_case import GRADIENTS, HISTORY, STATE, Rule, assert_same_state, make, state_of, step
from support import (DEVICE, E, H, I, K, MAX_TOKENS, Inputs, assert_same_bits, check_call, describe, kept_block,
                     main_grads, text)
from moejit.torch import Experts, experts, ops, run
from moejit.torch.devices import target_of
from moejit.torch.gathered import parts_of_block
from moejit.torch.layers import call_text

STEPS, MICROBATCHES = 20, 2
INFINITE, NOTHING, SKIPPED = 7, 10, 13  # steps with an infinity among the tokens, gradients of 0, kept weights


def amaxes(rows, is_counted):
    """[E]: the largest magnitudes of the rows of tokens with a choice of an expert that counts; see counted()."""
    largest = rows.detach().float().abs().amax(-1)
    return [max([0.0, *largest[each].tolist()]) for each in is_counted]


def counted(ids, probs=None):
    """[E, T]: whether a token has chosen an expert, with a probability that is not 0 if these are given."""
    return [((ids == e) & (probs != 0 if probs is not None else True)).any(-1) for e in range(E)]


class TransformerEnginesRule(unittest.TestCase):
    """20 steps, each beside the rule of the test's own."""

    def rules(self, **options):
        return {"fc1": Rule(3 * E, 448, **options), "fc2": Rule(3 * E, 448, **options),
                "fc1_grad": Rule(2 * E, 57344, **options), "fc2_grad": Rule(2 * E, 57344, **options)}

    def microbatch(self, module, number, index, first, skip):
        """Runs a microbatch; returns what its casts of x and dy have to record."""
        inputs = Inputs(seed=100 * number + index)
        with torch.no_grad():
            inputs.x.mul_(1.5 ** (number % 7 - 3))
            if number == INFINITE and index == 0:
                inputs.x[3, 5] = float("inf")
            if number == NOTHING:
                inputs.dy.zero_()
            inputs.ids[inputs.ids == E - 1] = -1 if number % 3 else E - 1  # the last expert has no rows then
            inputs.probs[2, 0] = 0
        options = {"is_first_microbatch": first} if skip is None else {"skip_update": skip}
        module(inputs.x, inputs.ids, inputs.probs, **options).backward(inputs.dy)
        # Rows of probability 0 are permuted as zeros, but their gradients are not.
        return amaxes(inputs.x, counted(inputs.ids, inputs.probs)), amaxes(inputs.dy, counted(inputs.ids))

    def check_recorded(self, module, number, of_x, of_dy, rules):
        """Checks row 0 of the histories, and takes from it what only kernels know: the largest of act and dh1."""
        row = {name: getattr(module, f"{name}_amax_history")[0].cpu().numpy() for name in rules}
        np.testing.assert_array_equal(row["fc1"][0::3], of_x)
        np.testing.assert_array_equal(row["fc2_grad"][0::2], of_dy)
        weights = {"fc1": module.gate_up_proj, "fc2": module.down_proj}
        for name, weight in weights.items():
            largest = weight.detach().float().abs().amax((1, 2)).tolist()
            np.testing.assert_array_equal(row[name][1::3], [0.0] * E if number == SKIPPED else largest)
            self.assertFalse(row[name][2::3].any())
        for name, amax in (("fc2", row["fc2"][0::3]), ("fc1_grad", row["fc1_grad"][0::2])):
            has_rows = np.asarray(of_x if name == "fc2" else of_dy) > 0
            np.testing.assert_array_equal(amax > 0, has_rows, name)
        for name, rule in rules.items():
            rule.history[0] = row[name]

    def check_state(self, module, rules, number):
        for name, rule in rules.items():
            np.testing.assert_array_equal(getattr(module, f"{name}_amax_history").cpu().numpy(), rule.history,
                                          f"{name} in step {number}")
            np.testing.assert_array_equal(getattr(module, f"{name}_scale").cpu().numpy(), rule.scale,
                                          f"{name} in step {number}")

    def check_codes(self, module, scales):
        """Checks the kept weights: codes, and scales that recover them."""
        layer = call_text(module.description, target_of(DEVICE), (), "f32", keeps_state=True)
        parts = parts_of_block(kept_block(module._state), layer)
        for name, linear, weight in (("w1", "fc1", module.gate_up_proj), ("w2", "fc2", module.down_proj)):
            scale = torch.from_numpy(scales[linear][1::3]).to(DEVICE)
            scaled = (weight.detach().float() * scale[:, None, None]).clamp(-448, 448)
            codes = scaled.to(torch.float8_e4m3fn).view(torch.uint8)
            self.assertTrue(torch.equal(parts[f"{name}_q"], codes), f"{name}_q")
            self.assertTrue(torch.equal(parts[f"{name}_scale_inv"], 1 / scale), f"{name}_scale_inv")

    def check(self, **options):
        module = make(update_scales_in_backward=False, **options)
        rule = {"margin": options.get("margin", 0), "algorithm": options.get("amax_compute_algo", "max")}
        rules = self.rules(**rule)
        for number in range(STEPS):
            used = {name: each.scale.copy() for name, each in rules.items()}
            if number == SKIPPED:
                skip = torch.ones(1, dtype=torch.int32, device=DEVICE)
            else:
                skip, kept = None, used
            made = [self.microbatch(module, number, index, index == 0, skip) for index in range(MICROBATCHES)]
            of_x, of_dy = (np.max([each[i] for each in made], 0) for i in (0, 1))
            self.check_recorded(module, number, of_x, of_dy, rules)
            self.check_codes(module, kept)
            for each in rules.values():
                each.update()
            module.update_scales()
            self.check_state(module, rules, number)
            module.update_scales()  # nothing was recorded since
            self.check_state(module, rules, number)
            if number != SKIPPED - 1:  # a step later the kept weights would be wrong
                with torch.no_grad():
                    for parameter in module.parameters():
                        parameter.mul_(0.9 if number % 2 else 1.3)
        self.assertEqual(rules["fc1"].scale[2::3].tolist(), [1.0] * E)
        self.assertGreater(len(set(rules["fc1"].scale[0::3].tolist())), E // 2)

    def test_the_largest_of_all_steps(self):
        self.check()

    def test_the_most_recent_step_with_a_margin(self):
        self.check(amax_compute_algo="most_recent", margin=2)

    def test_kernels_record_what_float32_says_of_act_and_dh1(self):
        module, inputs = make(update_scales_in_backward=False), Inputs(tokens=48)
        module(inputs.x, inputs.ids, inputs.probs).backward(inputs.dy)
        module.update_scales()  # scales of ones are too small for gradients
        w1, w2, x, dy = (each.detach().float() for each in (module.gate_up_proj, module.down_proj, inputs.x, inputs.dy))
        module(inputs.x, inputs.ids, inputs.probs).backward(inputs.dy)
        for expert in range(E):
            tokens, choices = torch.where(inputs.ids == expert)
            probs = inputs.probs.detach()[tokens, choices, None]
            h1 = (x[tokens] @ w1[expert].T).requires_grad_()
            gate, up = h1.chunk(2, -1)
            act = torch.nn.functional.silu(gate) * up * probs
            act.backward(dy[tokens] @ w2[expert])
            for name, column, want in (("fc2_amax_history", 3 * expert, act.detach()),
                                       ("fc1_grad_amax_history", 2 * expert, h1.grad)):
                largest, got = want.abs().max().item(), getattr(module, name)[0, column].item()
                self.assertLess(abs(got - largest), 0.15 * largest, name)


class Automatic(unittest.TestCase):
    """Scales that move on behind each backward pass."""

    def test_they_are_those_of_an_update_behind_each_backward_pass(self):
        for options in ({}, {"recompute": "moe_expert"}, {"gradient_format": "e4m3", "amax_history_len": 1}):
            with self.subTest(**options):
                one, other = make(**options), make(**options, update_scales_in_backward=False)
                for seed in range(4):
                    assert_same_bits(self, step(one, seed), step(other, seed))
                    self.assertTrue(any(getattr(other, f"{name}_amax_history")[0].any() for name in ("fc1", "fc1_grad")))
                    other.update_scales()
                    assert_same_state(self, state_of(one), state_of(other), f"in step {seed}")
                self.assertFalse(one.fc1_amax_history[0].any())

    def test_calls_without_gradients_record_and_move_nothing(self):
        one, other = make(), make()
        inputs = Inputs(seed=5)
        with torch.no_grad():
            inputs.x.mul_(64)
        for module in (one, other):
            step(module, 0)
        before = state_of(one)
        one.eval()
        with torch.no_grad():
            one(inputs.x, inputs.ids, inputs.probs)
        after = state_of(one)
        for name in STATE[2:4] + GRADIENTS:
            self.assertTrue(torch.equal(after[name], before[name]), name)
        self.assertTrue(torch.equal(after["fc1_amax_history"][1:], before["fc1_amax_history"][1:]))
        largest = amaxes(inputs.x, counted(inputs.ids))
        self.assertEqual(after["fc1_amax_history"][0, 0::3].tolist(), largest)  # as Transformer Engine's casts do
        one.load_state_dict({**one.state_dict(), **before})
        for seed in (1, 2):
            assert_same_bits(self, step(one.train(), seed), step(other, seed))
        assert_same_state(self, state_of(one), state_of(other))

    def test_other_ways_through_backward_move_the_same_state(self):
        want = make()
        ways = {"delayed": make(delay_wgrad_compute=True), "main": make(fuse_wgrad_accumulation=True)}
        for parameter in ways["main"].parameters():
            parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
        for seed in range(3):
            of_want = step(want, seed)
            for name, module in ways.items():
                got = step(module, seed)
                assert_same_bits(self, got[:3], of_want[:3])
                module.backward_dw()
                assert_same_state(self, state_of(module), state_of(want), name)
                if name == "delayed":
                    assert_same_bits(self, [each.grad for each in module.parameters()], of_want[3:])

    def test_frozen_weights_move_scales_on_too(self):
        module, frozen = make(), make().requires_grad_(False)
        for seed in range(3):
            assert_same_bits(self, step(frozen, seed)[:3], step(module, seed)[:3])
        assert_same_state(self, state_of(frozen), state_of(module))


class Repeated(unittest.TestCase):
    """Checkpoints, and saved tensors that come back as copies."""

    def test_checkpoints_use_the_scales_of_the_forward_call_again(self):
        for updates in (True, False):
            for use_reentrant in (False, True):
                with self.subTest(updates=updates, use_reentrant=use_reentrant):
                    plain, repeated = (make(update_scales_in_backward=updates) for _ in range(2))
                    for seed in range(4):
                        got = step(repeated, seed, lambda *given, module=repeated, reentrant=use_reentrant:
                                   checkpoint(module, *given, use_reentrant=reentrant))
                        assert_same_bits(self, got, step(plain, seed))
                        if not updates:
                            plain.update_scales()
                            repeated.update_scales()
                        assert_same_state(self, state_of(repeated), state_of(plain), f"in step {seed}")

    def test_a_selective_checkpoint_keeps_results_or_computes_them_again(self):
        for saved in ((), (ops.call,)):  # torch keeps no results of operators that write into their arguments
            with self.subTest(saved=[str(each) for each in saved]):
                def policy(_, operator, *__, saved=saved, **___):
                    return CheckpointPolicy.MUST_SAVE if operator in saved else CheckpointPolicy.PREFER_RECOMPUTE
                one, other = make(), make()
                for seed in range(3):
                    got = step(one, seed, lambda *given, one=one, policy=policy: checkpoint(
                        one, *given, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy)))
                    assert_same_bits(self, got, step(other, seed))
                    assert_same_state(self, state_of(one), state_of(other), f"in step {seed}")

    def test_several_forward_calls_come_before_their_backward_calls(self):
        plain, repeated = (make(update_scales_in_backward=False) for _ in range(2))
        for number in range(3):
            results = []
            for module, call in ((plain, plain), (repeated, lambda *given: checkpoint(repeated, *given,
                                                                                      use_reentrant=False))):
                batches = [Inputs(seed=10 * number + index) for index in range(3)]
                ys = [call(each.x, each.ids, each.probs) for each in batches]
                for y, each in zip(ys, batches):
                    y.backward(each.dy)
                module.update_scales()
                results.append([*ys, *(each.x.grad for each in batches), *(each.grad for each in module.parameters())])
            assert_same_bits(self, *results)
            assert_same_state(self, state_of(repeated), state_of(plain))

    def test_saved_tensors_that_come_back_as_copies(self):
        one, other = make(), make()
        for seed in range(3):
            with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):  # as offload to the host does
                got = step(one, seed)
            assert_same_bits(self, got, step(other, seed))
        assert_same_state(self, state_of(one), state_of(other))


class Buffers(unittest.TestCase):

    def test_state_dicts_have_them_and_load_bit_for_bit(self):
        module = make()
        for seed in range(3):
            step(module, seed)
        module(*(lambda given: (given.x, given.ids, given.probs))(Inputs(seed=3)))  # leaves row 0 as no update does
        self.assertEqual(set(module.state_dict()), {"gate_up_proj", "down_proj", *STATE})
        stored = io.BytesIO()
        torch.save(module.state_dict(), stored)
        stored.seek(0)
        loaded = make(seed=1)
        step(loaded, 9)
        loaded.load_state_dict(torch.load(stored))
        for each in (loaded, copy.deepcopy(module)):
            assert_same_state(self, state_of(each), state_of(module))
        for seed in (4, 5):
            assert_same_bits(self, step(loaded, seed), step(module, seed))
        assert_same_state(self, state_of(loaded), state_of(module))

    def test_their_bits_do_not_depend_on_the_dtype_of_the_module(self):
        module = make()
        step(module, 0)
        before = state_of(module)
        for moved in (module.float(), module.to(torch.bfloat16), module.half(), module.to(DEVICE, torch.bfloat16)):
            assert_same_state(self, state_of(moved), before)
        self.assertEqual(module.gate_up_proj.dtype, torch.bfloat16)
        self.assertEqual(len(step(module, 1)), 5)

    def test_a_first_state_is_zeros_and_ones_also_of_a_module_that_was_made_on_meta(self):
        module = make(device="meta").to_empty(device=DEVICE)
        module.reset_parameters()
        for name, tensor in state_of(module).items():
            self.assertEqual(set(tensor.flatten().tolist()), {1.0} if name.endswith("_scale") else {0.0}, name)
        self.assertEqual(list(module.fc1_amax_history.shape), [HISTORY, 3 * E])
        self.assertEqual(list(make(amax_history_len=None).fc2_grad_amax_history.shape), [1024, 2 * E])
        self.assertEqual(set(Experts(E, H, I, K, max_tokens=MAX_TOKENS).state_dict()), {"gate_up_proj", "down_proj"})


class Compiled(unittest.TestCase):

    def test_graphs_have_the_bits_of_eager_calls_and_move_the_same_state(self):
        for backend in ("aot_eager", "inductor"):
            for updates in (True, False):
                with self.subTest(backend=backend, updates=updates):
                    torch._dynamo.reset()
                    one, other = (make(update_scales_in_backward=updates) for _ in range(2))
                    compiled = torch.compile(one, fullgraph=True, backend=backend)
                    for seed in range(3):
                        assert_same_bits(self, step(one, seed, compiled), step(other, seed))
                        if not updates:
                            assert_same_state(self, state_of(one), state_of(other))
                            torch.compile(one.update_scales, fullgraph=True, backend=backend)()
                            other.update_scales()
                        assert_same_state(self, state_of(one), state_of(other), f"in step {seed}")
                    with torch.no_grad():
                        inputs = Inputs(seed=7)
                        given = inputs.x, inputs.ids, inputs.probs
                        assert_same_bits(self, [compiled(*given)], [other(*given)])
                    assert_same_state(self, state_of(one), state_of(other), "without gradients")

    def test_checkpoints_in_graphs_record_once(self):
        torch._dynamo.reset()
        one, other = make(), make()
        compiled = torch.compile(lambda *given: checkpoint(one, *given, use_reentrant=False), fullgraph=True,
                                 backend="aot_eager")
        for seed in range(3):
            assert_same_bits(self, step(one, seed, compiled), step(other, seed))
            assert_same_state(self, state_of(one), state_of(other), f"in step {seed}")


class Calls(unittest.TestCase):

    def setUp(self):
        inputs = Inputs()
        self.layer = text("fp8_delayed", wgrad_dtype="f32", amax_history_len=HISTORY, backward_halves=True)
        names = ("x", "topk_ids", "topk_probs", "w1", "w2", "dy")
        given = (inputs.x, inputs.ids.int(), inputs.probs, inputs.w1, inputs.w2, inputs.dy)
        self.tensors = {name: tensor.detach() for name, tensor in zip(names, given)}
        self.tensors.update((name, getattr(make(), name)) for name in STATE)

    def test_every_call_keeps_what_schemas_and_fake_kernels_promise(self):
        self.tensors.update(run(self.layer, "update_weights", self.tensors))
        self.tensors.update(run(self.layer, "forward", self.tensors))
        main = main_grads(self.tensors)
        for call in ("update_weights", "forward", "backward", "backward+add", "backward_data", "update_forward_scales",
                     "update_backward_scales"):
            with self.subTest(call=call):
                check_call(self.layer, call, {**self.tensors, **(main if call.endswith("+add") else {})})

    def test_a_state_of_other_shapes_or_dtypes_is_refused(self):
        for index, wrong in ((0, torch.zeros(HISTORY, 3, device=DEVICE)), (2, torch.ones(3 * E, device=DEVICE).half())):
            with self.assertRaisesRegex(RuntimeError, f"tensor_mismatch.*tensor {STATE[index]}"):
                run(self.layer, "update_forward_scales", {**self.tensors, STATE[index]: wrong})

    def test_calls_without_a_state_ask_for_it(self):
        del self.tensors["fc1_scale"]
        with self.assertRaisesRegex(RuntimeError, "missing_tensor: tensor fc1_scale"):
            run(self.layer, "update_weights", self.tensors)


class Refusals(unittest.TestCase):

    def test_what_keeps_no_state(self):
        inputs = Inputs()
        with self.assertRaisesRegex(RuntimeError, '"fp8_delayed" has a state from step to step, which only'):
            experts(inputs.x, inputs.ids, inputs.probs, inputs.w1, inputs.w2, layer=describe("fp8_delayed"))

    def test_updates_of_recipes_without_such_scales(self):
        module = Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe="fp8_current", device=DEVICE)
        with self.assertRaisesRegex(RuntimeError, 'update_scales\\(\\) of recipe "fp8_current"'):
            module.update_scales()

    def test_options_that_the_recipe_does_not_have(self):
        for recipe, options, told in (("fp8_current", {"margin": 1}, "margin"), ("fp8_delayed", {"margin": 65}, "margin"),
                                      ("fp8_delayed", {"amax_compute_algo": "mean"}, "amax_compute_algo"),
                                      ("fp8_delayed", {"bias": True}, "bias")):
            with self.subTest(recipe=recipe, **options), self.assertRaisesRegex(RuntimeError, told):
                Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe=recipe, **options)


if __name__ == "__main__":
    unittest.main()
