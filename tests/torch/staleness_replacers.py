# SPDX-License-Identifier: Apache-2.0
"""More writers of the matrix of stale weights: optimizers, and what puts other tensors into a module or around it."""
import copy
import tempfile

import torch
from torch.nn.utils import parametrize

from support import DEVICE
from staleness_case import NAMES
from staleness_writers import WRITERS, other_values, writer


class EightBitStyle(torch.optim.Optimizer):
    """Writes through `.data`, as optimizers with quantized states do."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.data.add_(parameter.grad.sign(), alpha=-group["lr"])


def step_of(title, make):
    """A writer that is a step of an optimizer, which lives as long as the subject."""
    def write(subject, names, _):
        parameters = [subject.parameter(name) for name in NAMES]
        optimizer = subject.once(title, lambda: make(parameters))
        for name, parameter in zip(NAMES, parameters):
            # So large a step turns most signs.
            parameter.grad = parameter.detach().sign() if name in names else None
        optimizer.step()
        optimizer.zero_grad()
    return write


OPTIMIZERS = {
    "AdamW, foreach": lambda given: torch.optim.AdamW(given, 0.2, foreach=True),
    "AdamW, fused": lambda given: torch.optim.AdamW(given, 0.2, fused=True),
    "Adam, fused": lambda given: torch.optim.Adam(given, 0.2, fused=True),
    "SGD": lambda given: torch.optim.SGD(given, 0.2, foreach=False),
    "SGD, fused": lambda given: torch.optim.SGD(given, 0.2, momentum=0.9, fused=True),
    "Adagrad, fused": lambda given: torch.optim.Adagrad(given, 0.2, fused=True),
    "8 bits": lambda given: EightBitStyle(given, 0.2)}
for _name, _make in OPTIMIZERS.items():
    # torch 2.11 has the fused Adagrad on the CPU alone; its fused SGD there leaves bf16 as it is.
    _device = {"Adagrad, fused": "cpu", "SGD, fused": "cuda"}.get(_name)
    # DTensors have no fused Adagrad or SGD at all.
    writer("optimizer" if _device is None else "unsharded", _name, device=_device,
           family="optimizer")(step_of(_name, _make))
writer("optimizer", "AdamW, capturable", device="cuda")(
    step_of("AdamW, capturable", lambda given: torch.optim.AdamW(given, 0.2, capturable=True)))


@writer("replace", ".data = tensor", rounds=2)
def other_data(subject, names, _):
    """The allocator may give the new values the old address."""
    for name in names:
        parameter = subject.parameter(name)
        values = other_values(parameter).cpu()
        parameter.data = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
        parameter.data = values.to(parameter.device) if DEVICE.type == "cuda" else values.clone()


@writer("replace", "another Parameter", rounds=2)
def another_parameter(subject, names, _):
    """Its version is that of the old one, and its address may be too."""
    for name in names:
        holder, old = subject.holder, subject.parameter(name)
        values, version = other_values(old).cpu(), old._version
        delattr(holder, name)
        del old
        parameter = torch.nn.Parameter(values.to(DEVICE, copy=True))
        torch._C._autograd._unsafe_set_version_counter((parameter,), (version,))
        setattr(holder, name, parameter)


def new_state(subject, names):
    return {name: other_values(value) if name.rpartition(".")[2] in names else value.clone()
            for name, value in subject.holder.state_dict().items()}


@writer("replace", "load_state_dict()")
def load(subject, names, _):
    subject.holder.load_state_dict(new_state(subject, names))


@writer("replace", "load_state_dict(assign=True)")
def assign(subject, names, _):
    subject.holder.load_state_dict(new_state(subject, names), assign=True)


@writer("swap", "swap_tensors()")
def swap(subject, names, _):
    for name in names:
        parameter = subject.parameter(name)
        torch.utils.swap_tensors(parameter, torch.nn.Parameter(other_values(parameter)))


@writer("replace", "another dtype and back")
def there_and_back(subject, names, _):
    """float32 has all values of bf16, and rounding them back gives the same."""
    holder, dtype = subject.holder, subject.parameter(NAMES[0]).dtype
    holder.to(torch.float64)
    for name in names:
        subject.parameter(name).data.mul_(-1)
    holder.to(dtype)


class Scaled(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.register_buffer("factor", torch.ones((), dtype=weight.dtype, device=weight.device))

    def forward(self, weight):
        return weight * self.factor


class LowRank(torch.nn.Module):
    """An adapter that is merged in each call."""

    def __init__(self, weight):
        super().__init__()
        experts, rows, columns = weight.shape
        options = {"dtype": weight.dtype, "device": weight.device}
        self.down = torch.nn.Parameter(torch.randn(experts, 4, columns, **options) / 8)
        self.up = torch.nn.Parameter(torch.zeros(experts, rows, 4, **options))

    def forward(self, weight):
        return weight + self.up @ self.down


def parametrized(kind):
    def prepare(subject):
        torch.manual_seed(0)
        for name in NAMES:
            parametrize.register_parametrization(subject.holder, name, kind(subject.parameter(name)))
    return prepare


@writer("structure", "parametrization", prepare=parametrized(Scaled))
def parametrization(subject, names, _):
    for name in names:
        subject.holder.parametrizations[name][0].factor.data.mul_(-1)


@writer("structure", "merged adapter", prepare=parametrized(LowRank))
def merged_adapter(subject, names, _):
    for name in names:
        up = subject.holder.parametrizations[name][0].up
        up.data.copy_(other_values(up))


@writer("functional", "functional_call()", rounds=2)
def functional(subject, names, _):
    subject.overrides = None  # frees what the round before gave
    subject.overrides = {name: other_values(subject.parameter(name)) for name in names}


@writer("inference", "inference tensors")
def inference_tensors(subject, names, _):
    with torch.inference_mode():
        for name in names:
            setattr(subject.holder, name, torch.nn.Parameter(other_values(subject.parameter(name)), False))


@writer("inference", "inference tensors in place", prepare=lambda subject: inference_tensors(subject, NAMES, 0))
def inference_tensors_in_place(subject, names, _):
    with torch.inference_mode():
        for name in names:
            subject.parameter(name).mul_(-1)


def copied(duplicate):
    """The copy is written to: first the module has to stay as it is, then the copy has to be as it was written."""
    def write(subject, names, number):
        if number % 2 == 0:
            subject.made["copy"] = other = duplicate(subject.root)
        else:
            other = subject.made["copy"]
            subject.adopt(other, subject.path)
        for name in names:
            getattr(other.get_submodule(subject.path), name).data.mul_(-1)
    return write


def pickled(root):
    with tempfile.TemporaryFile() as file:
        torch.save(root, file)
        file.seek(0)
        return torch.load(file, weights_only=False)


writer("copy", "deepcopy()", is_visible=False, rounds=2)(copied(copy.deepcopy))
writer("copy", "torch.save()", is_visible=False, rounds=2)(copied(pickled))
