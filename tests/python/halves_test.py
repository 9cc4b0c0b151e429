# SPDX-License-Identifier: Apache-2.0
"""Backward passes in two halves, in the simulator: together they leave the bits of one call."""
import hashlib
import unittest

import small_layer
from package_case import SMALL, PackageTest
from small_layer import TOKENS, Inputs

import moejit

OF_DATA, OF_WEIGHTS = ("dx", "dprobs"), ("dw1", "dw2")


def digests(tensors, names=OF_DATA + OF_WEIGHTS):
    """What tells two gradients apart, and is short enough to print."""
    return {name: hashlib.sha256(tensors[name].tobytes()).hexdigest()[:8] for name in names}


class Halves(PackageTest):
    @classmethod
    def setUpClass(cls):
        cls.plain = small_layer.prepared_layer(max_tokens=64)
        cls.layer = small_layer.prepared_layer(max_tokens=64, backward_halves=True)
        cls.inputs = Inputs()
        cls.whole = cls.inputs.tensors()  # with the gradients of a layer that knows no halves
        cls.plain.backward(cls.whole, saved=cls.plain.forward(cls.whole))

    def forward(self):
        tensors = self.inputs.tensors()
        return tensors, self.layer.forward(tensors)

    def test_halves_give_the_bits_of_the_whole(self):
        tensors, saved = self.forward()
        self.layer.backward(tensors, saved=saved)
        self.assertEqual(digests(tensors), digests(self.whole))
        tensors, saved = self.forward()
        zeros = digests(tensors, OF_WEIGHTS)
        deferred = self.layer.backward_data(tensors, saved=saved)
        self.assertEqual(digests(tensors, OF_DATA), digests(self.whole, OF_DATA))
        self.assertEqual(digests(tensors, OF_WEIGHTS), zeros)
        other = Inputs(seed=2).tensors()  # whose calls use the layer's workspace meanwhile
        self.layer.backward(other, saved=self.layer.forward(other))
        self.layer.backward_weights(tensors, saved=saved, deferred=deferred)
        self.assertEqual(digests(tensors), digests(self.whole))

    def test_the_weights_half_adds_where_it_is_told_to(self):
        tensors, saved = self.forward()
        deferred = self.layer.backward_data(tensors, saved=saved)
        for mode in ("overwrite", "add"):
            self.layer.backward_weights(tensors, saved=saved, deferred=deferred, mode=mode)
        for name in OF_WEIGHTS:
            once, twice = (given[name].cast("B").cast("f").tolist() for given in (self.whole, tensors))
            self.assertTrue(twice == [2 * value for value in once], name)
            self.assertTrue(any(once))

    def test_the_deferred_block_is_as_large_as_the_call_needs(self):
        tensors = self.inputs.tensors()
        of_one = {**tensors, **{name: tensors[name][:1] for name, info in self.layer.tensors.items()
                                if "T" in info.symbols and info.is_callers}}
        saved = self.layer.forward(of_one)
        size = self.layer.sizes(1).deferred_bytes
        self.assertEqual(self.layer.backward_data(of_one, saved=saved).size, size)
        self.assertLess(0, size)
        self.assertLess(size, self.layer.info.deferred_bytes)
        with self.raises("workspace_too_small", "the deferred block"):
            self.layer.backward_data(of_one, saved=saved, deferred=self.layer.device.allocate(size - 1))

    def test_a_deferred_block_of_the_caller_and_its_copy_serve(self):
        tensors, saved = self.forward()
        device, size = self.layer.device, self.layer.sizes(TOKENS).deferred_bytes
        deferred, copy = device.allocate(size), device.allocate(size)
        self.assertIs(self.layer.backward_data(tensors, saved=saved, deferred=deferred), deferred)
        copy.write(deferred.read())
        deferred.close()
        self.layer.backward_weights(tensors, saved=saved, deferred=copy)
        self.assertEqual(digests(tensors), digests(self.whole))

    def test_the_weights_half_wants_what_the_data_half_left(self):
        tensors, saved = self.forward()
        with self.raises("workspace_too_small", "the deferred block"):
            self.layer.backward_weights(tensors, saved=saved, deferred=None)

    def test_a_layer_has_no_halves_unless_it_says_so(self):
        tensors = self.inputs.tensors()
        saved = self.plain.forward(tensors)
        for half in (lambda: self.plain.backward_data(tensors, saved=saved),
                     lambda: self.plain.backward_weights(tensors, saved=saved, deferred=None)):
            with self.raises("unsupported", "small has no halves", "backward_halves"):
                half()

    def test_halves_want_a_prepared_layer(self):
        layer = moejit.Layer({**SMALL, "backward_halves": True}, "sim")
        for half in (lambda: layer.backward_data({}, saved=None),
                     lambda: layer.backward_weights({}, saved=None, deferred=None)):
            with self.raises("invalid_value", "small", "is not prepared", "hint: call prepare()"):
                half()


if __name__ == "__main__":
    unittest.main(verbosity=0)
