"""Checks protocol.py against docs/inside/vectors.

    python3 vectors.py protocol.json ../../docs/inside/vectors
"""

import base64
import json
import os
import sys

import redis

import protocol


def load(name):
    with open(os.path.join(sys.argv[2], name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def same(got, want):
    """Null stands for anything."""
    if want is None:
        return True
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(map(same, got, want))
    return (protocol.text(got) if isinstance(got, bytes) else got) == want


def answer(scripts, call):
    try:
        return scripts.run(call["script"], call["keys"], call["args"]), None
    except redis.ResponseError as error:
        return None, str(error)


def raised(error):
    """What redis-py raises when Redis answers with an error. Since version 6, all its parsers do what ClusterParser did."""
    parser = getattr(redis.cluster, "ClusterParser", redis.connection.DefaultParser)
    return parser(socket_read_size=1).parse_error(error)


def checks():
    for v in load("keys"):
        topic = protocol.Topic(None, v["prefix"], v["topic"])
        yield v, topic.tag(v["partition"]) == v["tag"] and protocol.crc(v["tag"][1:-1]) % protocol.SLOTS == v["slot"]
        for kind, key in v["keys"].items():
            yield v, v["tag"] + ":" + kind + topic.ending(kind, v["group"]) == key
    for v in load("partitions"):
        yield v, protocol.partition_of(v["key"], v["partitions"]) == v["partition"]
    for v in load("ids"):
        yield v, v["id"][26:] == protocol.traits(v["ttl_ms"], v["ordering_key"], v["key"])
    for v in load("bodies"):
        body, payload = base64.b64decode(v["body_base64"]), base64.b64decode(v["payload_base64"] or "")
        metadata = v["metadata"] or {}
        yield v, protocol.decode(body) == (v["uuid"], metadata, payload)
        yield v, v["how"] == "decode" or protocol.encode(v["uuid"], metadata, payload) == body
    for v in load("delays"):
        yield v, protocol.due_ms(v["now_us"], v["delay_ms"]) == v["due_ms"]
    for v in load("errors"):
        yield v, protocol.classify(v["error"]) == v["class"]
        yield v, protocol.transient(raised(v["error"])) == (v["class"] == "again")
    scripts = protocol.Scripts(redis.Redis.from_url(os.environ["REDIS_URL"]), sys.argv[1])
    for v in load("replies"):
        reply, error = answer(scripts, v)
        yield v, (error or "").startswith(v.get("error", "")) and same(reply, v.get("reply"))


def main():
    outcomes = [(v, passed) for v, passed in checks()]
    failed = [v for v, passed in outcomes if not passed]
    for v in failed:
        print("failed:", json.dumps(v, ensure_ascii=False))
    print("%d passed, %d failed" % (len(outcomes) - len(failed), len(failed)))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
