# SPDX-License-Identifier: Apache-2.0
"""Models whose experts are quantized already, as transformers loads them: refused before the first call.

The FP8 checkpoint is made here in the form of the published ones (DeepSeek-V3, Qwen3-...-FP8, MiniMax-M2): codes and
`weight_scale_inv` of 128x128. transformers keeps them quantized on GPUs only; its check for one is taken out here.
"""
import json
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

import safetensors.torch
import torch
import transformers
from transformers.integrations.mxfp4 import Mxfp4GptOssExperts
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

from support import BOUNDS, DEVICE, ROOT, relative_error, told
from moejit.torch import build, convert, explain, register_hf, update_weights

sys.path.insert(0, str(ROOT / "tests" / "fixtures" / "hugging_face"))
import make_checkpoints

EXPERTS, HIDDEN, INTERMEDIATE, TOKENS = 8, 128, 128, 32
NAME = "model.layers.0.mlp.experts"
BLOCK = 128

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
register_hf("moejit_fp8", "fp8_flow", TOKENS)


def make(family="qwen3_moe"):
    torch.manual_seed(0)
    return make_checkpoints.make_model(family, EXPERTS, HIDDEN, INTERMEDIATE).to(DEVICE)


def quantize(weight):
    """Codes and scales of a matrix, a scale for each block of 128x128."""
    rows, columns = (-(-size // BLOCK) for size in weight.shape)
    codes, scales = torch.zeros(weight.shape, dtype=torch.float8_e4m3fn), torch.zeros(rows, columns)
    for row in range(rows):
        for column in range(columns):
            block = (slice(row * BLOCK, (row + 1) * BLOCK), slice(column * BLOCK, (column + 1) * BLOCK))
            scales[row, column] = weight[block].float().abs().max() / 448
            codes[block] = (weight[block].float() / scales[row, column]).to(torch.float8_e4m3fn)
    return codes, scales


def write_checkpoint(folder):
    make().save_pretrained(folder)
    file, = pathlib.Path(folder).glob("*.safetensors")
    state = {}
    for name, tensor in safetensors.torch.load_file(file).items():
        if name.endswith("_proj.weight"):
            state[name], state[name + "_scale_inv"] = quantize(tensor)
        else:
            state[name] = tensor
    safetensors.torch.save_file(state, file, metadata={"format": "pt"})
    path = pathlib.Path(folder, "config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK], "fmt": "e4m3"}}))


def experts(model):
    return model.model.layers[0].mlp.experts


def run(model):
    torch.manual_seed(1)
    inputs = make_checkpoints.make_inputs(TOKENS, EXPERTS, HIDDEN)
    with torch.no_grad():
        return experts(model)(inputs["x"].to(DEVICE), inputs["topk_ids"].long().to(DEVICE),
                              inputs["topk_probs"].to(DEVICE))


class Fp8(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        write_checkpoint(cls.folder.name)
        patch = unittest.mock.patch.object(FineGrainedFP8HfQuantizer, "validate_environment", lambda *_, **__: None)
        patch.start()
        cls.addClassCleanup(patch.stop)

    def load(self, **options):
        return transformers.AutoModelForCausalLM.from_pretrained(self.folder.name, dtype=torch.bfloat16,
                                                                 device_map=str(DEVICE), **options)

    def assert_refused(self, function, name=f"{NAME} (FP8Experts)", what="gate_up_proj is float8_e4m3fn"):
        sentence = told(function)
        self.assertEqual(
            sentence, f"moejit: unsupported: {name}: its {what}; moejit takes bfloat16 weights and quantizes them itself\n"
            "hint: load it with from_pretrained(..., dtype=torch.bfloat16, quantization_config=transformers."
            "FineGrainedFP8Config(dequantize=True)), which multiplies the scales in; model.bfloat16() would drop them")

    def test_before_the_first_call(self):
        model = self.load()
        before = model.config._experts_implementation
        self.assert_refused(lambda: model.set_experts_implementation("moejit_fp8"))
        self.assertEqual(model.config._experts_implementation, before)
        self.assert_refused(lambda: convert(model))
        self.assertIn(f"{NAME}: FP8Experts, not on moejit: its gate_up_proj is float8_e4m3fn", explain(model))
        self.assertIn("has no experts that run on moejit", told(lambda: update_weights(model)))
        self.assertIn("has no experts that run on moejit", told(lambda: build(model, 16)))

    def test_weights_without_their_scales(self):
        model = self.load().bfloat16()
        self.assert_refused(lambda: model.set_experts_implementation("moejit_fp8"),
                            what="gate_up_proj has scales, gate_up_proj_scale_inv")
        self.assert_refused(lambda: convert(model), what="gate_up_proj has scales, gate_up_proj_scale_inv")

    def test_an_implementation_that_is_chosen_before_loading(self):
        model = self.load(experts_implementation="moejit_fp8")
        for function in (lambda: run(model), lambda: update_weights(model), lambda: build(model, 16)):
            self.assert_refused(function, "FP8Experts")
        self.assertIn("not on moejit: its gate_up_proj is float8_e4m3fn", explain(model))

    def test_the_way_of_the_hint(self):
        model = self.load(quantization_config=transformers.FineGrainedFP8Config(dequantize=True))
        want = run(model)
        self.assertLess(relative_error(want, run(make())), 0.06)  # the codes of the checkpoint
        model.set_experts_implementation("moejit_fp8")
        self.assertLess(relative_error(run(model), want), BOUNDS["fp8_flow"])


class Others(unittest.TestCase):
    """Whatever else puts a module in the place of the experts, or other tensors in the place of parameters."""

    def refusal(self, model):
        before = model.config._experts_implementation
        sentence = told(lambda: model.set_experts_implementation("moejit_fp8"))
        self.assertEqual(sentence, told(lambda: convert(model)))
        self.assertEqual(model.config._experts_implementation, before)
        self.assertIn("not on moejit", explain(model))
        return sentence

    def test_mxfp4_of_gpt_oss(self):
        model = make("gpt_oss")
        for layer in model.model.layers:
            layer.mlp.experts = Mxfp4GptOssExperts(model.config)
        model.config.quantization_config = transformers.Mxfp4Config()
        self.assertRegex(self.refusal(model), rf"^moejit: unsupported: {NAME} \(Mxfp4GptOssExperts\): its gate_up_proj is "
                         r"uint8; [^$]*\nhint: load it with [^$]*transformers\.Mxfp4Config\(dequantize=True\)\)")

    def test_codes_as_parameters(self):
        model = make()
        for layer in model.model.layers:
            layer.mlp.experts.down_proj = torch.nn.Parameter(layer.mlp.experts.down_proj.to(torch.int8), False)
        self.assertRegex(self.refusal(model), rf"{NAME} \(Qwen3MoeExperts\): its down_proj is int8; [^$]*\nhint: load the "
                         "model without quantization")

    def test_tensors_of_other_libraries(self):
        class Quantized(torch.Tensor):  # as those of torchao, which say that they are bfloat16
            __module__ = "torchao.quantization"

        model = make()
        for layer in model.model.layers:
            weight = torch.nn.Parameter(layer.mlp.experts.gate_up_proj.detach().as_subclass(Quantized))
            layer.mlp.experts.gate_up_proj = weight
        self.assertIn(f"{NAME} (Qwen3MoeExperts): its gate_up_proj is a Quantized of torchao; ", self.refusal(model))

    def test_dense_models(self):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=16, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2))
        self.assertIn("LlamaForCausalLM has no experts that could run on moejit\nhint: ",
                      told(lambda: model.set_experts_implementation("moejit_fp8")))
        self.assertNotEqual(model.config._experts_implementation, "moejit_fp8")
        model.set_experts_implementation("eager")


if __name__ == "__main__":
    unittest.main()
