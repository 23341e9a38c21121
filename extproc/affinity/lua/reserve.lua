-- Match, choose and record in one step. routing/strategies.py and memory.py do the same in Python.
-- KEYS  state, open reservations of the router, routers, keys written[, session's entry]
--       [, sticky entry, checkpoint...]
-- ARGV  1 generation  2 reservation id  3 candidates: 2 bytes of index each, in order of ties
--       4 strategy  5 uncached_milli  6 decode_tokens  7 rate  8 threshold  9 ttl
--       10 flags: 1 matched only, 2 hold, 4 session, 8 explain, 16 record nothing  11 total tokens
--       12 tokens at each checkpoint, 4 bytes each
--       13 router  14 cache_tokens  15 standings: 2 bytes of weight and 4 of queued tokens each, or none
--       16 session_tokens  17 most in flight  18 most new keys in a ttl
-- Returns {reason, matched, best, keys not written, index...}: ranked indexes, none for nobody;
--         {-1}: stale generation. Explained, one more: {in flight, pending, matched, cost}, each of all
--         candidates.

local MATCHED, SPILLED, COLD, NO_PROMPT, BASELINE, OBSERVING, SHED, SESSION = 1, 2, 3, 4, 5, 6, 7, 8

local state = call('GET', KEYS[1])
if not state or sub(state, 1, 8) ~= ARGV[1] then return {-1} end

local held = call('HGET', KEYS[2], ARGV[2])
if held then
  local index, _, _, _, _, reason, matched, best = unpack_at(HELD, held)
  return {reason, matched, best, 0, index}
end

local now = clock()
local now_s = seconds(now)
local strategy, uncached_milli, decode_tokens = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local rate, threshold, ttl = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local flags, total, tokens = tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12]
local function flag(bit) return floor(flags / bit) % 2 == 1 end
local matched_only, hold, in_session, explain, dry = flag(1), flag(2), flag(4), flag(8), flag(16)
local capacity = floor(tonumber(ARGV[14]) / BLOCK)
local session_tokens, limit, max_keys = tonumber(ARGV[16]), tonumber(ARGV[17]), tonumber(ARGV[18])
local sticky_key = in_session and 6 or 5
local prompt, count = #KEYS >= sticky_key, #KEYS - sticky_key

local size = #ARGV[3] / 2
local index, in_flight, pending = {}, {}, {}
local epoch, taken = {}, {} -- of those whose past matters
local matched, depth = {}, {} -- of those who hold something
for i = 1, size do
  local a, b = byte(ARGV[3], 2 * i - 1, 2 * i)
  local each = a * 256 + b
  local n, p, c = load_of(state, each)
  if p > 0 then p = p - drainable(p, c, now, rate) end
  index[i], in_flight[i], pending[i] = each, n, p
end
local function look_up_past(i)
  if epoch[i] then return end
  local _, _, _, _, since, _, blocks = record(state, index[i])
  epoch[i], taken[i] = since, blocks
end
-- As in routing/standing.py: what is in flight and pending weighs more on who can bear less.
if ARGV[15] ~= '' then
  for i = 1, size do
    local weight, queued = unpack_at('<I2I4', ARGV[15], 6 * i - 5)
    in_flight[i] = floor(in_flight[i] * 1000 / weight)
    pending[i] = floor((pending[i] + queued) * 1000 / weight)
  end
end

-- Whether a candidate still holds what it saw; with 4 quarters, whether that is hardly old.
local function holds(i, second, blocks, quarters)
  look_up_past(i)
  if second < epoch[i] or (now_s - second) * quarters >= ttl then return false end
  return capacity == 0 or (taken[i] - blocks) % WRAP * quarters < capacity
end

-- Places of the candidates by their index.
local position = {}
if prompt or in_session then
  for i = 1, size do position[index[i]] = i end
end

-- Match: the deepest live checkpoint of each candidate.
local values, best = {}, 0
if prompt and count > 0 then
  values = call('MGET', unpack(KEYS, sticky_key + 1))
  local found = 0
  for p = count, 1, -1 do
    local value = values[p]
    if value then
      for at = 1, #value - ENTRY_SIZE + 1, ENTRY_SIZE do
        local each, second, blocks = read_entry(value, at)
        local i = position[each]
        if i and not depth[i] and holds(i, second, blocks, 1) then
          depth[i], found = p, found + 1
          matched[i] = unpack_at('<I4', tokens, 4 * p - 3)
          best = max(best, matched[i])
        end
      end
      if found == size then break end
    end
  end
end

local cost
local function answer(reply)
  if explain then
    for i = 1, size do matched[i] = matched[i] or 0 end
    reply[#reply + 1] = {in_flight, pending, matched, cost or {}}
  end
  return reply
end

-- Who has room.
local room, size_of_room = {}, 0
for i = 1, size do
  if limit == 0 or in_flight[i] < limit then
    size_of_room = size_of_room + 1
    room[size_of_room] = i
  end
end
if size_of_room == 0 then return answer({SHED, 0, best, 0}) end

-- The candidate that an entry names, whether the entry may be written, and its second. The entry of
-- a member that is no candidate now stays as it is.
local function named(key)
  local value = call('GET', key)
  if not value then return nil, true end
  local each, second = read_entry(value, 1)
  local _, _, _, _, since, member = record(state, each)
  if member ~= 1 or second < since or now_s - second >= ttl then return nil, true end
  return position[each], position[each] ~= nil, second
end
local sticky, writable, home_second, session, session_writable, session_second
if prompt and strategy == 'prefix_aware' then
  sticky, writable, home_second = named(KEYS[sticky_key])
end
if in_session then session, session_writable, session_second = named(KEYS[5]) end

-- Choose.
local function first(costs)
  local a, b, c
  for at = 1, size_of_room do
    local i = room[at]
    local its = costs[i]
    if not a or its < costs[a] then a, b, c = i, a, b
    elseif not b or its < costs[b] then b, c = i, b
    elseif not c or its < costs[c] then c = i end
  end
  return {a, b, c}
end

local ranked, reason, home
if strategy == 'kv_aware' then
  cost = {}
  local busy = 1000 * decode_tokens
  for i = 1, size do
    cost[i] = 1000 * pending[i] + uncached_milli * (total - (matched[i] or 0)) + busy * in_flight[i]
  end
  if session then cost[session] = cost[session] - 1000 * session_tokens end
  ranked = first(cost)
  if best > 0 and (matched[ranked[1]] or 0) == best then reason = MATCHED
  elseif ranked[1] == session then reason = SESSION
  elseif not prompt then reason = NO_PROMPT
  elseif best > 0 then reason = SPILLED
  else reason = COLD end
elseif strategy == 'prefix_aware' and prompt then
  home = sticky or 1
  cost = {}
  for i = 1, size do
    -- Below the threshold in order, the home first; then the full ones by their load.
    local full = in_flight[i] >= threshold
    cost[i] = (full and 2 * (1 + in_flight[i]) or 0) + (i == home and 0 or 1)
  end
  ranked = first(cost)
  if ranked[1] ~= home then reason = SPILLED
  elseif sticky then reason = MATCHED
  else reason = COLD end
elseif strategy == 'random' then
  ranked, reason = {}, BASELINE
  for rank = 1, min(3, size_of_room) do ranked[rank] = room[rank] end
elseif strategy == 'round_robin' then
  local turn = unpack_at('<I4', state, 9)
  ranked, reason = {}, BASELINE
  for rank = 1, min(3, size_of_room) do
    ranked[rank] = room[(turn + rank - 1) % size_of_room + 1]
  end
else -- least_outstanding_requests, and prefix_aware without a prompt
  cost = in_flight
  ranked = first(cost)
  reason = strategy == 'prefix_aware' and NO_PROMPT or BASELINE
end
if matched_only and reason ~= MATCHED and reason ~= SPILLED and reason ~= SESSION then
  return answer({OBSERVING, 0, best, 0})
end
local chosen = ranked[1]
local matched_tokens, matched_depth = matched[chosen] or 0, depth[chosen] or 0
local reply = {reason, matched_tokens, best, 0}
for rank = 1, #ranked do reply[4 + rank] = index[ranked[rank]] end
if dry then return answer(reply) end

-- Whether one more new key may be written. Counted from the first one on, for a ttl: a count of what
-- is there would have to see each key expire.
local since, written, unwritten
local function may_add()
  if max_keys == 0 then return true end
  if not written then
    local value = call('GET', KEYS[4])
    since, written, unwritten = now_s, 0, 0
    if value then
      local then_, number = unpack_at('<I6I4', value)
      if now_s - then_ < ttl then since, written = then_, number end
    end
  end
  if written >= max_keys then
    unwritten = unwritten + 1
    return false
  end
  written = written + 1
  return true
end

-- Record.
local mine = index[chosen]
if strategy == 'round_robin' then
  call('SETRANGE', KEYS[1], 8, pack('<I4', (unpack_at('<I4', state, 9) + 1) % 4294967296))
end
look_up_past(chosen)
local blocks = taken[chosen]
if home and writable and not sticky then writable = may_add() end
if session_writable and not session then session_writable = may_add() end
if hold then
  local n, p, c, drained, since, member = record(state, mine)
  p, c, drained = drain(p, c, drained, now, rate)
  local uncached = total - matched_tokens
  local ending = drained + p + uncached
  blocks = (blocks + math.ceil(uncached / BLOCK)) % WRAP
  write_record(KEYS[1], mine, n + 1, p + uncached, c, drained, since, member, blocks)
  local new_home = home and not sticky and writable and 1 or 0
  local new_session = session_writable and session ~= chosen and 2 or 0
  call('HSET', KEYS[2], ARGV[2],
    pack(HELD, mine, uncached, ending, matched_depth, new_home + new_session, reason, matched_tokens,
      best, now))
  if call('HLEN', KEYS[2]) == 1 then
    call('EXPIRE', KEYS[2], KEEP)
    call('ZADD', KEYS[3], now_s, ARGV[13]) -- or, taken for dead before, it could die unnoticed
    call('EXPIRE', KEYS[3], KEEP)
  end
end
-- From the deepest up: what is before a fresh checkpoint is not much older than it.
taken[chosen] = blocks
local fresh_entry = entry(mine, max(now_s, epoch[chosen]), blocks)
local keep = string.format('%.0f', ttl + 2)
for p = count, 1, -1 do
  local value, others, live = values[p], '', false
  if value then
    local fresh = false
    for at = 1, p <= matched_depth and #value - ENTRY_SIZE + 1 or 0, ENTRY_SIZE do
      local each, seen, then_ = read_entry(value, at)
      if each == mine then
        fresh = holds(chosen, seen, then_, 4)
        break
      end
    end
    if fresh then break end
    others = without(value, mine, now_s, ttl)
    live = #without(value, -1, now_s, ttl) > 0
  end
  if live or may_add() then
    call('SETEX', KEYS[p + sticky_key], keep, fresh_entry .. others)
  end
end
-- Name a candidate in an entry, unless it is named there and hardly old.
local function name(key, i, before, second)
  if before == i and (now_s - second) * 4 < ttl then return end
  look_up_past(i)
  call('SETEX', key, keep, entry(index[i], max(now_s, epoch[i]), 0))
end
if home and writable then name(KEYS[sticky_key], home, sticky, home_second) end
if session_writable then name(KEYS[5], chosen, session, session_second) end

if written then call('SET', KEYS[4], pack('<I6I4', since, written), 'EX', keep) end

reply[4] = unwritten or 0
return answer(reply)
