-- The lease layer: every change of a leased item is one call of this script, so it is atomic.
--
-- `leases.py` puts two lines in front: `local CHANGES = …` (the table of `states.py`) and
-- `local POLICY = …` (the numbers of `LeasePolicy`).
-- KEYS[1] is the prefix of the kind of item, KEYS[2] that of references (`references.py`); ARGV[1]
-- names the operation, its arguments follow.
-- An answer is an array whose first word says what happened.
--
--   <prefix>:item:<id>      hash: state, queue, entry, fence, attempts, crashes, owner, and payload
--   <prefix>:events:<id>    stream of the item's events, bounded
--   <prefix>:queue:<name>   stream; an entry is queued while undelivered, leased while pending in the
--                           group, and its idle time there is the age of the last renewal
--   <prefix>:queues         set of the names of all queues
--   <prefix>:state:<state>  sorted set of ids (score 0, so ordered by id)
--   <prefix>:group:<name>   the same, by the group that the item was put in
--   <prefix>:once           hash: idempotency key → id
--   <prefix>:call:<key>     what a `take` leased, while that lease may be valid without a renewal
--   <prefix>:heard          when this script last ran, in ms, to within a quarter of a lease

local prefix, references = KEYS[1], KEYS[2]
local GROUP, CONSUMER = 'holders', 'holder'

local function item_key(id) return prefix .. ':item:' .. id end
local function events_key(id) return prefix .. ':events:' .. id end
local function queue_key(name) return prefix .. ':queue:' .. name end
local function state_key(state) return prefix .. ':state:' .. state end
local function group_key(name) return prefix .. ':group:' .. name end
local function get(id, field) return redis.call('HGET', item_key(id), field) end

local function stamp(ms) return string.format('%d', ms) end

local function now_ms()
  local time = redis.call('TIME')
  return stamp(time[1] * 1000 + math.floor(time[2] / 1000))
end

local function is_final(state) return next(CHANGES[state]) == nil end

local function say(id, json)
  redis.call('XADD', events_key(id), 'MAXLEN', '~', POLICY.events, '*', 'data', json)
end

-- A field of `POLICY.refers` holds digests. It is set once, and from then on the item refers to them.
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

local function ensure_queue(queue)
  if redis.call('EXISTS', queue_key(queue)) == 0 then
    redis.call('XGROUP', 'CREATE', queue_key(queue), GROUP, '0', 'MKSTREAM')
    redis.call('SADD', prefix .. ':queues', queue)
  end
end

local function enqueue(id)
  local queue = get(id, 'queue')
  ensure_queue(queue)
  redis.call('HSET', item_key(id), 'entry', redis.call('XADD', queue_key(queue), '*', 'item', id))
end

local function dequeue(id)
  local stream, entry = queue_key(get(id, 'queue')), get(id, 'entry')
  redis.call('XACK', stream, GROUP, entry)
  redis.call('XDEL', stream, entry)
end

-- An item of a kind that is forgotten after its end leaves the indexes at once, and refers to nothing.
local function retire(id)
  redis.call('HSET', item_key(id), 'finished', now_ms())
  redis.call('EXPIRE', events_key(id), POLICY.events_s)
  if POLICY.ttl_s > 0 then
    redis.call('EXPIRE', item_key(id), POLICY.ttl_s)
    redis.call('ZREM', state_key(get(id, 'state')), id)
    redis.call('ZREM', group_key(get(id, 'group')), id)
    stop_referring(id)
  end
end

-- `reason` is why an item is in the queue, where there is more to say than that it was put there.
local function change(id, to, reason)
  local from = get(id, 'state')
  if not CHANGES[from][to] then
    error('no change from ' .. from .. ' to ' .. to)
  end
  redis.call('HSET', item_key(id), 'state', to)
  redis.call('ZREM', state_key(from), id)
  redis.call('ZADD', state_key(to), 0, id)
  local event = {kind = 'state', state = to, attempt = tonumber(get(id, 'attempts')), reason = reason}
  local failure = get(id, 'error')
  if failure then event.error = cjson.decode(failure) end
  say(id, cjson.encode(event))
  if is_final(to) then retire(id) end
end

local function holds(id, fence)
  return get(id, 'state') == 'running' and get(id, 'fence') == fence
end

-- Back to the end of the queue, or dead where it brought down its holder too often.
local function give_back(id, crashed, reason)
  dequeue(id)
  if crashed then
    local crashes = redis.call('HINCRBY', item_key(id), 'crashes', 1)
    redis.call('HSET', item_key(id), 'last_crash', reason)
    if crashes >= POLICY.crashes then
      local message = 'gave up after ' .. crashes .. ' crashes; the last: ' .. reason
      redis.call('HSET', item_key(id), 'error',
        cjson.encode({code = 'dead', message = message, hint = POLICY.hint}))
      change(id, 'dead')
      return 'dead'
    end
  end
  redis.call('HDEL', item_key(id), 'owner')
  change(id, 'queued', reason)
  enqueue(id)
  return 'queued'
end

local function reap(queue)
  ensure_queue(queue)
  local expired = redis.call(
    'XAUTOCLAIM', queue_key(queue), GROUP, CONSUMER, POLICY.lease_ms, '0-0', 'COUNT', 100)[2]
  for _, entry in ipairs(expired) do
    local id = entry[2][2]
    local owner = get(id, 'owner') or '?'
    give_back(id, true, owner .. ' stopped renewing its lease')
  end
  return #expired
end

local function field(pairs, name)
  for i = 1, #pairs, 2 do
    if pairs[i] == name then return pairs[i + 1] end
  end
end

-- The entry of a stream that is delivered next, as milliseconds and number; nil where there is none.
local function next_entry(stream)
  local delivered = field(redis.call('XINFO', 'GROUPS', stream)[1], 'last-delivered-id')
  local entry = redis.call('XRANGE', stream, '(' .. delivered, '+', 'COUNT', 1)[1]
  if not entry then return nil end
  local ms, number = entry[1]:match('(%d+)-(%d+)')
  return {ms = tonumber(ms), number = tonumber(number), stream = stream}
end

local function is_older(one, other)
  return one.ms < other.ms or (one.ms == other.ms and one.number < other.number)
end

-- A holder cannot renew while the server stands still, or is away, and a clock that is put forward is no
-- silence: after such a time every lease counts from now. Nor does one last longer for a clock that is put
-- back. Holders and waiters call at least once a second, but for leases that are too short for that.
local function hear()
  local key, now = prefix .. ':heard', tonumber(now_ms())
  local heard = tonumber(redis.call('GET', key) or now)
  if math.abs(now - heard) > math.max(POLICY.lease_ms / 2, POLICY.quiet_ms) then
    for _, queue in ipairs(redis.call('SMEMBERS', prefix .. ':queues')) do
      local stream = queue_key(queue)
      for _, entry in ipairs(redis.call('XPENDING', stream, GROUP, '-', '+', 10000)) do
        redis.call('XCLAIM', stream, GROUP, CONSUMER, 0, entry[1], 'JUSTID')
      end
    end
  end
  if heard == now or math.abs(now - heard) > POLICY.lease_ms / 4 then
    redis.call('SET', key, stamp(now))
  end
end

local function by_key(once) return once ~= '' and redis.call('HGET', prefix .. ':once', once) end

local function known(id, digest)
  return {get(id, 'digest') == digest and 'known' or 'conflict', id}
end

local operations = {}

-- idempotency key, digest: known | conflict, id | unknown
function operations.find()
  local id = by_key(ARGV[2])
  return id and known(id, ARGV[3]) or {'unknown'}
end

-- id, queue, group, idempotency key, digest, reason, then fields: created | known | conflict, id
function operations.put()
  local id, queue, group, once, digest = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
  local reason = ARGV[7] ~= '' and ARGV[7] or nil
  local before = by_key(once)
  if not before and redis.call('EXISTS', item_key(id)) == 1 then before = id end
  if before then return known(before, digest) end
  redis.call('HSET', item_key(id), 'state', 'queued', 'queue', queue, 'group', group,
    'digest', digest, 'fence', 0, 'attempts', 0, 'crashes', 0, 'created', now_ms())
  set_fields(id, 8)
  if once ~= '' then redis.call('HSET', prefix .. ':once', once, id) end
  redis.call('ZADD', state_key('queued'), 0, id)
  redis.call('ZADD', group_key(group), 0, id)
  say(id, cjson.encode({kind = 'state', state = 'queued', attempt = 0, reason = reason}))
  enqueue(id)
  return {'created', id}
end

-- owner, idempotency key, then queues: granted, id, fence, attempt | empty, newest entry of each
-- queue
function operations.take()
  local owner, call = ARGV[2], prefix .. ':call:' .. ARGV[3]
  local known = redis.call('GET', call)
  if known and get(known, 'state') == 'running' and get(known, 'call') == call then
    return {'granted', known, tonumber(get(known, 'fence')), tonumber(get(known, 'attempts'))}
  end
  local newest, oldest = {'empty'}, nil
  for i = 4, #ARGV do
    reap(ARGV[i])
    local stream = queue_key(ARGV[i])
    newest[#newest + 1] = field(redis.call('XINFO', 'STREAM', stream), 'last-generated-id')
    local entry = next_entry(stream)
    if entry and (not oldest or is_older(entry, oldest)) then oldest = entry end
  end
  if not oldest then return newest end
  local read = redis.call(
    'XREADGROUP', 'GROUP', GROUP, CONSUMER, 'COUNT', 1, 'STREAMS', oldest.stream, '>')
  local id = read[1][2][1][2][2]
  local fence = redis.call('HINCRBY', item_key(id), 'fence', 1)
  local attempt = redis.call('HINCRBY', item_key(id), 'attempts', 1)
  redis.call('SET', call, id, 'PX', POLICY.lease_ms)
  redis.call('HSET', item_key(id), 'owner', owner, 'call', call, 'said', 0)
  redis.call('HSETNX', item_key(id), 'started', now_ms())
  change(id, 'running')
  return {'granted', id, fence, attempt}
end

-- id, fence: ok | stale
function operations.renew()
  local id, fence = ARGV[2], ARGV[3]
  if not holds(id, fence) then return {'stale'} end
  redis.call('XCLAIM', queue_key(get(id, 'queue')), GROUP, CONSUMER, 0, get(id, 'entry'), 'JUSTID')
  return {'ok'}
end

-- id, fence, number of the event within the attempt, event, then fields: ok | stale
function operations.write()
  local id, fence, number, event = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
  if not holds(id, fence) then return {'stale'} end
  if number > tonumber(get(id, 'said')) then
    redis.call('HSET', item_key(id), 'said', number)
    say(id, event)
    set_fields(id, 6)
  end
  return {'ok'}
end

-- id, fence, final state, then fields: ok | known | stale
function operations.finish()
  local id, fence, to = ARGV[2], ARGV[3], ARGV[4]
  if get(id, 'finished_by') == fence then return {'known'} end
  if not holds(id, fence) then return {'stale'} end
  dequeue(id)
  set_fields(id, 5)
  redis.call('HSET', item_key(id), 'finished_by', fence)
  change(id, to)
  return {'ok'}
end

-- id, fence, '1' for a crash, reason: queued | dead | stale; a crash that is told again gets the
-- answer that it got
function operations.give_back()
  local id, fence, crashed, reason = ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]
  local known = get(id, 'crash:' .. fence)
  if known then return {known} end
  if not holds(id, fence) then return {'stale'} end
  local to = give_back(id, crashed, reason)
  if crashed then redis.call('HSET', item_key(id), 'crash:' .. fence, to) end
  return {to}
end

-- id: cancelled | final, state | unknown
function operations.cancel()
  local id = ARGV[2]
  local state = get(id, 'state')
  if not state then return {'unknown'} end
  if is_final(state) then return {'final', state} end
  dequeue(id)
  change(id, 'cancelled')
  return {'cancelled'}
end

-- queues: ok, how many leases had expired
function operations.reap()
  local expired = 0
  for i = 2, #ARGV do expired = expired + reap(ARGV[i]) end
  return {'ok', expired}
end

hear()
return operations[ARGV[1]]()
