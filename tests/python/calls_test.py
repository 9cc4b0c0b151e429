# SPDX-License-Identifier: Apache-2.0
"""Calls of layers in the simulator: plain memory in, numbers out that a plain reference bounds."""
import array
import sys
import unittest

import small_layer
from package_case import SMALL, PackageTest, bf16_values, shaped
from small_layer import TOKENS, Inputs

import moejit
import moejit.records


def shaped_behind_one(tensor):
    """The same values, behind one more, and so at no multiple of 16 bytes."""
    values = array.array(tensor.format, bytes(tensor.itemsize) + tensor.tobytes())
    return memoryview(values)[1:].cast("B").cast(tensor.format, shape=tensor.shape)


class Calls(PackageTest):
    @classmethod
    def setUpClass(cls):
        cls.layer = small_layer.prepared_layer()
        cls.inputs = Inputs()
        cls.expected = cls.inputs.expected()

    def test_forward_and_backward_give_the_numbers_of_the_reference(self):
        tensors = self.inputs.tensors()
        self.layer.update_weights(tensors)
        saved = self.layer.forward(tensors)
        self.layer.backward(tensors, saved=saved)
        small_layer.check(self, tensors, self.expected, ("y", "dx", "dprobs", "dw1", "dw2"))
        self.assertEqual(tensors["status"][0], 0)

    def test_gradients_are_added_to(self):
        tensors = self.inputs.tensors()
        saved = self.layer.forward(tensors)
        self.layer.backward(tensors, saved=saved)
        once = list(tensors["dw2"].cast("B").cast("f"))
        self.layer.backward(tensors, saved=saved, mode="add")
        self.assertEqual(list(tensors["dw2"].cast("B").cast("f")), [2 * value for value in once])
        self.assertTrue(any(once))

    def test_any_call_is_made_by_its_name(self):
        tensors, others = self.inputs.tensors(), self.inputs.tensors()
        saved = self.layer.forward(tensors)
        self.layer.backward(tensors, saved=saved)
        blocks = self.layer.call("forward", others)
        self.layer.call("backward", others, saved=blocks.saved)
        for name in ("y", "dx", "dw1"):
            self.assertEqual(bytes(others[name].cast("B")), bytes(tensors[name].cast("B")), name)
        with self.raises("unsupported", "has no halves", "backward_halves"):
            self.layer.call("backward_data", tensors, saved=saved)
        with self.raises("unsupported", "has no call sideways, wanted one of update_weights,"):
            self.layer.call("sideways", tensors)

    def test_plans_list_their_calls(self):
        forward, backward = self.layer.calls["forward"], self.layer.calls["backward+add"]
        self.assertLessEqual({"x", "topk_ids", "topk_probs", "w1", "w2", "y", "status"}, forward.tensors)
        self.assertEqual((forward.writes, forward.blocks["saved"], forward.adds), ({"y", "status"}, moejit.records.WRITE, False))
        self.assertLessEqual({"dy"}, backward.reads - backward.writes)
        self.assertEqual((backward.blocks["saved"], backward.adds), (moejit.records.READ, True))
        self.assertEqual(backward.optional, {"status"})

    def test_a_call_runs_few_functions_of_python(self):
        layer, given = self.layer, self.layer.allocate(TOKENS)
        given = {name: given[name] for name in layer.calls["forward"].tensors}
        saved, frames = layer.forward(given), []

        def note(_frame, event, _argument):
            if event == "call":
                frames.append(_frame.f_code.co_name)

        sys.setprofile(note)
        layer.forward(given, saved=saved)
        sys.setprofile(None)
        self.assertLessEqual(len(frames), 50, frames)

    def test_tensors_that_change_are_read_anew(self):
        tensors = self.layer.allocate(TOKENS)
        given = self.inputs.tensors()
        for name in ("x", "topk_ids", "topk_probs", "w1", "w2"):
            tensors[name].write(given[name])
        self.layer.forward(tensors)
        for name in ("x", "topk_ids", "topk_probs", "y"):
            tensors[name].shape = (TOKENS - 1, *tensors[name].shape[1:])
        tensors["y"].memory.write(bytes(tensors["y"].memory.size))
        self.layer.forward(tensors)
        self.assertEqual(tensors["y"].memory.read()[tensors["y"].size:], bytes(tensors["y"].memory.size - tensors["y"].size))
        x = moejit.Tensor(tensors["x"].memory, "U16", tensors["x"].shape)  # bits of bf16
        self.layer.forward({**tensors, "x": x})
        self.assertEqual((x.dtype, x.given().tensor.dtype.code), ("U16", 1))
        tensors["x"].memory.close()
        with self.raises("invalid_value", "the memory is closed"):
            self.layer.forward(tensors)

    def test_blocks_of_the_caller_serve(self):
        tensors, sizes = self.inputs.tensors(), self.layer.sizes(TOKENS)
        device = self.layer.device
        workspace, saved = device.allocate(sizes.workspace_bytes), device.allocate(sizes.saved_bytes)
        self.assertIs(self.layer.forward(tensors, workspace=workspace, saved=saved), saved)
        self.assertTrue(any(saved.read()))
        self.layer.backward(tensors, saved=saved, workspace=workspace)
        small_layer.check(self, tensors, self.expected, ("y", "dx"))

    def test_saved_blocks_are_as_large_as_the_call_needs(self):
        saved = self.layer.forward(self.inputs.tensors())
        self.assertEqual(saved.size, self.layer.sizes(TOKENS).saved_bytes)

    def test_a_copied_saved_block_serves(self):
        tensors = self.inputs.tensors()
        saved = self.layer.forward(tensors)
        copy = self.layer.device.allocate(saved.size)
        copy.write(saved.read())
        saved.close()
        self.layer.backward(tensors, saved=copy)
        small_layer.check(self, tensors, self.expected, ("dx",))

    def test_memory_of_the_device_serves(self):
        given = self.inputs.tensors()
        tensors = self.layer.allocate(TOKENS)
        self.assertEqual(set(tensors), {info.name for info in self.layer.tensors.values() if info.is_callers})
        for name in ("x", "topk_ids", "topk_probs", "w1", "w2"):
            tensors[name].write(given[name])
        self.layer.forward(tensors)
        given["y"] = shaped(array.array("H", tensors["y"].read()), (TOKENS, SMALL["hidden"]))
        small_layer.check(self, given, self.expected, ("y",))

    def test_inputs_at_any_address_serve(self):
        tensors = self.inputs.tensors()
        moved = {name: shaped_behind_one(tensors[name]) for name in ("x", "dy", "topk_ids", "topk_probs")}
        saved = self.layer.forward({**tensors, **moved})
        self.layer.backward({**tensors, **moved}, saved=saved)
        small_layer.check(self, tensors, self.expected, ("y", "dx", "dprobs", "dw1", "dw2"))
        for name in ("y", "w1"):  # outputs and weights are not copied
            with self.raises("tensor_mismatch", f"tensor {name}: its address", "multiple of 16", "hint: kernels move"):
                self.layer.forward({**tensors, name: shaped_behind_one(tensors[name])})

    def test_few_and_no_tokens_are_calls_too(self):
        few = self.inputs.tensors()
        self.layer.forward(few)
        first = {**few, **{name: few[name][:1] for name in ("x", "topk_ids", "topk_probs")},
                 "y": small_layer.zeros("H", (1, SMALL["hidden"]))}
        self.layer.forward(first)
        self.assertEqual(first["y"].tobytes(), few["y"].tobytes()[:2 * SMALL["hidden"]])
        self.layer.forward({**few, **{name: moejit.Tensor(bytearray(), info.dtype, info.shape_of(0))
                                      for name, info in self.layer.tensors.items() if "T" in info.symbols
                                      and info.is_callers}})

    def test_kernels_report_in_the_status_word(self):
        tensors = self.inputs.tensors()
        tensors["topk_ids"] = shaped(array.array("i", [99, *self.inputs.ids[1:]]), (TOKENS, 2))
        self.layer.forward(tensors)
        with self.raises("device_status", "expert id"):
            moejit.check_status(tensors["status"][0])
        moejit.check_status(0)

    def test_tensors_that_a_call_does_not_touch_are_not_looked_at(self):
        tensors = self.inputs.tensors()
        self.layer.forward({**tensors, "dy": object(), "skip_update": None})
        self.assertTrue(any(bf16_values(tensors["y"].tobytes())))

    def test_a_layer_without_backward_saves_nothing(self):
        layer = small_layer.prepared_layer(passes=["forward"])
        every = self.inputs.tensors()
        tensors = {name: every[name] for name in every if name in layer.tensors}
        self.assertIsNone(layer.forward(tensors))
        small_layer.check(self, tensors, self.expected, ("y",))
        with self.raises("unsupported", "backward"):
            layer.backward(tensors, saved=layer.device.allocate(256))

    def test_streams_of_the_simulator_are_ignored(self):
        self.layer.forward(self.inputs.tensors(), stream=7)


class Prepared(PackageTest):
    def test_calls_want_a_prepared_layer(self):
        layer = moejit.Layer(SMALL, "sim")
        for call in (lambda: layer.forward({}), lambda: layer.update_weights({}),
                     lambda: layer.backward({}, saved=None)):
            with self.raises("invalid_value", "small", "is not prepared", "hint: call prepare()"):
                call()

    def test_a_layer_tells_its_state(self):
        layer = moejit.Layer(SMALL, "sim")
        self.assertFalse(layer.is_prepared)
        self.assertIn("not prepared", repr(layer))
        self.assertIs(layer.prepare(small_layer.test_engine()), layer)
        self.assertTrue(layer.is_prepared and layer.info.is_prepared)
        self.assertIn("prepared for simulator", repr(layer))
        with self.raises("invalid_value", "prepared already"):
            layer.prepare(small_layer.test_engine())


if __name__ == "__main__":
    unittest.main(verbosity=0)
