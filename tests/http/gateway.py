"""Starts and stops the gateway as a user does."""

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
        """Starts it from options alone, from a file with this `configuration` (without `listen`), or with a whole `command`
        from a guide."""
        self.own_folder = None if folder else tempfile.TemporaryDirectory()
        folder = pathlib.Path(folder or self.own_folder.name)
        # It is started in another folder.
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
        # This request does not check the certificate.
        unverified = ssl._create_unverified_context()
        with urllib.request.urlopen(f"{self.url}/.well-known/onceward/ready", timeout=10, context=unverified) as ready:
            assert ready.status == 200, ready.status

    def first_line(self):
        """The line with the address. Later output is read and dropped."""
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
        """Stops it, and requires a clean exit unless the test has already failed."""
        status, errors = self.stop()
        assert kind or (status == 0 and "panicked" not in errors), f"the gateway ended with {status}: {errors}"

    def stop(self):
        """Stops it with SIGTERM. Returns its exit code and what it wrote to standard error."""
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
