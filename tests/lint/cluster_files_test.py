# SPDX-License-Identifier: Apache-2.0
"""The check of the docs' cluster files refuses what a cluster would refuse."""
import sys
import unittest

import check_cluster_files


class ClusterFiles(unittest.TestCase):
    POD = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
    - {name: serve, image: "serve:1", volumeMounts: [{name: kernels, mountPath: /k}]}
  volumes: [{name: kernels, emptyDir: {}}]
"""

    def findings(self, language, text):
        return check_cluster_files.findings_of("page.md", f"```{language}\n{text}```\n")

    def test_let_a_whole_pod_pass(self):
        self.assertEqual(self.findings("yaml", self.POD), [])

    @unittest.skipIf(check_cluster_files.yaml is None, "no PyYAML")
    def test_refuse_a_pod_that_kubernetes_would_refuse(self):
        for old, new in (("kind: Pod\n", ""), (', image: "serve:1"', ""), ("serve:1", "serve"), ("emptyDir", "}, {"),
                         ("volumes: [{name: kernels", "volumes: [{name: others")):
            self.assertGreater(len(self.findings("yaml", self.POD.replace(old, new))), 0, old)

    def test_refuse_stages_that_are_not_there(self):
        self.assertEqual(self.findings("dockerfile", "FROM debian:12 AS a\nFROM a\nCOPY --from=a /x /x\n"), [])
        for text in ("FROM builder AS a\n", "FROM debian:12\nCOPY --from=a /x /x\n", "RUN true\n"):
            self.assertEqual(len(self.findings("dockerfile", text)), 1, text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
