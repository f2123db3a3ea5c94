"""A member of a group, for the Python clients: commands come in lines on standard input, what happens goes out in lines of JSON.

README.md of the parent folder describes both. A program calls `run` with a class that has the methods of `Member`.
"""

import argparse
import json
import os
import queue
import sys
import threading
import time

AUTO_COMMIT_MS = 200
POLL_S = 0.05


telling = threading.Lock()


def tell(event, **fields):
    line = json.dumps({"at": time.time() * 1000, "event": event, **fields})
    # `print` writes the end of a line on its own, and another thread may come between.
    with telling:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def assigned(partitions, generation=None):
    tell("assigned", partitions=sorted(partitions), generation=generation)


def revoked(partitions):
    tell("revoked", partitions=sorted(partitions))


def record(partition, offset, value):
    tell("record", partition=partition, offset=offset, value=(value or b"").decode())


def absent(why):
    """Says that the client does not have what was asked for, and ends the process."""
    tell("absent", why=why)
    sys.stdout.flush()
    os._exit(0)


def arguments():
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "topic", "group"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--assignor", default="range", choices=("range", "cooperative-sticky"))
    parser.add_argument("--reset", default="earliest", choices=("earliest", "latest", "none"))
    parser.add_argument("--commit", default="manual", choices=("manual", "auto"))
    parser.add_argument("--session-ms", type=int, default=6000)
    parser.add_argument("--heartbeat-ms", type=int, default=300)
    parser.add_argument("--instance")
    return parser.parse_args()


def commands():
    """The commands as they come, lists of words; the end of standard input is the command to leave."""
    waiting = queue.SimpleQueue()

    def read():
        for line in sys.stdin:
            waiting.put(line.split())
        waiting.put(["leave"])

    threading.Thread(target=read, daemon=True).start()
    return waiting


class Member:
    """What `run` needs; every method may raise."""

    def poll(self, seconds):
        """Reads, and calls `record`, `assigned` and `revoked`."""

    def commit(self, note):
        """Commits what was read and waits for the answer; whether the note went along as metadata."""

    def seek(self, partition, offset):
        pass

    def pause(self, partition):
        pass

    def resume(self, partition):
        pass

    def close(self):
        """Leaves the group."""


def carry_out(member, words):
    """One command; whether it was the last."""
    name, rest = words[0], words[1:]
    try:
        if name == "leave":
            member.close()
            return True
        if name == "commit":
            if not member.commit(rest[0]):
                tell("done", command="no-metadata")
        else:
            getattr(member, name)(*map(int, rest))
        tell("done", command=name)
    except Exception as problem:  # told to the case, which judges
        tell("failed", command=name, error=f"{type(problem).__name__}: {problem}")
    return name == "leave"


def run(version, make, owners=True):
    """A member from its first line to its end."""
    tell("hello", version=version, owners=owners)
    member, waiting = make(arguments()), commands()
    while True:
        try:
            member.poll(POLL_S)
        except Exception as problem:  # told to the case, which judges
            tell("failed", command="poll", error=f"{type(problem).__name__}: {problem}")
        while not waiting.empty():
            if carry_out(member, waiting.get()):
                sys.stdout.flush()
                os._exit(0)
