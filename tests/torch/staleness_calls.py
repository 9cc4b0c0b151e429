# SPDX-License-Identifier: Apache-2.0
"""Ways to call a module of the matrix of stale weights. Each takes a subject and returns a list of results.

The attribute `fresh` of a way is the one whose results it has to have, of a fresh module: the plainest without or with
gradients. It is None for what has no results.
"""
import torch
from torch.utils.checkpoint import checkpoint

from support import DEVICE
from moejit.torch import update_weights


def invoke(subject, function, **more):
    given = (subject.inputs.x, subject.inputs.ids, subject.inputs.probs)
    if subject.overrides is None:
        return function(*given, **more)
    path = [part for part in ("" if function is subject.root else "_orig_mod", subject.path) if part]
    tensors = {".".join([*path, name]): tensor for name, tensor in subject.overrides.items()}
    return torch.func.functional_call(function, tensors, given, more)


def gradients(subject, y):
    """[y, dx, dprobs]. dx reads the column-wise blocks of both weights."""
    leaves = (subject.inputs.x, subject.inputs.probs)
    found = torch.autograd.grad(y, leaves, subject.inputs.dy.to(y.dtype), allow_unused=True)
    return [y.detach(), *(each for each in found if each is not None)]


def compile_once(subject):
    return subject.once("compiled", lambda: torch.compile(subject.root, backend="eager", fullgraph=True))


@torch.no_grad()
def eager(subject):
    return [invoke(subject, subject.root)]


def step(subject):
    return gradients(subject, invoke(subject, subject.root))


def inference_mode(subject):
    with torch.inference_mode():
        y = invoke(subject, subject.root)
    return [y.clone()]


def frozen(subject):
    """A call in grad mode of which nothing wants a gradient."""
    inputs = subject.inputs
    subject.root.requires_grad_(False)
    return [subject.root(inputs.x.detach(), inputs.ids, inputs.probs.detach())]


@torch.no_grad()
def compiled(subject):
    return [invoke(subject, compile_once(subject))]


def compiled_step(subject):
    return gradients(subject, invoke(subject, compile_once(subject)))


def exported(subject):
    """A program with the parameters of the module. Nothing of it wants a gradient."""
    inputs = subject.inputs
    given = (inputs.x.detach(), inputs.ids, inputs.probs.detach())
    program = subject.once("exported", lambda: torch.export.export(subject.root.requires_grad_(False), given).module())
    return [program(*given)]


def checkpointed_step(subject):
    """Of a reentrant checkpoint, whose first forward call has no gradients."""
    inputs = subject.inputs
    inputs.x.grad = inputs.probs.grad = None
    y = checkpoint(lambda x, probs: subject.root(x, inputs.ids, probs), inputs.x, inputs.probs, use_reentrant=True)
    y.backward(inputs.dy)
    return [y.detach(), inputs.x.grad, inputs.probs.grad]


def first_microbatch(subject):
    return gradients(subject, invoke(subject, subject.root, is_first_microbatch=True))


def next_microbatch(subject):
    return gradients(subject, invoke(subject, subject.root, is_first_microbatch=False))


def unskipped_step(subject):
    skip = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    return gradients(subject, invoke(subject, subject.root, skip_update=skip))


def autocast(subject):
    with torch.no_grad(), torch.autocast(DEVICE.type, torch.bfloat16):
        return [invoke(subject, subject.root)]


def autocast_step(subject):
    with torch.autocast(DEVICE.type, torch.bfloat16):
        return step(subject)


def update(subject):
    """From here on calls without gradients need not look at the weights, until the next one."""
    update_weights(subject.root)
    return []


class Captured:
    """A call in a CUDA graph, which replays run."""

    def __init__(self, subject, call):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            call(subject)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.results = call(subject)

    def replay(self):
        self.graph.replay()
        return [each.clone() for each in self.results]


def captured(subject):
    return subject.once("captured", lambda: Captured(subject, eager)).replay()


def captured_step(subject):
    return subject.once("captured step", lambda: Captured(subject, step)).replay()


for _call in (eager, inference_mode, frozen, compiled, exported, captured):
    _call.fresh = eager
for _call in (step, compiled_step, checkpointed_step, first_microbatch, next_microbatch, unskipped_step, captured_step):
    _call.fresh = step
autocast.fresh, autocast_step.fresh, update.fresh = autocast, autocast_step, None
