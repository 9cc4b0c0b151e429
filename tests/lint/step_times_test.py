# SPDX-License-Identifier: Apache-2.0
"""The plot of step times and the sections about transformers' experts say what the results say."""
import json
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import check_performance

step_times = check_performance.generate_step_times
SVG = "{http://www.w3.org/2000/svg}"


def row(implementation, step_ms, mode="eager", **more):
    return {"implementation": implementation, "mode": mode, "step_hot_ms": step_ms, **more}


def result_of(*rows, gpu="NVIDIA H200"):
    return {"kind": "hf_experts", "date": "2026-11-22T12:00:00Z", "gpu": {"name": gpu, "sm_count": 132},
            "command_line": "python3 tests/bench/hf_experts_bench.py",
            "versions": {"python": "3.12", "torch": "2.11.0", "transformers": "5.17.0", "moejit": "0.1.0"},
            "cases": [{"name": "Some <MoE>", "experts": 8, "top_k": 2, "hidden": 64, "intermediate": 32, "tokens": 4096,
                       "reference": "transformers, eager, float32", "results": list(rows)}]}


ROWS = (row("eager", 100.0), row("grouped_mm", 20.0), row("grouped_mm", 16.0, "compiled"),
        row("moejit fp8_flow", 5.0))


class Plot(unittest.TestCase):

    def drawn(self, *rows):
        """Texts and widths of bars by their height in the plot."""
        root = xml.etree.ElementTree.fromstring(step_times.svg([result_of(*rows)]))
        texts = [each.text for each in root.iter(f"{SVG}text")]
        widths = {}
        for bar in root.iter(f"{SVG}rect"):
            widths.setdefault(float(bar.get("y")), []).append(float(bar.get("width")))
        return texts, [widths[y] for y in sorted(widths)]

    def test_bars_are_as_long_as_the_steps_take(self):
        _, (loop, grouped, compiled, ours) = self.drawn(*ROWS)
        self.assertEqual(len(loop), 2, "the bar that does not fit is cut")
        self.assertAlmostEqual(compiled[0] / grouped[0], 0.8, places=3)
        self.assertAlmostEqual(ours[0] / grouped[0], 0.25, places=3)

    def test_no_bar_is_cut_where_all_can_be_seen(self):
        _, widths = self.drawn(row("eager", 30.0), row("grouped_mm", 20.0))
        self.assertEqual([len(parts) for parts in widths], [1, 1])

    def test_names_figures_and_what_is_compared(self):
        texts, _ = self.drawn(*ROWS)
        self.assertIn("Some <MoE>, 4096 tokens, NVIDIA H200", texts)
        self.assertIn("transformers grouped_mm, compiled", texts)
        self.assertIn("100 ms", texts)
        self.assertIn("5.00 ms (4.00 x)", texts)

    def test_nothing_is_compared_without_the_default_of_transformers(self):
        texts, _ = self.drawn(row("grouped_mm", 16.0, "compiled"), row("moejit bf16", 8.0))
        self.assertIn("8.00 ms", texts)

    def test_an_implementation_that_did_not_run_has_no_bar(self):
        failed = {"implementation": "moejit bf16", "mode": "compiled", "error": "no"}
        texts, widths = self.drawn(row("grouped_mm", 16.0), failed)
        self.assertEqual(len(widths), 1)
        self.assertNotIn("moejit bf16, compiled", texts)

    def test_everything_lies_within_the_plot_and_no_script_is_in_it(self):
        plot = step_times.svg([result_of(*ROWS), result_of(*ROWS, gpu="NVIDIA H100")])
        root = xml.etree.ElementTree.fromstring(plot)
        height = float(root.get("height"))
        self.assertTrue(all(float(each.get("y")) < height for each in root if each.get("y")))
        self.assertEqual({each.tag.removeprefix(SVG) for each in root}, {"title", "text", "rect"})


class Folder(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_the_check_wants_the_plot_of_the_results(self):
        self.assertEqual(check_performance.plot_findings(self.folder), [])
        (self.folder / "h200-hf-experts.json").write_text(json.dumps(result_of(*ROWS)))
        self.assertEqual(len(check_performance.plot_findings(self.folder)), 1)
        plot = self.folder / "step_times.svg"
        plot.write_text(step_times.plot(self.folder))
        self.assertEqual(check_performance.plot_findings(self.folder), [])
        plot.write_text(plot.read_text().replace("5.00 ms", "4.00 ms"))
        self.assertEqual(len(check_performance.plot_findings(self.folder)), 1)

    def test_the_check_wants_no_plot_without_results(self):
        (self.folder / "step_times.svg").write_text("<svg/>")
        self.assertEqual(len(check_performance.plot_findings(self.folder)), 1)

    def test_groups_are_in_the_order_of_the_files(self):
        for name in ("h200", "h100"):
            (self.folder / f"{name}-hf-experts.json").write_text(json.dumps(result_of(*ROWS, gpu=name)))
        plot = step_times.plot(self.folder)
        self.assertLess(plot.index("tokens, h100"), plot.index("tokens, h200"))


class Sections(unittest.TestCase):

    def sections(self, result):
        return check_performance.generate_performance.sections_of(result)

    def test_a_case_has_a_row_for_each_implementation(self):
        errors = dict.fromkeys(("y", "dx", "dprobs", "dw1", "dw2"), 0.0661)
        ours = row("moejit fp8_flow", 3.75, "compiled", step_hot_mhz=1410.0, step_cool_ms=3.5, forward_hot_ms=0.88,
                   forward_cool_ms=0.8, peak_bytes=3 << 30, errors=errors | {"y": 0.00412})
        failed = {"implementation": "moejit bf16", "mode": "eager", "error": "moejit: a | b"}
        section, = self.sections(result_of(ours, failed))
        self.assertIn("### Some <MoE>, 4096 tokens: experts of transformers\n", section)
        self.assertIn("| moejit fp8_flow | yes | 3.75 ms | 1410 | 3.50 ms | 880.0 us | 800.0 us | 3.0 GiB | "
                      "0.0041, 0.066, 0.066, 0.066, 0.066 | |", section)
        self.assertIn("| moejit bf16 | | | | | | | | | moejit: a \\| b |", section)

    def test_host_times_have_a_section(self):
        result = result_of()
        del result["cases"]
        result.update(kind="hf_experts_host", recipe="fp8_flow", tokens=16, calls=[
            {"call": "operator moejit::forward", "experts": 64, "whole_us": 37.04, "own_us": 5.5, "cool_own_us": 9.25,
             "driver_us": 31.54, "launches": 8, "waits": 0, "allocations": 4}])
        section, = self.sections(result)
        self.assertIn("| operator moejit::forward | 64 | 5.5 us | 9.2 us | 31.5 us | 37.0 us | 8 | 0 | 4 |", section)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
