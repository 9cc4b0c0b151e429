# SPDX-License-Identifier: Apache-2.0
"""Published FP8 checkpoints: right results on their own codes, or a sentence of moejit where the implementation is chosen.

On a GPU transformers makes FP8Experts of them, with an interface of its own; elsewhere it restores bf16 weights, so
quantized_checkpoints_test.py takes its check for a GPU out.
"""
import json
import pathlib
import tempfile
import unittest

import torch
import transformers
from safetensors.torch import load_file, save_file

from support import BOUNDS, DEVICE, relative_error
from moejit.torch import convert, register_hf

TOKENS, BLOCK = 8, 128

transformers.logging.set_verbosity_error()
register_hf("fp8_checkpoint", max_tokens=256)


def quantized(weight):
    """Codes and the scales of blocks, as DeepSeek-V3 and others publish them."""
    blocks = weight.float().unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
    scales = blocks.abs().amax((1, 3)) / torch.finfo(torch.float8_e4m3fn).max
    codes = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    return codes.flatten(2, 3).flatten(0, 1), scales


def save(folder):
    torch.manual_seed(0)
    model = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        vocab_size=128, hidden_size=256, intermediate_size=256, moe_intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=64, num_experts=4, num_experts_per_tok=2,
        max_position_embeddings=128, norm_topk_prob=True, use_cache=False)).bfloat16()
    model.save_pretrained(folder)
    file, tensors = folder / "model.safetensors", {}
    for name, value in load_file(file).items():
        if "_proj.weight" in name and value.dim() == 2:
            tensors[name], tensors[name + "_scale_inv"] = quantized(value)
        else:
            tensors[name] = value
    save_file(tensors, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic",
                                     "weight_block_size": [BLOCK, BLOCK], "fmt": "e4m3"}
    (folder / "config.json").write_text(json.dumps(config))
    return model.to(DEVICE)


@unittest.skipUnless(DEVICE.type == "cuda", "transformers loads FP8 checkpoints on GPUs only")
class Fp8Checkpoints(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.original = save(cls.folder)

    def load(self):
        return transformers.Qwen3MoeForCausalLM.from_pretrained(self.folder, dtype=torch.bfloat16, device_map="cuda")

    def assert_right(self, choose):
        """Fails unless the model's experts compute what the original's do, and take no memory for weights of their own."""
        model = self.load()
        choose(model)
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(TOKENS, 256, generator=generator).bfloat16().to(DEVICE)
        probs, ids = torch.topk(torch.randn(TOKENS, 4, generator=generator).softmax(-1), 2)
        given = x, ids.to(DEVICE), probs.to(DEVICE)
        with torch.no_grad():
            want = self.original.model.layers[0].mlp.experts(*given)
            before = torch.cuda.memory_allocated()
            got = model.model.layers[0].mlp.experts(*given)
        codes = sum(weight.nbytes for weight in model.model.layers[0].mlp.experts.parameters())
        self.assertLess(torch.cuda.memory_allocated() - before, codes // 8)
        # The checkpoint's own cast to E4M3 adds to the difference.
        self.assertLess(relative_error(got, want), 1.5 * BOUNDS["fp8_flow"])

    def test_registered(self):
        self.assert_right(lambda model: model.set_experts_implementation("fp8_checkpoint"))

    def test_converted(self):
        self.assert_right(lambda model: convert(model, "fp8_flow"))

    def test_converted_behind_a_change_of_dtype(self):
        with self.assertRaisesRegex(RuntimeError, r"moejit: .* has scales, gate_up_proj_scale_inv; [^$]*\nhint: "):
            convert(self.load().bfloat16(), "fp8_flow")


if __name__ == "__main__":
    unittest.main()
