# SPDX-License-Identifier: Apache-2.0
"""What the tests of moejit.torch share: tiny layers, their inputs, and a reference by torch's own operators.

The device of the tests is MOEJIT_TEST_DEVICE, the CPU by default.
"""
import contextlib
import os
import pathlib
import unittest
import warnings

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

warnings.filterwarnings("ignore", message="moejit: CPU tensors run in the simulator")
torch.set_num_threads(2)

from moejit.torch import Experts, experts, layer_text, ops
from moejit.torch.devices import target_of
from moejit.torch.plans import row_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICE = torch.device(os.environ.get("MOEJIT_TEST_DEVICE", "cpu"))
RECIPES = ("bf16", "fp8_blockwise", "fp8_flow")
E, K, H, I, MAX_TOKENS = 8, 2, 64, 32, 64
TOKENS = 12
# What calls make begins as NaN on CPUs, so that whoever reads what nobody wrote shows it. GPUs have what users get.
FILL = 255 if DEVICE.type == "cpu" else -1
ops.library.moejit_torch_fill_blocks(FILL)
# The largest relative error beside float32 of the same bf16 inputs: 8 mantissa bits, and 4 of FP8, in each of a
# handful of roundings; tests/cli/hugging_face_test.py derives them.
BOUNDS = {"bf16": 0.006, "fp8_blockwise": 0.09, "fp8_flow": 0.09}


def describe(recipe, **fields):
    """A layer description of the sizes above."""
    return {"experts": E, "top_k": K, "hidden": H, "intermediate": I, "recipe": recipe, "max_tokens": MAX_TOKENS,
            "passes": ["forward", "backward"], **fields}


def text(recipe, **fields):
    """The operators' last argument for such a layer on the tests' device."""
    return layer_text(describe(recipe, **fields), target_of(DEVICE))


class Inputs:
    """Random inputs of one call. `leaves` are those that gradients are taken of."""

    def __init__(self, tokens=TOKENS, seed=0, biases=False):
        generator = torch.Generator().manual_seed(seed)

        def random(*shape, scale=1.0, dtype=torch.bfloat16):
            return (torch.randn(*shape, generator=generator) * scale).to(dtype).to(DEVICE).requires_grad_()

        self.x = random(tokens, H)
        self.ids = torch.stack([torch.randperm(E, generator=generator)[:K] for _ in range(tokens)]
                               or [torch.zeros(K, dtype=torch.int64)])[:tokens].to(DEVICE)
        self.probs = torch.rand(tokens, K, generator=generator).to(DEVICE).requires_grad_()
        self.w1, self.w2 = random(E, 2 * I, H, scale=H ** -0.5), random(E, H, I, scale=I ** -0.5)
        self.b1 = random(E, 2 * I) if biases else None
        self.b2 = random(E, H) if biases else None
        self.dy = random(tokens, H).detach()

    @property
    def leaves(self):
        return [leaf for leaf in (self.x, self.probs, self.w1, self.w2, self.b1, self.b2) if leaf is not None]

    def run(self, recipe, **fields):
        """The result of moejit.torch.experts()."""
        return experts(self.x, self.ids, self.probs, self.w1, self.w2, gate_up_proj_bias=self.b1,
                       down_proj_bias=self.b2, layer=describe(recipe, biases=self.b1 is not None, **fields))

    def results(self, function):
        """[y, the leaves' gradients] of a function without arguments."""
        for leaf in self.leaves:
            leaf.grad = None
        y = function()
        y.backward(self.dy.to(y.dtype))
        return [y.detach()] + [leaf.grad for leaf in self.leaves]

    def reference(self):
        """The result by torch's operators in float32, which autograd derives."""
        y = torch.zeros(self.x.shape, device=DEVICE)
        for expert in range(E):
            tokens, choices = torch.where(self.ids == expert)
            h1 = self.x[tokens].float() @ self.w1[expert].float().T
            if self.b1 is not None:
                h1 = h1 + self.b1[expert].float()
            gate, up = h1.chunk(2, -1)
            h2 = (torch.nn.functional.silu(gate) * up) @ self.w2[expert].float().T
            if self.b2 is not None:
                h2 = h2 + self.b2[expert].float()
            y = y.index_add(0, tokens, self.probs[tokens, choices, None] * h2)
        return y


class ModuleTest(unittest.TestCase):
    """A module with biases, and its steps."""

    def make(self, recipe="fp8_flow", **options):
        torch.manual_seed(0)
        return Experts(E, H, I, K, max_tokens=MAX_TOKENS, recipe=recipe, bias=True, device=DEVICE, **options)

    def step(self, module, inputs, **options):
        """[y, dx, dprobs, gradients of the parameters] of a forward and a backward call."""
        for leaf in (inputs.x, inputs.probs, *module.parameters()):
            leaf.grad = None
        y = module(inputs.x, inputs.ids, inputs.probs, **options)
        y.backward(inputs.dy)
        return [y.detach(), inputs.x.grad, inputs.probs.grad, *(each.grad for each in module.parameters())]


def calls_of(recipe, inputs, biases=False, **fields):
    """(text, tensors by name) of a layer: all that its calls read, which are those of one forward and backward call."""
    layer = text(recipe, biases=biases, wgrad_dtype="f32", **fields)
    names = ("x", "topk_probs", "w1", "w2", "b1", "b2", "dy")
    given = (inputs.x, inputs.probs, inputs.w1, inputs.w2, inputs.b1, inputs.b2, inputs.dy)
    tensors = {name: tensor.detach() for name, tensor in zip(names, given) if tensor is not None}
    tensors["topk_ids"] = inputs.ids.int()
    tensors.update(ops.run(layer, "update_weights", tensors))
    tensors["saved"] = ops.run(layer, "forward", tensors)["saved"]
    return layer, tensors


def main_grads(tensors):
    """{"dw1": float32 zeros, ...} for the weights and biases among tensors by name."""
    return {f"d{name}": torch.zeros_like(tensors[name], dtype=torch.float32) for name in ("w1", "w2", "b1", "b2")
            if name in tensors}


@contextlib.contextmanager
def cleared_blocks():
    """Clears what calls make: for tests that compare every byte, also bytes that no kernel writes."""
    ops.library.moejit_torch_fill_blocks(0)
    try:
        yield
    finally:
        ops.library.moejit_torch_fill_blocks(FILL)


def check_operator(operator, arguments, **options):
    """Makes torch.library.opcheck's tests of an operator."""
    with cleared_blocks():
        torch.library.opcheck(operator, arguments, **options)


def check_call(layer, call, tensors, order=()):
    """What torch checks of any operator, of a call in both ways: returning what it makes, and writing into it."""
    row = row_of(layer, call)
    none = torch.empty(0, dtype=torch.bfloat16, device=DEVICE)
    reads = [tensors.get(argument.name, none) for argument in row.reads]
    if not any(argument.name in tensors and argument.name not in ("quantized", "quantized_colwise")
               for argument in row.writes):
        check_operator(ops.call, (reads, call, layer))
    tensors = {**ops.run(layer, call, tensors), **tensors}
    written = [tensors.get(argument.name, none) for argument in row.writes]
    check_operator(ops.call_, (reads, [*written, *order], call, layer))


class Recorder(TorchDispatchMode):
    """Notes the calls that run, as (name, {name: shape} of what they write), and the blocks that they return."""

    def __init__(self):
        super().__init__()
        self.calls, self.blocks = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        if function.namespace == "moejit":
            call, layer = args[-2:]
            row = row_of(layer, call)
            names = row.made if function == ops.call else [argument.name for argument in row.writes]
            written = dict(zip(names, results if function == ops.call else args[1]))
            self.calls.append((call, {name: list(tensor.shape) for name, tensor in written.items()}))
            if function == ops.call:
                self.blocks += [StorageWeakRef(tensor.untyped_storage()) for tensor in written.values()
                                if tensor.dtype == torch.uint8 and tensor.numel() > 0]
        return results


def relative_error(got, want):
    """|got - want| / |want| in the 2-norm."""
    return ((got.float() - want.float()).norm() / want.float().norm()).item()


def assert_same_bits(test, got, want):
    """Fails unless two lists of tensors are equal, bit for bit."""
    test.assertEqual(len(got), len(want))
    for index, (one, other) in enumerate(zip(got, want)):
        test.assertTrue(torch.equal(one, other), f"result {index} differs")


def told(function):
    """The sentence of the error that a function raises; None: it raises none."""
    try:
        function()
    except RuntimeError as error:
        return str(error)
    return None


def kept_block(state):
    """The only block of row-wise quantized weights that a module's state keeps."""
    block, _ = state.weights.blocks
    return block
