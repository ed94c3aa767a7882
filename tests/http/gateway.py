"""Starts the gateway as a user does, and stops it."""

import pathlib
import re
import signal
import ssl
import subprocess
import tempfile
import threading
import urllib.request


class Gateway:
    def __init__(self, binary, upstream, options=(), folder=None, configuration=None, command=None):
        """From the command line alone, or from a file: `configuration` is what it says, without where it listens. Or just as
        a `command` says that somebody else has written."""
        self.own_folder = None if folder else tempfile.TemporaryDirectory()
        folder = pathlib.Path(folder or self.own_folder.name)
        # It is started elsewhere.
        binary = pathlib.Path(binary).resolve()
        if command:
            assert command[0] == "onceward", command
            command = [str(binary), *command[1:]]
        elif configuration:
            (folder / "onceward.toml").write_text(f'[gateway]\nlisten = "127.0.0.1:0"\n{configuration}')
            command = [str(binary), "serve", "--config", str(folder / "onceward.toml")]
            command += ["--store", str(folder / "ledger.db"), *options]
        else:
            command = [str(binary), "gateway", "--upstream", upstream, "--listen", "127.0.0.1:0"]
            command += ["--store", str(folder / "ledger.db"), *options]
        self.log = open(folder / "log", "w+")
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.first_line()
        found = re.search(r"listens on (https?://\S+)", line)
        if not found:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"{' '.join(command)}\nsaid {line!r} and {self.errors()}")
        self.url = found.group(1).rstrip("/")
        # Whose certificate it has is not asked here.
        anybody = ssl._create_unverified_context()
        with urllib.request.urlopen(f"{self.url}/.well-known/onceward/ready", timeout=10, context=anybody) as ready:
            assert ready.status == 200, ready.status

    def first_line(self):
        """The line that says where it listens; what comes after it is read and dropped."""
        said = []
        line = threading.Thread(target=lambda: said.append(self.process.stdout.readline()), daemon=True)
        line.start()
        line.join(30)
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        return said[0] if said else ""

    def errors(self):
        self.log.seek(0)
        return self.log.read()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """Stops it, and holds it to a good end if nothing else went wrong."""
        status, errors = self.stop()
        assert kind or (status == 0 and "panicked" not in errors), f"the gateway ended with {status}: {errors}"

    def stop(self):
        """Stops it in good order, and gives back what it wrote to standard error."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        errors = self.errors()
        self.log.close()
        if self.own_folder:
            self.own_folder.cleanup()
        return status, errors
