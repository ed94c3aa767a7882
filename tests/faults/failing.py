"""Disks that fail on demand: a small file system that can be filled, and a library that fails system calls."""

import errno
import os
import pathlib
import sqlite3
import subprocess
import threading

from checks import Skipped

SOURCE = pathlib.Path(__file__).resolve().parent / "failing.c"
BUILDING = threading.Lock()


def library(binary):
    """The library that fails calls, built once beside the binary."""
    built = pathlib.Path(binary).resolve().parent / "libfailing.so"
    with BUILDING:
        if not built.exists() or built.stat().st_mtime < SOURCE.stat().st_mtime:
            # Where the binary was built, a compiler of C was there to build SQLite.
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", built, SOURCE, "-ldl"], check=True)
    return built


class Disk:
    """Fails system calls of processes that are started with `environment`, between `fail` and `mend`."""

    def __init__(self, place):
        self.control = place.folder / "failing"
        self.environment = {"LD_PRELOAD": str(library(place.binary)), "FAILING": str(self.control)}

    def fail(self, kind, number=errno.EIO):
        """`kind` is `write` or `sync`."""
        aside = self.control.with_suffix(".new")
        aside.write_text(f"{kind} {number}")
        aside.rename(self.control)

    def mend(self):
        self.control.unlink()


class Locked:
    """The ledger's write lock, held by this process as by another one that is stuck in the middle of a transaction."""

    def __init__(self, place):
        self.database = sqlite3.connect(place.ledger, timeout=20, isolation_level=None, check_same_thread=False)
        self.database.execute("BEGIN IMMEDIATE")

    def let_go(self):
        self.database.execute("ROLLBACK")
        self.database.close()


class Small:
    """A file system of its own for the ledger, which can be filled up."""

    def __init__(self, place, size="2m"):
        self.folder = place.folder / "small"
        self.folder.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.folder], capture_output=True)
        if mounted.returncode:
            raise Skipped(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
        place.clean_up.append(lambda: subprocess.run(["umount", "-l", self.folder], check=True))
        place.ledger = self.folder / "ledger.db"

    def fill(self):
        with open(self.folder / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError as error:
                assert error.errno == errno.ENOSPC, error

    def free(self):
        os.unlink(self.folder / "filler")
