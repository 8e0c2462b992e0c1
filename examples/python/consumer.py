"""Handles the messages of a topic for a consumer group, several at a time, until SIGTERM or SIGINT.

    python3 consumer.py protocol.json orders billing
"""

import base64
import concurrent.futures
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time

import redis

import protocol

POLL = 5.0  # seconds: how often to look if no notification comes


class Consumer:
    def __init__(self, topic, group, handle, workers=8, lease_ms=30_000, max_deliveries=0):
        self.topic, self.group, self.handle, self.workers = topic, group, handle, workers
        self.lease_ms, self.max_deliveries = lease_ms, max_deliveries
        # A name that came back with request 1 would get nothing until it reached its old number.
        self.name = socket.gethostname() + "/" + secrets.token_hex(8)
        self.about = json.dumps({"name": socket.gethostname(), "pid": os.getpid(), "protocol": "3"})
        self.alive_ms = max(lease_ms, int(2000 * POLL))
        self.requests, self.groups, self.partitions = {}, {}, 0
        self.held, self.changed = {}, threading.Condition()
        self.offset = 0.0  # Redis's clock less ours, in ms
        self.stop, self.done = threading.Event(), threading.Event()
        self.hints = topic.scripts.client.pubsub(ignore_subscribe_messages=True)

    def run(self):
        self.again(lambda: self.join(self.topic.open()))
        beat = threading.Thread(target=self.heartbeat, daemon=True)
        beat.start()
        with concurrent.futures.ThreadPoolExecutor(self.workers) as pool:
            while not self.stop.is_set():
                wait = POLL
                for partition in range(self.partitions):
                    wait = min(wait, self.claim(partition, self.free(), pool))
                self.sleep(wait)
        self.done.set()  # until the last handler was done, the heartbeat has extended the leases
        beat.join()
        for partition in range(self.partitions):
            self.call("leave", partition, [self.name, self.group, "repeatable"])

    def join(self, partitions):
        """Registers the group, and listens, in partitions that are new."""
        while self.partitions < partitions:
            partition = self.partitions
            self.register(partition)
            self.hints.subscribe(self.topic.channel(partition))
            self.requests[partition], self.groups[partition] = 0, (0, [])
            self.partitions += 1

    def register(self, partition):
        while (state := self.call("register", partition, [self.group, 1000, 0, ""])[0]) == b"expired":
            self.call("forget", partition, [self.group, 100, 32 << 20])  # what it has left behind, until all is free
        if state not in (b"added", b"known"):
            raise RuntimeError("group %s: %s" % (self.group, state.decode()))

    def free(self):
        with self.changed:
            self.changed.wait_for(lambda: len(self.held) < self.workers)
            return self.workers - len(self.held)

    def claim(self, partition, free, pool):
        """Hands out what is due, and returns for how many seconds nothing else is."""
        self.requests[partition] += 1
        while True:  # the same request, so that a lost reply loses no time and no delivery
            asof, others = self.groups[partition]
            reply = self.again(lambda: self.call("claim", partition, [
                self.group, self.name, self.requests[partition], free, free, self.lease_ms, self.max_deliveries,
                1 << 20, self.topic.channel(partition), self.alive_ms, self.about, asof, *others], others))
            if reply[0] == b"claimed":
                break
            names = [protocol.text(name) for name in reply[2:]]
            if self.group not in names:
                self.again(lambda: self.register(partition))
            self.groups[partition] = (int(reply[1]), [name for name in names if name != self.group])
        deadline, wait, details, ids, bodies, changed, _, partitions = reply[1:9]
        if wait < -2:  # this program's memory was set back, and Redis has a later request
            self.requests[partition], wait = -2 - wait, 0
        self.offset = deadline - self.lease_ms - time.monotonic() * 1000
        details, changed = details.split(), dict(zip(changed[::2], changed[1::2]))
        for i, message_id in enumerate(ids):
            message = protocol.Delivery(partition, message_id, details[2 * i], details[2 * i + 1], bodies[i], changed.get(i + 1))
            with self.changed:
                for earlier in self.held.values():  # whose handler still has it
                    earlier.lost |= (earlier.partition, earlier.id) == (partition, message_id)
                self.held[partition, message_id, message.token] = message
            pool.submit(self.work, message)
        if partition == 0 and partitions > self.partitions:
            self.again(lambda: self.join(partitions))
        return POLL if wait == -1 else max(0, wait) / 1e6  # -2: the next one needs a free worker

    def work(self, message):
        try:
            self.again(self.outcome(message))
        except redis.RedisError as error:  # it comes back when its lease is over
            print("settle %s: %s" % (message.id, error), file=sys.stderr)
        finally:
            with self.changed:
                del self.held[message.partition, message.id, message.token]
                self.changed.notify()

    def outcome(self, message):
        """Handles a message, and returns the call that settles it."""
        try:
            message.decode()
        except Exception as error:  # whatever was stored there
            reason = "cannot be decoded: %s" % error
            return lambda: self.nack(message, "bury", reason)
        if message.expires and time.monotonic() * 1000 + self.offset > message.expires:
            return lambda: self.nack(message, "bury", "expired")
        try:
            self.handle(message)
            return lambda: self.ack(message)
        except Exception as error:
            detail = "%d %s" % (min(60_000, 1000 * 2 ** min(message.attempt - 1, 10)), error)
            return lambda: self.nack(message, "", detail)

    def ack(self, message):
        ids = [message.id]
        while ids:  # with very many groups, an ack takes several calls
            ids = self.call("ack", message.partition, [self.group, self.topic.channel(message.partition), *ids])[1]

    def nack(self, message, decision, detail):
        self.call("nack", message.partition, [
            self.group, self.topic.channel(message.partition), self.max_deliveries,
            message.id, message.token, decision, detail, ""])

    def heartbeat(self):
        while not self.done.wait(self.lease_ms / 3000):
            for partition in range(self.partitions):
                with self.changed:
                    held = [m for m in self.held.values() if m.partition == partition and not m.lost]
                args = [value for m in held for value in (m.id, m.token, 1)]
                try:
                    stale = self.call("extend", partition, [
                    self.lease_ms, self.group, self.name, self.alive_ms, self.about, *args])
                except redis.RedisError:
                    continue
                for message in held:
                    message.lost = message.id in stale

    def sleep(self, seconds):
        end = time.monotonic() + seconds
        while not self.stop.is_set() and time.monotonic() < end:
            try:
                hint = self.hints.get_message(timeout=min(0.5, max(0.001, end - time.monotonic())))
            except redis.RedisError:
                self.stop.wait(0.1)
                continue
            if hint and not hint["data"].startswith(b"="):  # "=": another consumer has taken all that is due
                return

    def again(self, call):
        """Makes a call, again and again while the error may pass."""
        while True:
            try:
                return call()
            except redis.RedisError as error:
                if self.stop.is_set() or not protocol.transient(error):
                    raise
                time.sleep(0.1)

    def call(self, name, partition, args, each=()):
        return self.topic.run(name, partition, args, self.group, each)


def show(message):
    """A handler for the example. It takes time, and fails once, if the message asks for that."""
    time.sleep(float(message.metadata.get("example seconds", 0)))
    if message.metadata.get("example") == "fails once" and message.attempt == 1:
        raise ValueError("as it was asked to")
    payload = base64.b64encode(message.payload).decode()
    print(json.dumps({"uuid": message.uuid, "metadata": message.metadata, "attempt": message.attempt,
                      "payload_base64": payload}) + "\n", end="", flush=True)


def main():
    file, topic, group = sys.argv[1:]
    client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379"), socket_timeout=5)
    target = protocol.Topic(protocol.Scripts(client, file), os.environ.get("REDISDELAY_PREFIX", "redisdelay"), topic)
    consumer = Consumer(target, group, show, lease_ms=int(os.environ.get("LEASE_MS", "30000")))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: consumer.stop.set())
    consumer.run()


if __name__ == "__main__":
    main()
