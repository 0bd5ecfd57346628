-- Leased items: their keys, state changes, references to blobs, and removal.
--
-- `leases.py` concatenates two lines, `local CHANGES = …` (the table of `states.py`) and `local POLICY = …` (the
-- numbers of `LeasePolicy`), and five files: `curves.lua`, `throughput.lua`, `items.lua`, `shares.lua` and
-- `leases.lua`. KEYS[1] is the prefix of the kind of item, KEYS[2] the prefix of references (`references.py`).
--
--   <prefix>:item:<id>      hash: state, queue, share, entry, fence, attempts, crashes, once, owner (the
--                           holder of its lease), and payload
--   <prefix>:events:<id>    stream of the item's events, bounded
--   <prefix>:log:<id>       only with `POLICY.log`: the state changes among the events, and the events
--                           whose writer marks them for the log, under the same ids; bounded
--   <prefix>:state:<state>  sorted set of ids (score 0, so ordered by id)
--   <prefix>:state:<state>:<share>  the same, of one share
--   <prefix>:share:<share>  the same, of one share in any state
--   <prefix>:group:<name>   the same, by the group that the item was put in
--   <prefix>:once           hash: idempotency key → id
--   <prefix>:finished       sorted set of the items that have ended, by the time of their end in ms
--   <prefix>:weighty        the subset with a size (bytes in the field `POLICY.weighs`) above 0
--   <prefix>:kept           the sum of these sizes
--
-- Only kinds without `POLICY.ttl_s` have the last three keys; their items stay until `forget` removes them.

local prefix, references = KEYS[1], KEYS[2]

local function item_key(id) return prefix .. ':item:' .. id end
local function events_key(id) return prefix .. ':events:' .. id end
local function log_key(id) return prefix .. ':log:' .. id end
local function group_key(name) return prefix .. ':group:' .. name end
local function share_key(share) return prefix .. ':share:' .. share end
local function state_key(state, share)
  return prefix .. ':state:' .. state .. (share and ':' .. share or '')
end
local function get(id, field) return redis.call('HGET', item_key(id), field) end

-- Return the share of an item. Items of older versions have no field `share`.
local function share_of(id) return get(id, 'share') or POLICY.share end

local function stamp(ms) return string.format('%d', ms) end

local function now_ms()
  local time = redis.call('TIME')
  return stamp(time[1] * 1000 + math.floor(time[2] / 1000))
end

local function is_final(state) return next(CHANGES[state]) == nil end

local function say(id, json, is_logged)
  local entry = redis.call('XADD', events_key(id), 'MAXLEN', '~', POLICY.events, '*', 'data', json)
  if is_logged and POLICY.log then
    redis.call('XADD', log_key(id), 'MAXLEN', '~', POLICY.events, entry, 'data', json)
  end
end

-- Add an event whose writer holds no lease. The event stream ends with the change to a final state, so a
-- later event goes to the log only, and only while the log still exists.
local function note(id, json)
  if is_final(get(id, 'state')) then
    redis.call('XADD', log_key(id), 'NOMKSTREAM', 'MAXLEN', '~', POLICY.events, '*', 'data', json)
  else
    say(id, json, true)
  end
end

-- Add a state change to the events of the item, and to the events of the farm if the kind of item has them
-- (`farm_events.py`).
local function tell(id, event)
  say(id, cjson.encode(event), true)
  if POLICY.news == '' then return end
  redis.call('HINCRBY', POLICY.news .. ':counts', 'job ' .. event.state, 1)
  event.kind, event.job, event.name, event.owner = 'job', id, get(id, 'name'), share_of(id)
  event.private = get(id, 'private') == '1'
  redis.call('XADD', POLICY.news, 'MAXLEN', '~', POLICY.news_kept, '*', 'data', cjson.encode(event))
end

-- Set the fields in ARGV from position `first` on. The fields of `POLICY.refers` contain digests of blobs;
-- the item refers to these blobs from then on. Such a field is set once, or only grows, so no reference has
-- to be removed here.
local function set_fields(id, first)
  for i = first, #ARGV, 2 do
    redis.call('HSET', item_key(id), ARGV[i], ARGV[i + 1])
    if POLICY.refers[ARGV[i]] then
      for digest in ARGV[i + 1]:gmatch('%x+') do
        redis.call('SADD', references .. digest, item_key(id))
      end
    end
  end
end

local function stop_referring(id)
  for name in pairs(POLICY.refers) do
    for digest in (get(id, name) or ''):gmatch('%x+') do
      redis.call('SREM', references .. digest, item_key(id))
    end
    redis.call('HDEL', item_key(id), name)
  end
end

local function enter_state(id, state, share)
  redis.call('ZADD', state_key(state), 0, id)
  if share ~= '' then redis.call('ZADD', state_key(state, share), 0, id) end
end

local function leave_state(id, state, share)
  redis.call('ZREM', state_key(state), id)
  if share ~= '' then redis.call('ZREM', state_key(state, share), id) end
end

local function enter_groups(id, share)
  redis.call('ZADD', group_key(get(id, 'group')), 0, id)
  if share ~= '' then redis.call('ZADD', share_key(share), 0, id) end
end

local function weigh(id, finished)
  local bytes = tonumber(get(id, POLICY.weighs) or 0)
  if bytes > 0 and redis.call('ZADD', prefix .. ':weighty', 'NX', finished, id) == 1 then
    redis.call('INCRBY', prefix .. ':kept', bytes)
  end
end

-- Record the end of an item. If its kind has `POLICY.ttl_s`, the item expires soon, so it leaves the indexes
-- and drops its references at once.
local function retire(id)
  local now = now_ms()
  redis.call('HSET', item_key(id), 'finished', now)
  if POLICY.counts ~= '' then count_in_minute(POLICY.counts) end
  for _, name in ipairs(POLICY.beside) do
    redis.call('EXPIRE', prefix .. ':' .. name .. ':' .. id, POLICY.events_s)
  end
  if POLICY.ttl_s > 0 then
    redis.call('EXPIRE', item_key(id), POLICY.ttl_s)
    leave_state(id, get(id, 'state'), share_of(id))
    redis.call('ZREM', group_key(get(id, 'group')), id)
    if share_of(id) ~= '' then redis.call('ZREM', share_key(share_of(id)), id) end
    stop_referring(id)
  else
    redis.call('ZADD', prefix .. ':finished', now, id)
    weigh(id, now)
  end
end

-- Remove an item that has ended, with all its keys and index entries.
local function forget(id)
  local share, once = share_of(id), get(id, 'once')
  leave_state(id, get(id, 'state'), share)
  redis.call('ZREM', group_key(get(id, 'group')), id)
  redis.call('ZREM', prefix .. ':finished', id)
  if redis.call('ZREM', prefix .. ':weighty', id) == 1 then
    redis.call('DECRBY', prefix .. ':kept', get(id, POLICY.weighs))
  end
  if once and redis.call('HGET', prefix .. ':once', once) == id then
    redis.call('HDEL', prefix .. ':once', once)
  end
  if share ~= '' then
    redis.call('ZREM', share_key(share), id)
    if redis.call('EXISTS', share_key(share)) == 0 then
      redis.call('HDEL', prefix .. ':served', share)
    end
  end
  stop_referring(id)
  redis.call('DEL', item_key(id))
  for _, name in ipairs(POLICY.beside) do redis.call('DEL', prefix .. ':' .. name .. ':' .. id) end
end
