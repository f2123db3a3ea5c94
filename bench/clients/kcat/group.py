"""kcat -G: what it prints, told in the lines of a member."""

import os
import re
import signal
import subprocess
import sys
import threading

import member

ASSIGNMENT = re.compile(r"% Group \S+ rebalanced \([^)]*\): (assigned|revoked|incrementally assigned|incrementally revoked): (.*)")
PARTITION = re.compile(r"\[(\d+)\]")


def version():
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout
    return re.search(r"Version (\S+)", said).group(1) + "/" + re.search(r"librdkafka (\S+)", said).group(1)


def tell_assignments(lines):
    for line in lines:
        print(line, end="", file=sys.stderr)
        found = ASSIGNMENT.match(line)
        partitions = [int(p) for p in PARTITION.findall(found.group(2))] if found else []
        if partitions and found.group(1).endswith("assigned"):
            member.assigned(partitions)
        elif partitions:
            member.revoked(partitions)
        elif line.startswith("% ERROR"):
            member.tell("failed", command="poll", error=line.strip())


def tell_records(lines):
    for line in lines:
        if not line.endswith("\n"):
            return  # killed while it printed: not committed
        partition, offset, value = line.rstrip("\n").split(" ", 2)
        member.record(int(partition), int(offset), value.encode())


def tell_apart(kcat):
    """A process outside of the member's group that tells what kcat prints, to the end: `kill -9` of the group must not lose what kcat
    has printed and committed. It ends when kcat does."""
    teller = os.fork()
    if teller == 0:
        os.setsid()
        tellers = [threading.Thread(target=tell_assignments, args=(kcat.stderr,)), threading.Thread(target=tell_records, args=(kcat.stdout,))]
        for thread in tellers:
            thread.start()
        for thread in tellers:
            thread.join()
        sys.stdout.flush()
        os._exit(0)
    kcat.stdout.close()
    kcat.stderr.close()
    return teller


def main():
    options = member.arguments()
    member.tell("hello", version=version(), owners=True)
    if options.assignor != "range":
        member.absent("kcat assigns what librdkafka gives it as a whole, never incrementally")
    settings = {
        "session.timeout.ms": options.session_ms, "heartbeat.interval.ms": options.heartbeat_ms,
        "fetch.wait.max.ms": 100, "partition.assignment.strategy": options.assignor,
        "auto.offset.reset": {"none": "error"}.get(options.reset, options.reset),
        "enable.auto.commit": "true" if options.commit == "auto" else "false", "auto.commit.interval.ms": member.AUTO_COMMIT_MS,
    }
    if options.instance:
        settings["group.instance.id"] = options.instance
    command = ["kcat", "-b", options.bootstrap, "-G", options.group, "-u", "-f", "%p %o %s\n"]
    for name, value in settings.items():
        command += ["-X", f"{name}={value}"]
    kcat = subprocess.Popen(command + [options.topic], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    teller = tell_apart(kcat)
    if sys.stdin.readline().strip() not in ("", "leave"):
        kcat.kill()
        member.absent("kcat takes no commands")
    kcat.send_signal(signal.SIGTERM)
    try:
        kcat.wait(20)
    except subprocess.TimeoutExpired:
        kcat.kill()
        member.tell("failed", command="leave", error="kcat does not end")
    os.waitpid(teller, 0)


main()
