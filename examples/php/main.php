<?php
// Publishes a delayed message with XADD and receives it with XREADGROUP.
//
// It needs phpredis, a Redis at REDIS_URL, and a process that runs the inbox and a relay for the topic: see
// docs/use/languages.md.

declare(strict_types=1);

const INBOX = '{redisdelay:inbox}:entries';
const TOPIC = 'orders';
const GROUP = 'billing';
define('CONSUMER', bin2hex(random_bytes(8)));

$url = parse_url(getenv('REDIS_URL') ?: 'redis://localhost:6379');
$redis = new Redis();
$redis->connect($url['host'], $url['port'] ?? 6379);

function publish(Redis $redis, string $payload, int $delayMs): string
{
    $uuid = bin2hex(random_bytes(16));
    $redis->xAdd(INBOX, '*', ['topic' => TOPIC, 'uuid' => $uuid, 'delay_ms' => $delayMs, 'payload' => $payload]);
    return $uuid;
}

function createGroup(Redis $redis): void
{
    $redis->xGroup('CREATE', TOPIC, GROUP, '0', true); // true: create the stream too; false is returned if the group exists
}

function receive(Redis $redis): Generator
{
    while (true) {
        // Entries that another consumer received but did not acknowledge within a minute, probably because it died.
        $idle = array_column($redis->xPending(TOPIC, GROUP, '-', '+', 10) ?: [], 0);
        yield from $idle ? $redis->xClaim(TOPIC, GROUP, CONSUMER, 60_000, $idle, []) : [];
        yield from $redis->xReadGroup(GROUP, CONSUMER, [TOPIC => '>'], 10, 1000)[TOPIC] ?? [];
    }
}

createGroup($redis);
$published = publish($redis, '{"order": 42}', 500);
foreach (receive($redis) as $entry => $fields) {
    echo 'received ', $fields['payload'], "\n";
    $redis->xAck(TOPIC, GROUP, [$entry]);
    if ($fields['_watermill_message_uuid'] === $published) {
        break;
    }
}
