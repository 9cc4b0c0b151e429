# SPDX-License-Identifier: Apache-2.0
"""Packs of kernels: building them, what each verb of `moejit pack` does, and serving from them."""
import base64
import json
import os
import shutil
import signal
import subprocess
import time
import zlib

import tool
from pack_file import kernel, pack, pack_of
from tool import TINY

PRIVATE = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEILwxEe+khyh+EqECK4UY+TDcYd7HsT/QXUN3fxNCDKKq
-----END PRIVATE KEY-----
"""
PUBLIC = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAffDzP5z9r9uTxgHCbJ8sUg4s2P3mzUBdDIboJQSL/cU=
-----END PUBLIC KEY-----
"""
OTHER_PUBLIC = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEATQ78xHSZurJfZghAVCrpcWH4mZY7q4PNiaHEhhJATkg=
-----END PUBLIC KEY-----
"""
# Header and signature of pack_of((0, 1, 2)), signed with PRIVATE until 2001-01-31: a moejit that may
# not sign so any more cannot make one.
EXPIRED = zlib.decompress(base64.b64decode(
    "eNrLzU/NKsiW4mJiAAJGBgZmBggIAGIHqBgIVEPFG6D8AzCaCUI7sEPo5iXM6dnz9duWryvkqI1qtsk99u3eHxlu"
    "9oMHPP9HNSkVM5AIGBkoA8Z7Yt7pVd1712S16/+uHysli/gWnNy8eNWUWH+XKX6/fXhzgf4vTpfigtkz9/5ru3nl"
    "YgayUx9dl3z1/hLvPl2FqBPHWk7uXLTpVNxZuHP+L6uwAtGdQW5NUm++WHpbJm+oComT8it/7f6maHPp5MqLPt6L"
    "Jb1idarbrfJft4Wc/bwyX+fwSZE/J/PjT82bGqBizp4mEctEyP0PUipLTr/69+mrwn3rw/YKFmWPbbWk9tc8W6Az"
    "uezS70RWAE3La6k="))


class PackTest(tool.ToolTest):
    def pack(self, numbers=(0, 1, 2), name="some.moejitpack"):
        path = self.write(name, pack_of(numbers))
        path.chmod(0o644)
        return path

    def key(self, name, text):
        path = self.write(name, text)
        path.chmod(0o600)
        return path

    def fail(self, status, *arguments, **environment):
        done = self.run_tool(*arguments, **environment)
        self.assertEqual(done.returncode, status, done.stderr + done.stdout)
        told = [line for line in done.stderr.splitlines() if line.startswith("moejit: ")]
        self.assertEqual(len([line for line in told if not line.startswith("moejit: target")]), 1, told)
        return done.stderr


class Verbs(PackTest):
    def test_ls_lists_kernels(self):
        pack = self.pack()
        listing = self.succeed_json("pack", "ls", pack)
        self.assertEqual((listing["kernels"], listing["bytes"], listing["signatures"]),
                         (3, pack.stat().st_size, []))
        self.assertEqual(listing["manifest"]["targets"], ["cuda:sm_90a"])
        self.assertEqual(sorted(entry["entry"] for entry in listing["entries"]),
                         ["moejit_kernel_0", "moejit_kernel_1", "moejit_kernel_2"])
        self.assertEqual({entry["problem"] for entry in listing["entries"]}, {""})
        text = self.succeed("pack", "ls", pack).stdout
        self.assertIn("moejit_kernel_2", text)
        self.assertIn("3 kernels in ", text)

    def test_ls_shows_any_manifest(self):
        deep = b"[" * 400000 + b"]" * 400000
        for manifest in (deep, b'{"a":' + deep + b"}", deep[:-1], b"\xff", b""):
            odd = self.write("odd.moejitpack", pack(dict([kernel(1)]), manifest))
            self.assertEqual(self.succeed_json("pack", "ls", odd)["kernels"], 1)
            self.succeed("pack", "ls", odd)

    def test_verify_reads_every_byte(self):
        pack = self.pack(range(100))
        self.assertIn("every byte is as it was written", self.succeed("pack", "verify", pack).stdout)
        verified = self.succeed_json("pack", "verify", pack)
        self.assertEqual((verified["problems"], verified["trusted_by"]), ([], "owner and mode"))
        content = bytearray(pack.read_bytes())
        content[-200] ^= 1
        pack.write_bytes(content)
        self.assertIn("1 problem, the first is entry", self.fail(4, "pack", "verify", pack))
        done = self.run_tool("pack", "verify", pack, "--json")
        self.assertEqual(len(json.loads(done.stdout)["problems"]), 1)
        self.assertIn("damaged", self.succeed("pack", "ls", pack).stdout)

    def test_a_pack_may_be_copied_nowhere_but_whole(self):
        content = self.pack().read_bytes()
        for size in (0, 255, 256, 1000, len(content) - 1):
            short = self.write("short.moejitpack", content[:size])
            self.fail(4, "pack", "ls", short)

    def test_what_cannot_be_a_pack_is_an_error(self):
        self.assertIn("No such file", self.fail(3, "pack", "ls", "none.moejitpack"))
        self.assertIn("it is no plain file", self.fail(4, "pack", "verify", self.folder))
        self.assertIn("does not begin as a pack does",
                      self.fail(4, "pack", "ls", self.write("text", "x" * 1000)))
        self.fail(2, "pack")
        self.assertIn("did you mean verify", self.fail(2, "pack", "verfy", "x"))

    def test_others_may_not_write_to_a_pack(self):
        pack = self.pack()
        pack.chmod(0o666)
        self.assertIn("other users may write to it", self.fail(4, "pack", "verify", pack))
        self.assertIn("chmod go-w", self.fail(4, "pack", "verify", pack))
        self.succeed("pack", "ls", pack)

    def test_sign_and_verify(self):
        pack, private, public = self.pack(), self.key("private", PRIVATE), self.key("public", PUBLIC)
        before = self.succeed_json("pack", "ls", pack)["digest"]
        self.assertIn("it has no signature", self.fail(4, "pack", "verify", pack, "--pack-keys", public))
        signed = self.succeed_json("pack", "sign", pack, "--key", private, "--serial", "7",
                                   "--expires", "2999-12-31")
        self.assertEqual((signed["signatures"], signed["digest"]), (1, before))
        listing = self.succeed_json("pack", "ls", pack)
        self.assertEqual([(s["serial"], s["expires"]) for s in listing["signatures"]],
                         [(7, "2999-12-31")])
        pack.chmod(0o666)  # the signature says enough
        verified = self.succeed_json("pack", "verify", pack, "--pack-keys", public)
        self.assertEqual(verified["trusted_by"], "signature")
        self.succeed("pack", "verify", pack, MOEJIT_PACK_KEYS=str(public))
        # Variables outlive the directory in which they were set; options do not.
        self.succeed("pack", "verify", pack, "--pack-keys", public.name)
        done = self.run_tool("pack", "verify", pack, MOEJIT_PACK_KEYS=public.name)
        self.assertEqual(done.returncode, 4)
        self.assertIn(f'MOEJIT_PACK_KEYS is "{public.name}", wanted an absolute path', done.stderr)
        self.assertIn("good until 2999-12-31", self.succeed("pack", "ls", pack).stdout)

        other = self.key("other", OTHER_PUBLIC)
        self.assertIn("which is not in the key ring", self.fail(4, "pack", "verify", pack, "--keys", other))
        later = self.key("later", "least-serial: 8\n" + PUBLIC)
        self.assertIn("its serial is 7, but", self.fail(4, "pack", "verify", pack, "--keys", later))
        old = self.write("old", EXPIRED[:256] + pack_of((0, 1, 2))[256:] + EXPIRED[256:])
        self.assertIn("expired on 2001-01-31", self.fail(4, "pack", "verify", old, "--keys", public))
        self.succeed("pack", "verify", pack, "--keys", public)  # -o left the pack alone

    def test_openssl_agrees_with_the_signature(self):
        if not shutil.which("openssl"):
            self.skipTest("there is no openssl on this machine")
        pack, private = self.pack(), self.key("private", PRIVATE)
        digest = bytes.fromhex(self.succeed_json("pack", "ls", pack)["digest"])
        self.succeed("pack", "sign", pack, "--key", private, "--serial", "3")
        block = pack.read_bytes()[-192:]
        message = self.write("message", b"moejit pack signature 1\n" + digest + block[16:64])
        signature = self.write("signature", block[64:128])
        subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey",
                        self.key("public", PUBLIC), "-rawin", "-in", message, "-sigfile", signature],
                       check=True, stdout=subprocess.DEVNULL)

    def test_sign_says_what_it_cannot_use(self):
        pack, private = self.pack(), self.key("private", PRIVATE)
        self.assertIn("wanted a date", self.fail(2, "pack", "sign", pack, "--key", private,
                                                 "--expires", "2027-02-30"))
        before = pack.read_bytes()
        yesterday = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 24 * 3600))
        self.assertIn(f"--expires is {yesterday}, which is over: every node would refuse the pack",
                      self.fail(2, "pack", "sign", pack, "--key", private, "--expires", yesterday))
        self.assertEqual(pack.read_bytes(), before)
        today = time.strftime("%Y-%m-%d", time.gmtime())  # a day of UTC may end meanwhile
        self.assertIn(self.run_tool("pack", "sign", pack, "--key", private, "--expires", today,
                                    "-o", "today").returncode, (0, 2))
        public = self.key("public", PUBLIC)
        self.assertIn("no private key of Ed25519", self.fail(3, "pack", "sign", pack, "--key", public))
        self.assertIn("no public key in it", self.fail(3, "pack", "verify", pack, "--keys", private))
        content = bytearray(pack.read_bytes())
        content[-100] ^= 1
        pack.write_bytes(content)
        self.fail(4, "pack", "sign", pack, "--key", private)
        self.assertEqual(pack.read_bytes(), bytes(content))

    def test_merge_takes_each_kernel_once(self):
        a, b = self.pack((0, 1), "a.moejitpack"), self.pack((1, 2), "b.moejitpack")
        merged = self.succeed_json("pack", "merge", a, b, "--output", "ab.moejitpack")
        self.assertEqual(merged["kernels"], 3)
        self.assertEqual((self.folder / "ab.moejitpack").read_bytes(), pack_of((0, 1, 2)))
        self.succeed("pack", "merge", b, a, b, "--output", "ba.moejitpack")
        self.assertEqual((self.folder / "ba.moejitpack").read_bytes(), pack_of((0, 1, 2)))

    def test_export_and_merge_go_to_folders_and_back(self):
        pack = self.pack(range(5))
        exported = self.succeed_json("pack", "export", pack, "--output-dir", "kernels")
        self.assertEqual(exported["kernels"], 5)
        listing = self.succeed_json("cache", "verify", "--cache-dir", "kernels")
        self.assertEqual((len(listing["entries"]), listing["damaged"]), (5, 0))
        self.succeed("pack", "merge", "kernels", "--output", "again.moejitpack")
        self.assertEqual((self.folder / "again.moejitpack").read_bytes(), pack.read_bytes())

    def test_neither_takes_what_is_damaged_or_not_trusted(self):
        pack = self.pack()
        pack.chmod(0o622)
        self.fail(4, "pack", "merge", pack, "--output", "out.moejitpack")
        self.fail(4, "pack", "export", pack, "--output-dir", "out")
        pack.chmod(0o600)
        content = bytearray(pack.read_bytes())
        content[-100] ^= 1
        pack.write_bytes(content)
        self.fail(4, "pack", "merge", pack, "--output", "out.moejitpack")
        self.fail(4, "pack", "export", pack, "--output-dir", "out")
        self.assertEqual(os.listdir(self.folder), ["some.moejitpack"])

    def test_env_tells_about_packs(self):
        pack = self.pack()
        found = self.succeed_json("env", MOEJIT_PACKS=str(pack))["pack"]
        self.assertTrue(found["found"])
        self.assertIn("3 kernels, trusted by its owner and mode", found["text"])
        found = self.succeed_json("env", MOEJIT_PACKS=f"{pack}:/nonexistent")["pack 2"]
        self.assertFalse(found["found"])


class Builds(PackTest):
    """Of the target sim, whose kernels can be run here as well."""

    def build(self, pack, *arguments, **environment):
        return self.succeed_json("build", TINY, "--target", "sim", "--pack", pack, "--variants",
                                 "described", *arguments, **environment)

    def test_a_run_is_served_from_a_pack(self):
        built = self.build("sim.moejitpack")
        self.assertEqual(built["pack"]["kernels"], len(built["kernels"]))
        pack = self.folder / "sim.moejitpack"
        report = self.succeed_json("run", TINY, "--target", "sim", "--packs", pack, "--frozen",
                                   "--cache-dir", "empty", MOEJIT_CXX="/nonexistent")
        self.assertEqual((report["compiled"], report["from_cache"], report["from_packs"]),
                         (0, 0, len(report["kernels"])))
        self.assertEqual(self.succeed_json("cache", "ls", "--cache-dir", "empty")["entries"], [])
        again = self.succeed("run", TINY, "--target", "sim", "--cache-dir", "empty",
                             MOEJIT_PACKS=str(pack), MOEJIT_FROZEN="1")
        self.assertIn(f"from packs: {len(report['kernels'])}", again.stdout)

    def test_a_frozen_miss_names_the_build_that_helps(self):
        pack = self.pack()
        error = self.fail(4, "run", TINY, "--target", "sim", "--packs", pack, "--frozen",
                          "--cache-dir", "empty")
        self.assertIn(f"moejit build {TINY} --target sim --pack more.moejitpack", error)
        for options, wanted in ((["--check"], " --with-intermediates"), ([], ""),
                                (["--dump-intermediates", "-o", "out"], " --with-intermediates"),
                                (["--check", "--pass", "backward"], " --variants all")):
            error = self.fail(4, "run", TINY, "--target", "sim", "--frozen", "--cache-dir", "empty",
                              *options)
            self.assertIn(f"moejit build {TINY}{wanted} --target sim --cache-dir ", error)
        layer = self.write("my layer.json", TINY.read_text())
        error = self.fail(4, "build", layer, "--target", "sim", "--packs", pack, "--frozen",
                          "--cache-dir", "empty")
        self.assertIn(f"moejit build '{layer}' --target sim --pack", error)  # as a shell takes it

    def test_a_damaged_pack_is_to_be_copied_again(self):
        built = self.build("sim.moejitpack")
        path = self.folder / "sim.moejitpack"
        content = bytearray(path.read_bytes())
        content[-64] ^= 1  # of the last entry
        path.write_bytes(content)
        done = self.run_tool("build", TINY, "--target", "sim", "--packs", path, "--frozen",
                             "--cache-dir", "empty")
        error = done.stderr
        self.assertEqual(done.returncode, 4, error)
        self.assertRegex(error, "warning: pack .*: entry .* checksum does not match")
        self.assertRegex(error, "has no kernel .* for sim: its entry in pack .*/sim.moejitpack is damaged")
        self.assertIn("hint: copy the pack again, or rebuild it; moejit pack verify", error)
        self.assertNotIn("make it beforehand", error)
        # Where the next pack has it, it is nobody's concern.
        shutil.copy(path, self.folder / "bad.moejitpack")
        self.build("sim.moejitpack")
        served = self.succeed_json("build", TINY, "--target", "sim", "--packs", f"{self.folder}/bad."
                                   f"moejitpack:{path}", "--frozen", "--cache-dir", "empty")
        self.assertEqual(served["from_packs"], len(built["kernels"]))

    def test_packs_have_to_be_there(self):
        self.assertIn("No such file", self.fail(3, "run", TINY, "--target", "sim", "--packs", "none"))
        self.assertIn("it has no signature", self.fail(
            4, "run", TINY, "--target", "sim", "--packs", self.pack(), "--pack-keys",
            self.key("public", PUBLIC)))
        self.fail(2, "build", TINY, "--packs", "a", "--pack", "b")
        self.fail(2, "build", TINY, "--arch", "sm_90a", "--target", "cuda")
        self.fail(2, "build", TINY, "--arch", "sm_10", "--pack", "x.moejitpack")
        self.fail(2, "run", TINY, "--packs", "a", "--no-cache")


class Reproducible(PackTest):
    """With the real compiler of the GPU."""

    def setUp(self):
        super().setUp()
        if not self.succeed_json("env")["compiler of cuda"]["found"]:
            self.skipTest("there is no NVRTC on this machine")

    def arguments(self, name, jobs):
        return ["build", str(TINY), "--arch", "sm_90a", "--cache-dir", name, "--pack",
                f"{name}.moejitpack", "--variants", "described", "--jobs", str(jobs)]

    def start_and_kill(self, program, arguments, cache):
        """Kills a build when it has made a kernel, if it is not done by then."""
        env = {**os.environ, "HOME": str(self.folder)}
        process = subprocess.Popen([program, *arguments], cwd=self.folder, env=env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list((self.folder / cache).glob("v2/??/*")):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def test_a_pack_is_the_same_from_any_prefix_any_jobs_and_after_an_interruption(self):
        done = self.succeed(*self.arguments("one", 1))
        kernels = int(json.loads(self.succeed("pack", "ls", "one.moejitpack", "--json").stdout)["kernels"])
        # Without a terminal there is a line for each kernel.
        self.assertEqual([line.split()[1] for line in done.stderr.splitlines()],
                         [f"{i + 1}/{kernels}" for i in range(kernels)])

        prefix = self.folder / "other prefix" / "bin"
        prefix.mkdir(parents=True)
        moved = prefix / "moejit"
        shutil.copy(tool.moejit, moved)
        self.start_and_kill(moved, self.arguments("two", 2), "two")
        self.assertFalse((self.folder / "two.moejitpack").exists())
        here, tool.moejit = tool.moejit, moved
        try:
            second = self.succeed_json(*self.arguments("two", 2))
        finally:
            tool.moejit = here
        self.assertGreater(second["from_cache"], 0)  # what the killed one had made
        self.assertEqual(second["compiled"] + second["from_cache"], kernels)
        one, two = ((self.folder / f"{name}.moejitpack").read_bytes() for name in ("one", "two"))
        self.assertEqual(one, two)
        self.succeed(*self.arguments("one", 2))  # all from the cache, into the same file
        self.assertEqual((self.folder / "one.moejitpack").read_bytes(), one)

        # Nothing of this machine is in it, and it serves where there is no NVRTC. A short name of a
        # machine may be somewhere in a megabyte of machine code by chance.
        for folder in (self.folder, tool.ROOT):
            self.assertNotIn(str(folder).encode(), one)
        if len(os.uname().nodename) >= 6:
            self.assertNotIn(os.uname().nodename.encode(), one)
        served = self.succeed_json("build", TINY, "--frozen", "--cache-dir", "empty", "--packs",
                                   "one.moejitpack", MOEJIT_NVRTC="/nonexistent")
        self.assertEqual((served["compiled"], served["from_packs"]), (0, kernels))


if __name__ == "__main__":
    tool.main()
