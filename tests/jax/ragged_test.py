# SPDX-License-Identifier: Apache-2.0
"""Tokens that travel to the devices of their experts alone.

XLA has no ragged_all_to_all on CPUs. Here it is made of all-gather and masks, and all else is as on GPUs.
"""
import unittest
import unittest.mock

from jax.sharding import AxisType, PartitionSpec

from moejit.jax import exchange
from support import *

SPLIT = PartitionSpec("d")


def by_all_gather(operand, output, input_offsets, send_sizes, output_offsets, recv_sizes, *, axis_name):
    """What jax.lax.ragged_all_to_all says that it does."""
    me, row = jax.lax.axis_index(axis_name), jnp.arange(len(output))
    slices = len(send_sizes) // jax.lax.axis_size(axis_name)
    given = jax.lax.all_gather((operand, input_offsets, send_sizes, output_offsets), axis_name)
    for rows, *numbers in zip(*(list(array) for array in given), strict=True):
        begins, sizes, places = (jax.lax.dynamic_slice_in_dim(array, me * slices, slices) for array in numbers)
        offset = row[:, None] - places
        is_of_slice = (offset >= 0) & (offset < sizes)
        source = jnp.where(is_of_slice, begins + offset, 0).sum(1)
        output = jnp.where(is_of_slice.any(1)[:, None], rows[source], output)
    return output


@unittest.skipUnless(len(jax.devices()) >= 2, "needs two devices")
class Ragged(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        if jax.default_backend() == "cpu":
            cls.enterClassContext(unittest.mock.patch("jax.lax.ragged_all_to_all", by_all_gather))
        cls.mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
        cls.given = inputs(32, plan("fp8_flow"))
        cls.one_device = staticmethod(cls.compiled(experts_of(plan("fp8_flow"))))
        cls.wanted = cls.one_device(*cls.given)

    def function(self, layer, outputs=SPLIT, check_vma=True, how="ragged", **options):
        return jax.shard_map(functools.partial(mj.expert_parallel, layer=layer, axis="d", how=how, **options),
                             mesh=self.mesh, in_specs=SPLIT, out_specs=outputs, check_vma=check_vma)

    def share(self, recipe, **fields):
        return plan(recipe, local_experts=EXPERTS // 2, **fields)

    @staticmethod
    def compiled(function):
        return jax.jit(lambda *given: named(*value_and_grads(function, *given)))

    def test_the_bits_of_one_device(self):
        one_device = self.compiled(experts_of(plan("bf16")))
        for recipe, check_vma, wanted in (("bf16", False, one_device(*self.given)), ("fp8_flow", True, self.wanted)):
            got = self.compiled(self.function(self.share(recipe), check_vma=check_vma))(*self.given)
            self.assertEqual(differences(got, wanted), [], f"{recipe}, check_vma {check_vma}")

    def test_tokens_that_go_nowhere(self):
        # All experts of one device, and no experts at all.
        params, x, ids, probs, dy = self.given
        ids = ids.at[:12].set(jnp.array([1, 2])).at[12:20].set(-1)
        given = params, x, ids, probs, dy
        self.assertEqual(differences(self.compiled(self.function(self.share("fp8_flow")))(*given),
                                     self.one_device(*given)), [])

    def test_bytes_of_a_row(self):
        params, x, ids, probs, _ = self.given
        for recipe, wanted in (("fp8_flow", HIDDEN + 4 * HIDDEN // 128 + 8 * TOP_K), ("bf16", 2 * HIDDEN + 8 * TOP_K)):
            widths = []
            pack = exchange.pack
            with unittest.mock.patch.object(exchange, "pack", lambda rows: widths.append(pack(rows).shape[1]) or pack(rows)):
                jax.eval_shape(self.function(self.share(recipe)), params, x, ids, probs)
            self.assertEqual(widths, [wanted, 2 * HIDDEN], recipe)

    def test_more_tokens_than_there_is_room_for(self):
        # 16 tokens of each device have an expert on device 0, which has room for 24: 8 tokens of device 1 do not fit.
        layer = self.share("fp8_flow", max_tokens=24)
        params, x, _, probs, dy = self.given
        ids = jnp.tile(jnp.array([0, 5], jnp.int32), (32, 1))
        function = self.function(layer, with_status=True)

        @jax.jit
        def run(params, x, ids, probs, dy):
            y, pull, status = jax.vjp(lambda x: function(params, x, ids, probs), x, has_aux=True)
            return y, status, pull(dy)[0]

        y, status, dx = run(params, x, ids, probs, dy)
        for array in (y, dx):
            lost = np.isnan(np.asarray(array, np.float32)).all(1)
            self.assertEqual(np.flatnonzero(lost).tolist(), list(range(24, 32)))
        self.assertEqual(differences(y[:24], self.one_device(params, x, ids, probs, dy)["y"][:24]), [])
        self.assertEqual((status & 2).tolist(), [2, 2])
        with self.assertRaisesRegex(moejit.Error, "more rows than"):
            mj.check_status(status)

    def test_wrong_ids_are_reported(self):
        params, x, ids, probs, _ = self.given
        for how in ("ragged", "gather"):
            function = jax.jit(self.function(self.share("fp8_flow"), with_status=True, how=how))
            for wrong in (EXPERTS, -2):
                self.assertEqual(function(params, x, ids.at[3, 1].set(wrong), probs)[1].max(), 1, (how, wrong))

    def test_blocks_of_quantized_weights_and_frozen_ones(self):
        layer = self.share("fp8_flow")
        def local(params, x, ids, probs):
            blocks = mj.quantize(params, layer=layer)
            return mj.expert_parallel(jax.lax.stop_gradient(params), x, ids, probs, layer=layer, axis="d", how="ragged",
                                      quantized=blocks)

        got = self.compiled(jax.shard_map(local, mesh=self.mesh, in_specs=SPLIT, out_specs=SPLIT))(*self.given)
        self.assertFalse(got.pop("dw1").any() or got.pop("dw2").any())
        self.assertEqual(differences(got, {name: self.wanted[name] for name in got}), [])

    def test_the_state_of_delayed_scaling(self):
        layer, share = (make("fp8_delayed", amax_history_len=4) for make in (plan, self.share))
        params, x, ids, probs, dy = given = inputs(32, layer)
        one_device = jax.jit(step_of(layer))
        _, before = one_device(*given, mj.init_state(layer))  # the scales of a second step
        wanted, after = one_device(*given, before)

        specs = {name: PartitionSpec(*[None] * (array.ndim - 1), "d") for name, array in before.items()}
        for how in ("ragged", "gather"):
            def local(params, x, ids, probs, state, how=how):
                return mj.expert_parallel(params, x, ids, probs, layer=share, axis="d", how=how, state=state)

            shared = jax.shard_map(local, mesh=self.mesh, in_specs=(*[SPLIT] * 4, specs), out_specs=SPLIT)
            y, pull = jax.vjp(jax.jit(lambda params, x, probs, state: shared(params, x, ids, probs, state)), params, x, probs,
                              before)
            *gradients, state = pull(dy)
            self.assertEqual(differences(state, after), [], how)
            if how == "ragged":
                self.assertEqual(differences(named(y, *gradients), wanted), [])
        self.assertNotEqual(differences(after, before), [])

    def test_refusals(self):
        given = self.given[:4]
        with self.assertRaisesRegex(moejit.Error, 'the recipe "fp8_delayed" keeps'):
            self.function(self.share("fp8_delayed"))(*given)
        with self.assertRaisesRegex(moejit.Error, "how: got 'group', wanted \"gather\" or \"ragged\""):
            self.function(self.share("fp8_flow"), how="group")(*given)


if __name__ == "__main__":
    unittest.main()
