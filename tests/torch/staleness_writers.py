# SPDX-License-Identifier: Apache-2.0
"""Who writes to weights, in the matrix of stale weights: all that programs do to them, seen by torch or not.

A writer gets a subject, the names of the weights to write to, and the number of the round. Most writes of few elements
go through `.data`, so that no version tells of them: whoever looks at the values has to see them.
"""
import functools
import threading

import torch
import torch.distributed as dist

from support import DEVICE
from staleness_case import NAMES, Writer

WRITERS = []


def writer(sort, name=None, **options):
    """Adds a function to WRITERS."""
    def add(function):
        WRITERS.append(Writer(name or function.__name__.replace("_", " "), sort, function, **options))
        return function
    return add


_GENERATOR = torch.Generator().manual_seed(7)


def other_values(weight):
    """Values of a weight's scale, others in each call."""
    drawn = torch.randn(weight.shape, generator=_GENERATOR) * weight.shape[-1] ** -0.5
    return drawn.to(weight.dtype).to(weight.device)


def alias(weight):
    """The same memory as a tensor that has no version in common with it."""
    shared = torch.empty(0, dtype=weight.dtype, device=weight.device)
    return shared.set_(weight.untyped_storage(), weight.storage_offset(), weight.shape, weight.stride())


def each_memory(function):
    """A writer that does something to each weight's plain tensor."""
    def write(subject, names, number):
        for name in names:
            function(subject.memory(name), number)
    return write


def memory_writer(name, function, **options):
    WRITERS.append(Writer(name, "memory", each_memory(function), **options))


def in_place(weight, _):
    with torch.no_grad():
        weight.mul_(-1)


def in_inference_mode(weight, _):
    with torch.inference_mode():
        weight.mul_(-1)


def by_thread(weight, _):
    thread = threading.Thread(target=lambda: weight.data.mul_(-1))
    thread.start()
    thread.join()


def by_numpy(weight, _):
    seen = weight.data.view(torch.uint8).numpy()
    seen[..., weight.element_size() - 1::weight.element_size()] ^= 0x80  # signs


def there_and_back(weight, _):
    kept = weight.data.clone()
    weight.data.zero_()
    weight.data.copy_(kept)


def of_storage(weight, _):
    weight.untyped_storage().copy_(other_values(weight).untyped_storage())


def offloaded(weight, _):
    """Frees the memory of a storage, as offloading does, and gives it other memory."""
    values, storage = weight.data.mul(-1), weight.untyped_storage()
    size = storage.nbytes()
    storage.resize_(0)
    storage.resize_(size)
    weight.data.copy_(values)


@functools.cache
def two_ranks():
    """Two ranks of gloo in this process, of which each has to wait for the other one while they are made."""
    store, groups = dist.HashStore(), {}

    def make(rank):
        groups[rank] = dist.ProcessGroupGloo(dist.PrefixStore("weights", store), rank, 2)

    threads = [threading.Thread(target=make, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return groups[0], groups[1]


def by_group(collective):
    """A writer by a collective of two ranks, in memory of the CPU: it writes in C++ and tells no version."""
    def write(weight, _):
        own = weight.data.cpu()
        works = [collective(group, tensor) for group, tensor in zip(two_ranks(), (own, own.clone().mul_(-1.75)))]
        for work in works:
            work.wait()
        if weight.is_cuda:
            weight.data.copy_(own)
    return write


def broadcast(group, tensor):
    options = dist.BroadcastOptions()
    options.rootRank = 1
    return group.broadcast([tensor], options)


def large_element(weight, expert):
    """Row and column of an expert's largest element."""
    return divmod(weight.data[expert].abs().argmax().item(), weight.shape[2])


def turned(element):
    """Makes an element +1 or -1, far above the others, whichever it is not."""
    element.copy_(torch.where(element < 0, 1.0, -1.0))


def one_element(weight, _):
    turned(weight.data[1, 5, 7])


def last_element(weight, _):
    turned(weight.data[-1, -1, -1])


def one_sign(weight, _):
    weight.data[0][large_element(weight, 0)] *= -1  # no amax and no scale tells


def one_expert(weight, _):
    weight.data[1].mul_(-1)


def one_row(weight, _):
    weight.data[1, 9].mul_(-1)


def exchange(one, other):
    kept = one.clone()
    one.copy_(other)
    other.copy_(kept)


def rows_exchanged(weight, _):
    exchange(weight.data[1, 3], weight.data[1, 17])


def columns_exchanged(weight, _):
    exchange(weight.data[1, :, 3], weight.data[1, :, 17])


def experts_exchanged(weight, _):
    exchange(weight.data[0], weight.data[1])


def elements_exchanged(weight, _):
    """Sums over the expert, and its amax, stay."""
    row, column = large_element(weight, 1)
    exchange(weight.data[1, row, column], weight.data[1, row - 1, column - 9])


def rows_turned(weight, _):
    """All rows move by one: each word's bits are there still, elsewhere."""
    weight.data.copy_(weight.data.roll(1, 1))


def by_stream(weight, _):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        weight.data.mul_(-1)
    torch.cuda.current_stream().wait_stream(side)


ACCESS, PLACE = {"family": "access"}, {"family": "place"}
for _name, _function, _options in (
        ("in place", in_place, {}),
        ("in place, in inference mode", in_inference_mode, {}),
        (".data.copy_()", lambda weight, _: weight.data.copy_(other_values(weight)), ACCESS),
        (".detach().mul_()", lambda weight, _: weight.detach().mul_(-1), ACCESS),
        ("as_tensor()", lambda weight, _: torch.as_tensor(weight.detach()).mul_(-1), ACCESS),
        ("alias of the storage", lambda weight, _: alias(weight).mul_(-1), ACCESS),
        ("DLPack", lambda weight, _: torch.from_dlpack(weight.detach()).mul_(-1), ACCESS),
        ("numpy", by_numpy, {**ACCESS, "device": "cpu"}),
        ("copy of the storage", of_storage, ACCESS),
        ("another thread", by_thread, ACCESS),
        ("broadcast", by_group(broadcast), ACCESS),
        ("all_reduce", by_group(lambda group, tensor: group.allreduce([tensor])), ACCESS),
        ("there and back", there_and_back, {"is_visible": False}),
        ("one element", one_element, PLACE),
        ("the last element", last_element, PLACE),
        ("the sign of an element", one_sign, PLACE),
        ("one expert", one_expert, PLACE),
        ("one row", one_row, PLACE),
        ("two rows exchanged", rows_exchanged, PLACE),
        ("two columns exchanged", columns_exchanged, PLACE),
        ("two experts exchanged", experts_exchanged, PLACE),
        ("two elements exchanged", elements_exchanged, PLACE),
        ("all rows turned", rows_turned, PLACE),
        ("another stream", by_stream, {"device": "cuda"})):
    memory_writer(_name, _function, **_options)


# The shards of FSDP are part of larger memory. What numpy has seen cannot be resized: so it has a module for itself.
writer("unsharded", "offload", prepare=lambda subject: None)(each_memory(offloaded))


@writer("memory", "swap of averages", rounds=2)
def swap_of_averages(subject, names, number):
    """Evaluates with averaged weights, as libraries of EMA do, and then with the kept ones."""
    for name in NAMES:
        weight = subject.memory(name)
        if number % 2 == 0:
            subject.made["kept " + name] = weight.data.clone()
            weight.data.copy_(other_values(weight))
        else:
            weight.data.copy_(subject.made["kept " + name])


def capture_a_write(subject):
    """A graph that writes, as a captured step of training does. Its replays run no Python."""
    for name in NAMES:
        weight = subject.memory(name)
        with torch.no_grad(), torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
            weight.mul_(-1)
        subject.made["graph of " + name] = graph


@writer("memory", "replay of a graph", device="cuda", prepare=capture_a_write)
def replay_of_a_graph(subject, names, _):
    for name in names:
        subject.made["graph of " + name].replay()
