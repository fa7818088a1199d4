-- Begins every script of the model pool. KEYS[1] is the prefix of the pool's keys.

local P = KEYS[1]

local function model_key(ref) return P .. 'model:' .. ref end
local function data_key(ref) return P .. 'data:' .. ref end

local function forget(player, ref)
  redis.call('UNLINK', data_key(ref))
  redis.call('DEL', model_key(ref))
  redis.call('ZREM', P .. 'versions:' .. player, ref)
  redis.call('ZREM', P .. 'live:' .. player, ref)
  redis.call('ZREM', P .. 'used', ref)
end
