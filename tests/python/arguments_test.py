# SPDX-License-Identifier: Apache-2.0
"""What calls take for tensors and streams: buffers, `__array_interface__`, `__dlpack__`; and what they refuse."""
import array
import ctypes
import json
import types
import unittest

from package_case import SMALL, PackageTest, shaped

import moejit
from moejit import records, streams
from moejit.tensors import _Versioned, read_tensor

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class Producer:
    """A framework's tensor over an array of floats, which hands out DLPack's structures."""

    def __init__(self, values, shape, *, version=0, flags=0, device=(1, 0)):
        self.values, self.device, self.streams = values, device, []
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        tensor = records.DLTensor(data=values.buffer_info()[0], device=records.DLDevice(*device), ndim=len(shape),
                                  dtype=records.DLDataType(2, 32, 1), shape=self._shape)
        self._managed = _Versioned(flags=flags, dl_tensor=tensor) if version else tensor
        self._name = b"dltensor_versioned" if version else b"dltensor"

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        return _new_capsule(ctypes.addressof(self._managed), self._name, None)


def floats(count):
    return array.array("f", range(count))


class Read(PackageTest):
    def check(self, value, shape, dtype=(2, 32), read_only=False):
        given = read_tensor("t", value, 0)
        tensor = given.tensor
        self.assertEqual(tuple(tensor.shape[:tensor.ndim]), shape)
        self.assertEqual((tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes), (*dtype, 1))
        self.assertEqual(given.is_read_only, read_only)
        return given

    def test_buffers_have_shape_and_dtype(self):
        values = floats(6)
        given = self.check(values, (6,))
        self.assertEqual(given.address, values.buffer_info()[0])
        self.check(shaped(values, (2, 3)), (2, 3))
        self.check(array.array("i", [1]), (1,), (0, 32))
        self.check(array.array("q", [1]), (1,), (0, 64))
        self.check(array.array("H", [1]), (1,), (1, 16))
        self.check(bytearray(4), (4,), (1, 8))
        self.check(b"read", (4,), (1, 8), read_only=True)
        self.check((ctypes.c_int32 * 3)(), (3,), (0, 32))

    def test_what_has_no_elements_has_no_address(self):
        for empty in (bytearray(), moejit.Tensor(memoryview(bytearray(9))[1:], "F32", (0, 2))):
            self.assertEqual(read_tensor("t", empty, 0).tensor.data, None)

    def test_strides_are_those_of_the_buffer(self):
        given = self.check(memoryview(floats(6))[::2], (3,))
        self.assertEqual(given.tensor.strides[0], 2)

    def test_buffers_do_not_move_while_they_are_read(self):
        values = bytearray(16)
        given = read_tensor("t", values, 0)
        with self.assertRaises(BufferError):
            values.extend(b"more")
        del given
        values.extend(b"more")

    def test_dlpack_is_taken_in_both_versions(self):
        for version in (0, 1):
            values = floats(6)
            given = self.check(Producer(values, (2, 3), version=version), (2, 3))
            self.assertEqual(given.address, values.buffer_info()[0])
        self.check(Producer(floats(6), (6,), version=1, flags=1), (6,), read_only=True)

    def test_frameworks_are_told_the_stream_of_a_gpu(self):
        on_gpu, on_cpu = Producer(floats(1), (1,), device=(2, 0)), Producer(floats(1), (1,))
        for producer, wanted in ((on_gpu, [1, 7]), (on_cpu, [None, None])):
            read_tensor("t", producer, 0)
            read_tensor("t", producer, 7)
            self.assertEqual(producer.streams, wanted)

    def test_tensors_that_require_a_gradient_are_detached(self):
        tensor = Producer(floats(2), (2,))
        parameter = types.SimpleNamespace(requires_grad=True, detach=lambda: tensor, __dlpack__=None)
        self.check(parameter, (2,))

    def test_arrays_are_taken_by_their_interface(self):
        values = floats(6)

        class Array:
            dtype = types.SimpleNamespace(name="float32")
            __array_interface__ = {"version": 3, "shape": (2, 3), "typestr": "<f4", "strides": (4, 8),
                                   "data": (values.buffer_info()[0], True)}

        given = self.check(Array(), (2, 3), read_only=True)
        self.assertEqual(given.tensor.strides[:2], [1, 2])
        Array.dtype, Array.__array_interface__ = types.SimpleNamespace(name="bfloat16"), {
            "version": 3, "shape": (4,), "typestr": "<V2", "data": (values.buffer_info()[0], False)}
        self.check(Array(), (4,), (4, 16))
        Array.dtype = types.SimpleNamespace(name="void16")
        with self.raises("tensor_mismatch", "tensor t", "dtype"):
            read_tensor("t", Array(), 0)

    def test_what_is_no_tensor_is_named(self):
        for wrong in ([1.0], 3, "text", object()):
            with self.assertRaisesRegex(TypeError, "tensor t: it is a (list|int|str|object), wanted"):
                read_tensor("t", wrong, 0)


class Tensors(PackageTest):
    def test_plain_memory_gets_dtype_and_shape(self):
        tensor = moejit.Tensor(bytearray(12), "BF16", (2, 3))
        tensor.write(array.array("H", range(6)))
        self.assertEqual(tensor.read(), array.array("H", range(6)).tobytes())
        given = read_tensor("t", tensor, 0)
        self.assertEqual((given.tensor.dtype.code, given.tensor.shape[:2], given.size), (4, [2, 3], 12))
        self.assertEqual(tensor.__array_interface__["typestr"], "<u2")

    def test_wrong_ones_are_refused(self):
        with self.raises("invalid_value", "BF17", "BF16"):
            moejit.Tensor(bytearray(2), "BF17", (1,))
        with self.raises("invalid_value", "has 8 bytes, its memory 7"):
            moejit.Tensor(bytearray(7), "F32", (2,))
        with self.raises("invalid_value", "write of 3 bytes into a tensor of 4"):
            moejit.Tensor(bytearray(4), "F32", (1,)).write(b"abc")

    def test_memory_of_the_device_is_read_and_written_within_its_bounds(self):
        with moejit.Device.simulator() as device:
            memory = device.allocate(64)
            self.assertEqual((memory.read(), memory.address % 256), (bytes(64), 0))
            memory.write(b"abcd", offset=60)
            self.assertEqual(memory.read(4, offset=60), b"abcd")
            for call in (lambda: memory.write(b"abcde", offset=60), lambda: memory.read(4, offset=-1),
                         lambda: memory.read(65)):
                with self.raises("invalid_value", "the memory has 64"):
                    call()


class Streams(PackageTest):
    def test_are_numbers_or_objects_of_frameworks(self):
        with_method = types.SimpleNamespace(__cuda_stream__=lambda: (0, 11))
        with_property = types.SimpleNamespace(__cuda_stream__=(0, 12))
        torchs = types.SimpleNamespace(cuda_stream=13)
        self.assertEqual([streams.address_of(stream) for stream in (None, 10, with_method, with_property, torchs)],
                         [0, 10, 11, 12, 13])
        with self.assertRaisesRegex(TypeError, "stream is str"):
            streams.address_of("default")


class Descriptions(PackageTest):
    def test_come_from_dicts_texts_and_files(self):
        text = '{"experts": 4, "top_k": 2, "hidden": 32, "intermediate": 16, "max_tokens": 8, "name": "text"}'
        file = self.folder / "layer.json"
        file.write_text(text)
        for source in (text, file, str(file), json.loads(text)):
            layer = moejit.Layer(source, "sim")
            self.assertEqual((layer.info.name, layer.description["local_experts"], layer.target), ("text", 4, "sim"))

    def test_plans_are_dicts_and_texts(self):
        layer = moejit.Layer(SMALL, "sim")
        self.assertEqual(len(layer.plan()["kernels"]), layer.info.kernel_count)
        self.assertIn("gemm_fc1", layer.explain())
        x = layer.tensors["x"]
        self.assertEqual((x.dtype, x.shape, x.symbols, x.role, x.used_by),
                         ("BF16", (32, 32), ("T", "H"), "input", {"forward", "update_weights+forward"}))
        self.assertEqual((x.shape_of(3), x.is_callers), ((3, 32), True))

    def test_sizes_are_for_numbers_of_tokens(self):
        layer = moejit.Layer(SMALL, "sim")
        self.assertEqual(layer.sizes().saved_bytes, layer.info.saved_bytes)
        self.assertEqual(layer.sizes(32), layer.sizes())
        self.assertEqual(layer.sizes(3).saved_bytes, min(
            layer.info.saved_bytes, layer.info.saved_fixed_bytes + 3 * layer.info.saved_bytes_per_token))
        self.assertEqual(layer.place("x", 3), moejit.TensorPlace(-1, 3 * 32 * 2, (3, 32)))
        saved = next(tensor for tensor in layer.tensors.values() if tensor.role == "saved" and "T" in tensor.symbols)
        self.assertEqual(layer.place(saved.name).offset, saved.offset)
        self.assertEqual(layer.place(saved.name, 3).shape, saved.shape_of(3))
        for wrong in (-1, 33):
            with self.raises("invalid_value", str(wrong)):
                layer.sizes(wrong)


if __name__ == "__main__":
    unittest.main(verbosity=0)
