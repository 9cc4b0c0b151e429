# SPDX-License-Identifier: Apache-2.0
"""Two devices compute what one does: data parallel and expert parallel, in shard_map and without."""
import concurrent.futures
import unittest

from jax.sharding import AxisType, NamedSharding, PartitionSpec

from support import *

WHOLE, SPLIT = PartitionSpec(), PartitionSpec("d")


@unittest.skipUnless(len(jax.devices()) >= 2, "needs two devices")
class TwoDevices(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.layer = plan("fp8_flow")
        cls.given = inputs(32, cls.layer)
        cls.mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
        cls.wanted = cls.compiled(experts_of(cls.layer))(*cls.given)

    @staticmethod
    def compiled(function):
        return jax.jit(lambda *given: named(*value_and_grads(function, *given)))

    def check_sums(self, got, wanted):
        """Takes the gradients of weights out of both, and compares them. They are sums of two bf16 arrays, in bf16."""
        # A value of a device's gradients, and of the sum, is rounded by at most 2^-9 of itself; both parts together
        # are no more than a few times as large as the sum.
        for name in ("dw1", "dw2"):
            one, other = np.asarray(got.pop(name), np.float32), np.asarray(wanted.pop(name), np.float32)
            self.assertLess(np.linalg.norm(one - other), 2 ** -7 * np.linalg.norm(other), name)

    def test_data_parallel(self):
        for check_vma in (False, True):
            function = jax.shard_map(experts_of(self.layer), mesh=self.mesh, in_specs=(WHOLE, SPLIT, SPLIT, SPLIT),
                                     out_specs=SPLIT, check_vma=check_vma)
            got = self.compiled(function)(*self.given)
            wanted = dict(self.wanted)
            self.check_sums(got, wanted)
            self.assertEqual(differences(got, wanted), [], f"check_vma {check_vma}")

    def test_accumulated_gradients(self):
        layer = plan("fp8_flow", wgrad_dtype="f32")

        def step(params, x, ids, probs, dy):
            y, kept = mj.forward(params, x, ids, probs, layer=layer)
            sums = {name: jnp.zeros(array.shape, jnp.float32) for name, array in params.items()}
            sums, gradients = mj.accumulate(sums, kept, dy, layer=layer)
            return jax.lax.psum(sums, "d"), {"y": y, **gradients}

        step = jax.shard_map(step, mesh=self.mesh, in_specs=(WHOLE, *[SPLIT] * 4), out_specs=(WHOLE, SPLIT))
        sums, made = jax.jit(step)(*self.given)
        self.assertEqual(differences(made, {name: self.wanted[name] for name in made}), [])
        for name, array in sums.items():  # the others are rounded to bf16: by at most 2^-9 of each value
            other = np.asarray(self.wanted[f"d{name}"], np.float32)
            self.assertLess(np.linalg.norm(np.asarray(array) - other), 2 ** -8 * np.linalg.norm(other), name)

    def test_accumulation_under_jit_with_a_mesh(self):
        layer = plan("fp8_flow", wgrad_dtype="f32")

        def step(params, x, ids, probs, dy):
            y, kept = mj.forward(params, x, ids, probs, layer=layer)
            sums = {name: jnp.ones(array.shape, jnp.float32) for name, array in params.items()}
            return y, mj.accumulate(sums, kept, dy, layer=layer)

        wanted = jax.jit(step)(*self.given)
        with jax.set_mesh(self.mesh):
            self.assertEqual(differences(jax.jit(lambda *given: step(*given))(*self.given), wanted), [])

    def test_expert_parallel(self):
        half = plan("fp8_flow", local_experts=EXPERTS // 2)
        for check_vma in (False, True):
            function = jax.shard_map(functools.partial(mj.expert_parallel, layer=half, axis="d"), mesh=self.mesh,
                                     in_specs=(SPLIT, SPLIT, SPLIT, SPLIT), out_specs=SPLIT, check_vma=check_vma)
            # With two experts a token, the sum of two devices has one addition, as the sum of one device.
            self.assertEqual(differences(self.compiled(function)(*self.given), self.wanted), [], f"check_vma {check_vma}")

    def test_shares_that_are_not_all_experts_are_refused(self):
        function = jax.shard_map(functools.partial(mj.expert_parallel, layer=self.layer, axis="d"), mesh=self.mesh,
                                 in_specs=(SPLIT, SPLIT, SPLIT, SPLIT), out_specs=SPLIT)
        with self.assertRaisesRegex(moejit.Error, "local_experts is 8 on each of 2 devices of the axis d, wanted 8"):
            function(*self.given[:4])

    def sharded(self, tokens):
        """A program's given arrays where jit finds those of tokens sharded or not, and whether it gathers any."""
        params, *given = self.given
        given = [jax.device_put(array, NamedSharding(self.mesh, tokens)) for array in given]
        return jax.device_put(params, NamedSharding(self.mesh, WHOLE)), *given

    def gathers(self, program):
        return [line for line in program.as_text().splitlines() if "all-gather" in line and "u32" not in line]

    def test_forward_under_jit_alone(self):
        given = self.sharded(SPLIT)[:4]
        program = jax.jit(experts_of(self.layer)).lower(*given).compile()
        self.assertEqual(self.gathers(program), [])
        self.assertEqual(differences(program(*given), self.wanted["y"]), [])

    def test_gradients_under_jit_with_a_mesh(self):
        given = self.sharded(SPLIT)
        with jax.set_mesh(self.mesh):
            program = self.compiled(experts_of(self.layer)).lower(*given).compile()
        self.assertEqual(self.gathers(program), [])
        got, wanted = program(*given), dict(self.wanted)
        self.check_sums(got, wanted)
        self.assertEqual(differences(got, wanted), [])
        self.assertEqual({name: got[name].sharding.spec for name in got}, dict.fromkeys(("dprobs", "dx", "y"), SPLIT))

    def test_tokens_of_a_mesh_that_are_not_sharded(self):
        # A device then has the whole block of what forward saves, which has room for one part of each device.
        given = self.sharded(WHOLE)
        with jax.set_mesh(self.mesh):
            self.assertEqual(differences(self.compiled(experts_of(self.layer))(*given), self.wanted), [])
            odd = [self.given[0], *(array[:31] for array in given[1:])]
            self.assertEqual(differences(self.compiled(experts_of(self.layer))(*odd)["y"], self.wanted["y"][:31]), [])

    def test_the_status_of_all_devices(self):
        params, x, ids, probs, _ = self.sharded(SPLIT)
        function = jax.jit(experts_of(self.layer, with_status=True))
        for token in (0, 31):
            with self.assertRaisesRegex(moejit.Error, "expert ids, or an expert's number of rows, out of range"):
                mj.check_status(function(params, x, ids.at[token].set(EXPERTS), probs)[1])

    def test_explicit_axes_are_refused(self):
        mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Explicit,))
        with jax.set_mesh(mesh), self.assertRaisesRegex(moejit.Error, "tensor x: it is sharded along explicit axes"):
            params, *tokens = self.given[:4]
            mj.experts(params, *(jax.device_put(array, NamedSharding(mesh, SPLIT)) for array in tokens), layer=self.layer)

    def test_threads_on_two_devices(self):
        function = jax.jit(experts_of(self.layer))
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            for y in threads.map(lambda device: function(*jax.device_put(self.given[:4], device)), jax.devices()[:2]):
                self.assertEqual(differences(y, self.wanted["y"]), [])


if __name__ == "__main__":
    unittest.main()
