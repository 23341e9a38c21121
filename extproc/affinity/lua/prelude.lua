-- What all scripts share. A pool's state is one string, so that one GET shows every replica:
--   header  8 bytes generation, 4 bytes turn of round robin, 4 bytes latest epoch of a member that left
--   record  32 bytes for each replica index, see FORMAT
-- The generation changes whenever an index changes its meaning: when the state is created (again),
-- and when an index is given to another replica. A router that learned its indexes under an older
-- one is told so instead of counting at wrong replicas.
-- All numbers are integers below 2^53. ledger.py explains the accounting.

local HEADER, RECORD = 16, 32
-- in flight, pending, clock (us), drained, epoch (s), member, blocks taken in (modulo 2^32)
local FORMAT = '<I4I6I7I6I4I1I4'
local LOAD = '<I4I6I7' -- its beginning
local HELD = '<I2I4I6I2I1I1I4I4I7' -- index, tokens, end, depth, new entries, reason, matched, best, taken at
local ENTRY, ENTRY_SIZE = '>I2I4I4', 10 -- replica index, Unix second and blocks taken in at last use
local BLOCK, WRAP = 16, 4294967296 -- tokens of a cache block
local KEEP = 3600 -- seconds that a pool's bookkeeping outlives its last use

local call, byte, char, sub = redis.call, string.byte, string.char, string.sub
local pack, unpack_at = struct.pack, struct.unpack
local floor, max, min = math.floor, math.max, math.min

-- Microseconds: in coarser steps, what rounding takes from each drain would add up.
local function clock()
  local time = call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function seconds(time)
  return floor(time / 1000000)
end

local function offset(index)
  return HEADER + RECORD * index
end

-- A record that was never written reads as zeros.
local function record(state, index)
  local at = offset(index)
  if #state < at + RECORD then return 0, 0, 0, 0, 0, 0, 0 end
  return unpack_at(FORMAT, state, at + 1)
end

-- Its first three values, which are what choosing needs of everybody.
local function load_of(state, index)
  local at = offset(index)
  if #state < at + RECORD then return 0, 0, 0 end
  return unpack_at(LOAD, state, at + 1)
end

local function write_record(key, index, in_flight, pending, clock_us, drained, epoch, member, taken)
  call('SETRANGE', key, offset(index),
    pack(FORMAT, in_flight, pending, clock_us, drained, epoch, member, taken))
end

-- What leaves a queue of `pending` tokens by now.
local function drainable(pending, clock_us, now, rate)
  return min(pending, floor(max(0, now - clock_us) * rate / 1000000))
end

-- Returns pending, clock and drained after draining up to now.
local function drain(pending, clock_us, drained, now, rate)
  local done = drainable(pending, clock_us, now, rate)
  pending = pending - done
  if pending == 0 then
    clock_us = now
  else
    clock_us = clock_us + floor(done * 1000000 / rate)
  end
  return pending, clock_us, drained + done
end

local function taken_at(held)
  local _, _, _, _, _, _, _, _, at = unpack_at(HELD, held)
  return at
end

-- Take one reservation (a value packed as HELD) out of a replica's account.
local function give_back(key, held, now, rate)
  local index, tokens, ending = unpack_at(HELD, held)
  local at = offset(index)
  local found = call('GETRANGE', key, at, at + RECORD - 1)
  if #found < RECORD then return end
  local in_flight, pending, clock_us, drained, epoch, member, taken = unpack_at(FORMAT, found, 1)
  pending, clock_us, drained = drain(pending, clock_us, drained, now, rate)
  in_flight = max(0, in_flight - 1)
  if in_flight == 0 then
    pending = 0
  else
    pending = max(0, pending - min(tokens, max(0, ending - drained)))
  end
  write_record(key, index, in_flight, pending, clock_us, drained, epoch, member, taken)
end

-- The epoch of a member that (re)joins or restarts: no affinity that is older counts for it, even where
-- more than one such thing happens in a second. `former` is the latest epoch that is to be void.
local function next_epoch(former, now_s)
  return max(former, now_s) + 1
end

local function entry(index, second, taken)
  return pack(ENTRY, index, second, taken)
end

local function read_entry(value, at)
  return unpack_at(ENTRY, value, at)
end

-- The entries of a value but for one replica's; with `now_s`, also without expired ones.
local function without(value, index, now_s, ttl)
  local kept = {}
  for at = 1, #value - ENTRY_SIZE + 1, ENTRY_SIZE do
    local other, second = read_entry(value, at)
    if other ~= index and (not now_s or now_s - second < ttl) then
      kept[#kept + 1] = sub(value, at, at + ENTRY_SIZE - 1)
    end
  end
  return table.concat(kept)
end
