# SPDX-License-Identifier: Apache-2.0
"""Tests of what docs/ makes of results of tests/bench/ranks_bench.py."""
import json
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree

import check_performance

plots = check_performance.generate_ranks_plot
sections_of = check_performance.generate_performance.sections_of


def exchange(ranks, tokens, skew=1):
    return {"ranks": ranks, "tokens": tokens, "skew": skew, "dispatch_us": 300.0, "dispatch_grad_us": 290.0,
            "combine_us": 500.0, "combine_grad_us": 510.0}


def result_of(*lines, **given):
    return {"kind": "expert_parallel", "date": "2026-11-26T00:00:00Z", "command_line": "ranks_bench.py", "ranks": [2, 4],
            "gpu": {"name": "GPU", "sm_count": 132, "count": 4}, "exchange": list(lines), **given}


WIRE = [{"ranks": 4, "push_bytes_per_second": 350e9, "copy_bytes_per_second": 200e9}]


class Floors(unittest.TestCase):

    def test_all_experts_elsewhere_are_all_other_ranks(self):
        sent = check_performance.generate_performance.expert_parallel_sections.other_ranks
        self.assertEqual(sent(2, experts=2, top_k=2), 1)
        self.assertAlmostEqual(sent(2, experts=4, top_k=1), 0.5)

    def test_bytes_cross_the_wire_at_its_rate(self):
        dispatch, combine = plots.floors(result_of(wire=WIRE), 4, 4096)
        self.assertAlmostEqual(dispatch, 4096 * 2.7107 * 7392 / 350e3, delta=0.1)
        self.assertAlmostEqual(combine / dispatch, 14336 / 7392)
        self.assertGreater(plots.floors(result_of(wire=WIRE), 4, 4096, 3)[0], dispatch)

    def test_without_a_wire_there_is_no_floor(self):
        self.assertEqual(plots.floors(result_of(wire=WIRE), 2, 4096), (None, None))


class Pages(unittest.TestCase):

    def test_the_plot_has_a_bar_for_each_figure_and_no_script(self):
        nccl = {"ranks": 4, "tokens": 4096, **{f"{what}_{how}_us": 1000.0 for what in ("dispatch", "combine")
                                              for how in ("payload", "eager")}}
        root = xml.etree.ElementTree.fromstring(
            plots.svg([result_of(exchange(4, 4096), exchange(4, 128), exchange(4, 4096, 3), wire=WIRE, nccl=[nccl])]))
        bars = [each for each in root if each.tag.endswith("rect")]
        self.assertEqual(len(bars), 2 * 4)
        self.assertEqual({each.tag.rpartition("}")[2] for each in root}, {"title", "text", "rect"})

    def test_a_result_without_peers_makes_a_section(self):
        section, = sections_of(result_of(exchange(2, 128)))
        self.assertIn("| 2 | 128 | 300 | 290 | 500 | 510 |", section)

    def test_the_check_wants_the_plot_of_the_results(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "h200-expert-parallel.json").write_text(json.dumps(result_of(exchange(4, 4096), wire=WIRE)))
            self.assertEqual(len(check_performance.plot_findings(folder)), 1)
            (folder / "ranks.svg").write_text(plots.plot(folder))
            self.assertEqual(check_performance.plot_findings(folder), [])


if __name__ == "__main__":
    unittest.main()
