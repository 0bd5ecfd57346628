-- The history of devices, and the detection of lost devices. `devices.py` puts this file in front of
-- `devices.lua`, and `local POLICY = …` in front of both.
--
--   farrier:history:<id>  stream of the events of a device, JSON objects with the field `what`; bounded
--   farrier:devices       sorted set of all ids, by name
--   farrier:beating       sorted set of the devices that are not lost, by the time of their last call
--   farrier:present:<class>  the subset of a class (`presence.py`); the field `present` of a device is the
--                         class whose set contains it
--   farrier:looked        hash: `last`, the time of the last search for lost devices, and `since`, the time
--                         from which on the searches came without a gap
--
-- Events of single batches are in the history only, because they are too many for the farm's event stream.

local QUIET_MS = 3000 -- A longer gap between searches resets `since`; brokers search once a second.

-- Add the time since the device received the batch to the device time that the owner of its job has used
-- today (`quotas.py`).
local function spend(device, batch)
  local job = redis.call('HGET', 'farrier:batch:item:' .. batch, 'job')
  local user = job and redis.call('HGET', 'farrier:job:item:' .. job, 'share')
  local held = tonumber(redis.call('HGET', KEYS[1] .. ':' .. device, 'held') or '')
  if not user or not held then return end
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local day = string.format('farrier:device-ms:%d', math.floor(now / 86400000))
  redis.call('HINCRBY', day, user, string.format('%d', math.max(now - held, 0)))
  redis.call('EXPIRE', day, 3 * 86400)
end

local function note(device, what, event, of_a_batch)
  if what == 'measured' or what == 'faulted' then spend(device, event.batch) end
  event.kind, event.device, event.what = 'device', device, what
  local text = cjson.encode(event)
  redis.call('XADD', POLICY.history .. ':' .. device, 'MAXLEN', '~', POLICY.history_kept, '*', 'data', text)
  redis.call('HINCRBY', POLICY.news .. ':counts', 'device ' .. what, 1)
  if not of_a_batch then
    redis.call('XADD', POLICY.news, 'MAXLEN', '~', POLICY.news_kept, '*', 'data', text)
  end
end

local function note_of_batch(device, what, batch, event)
  event.batch = batch
  event.job = redis.call('HGET', 'farrier:batch:item:' .. batch, 'job') or nil
  note(device, what, event, true)
end

local function leave_present(device, key)
  local class = redis.call('HGET', key, 'present')
  if class then redis.call('ZREM', 'farrier:present:' .. class, device) end
  redis.call('HDEL', key, 'present')
end

-- Record a call of a device. If the device was lost, note that it is back.
local function beat(device, key, now)
  redis.call('ZADD', 'farrier:beating', now, device)
  local class, present = unpack(redis.call('HMGET', key, 'class', 'present'))
  if present and present ~= class then leave_present(device, key) end
  if class then
    redis.call('ZADD', 'farrier:present:' .. class, now, device)
    if present ~= class then redis.call('HSET', key, 'present', class) end
  end
  if redis.call('HDEL', key, 'lost') == 1 then note(device, 'back', {}) end
end

-- Note which devices are lost. After a gap in the searches, when no broker ran or Redis was not reachable, no
-- device could call, so each device gets the full time again before it counts as lost.
local function look(key_of, now)
  local last, since = unpack(redis.call('HMGET', 'farrier:looked', 'last', 'since'))
  if not last or math.abs(now - last) > math.max(POLICY.expiry_ms / 2, QUIET_MS) then since = now end
  redis.call('HSET', 'farrier:looked', 'last', string.format('%d', now), 'since', string.format('%d', since))
  local before = now - POLICY.expiry_ms
  if tonumber(since) > before then return end
  local lost = redis.call(
    'ZRANGE', 'farrier:beating', '-inf', string.format('(%d', before), 'BYSCORE', 'LIMIT', 0, 100)
  for _, device in ipairs(lost) do
    redis.call('ZREM', 'farrier:beating', device)
    leave_present(device, key_of(device))
    redis.call('HSET', key_of(device), 'lost', '1')
    note(device, 'lost', {})
  end
end

