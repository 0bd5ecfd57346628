-- Leased items: their keys, their changes of state, what they refer to, and how they are forgotten.
--
-- `leases.py` puts five files together, `curves.lua`, `throughput.lua`, `items.lua`, `shares.lua` and
-- `leases.lua`, and two lines in front: `local CHANGES = …` (the table of `states.py`) and `local POLICY = …` (the numbers of
-- `LeasePolicy`). KEYS[1] is the prefix of the kind of item, KEYS[2] that of references
-- (`references.py`).
--
--   <prefix>:item:<id>      hash: state, queue, share, entry, fence, attempts, crashes, once, owner (who
--                           holds its lease), and payload
--   <prefix>:events:<id>    stream of the item's events, bounded
--   <prefix>:log:<id>       where `POLICY.log`: those of them that are changes of state, or that their
--                           writer calls so, under the same ids; bounded
--   <prefix>:state:<state>  sorted set of ids (score 0, so ordered by id)
--   <prefix>:state:<state>:<share>  the same, of one share
--   <prefix>:share:<share>  the same, of one share in any state
--   <prefix>:group:<name>   the same, by the group that the item was put in
--   <prefix>:once           hash: idempotency key → id
--   <prefix>:finished       sorted set of the items that have ended, by when, in ms
--   <prefix>:weighty        those of them that weigh something (bytes in their field `POLICY.weighs`)
--   <prefix>:kept           what they weigh together
--
-- The last three, and items that are forgotten by `forget` alone, are of kinds without `POLICY.ttl_s`.

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

-- Items of older versions name no share.
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

-- What is said by who holds no lease. No event follows the change to a final state; the log is kept for a
-- while, and is not begun again then.
local function note(id, json)
  if is_final(get(id, 'state')) then
    redis.call('XADD', log_key(id), 'NOMKSTREAM', 'MAXLEN', '~', POLICY.events, '*', 'data', json)
  else
    say(id, json, true)
  end
end

-- A change of state is an event of the item, and of the farm where all are to hear of it (`farm_events.py`).
local function tell(id, event)
  say(id, cjson.encode(event), true)
  if POLICY.news == '' then return end
  redis.call('HINCRBY', POLICY.news .. ':counts', 'job ' .. event.state, 1)
  event.kind, event.job, event.name, event.owner = 'job', id, get(id, 'name'), share_of(id)
  event.private = get(id, 'private') == '1'
  redis.call('XADD', POLICY.news, 'MAXLEN', '~', POLICY.news_kept, '*', 'data', cjson.encode(event))
end

-- A field of `POLICY.refers` holds digests. It is set once, or grows, and from then on the item refers to
-- them.
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

-- An item of a kind that is forgotten soon after its end leaves the indexes at once, and refers to
-- nothing.
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

-- Removes an item that has ended, and all that is known of it.
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
