-- Make a router known to a pool, and its replicas members: each gets an index, for good.
-- KEYS  state, members (replica -> index), uses (replica by last use), routers (by last sign of
--       life), incarnations (replica -> incarnation)
-- ARGV  1 router  2... replicas
-- Returns {generation, index...}.
local now = clock()
local now_s = floor(now / 1000)
local state = call('GET', KEYS[1])
if not state then
  state = pack('<I8', now) .. string.rep('\0', HEADER - 8)
  call('SET', KEYS[1], state)
  call('DEL', KEYS[2], KEYS[3], KEYS[5])
end
call('ZADD', KEYS[4], now_s, ARGV[1])

local function dismiss(replica)
  local index = tonumber(call('HGET', KEYS[2], replica))
  local n, p, c, drained, epoch = record(call('GET', KEYS[1]), index)
  write_record(KEYS[1], index, n, p, c, drained, epoch, 0)
  call('HDEL', KEYS[2], replica)
  call('HDEL', KEYS[5], replica)
  call('ZREM', KEYS[3], replica)
end
for i = 2, #ARGV do call('ZADD', KEYS[3], now_s, ARGV[i]) end
for _, replica in ipairs(call('ZRANGEBYSCORE', KEYS[3], '-inf', now_s - KEEP)) do
  if call('HEXISTS', KEYS[2], replica) == 1 then dismiss(replica) else call('ZREM', KEYS[3], replica) end
end

local reply, used, free = {}, nil, 0
for i = 2, #ARGV do
  local index = tonumber(call('HGET', KEYS[2], ARGV[i]))
  if not index then
    if not used then
      used = {}
      for _, each in ipairs(call('HVALS', KEYS[2])) do used[tonumber(each)] = true end
      state = call('GET', KEYS[1])
    end
    -- The lowest index that nobody has and that no open reservation still points to.
    while used[free] or (record(state, free)) > 0 do free = free + 1 end
    index = free
    used[index] = true
    if #state >= offset(index) + RECORD then
      local generation = max(now, unpack_at('<I8', call('GET', KEYS[1])) + 1)
      call('SETRANGE', KEYS[1], 0, pack('<I8', generation))
    end
    call('HSET', KEYS[2], ARGV[i], index)
    write_record(KEYS[1], index, 0, 0, now, 0, now_s + 1, 1)
  end
  reply[i] = index
end
reply[1] = call('GETRANGE', KEYS[1], 0, 7)
for i = 1, 5 do call('EXPIRE', KEYS[i], KEEP) end
return reply
