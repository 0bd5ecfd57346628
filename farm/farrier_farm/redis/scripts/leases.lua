-- The lease layer: every change of a leased item is one call of this script, so it is atomic.
--
-- `items.lua` defines the items, `shares.lua` the order in which they are leased, and `curves.lua` their curves.
-- ARGV[1] is the name of the operation, followed by its arguments. An answer is an array whose first word is
-- the outcome.
--
--   <prefix>:queue:<name>   stream of the items that are queued or leased. An entry that is pending in the
--                           consumer group is leased, and its idle time is the time since the last
--                           renewal. The last delivered entry of the group is the last one that was
--                           sorted into a line (`shares.lua`).
--   <prefix>:queues         set of the names of all queues
--   <prefix>:open           set of the names of the queues that have an item, queued or leased
--   <prefix>:news           stream of the names of queues that received an item, bounded; a process that waits
--                           for items of many queues reads only this stream
--   <prefix>:call:<key>     the item that a `take` leased or a `forget` removed, so that a repeated call gets
--                           the same answer; kept for the time of a lease
--   <prefix>:heard          the time of this script's last run in ms, exact to a quarter of a lease

local GROUP, CONSUMER = 'holders', 'holder'
local NEWS = 1000 -- Entries to keep, roughly; a reader that misses some finds the items by a sweep.

local function queue_key(name) return prefix .. ':queue:' .. name end

local function field(pairs, name)
  for i = 1, #pairs, 2 do
    if pairs[i] == name then return pairs[i + 1] end
  end
end

local function ensure_queue(queue)
  if redis.call('EXISTS', queue_key(queue)) == 0 then
    redis.call('XGROUP', 'CREATE', queue_key(queue), GROUP, '0', 'MKSTREAM')
    redis.call('SADD', prefix .. ':queues', queue)
  end
end

-- Sort the items that arrived since the last call into the lines of their shares. This happens as late as
-- possible, because holders of older versions, which have no lines, can lease unsorted items only.
local function sort(queue)
  local stream = queue_key(queue)
  local last = field(redis.call('XINFO', 'GROUPS', stream)[1], 'last-delivered-id')
  local came = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', SORTED_AT_ONCE)
  for _, entry in ipairs(came) do
    local id, share = entry[2][2], share_of(entry[2][2])
    line_up(id, share, queue, entry[1])
    if share ~= '' and not redis.call('ZSCORE', state_key('queued', share), id) then settle(id) end
    last = entry[1]
  end
  if #came > 0 then redis.call('XGROUP', 'SETID', stream, GROUP, last) end
end

local function enqueue(id)
  local queue = get(id, 'queue')
  ensure_queue(queue)
  redis.call('HSET', item_key(id), 'entry', redis.call('XADD', queue_key(queue), '*', 'item', id))
  redis.call('SADD', prefix .. ':open', queue)
  redis.call('XADD', prefix .. ':news', 'MAXLEN', '~', NEWS, '*', 'queue', queue)
end

local function close_if_empty(queue)
  if redis.call('XLEN', queue_key(queue)) == 0 then redis.call('SREM', prefix .. ':open', queue) end
end

local function dequeue(id)
  local queue, entry = get(id, 'queue'), get(id, 'entry')
  redis.call('XACK', queue_key(queue), GROUP, entry)
  redis.call('XDEL', queue_key(queue), entry)
  leave_line(id, share_of(id), queue)
  close_if_empty(queue)
end

-- Change the state of an item to `to`. `reason`, or nil, explains why the item returned to the queue.
local function change(id, to, reason)
  local from, share = get(id, 'state'), share_of(id)
  if not CHANGES[from][to] then
    error('no change from ' .. from .. ' to ' .. to)
  end
  redis.call('HSET', item_key(id), 'state', to)
  leave_state(id, from, share)
  enter_state(id, to, share)
  if from == 'running' or to == 'running' then take_turn(share) end
  local event = {kind = 'state', state = to, attempt = tonumber(get(id, 'attempts')), reason = reason}
  local failure = get(id, 'error')
  if failure then event.error = cjson.decode(failure) end
  tell(id, event)
  if is_final(to) then retire(id) end
end

local function holds(id, fence)
  return get(id, 'state') == 'running' and get(id, 'fence') == fence
end

-- Return an item to the end of its queue, or end it as `dead` if its holders have crashed too often.
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

-- Restart all leases if this script has not run for a long time, or if the clock was changed. Holders cannot
-- renew while the server is stopped or not reachable, and after a change of the clock the age of a lease is
-- wrong in either direction. A gap is recognized because holders and waiting processes call at least once a
-- second, unless leases are shorter than that.
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

-- Arguments: idempotency key, digest. Answers: known, id | conflict, id | unknown.
function operations.find()
  local id = by_key(ARGV[2])
  return id and known(id, ARGV[3]) or {'unknown'}
end

-- Arguments: id, queue, group, share, idempotency key, digest, reason, then fields. Answers: created, id |
-- known, id | conflict, id (another digest) | full, the full share ('' for all shares together), the number of
-- its queued items.
function operations.put()
  local id, queue, group, share, once, digest = unpack(ARGV, 2, 7)
  local reason = ARGV[8] ~= '' and ARGV[8] or nil
  local before = by_key(once)
  if not before and redis.call('EXISTS', item_key(id)) == 1 then before = id end
  if before then return known(before, digest) end
  local full = fullness(share)
  if full then return {'full', full[1], full[2]} end
  redis.call('HSET', item_key(id), 'state', 'queued', 'queue', queue, 'group', group, 'share', share,
    'digest', digest, 'fence', 0, 'attempts', 0, 'crashes', 0, 'created', now_ms())
  set_fields(id, 9)
  if once ~= '' then
    redis.call('HSET', prefix .. ':once', once, id)
    redis.call('HSET', item_key(id), 'once', once)
  end
  enter_state(id, 'queued', share)
  enter_groups(id, share)
  tell(id, {kind = 'state', state = 'queued', attempt = 0, reason = reason})
  enqueue(id)
  return {'created', id}
end

-- Arguments: owner, idempotency key, then queues. Answers: granted, id, fence, attempt | empty, the newest
-- entry of each queue.
function operations.take()
  local owner, call = ARGV[2], prefix .. ':call:' .. ARGV[3]
  local known = redis.call('GET', call)
  if known and get(known, 'state') == 'running' and get(known, 'call') == call then
    return {'granted', known, tonumber(get(known, 'fence')), tonumber(get(known, 'attempts'))}
  end
  local newest, first = {'empty'}, nil
  for i = 4, #ARGV do
    reap(ARGV[i])
    sort(ARGV[i])
    local stream = queue_key(ARGV[i])
    newest[#newest + 1] = field(redis.call('XINFO', 'STREAM', stream), 'last-generated-id')
    local one = first_of(ARGV[i])
    if one and (not first or is_before(one, first)) then first = one end
  end
  if not first then return newest end
  local id = first.id
  local queue, share = get(id, 'queue'), share_of(id)
  leave_line(id, share, queue)
  redis.call(
    'XCLAIM', queue_key(queue), GROUP, CONSUMER, 0, get(id, 'entry'), 'FORCE', 'JUSTID')
  draw_ticket(share, 0)
  local fence = redis.call('HINCRBY', item_key(id), 'fence', 1)
  local attempt = redis.call('HINCRBY', item_key(id), 'attempts', 1)
  redis.call('SET', call, id, 'PX', POLICY.lease_ms)
  redis.call('HSET', item_key(id), 'owner', owner, 'holder:' .. fence, owner, 'call', call, 'said', 0)
  redis.call('HSETNX', item_key(id), 'started', now_ms())
  change(id, 'running')
  return {'granted', id, fence, attempt}
end

local function renew(id)
  redis.call('XCLAIM', queue_key(get(id, 'queue')), GROUP, CONSUMER, 0, get(id, 'entry'), 'JUSTID')
end

-- Arguments: id, fence, then fields. Answers: ok | stale (the lease has ended).
function operations.renew()
  local id, fence = ARGV[2], ARGV[3]
  if not holds(id, fence) then
    settle(id)
    return {'stale'}
  end
  set_fields(id, 4)
  renew(id)
  return {'ok'}
end

-- Arguments: id, event (a JSON object), then fields. Answers: ok | unknown. Works in every state, and adds
-- the event only if a field changes.
function operations.set()
  local id, event, is_new = ARGV[2], ARGV[3], false
  if not get(id, 'state') then return {'unknown'} end
  for i = 4, #ARGV, 2 do is_new = is_new or get(id, ARGV[i]) ~= ARGV[i + 1] end
  if is_new then
    set_fields(id, 4)
    note(id, event)
  end
  return {'ok'}
end

-- Arguments: owner, then ids. Renews the leases that the owner still holds. Answer: ok, then the other ids.
function operations.renew_held()
  local answer = {'ok'}
  for i = 3, #ARGV do
    if get(ARGV[i], 'state') == 'running' and get(ARGV[i], 'owner') == ARGV[2] then
      renew(ARGV[i])
    else
      answer[#answer + 1] = ARGV[i]
    end
  end
  return answer
end

-- Add a point to the item's curve (`curves.lua`) from its fields `trials` and `best_ms`; return the event
-- with the position on the curve. `trials` restarts with each attempt and each phase of an attempt, so the
-- trials before the restart are added.
local function draw(id, trials_before, event)
  local trials = tonumber(get(id, 'trials') or '') or 0
  local past = tonumber(get(id, 'trials_past') or 0)
  if trials < trials_before then
    past = past + trials_before
    redis.call('HSET', item_key(id), 'trials_past', past)
  end
  local trial, seconds, best = past + trials, seconds_of(item_key(id)), get(id, 'best_ms')
  if tonumber(best or '') then add_point(prefix .. ':curve:' .. id, trial, seconds, best) end
  return string.format('%s,"trial":%d,"seconds":%.3f}', event:sub(1, -2), trial, seconds)
end

-- Arguments: id, fence, number of the event within the attempt, event (a JSON object with at least one field),
-- 'log' or 'curve' to add the event there too (otherwise ''), then fields. Answers: ok | stale. An event with a
-- number that was written before is a repetition, and is ignored.
function operations.write()
  local id, fence, number, event, part = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
  if not holds(id, fence) then return {'stale'} end
  if number > tonumber(get(id, 'said')) then
    redis.call('HSET', item_key(id), 'said', number)
    local trials_before = tonumber(get(id, 'trials') or '') or 0
    set_fields(id, 7)
    if part == 'curve' then event = draw(id, trials_before, event) end
    say(id, event, part == 'log')
  end
  return {'ok'}
end

-- Arguments: id, fence, final state, then fields. Answers: ok | known (a repeated call) | stale.
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

-- Arguments: id, fence, '1' for a crash, reason, then fields. Answers: queued | dead | stale. A repeated report
-- of a crash gets the same answer, and does not count again.
function operations.give_back()
  local id, fence, crashed, reason = ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]
  local known = get(id, 'crash:' .. fence)
  if known then return {known} end
  if not holds(id, fence) then return {'stale'} end
  set_fields(id, 6)
  local to = give_back(id, crashed, reason)
  if crashed then redis.call('HSET', item_key(id), 'crash:' .. fence, to) end
  return {to}
end

-- Argument: id. Answers: cancelled | final, state | unknown.
function operations.cancel()
  local id = ARGV[2]
  local state = get(id, 'state')
  if not state then return {'unknown'} end
  if is_final(state) then return {'final', state} end
  dequeue(id)
  change(id, 'cancelled')
  return {'cancelled'}
end

-- Arguments: id, idempotency key. Removes an item in any state; cancels it first if it has not ended.
-- Answers: forgotten | unknown.
function operations.forget()
  local id, call = ARGV[2], prefix .. ':call:' .. ARGV[3]
  if redis.call('EXISTS', call) == 1 then return {'forgotten'} end
  local state = get(id, 'state')
  if not state then return {'unknown'} end
  if not is_final(state) then
    dequeue(id)
    change(id, 'cancelled')
  end
  forget(id)
  redis.call('SET', call, id, 'PX', POLICY.lease_ms)
  return {'forgotten'}
end

-- Arguments: time in ms, bytes (0 for no limit), most ids. Answer: ok, then the ids of items to remove, the
-- oldest first: those that ended before the time or, if there are none, as many as are needed to bring the
-- sizes of the kept items below the limit.
function operations.outlived()
  local before, bytes, most = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
  local found = redis.call(
    'ZRANGE', prefix .. ':finished', '-inf', '(' .. before, 'BYSCORE', 'LIMIT', 0, most)
  if #found == 0 and bytes > 0 then
    local over = tonumber(redis.call('GET', prefix .. ':kept') or 0) - bytes
    for _, id in ipairs(redis.call('ZRANGE', prefix .. ':weighty', 0, most - 1)) do
      if over <= 0 then break end
      found[#found + 1] = id
      over = over - tonumber(get(id, POLICY.weighs))
    end
  end
  return {'ok', unpack(found)}
end

-- Arguments: id, size in bytes. Answer: ok. Adds an item of an older version to the indexes that only newer
-- versions have.
function operations.adopt()
  local id, bytes = ARGV[2], tonumber(ARGV[3])
  local finished = get(id, 'finished')
  if not get(id, 'state') then return {'ok'} end
  settle(id)
  if finished then
    if bytes > 0 then redis.call('HSETNX', item_key(id), POLICY.weighs, bytes) end
    redis.call('ZADD', prefix .. ':finished', finished, id)
    weigh(id, finished)
  end
  return {'ok'}
end

-- Arguments: idempotency keys. Answer: ok. Stores the keys in the items of older versions, and removes keys
-- without an item.
function operations.adopt_keys()
  for i = 2, #ARGV do
    local id = redis.call('HGET', prefix .. ':once', ARGV[i])
    if id and get(id, 'state') then
      redis.call('HSETNX', item_key(id), 'once', ARGV[i])
    else
      redis.call('HDEL', prefix .. ':once', ARGV[i])
    end
  end
  return {'ok'}
end

-- Arguments: queues. Answer: ok, number of expired leases.
function operations.reap()
  local expired = 0
  for i = 2, #ARGV do expired = expired + reap(ARGV[i]) end
  return {'ok', expired}
end

-- Return expired items to their queues, in every queue. Answer: ok, then the queues that have an item to
-- lease.
function operations.sweep()
  local answer = {'ok'}
  for _, queue in ipairs(redis.call('SMEMBERS', prefix .. ':open')) do
    reap(queue)
    sort(queue)
    close_if_empty(queue)
    if first_of(queue) then answer[#answer + 1] = queue end
  end
  return answer
end

hear()
return operations[ARGV[1]]()
