"""What a publisher and a consumer of redisdelay share. docs/inside/protocol.md has the rules."""

import binascii
import json
import secrets
import time

import msgpack
import redis

SLOTS = 16384
VERSIONS = ("1", "2", "3")  # major versions of the protocol that these programs know
CODES = {1: "_watermill_delayed_until", 2: "_watermill_delayed_for"}
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

# What errors begin with, and what to do then; see "Errors" in docs/inside/protocol.md.
CLASSES = {
    "refused": ("NOTSTORED ",), "load": ("NOSCRIPT ",), "stale": ("STALE ",),
    "again": ("LOADING ", "READONLY ", "MASTERDOWN ", "CLUSTERDOWN ", "TRYAGAIN ", "MOVED ", "ASK ", "NOREPLICAS ", "BUSY ",
              "UNBLOCKED ", "max number of clients", "ERR max number of clients",
              "Script attempted to execute a write command while the cluster is down", "ERR Script attempted to execute a write command while the cluster is down"),
}


def crc(text):
    return binascii.crc_hqx(text.encode(), 0)


def tag(prefix, topic, number):
    """The hash tag that all keys of a topic partition begin with."""
    head = prefix + ":" + topic.replace("%", "%25").replace("}", "%7D").replace(":", "%3A") + ":"
    if number == 0:
        return "{" + head + "0}"
    third, rest = number % 3, number // 3
    mirrored = int(format(rest, "016b")[::-1], 2)
    wanted = crc(head + "0") % SLOTS + (third * SLOTS + (mirrored * SLOTS >> 16)) // 3
    head += str(number) + "."
    salt = 0
    while (crc(head + str(salt)) - wanted) % SLOTS >= 16:
        salt += 1
    return "{" + head + str(salt) + "}"


def partition_of(key, partitions):
    """The partition of an ordering key or, without one, a message key: FNV-1a and jump hash."""
    state = 0xCBF29CE484222325
    for byte in key.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    chosen, following = -1, 0
    while following < partitions:
        chosen = following
        state = (state * 2862933555777941757 + 1) % 2**64
        following = int((chosen + 1) * (float(1 << 31) / float((state >> 33) + 1)))
    return chosen


def traits(ttl_ms=0, ordering_key="", key=""):
    """What follows the ULID in an id."""
    text = "~" + str(ttl_ms) if ttl_ms else ""
    if ordering_key:
        text += "=" + str(len(ordering_key.encode())) + "," + ordering_key
    return text + (":" + key if key else "")


class ULIDs:
    """ULIDs that sort in the order in which they were made, even if the clock is set back."""

    last = 0

    def next(self):
        made = time.time_ns() // 1_000_000 << 80 | secrets.randbits(80)
        self.last = made if made >> 80 > self.last >> 80 else self.last + 1
        return "".join(CROCKFORD[self.last >> 5 * (25 - i) & 31] for i in range(26))


def encode(uuid, metadata, payload):
    """The body of a message; metadata are a dict of str, payload is bytes."""
    packed = msgpack.packb(metadata) if metadata else None
    return msgpack.packb([uuid, packed, payload])


def decode(body):
    uuid, metadata, payload = msgpack.unpackb(body, raw=True)
    return text(uuid), decode_metadata(metadata), payload or b""


def decode_metadata(packed):
    if not packed:
        return {}
    pairs = msgpack.unpackb(packed, raw=True, strict_map_key=False)
    return {CODES[k] if k in CODES else text(k): text(v) for k, v in pairs.items()}


def due_ms(now_us, delay_ms):
    """When a message is due, as the scripts reckon."""
    return now_us // 1000 if delay_ms <= 0 else -(-now_us // 1000) + delay_ms


def text(raw):
    return raw.decode("utf-8", "surrogateescape")


def classify(error):
    """What to do after an error that Redis has answered with; unknown if nothing helps."""
    return next((name for name, begins in CLASSES.items() if error.startswith(begins)), "unknown")


def transient(error):
    """Whether the same call may succeed later. redis-py takes the first word from some errors, and gives these a class."""
    if isinstance(error, redis.AuthenticationError):
        return False
    passing = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.ReadOnlyError, redis.exceptions.TryAgainError,
               redis.exceptions.ClusterDownError, redis.exceptions.AskError)  # MASTERDOWN and MOVED derive from these two
    return isinstance(error, passing) or classify(str(error)) == "again"


class Delivery:
    """A message that a consumer has claimed."""

    def __init__(self, partition, raw_id, due, token, body, changed):
        self.partition, self.id, self.token, self.body, self.changed = partition, raw_id, token, body, changed
        entry = [int(number) for number in token.split(b"/")] if b"/" in token else [1, 0, 0]
        self.attempt = max(1, entry[1] + entry[2])
        rest = raw_id[26:]
        ttl = int(rest[1:].split(b"=")[0].split(b":")[0]) if rest[:1] == b"~" else None
        self.expires = entry[3] + ttl if ttl and len(entry) > 3 else None  # ms by Redis's clock
        self.lost = False  # another consumer may have it

    def decode(self):
        self.uuid, self.metadata, self.payload = decode(self.body)
        if self.changed is not None:
            self.metadata = decode_metadata(self.changed)
            self.metadata.pop("_redisdelay_last_error", None)


class TooNew(Exception):
    """The topic has data that these programs do not understand."""


class Scripts:
    """The scripts that `redisdelay protocol` prints, and a server to run them on."""

    def __init__(self, client, file):
        with open(file, encoding="utf-8") as document:
            self.by_name = {script["name"]: script for script in json.load(document)["scripts"]}
        self.client = client
        self.database = client.connection_pool.connection_kwargs.get("db") or 0

    def run(self, name, keys, args):
        script = self.by_name[name]
        try:
            return self.client.evalsha(script["sha1"], len(keys), *keys, *args)
        except redis.exceptions.NoScriptError:
            return self.client.eval(script["text"], len(keys), *keys, *args)


class Topic:
    def __init__(self, scripts, prefix, name):
        self.scripts, self.prefix, self.name, self.tags = scripts, prefix, name, {}

    def tag(self, partition):
        if partition not in self.tags:
            self.tags[partition] = tag(self.prefix, self.name, partition)
        return self.tags[partition]

    def channel(self, partition):
        return "%s:wake:%d" % (self.tag(partition), self.scripts.database)

    def run(self, name, partition, args, group="", each=()):
        """Runs a script with the keys of a partition, of a group, and of each of several groups."""
        script, start = self.scripts.by_name[name], self.tag(partition) + ":"
        keys = [start + kind + self.ending(kind, group) for kind in script["keys"]]
        keys += [start + kind + ":" + other for other in each for kind in script.get("each", [])]
        return self.scripts.run(name, keys, args)

    @staticmethod
    def ending(kind, group):
        of_groups = "queue unack attempts claims dead reasons changed consumers turns lanes".split()
        return ":" + group if kind in of_groups else ""

    def open(self, version="1"):
        """Lists the topic, and returns how many partitions it has."""
        registry = ["{" + self.prefix + ":topics}"]
        listed = self.scripts.run("enlist", registry, [self.name, ""])
        partitions = int(self.run("raise", 0, [1, 0, self.channel(0)])[0])
        if not listed:  # Redis may have lost the list: what do the data need?
            needed = [int(self.run("needed", p, [])[0]) for p in range(partitions)]
            listed = self.scripts.run("enlist", registry, [self.name, str(max(needed))])
        if version != "1":
            listed = self.scripts.run("enlist", registry, [self.name, version])
        if listed[0].decode().split(".")[0] not in VERSIONS:
            raise TooNew("topic %s has version %s of the protocol" % (self.name, text(listed[0])))
        return partitions
