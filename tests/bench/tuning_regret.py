#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tells how far the choices of a tuning record are from the best ones.

  python3 tests/bench/tuning_regret.py RECORD JOURNAL

JOURNAL is of `moejit tune --exhaustive`, on the GPU that RECORD is of. For each of its problems the regret is the median
time of the record's choices (of the usual ones where it has no entry) over that of the fastest candidate, less 1. The
fastest of many is partly so by luck: the column "error" is how far the quotient of two medians is known (one standard
error, from the scatter of that very candidate).
"""
import collections
import json
import math
import statistics
import sys


def key_of(choices):
    return json.dumps(choices, sort_keys=True)


def rounds_of(lines):
    """By problem and round: the default's times within the round, and each candidate's time by its choices."""
    rounds = collections.defaultdict(lambda: collections.defaultdict(lambda: ([], {})))
    default = {}
    for line in lines:
        if "candidates" in line:
            default[line["problem"]] = key_of(line["candidates"][0])
        if line.get("place") != "candidate":
            continue
        inner, candidates = rounds[line["problem"]][line["session"], line["round"]]
        choices = key_of(line["choices"])
        if choices == default[line["problem"]]:
            inner.append(line["microseconds"])
        else:
            candidates[choices] = line["microseconds"]
    return rounds


def ratios_of(rounds):
    """By choices: the quotients of a candidate's time and the default's geometric mean of the same round."""
    ratios = collections.defaultdict(list)
    for inner, candidates in rounds.values():
        base = math.exp(statistics.fmean(math.log(us) for us in inner))
        for choices, us in candidates.items():
            ratios[choices].append(us / base)
    return ratios


def regret_of(ratios, chosen):
    """Regret and its error; `chosen` is None for the usual choices, whose ratio is 1."""
    medians = {choices: statistics.median(values) for choices, values in ratios.items()}
    best = min(medians, key=medians.get)
    fastest, own = min(medians[best], 1.0), 1.0 if chosen is None else medians[chosen]
    error = 1.2533 * statistics.stdev(ratios[best]) / math.sqrt(len(ratios[best]))
    return own / fastest - 1.0, error, best if medians[best] < 1.0 else "the usual choices"


def main():
    record = json.load(open(sys.argv[1], encoding="utf-8"))
    lines = [json.loads(line) for line in open(sys.argv[2], encoding="utf-8")]
    chosen = {entry["problem"]: key_of(entry["choices"]) for entry in record["entries"]}
    regrets = []
    print(f"{'regret':>7} {'error':>6} {'candidates':>10}  problem, its choices -> the fastest")
    for problem, rounds in rounds_of(lines).items():
        ratios = ratios_of(rounds)
        own = chosen.get(problem)
        regret, error, best = regret_of(ratios, own if own in ratios else None)
        regrets.append(regret)
        print(f"{100 * regret:6.2f}% {100 * error:5.2f}% {len(ratios):10}  {problem}, {own or 'usual'} -> {best}")
    print(f"{len(regrets)} problems: median {100 * statistics.median(regrets):.2f} %, worst {100 * max(regrets):.2f} %")


if __name__ == "__main__":
    main()
