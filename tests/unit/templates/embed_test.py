# SPDX-License-Identifier: Apache-2.0
"""The embedding script: same bytes for the same files, and a clear end where a file cannot be embedded."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[3] / "templates" / "embed.cmake"


class Embed(unittest.TestCase):
    def embed(self, files):
        """Return (exit status, stderr, generated text) of embedding {name: text}."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).write_text(text)
            (root / "list").write_text("".join(f"{root / name}\n" for name in files))
            ran = subprocess.run(
                ["cmake", f"-DROOT={root}", f"-DLIST={root}/list", f"-DOUTPUT={root}/out.cpp", "-P", SCRIPT],
                capture_output=True, text=True, check=False)
            output = root / "out.cpp"
            return ran.returncode, " ".join(ran.stderr.split()), output.read_text() if output.exists() else ""

    def test_does_not_depend_on_the_order_of_the_list_or_on_the_folder(self):
        first = self.embed({"a.h": "int a;\n", "b.h": "int b;\n"})
        second = self.embed({"b.h": "int b;\n", "a.h": "int a;\n"})
        self.assertEqual(first[0], 0)
        self.assertEqual(first[2], second[2])

    def test_keeps_characters_that_cmake_gives_a_meaning(self):
        text = 'a;b [c ${d} "e" \\n )" # no newline at the end'
        self.assertIn(text, self.embed({"a.h": text})[2])

    def test_refuses_a_file_that_is_too_long_for_one_literal(self):
        status, message, output = self.embed({"long.h": "x" * 65536})
        self.assertNotEqual(status, 0)
        self.assertIn("templates/long.h has 65536 bytes", message)
        self.assertEqual(output, "")

    def test_refuses_a_file_that_holds_the_delimiter(self):
        status, message, _ = self.embed({"bad.h": ')moejit_text"'})
        self.assertNotEqual(status, 0)
        self.assertIn("templates/bad.h contains the delimiter", message)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
