-- Put a text on the pool's notice board, or take it down with an empty one.
-- KEYS  board (topic -> seconds of its end, blank, text)
-- ARGV  1 topic  2 text  3 seconds for which it holds  4 most topics
local now_s = seconds(clock())
if ARGV[2] == '' then return call('HDEL', KEYS[1], ARGV[1]) end
if call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) and call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
call('HSET', KEYS[1], ARGV[1], string.format('%.0f %s', now_s + ARGV[3], ARGV[2]))
return call('EXPIRE', KEYS[1], KEEP)
