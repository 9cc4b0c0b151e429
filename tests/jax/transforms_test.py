# SPDX-License-Identifier: Apache-2.0
"""What JAX makes of the functions has the bits of the functions: jit, remat, scan, export, the cache on disk."""
import ctypes
import subprocess
import sys
import tempfile
import unittest

from jax import export

from moejit import records
from moejit.library import get_info, load
from support import *

LAYER = plan("fp8_flow")
EXPERTS_OF_LAYER = experts_of(LAYER)
PROGRAM = """
import hashlib, sys
import jax
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event.endswith("cache_hits")))
from support import *
layer = plan("fp8_flow")
given = inputs(8, layer)
hits.clear()  # of the programs that made the inputs
y = jax.jit(experts_of(layer))(*given[:4])
print(hashlib.sha256(np.asarray(y).tobytes()).hexdigest(), any(hits))
"""


def compiled(function):
    return jax.jit(lambda *given: named(*value_and_grads(function, *given)))


class Transforms(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.given = inputs(32, LAYER)
        cls.wanted = compiled(EXPERTS_OF_LAYER)(*cls.given)

    def test_without_jit(self):
        self.assertEqual(differences(named(*value_and_grads(EXPERTS_OF_LAYER, *self.given)), self.wanted), [])

    def test_remat(self):
        self.assertEqual(differences(compiled(jax.checkpoint(EXPERTS_OF_LAYER))(*self.given), self.wanted), [])

    def test_leading_dimensions_are_tokens(self):
        params, *tokens = self.given
        in_rows = [array.reshape(4, 8, -1) for array in tokens]
        y, dparams, dx, dprobs = value_and_grads(EXPERTS_OF_LAYER, params, *in_rows)
        self.assertEqual((y.shape, dx.shape, dprobs.shape), ((4, 8, HIDDEN), (4, 8, HIDDEN), (4, 8, TOP_K)))
        flat = named(y.reshape(32, -1), dparams, dx.reshape(32, -1), dprobs.reshape(32, -1))
        self.assertEqual(differences(flat, self.wanted), [])

    def test_weights_that_are_quantized_apart(self):
        blocks = jax.jit(lambda params: mj.quantize(params, layer=LAYER))(self.given[0])
        self.assertEqual(sorted(blocks), ["quantized", "quantized_colwise"])
        function = compiled(experts_of(LAYER, quantized=blocks))
        self.assertEqual(differences(function(*self.given), self.wanted), [])
        # Forward reads the blocks alone.
        others = inputs(1, LAYER, seed=7)[0]
        self.assertEqual(differences(experts_of(LAYER, quantized=blocks)(others, *self.given[1:4]), self.wanted["y"]), [])
        self.assertEqual(mj.quantize(self.given[0], layer=plan("bf16")), {})

    def test_scan_over_layers(self):
        params, x, ids, probs, dy = self.given
        stack = jax.tree.map(lambda array: jnp.stack([array, array[::-1]]), params)

        def scanned(stack, x):
            return jax.lax.scan(lambda x, params: (EXPERTS_OF_LAYER(params, x, ids, probs), None), x, stack)[0]

        def unrolled(stack, x):
            for i in range(2):
                x = EXPERTS_OF_LAYER(jax.tree.map(lambda array: array[i], stack), x, ids, probs)
            return x

        one, other = (jax.jit(lambda stack, x: jax.vjp(function, stack, x)[1](dy))(stack, x)
                      for function in (scanned, unrolled))
        self.assertEqual(differences(one, other), [])

    def test_every_number_of_tokens(self):
        function = jax.jit(EXPERTS_OF_LAYER)
        params, x, ids, probs, dy = inputs(MAX_TOKENS, LAYER)
        whole = function(params, x, ids, probs)
        for tokens in (1, 17):
            some = function(params, x[:tokens], ids[:tokens], probs[:tokens])
            self.assertEqual(differences(some, whole[:tokens]), [], tokens)
        gradients = compiled(EXPERTS_OF_LAYER)(params, x[:0], ids[:0], probs[:0], dy[:0])
        self.assertEqual(gradients["y"].shape, (0, HIDDEN))
        self.assertFalse(gradients["dw1"].any() or gradients["dw2"].any())

    @staticmethod
    def exported(function, *given):
        checks = [export.DisabledSafetyCheck.custom_call("moejit_call")]
        return export.deserialize(export.export(jax.jit(function), disabled_checks=checks)(*given).serialize())

    def test_export(self):
        params, *tokens, _ = self.given
        self.assertEqual(differences(self.exported(EXPERTS_OF_LAYER, params, *tokens).call(params, *tokens), self.wanted["y"]), [])

    def test_export_for_any_number_of_tokens(self):
        params, *tokens = self.given

        def of(constraints):
            dim, = export.symbolic_shape("t", constraints=constraints)
            return [jax.ShapeDtypeStruct((dim, *array.shape[1:]), array.dtype) for array in tokens]

        back = self.exported(compiled(EXPERTS_OF_LAYER), params, *of([f"t <= {MAX_TOKENS}"]))
        self.assertEqual(differences(back.call(params, *tokens), self.wanted), [])
        some = [array[:17] for array in tokens]
        self.assertEqual(differences(back.call(params, *some), compiled(EXPERTS_OF_LAYER)(params, *some)), [])
        with self.assertRaisesRegex(moejit.Error, r"t tokens may be more than 64, max_tokens of .*\nhint: bound the dimension"):
            self.exported(EXPERTS_OF_LAYER, params, *of([])[:3])

    def test_exported_programs_of_another_version_or_plan(self):
        words = LAYER.text.split(" ", 4)
        for index, other in ((1, "0.0.1"), (3, "0" * 32)):
            stale = mj.Plan(" ".join([*words[:index], other, *words[index + 1:]]))
            back = self.exported(experts_of(stale), *self.given[:4])
            with self.assertRaisesRegex(jax.errors.JaxRuntimeError, f"the compiled graph is stale: it was made with .*{other}"):
                jax.block_until_ready(back.call(*self.given[:4]))  # a GPU tells later

    def test_programs_from_the_cache_on_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            told = [subprocess.run([sys.executable, "-c", PROGRAM, folder], env=os.environ, check=True,
                                   cwd=ROOT / "tests/jax", capture_output=True, text=True).stdout.split() for _ in "ab"]
        self.assertEqual(told[0][0], told[1][0])
        self.assertEqual((told[0][1], told[1][1]), ("False", "True"))

    def test_kernels_are_of_the_engine_of_the_process(self):
        # moejit.torch uses it as well; tests/package sees that neither library makes one of its own.
        engine = ctypes.c_void_p()
        load().moejit_engine_shared(None, ctypes.byref(engine))

        def kernels():
            info = get_info(records.EngineInfo, "moejit_engine_get_info", engine.value)
            return info.compiled + info.from_cache + info.from_memory

        before = kernels()
        self.assertGreater(before, 0)
        EXPERTS_OF_LAYER(*self.given[:4])
        self.assertEqual(kernels(), before)  # the layer is prepared
        layer = plan("fp8_flow", name="another")
        jax.block_until_ready(experts_of(layer)(*self.given[:4]))
        self.assertGreater(kernels(), before)

    def test_status(self):
        params, x, ids, probs, _ = self.given
        function = jax.jit(experts_of(LAYER, with_status=True))
        mj.check_status(function(params, x, ids, probs)[1])
        with self.assertRaisesRegex(moejit.Error, "expert ids, or an expert's number of rows, out of range"):
            mj.check_status(function(params, x, jnp.full_like(ids, EXPERTS), probs)[1])


class Accumulation(unittest.TestCase):

    def test_adds_in_place(self):
        layer = plan("fp8_flow", wgrad_dtype="f32")
        given = inputs(32, layer)
        wanted = compiled(experts_of(layer))(*given)

        def step(sums, params, x, ids, probs, dy):
            y, kept = mj.forward(params, x, ids, probs, layer=layer)
            return *mj.accumulate(sums, kept, dy, layer=layer), y

        step = jax.jit(step, donate_argnums=0)
        sums = {name: jnp.zeros(array.shape, jnp.float32) for name, array in given[0].items()}
        sums, gradients, y = step(sums, *given)
        self.assertEqual(differences({"y": y, **gradients}, {name: wanted[name] for name in ("y", *gradients)}), [])
        once = {name: np.array(array) for name, array in sums.items()}
        rounded = {f"d{name}": jnp.asarray(array).astype(jnp.bfloat16) for name, array in once.items()}
        self.assertEqual(differences(rounded, {name: wanted[name] for name in rounded}), [])
        place = sums["w1"].unsafe_buffer_pointer()
        sums, _, _ = step(sums, *given)
        self.assertEqual(sums["w1"].unsafe_buffer_pointer(), place)
        self.assertEqual(differences(sums, {name: 2 * array for name, array in once.items()}), [])


if __name__ == "__main__":
    unittest.main()
