# SPDX-License-Identifier: Apache-2.0
"""The exchange of tokens between the devices of a mesh axis that share experts, by jax.lax.ragged_all_to_all.

A token goes once to each device that has experts of it. Rows for one device lie together, the first device's first, each
in the order of tokens. They travel as bytes: all that belongs to a token is one row.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from moejit.jax import calls

# XLA copies a slice for another device of the host with few threads: 13 MB took 4.4 ms as one slice, 0.1 ms as 128.
# Through NCCL each slice is a message, so devices share this number.
_SLICES_OF_ALL = 256

Rows = Mapping[str, jax.Array]
Structs = Mapping[str, jax.ShapeDtypeStruct]


class Routes(NamedTuple):
    """Where rows go in an exchange. R are the devices, S = T * min(K, R) is the most that a device can send."""
    rows: jax.Array  # i32 [T, min(K, R)]: a token's rows among those that this device sends; S: none
    tokens: jax.Array  # i32 [S]: the token of each row that is sent
    begins: jax.Array  # i32 [R, R]: of sender and receiver, the first row among the sender's
    places: jax.Array  # i32 [R, R]: and among the receiver's
    sizes: jax.Array  # i32 [R, R]: how many rows are sent; fewer than there are if the receiver has no room
    has_surplus: jax.Array  # bool []: whether any device had no room for some rows


def local_ids(ids: jax.Array, local_experts: int, axis: str) -> jax.Array:
    """Returns the ids of this device's experts, and -1 for others. Ids that are wrong stay wrong on one device."""
    rank = jax.lax.axis_index(axis).astype(ids.dtype)
    is_own = (ids != -1) & (_owners(ids, local_experts, axis) == rank)
    return jnp.where(is_own, ids - rank * local_experts, -1)


def _owners(ids: jax.Array, local_experts: int, axis: str) -> jax.Array:
    return jnp.clip(ids // local_experts, 0, jax.lax.axis_size(axis) - 1)


def routes_of(ids: jax.Array, local_experts: int, axis: str, room: int) -> Routes:
    """Finds the way of this device's tokens. Devices tell each other how many rows they send.

    Args:
        ids: Experts of all devices, [T, K]; -1: none.
        local_experts: Experts of a device.
        axis: The mesh axis.
        room: The rows that each device can receive.
    """
    ranks, (tokens, top_k) = jax.lax.axis_size(axis), ids.shape
    owners = jnp.where(ids == -1, ranks, _owners(ids, local_experts, axis))
    goes = (owners[:, :, None] == jnp.arange(ranks)).any(1)  # [T, R]
    most, width = tokens * min(top_k, ranks), min(top_k, ranks)
    counts = goes.sum(0, dtype=jnp.int32)
    rows = (jnp.cumsum(counts) - counts) + jnp.cumsum(goes, 0, dtype=jnp.int32) - 1
    rows = jnp.sort(jnp.where(goes, rows, most), 1)[:, :width]
    numbers = jnp.broadcast_to(jnp.arange(tokens, dtype=jnp.int32)[:, None], rows.shape)
    counts_of_all = jax.lax.all_gather(counts, axis)  # [sender, receiver]
    places = jnp.cumsum(counts_of_all, 0) - counts_of_all
    sizes = jnp.clip(room - places, 0, counts_of_all)
    return Routes(rows, jnp.zeros(most, jnp.int32).at[rows].set(numbers, mode="drop"),
                  jnp.cumsum(counts_of_all, 1) - counts_of_all, jnp.minimum(places, room), sizes,
                  (sizes < counts_of_all).any())


def send(arrays: Rows, routes: Routes, axis: str, room: int) -> tuple[dict[str, jax.Array], jax.Array]:
    """Sends what belongs to tokens to the devices of their experts.

    Returns:
        Arrays of `room` rows, and bool [room]: which of them were received. The others are zeros.
    """
    packed = pack(arrays)[routes.tokens]
    me = jax.lax.axis_index(axis)
    got = _exchanged(packed, jnp.zeros((room, packed.shape[1]), jnp.uint8), routes.begins[me], routes.sizes[me],
                     routes.places[me], routes.sizes[:, me], axis)
    return unpack(got, arrays), jnp.arange(room) < routes.sizes[:, me].sum()


def bring_back(arrays: Rows, routes: Routes, axis: str) -> dict[str, jax.Array]:
    """Sends results of received rows back, and adds up the rows of a token in float32. Lost rows make their token NaN."""
    packed = pack(arrays)
    me, most = jax.lax.axis_index(axis), len(routes.tokens)
    lost = jnp.full((most, packed.shape[1]), 255, jnp.uint8)  # of all bits, which is a NaN
    got = _exchanged(packed, lost, routes.places[:, me], routes.sizes[:, me], routes.begins[:, me], routes.sizes[me], axis)
    return {name: array.at[routes.rows].get(mode="fill", fill_value=0).astype(jnp.float32).sum(1).astype(array.dtype)
            for name, array in unpack(got, arrays).items()}


def _exchanged(rows: jax.Array, output: jax.Array, begins: jax.Array, sizes: jax.Array, places: jax.Array,
               received: jax.Array, axis: str) -> jax.Array:
    """Returns jax.lax.ragged_all_to_all() of the rows for each device, which travel in slices of one size or almost."""
    slices = max(_SLICES_OF_ALL // jax.lax.axis_size(axis), 1)

    def first(sizes: jax.Array) -> jax.Array:  # the first row of each slice, and behind the last
        return sizes[:, None] * jnp.arange(slices + 1) // slices

    sent, come = first(sizes), first(received)
    numbers = (begins[:, None] + sent[:, :-1], jnp.diff(sent), places[:, None] + sent[:, :-1], jnp.diff(come))
    return jax.lax.ragged_all_to_all(rows, _varying_as(output, rows), *(array.ravel() for array in numbers),
                                     axis_name=axis)


def pack(arrays: Rows) -> jax.Array:
    """Returns rows of bytes, u8 [T, bytes], with the rows of all arrays [T, ...] behind each other."""
    tokens = len(next(iter(arrays.values())))
    return jnp.concatenate([_bytes(array).reshape(tokens, -1) for array in arrays.values()], 1)


def unpack(packed: jax.Array, likes: Rows | Structs) -> dict[str, jax.Array]:
    """Returns the arrays of which pack() made rows, with dtypes and columns of others."""
    arrays, begin = {}, 0
    for name, like in likes.items():
        size = like.dtype.itemsize
        width = like.shape[1] * size
        part = packed[:, begin:begin + width].reshape(len(packed), *([like.shape[1], size] if size > 1 else [width]))
        arrays[name] = jax.lax.bitcast_convert_type(part, like.dtype)
        begin += width
    return arrays


def _bytes(array: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(array, jnp.uint8)


def _varying_as(array: jax.Array, other: jax.Array) -> jax.Array:
    return calls.vary(array, calls.varying_axes(other))
