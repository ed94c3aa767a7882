-- Gives a reservation back. KEYS: epoch, reservations. ARGV: epoch, time, kind of write, write id.
redis.call('ZREM', KEYS[2], ARGV[4])
return {1, now}
