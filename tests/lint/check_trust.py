# SPDX-License-Identifier: Apache-2.0
"""The tests that docs/trust.md names for its promises are there."""
import re

import source_tree

# `Suite.Case`, `.Case` of the suite before, `test_case`, and `cli.script`, a test of CTest.
NAME = re.compile(r"`(\.?[A-Z]\w+(?:\.[A-Z]\w+)?|test_\w+|(?:cli|error)\.\w+)`")
CASE = re.compile(r"\bTEST(?:_F)?\((\w+), (\w+)\)")
METHOD = re.compile(r"\bdef (test_\w+)\(")
SCRIPT = re.compile(r"\bmoejit_add_python_test\((\S+) ")


def known_tests():
    """All names of tests: suites, cases, methods and scripts."""
    names = set()
    for path in source_tree.tracked(".cpp", ".py", "CMakeLists.txt"):
        if not path.startswith("tests/"):
            continue
        text = source_tree.read(path)
        for suite, case in CASE.findall(text):
            names |= {suite, f"{suite}.{case}"}
        names |= {*METHOD.findall(text), *SCRIPT.findall(text)}
    return names


def named_tests(text):
    suite = ""
    for name in NAME.findall(text):
        if name.startswith("."):
            name = suite + name
        elif name[0].isupper() and name.isupper():
            continue  # a variable
        if name[0].isupper():
            suite = name.split(".")[0]
        yield name


def main():
    known = known_tests()
    named = list(named_tests(source_tree.read("docs/trust.md")))
    found = [f"docs/trust.md: there is no test {name}" for name in named if name not in known]
    if len(named) < 30:
        found.append("docs/trust.md names too few tests: the pattern of this check is out of date")
    source_tree.finish("tests of what is trusted", found, len(named))


if __name__ == "__main__":
    main()
