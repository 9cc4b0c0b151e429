# SPDX-License-Identifier: Apache-2.0
"""Casts of every recipe, by operations and layers of moejit, of inputs whose bits no version of torch can change."""
import json
import zlib

import torch

from support import DEVICE
from moejit.torch import Experts, operation, permute_pad, route
from moejit.torch.devices import target_of
from moejit.torch.gathered import parts_of_block
from moejit.torch.layers import call_text
from moejit.torch.weights import quantize

EXPERTS, HIDDEN, INNER, TOKENS = 2, 160, 96, 200  # blocks of 128 have a rest, and an expert has more than 128 rows
LENGTH, STEPS = 4, 12  # of histories of delayed scaling


def _words(count, seed):
    """int64 words that look random: the mixer of splitmix64."""
    word = torch.arange(1, count + 1, dtype=torch.int64) * -7046029254386353131 + seed * 1000003
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        word = (word ^ (word >> shift & (1 << 64 - shift) - 1)) * factor
    return word ^ (word >> 31 & (1 << 33) - 1)


def values(*shape, seed):
    """bf16 of all signs and mantissas and of 16 exponents around that of 1; every 61st value is 0, and so is row 1."""
    count = torch.Size(shape).numel()
    word = _words(count, seed)
    bits = (word & 0x807f) | (((word >> 20 & 0xf) + 118) << 7)
    bits[::61] = 0
    made = torch.where(bits > 0x7fff, bits - 0x10000, bits).to(torch.int16).view(torch.bfloat16).view(shape)
    made.view(-1, shape[-1])[1] = 0
    return made.to(DEVICE)


def inputs():
    """x, w1, w2, permuted rows of x in groups at multiples of 64, and the routing."""
    x = values(TOKENS, HIDDEN, seed=1)
    w1, w2 = values(EXPERTS, 2 * INNER, HIDDEN, seed=2), values(EXPERTS, HIDDEN, INNER, seed=3)
    ids = (torch.arange(TOKENS, device=DEVICE) % 3 != 0).long()[:, None]
    routing = route(ids, EXPERTS, splits_alignment=64)
    rows, _ = permute_pad(x, torch.ones(TOKENS, 1, device=DEVICE), routing)
    return x, w1, w2, rows, routing


def groups(routing):
    """(first row, end of its tokens, end) of each expert's group."""
    offs = routing.offs.tolist()
    return [(begin, begin + count, end) for begin, count, end in zip(offs, routing.counts.tolist(), offs[1:])]


def amaxes(step, columns, seed):
    """The magnitudes that a step of delayed scaling records; one of them is infinite, some are 0."""
    made = values(2, columns, seed=100 * step + seed)[0].abs().float()
    if step == 5:
        made[1] = float("inf")
    return made


def crc(*tensors):
    """The CRC-32 of the bytes of tensors, one after the other."""
    value = 0
    for tensor in tensors:
        value = zlib.crc32(tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes(), value)
    return value


def weights_of(recipe, w1, w2, **fields):
    """{name: tensor} of the quantized weights of a layer."""
    description = {"experts": EXPERTS, "top_k": 1, "hidden": HIDDEN, "intermediate": INNER, "recipe": recipe,
                   "max_tokens": TOKENS, "splits_alignment": 64, **fields}
    layer = call_text(json.dumps(description), target_of(DEVICE), ("dx", "dprobs", "dw1", "dw2"), "bf16")
    row_wise, column_wise = quantize(w1, w2, layer)
    return {**parts_of_block(row_wise, layer), **parts_of_block(column_wise, layer, "quantized_colwise")}


def columns_of(stored, routing):
    """A list of [rows of an expert, columns] of what quantize_columns stores."""
    by_rows = stored.view(torch.uint8).permute(0, 2, 1).reshape(-1, stored.shape[1])
    return [by_rows[first:first + end - begin]
            for first, (begin, end, _) in zip(routing.colwise_offs.tolist(), groups(routing))]


def casts():
    """{name: tensors} of codes and then scales, which for FP8 are those that recover values."""
    x, w1, w2, rows, routing = inputs()
    given = {"input": rows, "counts": routing.counts, "offs": routing.offs}
    sizes = {"local_experts": EXPERTS, "max_permuted_rows": rows.shape[0], "columns": HIDDEN}
    end, made = groups(routing)[-1][2], {}

    def quantized(recipe, **more):
        done = operation({"operation": "quantize", "recipe": recipe, "max_tokens": TOKENS, "columns": HIDDEN}, input=x, **more)
        return done["output"], done["output_scale_inv"]

    made["fp8_rowwise rows"] = quantized("fp8_rowwise")
    parts = weights_of("fp8_rowwise", w1, w2)
    for name in ("w1", "w2", "w1_colwise", "w2_colwise"):
        made[f"fp8_rowwise {name}"] = parts[f"{name}_q"], parts[f"{name}_scale_inv"]
    scales = operation({"operation": "scale_columns", **sizes}, **given)["output_scale_inv"]
    done = operation({"operation": "quantize_columns", "recipe": "fp8_rowwise", **sizes}, **given,
                     output_offs=routing.colwise_offs, input_scale_inv=scales)
    made["fp8_rowwise columns"] = *columns_of(done["output"], routing), scales

    codes, scales = quantized("mxfp8")
    made["mxfp8 rows"] = codes, scales.view(torch.uint8)[:, :HIDDEN // 32]
    done = operation({"operation": "quantize_weights", "recipe": "mxfp8", "local_experts": EXPERTS, "rows": 2 * INNER,
                      "columns": HIDDEN, "colwise": True}, input=w1)
    made["mxfp8 w1"] = done["output"], done["output_scale_inv"].view(torch.uint8)[..., :HIDDEN // 32]
    made["mxfp8 w1_colwise"] = done["output_colwise"], done["output_colwise_scale_inv"]
    done = operation({"operation": "quantize_columns", "recipe": "mxfp8", **sizes}, **given)
    made["mxfp8 columns"] = done["output_colwise"][:end], done["output_colwise_scale_inv"].view(torch.uint8)[:end // 32]

    made["fp8_blockwise rows"] = quantized("fp8_blockwise")
    parts = weights_of("fp8_blockwise", w1, w2)
    for name in ("w1", "w2"):
        made[f"fp8_blockwise {name}"] = parts[f"{name}_q"], parts[f"{name}_scale_inv"]
    done = operation({"operation": "quantize_columns", "recipe": "fp8_blockwise", **sizes}, **given,
                     output_offs=routing.colwise_offs)
    blocks = [done["output_scale_inv"][first // 128:first // 128 + -(-(stop - begin) // 128)]
              for first, (begin, stop, _) in zip(routing.colwise_offs.tolist(), groups(routing))]
    made["fp8_blockwise columns"] = *columns_of(done["output"], routing), *blocks

    for powers in (False, True):
        parts = weights_of("fp8_current", w1, w2, power_of_2_scales=powers)
        for name in ("w1", "w2"):
            made[f"fp8_current {name}{' powers' if powers else ''}"] = parts[f"{name}_q"], parts[f"{name}_scale_inv"]

    def scale_of(tensor, experts):
        amax = tensor.float().abs().amax(tuple(range(-2, 0))).view(experts, 1)
        return operation({"operation": "scale_experts", "magnitudes": 1, "dtype": "f4_e2m1", "local_experts": experts,
                          "max_permuted_rows": 0}, amax=amax)["scale"]
    codes, scales = quantized("nvfp4", expert_scales=scale_of(x, 1))
    made["nvfp4 rows"] = codes, scales.view(torch.uint8)[:, :HIDDEN // 16]
    done = operation({"operation": "quantize_weights", "recipe": "nvfp4", "local_experts": EXPERTS, "rows": 2 * INNER,
                      "columns": HIDDEN, "colwise": True}, input=w1, expert_scales=scale_of(w1, EXPERTS))
    made["nvfp4 w1"] = done["output"], done["output_scale_inv"].view(torch.uint8)[..., :HIDDEN // 16]
    made["nvfp4 w1_colwise"] = done["output_colwise"], done["output_colwise_scale_inv"].view(torch.uint8)[..., :2 * INNER // 16]

    for margin, algorithm in ((0, "max"), (2, "most_recent")):
        module = Experts(EXPERTS, HIDDEN, INNER, 1, max_tokens=TOKENS, recipe="fp8_delayed", margin=margin,
                         amax_history_len=LENGTH, amax_compute_algo=algorithm, device=DEVICE)
        for step in range(STEPS):
            for seed, name in enumerate(("fc1", "fc1_grad")):
                history = getattr(module, f"{name}_amax_history")
                history[0] = amaxes(step, history.shape[1], seed)
            module.update_scales()
        made[f"fp8_delayed {algorithm}"] = (module.fc1_amax_history, module.fc1_scale, module.fc1_grad_amax_history,
                                            module.fc1_grad_scale)
    return made


def layer_inputs():
    """x, ids, probs, dy, w1 and w2 of experts; magnitudes that leave the activation its curve."""
    x, dy = values(TOKENS, HIDDEN, seed=4) / 16, values(TOKENS, HIDDEN, seed=5) / 16
    w1, w2 = values(EXPERTS, 2 * INNER, HIDDEN, seed=6) / 64, values(EXPERTS, HIDDEN, INNER, seed=7) / 64
    ids = torch.stack([torch.arange(TOKENS) % 3 != 0, torch.arange(TOKENS) % 3 == 0], 1).long()
    ids[::7, 1] = -1
    probs = ((_words(2 * TOKENS, 8) & 0xff).float() + 1).view(TOKENS, 2) / 256
    return x, ids.to(DEVICE), probs.to(DEVICE), dy, w1, w2


def layers():
    """{name: (y, dx, dw1, dw2)} of Experts."""
    made = {}
    for recipe, alignment in (("fp8_rowwise", 16), ("mxfp8", 64)):
        x, ids, probs, dy, w1, w2 = layer_inputs()
        module = Experts(EXPERTS, HIDDEN, INNER, 2, max_tokens=TOKENS, recipe=recipe, splits_alignment=alignment,
                         device=DEVICE)
        with torch.no_grad():
            module.gate_up_proj.copy_(w1)
            module.down_proj.copy_(w2)
        x.requires_grad_()
        y = module(x, ids, probs)
        y.backward(dy)
        made[f"{recipe} layer"] = y, x.grad, module.gate_up_proj.grad, module.down_proj.grad
    return made
