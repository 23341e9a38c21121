-- Take back the share of a router that is silent, or that says goodbye (silence -1).
-- KEYS  state, routers, open reservations of that router
-- ARGV  1 router  2 rate  3 silence in seconds
-- Returns how many reservations were taken back.
local now, rate = clock(), tonumber(ARGV[2])
local seen = tonumber(call('ZSCORE', KEYS[2], ARGV[1]))
if seen and seconds(now) - seen < tonumber(ARGV[3]) then return 0 end
local open = call('HVALS', KEYS[3])
for i = 1, #open do give_back(KEYS[1], open[i], now, rate) end
call('DEL', KEYS[3])
call('ZREM', KEYS[2], ARGV[1])
return #open
