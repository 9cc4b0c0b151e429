# SPDX-License-Identifier: Apache-2.0
"""Layers on targets without WGMMA: the simulator runs their kernels to the bit of the reference."""
import json

import tool

LAYERS = tool.ROOT / "docs/examples/layers"


class Targets(tool.ToolTest):
    keeps_kernels = True

    def check(self, name, *options, target="sim:sm_120f", passes="backward"):
        done = self.succeed("run", LAYERS / f"{name}.json", "--target", target, "--pass", passes, "--check", *options)
        self.assertIn("check passed", done.stdout)
        self.assertIn(f"target {target}", done.stderr)

    def test_every_recipe_trains(self):
        for recipe in ("", "-blockwise", "-current", "-delayed", "-rowwise", "-mxfp8", "-nvfp4"):
            with self.subTest(recipe=recipe):
                self.check(f"tiny{recipe}")

    def test_a_large_sm_has_wider_tiles(self):
        for recipe in ("", "-mxfp8"):
            with self.subTest(recipe=recipe):
                self.check(f"tiny{recipe}", target="sim:sm_100f")

    def test_warps_share_columns_of_large_tiles(self):
        tiny = json.loads((LAYERS / "tiny.json").read_text())
        for target, recipe in (("sim:sm_80", "bf16"), ("sim:sm_100f", "bf16"), ("sim:sm_100f", "fp8_flow"),
                               ("sim:sm_100f", "fp8_current")):
            with self.subTest(target=target, recipe=recipe):
                (self.folder / "wide.json").write_text(json.dumps(tiny | {"recipe": recipe, "max_tokens": 600}))
                self.check(self.folder / "wide", "--tokens", "400", target=target)

    def test_threads_copy_where_no_hardware_does(self):
        for recipe in ("-current", "-rowwise", "-mxfp8"):
            with self.subTest(recipe=recipe):
                self.check(f"tiny{recipe}", target="sim:sm_80")
        self.check("tiny", target="sim:sm_89")
        self.check("tiny-int4-weights", target="sim:sm_80", passes="forward")

    def test_boxes_reach_beyond_tensors(self):
        layer = json.loads((LAYERS / "tiny.json").read_text()) | {"hidden": 288, "intermediate": 160}
        (self.folder / "uneven.json").write_text(json.dumps(layer))
        self.check(self.folder / "uneven", target="sim:sm_80")

    def test_bf16_products_have_hoppers_bits(self):
        results = []
        for target in ("sim", "sim:sm_120f"):
            self.succeed("run", LAYERS / "tiny-mxfp8.json", "--target", target, "--pass", "backward", "--output", "out")
            results.append((self.folder / "out").read_bytes())
        self.assertEqual(*results)

    def test_packed_weights_are_unpacked(self):
        for weights in ("tiny-mxfp4", "tiny-int4-weights"):
            with self.subTest(weights=weights):
                self.check(weights, passes="forward")

    def test_ranks_have_the_bits_of_one(self):
        self.check("tiny-ep2", "--ranks", "2")

    def test_what_does_not_run_is_refused(self):
        for command, layer, target, wanted in (
                ("build", "tiny-ep2", "cuda:sm_80", "does not run on target cuda:sm_80, whose GPUs have no bulk copies"),
                ("run", "tiny", "sim:sm_90a", 'unknown target "sim:sm_90a", wanted one of cuda:sm_80')):
            done = self.run_tool(command, LAYERS / f"{layer}.json", "--target", target)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(wanted, done.stderr)


if __name__ == "__main__":
    tool.main()
