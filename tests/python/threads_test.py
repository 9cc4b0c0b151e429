# SPDX-License-Identifier: Apache-2.0
"""Threads, closing and collecting while calls run, and processes made by fork()."""
import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
import unittest
import warnings

import small_layer
from package_case import PACKAGE, SMALL, PackageTest
from small_layer import Inputs

import moejit
from moejit.handle import Handle
from moejit.library import load

THREADS, CALLS = 4, 5


def in_threads(count, work):
    """Runs work(number) in threads; raises the first error of one."""
    errors = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Handles(PackageTest):
    """The counting alone, with a destroyed pointer that is seen."""

    def setUp(self):
        super().setUp()
        self.destroyed = []
        self.handle = Handle(5, self.destroyed.append, "the thing")

    def test_are_destroyed_once(self):
        self.handle.close()
        self.handle.close()
        self.assertEqual(self.destroyed, [5])

    def test_are_destroyed_when_the_last_user_is_done(self):
        with self.handle.use():
            with self.handle.use() as pointer:
                self.handle.close()
                self.assertEqual((pointer, self.destroyed), (5, []))
            self.assertEqual(self.destroyed, [])
        self.assertEqual(self.destroyed, [5])

    def test_are_of_no_use_once_closed(self):
        self.handle.close()
        with self.raises("invalid_value", "the thing is closed"):
            self.handle.acquire()

    def test_of_a_parent_are_left_alone_by_a_child(self):
        child = os.fork()
        if child == 0:
            self.handle.close()
            os._exit(len(self.destroyed))
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class Threads(PackageTest):
    def test_may_call_one_layer_at_the_same_time(self):
        layer, inputs = small_layer.prepared_layer(), Inputs()
        wanted = inputs.tensors()
        layer.backward(wanted, saved=layer.forward(wanted))

        def work(_number):
            for _ in range(CALLS):
                tensors = inputs.tensors()
                layer.backward(tensors, saved=layer.forward(tensors))
                for name in ("y", "dx", "dprobs", "dw1", "dw2"):
                    self.assertEqual(tensors[name].tobytes(), wanted[name].tobytes(), name)

        in_threads(THREADS, work)

    def test_may_close_a_layer_while_others_call_it(self):
        for _ in range(3):
            layer, inputs, done = small_layer.prepared_layer(), Inputs(), []

            def work(number, layer=layer, inputs=inputs, done=done):
                if number == 0:
                    while not done:
                        time.sleep(0.001)
                    layer.close()
                    return
                with self.raises("invalid_value", "the layer is closed"):
                    while True:
                        layer.forward(inputs.tensors())
                        done.append(number)

            in_threads(THREADS, work)

    def test_may_prepare_one_layer(self):
        layer, refused = moejit.Layer(SMALL, "sim"), []

        def work(_number):
            try:
                layer.prepare(small_layer.test_engine())
            except moejit.Error as error:
                refused.append(error.message)

        in_threads(THREADS, work)
        self.assertEqual((len(refused), layer.is_prepared), (THREADS - 1, True))

    def test_may_run_while_a_call_is_in_the_library(self):
        # ctypes lets go of the interpreter's lock in calls of the one kind of library and not of the other.
        self.assertNotIsInstance(load(), ctypes.PyDLL)


class Lifetimes(PackageTest):
    def test_a_layer_lives_on_without_its_engine_and_device(self):
        engine, device = small_layer.test_engine(), moejit.Device.simulator(seed=3)
        layer = moejit.Layer(SMALL, "sim").prepare(engine, device)
        engine.close()
        device.close()
        inputs = Inputs()
        tensors = inputs.tensors()
        with self.raises("invalid_value", "the device is closed"):
            layer.forward(tensors)  # without blocks it would allocate there
        other = moejit.Device.simulator()
        sizes = layer.sizes()
        layer.forward(tensors, workspace=other.allocate(sizes.workspace_bytes), saved=other.allocate(sizes.saved_bytes))
        small_layer.check(self, tensors, inputs.expected(), ("y",))

    def test_memory_keeps_its_device(self):
        device = moejit.Device.simulator()
        memory = device.allocate(256)
        device.close()
        del device
        gc.collect()
        memory.close()
        with self.raises("invalid_value", "the memory is closed"):
            memory.read(1)

    def test_blocks_that_a_call_reads_are_not_freed_in_it(self):
        layer, inputs = small_layer.prepared_layer(), Inputs()
        tensors = inputs.tensors()
        saved = layer.forward(tensors)
        saved.close()
        with self.raises("invalid_value", "the memory is closed"):
            layer.backward(tensors, saved=saved)

    def test_a_process_may_end_with_everything_open(self):
        program = ("import moejit, threading\n"
                   f"layer = moejit.Layer({SMALL!r}, 'sim')\n"
                   "device, engine = moejit.Device.simulator(), moejit.Engine(memory_only=True)\n"
                   "memory = device.allocate(1000)\n"
                   "tensors = layer.allocate(2)\n"
                   "print('end')")
        done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(PACKAGE)},
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "end\n", ""))


class Forks(PackageTest):
    def test_a_child_calls_its_parent_s_layer_in_the_simulator(self):
        layer, inputs = small_layer.prepared_layer(), Inputs()
        wanted = inputs.tensors()
        layer.forward(wanted)
        stop = threading.Event()
        caller = threading.Thread(target=lambda: [layer.forward(inputs.tensors()) for _ in iter(stop.is_set, True)])
        caller.start()  # so that forks meet threads in calls
        try:
            for _ in range(5):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # of Python, about forks and threads
                    child = os.fork()
                if child == 0:
                    tensors = inputs.tensors()
                    layer.forward(tensors)
                    os._exit(tensors["y"].tobytes() != wanted["y"].tobytes())
                self.assertEqual(os.waitpid(child, 0)[1], 0)
        finally:
            stop.set()
            caller.join()


if __name__ == "__main__":
    unittest.main(verbosity=0)
