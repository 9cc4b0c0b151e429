# SPDX-License-Identifier: Apache-2.0
"""Calls whose tokens jit finds sharded: each device computes its own, where XLA would gather them for a foreign function.

What forward saves is one block of bytes, whose size is no multiple of the tokens'. As a result of such a call it is
[parts, bytes]: `parts` is the largest number of devices that may share the tokens, and `bytes` is enough for every
number of devices that divides it.
"""
from __future__ import annotations

import functools
import math
from typing import Any

import jax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from moejit.jax import calls
from moejit.jax.calls import Arrays
from moejit.jax.plans import Plan


def run(layer: Plan, call: str, given: Arrays, tokens: int, *, keeps_saved: bool = True) -> dict[str, jax.Array]:
    """Makes a call as calls.run() does, of tokens that may be sharded.

    Args:
        keeps_saved: Whether the saved block is needed. Without it no mesh has to be known.
    """
    parts = _parts(layer, tokens, keeps_saved)
    if parts == 1:
        return calls.run(layer, call, given, tokens)
    reads = layer.reads(call)
    writes = tuple(name for name in layer.writes(call) if name != "workspace" and (keeps_saved or name != "saved"))
    body = functools.partial(_local, layer, call, reads, writes, parts, tokens)
    function = custom_partitioning(lambda *arrays: body((), 1, *arrays))
    sizes = {"r": tokens // parts} if "saved" in (*reads, *writes) else {}
    factors = {name: _factors(layer, name, number, "(d r)" if sizes else "t") for number, name in enumerate((*reads, *writes))}
    rule = " -> ".join(", ".join(factors[name] for name in names) for names in (reads, writes))

    def partition(mesh: Any, arguments: Any, results: Any) -> Any:
        axes = _axes_of(arguments[reads.index("x" if "x" in reads else "dy")].sharding)
        devices = math.prod(mesh.shape[axis] for axis in axes)
        if parts % devices or tokens % devices:
            axes, devices = (), 1
        split, whole = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in ((axes or None,), ()))
        places = [tuple(split if _has_tokens(layer, name) else whole for name in names) for names in (reads, writes)]
        return mesh, functools.partial(body, axes, devices), places[1], places[0]

    function.def_partition(partition=partition, sharding_rule=rule, **sizes)
    return dict(zip(writes, calls.refusing(function)(*(given[name] for name in reads))))


def _parts(layer: Plan, tokens: int, keeps_saved: bool) -> int:
    """Returns how many devices may share the tokens of a call; 1 where nothing is sharded, or shard_map has done it."""
    mesh = jax.sharding.get_abstract_mesh()
    if not isinstance(tokens, int) or layer.state or mesh.manual_axes or AxisType.Explicit in mesh.axis_types:
        return 1
    parts = mesh.size if not mesh.empty else 1 if keeps_saved else jax.device_count()
    return parts if tokens and tokens % parts == 0 else 1


def _has_tokens(layer: Plan, name: str) -> bool:
    return name == "saved" or (name in layer.tensors and layer.tensors[name].symbols[0] == "T")


def _factors(layer: Plan, name: str, number: int, tokens: str) -> str:
    """Returns the dimensions of a tensor in a sharding rule. All but tokens, and d of a saved block, are by themselves."""
    if name == "saved":
        return f"d f{number}"
    dims = len(layer.struct(name, 1).shape)
    return " ".join(tokens if dim == 0 and _has_tokens(layer, name) else f"f{number}{chr(ord('a') + dim)}" for dim in range(dims))


def _axes_of(sharding: Any) -> tuple[str, ...]:
    first = sharding.spec[0] if sharding.spec else None
    return () if first is None else first if isinstance(first, tuple) else (first,)


def _local(layer: Plan, call: str, reads: tuple[str, ...], writes: tuple[str, ...], parts: int, tokens: int,
           axes: tuple[str, ...], devices: int, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Makes the call of one of `devices`, which share the tokens along mesh axes."""
    given = dict(zip(reads, arrays, strict=True))
    if "saved" in given:
        given["saved"] = given["saved"].reshape(-1)
    rows = parts // devices
    made = calls.run(layer, call, given, tokens // devices, saved_bytes=rows * _saved_bytes(layer, tokens, parts))

    def whole(name: str) -> jax.Array:
        if name == "saved":
            return made[name].reshape(rows, -1)
        if not axes or _has_tokens(layer, name):
            return made[name]
        if name != "status":
            return jax.lax.psum(made[name], axes)
        return jax.lax.reduce_or(jax.lax.all_gather(made[name], axes), (0,))

    return tuple(map(whole, writes))


@functools.lru_cache(maxsize=None)
def _saved_bytes(layer: Plan, tokens: int, parts: int) -> int:
    """Returns the bytes of a part, enough for every number of devices: the part of each has parts / devices of them."""
    return max(-(-layer.struct("saved", tokens // devices).size * devices // parts)
               for devices in range(1, parts + 1) if parts % devices == 0)
