<?php
// Checks protocol.php against docs/inside/vectors.
//
//     REDIS_URL=redis://localhost:6379 php vectors.php protocol.json ../../docs/inside/vectors
declare(strict_types=1);

require __DIR__ . '/protocol.php';
require __DIR__ . '/scripts.php';

function load(string $name): array
{
    global $argv;
    return json_decode(file_get_contents($argv[2] . '/' . $name . '.json'), true);
}

/** Compares replies; null stands for anything. */
function same(mixed $got, mixed $want): bool
{
    if ($want === null) {
        return true;
    }
    if (!is_array($want)) {
        return $got === $want;
    }
    return is_array($got) && count($got) === count($want) && !in_array(false, array_map('same', $got, $want), true);
}

function checks(Scripts $scripts): Generator
{
    foreach (load('keys') as $v) {
        $tag = tag($v['prefix'], $v['topic'], $v['partition']);
        yield $v => $tag === $v['tag'] && crc(substr($tag, 1, -1)) % SLOTS === $v['slot'];
        foreach ($v['keys'] as $kind => $key) {
            yield $v => $tag . ':' . $kind . (in_array($kind, OF_GROUPS, true) ? ':' . $v['group'] : '') === $key;
        }
    }
    foreach (load('partitions') as $v) {
        yield $v => partitionOf($v['key'], $v['partitions']) === $v['partition'];
    }
    foreach (load('ids') as $v) {
        yield $v => substr($v['id'], 26) === traits($v);
    }
    foreach (load('bodies') as $v) {
        $body = encode($v['uuid'], $v['metadata'] ?? [], base64_decode($v['payload_base64'] ?? ''));
        yield $v => $v['how'] === 'decode' || $body === base64_decode($v['body_base64']);
    }
    foreach (load('delays') as $v) {
        yield $v => dueMs($v['now_us'], $v['delay_ms']) === $v['due_ms'];
    }
    foreach (load('errors') as $v) {
        yield $v => classify($v['error']) === $v['class'];
    }
    foreach (load('replies') as $v) {
        $reply = null;
        $error = '';
        try {
            $reply = $scripts->run($v['script'], $v['keys'], $v['args']);
        } catch (AnswerException $failed) {
            $error = $failed->getMessage();
        }
        yield $v => isset($v['error']) ? str_starts_with($error, $v['error']) : $error === '' && same($reply, $v['reply'] ?? null);
    }
}

$passed = $failed = 0;
foreach (checks(new Scripts(getenv('REDIS_URL'), $argv[1])) as $vector => $right) {
    $right ? $passed++ : $failed++;
    if (!$right) {
        echo 'failed: ', json_encode($vector, JSON_UNESCAPED_UNICODE), "\n";
    }
}
echo "$passed passed, $failed failed\n";
exit($failed ? 1 : 0);
