# SPDX-License-Identifier: Apache-2.0
"""Sentences of docs and comments are short and name what they speak of; docs/style.md, Plain English, has the rule.

A sentence has at most 25 words. A list of `code` words counts as one word, a link by its text. No sentence has a phrase
of UNNAMED or begins as TURNED says, subject last. prose.py says what is no sentence: code, headings, drawings, licences.
The check leaves out the history in the changelog, and what tests/golden holds, which is generated. docs/style.md may
quote what it forbids."""
import re

import prose
import source_tree

LONGEST = 25
CODE = (".h", ".hpp", ".c", ".cpp", ".cuh", ".cu", ".py")
UNNAMED = re.compile(r"\b(?:those of|that of|does the same|does so)\b", re.IGNORECASE)
# "Of two entries the newer one stays", "Ignored are times that ...", but not "Of course" or "Speed is".
TURNED = re.compile(r"Of (?!course)[a-z0-9`]|"
                    r"(?:Also |Not )?(?:[A-Za-z]\w*[^\We]ed|Left out|Known|Given|Made) (?:are|is|were|was)\b")
QUOTES = ("docs/style.md",)
LEFT_OUT = ("docs/CHANGELOG.md", "tests/golden/")

# Files below these paths still break the rules, or only the one about words. Take a path out when its last finding is
# gone; add none.
NOT_YET = ("tests/",)
NOT_YET_SHORT = ("templates/",)


def findings_of(name, text):
    """Sentences about a page or a source file."""
    found = []
    for paragraph in prose.paragraphs_of(name, text):
        for sentence in prose.sentences_of(paragraph.text):
            place = f'{name}:{paragraph.first}: "{sentence[:60]}..."'
            words = len(prose.words_of(sentence))
            if words > LONGEST:
                found.append(f"{place}: {words} words, at most {LONGEST}: split it (docs/style.md, Plain English)")
            if name in QUOTES:
                continue
            if unnamed := UNNAMED.search(prose.CODE_SPAN.sub(prose.NAME, sentence)):
                found.append(f'{place}: "{unnamed[0]}": name the thing (docs/style.md, Plain English)')
            if TURNED.match(sentence):
                found.append(f"{place}: begin with the subject (docs/style.md, Plain English)")
    return found


def shrunk(not_yet, findings):
    """Sentences about paths of the list below which nothing breaks the rule any more."""
    return [f"tests/lint/check_sentences.py: nothing below {path} breaks the rule: take it out of NOT_YET"
            for path in not_yet if not any(finding.startswith(path) for finding in findings)]


def main():
    names = [name for name in source_tree.tracked(".md", *CODE) if not name.startswith(LEFT_OUT)]
    found = [finding for name in names for finding in findings_of(name, source_tree.read(name))]
    left = [finding for finding in found if finding.startswith(NOT_YET) or (
        finding.startswith(NOT_YET_SHORT) and f" words, at most {LONGEST}" in finding)]
    wrong = [finding for finding in found if finding not in left]
    source_tree.finish("sentences", wrong + shrunk(NOT_YET + NOT_YET_SHORT, left), len(names))


if __name__ == "__main__":
    main()
