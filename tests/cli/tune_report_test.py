# SPDX-License-Identifier: Apache-2.0
"""The page of `moejit tune --report`: of journals made by hand, and of a sweep on the simulator."""
import json
import re
import xml.etree.ElementTree

import tool

GPU = {"name": "NVIDIA <H200> & Co", "arch": "sm_90a", "sm_count": 132, "l2_bytes": 62914560, "memory_bus_bits": 6144,
       "memory_megahertz": 3201, "most_megahertz": 1980, "power_limit_watts": 700}
USUAL, FAST, SLOW, BROKEN = [{"band_tiles": bands, "stages": 4} for bands in (16, 4, 8, 2)]
EVIL = "</td><script>alert('x')</script> & \"q\" \u0001"
GEMMS = {"gemms": [{"name": "small", "operation": "grouped_gemm", "groups": 1, "rows_per_group": 8, "n": 128, "k": 128}]}


def text_of(element):
    return " ".join("".join(element.itertext()).split())


class Page:
    """A page, read as XML."""

    def __init__(self, path):
        self.source = path.read_bytes().decode("utf-8")
        self.root = xml.etree.ElementTree.fromstring(self.source)
        self.sections = list(self.root.iter("section"))

    def values(self, element=None):
        """The numbers of the page in full precision."""
        return [float(data.get("value")) for data in (self.root if element is None else element).iter("data")]

    @staticmethod
    def marks(element, name):
        return [mark for mark in element.iter() if name in mark.get("class", "").split()]


class TuneReport(tool.ToolTest):
    keeps_kernels = True

    def journal(self, *problems, sessions=1):
        """The path of a journal; each problem is a function that gives its lines of a session."""
        lines = []
        for session in range(sessions):
            context = {"date": f"2026-12-0{session + 1}", "version": "0.1.0", "cuda_version": "13.0"}
            lines.append({"journal": "moejit-tuning-journal-1", "session": f"s{session}", "gpu": GPU, "context": context})
            for problem in problems:
                lines += [{"session": f"s{session}", **line} for line in problem(session)]
        return self.write("made.journal", "".join(json.dumps(line) + "\n" for line in lines))

    @staticmethod
    def race(name, rounds=6, clocks=True, detail=EVIL):
        """A problem whose second candidate gains ten percent, whose third is slow, whose fourth spills."""
        def lines(_):
            yield {"problem": name, "candidates": [USUAL, FAST, SLOW, BROKEN]}
            yield {"problem": name, "choices": BROKEN, "fault": "spills", "detail": detail}
            for i in range(rounds):
                told = {"megahertz": 1400 + i, "watts": 690.5} if clocks else {}
                timed = [("default_first", USUAL, 1000.0), ("candidate", FAST, 900.0 + 0.1 * i),
                         ("candidate", SLOW, 1300.0), ("default_last", USUAL, 1001.0 if i % 2 else 1000.0)]
                for place, choices, us in timed:
                    if choices is not SLOW or i < 2:
                        yield {"problem": name, "round": i + 1, "place": place, "choices": choices, "microseconds": us,
                               **told}
        return lines

    def report(self, journal, *more):
        self.succeed("tune", "--replay", journal, "--report", "page.html", *more)
        return Page(self.folder / "page.html")

    def check_is_self_contained(self, page):
        self.assertTrue(page.source.startswith("<!DOCTYPE html>\n<html"), page.source[:60])
        self.assertNotIn("<script", page.source.lower())
        self.assertIsNone(re.search(r"https?:|url\(|@import|<link|<img|<iframe|\ssrc=|\son\w+=", page.source))
        self.assertIsNone(re.search(r"<(td|th|p|div|span|a|dd|dt|h[1-6]|pre|text|title)( [^<>]*)?/>", page.source))
        self.assertIsNone(re.search(r"\b(nan|inf)\b", page.source, re.IGNORECASE))
        for svg in page.root.iter("svg"):
            self.assertTrue(svg.get("aria-label"))

    def test_every_block_is_a_dot_and_every_candidate_a_row(self):
        page = self.report(self.journal(self.race("fc1 k=128"), self.race("fc2 k=256", rounds=7)))
        self.check_is_self_contained(page)
        self.assertEqual([text_of(next(s.iter("h2"))) for s in page.sections], ["Problem 1", "Problem 2"])
        self.assertEqual([len(page.marks(section, "block")) for section in page.sections], [3 * 6 + 2, 3 * 7 + 2])
        for section, name in zip(page.sections, ("fc1 k=128", "fc2 k=256")):
            self.assertEqual(text_of(page.marks(section, "name")[0]), name)
            self.assertEqual([text_of(cell) for cell in page.marks(section, "candidate")],
                             ["band_tiles=16 stages=4", "band_tiles=4 stages=4", "band_tiles=8 stages=4",
                              "band_tiles=2 stages=4"])
            self.assertEqual([text_of(row.find("td")) for row in page.marks(section, "winner") if row.tag == "tr"],
                             ["band_tiles=4 stages=4"])
            outcomes = [text_of(row.findall("td")[-1]) for row in section.iter("tr") if row.find("td") is not None]
            self.assertEqual(outcomes, ["usual choices", "winner", "dropped after 2 rounds", "ruled out: spills"])

    def test_dots_lie_where_their_ratios_are(self):
        section = self.report(self.journal(self.race("fc1"))).sections[0]
        ticks = {}
        for label in Page.marks(section, "middle"):
            if re.fullmatch(r"\d\.\d+", text_of(label)):
                ticks[float(label.text)] = float(label.get("x"))
        low, high = min(ticks), max(ticks)
        dots = [dot for dot in Page.marks(section, "block") if "dot-winner" in dot.get("class")]
        self.assertEqual(len(dots), 6)
        for i, dot in enumerate(dots):
            ratio = (900.0 + 0.1 * i) / (1000.0 * (1001.0 if i % 2 else 1000.0)) ** 0.5
            wanted = ticks[low] + (ratio - low) / (high - low) * (ticks[high] - ticks[low])
            self.assertAlmostEqual(float(dot.get("cx")), wanted, delta=0.1)
            self.assertIn(f"round {i + 1}: ", text_of(dot))

    def test_numbers_are_those_of_the_record(self):
        page = self.report(self.journal(self.race("fc1")), "--output", "record.json")
        entry, = json.loads((self.folder / "record.json").read_text())["entries"]
        row, = page.marks(page.root, "race")
        self.assertEqual(page.values(row)[:4],
                         [entry["ratio"], entry["default_microseconds"], entry["microseconds"], entry["rounds"]])
        self.assertEqual(text_of(row.findall("td")[3]), f"\u2212{100 - 100 * entry['ratio']:.1f} %")
        self.assertIn("Settled after 6 rounds. Fastest: band_tiles=4 stages=4", text_of(page.sections[0]))
        summary = self.succeed_json("tune", "--replay", "made.journal")
        facts = dict(zip((text_of(t) for t in page.root.iter("dt")), page.values()))
        self.assertEqual(facts, {"problems": summary["problems"], "settled": summary["settled"],
                                 "with a gain": summary["gains"], "candidates": summary["candidates"],
                                 "ruled out": summary["faults"]})

    def test_shares_of_the_estimated_time_are_shown_where_they_are_known(self):
        def with_share(session):
            for line in self.race("fc1")(session):
                yield dict(line, estimated_share=0.234) if "candidates" in line else line
        page = self.report(self.journal(with_share, self.race("fc2")))
        known, unknown = page.marks(page.root, "race")
        self.assertEqual(text_of(known.findall("td")[-1]), "23 %")
        self.assertEqual(page.values(known)[-1], 0.234)
        self.assertEqual(text_of(unknown.findall("td")[-1]), "unknown")

    def test_clocks_are_shown_where_they_are_known(self):
        known = self.report(self.journal(self.race("fc1"))).sections[0]
        self.assertIn("clock of the SMs, MHz", text_of(known))
        self.assertIn("power, W", text_of(known))
        self.assertEqual(len(list(known.iter("polyline"))), 2)
        self.assertIn("round 6: 1405", [text_of(title) for title in known.iter("title")])
        unknown = self.report(self.journal(self.race("fc1", clocks=False))).sections[0]
        self.assertIn("Clock: unknown. Power: unknown.", text_of(unknown))
        self.assertEqual(list(unknown.iter("polyline")), [])

    def test_six_rounds_are_needed_for_noise_and_intervals(self):
        section = self.report(self.journal(self.race("fc1", rounds=5))).sections[0]
        self.assertIn("Not settled after 5 rounds.", text_of(section))
        self.assertIn("Noise of the usual choices: unknown", text_of(section))
        self.assertEqual(Page.marks(section, "shade") + Page.marks(section, "interval"), [])
        section = self.report(self.journal(self.race("fc1", rounds=6))).sections[0]
        self.assertNotIn("unknown;", text_of(section))
        self.assertEqual(len(Page.marks(section, "interval")), 1)
        self.assertEqual(len(Page.marks(section, "shade")), 2)  # one in the legend

    def test_hostile_names_and_logs_are_text(self):
        page = self.report(self.journal(self.race("fc1 " + EVIL)))
        self.check_is_self_contained(page)
        shown = EVIL.replace("\u0001", "\ufffd")
        self.assertEqual(text_of(page.marks(page.root, "name")[0]), "fc1 " + shown)
        self.assertEqual([text_of(log) for log in page.root.iter("pre")], [shown])
        self.assertIn("NVIDIA <H200> & Co", text_of(page.root.find(".//header")))

    def test_a_round_that_was_cut_off_is_left_out_and_told(self):
        def cut(session):
            yield from self.race("fc1")(session)
            yield {"problem": "fc1", "round": 7, "place": "default_first", "choices": USUAL, "microseconds": 1000}
        section = self.report(self.journal(cut)).sections[0]
        self.assertEqual(len(Page.marks(section, "block")), 20)
        self.assertIn("1 block of a round that was cut off", text_of(section))

    def test_sessions_and_their_dates_are_told(self):
        page = self.report(self.journal(self.race("fc1", rounds=3), sessions=2))
        self.assertIn("measured 2026-12-01, 2026-12-02 with moejit 0.1.0", text_of(page.root.find(".//header")))
        self.assertIn("next session", text_of(page.sections[0]))
        # The slow one was dropped in the first session.
        self.assertIn("2 blocks came after the race was decided for that candidate", text_of(page.sections[0]))
        self.assertEqual(len(page.marks(page.sections[0], "block")), 2 * (3 * 3 + 2))

    def test_a_sweep_has_its_report(self):
        self.write("gemms.json", GEMMS)
        self.succeed("tune", "--gemms", "gemms.json", "--target", "sim", "--block-ms", "0.001", "--heat-seconds", "0",
                     "--output", "record.json", "--report", "page.html")
        page = Page(self.folder / "page.html")
        self.check_is_self_contained(page)
        lines = [json.loads(line) for line in (self.folder / "record.json.journal").read_text().splitlines()]
        self.assertEqual(len(page.marks(page.root, "block")), len([line for line in lines if "microseconds" in line]))
        listed = sorted(text_of(cell) for cell in page.marks(page.root, "candidate"))
        self.assertEqual(listed, sorted(" ".join(f"{knob}={value}" for knob, value in sorted(choices.items()))
                                        for choices in lines[1]["candidates"]))
        self.assertEqual(text_of(page.marks(page.root, "name")[0]), lines[1]["problem"])

    def test_files_that_cannot_be_written_are_told(self):
        journal = self.journal(self.race("fc1"))
        done = self.run_tool("tune", "--replay", journal, "--report", "/nowhere/page.html")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("/nowhere/page.html", done.stderr)
        done = self.run_tool("tune", "--replay", journal, "--report", "")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("the name is empty", done.stderr)
        for option in ("--report", "--output"):
            done = self.run_tool("tune", "--replay", journal, option, "-")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"{option}: got -, wanted the name of a file; ./- is a file of this name", done.stderr)

    def test_a_report_is_of_something_measured(self):
        self.write("gemms.json", GEMMS)
        for option in ("--dry-run", "--compile-only"):
            done = self.run_tool("tune", "--gemms", "gemms.json", option, "--report", "page.html")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--report", done.stderr)
        # A sweep that ended before the first round.
        page = self.report(self.journal(self.race("fc1", rounds=0)))
        self.assertIn("Not measured.", text_of(page.sections[0]))
        self.assertEqual(Page.marks(page.root, "block"), [])


if __name__ == "__main__":
    tool.main()
