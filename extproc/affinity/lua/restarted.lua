-- Void a replica's older affinity if it runs as another incarnation than before.
-- KEYS  state, members, incarnations
-- ARGV  1 replica  2 incarnation
local index = tonumber(call('HGET', KEYS[2], ARGV[1]))
local state = call('GET', KEYS[1])
if not index or not state then return end
local before = call('HGET', KEYS[3], ARGV[1])
if before == ARGV[2] then return end
if before then
  local n, p, c, drained, epoch, member, taken = record(state, index)
  write_record(KEYS[1], index, n, p, c, drained, next_epoch(epoch, seconds(clock())), member, taken)
end
call('HSET', KEYS[3], ARGV[1], ARGV[2])
call('EXPIRE', KEYS[3], KEEP)
