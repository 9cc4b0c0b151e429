# SPDX-License-Identifier: Apache-2.0
"""The router has the bits of moejit.Operation, and the values and gradients of plain jax.numpy."""
import unittest

from support import *

TOKENS, A = 40, 16
FORMULAS = {"softmax": {}, "deepseek": {"score": "sigmoid", "groups": 4, "groups_kept": 2, "normalize": "sum",
                                        "epsilon": 1e-20, "scale": 2.5, "aux": "unbiased"},
            "zero experts": {"zero_experts": 4, "z": True}}


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def direct(kind, fields, given, results):
    """What moejit.Operation makes of the same bits, by name."""
    operation = moejit.Operation({"operation": kind, **fields}, TARGET).prepare()
    tensors = operation.allocate(tokens=TOKENS)
    for name, array in given.items():
        tensors[name].memory.write(np.ascontiguousarray(array).tobytes())
    operation.run(tensors)
    dtypes = {"F32": np.float32, "I32": np.int32, "I64": np.int64}
    return {name: np.frombuffer(tensors[name].memory.read(), dtypes[operation.tensors[name].dtype]).reshape(
        operation.tensors[name].shape_of(TOKENS)) for name in results if name in tensors}


class Router(unittest.TestCase):

    def test_the_bits_of_the_operations(self):
        for name, formula in FORMULAS.items():
            with self.subTest(name):
                logits, bias, dprobs = drawn(TOKENS, A), drawn(A, seed=1), drawn(TOKENS, 2, seed=2)
                given = {"logits": logits} | ({"router_bias": bias} if name == "deepseek" else {})
                fields = {"max_tokens": 256, "experts": A - formula.get("zero_experts", 0), "top_k": 2,
                          "router": {**formula, "bias": "router_bias" in given}}
                names = ("topk_probs", "topk_ids", "chosen_ids", "zero_probs", "counts", "unbiased_counts", "score_sums", "z_sum")
                wanted = direct("router", fields, given, names)

                def function(logits):
                    probs, ids, more = mj.router(logits, 2, bias=given.get("router_bias"), **formula)
                    return probs, (ids, more)

                probs, pull, (ids, more) = jax.vjp(jax.jit(function), logits, has_aux=True)
                got = {"topk_probs": probs, "topk_ids": ids, **more}
                self.assertEqual(differences({name: got[name] for name in wanted if name in got},
                                             {name: wanted[name] for name in wanted if name in got}), [])
                backward = {"logits": logits, "topk_ids": ids, "chosen_ids": more.get("chosen_ids"), "dprobs": dprobs,
                            "counts": wanted.get("unbiased_counts", wanted["counts"])}
                needed = moejit.Operation({"operation": "router_backward", **fields}, TARGET).tensors
                dlogits = direct("router_backward", fields, {name: array for name, array in backward.items()
                                                             if name in needed}, ["dlogits"])["dlogits"]
                self.assertEqual(differences(pull(dprobs)[0], dlogits), [])
                if "score_sums" in wanted:  # in float32: sums of A products, each rounded a few times
                    loss = (wanted["score_sums"] / 2 ** 32 * wanted["unbiased_counts"]).sum() * A / (2 * TOKENS ** 2)
                    self.assertAlmostEqual(float(more["aux_loss"]), loss, delta=2 ** -20 * loss)
                if "z_sum" in wanted:
                    self.assertAlmostEqual(float(more["z_loss"]), wanted["z_sum"][0] / 2 ** 24 / TOKENS, delta=1e-5)

    def test_gradients_are_those_of_plain_jax(self):
        logits, scale, weights = drawn(4, TOKENS // 4, A), 1 + drawn(A, seed=1) ** 2, drawn(4, TOKENS // 4, 3, seed=2)

        def moejit_loss(logits, scale):
            probs, ids, more = mj.router(logits, 3, expert_scale=scale, aux="chosen", z=True)
            return (probs * weights).sum() + 2 * more["aux_loss"] + 3 * more["z_loss"], ids

        def plain_loss(logits, scale):
            scores = jax.nn.softmax(logits)
            probs, ids = jax.lax.top_k(scores, 3)
            counts = jnp.bincount(ids.ravel(), length=A)
            aux = (counts * scores.sum((0, 1))).sum() * A / (3 * TOKENS ** 2)
            z = jnp.square(jax.nn.logsumexp(logits, axis=-1)).mean()
            return (probs * scale[ids] * weights).sum() + 2 * aux + 3 * z, ids

        one, other = (jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(logits, scale)
                      for loss in (moejit_loss, plain_loss))
        self.assertEqual(differences(one[0][1], other[0][1]), [])
        for got, wanted in zip(jax.tree.leaves((one[0][0], one[1])), jax.tree.leaves((other[0][0], other[1])), strict=True):
            # float32 on both sides: some ten roundings of 2^-24 in a row, and sums of which parts cancel.
            self.assertLess(jnp.linalg.norm(got - wanted), 2 ** -18 * jnp.linalg.norm(wanted))

    def test_a_choice_that_the_caller_brings(self):
        logits, ids = drawn(TOKENS, A), np.random.default_rng(1).integers(0, A, (TOKENS, 2), np.int32)
        probs, same, more = jax.jit(lambda logits, ids: mj.router(logits, 2, topk_ids=ids))(logits, ids)
        self.assertEqual(differences(same, ids), [])
        np.testing.assert_allclose(probs, np.take_along_axis(np.asarray(jax.nn.softmax(logits)), ids, 1), rtol=1e-5)
        mj.check_status(more["status"])

    def test_refusals(self):
        logits = jnp.zeros((TOKENS, A))
        for sentence, function in {
                "groups": lambda: mj.router(logits, 2, groups=3),
                "logits_dtype: got \"float16\"": lambda: mj.router(logits.astype(jnp.float16), 2),
                r"tensor router_bias: its shape is \[3\], wanted \[16\]": lambda: mj.router(logits, 2, bias=jnp.zeros(3)),
                "moejit.jax has no vmap": lambda: jax.vmap(lambda logits: mj.router(logits, 2)[0])(logits[None])}.items():
            with self.subTest(sentence), self.assertRaisesRegex(moejit.Error, sentence):
                function()


if __name__ == "__main__":
    unittest.main()
