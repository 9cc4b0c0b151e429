#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decodes with a model of transformers whose FP8 checkpoint is made here, with the shape of Qwen3-30B-A3B-FP8's layers.

Experts run on moejit, and then as transformers runs them: each token is compared with what transformers' experts
choose behind the same tokens. Prints the memory of weights beside the
bytes of the checkpoint's file, and what the first calls leave allocated. Ends with status 1 if fewer than 30 of 32
tokens agree, or if the experts' weights take more memory than their tensors in the file.

Experts alone are quantized, since transformers' other FP8 layers need kernels that it downloads. So do its own experts:
without these kernels, --own float32 multiplies codes and scales in float32, without rounding tokens.

    python3 tests/bench/hf_fp8_decode.py [--layers 4] [--own float32|eager|grouped_mm|deepgemm] [--tiny]
"""
import argparse
import json
import pathlib
import sys
import tempfile

import safetensors.torch
import torch
import transformers
from transformers.integrations.finegrained_fp8 import FP8Experts

import moejit.torch

BLOCK, PROMPT, NEW = 128, 8, 32


def quantize(weight):
    """Returns codes, and scales of blocks of 128x128 that are no powers of two."""
    blocks = weight.float().unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
    scales = blocks.abs().amax((1, 3)) / 448
    codes = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    return codes.flatten(2, 3).flatten(0, 1), scales


def write_checkpoint(folder, layers, is_tiny):
    """Writes a checkpoint with random weights; returns the bytes of the experts' tensors."""
    sizes = dict(hidden_size=256, moe_intermediate_size=128, num_experts=8) if is_tiny else dict(
        hidden_size=2048, moe_intermediate_size=768, num_experts=128)
    config = transformers.Qwen3MoeConfig(
        vocab_size=256, intermediate_size=256, num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=4,
        head_dim=128, num_experts_per_tok=min(8, sizes["num_experts"] // 2), norm_topk_prob=True,
        max_position_embeddings=256, bos_token_id=None, eos_token_id=None, pad_token_id=None, **sizes)
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = transformers.Qwen3MoeForCausalLM(config).bfloat16()
    # Random logits lie close together. Tokens and experts weigh about the same here: wrong experts change most of what
    # is chosen, and rounding little.
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=1.0)
    for name, weight in model.named_parameters():
        if ".experts." in name:
            torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    del model
    torch.cuda.empty_cache()
    quantized = 0
    for file in pathlib.Path(folder).glob("*.safetensors"):
        state = {}
        for name, tensor in safetensors.torch.load_file(file).items():
            if ".experts." not in name:
                state[name] = tensor
                continue
            codes, scales = quantize(tensor.cuda())
            state[name], state[name + "_scale_inv"] = codes.cpu(), scales.cpu()
            quantized += codes.nbytes + scales.nbytes
        safetensors.torch.save_file(state, file, metadata={"format": "pt"})
    index = pathlib.Path(folder, "model.safetensors.index.json")
    if index.exists():
        table = json.loads(index.read_text())
        table["weight_map"].update({name + "_scale_inv": file for name, file in list(table["weight_map"].items())
                                    if ".experts." in name})
        index.write_text(json.dumps(table))
    path = pathlib.Path(folder, "config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK], "fmt": "e4m3",
        "modules_to_not_convert": [".*self_attn", "lm_head"]}}))
    return quantized


def in_float32(module, rows, codes, scales, activation_scale=None):
    """FP8Experts.linear() without its kernels."""
    wide = scales.float().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return torch.nn.functional.linear(rows.float(), codes.detach().float() * wide).to(rows.dtype)


def mebibytes(count):
    return f"{count / 2**20:.1f} MiB"


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--own", default="float32", help="how transformers runs its experts (float32)")
    parser.add_argument("--tiny", action="store_true", help="small layers, to try the program")
    options = parser.parse_args()
    moejit.torch.register_hf()
    with tempfile.TemporaryDirectory() as folder:
        quantized = write_checkpoint(folder, options.layers, options.tiny)
        files = sum(file.stat().st_size for file in pathlib.Path(folder).glob("*.safetensors"))
        before = torch.cuda.memory_allocated()
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, device_map="cuda")
    loaded = torch.cuda.memory_allocated() - before
    held = sum(parameter.nbytes for name, parameter in model.named_parameters() if ".experts." in name)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {transformers.__version__}")
    print(f"files {mebibytes(files)}, of experts {mebibytes(quantized)}; memory {mebibytes(loaded)}, of experts "
          f"{mebibytes(held)}")
    model.set_experts_implementation("moejit")
    print(moejit.torch.explain(model).splitlines()[0])
    prompt = torch.arange(PROMPT, device="cuda")[None]
    before = torch.cuda.memory_allocated()
    got = model.generate(prompt, max_new_tokens=NEW, do_sample=False)[0, PROMPT:].tolist()
    print(f"after {NEW} tokens on moejit {mebibytes(torch.cuda.memory_allocated() - before)} more")
    if options.own == "float32":
        FP8Experts.linear = in_float32
    model.set_experts_implementation("eager" if options.own == "float32" else options.own)
    seen = torch.cat((prompt, torch.tensor([got], device=prompt.device)), 1)
    want = model(seen).logits[0, PROMPT - 1:-1].argmax(-1).tolist()
    same = sum(one == other for one, other in zip(got, want))
    print(f"{same} of {NEW} tokens as by transformers ({options.own})\n  moejit       {got}\n  transformers {want}")
    return 0 if same >= 30 and held <= quantized else 1


if __name__ == "__main__":
    sys.exit(main())
