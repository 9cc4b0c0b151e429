# SPDX-License-Identifier: Apache-2.0
"""Reads prose out of Markdown pages and out of comments: paragraphs, and the sentences in them.

Not prose, and left out: fenced and indented code, headings, link definitions, and in comments the licence, tables and
drawings (lines that are indented by two blanks or more, or have three blanks inside). Each cell of a page's table is a
paragraph."""
import ast
import dataclasses
import io
import re
import tokenize

FENCE = re.compile(r"^\s*(?:```|~~~)")
ITEM = re.compile(r"(?:[-*+]|\d+\.) +")
TABLE = re.compile(r"\s*\|")
CELL_END = re.compile(r"(?<!\\) \| ")
COLUMNS = re.compile(r"\S {3,}\S|^SPDX-License")
HEADING = re.compile(r"#+ ")
DEFINITION = re.compile(r"\[[^\]]+\]: ")
# A line with a // comment: strings and characters before it are skipped.
CPP_COMMENT = re.compile(r"""^((?:[^"'/]|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'|'|/(?![/*]))*)//+(?!/)(.*)$""")

CODE_SPAN = re.compile(r"(`+).+?\1")
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\](?:\([^)\s]*\)|\[[^\]]*\])")
TAG = re.compile(r"</?\w+[^>]*>")
NAME = "\N{WHITE SQUARE}"
NAMES = re.compile(rf"{NAME}(?:(?:, (?:and |or )?| and | or | to |/| / ){NAME})+")
END = re.compile(r"""[.!?][)\]"'*_]*(?=\s|$)""")
ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|vs|cf)|\.\.)\.$")


@dataclasses.dataclass
class Paragraph:
    first: int  # number of its first line
    lines: list  # texts without marks and indentation
    last: int = 0

    @property
    def text(self):
        return " ".join(self.lines)


def split_paragraphs(numbered, is_comment):
    """Paragraphs of [(line number, text behind the mark or None)]; None and empty lines divide them."""
    paragraphs, current, in_item, in_fence = [], None, False, False
    for number, text in numbered:
        stripped = (text or "").strip()
        indent = len(text or "") - len((text or "").lstrip())
        if FENCE.match(text or ""):
            in_fence, current = not in_fence, None
        elif in_fence or not stripped or TABLE.match(text) or DEFINITION.match(stripped) or (
                not is_comment and HEADING.match(text)):
            current, in_item = None, in_item and not stripped
        elif ITEM.match(stripped):
            mark = ITEM.match(stripped).end()
            current, in_item = Paragraph(number, [stripped[mark:]], number), True
            paragraphs.append(current)
        elif (indent >= (2 if is_comment else 4) and not in_item) or (is_comment and COLUMNS.search(stripped)):
            current = None
        elif current is None or (is_comment and in_item and indent == 0):
            current = Paragraph(number, [stripped], number)
            in_item = in_item and indent > 0
            paragraphs.append(current)
        else:
            current.lines.append(stripped)
            current.last = number
    return paragraphs


def page_paragraphs(text):
    lines = list(enumerate(text.splitlines(), start=1))
    cells = [Paragraph(number, [cell.strip()], number) for number, line in lines if TABLE.match(line)
             for cell in CELL_END.split(line.strip().strip("|"))]
    return split_paragraphs(lines, is_comment=False) + cells


def comment_groups(rows):
    """Rows (number, column, text, is alone on its line) in groups: a line alone goes on with the one above it."""
    groups = []
    for number, column, text, is_alone in rows:
        if is_alone and groups and groups[-1][-1][:2] == (number - 1, column):
            groups[-1].append((number, column, text, is_alone))
        else:
            groups.append([(number, column, text, is_alone)])
    return groups


def of_groups(rows):
    paragraphs = []
    for group in comment_groups(rows):
        numbered = [(number, text[1:] if text.startswith(" ") else text) for number, _, text, _ in group]
        paragraphs += split_paragraphs(numbered, is_comment=True)
    return paragraphs


def cpp_paragraphs(text):
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = CPP_COMMENT.match(line) if "//" in line else None
        if match:
            rows.append((number, len(match[1]), match[2], not match[1].strip()))
    return of_groups(rows)


def docstring_paragraphs(text):
    paragraphs = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if not node.body or not ast.get_docstring(node, clean=False):
            continue
        first = node.body[0].value
        lines = ast.get_docstring(node, clean=False).split("\n")
        margin = first.col_offset
        rest = [line[margin:] if not line[:margin].strip() else line for line in lines[1:]]
        paragraphs += split_paragraphs(list(enumerate([lines[0], *rest], start=first.lineno)), is_comment=True)
    return paragraphs


def python_paragraphs(text):
    lines = text.splitlines()
    rows = [(token.start[0], token.start[1], token.string[1:], not lines[token.start[0] - 1][:token.start[1]].strip())
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT and not token.string.startswith("#!")]
    return sorted(of_groups(rows) + docstring_paragraphs(text), key=lambda paragraph: paragraph.first)


def paragraphs_of(name, text):
    if name.endswith(".md"):
        return page_paragraphs(text)
    return python_paragraphs(text) if name.endswith(".py") else cpp_paragraphs(text)


def sentences_of(text):
    """The sentences of a paragraph, as they are written."""
    hidden = CODE_SPAN.sub(lambda match: NAME * len(match[0]), text)
    sentences, start = [], 0
    for match in END.finditer(hidden):
        if ABBREVIATION.search(hidden[:match.end()]) and match.end() < len(hidden):
            continue
        sentences.append(text[start:match.end()].strip())
        start = match.end()
    return [sentence for sentence in [*sentences, text[start:].strip()] if sentence]


def words_of(sentence):
    """What counts as a word: links by their text, a `code` span once, a list of code spans once."""
    plain = LINK.sub(r"\1", sentence)
    plain = LINK.sub(r"\1", plain)
    plain = NAMES.sub(NAME, CODE_SPAN.sub(NAME, TAG.sub("", plain)))
    return [word for word in plain.split() if NAME in word or any(char.isalnum() for char in word)]
