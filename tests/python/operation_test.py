# SPDX-License-Identifier: Apache-2.0
"""Single operations from Python, on the simulator."""
import array
import pathlib
import unittest

from package_case import PackageTest, bf16_bits, bf16_values, shaped, test_engine

import moejit

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "docs/examples/operations"
TOKENS, TOP_K, EXPERTS, ALIGNMENT, COLUMNS = 5, 2, 4, 16, 256
IDS = [0, 3, 3, 1, -1, 0, 3, 0, 1, 3]


def route_of(ids):
    """Returns counts, offs and row_map, written out."""
    counts = [ids.count(expert) for expert in range(EXPERTS)]
    offs = [0]
    for count in counts:
        offs.append(offs[-1] + -(-count // ALIGNMENT) * ALIGNMENT)
    free = list(offs)
    row_map = []
    for expert in ids:
        row_map.append(free[expert] if expert >= 0 else -1)
        if expert >= 0:
            free[expert] += 1
    return counts, offs, row_map


def words(tensor):
    return list(memoryview(tensor.read()).cast("i"))


class OperationTest(PackageTest):
    def prepared(self, name):
        return moejit.Operation(EXAMPLES / f"{name}.json", "sim").prepare(test_engine())

    def test_every_example_is_planned(self):
        names = sorted(path.stem for path in EXAMPLES.glob("*.json"))
        self.assertGreaterEqual(len(names), 20)
        for name in names:
            operation = moejit.Operation(EXAMPLES / f"{name}.json", "cuda:sm_90a")
            self.assertEqual(operation.info.name, name)
            self.assertEqual(operation.description["operation"], name)
            self.assertEqual(operation.plan()["operation"], operation.description)
            self.assertIn(f"operation {name} for cuda:sm_90a", operation.explain())
            self.assertEqual({info.role for info in operation.tensors.values()} - {"input", "output"}, set())
            self.assertEqual({info.used_by for info in operation.tensors.values()}, {frozenset({"run"})})

    def test_route_and_unpermute(self):
        route = self.prepared("route")
        self.assertIn("prepared for simulator", repr(route))
        routed = route.allocate(TOKENS)
        routed["topk_ids"].write(array.array("i", IDS))
        route.run(routed)
        for name, wanted in zip(("counts", "offs", "row_map"), route_of(IDS)):
            self.assertEqual(words(routed[name]), wanted, name)
        # Each row of the input has its own number, so a token's sum says which rows it had.
        unpermute = self.prepared("unpermute")
        rows = unpermute.info.max_tokens * TOP_K
        summed = unpermute.allocate(TOKENS, rows=rows)
        self.assertEqual(summed["input"].shape, (rows, COLUMNS))
        values = [float(row) for row in range(rows) for _ in range(COLUMNS)]
        summed["input"].write(bf16_bits(values))
        summed["row_map"] = routed["row_map"]
        unpermute.run(summed)
        row_map = route_of(IDS)[2]
        got = bf16_values(memoryview(summed["output"].read()).cast("H"))[::COLUMNS]
        self.assertEqual(list(got), [float(sum(max(row, 0) for row in row_map[2 * token:2 * token + 2]))
                                     for token in range(TOKENS)])

    def test_packed_rows_are_permuted_with_their_scales(self):
        permute = moejit.Operation({"operation": "permute_pad", "max_tokens": 8, "top_k": TOP_K, "local_experts": EXPERTS,
                                    "splits_alignment": ALIGNMENT, "columns": 144, "format": "fp4"}, "sim")
        self.assertEqual({permute.tensors[name].dtype for name in ("input", "output")}, {"F4_E2M1X2"})
        tensors = permute.prepare(test_engine()).allocate(TOKENS)
        counts, offs, row_map = route_of(IDS)
        codes = [bytes([16 * token + 1 + column % 7 for column in range(72)]) for token in range(TOKENS)]
        scales = [bytes([16 * token + 2 + column % 5 for column in range(16)]) for token in range(TOKENS)]
        for name, values in (("counts", counts), ("offs", offs), ("row_map", row_map)):
            tensors[name].write(array.array("i", values))
        tensors["probs"].write(array.array("f", [0.5] * len(IDS)))
        tensors["input"].write(b"".join(codes))
        tensors["input_scale_inv"].write(b"".join(scales))
        permute.run(tensors)
        for name, rows, size in (("output", codes, 72), ("output_scale_inv", scales, 16)):
            wanted = bytearray(offs[-1] * size)
            for choice, row in enumerate(row_map):
                if row >= 0:
                    wanted[size * row:size * (row + 1)] = rows[choice // TOP_K]
            self.assertEqual(bytes(tensors[name].read())[:len(wanted)], bytes(wanted), name)

    def test_plain_memory_serves(self):
        quantize = self.prepared("quantize")
        ones = shaped(bf16_bits([448.0] * TOKENS * COLUMNS), (TOKENS, COLUMNS))
        codes = shaped(array.array("B", bytes(TOKENS * COLUMNS)), (TOKENS, COLUMNS))
        scales = shaped(array.array("f", bytes(4 * TOKENS * 2)), (TOKENS, 2))
        quantize.run({"input": ones, "output": codes, "output_scale_inv": scales})
        self.assertEqual(set(codes.cast("B")), {0x7E})  # 448, the largest of e4m3
        self.assertEqual(set(scales.cast("B").cast("f")), {1.0})

    def test_wrong_calls_are_refused(self):
        with self.raises("invalid_value", "$.operation", "rout"):
            moejit.Operation({"operation": "rout"}, "sim")
        with self.raises("missing_key", "top_k"):
            moejit.Operation({"operation": "route", "max_tokens": 4}, "sim")
        quantize = moejit.Operation(EXAMPLES / "quantize.json", "sim")
        with self.raises("invalid_value", "quantize", "is not prepared", "hint: call prepare()"):
            quantize.run({})
        quantize.prepare(test_engine())
        with self.raises("missing_tensor", "input"):
            quantize.run({})
        tensors = quantize.allocate(TOKENS)
        tensors["output"] = bytes(TOKENS * COLUMNS)
        with self.raises("tensor_mismatch", "tensor output", "read-only"):
            quantize.run(tensors)
        quantize.close()
        with self.raises("invalid_value", "the operation is closed"):
            quantize.run(quantize.allocate(TOKENS))


if __name__ == "__main__":
    unittest.main(verbosity=0)
