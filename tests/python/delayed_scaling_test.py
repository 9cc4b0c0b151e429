# SPDX-License-Identifier: Apache-2.0
"""Layers whose scales follow from the steps before: their state, and the call that moves it on."""
import unittest

import small_layer
from package_case import PackageTest
from small_layer import TOKENS, Inputs

EXPERTS, STEPS = 4, 3
DELAYED = {"recipe": "fp8_delayed", "amax_history_len": STEPS, "splits_alignment": 16}


def floats(tensor):
    return list(memoryview(tensor.memory.read()).cast("f"))


class DelayedScaling(PackageTest):
    @classmethod
    def setUpClass(cls):
        cls.layer = small_layer.prepared_layer(**DELAYED)

    def tensors(self):
        tensors = self.layer.allocate(TOKENS)
        for name, value in Inputs().tensors().items():
            if name in ("x", "topk_ids", "topk_probs", "w1", "w2", "dy"):
                tensors[name].memory.write(value)
        return tensors

    def test_the_first_state_has_histories_of_zeros_and_scales_of_ones(self):
        tensors = self.tensors()
        states = {name for name, info in self.layer.tensors.items() if info.role == "state"}
        self.assertEqual(states, {f"fc{i}{part}_{what}" for i in (1, 2) for part in ("", "_grad")
                                  for what in ("amax_history", "scale")})
        for name in states:
            self.assertEqual(set(floats(tensors[name])), {self.layer.tensors[name].first_value}, name)
            self.assertEqual(self.layer.tensors[name].first_value, 1.0 if name.endswith("_scale") else 0.0, name)
        self.assertEqual(self.layer.tensors["fc1_scale"].used_by,
                         {"update_weights", "forward", "update_weights+forward", "update_forward_scales"})

    def test_a_step_gives_each_pass_its_scales(self):
        tensors = self.tensors()
        self.layer.update_weights(tensors)
        saved = self.layer.forward(tensors)
        recorded = floats(tensors["fc1_amax_history"])[:3 * EXPERTS]
        self.assertTrue(any(recorded))
        self.layer.update_scales(tensors)
        for amax, scale in zip(recorded, floats(tensors["fc1_scale"])):
            self.assertAlmostEqual(scale, 448 / amax if amax else 1.0, delta=1e-6 * scale)
        self.assertEqual(floats(tensors["fc1_amax_history"])[-3 * EXPERTS:], recorded)
        self.assertEqual(set(floats(tensors["fc2_grad_scale"])), {1.0})
        self.layer.backward(tensors, saved=saved)
        self.layer.update_scales(tensors, "backward")
        self.assertNotEqual(set(floats(tensors["fc2_grad_scale"])), {1.0})

    def test_wrong_calls_are_refused(self):
        tensors = self.tensors()
        with self.raises("invalid_value", "pass_", "sideways", "forward, backward"):
            self.layer.update_scales(tensors, "sideways")
        del tensors["fc1_scale"]
        with self.raises("missing_tensor", "fc1_scale"):
            self.layer.update_scales(tensors)
        with self.raises("missing_tensor", "fc1_scale"):
            self.layer.forward(tensors)


if __name__ == "__main__":
    unittest.main(verbosity=0)
