-- Take back the affinity that a reservation added: its replica did not take the prompt in.
-- KEYS  open reservations of the router[, session's entry][, sticky entry, checkpoint...]
-- ARGV  1 reservation id  2 sessions: 1 or 0
local held = call('HGET', KEYS[1], ARGV[1])
if not held then return end
local sticky = 2 + tonumber(ARGV[2])
local index, _, _, depth, new = unpack_at(HELD, held)
for i = sticky + 1 + depth, #KEYS do
  local value = call('GET', KEYS[i])
  if value then
    local kept, left = without(value, index), call('PTTL', KEYS[i])
    if #kept == 0 then
      call('DEL', KEYS[i])
    elseif #kept < #value and left > 0 then
      call('SET', KEYS[i], kept, 'PX', left)
    end
  end
end
local function drop(key)
  local value = call('GET', key)
  if value and read_entry(value, 1) == index then call('DEL', key) end
end
if new % 2 == 1 then drop(KEYS[sticky]) end
if new >= 2 then drop(KEYS[2]) end
