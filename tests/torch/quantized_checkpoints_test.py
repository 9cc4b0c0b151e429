# SPDX-License-Identifier: Apache-2.0
"""Models whose experts are quantized already, as transformers loads them: FP8 runs, others are refused before a call.

The FP8 checkpoint is made here in the form of the published ones (DeepSeek-V3, Qwen3-...-FP8, MiniMax-M2): codes and
`weight_scale_inv` of 128x128. transformers keeps them quantized on GPUs only; its check for one is taken out here. Only
experts are quantized, since the other layers of transformers need kernels for GPUs.
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
from torch.nn import functional as F
from transformers.integrations.finegrained_fp8 import FP8Experts
from transformers.integrations.mxfp4 import Mxfp4GptOssExperts
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

from support import BOUNDS, DEVICE, ROOT, assert_same_bits, relative_error, told
from moejit.torch import ahead, build, convert, explain, layer_text, register_hf, update_weights
from moejit.torch.devices import target_of

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
        if ".experts." in name:
            state[name], state[name + "_scale_inv"] = quantize(tensor)
        else:
            state[name] = tensor
    safetensors.torch.save_file(state, file, metadata={"format": "pt"})
    path = pathlib.Path(folder, "config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK], "fmt": "e4m3",
        "modules_to_not_convert": [".*self_attn", "lm_head"]}}))


def experts(model):
    return model.model.layers[0].mlp.experts


def arguments():
    torch.manual_seed(1)
    inputs = make_checkpoints.make_inputs(TOKENS, EXPERTS, HIDDEN)
    return inputs["x"].to(DEVICE), inputs["topk_ids"].long().to(DEVICE), inputs["topk_probs"].to(DEVICE)


def run(model):
    with torch.no_grad():
        return experts(model)(*arguments())


def linear(module, rows, codes, scales, activation_scale=None):
    """FP8Experts.linear() in float32: its own needs kernels for GPUs."""
    wide = scales.float().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return F.linear(rows.float(), codes.detach().float() * wide).to(rows.dtype)


class Fp8(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        write_checkpoint(cls.folder.name)
        for patch in (unittest.mock.patch.object(FineGrainedFP8HfQuantizer, "validate_environment", lambda *_, **__: None),
                      unittest.mock.patch.object(FP8Experts, "linear", linear)):
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

    def test_results_are_near_those_of_the_module_s_own_forward(self):
        model = self.load()
        self.assertIn(f"{NAME}: FP8Experts, not on moejit: runs as", explain(model))
        model.set_experts_implementation("eager")
        want, before = run(model), dict(experts(model).named_parameters())
        model.set_experts_implementation("moejit_fp8")
        got = run(model)
        self.assertLessEqual(relative_error(got, want), BOUNDS["fp8_flow"])
        assert_same_bits(self, [got], [run(self.load(experts_implementation="moejit_fp8"))])
        assert_same_bits(self, [got], [run(convert(self.load()))])
        self.assertIn(", recipe fp8_flow, on its FP8 weights", explain(model))
        after = dict(experts(model).named_parameters())
        self.assertEqual({name: id(tensor) for name, tensor in after.items()},
                         {name: id(tensor) for name, tensor in before.items()})

    def test_codes_are_read_where_they_are(self):
        model = self.load()
        model.set_experts_implementation("moejit_fp8")
        run(model)
        update_weights(model)  # has nothing to do
        state = experts(model)._moejit_state
        self.assertEqual(state.weights.kept, {})
        want = run(model)
        for codes in (experts(model).gate_up_proj, experts(model).down_proj):
            codes.data.view(torch.uint8).bitwise_xor_(0x80)  # as an exchange of experts writes
        got = run(model)  # the signs of gate and up turn, too
        self.assertGreater(relative_error(got, want), 0.5)
        self.assertEqual(state.status_word(), 0)

    def test_the_kernels_of_all_calls_can_be_built_ahead(self):
        model = self.load()
        model.set_experts_implementation("moejit_fp8")
        built = list(ahead._layers_of_calls(model, TOKENS))
        self.assertFalse([layer for layer in built if layer.get("weight_checks") or "dw1" in layer.get("gradients", ())])
        texts = {layer_text(layer, target_of(DEVICE)) for layer in built}
        x, ids, probs = arguments()
        run(model)
        experts(model)(x.requires_grad_(), ids, probs)
        called = {text for call in experts(model)._moejit_state.calls.values() for text in call.layers.values()}
        self.assertEqual(len(called), 2)
        # What gradients of weights are summed in changes no kernel of a layer that makes none.
        self.assertLessEqual(*({text.replace('"wgrad_dtype":"bf16"', '"wgrad_dtype":"f32"').split(" ", 4)[4]
                                for text in each} for each in (called, texts)))

    def test_in_one_graph(self):
        model = self.load()
        model.set_experts_implementation("moejit_fp8")
        torch._dynamo.reset()
        compiled = torch.compile(experts(model), fullgraph=True, backend="aot_eager")
        with torch.no_grad():
            assert_same_bits(self, [compiled(*arguments())], [run(model)])

    def test_decoding_follows_the_module_s_own_forward(self):
        model, prompt, logits = self.load(), torch.arange(8, device=DEVICE)[None], []
        for layer in model.model.layers:
            layer.mlp.gate.weight.data *= 16  # random routers are often undecided: rounding would choose the experts
        model.set_experts_implementation("eager")
        tokens = model.generate(prompt, max_new_tokens=32, do_sample=False)
        for implementation in ("eager", "moejit_fp8"):
            model.set_experts_implementation(implementation)
            cache, rows = None, []
            with torch.no_grad():
                for step in (tokens[:, :8], *tokens[:, 8:].split(1, 1)):
                    made = model(step, past_key_values=cache, use_cache=True)
                    cache = made.past_key_values
                    rows.append(made.logits[0, -1])
            logits.append(torch.stack(rows))
        self.assertEqual(logits[0].shape[0], 33)
        self.assertLessEqual(relative_error(logits[1], logits[0]), BOUNDS["fp8_flow"])

    def test_attention_trains_beside_frozen_experts(self):
        model, found = self.load(), []
        model.set_experts_implementation("eager")
        model.requires_grad_(False)
        last = model.model.layers[1]
        trained, tokens = last.self_attn.o_proj.weight.requires_grad_(), torch.arange(TOKENS, device=DEVICE)[None] % 16
        for recipe in (None, "fp8_flow"):  # of the last layer alone, so that tokens go to the same experts
            convert(model, recipe, filter_fn=lambda _, name: "layers.1." in name)
            trained.grad = None
            logits = model(tokens).logits
            (logits.float() * torch.linspace(-1, 1, 16, device=DEVICE)).sum().backward()
            found.append(trained.grad)
        # Forward and backward of the experts round, and the norm behind them sees both.
        self.assertLessEqual(relative_error(found[1], found[0]), 2 * BOUNDS["fp8_flow"])
        last.mlp.experts.down_proj.requires_grad_()
        self.assertIn("unsupported: a gradient of FP8 weights: ", told(lambda: model(tokens).logits.float().sum().backward()))

    def test_what_no_call_computes_is_refused(self):
        model = self.load()
        before, module = model.config._experts_implementation, experts(model)
        for attribute, value, words in (
                ("activation_scheme", "static", "activation_scheme: got static, wanted dynamic"),
                ("block_size", (64, 128), r"block_size: got \(64, 128\), wanted \[128, 128\]"),
                ("block_size", None, r"block_size: got None, wanted \[128, 128\]"),
                ("gate_softcap", 30.0, "gate_softcap: got 30.0, wanted none"),
                ("limit", 7.0, r"of the activation: got \(7.0, 1, 0\), wanted None"),
                ("swiglu_alpha", 1.5, r"of the activation: got \(None, 1.5, 1\), wanted None"),
                ("gate_up_proj_scale_inv", torch.nn.Parameter(torch.ones(EXPERTS, 2, 2, device=DEVICE)),
                 "w1_scale_inv: its shape is"),
                ("down_proj", torch.nn.Parameter(module.down_proj.data[:, :, :96].contiguous(), False),
                 "the width of an expert: got 96, wanted a multiple of 128")):
            kept = getattr(module, attribute, None)  # older releases of transformers lack some of them
            setattr(module, attribute, value)
            for function in (lambda: model.set_experts_implementation("moejit_fp8"), lambda: convert(model)):
                self.assertRegex(told(function), f"^moejit: .*{NAME}.*{words}")
            setattr(module, attribute, kept)
        self.assertEqual(model.config._experts_implementation, before)
        register_hf("moejit_bf16_of_fp8", "bf16")
        self.assertRegex(told(lambda: model.set_experts_implementation("moejit_bf16_of_fp8")),
                         f'module {NAME}: .*: recipe: got "bf16", wanted "fp8_flow" or "fp8_blockwise"')
        module.down_proj.data.view(torch.uint8)[5, 7, 9] = 0x7f
        self.assertRegex(told(lambda: model.set_experts_implementation("moejit_fp8")),
                         f"module {NAME}: .*tensor w2_q: expert 5 has the code of NaN")

    def test_weights_without_their_scales(self):
        model = self.load().bfloat16()
        self.assert_refused(lambda: model.set_experts_implementation("moejit_fp8"),
                            what="gate_up_proj has scales, gate_up_proj_scale_inv")
        self.assert_refused(lambda: convert(model), what="gate_up_proj has scales, gate_up_proj_scale_inv")
        model = self.load(experts_implementation="moejit_fp8").bfloat16()
        for function in (lambda: run(model), lambda: update_weights(model), lambda: build(model, 16)):
            self.assert_refused(function, "FP8Experts", what="gate_up_proj has scales, gate_up_proj_scale_inv")
        self.assertIn("not on moejit: its gate_up_proj has scales", explain(model))

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
                         r"uint8; [^$]*\nhint: load it with [^$]*experts_implementation=\"moejit\"\) behind moejit")

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
