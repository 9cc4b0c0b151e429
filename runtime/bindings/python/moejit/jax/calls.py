# SPDX-License-Identifier: Apache-2.0
"""Calls of plans as foreign functions of XLA, with the checks that come while JAX traces."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.custom_batching
import jax.numpy as jnp
from jax.sharding import ManualAxisType, NamedSharding, PartitionSpec

from moejit.errors import Error
from moejit.frameworks import jax_library_path
from moejit.jax.plans import Plan
from moejit.library import load

TARGET = "moejit_call"  # of custom calls in compiled and exported programs

Arrays = Mapping[str, jax.Array]


def _register() -> ctypes.CDLL:
    path = jax_library_path()
    if not path.exists():
        raise ImportError(f"moejit.jax: {path} is missing\nhint: reinstall the package, or give the library's path in "
                          "MOEJIT_JAX_LIBRARY")
    load()  # makes the handlers use this copy of libmoejit.so
    library = ctypes.CDLL(str(path))
    stages = {"cpu": {"instantiate": library.moejit_jax_instantiate, "execute": library.moejit_jax_execute_on_cpu},
              "CUDA": {"instantiate": library.moejit_jax_instantiate, "initialize": library.moejit_jax_initialize,
                       "execute": library.moejit_jax_execute_on_gpu}}
    for platform, handlers in stages.items():
        capsules = {stage: jax.ffi.pycapsule(handler) for stage, handler in handlers.items()}
        jax.ffi.register_ffi_target(TARGET, capsules, platform=platform)
    return library


_library = _register()


def run(layer: Plan, call: str, given: Arrays, tokens: int, saved_bytes: int = 0) -> dict[str, jax.Array]:
    """Makes a call of a plan.

    Args:
        layer: The plan.
        call: The name of the call.
        given: Arrays by the names of tensors and blocks; others than the call takes are ignored. What the call adds to
            is among them: the result has its memory if the caller donates it.
        tokens: T of the call.
        saved_bytes: Of the saved block that the call writes, if more than it needs.

    Returns:
        What the call writes, by name, without the workspace.

    Raises:
        moejit.Error: "missing_tensor", "tensor_mismatch": an array is missing, or has another shape or dtype.
            "unsupported": the call is under vmap, or a derivative of it is asked for.
    """
    writes = layer.writes(call)
    added = [name for name in writes if name in given]
    reads = [*layer.reads(call), *added]
    arrays = [_checked(layer, call, name, given, tokens) for name in reads]
    axes = varying_axes(arrays)
    structs = [layer.struct(name, tokens, call) for name in writes]
    if "saved" in writes:
        place = writes.index("saved")
        structs[place] = jax.ShapeDtypeStruct((max(saved_bytes, structs[place].size),), jnp.uint8)
    results = [_varying(struct, axes) for struct in structs]
    aliases = {reads.index(name): writes.index(name) for name in added}
    names = " ".join([*("=" * (name in added) + name for name in reads), *writes])
    function = jax.ffi.ffi_call(TARGET, results, input_output_aliases=aliases)
    made = refusing(lambda *arrays: function(*arrays, plan=layer.text, call=call, names=names))(*arrays)
    return {name: array for name, array in zip(writes, made) if name != "workspace"}


def refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that says what JAX cannot do with it, in place of what JAX says about any foreign function."""
    batched = jax.custom_batching.custom_vmap(function)
    refusing = jax.custom_jvp(batched)

    @batched.def_vmap
    def _refuse_batches(*_: Any) -> Any:
        raise Error("unsupported", "plan", "moejit.jax has no vmap: tokens are the batch of a layer",
                    "call the function without vmap on x [..., H]: all leading dimensions are tokens")

    @refusing.defjvp
    def _refuse_derivatives(*_: Any) -> Any:
        raise Error("unsupported", "plan", "moejit.jax has first derivatives of experts() alone",
                    "take no second ones, as jax.hessian does; of other functions take gradients with respect to arrays "
                    "that they do not depend on")

    return refusing


def _checked(layer: Plan, call: str, name: str, given: Arrays, tokens: int) -> jax.Array:
    """Returns an array of a call after a look at shape and dtype."""
    if given.get(name) is None:
        raise Error("missing_tensor", "launch", f"tensor {name}: the call {call} needs it and it is not given")
    wanted, array = layer.struct(name, tokens, call), given[name]
    if array.shape != wanted.shape and not (name == "saved" and array.ndim == 1 and array.size >= wanted.size):
        raise Error("tensor_mismatch", "launch", f"tensor {name}: its shape is {list(array.shape)}, wanted "
                    f"{list(wanted.shape)}")
    if array.dtype != wanted.dtype:
        hint = f"convert it: {name}.astype(jax.numpy.{wanted.dtype})"
        if name == "topk_ids":
            hint += ', or plan the layer with "topk_ids_dtype"'
        raise Error("tensor_mismatch", "launch", f"tensor {name}: its dtype is {array.dtype}, wanted {wanted.dtype}", hint)
    if any(jax.typeof(array).sharding.spec):
        raise Error("unsupported", "plan", f"tensor {name}: it is sharded along explicit axes of the mesh, by "
                    f"{jax.typeof(array).sharding.spec}", "call the function in jax.shard_map, or give axes the type Auto")
    return array


def varying_axes(tree: Any) -> frozenset[str]:
    """Returns the mesh axes of a shard_map over which any array of a tree varies; none without check_vma."""
    types = (jax.typeof(array) for array in jax.tree.leaves(tree))
    return frozenset[str]().union(*(type_.manual_axis_type.varying for type_ in types))


def vary(tree: Any, axes: frozenset[str]) -> Any:
    """Marks all arrays of a tree as varying over mesh axes, so that gradients of replicated ones are summed."""
    def mark(array: jax.Array) -> jax.Array:
        missing = tuple(sorted(axes - varying_axes(array)))
        return jax.lax.pcast(array, missing, to="varying") if missing else array

    return jax.tree.map(mark, tree)


def _varying(struct: jax.ShapeDtypeStruct, axes: frozenset[str]) -> jax.ShapeDtypeStruct:
    if not axes:
        return struct
    sharding = NamedSharding(jax.sharding.get_abstract_mesh(), PartitionSpec())
    return jax.ShapeDtypeStruct(struct.shape, struct.dtype, sharding=sharding,
                                manual_axis_type=ManualAxisType(varying=axes))
