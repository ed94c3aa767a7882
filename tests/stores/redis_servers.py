"""Redis: a single server, a cluster, and a primary and replica under Sentinel, from Debian's packages."""

import contextlib
import shutil
import time

import processes

PASSWORD = "test-password"

# The name of the primary in Sentinel.
SENTINEL_NAME = "ledger"

# Short, because tests wait for failovers; long enough that a busy machine does not cause one.
DOWN_MILLISECONDS, FAILOVER_MILLISECONDS = 1000, 3000

# How long a node of the cluster may be silent before the others call it down.
NODE_TIMEOUT_MILLISECONDS = 1500


def is_installed():
    return bool(shutil.which("redis-server"))


class Redis(processes.Server):
    """A server that syncs every write to disk before it answers."""

    def __init__(self, home, name="redis", password=None, certificates=None, settings=None):
        super().__init__(home, name)
        self.password, self.certificates = password, certificates
        self.settings = {
            "port": self.port,
            "bind": "127.0.0.1 -::1",
            "dir": self.folder,
            "appendonly": "yes",
            "appendfsync": "always",
            # No snapshots beside the log: with them, a test's outcome would depend on when one was made.
            "save": '""',
            "enable-debug-command": "local",
            # By default a primary waits five seconds for further replicas before it copies its data to the first.
            "repl-diskless-sync-delay": 0,
        } | (settings or {})
        if password:
            self.settings |= {"requirepass": password, "masterauth": password}
        if certificates:
            self.settings |= {"port": 0, "tls-port": self.port, "tls-auth-clients": "no"}
            names = {"tls-cert-file": "chain", "tls-key-file": "key", "tls-ca-cert-file": "authority"}
            self.settings |= {name: getattr(certificates, file) for name, file in names.items()}
        self.configuration = self.folder / "redis.conf"
        self.configuration.write_text("".join(f"{name} {value}\n" for name, value in self.settings.items()))

    def url(self):
        scheme, host = ("rediss", "localhost") if self.certificates else ("redis", "127.0.0.1")
        return f"{scheme}://{f'default:{self.password}@' if self.password else ''}{host}:{self.port}/0"

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def command(self):
        return ["redis-server", self.configuration]

    def is_ready(self):
        with contextlib.suppress(processes.Failed):
            return self.ask("PING") == "PONG"
        return False

    def ask(self, *words):
        """The answer to a command, as redis-cli prints it."""
        tls = ["--tls", "--cacert", self.certificates.authority] if self.certificates else []
        secret = {"REDISCLI_AUTH": self.password} if self.password else {}
        return processes.run(["redis-cli", "-h", "127.0.0.1", "-p", self.port, *tls, *words], environment=secret)

    def info(self, section):
        """A section of INFO."""
        lines = [line.partition(":") for line in self.ask("INFO", section).splitlines() if ":" in line]
        return {name: value.strip() for name, _, value in lines}


class RedisCluster:
    """Three nodes that share the slots, without replicas: when one is lost, so are its slots."""

    def __init__(self, home, name="redis-cluster", nodes=3):
        self.nodes = [
            Redis(home, f"{name}-{number}", settings={
                "cluster-enabled": "yes",
                "cluster-config-file": "nodes.conf",
                "cluster-node-timeout": NODE_TIMEOUT_MILLISECONDS,
                # Redis would take the port plus 10000, which can be one of outgoing connections.
                "cluster-port": home.port(),
            })
            for number in range(1, nodes + 1)
        ]

    def start(self):
        for node in self.nodes:
            node.start()
        addresses = [node.address for node in self.nodes]
        processes.run(["redis-cli", "--cluster", "create", *addresses, "--cluster-yes"])
        for node in self.nodes:
            node.wait_for(lambda node=node: "cluster_state:ok" in node.ask("CLUSTER", "INFO"), "part of the cluster")
        return self

    def url(self):
        return f"redis+cluster://{','.join(node.address for node in self.nodes)}"


class Sentinel(Redis):
    """A process that watches the primary and chooses a new one."""

    def __init__(self, home, name, primary, quorum):
        super().__init__(home, name)
        told = ["monitor {name} 127.0.0.1 {port} {quorum}", f"down-after-milliseconds {{name}} {DOWN_MILLISECONDS}",
                f"failover-timeout {{name}} {FAILOVER_MILLISECONDS}"]
        lines = [line.format(name=SENTINEL_NAME, port=primary.port, quorum=quorum) for line in told]
        text = "".join(f"sentinel {line}\n" for line in lines)
        self.configuration.write_text(f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n{text}")

    def command(self):
        return ["redis-server", self.configuration, "--sentinel"]

    def state(self):
        """What it knows about the primary."""
        words = self.ask("SENTINEL", "MASTER", SENTINEL_NAME).splitlines()
        return dict(zip(words[::2], words[1::2], strict=False))


class RedisSentinel:
    """A primary and a replica, and sentinels that make the replica the primary when the primary is lost."""

    def __init__(self, home, name="redis-sentinel", sentinels=3):
        self.primary = Redis(home, f"{name}-primary")
        self.replica = Redis(home, f"{name}-replica", settings={"replicaof": f"127.0.0.1 {self.primary.port}"})
        quorum = sentinels // 2 + 1
        self.sentinels = [Sentinel(home, f"{name}-{number}", self.primary, quorum) for number in range(1, sentinels + 1)]

    def start(self):
        self.primary.start()
        self.replica.start()
        self.replica.wait_for(lambda: self.replica.info("replication")["master_link_status"] == "up", "in step")
        others = str(len(self.sentinels) - 1)
        for sentinel in self.sentinels:
            sentinel.start()
        for sentinel in self.sentinels:
            wanted = lambda state: (state["num-slaves"], state["num-other-sentinels"]) == ("1", others)  # noqa: E731
            sentinel.wait_for(lambda sentinel=sentinel: wanted(sentinel.state()), "told of the other servers")
        return self

    def url(self):
        return f"redis+sentinel://{','.join(sentinel.address for sentinel in self.sentinels)}/{SENTINEL_NAME}"

    def current(self):
        """The server that the sentinels name as the primary."""
        port = int(self.sentinels[0].state()["port"])
        return next(server for server in (self.primary, self.replica) if server.port == port)

    def failed_over(self, seconds=30):
        """Waits until the replica is the primary."""
        deadline = time.monotonic() + seconds
        while self.current() is not self.replica or self.replica.info("replication")["role"] != "master":
            if time.monotonic() > deadline:
                raise processes.Failed(f"no failover: {self.sentinels[0].last_log()}")
            time.sleep(processes.LOOK_SECONDS * 5)
        return self.replica
