-- End reservations. Unknown ids are ignored, so this may be repeated.
-- KEYS  state, open reservations of the router
-- ARGV  1 rate  2... reservation ids
local now, rate = clock(), tonumber(ARGV[1])
for i = 2, #ARGV do
  local held = call('HGET', KEYS[2], ARGV[i])
  if held then
    call('HDEL', KEYS[2], ARGV[i])
    give_back(KEYS[1], held, now, rate)
  end
end
