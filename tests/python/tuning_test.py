# SPDX-License-Identifier: Apache-2.0
"""Tuning records of layers and operations in Python."""
import json
import os
import pathlib
import unittest

from package_case import SMALL, PackageTest

import moejit

GEMM = {"operation": "grouped_gemm", "local_experts": 8, "max_permuted_rows": 8192, "n": 4096, "k": 7168}


def choices_of(planned):
    return {kernel["operation"]: kernel["choices"] for kernel in planned.plan()["kernels"] if "choices" in kernel}


class TuningTest(PackageTest):
    def record(self, planned, name="record.json", **changes):
        """The path of a record that changes the choices of the plan's first GEMM."""
        kernel = next(kernel for kernel in planned.plan()["kernels"] if "grouped_gemm" in kernel.get("problem", ""))
        entry = {"problem": kernel["problem"], "choices": {**kernel["choices"], **changes}, "rounds": 12,
                 "microseconds": 9, "default_microseconds": 10, "ratio": 0.9, "ratio_low": 0.89, "ratio_high": 0.91}
        path = pathlib.Path(self.folder) / name
        path.write_text(json.dumps({"format": "moejit-tuning-1", "entries": [entry],
                                    "gpu": {"name": "NVIDIA H100", "arch": "sm_90a", "sm_count": 132}}))
        return path

    def test_operations_take_a_path_or_several(self):
        usual = moejit.Operation(GEMM, "cuda")
        record = self.record(usual, band_tiles=4)
        for given in (record, str(record), [record], [str(record), record]):
            tuned = moejit.Operation(GEMM, "cuda", tuning=given)
            self.assertEqual(choices_of(tuned)["grouped_gemm"]["band_tiles"], 4)
            self.assertNotEqual(tuned.info.plan_digest, usual.info.plan_digest)
        self.assertIn("tuned: band_tiles=4", " ".join(tuned.explain().split()))

    def test_layers_take_them_too(self):
        usual = moejit.Layer(SMALL, "cuda")
        record = self.record(usual, stages=4)
        self.assertEqual(set(choices_of(usual)) - set(choices_of(moejit.Layer(SMALL, "cuda", tuning=record))), set())
        self.assertNotEqual(choices_of(usual), choices_of(moejit.Layer(SMALL, "cuda", tuning=record)))

    def test_ranks_of_a_group_take_them_and_explain_them(self):
        group = {**SMALL, "expert_parallel": {"ranks": 2}}
        ranks = [moejit.GroupLayer(group, "cuda", rank=rank) for rank in range(2)]
        record = self.record(ranks[0], stages=4)
        tuned = [moejit.GroupLayer(group, "cuda", rank=rank, tuning=record) for rank in range(2)]
        self.assertEqual(tuned[0].identity, tuned[1].identity)
        for usual, rank in zip(ranks, tuned):
            self.assertNotEqual(choices_of(rank), choices_of(usual))
            self.assertNotEqual(rank.plan_digest, usual.plan_digest)
            told = " ".join(rank.explain().split())
            self.assertRegex(told, r"tuned: .*stages=4.*; 10.0 % less time than the usual choices take")
            self.assertIn("usual choices: no tuning record has this problem", told)
            self.assertNotIn("tuning record", usual.explain())
        os.environ["MOEJIT_TUNING"] = str(record)
        try:
            self.assertEqual(moejit.GroupLayer(group, "cuda", rank=0).plan_digest, tuned[0].plan_digest)
            self.assertEqual(moejit.GroupLayer(group, "cuda", rank=0, tuning=[]).plan_digest, ranks[0].plan_digest)
        finally:
            del os.environ["MOEJIT_TUNING"]

    def test_the_environment_holds_for_all_that_name_none(self):
        usual = moejit.Operation(GEMM, "cuda")
        os.environ["MOEJIT_TUNING"] = str(self.record(usual, band_tiles=8))
        try:
            self.assertEqual(choices_of(moejit.Operation(GEMM, "cuda"))["grouped_gemm"]["band_tiles"], 8)
            self.assertEqual(choices_of(moejit.Operation(GEMM, "cuda", tuning=[])), choices_of(usual))
        finally:
            del os.environ["MOEJIT_TUNING"]

    def test_a_record_that_cannot_be_read_is_an_error(self):
        with self.raises("file_not_found", "nowhere.json"):
            moejit.Operation(GEMM, "cuda", tuning="nowhere.json")
        with self.raises("missing_key", "$.format"):
            path = pathlib.Path(self.folder) / "empty.json"
            path.write_text("{}")
            moejit.Layer(SMALL, "cuda", tuning=path)


if __name__ == "__main__":
    unittest.main(verbosity=0)
