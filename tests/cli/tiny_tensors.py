# SPDX-License-Identifier: Apache-2.0
"""Inputs and weights of the layer tiny.json, for files in the format safetensors."""
import random
import struct

E, K, H, I = 8, 2, 256, 128
DUMPED = ["act_q", "act_scale_inv", "counts", "h1", "h2", "offs", "permuted_probs", "permuted_q",
          "permuted_scale_inv", "row_map", "w1_q", "w1_scale_inv", "w2_q", "w2_scale_inv", "x_q",
          "x_scale_inv", "y"]


def bf16(values):
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def numbers(seed, count, scale=1.0):
    stream = random.Random(seed)
    return bf16(stream.gauss(0, scale) for _ in range(count))


def token_tensors(tokens, ids=None):
    ids = ids if ids is not None else [(3 * t + k) % E for t in range(tokens) for k in range(K)]
    return {"x": ("BF16", [tokens, H], numbers(1, tokens * H)),
            "topk_ids": ("I32", [tokens, K], struct.pack(f"<{len(ids)}i", *ids)),
            "topk_probs": ("F32", [tokens, K], struct.pack("<f", 0.5) * (tokens * K))}


def weight_tensors():
    return {"w1": ("BF16", [E, 2 * I, H], numbers(2, E * 2 * I * H, 0.05)),
            "w2": ("BF16", [E, H, I], numbers(3, E * H * I, 0.05))}
