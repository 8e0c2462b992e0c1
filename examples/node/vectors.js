// Checks protocol.js against docs/inside/vectors.
//
//     REDIS_URL=redis://localhost:6379 node vectors.js protocol.json ../../docs/inside/vectors
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { isDeepStrictEqual } = require("node:util");
const redis = require("redis");
const protocol = require("./protocol.js");

const load = (name) => JSON.parse(fs.readFileSync(path.join(process.argv[3], name + ".json")));

// same compares replies; null stands for anything.
function same(got, want) {
  if (want === null || want === undefined) return true;
  if (Array.isArray(want)) return Array.isArray(got) && got.length === want.length && want.every((value, i) => same(got[i], value));
  return got === want;
}

async function* checks(scripts) {
  for (const v of load("keys")) {
    const tag = protocol.tag(v.prefix, v.topic, v.partition);
    yield [v, tag === v.tag && protocol.crc(tag.slice(1, -1)) % protocol.SLOTS === v.slot];
    for (const [kind, key] of Object.entries(v.keys)) {
      yield [v, `${tag}:${kind}${protocol.OF_GROUPS.includes(kind) ? ":" + v.group : ""}` === key];
    }
  }
  for (const v of load("partitions")) yield [v, protocol.partitionOf(v.key, v.partitions) === v.partition];
  for (const v of load("ids")) yield [v, v.id.slice(26) === protocol.traits(v)];
  for (const v of load("bodies")) {
    const body = Buffer.from(v.body_base64, "base64");
    const want = { uuid: v.uuid, metadata: v.metadata ?? {}, payload: Buffer.from(v.payload_base64 ?? "", "base64") };
    yield [v, isDeepStrictEqual(protocol.decode(body), want)];
    yield [v, v.how === "decode" || protocol.encode(want.uuid, want.metadata, want.payload).equals(body)];
  }
  for (const v of load("delays")) yield [v, protocol.dueMs(v.now_us, v.delay_ms) === v.due_ms];
  for (const v of load("errors")) yield [v, protocol.classify(v.error) === v.class];
  for (const v of load("replies")) {
    let reply = null, error = "";
    try {
      reply = await scripts.run(v.script, v.keys, v.args);
    } catch (failed) {
      error = failed.message;
    }
    yield [v, v.error ? error.startsWith(v.error) : error === "" && same(reply, v.reply)];
  }
}

async function main() {
  const client = await redis.createClient({ url: process.env.REDIS_URL }).connect();
  let passed = 0, failed = 0;
  for await (const [vector, right] of checks(new protocol.Scripts(client, process.argv[2]))) {
    if (right) passed++;
    else console.log("failed:", JSON.stringify(vector), failed++);
  }
  client.destroy();
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
}

main();
