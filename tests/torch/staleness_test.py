# SPDX-License-Identifier: Apache-2.0
"""Whatever writes to weights between two calls, the second one computes with the weights of its moment.

Each kind of call is a test. Its cells are the writers that make sense there, each with one recipe in turn. The first
kind has all of them, others in turn every fifth of a family and every third of the rest. MOEJIT_STALENESS=all takes all
writers and every recipe.
"""
import collections
import os
import unittest

import torch

from support import DEVICE
import staleness_replacers  # noqa: F401, which adds writers
from staleness_case import NAMES, check
from staleness_kinds import KINDS
from staleness_writers import WRITERS

ALL = os.environ.get("MOEJIT_STALENESS") == "all"
TURN, LONE_TURN = 5, 3  # prime to the number of recipes, so that a writer meets each of them


class Matrix(unittest.TestCase):
    pass


def add_tests(case, kinds):
    """A test of each kind that this device has."""
    for number, kind in enumerate(kinds):
        def test(self, kind=kind, number=number):
            run(self, kind, number)

        if kind.device not in (None, DEVICE.type):
            test = unittest.skip(f"needs {kind.device}")(test)
        setattr(case, "test_" + "".join(letter if letter.isalnum() else "_" for letter in kind.name), test)


def cells(kind, number):
    """(writer, recipe, names of the weights of each round) of all cells of the kind."""
    places = collections.Counter()
    for index, writer in enumerate(WRITERS):
        if writer.sort not in kind.sorts or writer.device not in (None, DEVICE.type):
            continue
        places[writer.family] += 1
        turn = LONE_TURN if writer.family is None else TURN
        if not ALL and kind is not KINDS[0] and (places[writer.family] + number) % turn != 0:
            continue
        recipes = kind.recipes if ALL else {kind.recipes[(index + number) % len(kind.recipes)]}
        rounds = 2 if ALL or kind is KINDS[0] else writer.rounds
        for recipe in sorted(recipes):
            yield writer, recipe, [NAMES[(index // len(kind.recipes) + number + each) % 2] for each in range(rounds)]


def run(test, kind, number):
    torch._dynamo.config.recompile_limit = 64
    shared = {}
    for writer, recipe, names in cells(kind, number):
        with test.subTest(writer=writer.name, recipe=recipe, names=names):
            check(test, writer, kind, recipe, shared, names)


add_tests(Matrix, KINDS)

if __name__ == "__main__":
    unittest.main()
