# SPDX-License-Identifier: Apache-2.0
"""No class has the name of another one in its namespace: linked into one program, they would share their functions."""
import re

import source_tree

FOLDERS = ("cache/", "cli/", "compiler/", "runtime/", "templates/")
# Text that is no code, then what opens or closes a scope.
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
SCOPE = re.compile(r"\bnamespace\s*(?P<namespace>[\w:]*)\s*\{"
                   r"|\b(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+(?:\[\[\w+\]\]\s*|alignas\([^)]*\)\s*)?"
                   r"(?P<type>\w+)(?P<special>\s*<|::)?[^;{}()=]*\{"
                   r"|(?P<open>\{)|(?P<close>\})")


def types_of(text):
    """Qualified names of the types that a file defines in named namespaces, without those inside of others."""
    names, scopes = [], []
    for match in SCOPE.finditer(NO_CODE.sub('""', text)):
        if match["close"]:
            if scopes:
                scopes.pop()
        elif match["namespace"] is not None:
            scopes.append(match["namespace"] or None)
        else:
            if match["type"] and not match["special"] and None not in scopes:
                names.append("::".join([*scopes, match["type"]]))
            scopes.append(None)
    return names


def findings_of(files):
    """Sentences about types that several files define, given {name of the file: its text}."""
    found, first = [], {}
    for name, text in files.items():
        for each in types_of(text):
            if first.setdefault(each, name) != name:
                found.append(f"{name}: {each} is also defined in {first[each]}: rename one of them")
    return found


def main():
    names = [name for name in source_tree.tracked(".h", ".hpp", ".cpp") if name.startswith(FOLDERS)]
    source_tree.finish("names of types", findings_of({name: source_tree.read(name) for name in names}), len(names))


if __name__ == "__main__":
    main()
