# SPDX-License-Identifier: Apache-2.0
"""The state of delayed scaling: through micro-batches, devices and modules of flax. bits_test.py has single steps."""
import unittest

from flax import linen, nnx
from jax.sharding import AxisType, PartitionSpec

import moejit.jax.flax
from support import *

WHOLE, SPLIT = PartitionSpec(), PartitionSpec("d")


class State(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.layer = plan("fp8_delayed", amax_history_len=4)
        cls.given = inputs(32, cls.layer)
        cls.step = staticmethod(jax.jit(step_of(cls.layer)))
        _, cls.state = cls.step(*cls.given, mj.init_state(cls.layer))  # the scales of a second step
        cls.wanted = cls.step(*cls.given, cls.state)

    def test_a_first_state(self):
        state = mj.init_state(self.layer)
        self.assertEqual({name: array.shape for name, array in state.items()},
                         {name: tensor.shape for name, tensor in self.layer.tensors.items() if tensor.role == "state"})
        for name, array in state.items():
            self.assertTrue((array == (1 if name.endswith("scale") else 0)).all(), name)
        self.assertEqual(mj.init_state(plan("fp8_flow")), {})

    def test_micro_batches_are_one_step(self):
        params, *tokens = self.given

        @jax.jit
        def step(params, state, *tokens):
            blocks, state = mj.quantize(params, layer=self.layer, state=state)
            for half in (slice(16), slice(16, 32)):
                given = params, *(array[half] for array in tokens)
                _, state = step_of(self.layer, quantized=blocks, update_scales=False)(*given, state)
            return mj.update_scales(state, layer=self.layer)

        self.assertEqual(differences(step(params, self.state, *tokens), self.wanted[1]), [])

    def test_accumulation_takes_the_state_along(self):
        layer = plan("fp8_delayed", amax_history_len=4, wgrad_dtype="f32")

        @jax.jit
        def step(params, x, ids, probs, dy, state):
            y, kept = mj.forward(params, x, ids, probs, layer=layer, state=state)
            sums = {name: jnp.zeros(array.shape, jnp.float32) for name, array in params.items()}
            _, gradients = mj.accumulate(sums, kept, dy, layer=layer)
            return y, mj.update_scales(gradients["state"], layer=layer)

        self.assertEqual(differences(step(*self.given, self.state), (self.wanted[0]["y"], self.wanted[1])), [])

    def test_a_donated_state_keeps_its_memory(self):
        step = jax.jit(step_of(self.layer), donate_argnums=5)
        state = jax.tree.map(jnp.copy, self.state)
        places = {name: array.unsafe_buffer_pointer() for name, array in state.items()}
        _, state = step(*self.given, state)
        self.assertEqual({name: array.unsafe_buffer_pointer() for name, array in state.items()}, places)
        self.assertEqual(differences(state, self.wanted[1]), [])

    def test_without_a_state(self):
        for given in (None, {"fc1_amax_history": self.state["fc1_amax_history"]}):
            with self.assertRaisesRegex(moejit.Error, "keeps fc\\d_\\w+ from step to step, and the state has none\nhint: begin"):
                mj.experts(*self.given[:4], layer=self.layer, state=given)

    @unittest.skipUnless(len(jax.devices()) >= 2, "needs two devices")
    def test_two_devices_record_the_largest(self):
        mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))

        def sharded(**options):
            return jax.shard_map(lambda params, x, ids, probs, state: mj.experts(params, x, ids, probs, layer=self.layer,
                                                                                 state=state),
                                 mesh=mesh, in_specs=(WHOLE, SPLIT, SPLIT, SPLIT, WHOLE), out_specs=SPLIT, **options)

        params, x, ids, probs, dy = self.given
        y, pull = jax.vjp(lambda x, state: jax.jit(sharded())(params, x, ids, probs, state), x, self.state)
        self.assertEqual(differences((y, *pull(dy)), (self.wanted[0]["y"], self.wanted[0]["dx"], self.wanted[1])), [])
        with self.assertRaisesRegex(moejit.Error, "a state in shard_map with check_vma=False"):
            sharded(check_vma=False)(params, x, ids, probs, self.state)

    def test_modules_of_flax(self):
        params, x, ids, probs, dy = self.given
        module = moejit.jax.flax.linen.Experts(self.layer, param_dtype=jnp.bfloat16, kernel_init=nnx.initializers.zeros)
        variables = jax.jit(module.init)(jax.random.key(0), x, ids, probs)
        kept = linen.fp8_ops.OVERWRITE_WITH_GRADIENT
        self.assertEqual(differences(variables[kept], mj.init_state(self.layer)), [])
        variables = {"params": params, kept: self.state}
        after = jax.jit(lambda variables: jax.vjp(lambda variables: module.apply(variables, x, ids, probs),
                                                  variables)[1](dy)[0][kept])(variables)
        self.assertEqual(differences(after, self.wanted[1]), [])

        of_nnx = moejit.jax.flax.nnx.Experts(self.layer, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0),
                                               kernel_init=nnx.initializers.zeros)
        for name, array in {**params, **self.state}.items():
            getattr(of_nnx, name)[...] = array

        @nnx.jit
        def step(module):
            wanted = nnx.DiffState(0, (nnx.Param, moejit.jax.flax.nnx.ScalingState))
            gradients = nnx.grad(lambda module: (module(x, ids, probs).astype(jnp.float32) * dy).sum(), argnums=wanted)(module)
            nnx.update(module, gradients.filter(moejit.jax.flax.nnx.ScalingState))

        step(of_nnx)
        self.assertEqual(differences({name: getattr(of_nnx, name)[...] for name in self.state}, self.wanted[1]), [])


if __name__ == "__main__":
    unittest.main()
