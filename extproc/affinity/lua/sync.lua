-- A router's sign of life, and with a list of what it really holds the repair of its share.
-- KEYS  state, members, uses, routers, incarnations, board, open reservations of the router
-- ARGV  1 generation  2 router  3 rate  4 silence in seconds after which a router counts as dead
--       5 grace in microseconds  6 reservations that the router holds
--       [7 ... groups of 3: id, index, tokens still to be prefilled]
-- Without groups the share is compared by its size only.
-- Returns {1 if the share agrees or was repaired, members, silent routers, live routers, notices in
-- threes: topic, text, seconds for which it holds}; {-1}: stale.
local state = call('GET', KEYS[1])
if not state or sub(state, 1, 8) ~= ARGV[1] then return {-1} end
local now, rate = clock(), tonumber(ARGV[3])
local now_s = seconds(now)
local known = call('ZSCORE', KEYS[4], ARGV[2])
call('ZADD', KEYS[4], now_s, ARGV[2])
for i = 1, 7 do call('EXPIRE', KEYS[i], KEEP) end

local agrees = known and call('HLEN', KEYS[7]) == tonumber(ARGV[6])
if #ARGV > 6 or ARGV[6] == '0' then
  local holds = {}
  for i = 7, #ARGV, 3 do
    local id, index, left = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
    holds[id] = true
    local held = call('HGET', KEYS[7], id)
    if not held or (unpack_at(HELD, held)) ~= index then
      if held then give_back(KEYS[1], held, now, rate) end
      local n, p, c, drained, epoch, member, taken = record(call('GET', KEYS[1]), index)
      p, c, drained = drain(p, c, drained, now, rate)
      write_record(KEYS[1], index, n + 1, p + left, c, drained, epoch, member, taken)
      -- Depth 65535: nothing of its affinity is to be withdrawn any more.
      call('HSET', KEYS[7], id, pack(HELD, index, left, drained + p + left, 65535, 0, 1, 0, 0, now))
    end
  end
  -- What the router does not hold is a reservation whose reply or release was lost, unless it is
  -- so young that the reply may be on its way.
  local fields = call('HGETALL', KEYS[7])
  for i = 1, #fields, 2 do
    local id, held = fields[i], fields[i + 1]
    if not holds[id] and now - taken_at(held) >= tonumber(ARGV[5]) then
      call('HDEL', KEYS[7], id)
      give_back(KEYS[1], held, now, rate)
    end
  end
  agrees = true
end

local members = {}
state = call('GET', KEYS[1])
local fields = call('HGETALL', KEYS[2])
for i = 1, #fields, 2 do
  local _, _, _, _, _, member = record(state, tonumber(fields[i + 1]))
  if member == 1 then members[#members + 1] = fields[i] end
end
local last = now_s - tonumber(ARGV[4])
local silent = call('ZRANGEBYSCORE', KEYS[4], '-inf', last)
local live = call('ZRANGEBYSCORE', KEYS[4], '(' .. last, '+inf')

local notices = {}
fields = call('HGETALL', KEYS[6])
for i = 1, #fields, 2 do
  local ends, text = string.match(fields[i + 1], '^(%d+) (.*)$')
  local left = ends and tonumber(ends) - now_s or 0
  if left > 0 then
    local n = #notices
    notices[n + 1], notices[n + 2], notices[n + 3] = fields[i], text, left
  else
    call('HDEL', KEYS[6], fields[i])
  end
end
return {agrees and 1 or 0, members, silent, live, notices}
