# SPDX-License-Identifier: Apache-2.0
"""docs/promises.md: every test that a row names is in the sources, and every link leads to a page and its heading."""
import ast
import difflib
import re

import source_tree

PAGE = "docs/promises.md"
GTEST = re.compile(r"^ *(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)">')
CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def tests_of(name, text):
    """The names by which a row may call the tests of a file: the file's own, and its cases'."""
    if name.endswith(".cpp"):
        return {name, *(f"{suite}.{case}" for suite, case in GTEST.findall(text))}
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    return {name, *(f"{name}::{each.name}.{case.name}" for each in classes for case in each.body
                    if isinstance(case, ast.FunctionDef) and case.name.startswith("test"))}


def anchors_of(text):
    """What may follow # in a link to a page."""
    headings = HEADING.findall(CODE_BLOCK.sub("", text))
    words = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).lower() for heading in headings]
    return {heading.replace(" ", "-") for heading in words} | set(ANCHOR.findall(text))


def rows_of(text):
    """(line, promise, tests) of each row of the page's tables."""
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| ") and not line.startswith("| promise |"):
            rows.append((number, cells[0], " | ".join(cells[1:])))
    return rows


def link_findings(text, page_text):
    """Sentences about links. `page_text` gives the text of a file beside the page, or None."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        for page, anchor in LINK.findall(line):
            target = page_text(page)
            if target is None:
                found.append(f"{PAGE}:{number}: the link to {page} leads nowhere")
            elif anchor and anchor not in anchors_of(target):
                found.append(f"{PAGE}:{number}: {page} has no heading #{anchor}")
    return found


def findings_of(text, tests, page_text):
    """Sentences about the page. `tests` are all names of tests."""
    found, seen = link_findings(text, page_text), {}
    for number, promise, named in rows_of(text):
        place = f"{PAGE}:{number}"
        if not LINK.search(promise):
            found.append(f"{place}: no link to the page that makes the promise")
        words = LINK.sub("", promise)
        if words in seen:
            found.append(f"{place}: the promise of line {seen[words]} again")
        seen.setdefault(words, number)
        names = re.findall(r"`([^`]+)`", named)
        if not names:
            found.append(f"{place}: no test is named; write one, or take the promise back")
        for name in names:
            if name not in tests:
                near = difflib.get_close_matches(name, tests, 1)
                found.append(f"{place}: no test is called {name}" + (f"; did you mean {near[0]}?" if near else ""))
    return found


def main():
    tests = set()
    for name in source_tree.tracked(".cpp", ".py"):
        if name.startswith("tests/"):
            tests |= tests_of(name, source_tree.read(name))

    def page_text(name):
        path = source_tree.ROOT / "docs" / name
        return path.read_text(encoding="utf-8") if path.is_file() else None

    text = source_tree.read(PAGE)
    rows = rows_of(text)
    found = findings_of(text, tests, page_text)
    if not rows:
        found.append(f"{PAGE}: no row was found: the pattern of this check is out of date")
    source_tree.finish("promises", found, len(rows))


if __name__ == "__main__":
    main()
