# SPDX-License-Identifier: Apache-2.0
"""From a map of tokens and experts to the row of each choice, and back to it from what callers keep as `row_id_map`."""
from __future__ import annotations

from typing import Any, NamedTuple

import torch

from moejit.torch.operations import bound, run_into

_BYTES = (torch.bool, torch.uint8, torch.int8)


class Rows(NamedTuple):
    """Where the rows of T tokens go.

    Attributes:
        row_map: int32 [T, K], the row of each choice, or -1.
        topk_ids: int32 [T, K], its expert, or any one if it has no row. None: nobody asks.
        counts, offs: int32 [E], [E + 1]: rows of each expert without pad rows, and where its rows start. None: there
            are no pad rows.
    """
    row_map: torch.Tensor
    topk_ids: torch.Tensor | None
    counts: torch.Tensor | None = None
    offs: torch.Tensor | None = None

    def packed(self) -> torch.Tensor:
        """Returns the rows as one tensor for read_rows(): int32 [T, 2K], with pad rows [T + E + 1, 2K]."""
        parts = [self.row_map.flatten(), self.topk_ids.flatten()]
        if self.counts is not None:
            parts += [self.counts, self.offs]
            width = 2 * self.row_map.shape[1]
            parts.append(self.offs.new_zeros((width - 2) * self.counts.shape[0] + width - 1))
        return torch.cat(parts).view(-1, 2 * self.row_map.shape[1])


def read_rows(row_id_map: torch.Tensor, tokens: int | None, experts: int | None) -> Rows:
    """Returns the rows that packed() has packed.

    Args:
        tokens: T as the caller knows it; None: unknown.
        experts: E if there are pad rows, else None.

    Raises:
        RuntimeError: The tensor was not packed of so many tokens and experts.
    """
    is_packed = row_id_map.dim() == 2 and row_id_map.dtype is torch.int32 and row_id_map.shape[1] % 2 == 0
    more = 0 if experts is None else experts + 1
    found = row_id_map.shape[0] - more
    if not is_packed or found < 0 or tokens not in (None, found):
        wanted = f"[{tokens if tokens is not None else 'T'}{f' + {more}' if more else ''}, 2K]"
        raise RuntimeError(f"moejit: tensor_mismatch: moe_unpermute: row_id_map: it is {row_id_map.dtype} "
                           f"{list(row_id_map.shape)}, wanted int32 {wanted}\nhint: give the row_id_map that the "
                           "function of moejit.torch.te returned, with restore_shape of the tokens, and pad_offsets "
                           "only if moe_permute_and_pad_with_probs() returned them")
    top_k = row_id_map.shape[1] // 2
    flat, size = row_id_map.reshape(-1), found * top_k
    row_map, topk_ids = flat[:size].view(found, top_k), flat[size:2 * size].view(found, top_k)
    if experts is None:
        return Rows(row_map, topk_ids)
    rest = flat[2 * size:]
    return Rows(row_map, topk_ids, rest[:experts], rest[experts:2 * experts + 1])


def route_map(routing_map: torch.Tensor, top_k: int | None, splits_alignment: int) -> Rows:
    """Returns the rows of a map: in the order of experts, and of tokens within an expert.

    Args:
        routing_map: [T, E]: not 0 where a token goes to an expert.
        top_k: The most experts of a token; None: E. More are not routed, which status() tells.
        splits_alignment: Each expert's rows start at a multiple of it.
    """
    if routing_map.dim() != 2:
        raise RuntimeError(f"moejit: tensor_mismatch: tensor routing_map: its shape is {list(routing_map.shape)}, "
                           "wanted [T, E]\nhint: map_type=\"index\" takes the ids of experts")
    tokens, experts = routing_map.shape
    as_bytes = routing_map if routing_map.dtype in _BYTES else routing_map != 0
    top_k = experts if top_k is None else min(top_k, experts)
    made = run_into({"operation": "route", "max_tokens": bound(tokens, None), "top_k": top_k, "local_experts": experts,
                     "splits_alignment": splits_alignment, "input": "routing_map"},
                    {"routing_map": as_bytes.contiguous().view(torch.uint8)},
                    {"status": _status_of(routing_map.device)})
    row_map, offs = made["row_map"], made["offs"]
    return Rows(row_map, torch.searchsorted(offs[1:], row_map, right=True, out_int32=True), made["counts"], offs)


def route_ids(topk_ids: torch.Tensor, most_rows: int) -> Rows:
    """Returns the rows of ids [T, K] of any experts, in the order of experts and of choices; -1 from `most_rows` on."""
    order = torch.sort(topk_ids.flatten(), stable=True).indices
    row = torch.arange(order.shape[0], dtype=torch.int32, device=order.device)
    row_map = torch.empty_like(row).scatter(0, order, torch.where(row < most_rows, row, -1)).view(topk_ids.shape)
    return Rows(row_map, None)


def below(rows: Rows, most_rows: int) -> Rows:
    """Returns the rows without the ones from `most_rows` on, for which there is no memory."""
    if rows.offs is not None:
        rows = rows._replace(offs=rows.offs.clamp(max=most_rows))
    elif rows.row_map.numel() <= most_rows:
        return rows
    return rows._replace(row_map=torch.where(rows.row_map < most_rows, rows.row_map, -1))


_status: dict[torch.device, torch.Tensor] = {}  # the words into which all maps on a device are routed


def _status_of(device: torch.device) -> torch.Tensor:
    if device not in _status:
        _status[device] = torch.zeros(1, dtype=torch.int32, device=device)
    return _status[device]


def status() -> int:
    """Returns the bits that routing has set since the last call of this function, which waits for the devices.

    16 stands for a token with more than `top_k` experts, of which the last ones were not routed.
    """
    bits = 0
    for word in _status.values():
        bits |= int(word)
        word.zero_()
    return bits


def fields_of(operation: str, rows: Rows, columns: int, most_rows: int, **more: Any) -> dict[str, Any]:
    """Returns the description of an operation on rows whose number is at most `most_rows`."""
    experts = 1 if rows.counts is None else rows.counts.shape[0]
    return {"operation": operation, "max_tokens": bound(rows.row_map.shape[0], None), "top_k": rows.row_map.shape[1],
            "local_experts": experts, "splits_alignment": 1, "max_permuted_rows": bound(most_rows, None),
            "any_permuted_rows": True, "columns": columns, **more}
