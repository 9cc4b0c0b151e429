# SPDX-License-Identifier: Apache-2.0
"""Sentences of docs and comments are short and name what they speak of; docs/style.md, Plain English, has the rule.

A sentence has at most 25 words. A list of `code` words counts as one word, a link by its text. Comments of declarations,
that is of headers and Python files, have none of the phrases in UNNAMED. prose.py says what is no sentence: code,
headings, drawings, licences. Left out are the history in the changelog and what tests/golden holds, which is generated."""
import re

import prose
import source_tree

LONGEST = 25
CODE = (".h", ".hpp", ".c", ".cpp", ".cuh", ".cu", ".py")
DECLARES = (".h", ".hpp", ".cuh", ".py")
UNNAMED = re.compile(r"\b(?:those of|that of|does the same|does so)\b", re.IGNORECASE)
LEFT_OUT = ("docs/CHANGELOG.md", "tests/golden/")

# Files below these paths still break the rule. Take a path out when its last finding is gone; add none.
NOT_YET = ("templates/", "tests/")


def findings_of(name, text):
    """Sentences about a page or a source file."""
    found = []
    for paragraph in prose.paragraphs_of(name, text):
        for sentence in prose.sentences_of(paragraph.text):
            place = f'{name}:{paragraph.first}: "{sentence[:60]}..."'
            words = len(prose.words_of(sentence))
            if words > LONGEST:
                found.append(f"{place}: {words} words, at most {LONGEST}: split it (docs/style.md, Plain English)")
            unnamed = UNNAMED.search(sentence)
            if unnamed and name.endswith(DECLARES):
                found.append(f'{place}: "{unnamed[0]}": name the thing (docs/style.md, Plain English)')
    return found


def shrunk(not_yet, findings):
    """Sentences about paths of the list below which nothing breaks the rule any more."""
    return [f"tests/lint/check_sentences.py: nothing below {path} breaks the rule: take it out of NOT_YET"
            for path in not_yet if not any(finding.startswith(path) for finding in findings)]


def main():
    names = [name for name in source_tree.tracked(".md", *CODE) if not name.startswith(LEFT_OUT)]
    found = [finding for name in names for finding in findings_of(name, source_tree.read(name))]
    wrong = [finding for finding in found if not finding.startswith(NOT_YET)]
    source_tree.finish("sentences", wrong + shrunk(NOT_YET, found), len(names))


if __name__ == "__main__":
    main()
