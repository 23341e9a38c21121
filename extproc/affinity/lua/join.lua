-- Make a router known to a pool, and its replicas members: each gets an index, for good.
-- KEYS  state, members (replica -> index), uses (replica by last use), routers (by last sign of
--       life), incarnations (replica -> incarnation)
-- ARGV  1 router  2... replicas
-- Returns {generation, index...}.
local now = clock()
local now_s = seconds(now)
local state = call('GET', KEYS[1])
if not state then
  state = pack('<I8', now) .. string.rep('\0', HEADER - 8)
  call('SET', KEYS[1], state)
  call('DEL', KEYS[2], KEYS[3], KEYS[5])
end
call('ZADD', KEYS[4], now_s, ARGV[1])

-- Members that no router has named for long, and former ones whose last request has ended.
local function forget(replica, index)
  call('HDEL', KEYS[2], replica)
  call('HDEL', KEYS[5], replica)
  call('ZREM', KEYS[3], replica)
  local n, p, c, drained, epoch, _, taken = record(call('GET', KEYS[1]), index)
  write_record(KEYS[1], index, n, p, c, drained, epoch, 0, taken)
end
for i = 2, #ARGV do call('ZADD', KEYS[3], now_s, ARGV[i]) end
for _, replica in ipairs(call('ZRANGEBYSCORE', KEYS[3], '-inf', now_s - KEEP)) do
  local index = call('HGET', KEYS[2], replica)
  if index then forget(replica, tonumber(index)) else call('ZREM', KEYS[3], replica) end
end

-- The lowest index that nobody has and that no open reservation still points to.
local used
local function free_index()
  state = call('GET', KEYS[1])
  if not used then
    used = {}
    local fields = call('HGETALL', KEYS[2])
    for i = 1, #fields, 2 do
      local index = tonumber(fields[i + 1])
      local n, _, _, _, _, member = record(state, index)
      if n == 0 and member == 0 then forget(fields[i], index) else used[index] = true end
    end
  end
  local free = 0
  while used[free] or (record(state, free)) > 0 do free = free + 1 end
  used[free] = true
  if #state >= offset(free) + RECORD then -- it was another replica's
    local generation = max(now, unpack_at('<I8', state) + 1)
    call('SETRANGE', KEYS[1], 0, pack('<I8', generation))
  end
  return free
end

local reply, left = {}, unpack_at('<I4', state, 13)
for i = 2, #ARGV do
  local index = tonumber(call('HGET', KEYS[2], ARGV[i]))
  if not index then
    index = free_index()
    call('HSET', KEYS[2], ARGV[i], index)
    write_record(KEYS[1], index, 0, 0, now, 0, next_epoch(left, now_s), 1, 0)
  else
    local n, p, c, drained, _, member, taken = record(call('GET', KEYS[1]), index)
    if member == 0 then
      write_record(KEYS[1], index, n, p, c, drained, next_epoch(left, now_s), 1, taken)
    end
  end
  reply[i] = index
end
reply[1] = call('GETRANGE', KEYS[1], 0, 7)
for i = 1, 5 do call('EXPIRE', KEYS[i], KEEP) end
return reply
