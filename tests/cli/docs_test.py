# SPDX-License-Identifier: Apache-2.0
"""docs/cli.md has every command and every option of the tool, and no others."""
import re

import tool
from tool import ROOT

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
LISTED = re.compile(r"^  (?:-\w,)?(--[a-z][a-z-]*[a-z](?:,--[a-z-]+)*)", re.MULTILINE)
COMMAND = re.compile(r"^  ([a-z][a-z-]+) +[A-Z]", re.MULTILINE)
# Options that docs/cli.md names in commands of other programs.
OF_OTHERS = {"openssl", "pip"}


def sections(page):
    """{heading: text} of a page."""
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]), **{"": parts[0]})


class Docs(tool.ToolTest):
    def help_of(self, *words):
        return self.succeed(*words, "--help").stdout

    def commands(self):
        return [name for name in COMMAND.findall(self.help_of()) if name not in ("help", "version")]

    def options(self, command):
        """All options of a command and of its verbs, except --help."""
        own = self.help_of(command)
        texts = [own] + [self.help_of(command, verb) for verb in COMMAND.findall(own.partition("Subcommands:")[2])]
        found = {name for text in texts for group in LISTED.findall(text) for name in group.split(",")}
        return found - {"--help"}

    def setUp(self):
        super().setUp()
        self.page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
        self.sections = sections(self.page)
        self.known = {command: self.options(command) for command in self.commands()}

    def test_every_command_has_a_section(self):
        headings = {name.removeprefix("moejit ") for name in self.sections if name.startswith("moejit ")}
        self.assertEqual(set(self.known), headings, "docs/cli.md has the section `## moejit COMMAND` of each command")
        self.assertGreater(len(headings), 10)

    def test_every_option_is_described(self):
        shared = self.sections[""] + self.sections["Options that several commands share"]
        for command, options in self.known.items():
            described = set(OPTION.findall(shared + self.sections[f"moejit {command}"]))
            with self.subTest(command=command):
                self.assertEqual(sorted(options - described), [],
                                 f"docs/cli.md, ## moejit {command}, lacks options of `moejit {command} --help`")

    def test_no_option_is_described_that_does_not_exist(self):
        everywhere = {"--help", "--version", "--verbose"}.union(*self.known.values())
        for number, line in enumerate(self.page.splitlines(), start=1):
            if any(program in line for program in OF_OTHERS):
                continue
            where = f"docs/cli.md:{number}: no such option"
            self.assertEqual(sorted(set(OPTION.findall(line)) - everywhere), [], where)
            for command, rest in re.findall(r"moejit (?:--verbose )?([a-z-]+)((?: [^`|;]*)?)", line):
                if command in self.known:
                    given = set(OPTION.findall(rest)) - {"--help", "--verbose"}
                    self.assertEqual(sorted(given - self.known[command]), [], f"{where} of `moejit {command}`")


if __name__ == "__main__":
    tool.main()
