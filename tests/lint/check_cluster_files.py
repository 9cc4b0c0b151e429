# SPDX-License-Identifier: Apache-2.0
"""Files for clusters that the docs show can be used as they are: Kubernetes and Docker would take them. Without PyYAML
(.ci/setup tests) only the Dockerfiles are checked."""
import re

import source_tree

try:
    import yaml
except ImportError:
    yaml = None

BLOCK = re.compile(r"^```(yaml|dockerfile)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FROM = re.compile(r"^FROM (\S+)(?: AS (\w+))?$")
TAGGED = re.compile(r"^[\w./-]+:[\w.-]+$")
COPY_FROM = re.compile(r"^COPY --from=(\S+) ")
KEYS = ("apiVersion", "kind", "metadata", "spec")


def pod_findings(pod):
    """What a cluster would refuse, or what a reader would have to add."""
    found = [f"no {key}" for key in KEYS if key not in pod]
    spec = pod.get("spec", {})
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    mounted = set()
    for container in spec.get("initContainers", []) + spec.get("containers", []):
        name = container.get("name", "?")
        found += [f"container {name} has no {key}" for key in ("name", "image") if key not in container]
        if not TAGGED.match(container.get("image", "a:b")):
            found.append(f"container {name}: its image {container['image']} has no tag")
        for mount in container.get("volumeMounts", []):
            mounted.add(mount["name"])
            if mount["name"] not in volumes:
                found.append(f"container {name} mounts {mount['name']}, which volumes does not declare")
    found += [f"nothing mounts the volume {name}" for name in sorted(volumes - mounted)]
    if not spec.get("containers"):
        found.append("no containers")
    return found


def docker_findings(text):
    """Stages and sources that are not there."""
    found, stages = [], set()
    lines = [line for line in text.replace("\\\n", "").splitlines() if line.strip()]
    if not lines or not FROM.match(lines[0]):
        found.append("it does not begin with FROM")
    for line in lines:
        stage, copied = FROM.match(line), COPY_FROM.match(line)
        if stage:
            if stage.group(1) not in stages and not TAGGED.match(stage.group(1)):
                found.append(f"FROM {stage.group(1)} is neither a stage above nor an image with a tag")
            if stage.group(2):
                stages.add(stage.group(2))
        if copied and copied.group(1) not in stages:
            found.append(f"COPY --from={copied.group(1)} is no stage above")
    return found


def yaml_findings(text):
    if yaml is None:
        return []
    try:
        documents = [document for document in yaml.safe_load_all(text) if document]
    except yaml.YAMLError as error:
        return [f"it is no YAML: {error}"]
    return [finding for document in documents for finding in pod_findings(document)]


def findings_of(name, text):
    found = []
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 1
        check = yaml_findings if block.group(1) == "yaml" else docker_findings
        found += [f"{name}:{line}: {finding}" for finding in check(block.group(2))]
    return found


def main():
    found, blocks = [], 0
    for page in source_tree.tracked(".md"):
        text = source_tree.read(page)
        blocks += len(BLOCK.findall(text))
        found += findings_of(page, text)
    if blocks < 2:
        found.append("no files for clusters found in the docs: the pattern of this check is out of date")
    source_tree.finish("files for clusters", found, blocks)


if __name__ == "__main__":
    main()
