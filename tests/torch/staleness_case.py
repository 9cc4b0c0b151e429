# SPDX-License-Identifier: Apache-2.0
"""One cell of the matrix of stale weights: somebody writes to a weight, and the next call has to compute with it.

A cell has a writer (staleness_writers.py, staleness_replacers.py), a kind of call (staleness_kinds.py,
staleness_doors.py) and a recipe. It makes a subject, a module that was called before, so that it may have kept something.
Then the writer writes, and the next calls are compared with the same calls of a fresh module that has the weights of that
moment: the bits are equal. A fresh module is made anew each time, never copied from the subject: it has kept nothing.
"""
import dataclasses
from typing import Callable

import torch

from support import DEVICE, K, Inputs, assert_same_bits, relative_error

torch.set_num_threads(1)  # tensors are tiny

E, TOKENS = 2, 6  # in the simulator each expert takes its time
NAMES = ("gate_up_proj", "down_proj")
RECIPES = ("fp8_flow", "fp8_rowwise", "nvfp4", "bf16")
# The largest relative error of y in the 2-norm, beside float32 of the same weights. At most four casts are between them:
# of x, w1, activation and w2. A value of E4M3 is off by 2.6 % in the mean square, of which the activation may make 1.3
# times as much: sqrt(4) * 1.3 * 2.6 % = 7 %. One of NVFP4 is off by 9.5 %, and gate times up by 2 of these:
# sqrt(2^2 + 2) * 9.5 % = 23 %. Twice as much is allowed, since a few tokens and single elements far above all others are
# no mean, and of bf16 twice what support.py has. A stale y is off by 100 % or more where a whole weight was written:
# with the other sign, or drawn anew.
BOUNDS = {"bf16": 0.012, "fp8_flow": 0.14, "fp8_rowwise": 0.14, "nvfp4": 0.46}


@dataclasses.dataclass(frozen=True)
class Writer:
    """Who writes. `write(subject, names, round)` changes the weights of these names; round counts from 0.

    `sort` says what it needs: "memory" writes into the memory of the weights, "optimizer" too but by their gradients,
    and "unsharded" if FSDP has not sharded them. "replace" puts other tensors in their place, "swap" swaps what tensors
    are, "structure" changes the module before its first call. "copy" and "functional" need modules that can be copied,
    or called with other tensors, and "inference" calls without gradients. `device` is the only type of device that has
    it. Writers of a `family` differ in how they come to the memory, or in which values they change there. A call tells
    them apart only by what it compares, and that is the same in all kinds of calls.
    """
    name: str
    sort: str
    write: Callable
    prepare: Callable | None = None
    device: str | None = None
    family: str | None = None
    is_visible: bool = True  # whether another weight means another y
    rounds: int = 1  # the fewest that make sense


@dataclasses.dataclass(frozen=True)
class Kind:
    """How weights are used: `prime` are the calls before each write, `calls` those behind it, functions of
    staleness_calls.py.

    `make(recipe, **options)` returns the module to call and the name of its submodule with the weights.
    `reference(w1, w2, inputs)` is y in float32; None: other tests compare it. `make_fresh` makes fresh modules,
    where `make` would not do.
    """
    name: str
    make: Callable
    prime: tuple[Callable, ...]
    calls: tuple[Callable, ...]
    sorts: tuple[str, ...]
    options: dict = dataclasses.field(default_factory=dict)
    recipes: tuple[str, ...] = RECIPES
    reference: Callable | None = None
    make_fresh: Callable | None = None
    device: str | None = None


def make_inputs():
    """Inputs whose tokens reach every expert."""
    inputs = Inputs(TOKENS)
    inputs.ids = (torch.arange(TOKENS * K).reshape(TOKENS, K) % E).to(DEVICE)
    return inputs


def float32(w1, w2, inputs, up_first=False):
    """y of gated experts in float32."""
    halves = torch.einsum("th,ejh->etj", inputs.x.detach().float(), w1.float()).chunk(2, -1)
    gate, up = reversed(halves) if up_first else halves
    h2 = torch.einsum("eti,ehi->eth", torch.nn.functional.silu(gate) * up, w2.float())
    factors = inputs.probs.new_zeros(TOKENS, E).scatter_(1, inputs.ids, inputs.probs.detach())
    return torch.einsum("te,eth->th", factors, h2)


class Subject:
    """A module under test with what was made of it: `root` is called, `holder` has the weights."""

    def __init__(self, kind, recipe, inputs=None):
        self.kind, self.recipe, self.inputs = kind, recipe, inputs or make_inputs()
        self.made = {}  # what a writer or a way to call keeps between rounds
        self.adopt(*kind.make(recipe, **kind.options))

    def adopt(self, root, path):
        """Goes on with this module instead."""
        self.root, self.path, self.overrides = root, path, None
        self.made.clear()

    @property
    def holder(self):
        return self.root.get_submodule(self.path)

    def parameter(self, name):
        """The parameter of a weight, also behind a parametrization."""
        lists = self.holder._modules.get("parametrizations")
        return lists[name].original if lists is not None and name in lists else getattr(self.holder, name)

    def memory(self, name):
        """A weight's plain tensor, whose memory writers write to."""
        parameter = self.parameter(name)
        local = getattr(parameter, "_local_tensor", parameter)  # of a DTensor, the only shard
        return getattr(local, "plain", local)

    @torch.no_grad()
    def weights(self):
        """Copies of the weights with which a call has to compute now."""
        given = {name: getattr(self.holder, name) for name in NAMES} | (self.overrides or {})
        return [(self.memory(name) if hasattr(each, "_local_tensor") else each).detach().clone()
                for name, each in given.items()]

    def fresh(self):
        """A new module that has these weights, as a subject."""
        make = self.kind.make_fresh or self.kind.make
        other = Subject(dataclasses.replace(self.kind, make=make), self.recipe, self.inputs)
        for name, weight in zip(NAMES, self.weights()):
            other.parameter(name).data = weight
        return other

    def once(self, name, make):
        """What is made of the root once, such as its compiled form."""
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]


def run(subject, calls):
    return [result for call in calls for result in call(subject)]


def check(test, writer, kind, recipe, shared, names):
    """Lets a test fail unless a cell's calls have the bits of fresh modules with the weights of their moment.

    Each round writes to one weight, as `names` says. Writers that leave the module as it is share a subject: `shared`
    has it by recipe, until a cell fails.
    """
    is_shared = writer.sort in ("memory", "optimizer", "unsharded") and writer.prepare is None
    subject = shared.pop(recipe, None) if is_shared else None
    if subject is None:
        torch._dynamo.reset()
        subject = Subject(kind, recipe)
        if writer.prepare is not None:
            writer.prepare(subject)
        run(subject, kind.prime)  # those that follow may go a shorter way
    for number, name in enumerate(names):
        before, *_ = run(subject, kind.prime)
        # One weight alone: what forgets the other one has to be seen.
        writer.write(subject, [name], number)
        got = run(subject, kind.calls)
        want = run(subject.fresh(), [call.fresh for call in kind.calls if call.fresh is not None])
        if writer.is_visible:
            test.assertFalse(torch.equal(want[0], before), "the write changes nothing, so that no call could show it")
        assert_same_bits(test, got, want)
        if kind.reference is not None:
            error = relative_error(got[0], kind.reference(*subject.weights(), subject.inputs))
            test.assertLessEqual(error, BOUNDS[recipe], "beside float32")
    if is_shared:
        shared[recipe] = subject
