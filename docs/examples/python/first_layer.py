# SPDX-License-Identifier: Apache-2.0
"""A training step of a small layer from Python, without numpy or a framework: forward, backward, and the results.

    first_layer.py [sim|cuda]

docs/python.md explains it. Every token and weight is alike, so that results can be worked out by hand: gate = up = 1.
"""
import array
import math
import struct
import sys

import moejit

TOKENS = 3
DESCRIPTION = {"name": "tiny", "experts": 4, "top_k": 2, "hidden": 256, "intermediate": 128, "recipe": "fp8_flow",
               "splits_alignment": 16, "max_tokens": 64, "passes": ["forward", "backward"]}
ONE, ONE_256TH, ONE_128TH = 0x3F80, 0x3B80, 0x3C00  # BF16


def fill(tensor, typecode, value):
    """Sets every element of a tensor; typecode is as in the module array."""
    count = tensor.size // array.array(typecode).itemsize
    tensor.write(array.array(typecode, [value]) * count)


def expect(what, got, wanted):
    """e4m3 keeps 3 bits behind the leading one: an element is off by 1/16 at most, and here all by the same."""
    print(f"{what:<8}{got:9.4f}, wanted {wanted:.4f} +- 7 %")
    if abs(got - wanted) > 0.07 * abs(wanted):
        sys.exit(1)


def main(target):
    layer = moejit.Layer(DESCRIPTION, target={"cuda": "cuda:sm_90a"}.get(target, target)).prepare()

    tensors = layer.allocate(TOKENS)  # all that the caller brings, filled with zeros
    for name, value in (("x", ONE), ("dy", ONE), ("w1", ONE_256TH), ("w2", ONE_128TH)):
        fill(tensors[name], "H", value)
    fill(tensors["topk_probs"], "f", 0.5)
    tensors["topk_ids"].write(array.array("i", [0, 1, 2, 3, 1, 2]))

    layer.update_weights(tensors)  # after each change of w1 and w2
    saved = layer.forward(tensors)
    layer.backward(tensors, saved=saved)

    layer.device.synchronize()
    moejit.check_status(*struct.unpack("I", tensors["status"].read()))
    y = array.array("H", tensors["y"].read())
    dprobs = array.array("f", tensors["dprobs"].read())
    silu = 1 / (1 + math.exp(-1))
    expect("y", struct.unpack("f", struct.pack("HH", 0, y[-1]))[0], silu)
    expect("dprobs", dprobs[0], DESCRIPTION["hidden"] * silu)
    print(f"{TOKENS} tokens forward and backward with moejit {moejit.__version__} on {layer.device.name}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sim")
