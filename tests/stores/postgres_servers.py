"""PostgreSQL, with standbys, and PgBouncer in front of it, from Debian's packages."""

import glob
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import processes

# The role that tests use, which may create databases, and the one that may do everything. Only this machine reaches them.
USER, ADMIN, PASSWORD = "onceward", "postgres", "test-password"

# May only log in over TLS, so that a client that succeeds has proved that it uses it.
TLS_USER = "onceward_tls"

# PostgreSQL and PgBouncer refuse to run as root.
SYSTEM_USER = "postgres" if os.geteuid() == 0 else None

HBA = f"""\
local all,replication all trust
hostnossl all {TLS_USER} all reject
host all,replication all 127.0.0.1/32 scram-sha-256
host all,replication all ::1/128 scram-sha-256
"""

# Durable as in production (fsync and full_page_writes are on by default). What differs keeps tests short and apart.
SETTINGS = {
    "listen_addresses": "localhost",
    # Suites run side by side, and one of them compares 64 connections.
    "max_connections": 300,
    "max_prepared_transactions": 10,
    # As files in its folder: a killed server leaves nothing in /dev/shm.
    "dynamic_shared_memory_type": "mmap",
    # A standby that was away for a while finds what it missed.
    "wal_keep_size": "256MB",
    "wal_retrieve_retry_interval": "200ms",
    "log_line_prefix": "%m [%p] ",
    "timezone": "UTC",
}


def programs():
    """The folder of the newest server binaries, or None."""
    found = glob.glob("/usr/lib/postgresql/*/bin/postgres") or [shutil.which("postgres") or ""]
    newest = max(found, key=lambda path: [int(number) for number in re.findall(r"\d+", path)])
    return pathlib.Path(newest).parent if newest else None


def pgbouncer_program():
    # Debian's is in a folder that only root has in PATH.
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


class Postgres(processes.Server):
    fast_signal = signal.SIGINT
    # Releases its shared memory, which SIGKILL would leave.
    end_signal = signal.SIGQUIT
    user = SYSTEM_USER

    def __init__(self, home, name="postgres", certificates=None, settings=None):
        super().__init__(home, name)
        # Short, because the path of a Unix socket has at most 107 bytes and temporary folders can be deep.
        self.sockets = home.place(f"s{self.port}", self.user)
        self.data, self.certificates, self.settings, self.standbys = self.folder / "data", certificates, settings or {}, []

    def url(self, user=USER, database="postgres", host="127.0.0.1"):
        return f"postgres://{user}:{PASSWORD}@{host}:{self.port}/{database}"

    def tls_url(self, database="postgres"):
        return f"{self.url(TLS_USER, database, 'localhost')}?sslmode=verify-full"

    def command(self):
        return [programs() / "postgres", "-D", self.data]

    def start(self):
        if not self.data.exists():
            shutil.copytree(template(self.home), self.data, copy_function=shutil.copy, symlinks=True)
            self.own(self.data)
            self.configure()
        return super().start()

    def configure(self):
        """Writes the configuration. ALTER SYSTEM works, because it is in a file and not on the command line."""
        settings = SETTINGS | {"port": self.port, "unix_socket_directories": self.sockets} | self.settings
        if self.certificates:
            settings |= {"ssl": "on", "ssl_cert_file": "chain.pem", "ssl_key_file": "key.pem"}
            for name in ("chain", "key"):
                shutil.copy(getattr(self.certificates, name), self.data / f"{name}.pem")
                (self.data / f"{name}.pem").chmod(0o600)
        (self.data / "postgresql.conf").write_text("".join(f"{name} = '{value}'\n" for name, value in settings.items()))
        (self.data / "pg_hba.conf").write_text(HBA)
        self.own(self.data)

    def own(self, folder):
        if SYSTEM_USER:
            processes.run(["chown", "-R", f"{SYSTEM_USER}:{SYSTEM_USER}", folder])

    def is_ready(self):
        """What pg_ctl looks at: the eighth line of the server's PID file."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and int(lines[0]) == self.process.pid and lines[7].strip() == "ready"

    def sql(self, statement, database="postgres"):
        """Runs a statement as superuser, over the Unix socket. Returns rows as lines, columns separated by `|`."""
        options = ["-h", self.sockets, "-p", self.port, "-U", ADMIN, "-d", database, "-X", "-A", "-t", "-q"]
        return processes.run([programs() / "psql", *options, "-v", "ON_ERROR_STOP=1", "-c", statement], SYSTEM_USER)

    def add_standby(self, synchronous=True, name=None):
        """Starts a standby. A synchronous one confirms every commit before the primary does."""
        standby = Postgres(self.home, name or f"{self.name}-standby{len(self.standbys) + 1}", self.certificates, self.settings)
        options = ["-h", self.sockets, "-p", self.port, "-U", ADMIN, "-D", standby.data, "-c", "fast", "-X", "stream", "--no-sync"]
        processes.run([programs() / "pg_basebackup", *options], SYSTEM_USER)
        label = standby.name.replace("-", "_")
        source = f"host={self.sockets} port={self.port} user={ADMIN} application_name={label}"
        standby.configure()
        with (standby.data / "postgresql.conf").open("a") as file:
            file.write(f"primary_conninfo = '{source}'\n")
        (standby.data / "standby.signal").touch()
        standby.own(standby.data)
        # Settings of the primary that ALTER SYSTEM made: a promoted standby must not wait for standbys that it does not have.
        (standby.data / "postgresql.auto.conf").write_text("")
        standby.start()
        self.standbys.append(standby)
        wanted = "sync" if synchronous else "async"
        if synchronous:
            self.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{label}'")
            self.sql("SELECT pg_reload_conf()")
        states = f"SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming' AND application_name = '{label}'"
        self.wait_for(lambda: self.sql(states) == wanted, f"replicated to {standby.name}")
        return standby

    def promote(self):
        """Makes a standby a primary."""
        processes.run([programs() / "pg_ctl", "promote", "-w", "-D", self.data], SYSTEM_USER)

    def kill(self):
        super().kill()
        self.remove_shared_memory()

    def end(self):
        super().end()
        self.remove_shared_memory()

    def remove_shared_memory(self):
        """Removes the segment of a killed server, which the kernel would keep. The seventh line of the PID file names it."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return
        if len(lines) > 6 and len(lines[6].split()) == 2 and shutil.which("ipcrm"):
            subprocess.run(["ipcrm", "-m", lines[6].split()[1]], capture_output=True, check=False)


def template(home):
    """A fresh database cluster, made once and copied for each server."""
    with home.lock:
        folder = home.folder / "postgres-template"
        if folder.exists():
            return folder / "data"
        home.place(folder.name, SYSTEM_USER)
        options = ["-U", ADMIN, "-E", "UTF8", "--locale=C.UTF-8", "--auth=trust", "--no-sync", "--no-instructions"]
        processes.run([programs() / "initdb", "-D", folder / "data", *options], SYSTEM_USER)
        # In single-user mode, which costs less than a start and a client.
        script = f"""\
SET password_encryption = 'scram-sha-256'
ALTER ROLE {ADMIN} PASSWORD '{PASSWORD}'
CREATE ROLE {USER} LOGIN CREATEDB PASSWORD '{PASSWORD}'
CREATE ROLE {TLS_USER} LOGIN CREATEDB PASSWORD '{PASSWORD}'
"""
        command = [str(programs() / "postgres"), "--single", "-F", "-D", str(folder / "data"), "postgres"]
        subprocess.run(
            command, input=script, text=True, capture_output=True, check=True, timeout=processes.START_SECONDS, cwd=folder,
            env=processes.clean_environment(), **processes.as_user(SYSTEM_USER),
        )
        return folder / "data"


class PgBouncer(processes.Server):
    """PgBouncer in transaction mode, for every database of a server."""

    fast_signal = signal.SIGTERM
    user = SYSTEM_USER

    def __init__(self, home, postgres, name="pgbouncer", pool=8):
        super().__init__(home, name)
        self.postgres = postgres
        users = "".join(f'"{user}" "{PASSWORD}"\n' for user in (USER, ADMIN))
        # Wide enough for suites side by side, narrow enough that clients share connections.
        settings = f"""\
[databases]
* = host=127.0.0.1 port={postgres.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {self.folder}/users
admin_users = {ADMIN}
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 1000
server_login_retry = 1
"""
        for file, text in (("users", users), ("pgbouncer.ini", settings)):
            (self.folder / file).write_text(text)
            (self.folder / file).chmod(0o600)
            if SYSTEM_USER:
                shutil.chown(self.folder / file, SYSTEM_USER, SYSTEM_USER)

    def url(self, user=USER, database="postgres"):
        return f"postgres://{user}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def command(self):
        return [pgbouncer_program(), self.folder / "pgbouncer.ini"]

    def is_ready(self):
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0
