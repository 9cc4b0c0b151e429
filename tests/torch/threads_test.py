# SPDX-License-Identifier: Apache-2.0
"""Modules in threads: first calls, calls and the end of modules at the same time; and in processes made by fork()."""
import concurrent.futures
import contextlib
import copy
import gc
import os
import pathlib
import subprocess
import sys
import threading
import unittest

import torch

from support import DEVICE, E, H, I, K, MAX_TOKENS, RECIPES, Inputs, assert_same_bits
from moejit.torch import Experts

THREADS, CALLS = 8, 4

# A child of fork() calls the module of its parent, and so does its parent afterwards. A child that hangs gets SIGALRM.
FORK = """
import os, signal, sys
import torch
from support import DEVICE, E, H, I, K, MAX_TOKENS, Inputs
from moejit.torch import Experts

module, inputs = Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe=sys.argv[1], device=DEVICE), Inputs()
leaves = [inputs.x, inputs.probs, *module.parameters()]

def gradients():
    y = module(inputs.x, inputs.ids, inputs.probs)
    return [y.detach(), *torch.autograd.grad(y, leaves, inputs.dy)]

def is_right():
    return all(torch.equal(one, other) for one, other in zip(gradients(), want))

want = gradients()
child = os.fork()
if child == 0:
    signal.alarm(50)
    try:
        print("child:", "the same bits" if is_right() else "other bits", flush=True)
    except Exception as error:
        print(f"child: {type(error).__name__}: {error}", flush=True)
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print("the child's exit status:", status)
print("parent:", "the same bits" if is_right() else "other bits")
"""


def make(recipe, **changed):
    torch.manual_seed(0)
    return Experts(**{"num_experts": E, "hidden_size": H, "intermediate_size": I, "top_k": K, "max_tokens": MAX_TOKENS,
                      "recipe": recipe, "device": DEVICE, **changed})


def gradients(module, inputs):
    """y and the gradients of a call. Those of parameters that threads share are not added up."""
    y = module(inputs.x, inputs.ids, inputs.probs)
    return [y.detach(), *torch.autograd.grad(y, [inputs.x, inputs.probs, *module.parameters()], inputs.dy)]


def infer(module, inputs):
    with torch.no_grad():
        return module(inputs.x, inputs.ids, inputs.probs)


def in_threads(work):
    """Runs work(number) in threads that begin at the same time, each with a stream of its own on GPUs."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()  # what was made for them is there
    barrier = threading.Barrier(THREADS)

    def begin(number):
        stream = contextlib.nullcontext() if DEVICE.type == "cpu" else torch.cuda.stream(torch.cuda.Stream())
        barrier.wait()
        with stream:
            work(number)

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(begin, range(THREADS)))


class Threads(unittest.TestCase):

    def test_call_the_same_and_different_layers(self):
        modules = [make(recipe, bias=bias) for recipe in RECIPES for bias in (False, True)]
        inputs = [Inputs(tokens, seed=tokens) for tokens in range(3, 3 + THREADS)]
        want = [[gradients(module, each) for each in inputs] for module in modules]

        def work(number):
            for call in range(CALLS):
                # In the first half of the calls all threads call one module, then each another one.
                index = call % len(modules) if call < CALLS // 2 else (number + call) % len(modules)
                assert_same_bits(self, gradients(modules[index], inputs[number]), want[index][number])

        in_threads(work)

    def test_make_first_calls(self):
        # Sizes of their own, so that threads prepare these layers and look them up at the same time.
        modules = [make(recipe, max_tokens=MAX_TOKENS - 5) for recipe in RECIPES]
        inputs, got = [Inputs(seed=number) for number in range(THREADS)], [None] * THREADS

        def work(number):
            got[number] = gradients(modules[number % len(modules)], inputs[number])

        in_threads(work)
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
        for number, results in enumerate(got):
            assert_same_bits(self, results, gradients(modules[number % len(modules)], inputs[number]))

    def test_free_modules_while_others_call(self):
        module, inputs = make("fp8_flow"), [Inputs(seed=number) for number in range(THREADS)]
        want = [[infer(module, each)] if number % 2 else gradients(module, each) for number, each in enumerate(inputs)]

        def work(number):
            for _ in range(CALLS):
                if number % 2 == 0:
                    assert_same_bits(self, gradients(module, inputs[number]), want[number])
                    continue
                mine = copy.deepcopy(module)
                y = infer(mine, inputs[number])
                del mine
                gc.collect()
                assert_same_bits(self, [y], want[number])

        in_threads(work)


class Forks(unittest.TestCase):

    def test_a_child_calls_its_parents_module_or_gets_a_sentence(self):
        for recipe in RECIPES:
            with self.subTest(recipe=recipe):
                done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK, recipe], env=os.environ, check=False,
                                      cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, timeout=300)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("the child's exit status: 0\n", done.stdout, done.stderr)
                self.assertIn("parent: the same bits\n", done.stdout)
                self.assertRegex(done.stdout, "child: the same bits\n" if DEVICE.type == "cpu" else
                                 r"child: (RuntimeError|AcceleratorError|Error): .*\w{4}")


if __name__ == "__main__":
    unittest.main()
