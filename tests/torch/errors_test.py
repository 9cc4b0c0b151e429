# SPDX-License-Identifier: Apache-2.0
"""What misuse of the module and the function is told in: what is wrong, what was got and wanted, and what to do."""
import unittest

import torch

from support import DEVICE, E, H, I, K, MAX_TOKENS, RECIPES, TOKENS, Inputs, describe
import moejit
from moejit.torch import Experts, experts, grouped_experts

DEVICE_NAME = str(torch.empty(0, device=DEVICE).device)
DTYPE = "moejit: tensor_mismatch: "
MISMATCH = DTYPE + "tensor "
BFLOAT16 = r"moejit computes in bfloat16\nhint: "
NO_BIASES = (r"tensor b1: the layer has no caller's tensor of this name, it is described without biases\nhint|"
             r'got "db1" of a layer without biases\nhint: add "biases": true')
DESCRIPTION = r"wanted a layer description\nhint: give it as a dict, or as JSON"


def rows(tensor, count):
    """The tensor with so many tokens: its first ones, or repeated."""
    return tensor.repeat(-(-count // len(tensor)), 1)[:count].contiguous()


# (what is wrong, the routing and tokens of such a call, words of the sentence)
CALLS = (
    ("tokens in float32", lambda x, ids, probs: (x.float(), ids, probs),
     DTYPE + r"hidden_states of Experts is float32; " + BFLOAT16 + r"call hidden_states\.to\(torch\.bfloat16\)"),
    ("tokens in float16", lambda x, ids, probs: (x.half(), ids, probs),
     DTYPE + r"hidden_states of Experts is float16; " + BFLOAT16),
    ("tokens in float64", lambda x, ids, probs: (x.double(), ids, probs),
     DTYPE + r"hidden_states of Experts is float64; " + BFLOAT16),
    ("tokens in int32", lambda x, ids, probs: (x.int(), ids, probs), DTYPE + r"hidden_states of Experts is int32; "),
    ("ids and probabilities in each other's place", lambda x, ids, probs: (x, probs, ids),
     MISMATCH + r"topk_ids: its dtype is float32, wanted int32 or int64\nhint: torch.topk\(\) returns the "
     r"probabilities first, experts take the ids first"),
    ("ids that are a mask", lambda x, ids, probs: (x, ids > 3, probs),
     MISMATCH + r"topk_ids: its dtype is bool, wanted int32 or int64"),
    ("probabilities in int64", lambda x, ids, probs: (x, ids, ids),
     MISMATCH + r"topk_probs: its dtype is int64, wanted float32 or bfloat16\nhint: the ids come before"),
    ("another hidden", lambda x, ids, probs: (x[:, :48], ids, probs),
     MISMATCH + rf"x: its shape is \[{TOKENS}, 48\], wanted \[T <= {MAX_TOKENS}, {H}\]"),
    ("fewer ids", lambda x, ids, probs: (x, ids[1:], probs),
     MISMATCH + rf"topk_ids: it has {TOKENS - 1} tokens, tensors before it have {TOKENS}"),
    ("fewer probabilities", lambda x, ids, probs: (x, ids, probs[1:]),
     MISMATCH + rf"topk_probs: it has {TOKENS - 1} tokens, tensors before it have {TOKENS}"),
    ("another top_k of ids", lambda x, ids, probs: (x, ids[:, :1], probs),
     MISMATCH + rf"topk_ids: its shape is \[{TOKENS}, 1\], wanted \[T <= {MAX_TOKENS}, {K}\]"),
    ("another top_k of probabilities", lambda x, ids, probs: (x, ids, probs[:, :1]),
     MISMATCH + rf"topk_probs: its shape is \[{TOKENS}, 1\], wanted \[T <= {MAX_TOKENS}, {K}\]"),
    ("a number for the tokens", lambda x, ids, probs: (x[0, 0], ids, probs),
     MISMATCH + r"x: it has 0 dimensions, wanted 2"),
    ("ids without a dimension for top_k", lambda x, ids, probs: (x, ids[:, 0], probs),
     MISMATCH + r"topk_ids: it has 1 dimensions, wanted 2"),
    ("ids with one more dimension than tokens", lambda x, ids, probs: (x, ids[None], probs),
     MISMATCH + r"topk_ids: it has 3 dimensions, wanted 2"),
    ("other dimensions in front of tokens and ids",
     lambda x, ids, probs: (x.view(3, -1, H), ids[:9].view(3, 3, K), probs.view(3, -1, K)),
     MISMATCH + rf"topk_ids: it has 9 tokens, tensors before it have {TOKENS}"),
    ("more tokens than the layer takes", lambda *given: tuple(rows(each, MAX_TOKENS + 1) for each in given),
     MISMATCH + rf"x: it has {MAX_TOKENS + 1} tokens, wanted at most {MAX_TOKENS}, which is max_tokens of the description"),
    ("tokens on another device", lambda x, ids, probs: (x.to("meta"), ids, probs),
     MISMATCH + rf"x: it is on meta, wanted {DEVICE_NAME}, where w1 is\nhint: move the tokens or the module"),
    ("ids on another device", lambda x, ids, probs: (x, ids.to("meta"), probs),
     MISMATCH + rf"topk_ids: it is on meta, wanted {DEVICE_NAME}, where x is"),
)
CALLS_ON_GPUS = () if DEVICE.type == "cpu" else (
    ("tokens on the CPU", lambda x, ids, probs: (x.cpu(), ids, probs),
     MISMATCH + rf"x: it is on cpu, wanted {DEVICE_NAME}, where w1 is\nhint: move the tokens or the module"),
    ("ids on the CPU", lambda x, ids, probs: (x, ids.cpu(), probs),
     MISMATCH + r"topk_ids: it is on the CPU, wanted CUDA"),
    ("probabilities on the CPU", lambda x, ids, probs: (x, ids, probs.cpu()),
     MISMATCH + r"topk_probs: it is on the CPU, wanted CUDA"),
)


def parameter(*shape, device=DEVICE):
    return torch.nn.Parameter(torch.zeros(shape, dtype=torch.bfloat16, device=device))


# (what is wrong, what is done to the module, words of the sentence)
MODULES = (
    ("weights in float32", lambda module: module.float(),
     DTYPE + r"Experts\.gate_up_proj is float32; " + BFLOAT16
     + r"load or make the model with dtype=torch\.bfloat16, .*autocast"),
    ("weights in float16", lambda module: module.half(), DTYPE + r"Experts\.gate_up_proj is float16; " + BFLOAT16),
    ("weights in float64", lambda module: module.double(), DTYPE + r"Experts\.gate_up_proj is float64; " + BFLOAT16),
    ("second weights in float32",
     lambda module: setattr(module, "down_proj", torch.nn.Parameter(module.down_proj.float())),
     DTYPE + r"Experts\.down_proj is float32; " + BFLOAT16),
    ("second weights of fewer experts", lambda module: setattr(module, "down_proj", parameter(E - 1, H, I)),
     MISMATCH + rf"w2: its shape is \[{E - 1}, {H}, {I}\], wanted \[{E}, {H}, {I}\]"),
    ("gate without up", lambda module: setattr(module, "gate_up_proj", parameter(E, I, H)),
     MISMATCH + rf"w1: its shape is \[{E}, {I}, {H}\], wanted \[{E}, {2 * I}, {H}\]"),
    ("experts that are not a dimension", lambda module: setattr(module, "gate_up_proj", parameter(E * 2 * I, H)),
     MISMATCH + r"w1: it has 2 dimensions, wanted 3"),
    ("one weight on another device", lambda module: setattr(module, "down_proj", parameter(E, H, I, device="meta")),
     MISMATCH + rf"w2: it is on meta, wanted {DEVICE_NAME}, where (x|w1) is"),
    ("weights on another device", lambda module: module.to("meta"),
     MISMATCH + rf"x: it is on {DEVICE_NAME}, wanted meta, where w1 is\nhint: move the tokens or the module"),
)

# (arguments beside the numbers of the layer, words of the sentence)
FIGURES = (
    ({"recipe": "fp9"}, r'invalid_value\]: .*\$\.recipe: got "fp9", wanted one of "bf16", "fp8_flow"'),
    ({"activation": "swigloo"}, r'\$\.activation: got "swigloo", wanted one of [^$]*hint: did you mean "swiglu"\?'),
    ({"gate_up_layout": "rows"}, r'\$\.gate_up_layout: got "rows", wanted one of "concat", "interleaved"'),
    ({"gate_up_layout": "separate"}, r'gate_up_layout "separate", wanted "concat" or "interleaved": .*\nhint: .*cat'),
    ({"top_k": E + 1}, rf"\$\.top_k: got {E + 1}, wanted 1 to {E} \(experts\)"),
    ({"max_tokens": 0}, r"\$\.max_tokens: got 0, wanted 1 to \d+"),
    ({"splits_alignment": 0}, r"\$\.splits_alignment: got 0, wanted 1 to \d+"),
    ({"cache_weights": "yes"}, r"Experts\(\): cache_weights: got 'yes', wanted True, False or None"),
    ({"dtype": torch.float16}, r"Experts\(\): dtype: got float16, wanted bfloat16, or float32"),
)


def make(**changed):
    torch.manual_seed(0)
    return Experts(**{"num_experts": E, "hidden_size": H, "intermediate_size": I, "top_k": K, "max_tokens": MAX_TOKENS,
                      "device": DEVICE, **changed})


class Errors(unittest.TestCase):

    def setUp(self):
        self.inputs = Inputs()
        self.given = (self.inputs.x.detach(), self.inputs.ids, self.inputs.probs.detach())

    def assert_refused(self, what, words, call):
        """Both a call with gradients and one without them are refused."""
        for has_gradients in (True, False):
            with self.subTest(what=what, has_gradients=has_gradients), torch.set_grad_enabled(has_gradients):
                self.assertRaisesRegex(RuntimeError, words, call)

    def test_wrong_tokens_and_routing(self):
        for recipe in RECIPES:
            module = make(recipe=recipe)
            for what, change, words in CALLS + CALLS_ON_GPUS:
                self.assert_refused(what, words, lambda: module(*change(*self.given)))
            with self.subTest("the module serves on"):
                self.assertTrue(module(*self.given).isfinite().all())
                self.assertEqual(module.status(), 0)

    def test_wrong_parameters(self):
        for recipe in RECIPES:
            for what, change, words in MODULES:
                module = make(recipe=recipe)
                change(module)
                self.assert_refused(what, words, lambda: module(*self.given))

    def test_figures_that_no_layer_has(self):
        for changed, words in FIGURES:
            with self.subTest(**changed):
                self.assertRaisesRegex(RuntimeError, words, make, **changed)

    def call(self, layer, **biases):
        return experts(*self.given, self.inputs.w1, self.inputs.w2, layer=layer, **biases)

    def test_a_description_that_is_none(self):
        for layer, words in (
                (None, r"wrong_type: argument layer: it is null, " + DESCRIPTION),
                ("[1, 2]", r"wrong_type: argument layer: it is \[1, 2\], " + DESCRIPTION),
                ("layer.json", r"invalid_json: argument layer: .*line 1 column 1.*, " + DESCRIPTION),
                ('{"experts": 8', r"invalid_json: argument layer: .*line 1 column.*, " + DESCRIPTION)):
            self.assert_refused(layer, words, lambda: self.call(layer))
            self.assert_refused(layer, words, lambda: grouped_experts(
                self.given[0], torch.zeros(E, dtype=torch.int64, device=DEVICE), self.inputs.w1, self.inputs.w2, layer=layer))

    def test_biases_that_the_description_lacks_or_wants(self):
        biases = {"gate_up_proj_bias": parameter(E, 2 * I), "down_proj_bias": parameter(E, H)}
        for recipe in RECIPES:
            without, with_biases = describe(recipe), describe(recipe, biases=True)
            self.assert_refused("not in the layer", NO_BIASES, lambda: self.call(without, **biases))
            self.assert_refused("no biases", rf"missing_tensor: tensor b1 is missing, wanted BF16 \[{E}, {2 * I}\]",
                                lambda: self.call(with_biases))
            self.assert_refused("one of two", rf"missing_tensor: tensor b2 is missing, wanted BF16 \[{E}, {H}\]",
                                lambda: self.call(with_biases, gate_up_proj_bias=biases["gate_up_proj_bias"]))
            self.assert_refused("in float32", DTYPE + r"gate_up_proj_bias is float32; " + BFLOAT16, lambda: self.call(
                with_biases, **{name: bias.detach().float() for name, bias in biases.items()}))

    def test_an_id_out_of_range_is_a_bit_with_a_sentence(self):
        module = make()
        for wrong in (E, -2, 2 ** 32, 2 ** 40, -2 ** 40):
            ids = self.given[1].clone()
            ids[0, 0] = wrong
            with self.subTest(id=wrong):
                module(self.given[0], ids, self.given[2])
                with self.assertRaisesRegex(moejit.Error, r"device_status\]: the status word is 1; 1: expert ids, or "
                                                          r"an expert's number of rows, out of range: not routed\n"
                                                          r"hint: correct topk_ids"):
                    moejit.check_status(module.status())
        module(*self.given)
        moejit.check_status(module.status())

    def test_a_second_derivative(self):
        module = make()
        y = module(self.inputs.x, self.inputs.ids, self.inputs.probs)
        dx, = torch.autograd.grad(y.float().square().sum(), self.inputs.x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, r"moejit: unsupported: a second "
                                                  r"derivative [^$]*\nhint: take gradients of gradients"):
            dx.float().sum().backward()

    def test_a_compiled_module_says_it_too(self):
        torch._dynamo.reset()
        compiled = torch.compile(make(), fullgraph=True, backend="aot_eager")
        for index in (0, 4, 7, 10, 17):
            what, change, words = CALLS[index]
            with self.subTest(what=what):
                with self.assertRaises(RuntimeError) as caught:
                    compiled(*change(*self.given))
                # Dynamo shows errors of dtypes in quotes, and of others only the beginning is the same.
                got = words.split(", wanted")[0].split(r"\n")[0]
                self.assertRegex(str(caught.exception), got)


if __name__ == "__main__":
    unittest.main()
