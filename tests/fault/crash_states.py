# SPDX-License-Identifier: Apache-2.0
"""What a disk may hold after a power cut, out of what a program did to a folder.

The library's FAULT_RECORD tells each change. The disk has for sure what came before the last fsync
of the file or folder that it concerns. Of what came later it has any part, in any order: a name
may be new or old whatever happened to other names, even to the other name of the same rename; and
of a file any of its blocks, with zeros, or with what the disk had there before, in place of the
others. No file system promises less.
"""
import collections
import pathlib
import random

NOISE = random.Random(0).randbytes(1 << 22)


def zeros(size):
    return bytes(size)


def noise(size):
    return NOISE[:size]


class File:
    def __init__(self, content=b""):
        self.durable = content
        self.pending = []  # (offset, bytes), a block or less of each write

    def with_writes(self, writes, fill=zeros):
        """What is durable and some writes, as long as with all of them."""
        end = max([len(self.durable)] + [at + len(data) for at, data in self.pending])
        content = bytearray(self.durable + fill(end - len(self.durable)))
        for at, data in writes:
            content[at:at + len(data)] = data
        return bytes(content)

    def sync(self):
        self.durable, self.pending = self.with_writes(self.pending), []

    def candidates(self):
        """The newest first, then the oldest."""
        every = self.pending
        if not every:
            return [self.durable]
        half = len(every) // 2
        newest = self.with_writes(every)
        parts = [[], every[:half], every[half:], every[1:], every[:-1]]
        found = [newest, self.durable]
        found += [self.with_writes(part, fill) for part in parts for fill in (zeros, noise)]
        found += [newest[:len(self.durable) + 512], newest[:-1]]  # the length may lag behind, too
        return list(dict.fromkeys(found))


class Folder:
    def __init__(self):
        self.names = collections.defaultdict(lambda: [None])  # what each may be, the newest last

    def sync(self):
        for name, candidates in self.names.items():
            self.names[name] = candidates[-1:]


class Disk:
    """A folder and what is done to it."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.inodes = {}
        self.top = self.load(self.root)

    def load(self, path):
        """All that is there now is durable."""
        if path.is_dir():
            inode = Folder()
            for child in path.iterdir():
                inode.names[child.name] = [self.load(child)]
        else:
            inode = File(path.read_bytes())
        self.inodes[path.stat().st_ino] = inode
        return inode

    def place(self, path):
        """The folder and the last part of a path."""
        folder = self.top
        *folders, name = pathlib.Path(path).relative_to(self.root).parts
        for part in folders:
            folder = folder.names[part][-1]
        return folder, name

    def link(self, path, inode):
        folder, name = self.place(path)
        folder.names[name].append(inode)

    def newest(self, path):
        folder, name = self.place(path)
        return folder.names[name][-1]

    def apply(self, change):
        what, inode, *fields = change
        if what == "mkdir":
            self.inodes[inode] = Folder()
            self.link(fields[0], self.inodes[inode])
        elif what == "create":
            self.inodes[inode] = File()
            self.link(fields[0], self.inodes[inode])
        elif what == "write":
            self.inodes[inode].pending.append((int(fields[0]), bytes.fromhex(fields[1])))
        elif what == "sync":
            self.inodes[inode].sync()
        elif what == "rename":
            moved = self.newest(fields[0])
            self.link(fields[1], moved)
            self.link(fields[0], None)
        elif what == "unlink":
            self.link(fields[0], None)
        elif what not in ("open", "times"):  # neither changes names or contents
            raise ValueError(f"{change}: this change is not known here")

    def states(self, most, chance):
        """Up to `most` choices among all that may be on the disk, each {relative path: content or
        None for a folder}; the newest, the oldest, and those that differ from these in one thing
        come first."""
        things = {}  # name or file: number of its candidates, the newest first
        self.collect(self.top, things)
        open_things = [thing for thing, count in things.items() if count > 1]
        wanted = [{}, {thing: -1 for thing in open_things}]
        for base in (0, -1):
            for thing in open_things:
                for choice in range(things[thing]):
                    wanted.append({other: base for other in open_things} | {thing: choice})
        for choices in wanted[:2] + self.pick(wanted[2:], most // 2, chance):
            yield self.state(choices)
        for _ in range(max(0, most - len(wanted))):
            yield self.state({thing: chance.randrange(things[thing]) for thing in open_things})

    @staticmethod
    def pick(choices, most, chance):
        return choices if len(choices) <= most else chance.sample(choices, most)

    def collect(self, folder, things):
        for name, candidates in folder.names.items():
            things[folder, name] = len(candidates)
            for inode in candidates:
                if isinstance(inode, Folder):
                    self.collect(inode, things)
                elif inode is not None:
                    things[inode] = len(inode.candidates())

    def state(self, choices):
        files = {}

        def walk(folder, prefix):
            for name, candidates in folder.names.items():
                inode = candidates[::-1][choices.get((folder, name), 0)]
                if isinstance(inode, Folder):
                    files[prefix + name] = None
                    walk(inode, prefix + name + "/")
                elif inode is not None:
                    files[prefix + name] = inode.candidates()[choices.get(inode, 0)]

        walk(self.top, "")
        return files


def read_changes(record):
    """The lines of FAULT_RECORD, with numbers for inodes."""
    lines = (line.split("\t") for line in pathlib.Path(record).read_text().splitlines())
    return [(what, int(inode), *fields) for what, inode, *fields in lines]


def crash_states(disk, changes, most, again=False, seed=1):
    """(number of changes done, state) for up to `most` states before each fsync, which takes some
    possibilities away, and after the last change. Each state comes once, or with `again` once each
    time that it is possible."""
    chance = random.Random(seed)
    seen = set()
    for done, change in enumerate([*changes, ("end", 0)]):
        if again:
            seen.clear()
        if change[0] in ("sync", "end"):
            for state in disk.states(most, chance):
                content = frozenset(state.items())
                if content not in seen:
                    seen.add(content)
                    yield done, state
        if change[0] != "end":
            disk.apply(change)


def write_state(state, folder):
    """Folders come before what is in them."""
    for name, content in state.items():
        path = pathlib.Path(folder, name)
        if content is None:
            path.mkdir(mode=0o700)
        else:
            path.write_bytes(content)
            path.chmod(0o600)
