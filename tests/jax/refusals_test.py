# SPDX-License-Identifier: Apache-2.0
"""What moejit.jax does not do, it refuses in sentences."""
import subprocess
import sys
import unittest

from support import *

LAYERS = ROOT / "docs/examples/layers"


class Refusals(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.layer = plan("fp8_flow")
        cls.params, cls.x, cls.ids, cls.probs, _ = inputs(32, cls.layer)
        cls.experts = staticmethod(experts_of(cls.layer))

    def refuses(self, sentence, function, *arguments, error=moejit.Error):
        with self.assertRaisesRegex(error, sentence):
            jax.block_until_ready(function(*arguments))  # a GPU tells when results are awaited

    def test_arrays_that_the_layer_does_not_take(self):
        params, x, ids, probs = self.params, self.x, self.ids, self.probs
        many = inputs(MAX_TOKENS + 1, self.layer)
        for sentence, given in {
                "tensor x: it has 65 tokens, wanted at most 64, which is max_tokens": many[:4],
                r"tensor x: its shape is \[32, 128\], wanted \[32, 256\]": (params, x[:, :128], ids, probs),
                "tensor x: its dtype is float32, wanted bfloat16": (params, x.astype(jnp.float32), ids, probs),
                r"tensor topk_ids: its dtype is float32, wanted int32\nhint: .*topk_ids_dtype":
                    (params, x, ids.astype(jnp.float32), probs),
                r"tensor topk_probs: its shape is \[31, 2\], wanted \[32, 'K'\]": (params, x, ids, probs[:-1]),
                r"tensor w1: its shape is \[8, 256, 128\], wanted \[8, 256, 256\]":
                    ({**params, "w1": params["w1"][..., :128]}, x, ids, probs),
                "params have no w2, wanted w1, w2": ({"w1": params["w1"]}, x, ids, probs)}.items():
            with self.subTest(sentence):
                self.refuses(sentence, jax.jit(self.experts), *given)

    def test_blocks_of_another_plan(self):
        blocks = mj.quantize(self.params, layer=self.layer)
        blocks["quantized"] = blocks["quantized"][:-1]
        self.refuses(r"tensor quantized: its shape is \[\d+\], wanted \[\d+\]",
                     experts_of(self.layer, quantized=blocks), self.params, self.x, self.ids, self.probs)

    def test_transformations(self):
        params, x, ids, probs = self.params, self.x, self.ids, self.probs

        def loss(x):
            return self.experts(params, x, ids, probs).astype(jnp.float32).sum()

        for function in (self.experts, jax.jit(self.experts), jax.grad(lambda *given: self.experts(*given).sum(), 1)):
            self.refuses("moejit.jax has no vmap: tokens are the batch", jax.vmap(function, (None, 0, 0, 0)), params,
                         *(array.reshape(4, 8, -1) for array in (x, ids, probs)))
        self.refuses("jvp", jax.jvp, loss, (x,), (x,), error=TypeError)
        second = "moejit.jax has first derivatives of experts\\(\\) alone"
        self.refuses(second, jax.grad(lambda x: jax.grad(loss)(x).astype(jnp.float32).sum()), x)
        self.refuses(second, jax.jvp, jax.grad(loss), (x,), (x,))

    def test_gradients_without_a_backward_pass(self):
        function = experts_of(plan("fp8_flow", backward=False))
        self.refuses("planned with backward=False", jax.grad(lambda x: function(self.params, x, self.ids,
                                                                                self.probs).sum()), self.x)
        self.refuses("the layer cannot add to gradients", lambda: mj.accumulate({}, {}, self.x, layer=self.layer))

    def test_layers_that_need_more(self):
        for name, sentence in {"tiny-router": "forward of the layer reads logits, wanted x, topk_ids, topk_probs",
                               "tiny-shared": "forward of the layer reads shared_probs",
                               "tiny-ep2": "wanted a layer of one rank"}.items():
            with self.subTest(name):
                self.refuses(sentence, mj.plan, LAYERS / f"{name}.json", TARGET)

    def test_programs_of_another_version_or_plan(self):
        words = self.layer.text.split(" ", 4)
        for index, other in ((1, "0.0.1"), (3, "0" * 32)):
            stale = list(words)
            stale[index] = other
            function = jax.jit(experts_of(mj.Plan(" ".join(stale))))
            self.refuses(rf"the compiled graph is stale: it was made with moejit .*{other}.*\nhint: compile", function,
                         self.params, self.x, self.ids, self.probs, error=jax.errors.JaxRuntimeError)

    def test_the_package_without_jax(self):
        program = "import moejit; print(moejit.__name__); import moejit.jax"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "runtime/bindings/python")}
        told = subprocess.run([sys.executable, "-S", "-c", program], env=environment, check=False, capture_output=True,
                              text=True)
        self.assertEqual(told.stdout, "moejit\n")
        self.assertIn("moejit.jax needs jax, which is not installed\nhint: pip install jax", told.stderr)


if __name__ == "__main__":
    unittest.main()
