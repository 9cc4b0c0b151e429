# SPDX-License-Identifier: Apache-2.0
"""The docs say what the code has: error codes, environment variables, and links that lead somewhere."""
import re

import source_tree

ERROR_CODE = re.compile(r'^MOEJIT_ERROR_CODE\(\w+, "(\w+)", (\d+), "', re.MULTILINE)
ERROR_ROW = re.compile(r"^\| `(\w+)` \| (\d+) \|", re.MULTILINE)
VARIABLE = re.compile(r'VariableInfo\{Variable::\w+,\s*"(\w+)"')
VARIABLE_ROW = re.compile(r"^\| `([A-Z_]+)` \|", re.MULTILINE)
JSON_SAMPLE = re.compile(r"```json\n(.*?)```", re.DOTALL)
PYTHON_VARIABLE = re.compile(r'(?:os\.environ(?:\.get\(|\[)|is_switched_on\()"(MOEJIT_\w+)"')
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


def differences(what, in_code, in_docs, page):
    found = [f"{page}: {what} {item} is missing" for item in in_code if item not in in_docs]
    found += [f"{page}: {what} {item} does not exist" for item in in_docs if item not in in_code]
    if not in_code:
        found.append(f"no {what} found in the code: the pattern of this check is out of date")
    return found


def dead_links(name, text):
    folder = (source_tree.ROOT / name).parent
    return [f"{name}: the link to {target} leads nowhere" for target in LINK.findall(text)
            if not (folder / target).exists()]


def main():
    errors = ERROR_CODE.findall(source_tree.read("compiler/support/error_codes.inc"))
    variables = VARIABLE.findall(source_tree.read("compiler/support/env.cpp"))
    package = [name for name in source_tree.tracked(".py") if name.startswith("runtime/bindings/python/")]
    of_package = {variable for name in package for variable in PYTHON_VARIABLE.findall(source_tree.read(name))}
    variables += sorted(of_package - set(variables))
    found = differences("error (code, exit status)", errors,
                        ERROR_ROW.findall(source_tree.read("docs/errors.md")), "docs/errors.md")
    found += differences("variable", variables,
                         VARIABLE_ROW.findall(source_tree.read("docs/environment.md")),
                         "docs/environment.md")
    pages = source_tree.tracked(".md")
    for page in pages:
        found += dead_links(page, source_tree.read(page))
    layers = [source_tree.read(name) for name in source_tree.tracked(".json") if "/layers/" in name]
    for sample in JSON_SAMPLE.findall(source_tree.read("README.md")):
        if sample not in layers:
            found.append("README.md: its JSON is none of docs/examples/layers, which are tested")
    readme = source_tree.read("README.md").splitlines()
    if len(readme) > 160:
        found.append(f"README.md: {len(readme)} lines, at most 160")
    source_tree.finish("docs", found, len(errors) + len(variables) + len(pages))


if __name__ == "__main__":
    main()
