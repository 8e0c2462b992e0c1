"""Publishes the messages that it reads, one JSON object a line, and answers each with a line.

    redisdelay protocol > protocol.json
    echo '{"topic": "orders", "uuid": "1", "payload_base64": "aGk=", "delay_ms": 5000}' | python3 publisher.py protocol.json
"""

import base64
import json
import os
import sys
import time

import redis

import protocol


class Duplicate(Exception):
    """The key is in use. Nothing is stored."""


class Refused(Exception):
    """Nothing is stored."""


class Unknown(Exception):
    """The message may be stored."""


class Publisher:
    """For one thread. It sends one batch at a time, and the same one again until Redis answers."""

    LOOK_EVERY = 5.0  # seconds; for more partitions

    def __init__(self, scripts, prefix="redisdelay", timeout=15.0):
        self.scripts, self.prefix, self.timeout = scripts, prefix, timeout
        self.ids, self.number, self.topics = protocol.ULIDs(), 0, {}
        self.turn = 0
        self.name = self.ids.next()  # a new one each time the program starts

    def publish(self, topic, uuid, payload, metadata=None, delay_ms=0, key="", ordering_key="", ttl_ms=0,
                duplicates="reject", window_ms=0):
        metadata = dict(metadata or {})
        if key:  # so that handlers and operators see it, too
            metadata["_redisdelay_key"] = key
        if ordering_key:
            metadata["_redisdelay_ordering_key"] = ordering_key
        if ttl_ms:
            metadata["_redisdelay_ttl"] = "%dms" % ttl_ms
        deadline = time.monotonic() + self.timeout
        version = "3" if ordering_key or ttl_ms else "2" if window_ms else "1"
        known, partitions = self.until(deadline, Refused, lambda: self.open(topic, version))
        partition = self.choose(ordering_key or key, partitions)
        self.number += 1
        message_id = self.ids.next() + protocol.traits(ttl_ms, ordering_key, key)
        args = [self.name, self.number, duplicates, known.channel(partition), window_ms,
                1, message_id, delay_ms, protocol.encode(uuid, metadata, payload)]
        rejected = self.until(deadline, Unknown, lambda: known.run("push", partition, args))
        if rejected:
            raise Duplicate("key %s is in use" % key)
        return message_id

    def open(self, topic, version):
        known, partitions, listed, seen = self.topics.get(topic, (None, 0, "0", 0))
        if known is None or listed < version or time.monotonic() - seen > self.LOOK_EVERY:
            known = known or protocol.Topic(self.scripts, self.prefix, topic)
            version = max(version, listed)
            partitions = known.open(version)
            self.topics[topic] = (known, partitions, version, time.monotonic())
        return known, partitions

    def choose(self, key, partitions):
        if key:
            return protocol.partition_of(key, partitions)
        self.turn += 1
        return self.turn % partitions

    def until(self, deadline, otherwise, call):
        """Makes a call, again and again while the error may pass."""
        pause = 0.02
        while True:
            try:
                return call()
            except protocol.TooNew as error:
                raise Refused(str(error)) from error
            except redis.RedisError as error:
                if str(error).startswith("NOTSTORED "):
                    self.rename(str(error)[len("NOTSTORED "):])
                    raise Refused(str(error)) from error
                if not protocol.transient(error) or time.monotonic() + pause > deadline:
                    self.rename(str(error))
                    raise otherwise(str(error)) from error
            time.sleep(pause)
            pause = min(1.0, 2 * pause)

    def rename(self, error):
        if error.startswith("STALE"):
            self.name = self.ids.next()


def answer(publisher, order):
    """Carries out an order."""
    options = {name: order[name] for name in ("delay_ms", "key", "ordering_key", "ttl_ms", "metadata") if name in order}
    try:
        publisher.publish(order["topic"], order["uuid"], base64.b64decode(order["payload_base64"]), **options)
        return {"uuid": order["uuid"], "result": "stored"}
    except Duplicate as error:
        return {"uuid": order["uuid"], "result": "duplicate", "error": str(error)}
    except Unknown as error:
        return {"uuid": order["uuid"], "result": "unknown", "error": str(error)}
    except Refused as error:
        return {"uuid": order["uuid"], "result": "refused", "error": str(error)}


def main():
    client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379"), socket_timeout=5)
    scripts = protocol.Scripts(client, sys.argv[1])
    publisher = Publisher(scripts, os.environ.get("REDISDELAY_PREFIX", "redisdelay"))
    for line in sys.stdin:
        print(json.dumps(answer(publisher, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
