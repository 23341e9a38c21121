-- Remove a member. It keeps its index while reservations at it are open, see join.lua.
-- KEYS  state, members, uses, incarnations
-- ARGV  1 replica
local index = tonumber(call('HGET', KEYS[2], ARGV[1]))
local state = call('GET', KEYS[1])
if not index or not state then return end
local n, p, c, drained, epoch, _, taken = record(state, index)
write_record(KEYS[1], index, n, p, c, drained, epoch, 0, taken)
call('SETRANGE', KEYS[1], 12, pack('<I4', max(epoch, (unpack_at('<I4', state, 13)))))
call('ZREM', KEYS[3], ARGV[1])
call('HDEL', KEYS[4], ARGV[1])
if n == 0 then call('HDEL', KEYS[2], ARGV[1]) end
