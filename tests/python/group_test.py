# SPDX-License-Identifier: Apache-2.0
"""Layers of groups: two simulated ranks give the bits of one rank with all tokens."""
import array
import random
import unittest

from package_case import SMALL, PackageTest, bf16_bits, test_engine

import moejit

RANKS, EXPERTS, HIDDEN, INNER = 2, SMALL["experts"], SMALL["hidden"], SMALL["intermediate"]
# Tokens of one expert each: y and dx then have the bits of one rank too.
LAYER = {**SMALL, "top_k": 1, "max_tokens": 6}
ONE_RANK = {**LAYER, "max_tokens": RANKS * LAYER["max_tokens"]}
OF_TOKENS, OF_EXPERTS = ("x", "topk_ids", "topk_probs", "dy", "y", "dx", "dprobs"), ("w1", "w2", "dw1", "dw2")


def described(**changes):
    return {**LAYER, "expert_parallel": {"ranks": RANKS}, **changes}


def inputs_of(tokens, seed):
    """The bytes of one rank's inputs with all tokens."""
    source = random.Random(seed)

    def matrix(count, scale=1.0):
        return bf16_bits(source.gauss(0, scale) for _ in range(count)).tobytes()

    ids = [-1 if source.random() < 0.1 else source.randrange(EXPERTS) for _ in range(tokens)]
    return {"x": matrix(tokens * HIDDEN), "dy": matrix(tokens * HIDDEN), "topk_ids": array.array("i", ids).tobytes(),
            "topk_probs": array.array("f", [source.random() for _ in range(tokens)]).tobytes(),
            "w1": matrix(EXPERTS * 2 * INNER * HIDDEN, 0.3), "w2": matrix(EXPERTS * HIDDEN * INNER, 0.3)}


def parts_of(name, whole, tokens):
    """The ranks' parts of a tensor."""
    shares = [1] * RANKS if name in OF_EXPERTS else tokens
    ends = [len(whole) * sum(shares[:rank]) // sum(shares) for rank in range(RANKS + 1)]
    return [whole[begin:end] for begin, end in zip(ends, ends[1:])]


def write(tensors, inputs):
    for name, data in inputs.items():
        if tensors[name].size:
            tensors[name].write(data)


class Groups(PackageTest):
    def opened(self, layers, **options):
        """The layers' group in the simulator, each prepared for its rank."""
        simulator = moejit.SimulatorGroup(RANKS, layers[0].info.memory_bytes, **options)
        is_nccl = layers[0].description["expert_parallel"].get("transport") == "nccl"
        groups = simulator.open_nccl(layers) if is_nccl else simulator.adopt(layers)
        for layer, group in zip(layers, groups):
            layer.prepare(group, test_engine())
        return groups

    def planned(self, **changes):
        return [moejit.GroupLayer(described(**changes), "sim", rank=rank, timeout_ms=50) for rank in range(RANKS)]

    def step(self, layers, tokens, inputs):
        """Runs forward and backward of all ranks, and returns the tensors of each."""
        ranks = [layer.allocate(count) for layer, count in zip(layers, tokens)]
        for rank, tensors in enumerate(ranks):
            write(tensors, {name: parts_of(name, data, tokens)[rank] for name, data in inputs.items()})
        for layer, tensors in zip(layers, ranks):
            layer.update_weights(tensors)
        saved = [layer.forward(tensors) for layer, tensors in zip(layers, ranks)]
        for layer, tensors, block in zip(layers, ranks, saved):
            layer.backward(tensors, saved=block)
        for layer in layers:
            layer.group.device.synchronize()
        return ranks

    def test_a_plan_is_explained(self):
        for rank, layer in enumerate(self.planned()):
            told = layer.explain()
            self.assertIn("layer \"small\" on a group of 2 ranks", told)
            self.assertRegex(told, r"64 SMs send(?s:.)*6 tokens send \d+ bytes to the other rank in the mean")
            plan = layer.plan()
            self.assertEqual((plan["group"]["ranks"], plan["plan_digest"]), (RANKS, layer.plan_digest))
            sent = {kernel["operation"]: kernel["sent_bytes"] for kernel in plan["kernels"] if "sent_bytes" in kernel}
            self.assertEqual(set(sent), {"route_dispatch_permute", "combine_rows", "dispatch_permute_grad",
                                         "combine_rows_grad"})
            self.assertIn(f"group_status_{rank}", told)

    def test_ranks_have_the_bits_of_one_rank_with_all_tokens(self):
        self.check_bits(self.planned())

    def test_ranks_over_nccl_have_these_bits_too(self):
        for combine in ("partial", "rows"):
            self.check_bits(self.planned(expert_parallel={"ranks": RANKS, "combine": combine, "transport": "nccl"}))

    def check_bits(self, layers):
        groups = self.opened(layers)
        one = moejit.Layer(ONE_RANK, "sim").prepare(test_engine())
        for seed, tokens in enumerate([(5, 3), (0, 6), (1, 0)]):
            inputs = inputs_of(sum(tokens), seed)
            ranks = self.step(layers, tokens, inputs)
            whole = one.allocate(sum(tokens))
            write(whole, inputs)
            one.backward(whole, saved=one.forward(whole))
            for name in ("y", "dx", "dprobs", "dw1", "dw2"):
                self.assertTrue(any(whole[name].read()), name)
                self.assertEqual([tensors[name].read() for tensors in ranks],
                                 parts_of(name, whole[name].read(), tokens), f"{name} of {tokens} tokens")
            self.assertEqual([group.status() for group in groups], [0, 0])

    def test_scales_of_a_rank_are_those_that_one_rank_with_all_tokens_has_for_its_experts(self):
        of_recipe = {"recipe": "fp8_delayed", "amax_history_len": 3, "dispatch": "none", "splits_alignment": 16}
        layers, tokens, inputs = self.planned(**of_recipe), (5, 3), inputs_of(8, 0)
        self.opened(layers)
        one = moejit.Layer({**ONE_RANK, **of_recipe}, "sim").prepare(test_engine())
        whole = one.allocate(sum(tokens))
        write(whole, inputs)
        one.update_weights(whole)
        one.backward(whole, saved=one.forward(whole))
        ranks = self.step(layers, tokens, inputs)
        self.assertIn("update_forward_scales", layers[0].tensors["fc1_scale"].used_by)
        for pass_, names in (("forward", ("fc1_scale", "fc2_scale")), ("backward", ("fc1_grad_scale", "fc2_grad_scale"))):
            one.update_scales(whole, pass_)
            for layer, tensors in zip(layers, ranks):
                layer.update_scales(tensors, pass_)
                layer.group.device.synchronize()
            for name in names:
                scales = array.array("f", whole[name].read())
                self.assertGreater(len(set(scales)), EXPERTS // 2, name)
                self.assertEqual([tensors[name].read() for tensors in ranks], parts_of("w1", scales.tobytes(), tokens), name)
        with self.raises("invalid_value", "pass_", "sideways"):
            layers[0].update_scales(ranks[0], "sideways")
        inference = self.planned(passes=["forward"], **of_recipe)
        self.opened(inference)
        with self.raises("unsupported", "no backward pass"):
            inference[0].update_scales(ranks[0], "backward")

    def test_a_layer_tells_what_it_is(self):
        layer = self.planned()[1]
        self.assertEqual((layer.info.rank, layer.info.ranks, layer.info.max_tokens), (1, RANKS, LAYER["max_tokens"]))
        self.assertEqual(layer.description["experts"], EXPERTS)
        self.assertEqual(layer.description["expert_parallel"], {"ranks": RANKS, "combine": "partial"})
        self.assertEqual(layer.tensors["w1"].shape, (EXPERTS // RANKS, 2 * INNER, HIDDEN))
        self.assertIn("backward", layer.tensors["topk_ids"].used_by)
        self.assertIn(layer.plan_digest, layer.identity)
        self.assertIn("rank 1 of 2", repr(layer))

    def test_sizes_and_places_are_for_numbers_of_tokens(self):
        layer = self.planned()[1]
        self.assertEqual(layer.sizes(), layer.sizes(LAYER["max_tokens"]))
        self.assertEqual(layer.sizes().saved_bytes, layer.info.saved_bytes)
        self.assertEqual(layer.sizes(0).workspace_bytes, layer.info.workspace_bytes)  # for tokens of other ranks
        self.assertEqual(layer.place("x", 3), moejit.TensorPlace(-1, 3 * HIDDEN * 2, (3, HIDDEN)))
        with self.raises("invalid_value", "7"):
            layer.sizes(7)

    def test_intermediates_stay_readable_where_they_are_kept(self):
        def overlaps(**options):
            layer = moejit.GroupLayer(described(), "sim", rank=0, **options)
            places = sorted((place.offset, place.offset + place.bytes) for place in (
                layer.place(tensor.name) for tensor in layer.tensors.values() if tensor.role == "workspace"))
            self.assertGreater(len(places), 2)
            return any(end > begin for (_, end), (begin, _) in zip(places, places[1:]))
        self.assertTrue(overlaps())
        self.assertFalse(overlaps(keep_intermediates=True))

    def test_a_simulator_waits_for_all_ranks(self):
        layers = self.planned(recipe="fp8_flow", dispatch="fp8")
        simulator = moejit.SimulatorGroup(RANKS, layers[0].info.memory_bytes)
        for layer, group in zip(layers, simulator.adopt(layers)):
            layer.prepare(group, test_engine())
        tensors = layers[1].allocate(0)  # the last rank alone has something to do
        for name in ("w1", "w2"):
            tensors[name].write(b"\x3f" * tensors[name].size)
        tensors["w1_q"] = moejit.Tensor(bytearray(tensors["w1_q"].size), "F8_E4M3", tensors["w1_q"].shape)
        layers[1].update_weights(tensors)
        self.assertFalse(any(tensors["w1_q"].read()))
        simulator.synchronize()
        self.assertTrue(all(tensors["w1_q"].read()))

    def test_two_layers_share_a_group(self):
        first, second = self.planned(), self.planned(intermediate=32)
        groups = self.opened(first)
        for layer, group in zip(second, groups):
            layer.prepare(group, test_engine())
        inputs = inputs_of(8, 7)
        before = [tensors["y"].read() for tensors in self.step(first, (5, 3), inputs)]
        wide = {**inputs, "w1": inputs["w1"] * 2, "w2": inputs["w2"] * 2}
        self.step(second, (5, 3), wide)
        self.assertEqual([tensors["y"].read() for tensors in self.step(first, (5, 3), inputs)], before)

    def test_a_silent_rank_is_told_and_forgotten(self):
        layers = self.planned()
        groups = self.opened(layers)
        inputs = inputs_of(8, 3)
        want = [tensors["y"].read() for tensors in self.step(layers, (5, 3), inputs)]
        lonely = layers[0].allocate(2)
        layers[0].forward(lonely)
        self.assertEqual(groups[0].status(), 256 | 65536 << 1)
        with self.raises("device_status", "256"):
            moejit.check_status(groups[0].status())
        with self.raises("invalid_state", "rank 1", "reset"):
            layers[0].forward(lonely)
        for group in groups:
            group.reset()
        self.assertEqual([tensors["y"].read() for tensors in self.step(layers, (5, 3), inputs)], want)
        self.assertEqual([group.status() for group in groups], [0, 0])

    def test_a_group_over_nccl_that_was_aborted_is_opened_anew(self):
        of_nccl = {"expert_parallel": {"ranks": RANKS, "transport": "nccl"}}
        layers = self.planned(**of_nccl)
        groups = self.opened(layers)
        inputs = inputs_of(8, 3)
        want = [tensors["y"].read() for tensors in self.step(layers, (5, 3), inputs)]
        lonely = layers[0].allocate(2)
        saved = layers[0].forward(lonely)
        groups[0].abort()
        groups[0].device.synchronize()  # nothing waits any more
        for call in (groups[0].status, groups[0].reset, lambda: layers[0].forward(lonely)):
            with self.raises("invalid_state", "open another group on all ranks"):
                call()
        del saved
        layers = self.planned(**of_nccl)
        self.opened(layers)
        self.assertEqual([tensors["y"].read() for tensors in self.step(layers, (5, 3), inputs)], want)
        self.opened(self.planned())[0].abort()  # which has nothing to end

    def test_wrong_groups_over_nccl_are_refused(self):
        layers = self.planned(expert_parallel={"ranks": RANKS, "transport": "nccl"})
        simulator, id = moejit.SimulatorGroup(RANKS, 4096), bytes(128)
        with self.raises("invalid_value", "id has 3 bytes, wanted 128", "nccl_make_id()"):
            moejit.Group.open_nccl(layers[0], simulator.devices[0], b"abc")
        with self.raises("unsupported", "the device is the simulator", "SimulatorGroup"):
            moejit.Group.open_nccl(layers[0], moejit.Device.simulator(), id)
        with self.raises("unsupported", "has the transport peer"):
            moejit.Group.open_nccl(self.planned()[0], simulator.devices[0], id)
        with self.raises("unsupported", "has the transport nccl"):
            simulator.adopt(layers)
        with self.raises("invalid_value", "communicator"):
            moejit.Group.adopt_nccl(layers[0], simulator.devices[0], 0)
        with self.raises("unsupported", "the device is the simulator"):
            moejit.Group.adopt_nccl(layers[0], simulator.devices[0], 4096)
        groups = simulator.open_nccl(layers)
        self.assertEqual([(group.rank, group.ranks) for group in groups], [(0, RANKS), (1, RANKS)])
        again = moejit.Group.open_nccl(layers[0], simulator.devices[0], id)
        with self.raises("invalid_value", "rank 0 has come with this id already"):
            moejit.Group.open_nccl(layers[0], simulator.devices[0], id)
        other = moejit.GroupLayer({**layers[1].description, "hidden": 64}, "sim", rank=1)
        with self.raises("tensor_mismatch", "differ in hidden"):
            moejit.Group.open_nccl(other, simulator.devices[1], id)
        again.close()

    def test_wrong_calls_are_refused(self):
        with self.raises("unsupported", "expert_parallel"):
            moejit.GroupLayer(LAYER, "sim", rank=0)
        with self.raises("unsupported", "rank"):
            moejit.GroupLayer(described(), "sim", rank=2)
        layers = self.planned()
        with self.raises("invalid_value", "forward()", "not prepared", "prepare()"):
            layers[0].forward({})
        with self.raises("tensor_mismatch", "ranks 0 and 1", "recipe"):
            self.opened([layers[0], moejit.GroupLayer(described(recipe="fp8_flow"), "sim", rank=1)])
        with self.raises("invalid_value", "memory of 1 ranks"):
            moejit.Group(layers[0], moejit.Device.simulator(), [moejit.GroupMember(4096, 1 << 20)])
        with self.raises("invalid_value", "ranks is 9", "1 to 8"):
            moejit.SimulatorGroup(9, 4096)
        groups = self.opened(layers)
        tensors = layers[0].allocate(3)
        saved = moejit.Memory(groups[0].device, layers[0].info.saved_bytes)
        with self.raises("invalid_value", "wanted 0 to 6"):
            layers[0].allocate(7)
        with self.raises("invalid_state", "before any forward"):
            layers[0].backward(tensors, saved=saved)
        with self.raises("invalid_value", "sideways", "overwrite, add"):
            layers[0].backward(tensors, saved=saved, mode="sideways")
        with self.raises("missing_tensor", "topk_ids"):
            layers[0].forward({name: tensor for name, tensor in tensors.items() if name != "topk_ids"})
        groups[0].close()
        with self.raises("invalid_state", "destroyed"):
            layers[0].forward(tensors)


if __name__ == "__main__":
    unittest.main(verbosity=0)
