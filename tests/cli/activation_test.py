# SPDX-License-Identifier: Apache-2.0
"""`moejit activation`: what formulas become, and what another compiler makes of them."""
import json
import pathlib
import shutil
import subprocess

import tool


class Activation(tool.ToolTest):

    def test_activation_shows_derivatives_bad_points_and_code(self):
        text = self.succeed("activation", "log(gate) * up").stdout
        self.assertRegex(text, r"(?m)^d / d gate +1 / gate \* up$")
        self.assertRegex(text, r"nearest point without a finite result: gate = 0, up = 0 gives")
        self.assertIn("ptx::natural_logarithm(gate)", text)
        self.assertIn("min(gate, 7)", self.succeed("activation", "clamped_swiglu").stdout)
        self.assertIn("slope(float logit)", self.succeed("activation", "sqrt(relu(logit))").stdout)

    def test_activation_is_checked_by_another_compiler(self):
        if not pathlib.Path(tool.moejit).with_name("moejit-formula").exists():
            self.skipTest("moejit-formula is built where CMake finds LLVM")
        text = self.succeed("activation", "silu(gate) * up", "--check").stdout
        self.assertRegex(text, r"d / d up +right at \d+ places; worst at gate = ")
        told = self.succeed_json("activation", "sqrt(log(1 + exp(logit)))", "--check", "--ir")
        self.assertEqual([each["name"] for each in told["checks"]], ["value", "d / d logit"])
        self.assertTrue(all(each["passed"] and each["places"] > 10000 for each in told["checks"]), told["checks"])
        self.assertIn("define void @formula", told["ir"])
        self.assertIn("@llvm.exp.f32", told["ir"])
        self.assertGreater(told["operations"], 5)

    def test_plans_tell_what_llvm_counts(self):
        described = json.loads(tool.TINY.read_text())
        layer = self.write("layer.json", {**described, "activation": {"expression": "silu(gate) * up"}})
        told = self.succeed("plan", layer, "--explain").stdout
        if pathlib.Path(tool.moejit).with_name("moejit-formula").exists():
            count = self.succeed_json("activation", "silu(gate) * up", "--ir")["operations"]
            self.assertRegex(told, rf"\nactivation .*silu.*: {count} operations of LLVM")
        else:
            self.assertNotIn("LLVM", told)
        self.assertNotIn("LLVM", self.succeed("plan", layer).stdout)
        own, program = self.folder / "moejit", self.folder / "moejit-formula"
        shutil.copy(tool.moejit, own)
        arguments = [own, "plan", layer, "--explain"]
        alone = subprocess.run(arguments, capture_output=True, text=True, check=True)
        self.assertNotIn("LLVM", alone.stdout + alone.stderr)
        program.write_text("#!/bin/sh\necho '{\"operations\": 7, \"llvm\": \"99\"}'\n")
        program.chmod(0o755)
        counted = subprocess.run(arguments, capture_output=True, text=True, check=True)
        self.assertIn(": 7 operations of LLVM 99 for value and derivatives of an element\n", counted.stdout)

    def test_what_is_wrong_is_shown_before_the_error(self):
        own, program = self.folder / "moejit", self.folder / "moejit-formula"
        shutil.copy(tool.moejit, own)
        arguments = [own, "activation", "swiglu", "--check"]
        alone = subprocess.run(arguments, capture_output=True, text=True, check=False)
        self.assertEqual(alone.returncode, 2)
        self.assertIn("hint: build the target moejit_formula", alone.stderr)
        program.write_text("#!/bin/sh\necho value WRONG of $1 with $2\nexit 7\n")
        program.chmod(0o755)
        wrong = subprocess.run(arguments, capture_output=True, text=True, check=False)
        self.assertEqual(wrong.returncode, 7)
        self.assertEqual(wrong.stdout, "value WRONG of swiglu with --check\n")
        self.assertIn("a part of the formula is not what LLVM's code gives", wrong.stderr)


if __name__ == "__main__":
    tool.main()
