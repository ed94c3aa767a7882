"""Disks that fail on demand: a small file system that can be filled, and a library that fails system calls."""

import atexit
import errno
import os
import pathlib
import sqlite3
import subprocess
import tempfile
import threading

from checks import Skipped

SOURCE = pathlib.Path(__file__).resolve().parent / "failing_disk.c"
BUILDING = threading.Lock()


def library():
    """The library that makes system calls fail, built once for each run.

    It is in the temporary folder, because LD_PRELOAD cannot hold a path with a space.
    """
    built = pathlib.Path(tempfile.gettempdir()) / f"libfailing-{os.getpid()}.so"
    with BUILDING:
        if not built.exists():
            # The build of the binary needs a C compiler for SQLite, so there is one.
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", built, SOURCE, "-ldl"], check=True)
            atexit.register(built.unlink)
    return built


class Disk:
    """Makes system calls fail in processes that are started with `environment`, between `fail` and `mend`."""

    def __init__(self, sandbox):
        self.control = sandbox.folder / "failing"
        self.environment = {"LD_PRELOAD": str(library()), "FAILING": str(self.control)}

    def fail(self, kind, number=errno.EIO):
        """`kind` is `write` or `sync`."""
        aside = self.control.with_suffix(".new")
        aside.write_text(f"{kind} {number}")
        aside.rename(self.control)

    def mend(self):
        self.control.unlink()


class Locked:
    """The ledger's write lock, held by this process as if it were stuck in the middle of a transaction."""

    def __init__(self, sandbox):
        self.database = sqlite3.connect(sandbox.ledger, timeout=20, isolation_level=None, check_same_thread=False)
        self.database.execute("BEGIN IMMEDIATE")

    def let_go(self):
        self.database.execute("ROLLBACK")
        self.database.close()


class Small:
    """A small file system for the ledger, which a test can fill."""

    def __init__(self, sandbox, size="2m"):
        self.folder = sandbox.folder / "small"
        self.folder.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.folder], capture_output=True)
        if mounted.returncode:
            raise Skipped(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
        sandbox.clean_up.append(lambda: subprocess.run(["umount", "-l", self.folder], check=True))
        sandbox.ledger = self.folder / "ledger.db"

    def fill(self):
        with open(self.folder / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError as error:
                assert error.errno == errno.ENOSPC, error

    def free(self):
        os.unlink(self.folder / "filler")
