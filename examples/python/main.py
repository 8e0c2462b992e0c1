"""Publishes a delayed message with XADD and receives it with XREADGROUP.

It needs redis-py, a Redis at REDIS_URL, and a process that runs the inbox and a relay for the topic: see docs/use/languages.md.
"""

import os
import uuid

import redis

INBOX = "{redisdelay:inbox}:entries"
TOPIC, GROUP, CONSUMER = "orders", "billing", str(uuid.uuid4())

client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379"))


def publish(payload, delay_ms):
    message_id = str(uuid.uuid4())
    client.xadd(INBOX, {"topic": TOPIC, "uuid": message_id, "delay_ms": delay_ms, "payload": payload})
    return message_id


def create_group():
    try:
        client.xgroup_create(TOPIC, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        if "BUSYGROUP" not in str(error):  # the group exists
            raise


def receive():
    while True:
        # Entries that another consumer received but did not acknowledge within a minute, probably because it died.
        yield from client.xautoclaim(TOPIC, GROUP, CONSUMER, min_idle_time=60_000, count=10)[1]
        for _, entries in client.xreadgroup(GROUP, CONSUMER, {TOPIC: ">"}, count=10, block=1000):
            yield from entries


create_group()
published = publish('{"order": 42}', delay_ms=500)
for entry, fields in receive():
    print("received", fields[b"payload"].decode())
    client.xack(TOPIC, GROUP, entry)
    if fields[b"_watermill_message_uuid"].decode() == published:
        break
