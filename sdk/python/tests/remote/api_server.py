"""A real `onceward serve` for a test: on a free port, and again on the same port after a restart."""

import os
import pathlib
import re
import signal
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[4]
BINARY = os.environ.get("ONCEWARD") or str(ROOT / "target" / "debug" / "onceward")

# What only the server can set, for the operations of these tests.
OPERATIONS = """
[operation.pay]
tier = "payment"

[operation.patient]
wait = "5s"

[operation.probed]
in_doubt = "probe"

[operation.retried]
in_doubt = "retry"

[operation.tiny]
keep_limit = 16

[operation.short]
max_runtime = "100ms"
"""


class ApiServer:
    """`extra` is more of its configuration, such as tokens."""

    def __init__(self, folder, extra="", api="", host="127.0.0.1"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.host, self.port, self.url, self.process = host, 0, "", None
        self.configure(extra, api)
        self.start()

    def configure(self, extra="", api=""):
        text = f'store = "ledger.db"\n[api]\n{api}\n{OPERATIONS}\n{extra}'
        (self.folder / "onceward.toml").write_text(text)

    def start(self):
        command = [BINARY, "serve", "--config", self.folder / "onceward.toml", "--listen", f"{self.host}:{self.port}"]
        with open(self.folder / "log", "a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"https?://[0-9.]+:(\d+)", line)
        assert found, f"the server did not start: {line!r} {self.log()}"
        self.url, self.port = found.group(), int(found.group(1))

    def log(self):
        return (self.folder / "log").read_text()

    def kill(self):
        """Ends it as a crash does."""
        self.process.kill()
        self.process.wait(10)
        self.process.stdout.close()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        self.process.stdout.close()

    def restart(self, down_for=0.0):
        self.kill()
        time.sleep(down_for)
        self.start()

    def restart_later(self, down_for):
        """Kills it now, and starts it again from another thread."""
        self.kill()
        thread = threading.Thread(target=lambda: (time.sleep(down_for), self.start()))
        thread.start()
        return thread


def new_token(folder, tenant, scopes):
    """A token and its lines of the configuration."""
    command = [BINARY, "token", "new", "--tenant", tenant, "--scopes", scopes]
    made = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout
    secret = re.search(r"sha256:[0-9a-f]{64}", made).group()
    token = next(word for word in re.findall(r"\S+", made) if word.startswith("onceward_"))
    listed = ", ".join(f'"{scope}"' for scope in scopes.split(","))
    return token, f'[[api.token]]\ntenant = "{tenant}"\nsecret = "{secret}"\nscopes = [{listed}]\n'


def eventually(condition, limit=5.0):
    """Waits until a condition holds, and returns its value."""
    until = time.monotonic() + limit
    while True:
        value = condition()
        if value or time.monotonic() > until:
            return value
        time.sleep(0.02)
