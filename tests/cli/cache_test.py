# SPDX-License-Identifier: Apache-2.0
"""`moejit cache`, on entries that this file writes itself: nothing is compiled."""
import hashlib
import json
import os
import shutil
import subprocess
import time

import entry_file
import tool
from tool import TINY

USAGE, FILE, TOOLCHAIN = 2, 3, 4
HOUR = 3600
DEEP = "deeply nested lists"  # stands for these in metadata


class CacheTest(tool.ToolTest):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"

    def path(self, key):
        return self.cache / "v2" / key[:2] / key[2:]

    def put(self, name, fields=(), age=0, payload=b"code", key=None, **metadata):
        key = key or hashlib.sha256(name.encode()).hexdigest()
        path = self.path(key)
        for folder in (self.cache, self.cache / "v2", path.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        metadata = {"entry": name, "target": "sim", "key": [list(field) for field in fields],
                    **metadata}
        text = json.dumps(metadata).replace(json.dumps(DEEP), "[" * 400000 + "]" * 400000)
        path.write_bytes(entry_file.entry(bytes.fromhex(key), text.encode(), payload))
        os.utime(path, times=(0, time.time() - age))
        return key

    def damage(self, key):
        content = bytearray(self.path(key).read_bytes())
        content[-40] ^= 1
        self.path(key).write_bytes(content)

    def refuse(self, arguments, status, *texts):
        done = self.run_tool(*arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        for text in texts:
            self.assertIn(text, done.stderr)
        return done

    def test_ls_and_verify(self):
        good, bad = self.put("good"), self.put("bad")
        self.damage(bad)
        listing = self.succeed_json("cache", "ls")
        self.assertEqual(listing["damaged"], 1)
        self.assertEqual({entry["key"]: entry["problem"] for entry in listing["entries"]},
                         {good: "", bad: "its checksum does not match"})
        self.assertIn(good[:12], self.succeed("cache", "ls").stdout)
        self.refuse(["cache", "verify"], TOOLCHAIN, "1 of 2 cache entries failed", bad[2:])
        self.path(bad).unlink()
        verified = self.succeed("cache", "verify").stdout
        self.assertIn("every byte is as it was written", verified)
        self.assertRegex(verified, r"read in [0-9.]+ s, [0-9]+ MB/s")
        listing = self.succeed_json("cache", "verify")
        self.assertEqual(listing["file_bytes"], sum(entry["file_bytes"] for entry in listing["entries"]))
        self.assertGreater(listing["seconds"], 0)

    def test_show(self):
        key = self.put("gemm", [("target", "sim"), ("source", "12")], usage={"registers": 168})
        shown = self.succeed_json("cache", "show", key[:10])
        self.assertEqual((shown["key"], shown["entry"], shown["target"]), (key, "gemm", "sim"))
        self.assertEqual(shown["fields"], [{"field": "target", "value": "sim"},
                                           {"field": "source", "value": "12"}])
        self.assertEqual(shown["usage"], {"registers": 168})
        text = self.succeed("cache", "show", self.path(key)).stdout
        for part in (key, "registers", "168", "source", "every byte is as it was written"):
            self.assertIn(part, text)
        self.damage(key)
        self.assertIn("its checksum does not match", self.succeed("cache", "show", key).stdout)
        self.refuse(["cache", "show", "0" * 64], USAGE, "no kernel whose key or name begins", "cache ls")

    def test_show_takes_the_name_of_a_kernel(self):
        fc1, fc2 = (self.put(f"moejit_gemm_{gemm}_1234", [("target", "sim"), ("source", gemm)]) for gemm in ("fc1", "fc2"))
        for name in ("moejit_gemm_fc1_1234", "gemm_fc1", "moejit_gemm_fc1"):
            self.assertEqual(self.succeed_json("cache", "show", name)["key"], fc1)
        self.refuse(["cache", "show", "gemm"], USAGE, 'have a name that begins with "gemm"', fc1[:12], fc2[:12])

    def test_show_takes_any_metadata(self):
        key = self.put("deep", usage=DEEP)
        self.assertEqual(self.succeed_json("cache", "show", key)["entry"], "deep")
        self.assertIn("deep", self.succeed("cache", "show", key).stdout)

    def test_tables_do_not_grow_with_what_entries_say(self):
        long = "\u00e9" * 5000 + "\n\x1b[31m"
        key = self.put("odd", [("target", long), (long, long)], entry=long, target="\x1b[2Jsim",
                       usage={long: long})
        other = self.put("other", [("target", "sim")])
        for text in (self.succeed("cache", "ls").stdout, self.succeed("cache", "show", key).stdout,
                     self.succeed("cache", "diff", key, other).stdout,
                     self.succeed("cache", "why", TINY, "--target", "sim").stdout):
            table = [line for line in text.splitlines() if not line.startswith(("entry ", "target "))]
            self.assertLess(max(len(line) for line in table), 500)
            self.assertNotIn("\x1b", "".join(table))
        self.assertEqual(self.succeed_json("cache", "show", key)["entry"], long)

    def test_diff(self):
        common = [("target", "sim"), ("option", "-O1")]
        a = self.put("a", [*common, ("option", "-g"), ("compiler", "c++ 12")])
        b = self.put("b", [*common, ("option", "-O2"), ("compiler", "c++ 13")])
        found = self.succeed_json("cache", "diff", a, b)
        self.assertEqual([(item["field"], item["a"], item["b"]) for item in found["differing"]],
                         [("option", "-g", "-O2"), ("compiler", "c++ 12", "c++ 13")])
        self.assertIn("c++ 13", self.succeed("cache", "diff", a, b).stdout)
        self.assertIn("the same fields", self.succeed("cache", "diff", a, a).stdout)
        other = self.put("other")
        self.refuse(["cache", "diff", a, other], TOOLCHAIN, "does not tell the fields")

    def test_digests_of_headers_are_compared_by_what_is_stored(self):
        digests = ["a" * 64, "b" * 64]
        names = [f"header:moejit_device/core/{name}.cuh" for name in ("math", "types")]
        whole = self.put("whole", zip(names, digests))  # as the earliest versions stored them
        same = self.put("same", zip(names, ["a" * 8, "b" * 8]))
        other = self.put("other", zip(names, ["a" * 8, "c" * 8]))
        folded = self.put("folded", [("header:*", "core/ math aaaaaaaa types bbbbbbbb")])  # as later ones did
        self.assertEqual(self.succeed_json("cache", "show", folded)["fields"],
                         [{"field": "header:*", "value": "core/ math aaaaaaaa types bbbbbbbb"}])
        self.assertIn("the same fields", self.succeed("cache", "diff", whole, same).stdout)
        found = self.succeed_json("cache", "diff", other, whole)["differing"]
        self.assertEqual([(item["field"], item["a"], item["b"]) for item in found],
                         [(names[1], "c" * 8, digests[1])])

    def why(self, *arguments):
        return self.succeed_json("cache", "why", TINY, "--target", "sim", *arguments)

    def test_why_names_the_first_field_in_which_the_nearest_kernel_differs(self):
        empty = self.why()
        self.assertEqual(empty["missing"], len(empty["kernels"]))
        self.assertTrue(all(kernel["nearest"] is None for kernel in empty["kernels"]))
        wanted = empty["kernels"][0]
        # One entry without anything in common tells all fields that are wanted.
        self.put("other", [("nothing", "else")])
        fields = [(item["field"], item["wanted"]) for item in self.why()["kernels"][0]["differing"]
                  if item["wanted"]]
        self.assertEqual(fields[0], ("schema", "1"))
        changed = [(name, "c++ 1.0" if name == "compiler" else value) for name, value in fields]
        nearest = self.put("nearest", changed)
        further = self.put("further", [(name, value if name == "target" else "x")
                                       for name, value in fields])
        found = self.why()["kernels"][0]
        self.assertEqual((found["nearest"], found["first_differing_field"]), (nearest, "compiler"))
        self.assertNotEqual(found["nearest"], further)
        self.assertEqual([item["found"] for item in found["differing"]], ["c++ 1.0"])
        text = self.succeed("cache", "why", TINY, "--target", "sim").stdout
        self.assertIn("differs in compiler: wanted", text)
        self.assertIn("(another compiler)", text)
        # Under its key the kernel is there; damaged, it is told to be so.
        self.put("right", fields, key=wanted["key"])
        self.assertTrue(self.why()["kernels"][0]["is_present"])
        self.assertEqual(self.why()["missing"], len(empty["kernels"]) - 1)
        self.damage(wanted["key"])
        self.assertEqual(self.why()["kernels"][0]["problem"], "its checksum does not match")

    def test_why_compares_a_kernel_with_one_of_the_same_operation(self):
        self.put("other", [("nothing", "else")])
        wanted = self.why()["kernels"][0]
        self.assertFalse(wanted["is_nearest_of_operation"])
        self.assertIn(f"not there; nor is any other {wanted['operation']}\n",
                      self.succeed("cache", "why", TINY, "--target", "sim").stdout)
        # A kernel of another operation is no neighbor, even if fewer fields of its key differ.
        fields = {item["field"]: item["wanted"] for item in wanted["differing"] if item["wanted"]}
        self.put("stranger", {**fields, "entry": "moejit_stranger_1234"}.items())
        other_shape = fields["entry"][:-8] + "zzzzzzzz"
        nearest = self.put("nearest", {**fields, "entry": other_shape, "source": "x", "launch_abi": "y"}.items())
        self.assertEqual(self.why()["kernels"][0]["nearest"], nearest)
        # Both names are as long as a line; what differs is seen.
        self.assertIn(f"wanted ...{fields['entry'][-16:]}, has ...{other_shape[-16:]} (",
                      self.succeed("cache", "why", TINY, "--target", "sim").stdout)

    def test_why_of_a_key(self):
        key = self.put("a")
        self.assertTrue(self.succeed_json("cache", "why", key)["is_present"])
        self.assertIn("in the cache", self.succeed("cache", "why", key[:8]).stdout)
        absent = "ab" * 32
        self.assertIn("never published, evicted or removed",
                      self.succeed("cache", "why", absent).stdout)
        (self.cache / "v2/quarantine").mkdir(exist_ok=True)
        (self.cache / f"v2/quarantine/{absent}-0123456789abcdef").write_text("damaged")
        self.assertTrue(self.succeed_json("cache", "why", absent)["is_quarantined"])
        self.damage(key)
        self.assertIn("damaged: its checksum", self.succeed("cache", "why", key).stdout)

    def test_gc_evicts_what_was_used_longest_ago(self):
        keys = [self.put(f"{i}", age=i * HOUR, payload=b"x" * 1000) for i in range(1, 6)]
        self.assertEqual(self.succeed_json("cache", "gc")["evicted"], 0)
        left = self.succeed_json("cache", "gc", "--max-files", "2")
        self.assertEqual((left["evicted"], left["files"], left["is_within_limits"]), (3, 2, True))
        self.assertEqual([self.path(key).exists() for key in keys], [True, True, False, False, False])
        self.assertEqual(self.succeed_json("cache", "gc", "--max-bytes", "1K")["files"], 0)
        self.put("young")
        done = self.succeed("cache", "gc", "--max-bytes", "1")
        self.assertIn("used in the last 10 minutes", done.stderr)
        self.assertIn("left: 1,", done.stdout)
        self.refuse(["cache", "gc", "--max-bytes", "lots"], USAGE, "--max-bytes", "512M")

    def test_gc_takes_limits_from_the_environment(self):
        for i in range(3):
            self.put(f"{i}", age=HOUR)
        left = self.succeed_json("cache", "gc", MOEJIT_CACHE_MAX_FILES="1")
        self.assertEqual(left["files"], 1)
        done = self.succeed("cache", "gc", MOEJIT_CACHE_MAX_FILES="few")
        self.assertIn('MOEJIT_CACHE_MAX_FILES is "few"', done.stderr)

    def test_stats(self):
        self.put("a", payload=b"x" * 1000)
        self.put("b", age=HOUR)
        stats = self.succeed_json("cache", "stats")
        self.assertEqual((stats["files"], stats["max_files"], stats["max_bytes"]),
                         (2, 65536, 4 << 30))
        self.assertEqual(stats["bytes"], sum(self.path(entry["key"]).stat().st_size for entry in
                                             self.succeed_json("cache", "ls")["entries"]))
        self.assertEqual(stats["counted"]["evicted"], 0)
        self.succeed("cache", "gc", "--max-files", "1")
        self.assertEqual(self.succeed_json("cache", "stats")["counted"]["evicted"], 1)
        self.assertIn("evicted", self.succeed("cache", "stats").stdout)
        unlimited = self.succeed_json("cache", "stats", MOEJIT_CACHE_MAX_BYTES="none")
        self.assertIsNone(unlimited["max_bytes"])
        (self.cache / "v2/stats").write_bytes(b"?" * 100)
        self.assertEqual(self.succeed_json("cache", "stats")["damaged_stats"], 1)

    def test_clear_asks(self):
        key = self.put("a")
        self.refuse(["cache", "clear"], USAGE, "remove all 1 kernels", "--yes")
        self.assertTrue(self.path(key).exists())
        self.assertEqual(self.succeed_json("cache", "clear", "--yes")["removed"], 1)
        self.assertFalse(self.path(key).exists())

    def test_a_folder_that_may_only_be_read_is_not_tidied(self):
        if os.geteuid() == 0:
            self.skipTest("root may write anywhere")
        self.put("a")
        (self.cache / "v2").chmod(0o500)
        self.refuse(["cache", "gc"], TOOLCHAIN, "read-only")
        self.refuse(["cache", "clear", "--yes"], TOOLCHAIN, "read-only")
        (self.cache / "v2").chmod(0o700)


class KeyTest(tool.ToolTest):
    """Keys are functions of what they name, whoever asks for them, where and how."""

    def keys(self, binary=None, prefix=(), cwd=None, **environment):
        env = {"HOME": str(self.folder), "PATH": os.environ["PATH"],
               "MOEJIT_CACHE_DIR": str(self.folder / f"cache{len(prefix)}"), **environment}
        done = subprocess.run([*prefix, binary or tool.moejit, "cache", "why", str(TINY),
                               "--target", "sim", "--json"], cwd=cwd or self.folder, env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [kernel["key"] for kernel in json.loads(done.stdout)["kernels"]]

    def test_keys_do_not_depend_on_the_process_around_them(self):
        wanted = self.keys()
        self.assertGreater(len(wanted), 4)
        moved = self.folder / "elsewhere/bin"
        moved.mkdir(parents=True)
        shutil.copy(tool.moejit, moved / "moejit")
        same = {
            "working directory": {"cwd": "/"},
            "time": {},
            "locale": {"LC_ALL": "tr_TR.UTF-8", "LANG": "de_DE.UTF-8"},
            "time zone": {"TZ": "Asia/Kathmandu"},
            "time of the source": {"SOURCE_DATE_EPOCH": "1"},
            "environment": {"CFLAGS": "-O3", "CPATH": "/tmp", "USER": "somebody", "HOSTNAME": "n1"},
            "number of threads": {"OMP_NUM_THREADS": "1", "prefix": ("taskset", "1")},
            "umask": {"prefix": ("sh", "-c", 'umask 0077; exec "$@"', "sh")},
            "driver": {"MOEJIT_CUDA_DRIVER": "/nonexistent"},
            "install prefix": {"binary": str(moved / "moejit")},
        }
        if os.geteuid() == 0:
            (self.folder / "cache3").mkdir()
            os.chown(self.folder / "cache3", 65534, 65534)
            self.folder.chmod(0o755)
            self.shared.chmod(0o755)
            same["user"] = {"prefix": ("setpriv", "--reuid=65534", "--clear-groups"),
                            "binary": str(moved / "moejit")}
        for what, change in same.items():
            if "prefix" in change and shutil.which(change["prefix"][0]) is None:
                continue
            self.assertEqual(self.keys(**change), wanted, what)

    def test_keys_depend_on_the_compiler(self):
        script = self.folder / "c++"
        script.write_text("#!/bin/sh\nexec c++ \"$@\" | sed 's/^c++ /other /'\n")
        script.chmod(0o755)
        self.assertNotEqual(self.keys(MOEJIT_CXX=str(script)), self.keys())


if __name__ == "__main__":
    tool.main()
