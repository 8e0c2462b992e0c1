<?php
// What a publisher of redisdelay needs to know. docs/inside/protocol.md has the rules.
declare(strict_types=1);

const SLOTS = 16384;
const CROCKFORD = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const OF_GROUPS = ['queue', 'unack', 'attempts', 'claims', 'dead', 'reasons', 'changed', 'consumers', 'turns', 'lanes'];

// What errors begin with, and what to do then.
const CLASSES = [
    'refused' => ['NOTSTORED '], 'load' => ['NOSCRIPT '], 'stale' => ['STALE '],
    'again' => ['LOADING ', 'READONLY ', 'MASTERDOWN ', 'CLUSTERDOWN ', 'TRYAGAIN ', 'MOVED ', 'ASK ', 'NOREPLICAS ', 'BUSY ',
        'UNBLOCKED ', 'ERR max number of clients', 'ERR Script attempted to execute a write command while the cluster is down'],
];

function crc(string $text): int
{
    $sum = 0;
    foreach (unpack('C*', $text) as $byte) {
        $sum ^= $byte << 8;
        for ($bit = 0; $bit < 8; $bit++) {
            $sum = ($sum & 0x8000 ? ($sum << 1) ^ 0x1021 : $sum << 1) & 0xffff;
        }
    }
    return $sum;
}

/** The hash tag that all keys of a topic partition begin with. */
function tag(string $prefix, string $topic, int $number): string
{
    $head = $prefix . ':' . strtr($topic, ['%' => '%25', '}' => '%7D', ':' => '%3A']) . ':';
    if ($number === 0) {
        return '{' . $head . '0}';
    }
    $mirrored = bindec(strrev(sprintf('%016b', intdiv($number, 3))));
    $wanted = crc($head . '0') % SLOTS + intdiv($number % 3 * SLOTS + ($mirrored * SLOTS >> 16), 3);
    $head .= $number . '.';
    for ($salt = 0; ((crc($head . $salt) - $wanted) & (SLOTS - 1)) >= 16; $salt++);
    return '{' . $head . $salt . '}';
}

/** The partition of an ordering key or, without one, a message key: FNV-1a and jump hash. */
function partitionOf(string $key, int $partitions): int
{
    $state = array_reverse(array_map('hexdec', str_split(hash('fnv1a64', $key), 4))); // 16 bits each, the lowest first
    $chosen = -1;
    for ($next = 0; $next < $partitions;) {
        $chosen = $next;
        $state = nextState($state);
        $next = (int) (($chosen + 1) * ((float) (1 << 31) / (float) (($state[3] << 15 | $state[2] >> 1) + 1)));
    }
    return $chosen;
}

/** state * 2862933555777941757 + 1, modulo 2^64, which PHP's own numbers cannot hold. */
function nextState(array $state): array
{
    $factor = array_reverse(array_map('hexdec', str_split(dechex(2862933555777941757), 4)));
    $result = [];
    $carry = 1;
    for ($i = 0; $i < 4; $i++) {
        for ($j = 0; $j <= $i; $j++) {
            $carry += $state[$j] * $factor[$i - $j];
        }
        $result[$i] = $carry & 0xffff;
        $carry >>= 16;
    }
    return $result;
}

/** What follows the ULID in an id. */
function traits(array $order): string
{
    $ordering = $order['ordering_key'] ?? '';
    return (($order['ttl_ms'] ?? 0) ? '~' . $order['ttl_ms'] : '')
        . ($ordering !== '' ? '=' . strlen($ordering) . ',' . $ordering : '')
        . (($order['key'] ?? '') !== '' ? ':' . $order['key'] : '');
}

/** ULIDs that sort in the order in which they were made, even if the clock is set back. */
final class ULIDs
{
    private int $ms = 0;
    private array $random = [];

    public function next(): string
    {
        $now = (int) (microtime(true) * 1000);
        if ($now > $this->ms) {
            $this->ms = $now;
            $this->random = array_map(fn () => random_int(0, 31), range(1, 16));
            $this->random[0] &= 15; // so that there are always some left
        } else {
            for ($i = 15; $this->random[$i] === 31; $i--) {
                $this->random[$i] = 0;
            }
            $this->random[$i]++;
        }
        $text = '';
        for ($shift = 45; $shift >= 0; $shift -= 5) {
            $text .= CROCKFORD[$this->ms >> $shift & 31];
        }
        return $text . implode('', array_map(fn ($n) => CROCKFORD[$n], $this->random));
    }
}

/** The body of a message in MessagePack, of which it needs so little that no extension is worth it. */
function encode(string $uuid, array $metadata, string $payload): string
{
    $packed = count($metadata) < 16 ? chr(0x80 | count($metadata)) : "\xde" . pack('n', count($metadata));
    foreach ($metadata as $name => $value) {
        $packed .= packText((string) $name) . packText($value);
    }
    return "\x93" . packText($uuid) . ($metadata ? packBytes($packed) : "\xc0") . packBytes($payload);
}

function packText(string $text): string
{
    $length = strlen($text);
    return match (true) {
        $length < 32 => chr(0xa0 | $length),
        $length < 256 => "\xd9" . chr($length),
        $length < 65536 => "\xda" . pack('n', $length),
        default => "\xdb" . pack('N', $length),
    } . $text;
}

function packBytes(string $bytes): string
{
    $length = strlen($bytes);
    return match (true) {
        $length < 256 => "\xc4" . chr($length),
        $length < 65536 => "\xc5" . pack('n', $length),
        default => "\xc6" . pack('N', $length),
    } . $bytes;
}

/** When a message is due, as the scripts reckon. */
function dueMs(int $nowUs, int $delayMs): int
{
    return $delayMs <= 0 ? intdiv($nowUs, 1000) : intdiv($nowUs + 999, 1000) + $delayMs;
}

/** What to do after an error that Redis has answered with. */
function classify(string $error): string
{
    foreach (CLASSES as $class => $begins) {
        foreach ($begins as $begin) {
            if (str_starts_with($error, $begin)) {
                return $class;
            }
        }
    }
    return 'unknown';
}
