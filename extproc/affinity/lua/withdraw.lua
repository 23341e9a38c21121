-- Take back the affinity that a reservation added: its replica did not take the prompt in.
-- KEYS  open reservations of the router, sticky entry, checkpoint...
-- ARGV  1 reservation id
local held = call('HGET', KEYS[1], ARGV[1])
if not held then return end
local index, _, _, depth, new_home = unpack_at(HELD, held)
for i = 3 + depth, #KEYS do
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
if new_home == 1 then
  local value = call('GET', KEYS[2])
  if value and read_entry(value, 1) == index then call('DEL', KEYS[2]) end
end
