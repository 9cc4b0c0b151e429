# SPDX-License-Identifier: Apache-2.0
"""The package on a GPU, which a stand-in for libcuda plays: it has memory and streams and runs no kernel.

Two more arguments: the stand-in, and one for libnccl."""
import ctypes
import json
import os
import pathlib
import struct
import sys
import tempfile
import types
import unittest

STAND_IN, NCCL = (str(pathlib.Path(sys.argv.pop(4)).resolve()) for _ in range(2))

from package_case import SMALL, PackageTest, test_engine  # noqa: E402 - it reads the other arguments

from arguments_test import Producer, floats  # noqa: E402

import moejit  # noqa: E402

_folder = tempfile.TemporaryDirectory(prefix="moejit-python-driver-")
os.environ.update(MOEJIT_CUDA_DRIVER=STAND_IN, FAKE_CUDA_CONTROL=f"{_folder.name}/control")
CUDA = 2  # of DLPack
TOKENS = 3


class OnGpu(PackageTest):
    @classmethod
    def setUpClass(cls):
        cls.layer = moejit.Layer({**SMALL, "passes": ["forward"]})
        cls.device = cls.layer.device
        cls.layer.prepare(test_engine())

    def tensors(self):
        return self.layer.allocate(TOKENS)

    def workspaces(self):
        return dict(self.layer._blocks._of_streams)

    def test_auto_takes_the_gpu(self):
        self.assertEqual((self.layer.target, self.device.is_simulator), ("cuda:sm_90a", False))
        self.assertGreater(self.device.sm_count, 0)
        self.assertEqual(self.device.name, moejit.Device.cuda(0).name)

    def test_a_plan_that_was_tuned_for_another_gpu_warns_once(self):
        record = pathlib.Path(self.folder) / "record.json"
        record.write_text(json.dumps({"format": "moejit-tuning-1", "entries": [],
                                      "gpu": {"name": "NVIDIA H20", "arch": "sm_90a", "sm_count": 78}}))
        engine = test_engine()
        with self.assertLogs("moejit", "WARNING") as said:
            for _ in range(2):
                layer = moejit.Layer({**SMALL, "passes": ["forward"]}, tuning=record)
                layer.prepare(engine)
        tuned = [line for line in said.output if "is tuned for the NVIDIA H20 (78 SMs), and this is the " in line]
        self.assertEqual(len(tuned), 1, said.output)

    def test_each_stream_has_a_workspace_of_its_own(self):
        driver, context, number = ctypes.CDLL(STAND_IN), ctypes.c_void_p(), ctypes.c_void_p()
        self.assertEqual(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
        self.assertEqual(driver.cuCtxPushCurrent_v2(context), 0)
        self.assertEqual(driver.cuStreamCreate(ctypes.byref(number), 1), 0)
        tensors = self.tensors()
        for stream in (None, types.SimpleNamespace(__cuda_stream__=lambda: (0, number.value)), number.value):
            self.layer.forward(tensors, stream=stream)
            self.device.synchronize(stream)
        self.assertEqual({stream for stream, _ in self.workspaces()}, {0, number.value})

    def test_tensors_of_frameworks_are_taken(self):
        tensors = self.tensors()
        probs = Producer(floats(2 * TOKENS), (TOKENS, 2), device=(CUDA, 0))
        self.layer.forward({**tensors, "topk_probs": probs})
        self.assertEqual(probs.streams, [1])
        for place, named in (((1, 0), "the CPU"), ((CUDA, 1), "CUDA 1")):
            with self.raises("tensor_mismatch", "tensor topk_probs", f"it is on {named}"):
                self.layer.forward({**tensors, "topk_probs": Producer(floats(2 * TOKENS), (TOKENS, 2), device=place)})

    def test_blocks_of_another_device_are_refused(self):
        size = self.layer.sizes(TOKENS).workspace_bytes
        with self.raises("tensor_mismatch", "block workspace", "wanted 2, id 0"):
            self.layer.forward(self.tensors(), workspace=bytearray(size + 1024))
        self.layer.forward(self.tensors(), workspace=self.device.allocate(size))

    def test_memory_is_copied_to_and_fro(self):
        memory = self.device.allocate(32)
        self.assertEqual(memory.read(), bytes(32))
        memory.write(b"moejit", offset=8)
        self.assertEqual(memory.read(6, offset=8), b"moejit")
        tensor = moejit.Tensor(memory, "F32", (8,))
        with self.assertRaisesRegex(AttributeError, "on a GPU"):
            _ = tensor.__array_interface__

    def test_a_process_made_by_fork_is_told_so(self):
        child = os.fork()
        if child == 0:
            try:
                moejit.Device.cuda()
            except moejit.Error as error:
                os._exit("start new workers" not in error.hint)
            os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class OverNccl(PackageTest):
    """Groups of one rank, since the stand-in has one GPU."""

    def test_groups_open_with_the_nccl_that_the_process_has(self):
        opened = ctypes.CDLL(NCCL)
        ids = [moejit.nccl_make_id() for _ in range(2)]
        self.assertEqual([len(id) for id in ids], [128, 128])
        self.assertNotEqual(*ids)
        layer = moejit.GroupLayer({**SMALL, "expert_parallel": {"ranks": 1, "transport": "nccl"}}, "cuda:sm_90a", rank=0)
        with moejit.Group.open_nccl(layer, moejit.Device.cuda(0), ids[0], deadline_ms=20000) as group:
            self.assertEqual((group.rank, group.ranks, group.status()), (0, 1, 0))
            group.abort()
            with self.raises("invalid_state", "open another group on all ranks"):
                group.status()
        driver, context, state = ctypes.CDLL(STAND_IN), ctypes.c_void_p(), ctypes.c_int(-1)
        self.assertEqual(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
        self.assertEqual(driver.cuCtxPushCurrent_v2(context), 0)
        own = ctypes.c_void_p()
        config = struct.pack("NIIiiiiPii", 48, 0xcafebeef, 21800, 0, *[-1 << 31] * 3, 0, *[-1 << 31] * 2)
        id = (ctypes.c_uint8 * 128)(*ids[1])
        self.assertIn(opened.ncclCommInitRankConfig(ctypes.byref(own), 1, _Id(id), 0, config), (0, 7))
        with moejit.Group.adopt_nccl(layer, moejit.Device.cuda(0), own.value) as group:
            self.assertEqual(group.status(), 0)
        self.assertEqual(opened.ncclCommGetAsyncError(own, ctypes.byref(state)), 0)
        self.assertEqual(state.value, 0)  # it is the caller's still
        self.assertEqual(opened.ncclCommDestroy(own), 0)


class _Id(ctypes.Structure):
    """ncclUniqueId."""
    _fields_ = [("internal", ctypes.c_uint8 * 128)]


if __name__ == "__main__":
    unittest.main(verbosity=0)
