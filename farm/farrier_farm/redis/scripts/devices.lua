-- The registry of devices: every change is one call of this script, so it is atomic.
--
-- `devices.py` concatenates `local POLICY = …` (limits from `Settings`), `history.lua`, `throughput.lua`, this
-- file and `enrolments.lua`. KEYS are `farrier:device`, `farrier:settled`, `farrier:classes` and
-- `farrier:connected`. ARGV[1] is the name of the operation, and ARGV[2] the id of the device.
--
--   farrier:device:<id>  hash: description, class, session, instance, seen, draining, lease, counters,
--                        rest_until, unfit, health, load, engines, draining_since, last_fault, library_jobs,
--                        trusted
--   farrier:standing:<id>  hash of the fields that outlive sessions: `generation` of the device's secret, hash
--                        of the `nonce` of its enrolment, time `enrolled`, `standing` (`paused`, `drained`,
--                        `revoked` or none) and `tags`. A device that has never connected may have it
--   farrier:device       set of all ids
--   farrier:classes      hash: id of a device class → the description of one of its machines
--   farrier:connected:<class>  sorted set of the devices that may get work, by the time of their last call
--   farrier:connected:<class>:<engine>  the subset that also runs this other engine
--   farrier:connected:<class>:+trusted  the subset that is trusted
--   farrier:devices:<standing>  sorted set of the devices that are busy, quarantined or emulated, by the time of
--                        their last call
--   farrier:settled:<batch>:<fence>  marks an attempt as counted; kept for a day
--
-- The answer is an array. Its first word is `ok`, or an error about the session: `fenced` if the device has
-- opened another session since, `unknown` if the device has to open a new one. This script does not
-- authenticate the caller: the broker does (`service.py`).

local id = ARGV[2]
local key = KEYS[1] .. ':' .. id
local DAY_S = 86400
local LOAD_MINUTES = 30

local function get(field) return redis.call('HGET', key, field) end

local function standing_key(device) return 'farrier:standing:' .. device end

local function standing() return redis.call('HGET', standing_key(id), 'standing') or '' end

local function number(field) return tonumber(get(field) or '0') end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function stamp(ms) return string.format('%d', ms) end

local function connected_key(class) return KEYS[4] .. ':' .. class end

-- Return the keys of the `connected` sets that list the device: the set of its class, of the trusted devices,
-- and of each of its other engines.
local function connected_keys()
  local class = connected_key(get('class'))
  local found = {class}
  if get('trusted') == '1' then found[2] = class .. ':' .. POLICY.trusted end
  for engine in string.gmatch(get('engines') or '', '%S+') do found[#found + 1] = class .. ':' .. engine end
  return found
end

-- Return whether jobs should not wait for the device. They wait for a draining device during `expiry_ms`, but
-- not longer, because a device whose machine cannot measure drains for an unlimited time.
local function gets_no_work()
  if number('faults_in_a_row') >= POLICY.quarantine_faults or (get('unfit') or '') ~= '' then return true end
  if standing() ~= '' then return true end
  return get('draining') == '1' and now_ms() - number('draining_since') > POLICY.expiry_ms
end

-- Return the error for a session that is not the device's newest, or nil. Older versions registered devices
-- without a class; these have to register again.
local function why_stale(session)
  local open = get('session') or ''
  if open == '' or not get('class') then return {'unknown'} end
  if open ~= session then return {'fenced'} end
end

-- Update the sets of busy, quarantined and emulated devices, whose sizes the overview of the farm reports
-- (`overview.py`).
local function stand()
  local seen = get('seen')
  if not seen then return end
  local standings = {
    busy = (get('lease') or '') ~= '',
    quarantined = number('faults_in_a_row') >= POLICY.quarantine_faults,
    emulated = (get('class') or ''):sub(-#POLICY.emulated) == POLICY.emulated,
  }
  for standing, holds in pairs(standings) do
    local devices = 'farrier:devices:' .. standing
    if holds then redis.call('ZADD', devices, seen, id) else redis.call('ZREM', devices, id) end
  end
end

-- Add the current batch to the device's load. The load is a list of `<minute>:<batches>:<ms>`, separated by
-- blanks: the number of batches measured in each of the last minutes, and the ms of that minute spent on
-- batches.
local function note_load(batches)
  local now = now_ms()
  local this = math.floor(now / 60000)
  local from = math.min(math.max(number('held'), (this - LOAD_MINUTES + 1) * 60000), now)
  local load = {}
  for minute, count, busy in (get('load') or ''):gmatch('(%d+):(%d+):(%d+)') do
    load[tonumber(minute)] = {tonumber(count), tonumber(busy)}
  end
  for minute = math.floor(from / 60000), this do
    local one = load[minute] or {0, 0}
    one[2] = one[2] + math.min(now, (minute + 1) * 60000) - math.max(from, minute * 60000)
    load[minute] = one
  end
  load[this][1] = load[this][1] + batches
  local texts = {}
  for minute = this - LOAD_MINUTES + 1, this do
    local one = load[minute]
    if one then texts[#texts + 1] = string.format('%d:%d:%d', minute, one[1], one[2]) end
  end
  redis.call('HSET', key, 'load', table.concat(texts, ' '))
end

-- Add the device to the `connected` sets with the time of its last call, or remove it from them if it gets no
-- work.
local function list_as_connected()
  if not get('class') then return end
  local barred = gets_no_work()
  for _, connected in ipairs(connected_keys()) do
    if barred then
      redis.call('ZREM', connected, id)
    else
      redis.call('ZADD', connected, get('seen'), id)
    end
  end
end

-- Remove the device from the set of trusted devices of its class.
local function distrust()
  if get('class') then redis.call('ZREM', connected_key(get('class')) .. ':' .. POLICY.trusted, id) end
end

local function see()
  local now = stamp(now_ms())
  redis.call('HSET', key, 'seen', now)
  stand()
  beat(id, key, now)
  list_as_connected()
end

-- Return the ms for which the device still has to rest. An end later than the longest rest is ignored: it
-- means that the clock was set back since.
local function rest_ms()
  local rest = number('rest_until') - now_ms()
  return rest > 0 and rest <= POLICY.longest_rest_ms and rest or 0
end

-- Return the job that a batch belongs to, or the batch itself if it belongs to no job.
local function asker(batch)
  return redis.call('HGET', 'farrier:batch:item:' .. batch, 'job') or batch
end

-- Return whether a fault adds to `faults_in_a_row`, which leads to quarantine. A fault that the library may
-- have caused counts once per job, so that a model whose code fails on every device quarantines none of them.
local function counts_in_row(batch, is_perhaps_of_library)
  if not is_perhaps_of_library then return true end
  local jobs, job = get('library_jobs') or '', asker(batch)
  if string.find(' ' .. jobs .. ' ', ' ' .. job .. ' ', 1, true) then return false end
  redis.call('HSET', key, 'library_jobs', jobs == '' and job or jobs .. ' ' .. job)
  return true
end

-- Count a fault of the device. Each further fault in a row doubles its rest, so that another device gets the
-- batch. An `invented` result puts the device in quarantine at once, unless it is trusted.
local function count_fault(batch, reason, invented, is_perhaps_of_library)
  redis.call('HINCRBY', key, 'faults', 1)
  local before = number('faults_in_a_row')
  local row = before + (counts_in_row(batch, is_perhaps_of_library) and 1 or 0)
  if invented and get('trusted') ~= '1' then row = math.max(row, POLICY.quarantine_faults) end
  redis.call('HSET', key, 'faults_in_a_row', row, 'last_fault', string.sub(reason, 1, 500))
  note(id, 'faulted', {batch = batch, reason = reason, in_a_row = row})
  if before < POLICY.quarantine_faults and row >= POLICY.quarantine_faults then
    note(id, 'quarantined', {reason = reason, in_a_row = row})
  end
  local rest = math.min(1000 * 2 ^ (row - 1), POLICY.longest_rest_ms)
  redis.call('HSET', key, 'rest_until', stamp(now_ms() + rest))
end

local operations = {}

-- Arguments: session, description, instance, class, description of the class, engines, generation of the
-- caller's secret. Answers: ok, session | revoked | owned (the name belongs to a device with a secret) |
-- unenrolled (no device has this secret any more).
-- An agent process (instance) keeps its first session, so that a delayed repetition of its call does not fence
-- it out. If another instance connects while the device holds a batch, the batch is lost, which is a fault.
function operations.connect()
  local session, description, instance, class = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
  local generation = redis.call('HGET', standing_key(id), 'generation') or ''
  if standing() == 'revoked' then return {'revoked'} end
  if generation ~= ARGV[9] then return {ARGV[9] == '' and 'owned' or 'unenrolled'} end
  if instance == '' or get('instance') ~= instance then
    redis.call('SADD', KEYS[1], id)
    redis.call('ZADD', 'farrier:devices', 0, id)
    redis.call('HDEL', key, 'lost')
    note(id, 'connected', {class = class})
    local lease = get('lease') or ''
    if lease ~= '' then count_fault(lease, 'its agent restarted while it held a batch') end
    redis.call('HSET', key, 'session', session, 'instance', instance, 'lease', '')
    redis.call('HDEL', key, 'unfit')
    if standing() == 'drained' then redis.call('HDEL', standing_key(id), 'standing') end
  elseif get('session') == '' then
    redis.call('HSET', key, 'session', session)
  end
  redis.call('HSETNX', KEYS[3], class, ARGV[7])
  if get('class') then
    for _, connected in ipairs(connected_keys()) do redis.call('ZREM', connected, id) end
  end
  redis.call('HSET', key, 'description', description, 'class', class, 'draining', '0', 'engines', ARGV[8])
  see()
  for _, connected in ipairs(connected_keys()) do
    redis.call('ZREMRANGEBYSCORE', connected, '-inf', stamp(now_ms() - 1000 * DAY_S))
  end
  return {'ok', get('session')}
end

-- End the session; the device has to open a new one.
function operations.close()
  if redis.call('EXISTS', key) == 1 then redis.call('HSET', key, 'session', '') end
  return {'ok'}
end

-- Arguments: session, draining ('0' or '1'), health; '' leaves a value unchanged.
-- Answer: ok, class, '1' if the device gets no work (otherwise '0'), ms of rest that remain.
function operations.heartbeat()
  local stale = why_stale(ARGV[3])
  if stale then return stale end
  if ARGV[4] ~= '' then
    if ARGV[4] == '1' and get('draining') ~= '1' then
      note(id, 'draining', {})
      redis.call('HSET', key, 'draining_since', stamp(now_ms()))
    end
    redis.call('HSET', key, 'draining', ARGV[4])
  end
  if ARGV[5] ~= '' then redis.call('HSET', key, 'health', ARGV[5]) end
  see()
  local barred = get('draining') == '1' or gets_no_work()
  return {'ok', get('class'), barred and '1' or '0', rest_ms()}
end

-- Arguments: session, batch. Answers: ok | barred (the device gets no work any more).
function operations.hold()
  local stale = why_stale(ARGV[3])
  if stale then return stale end
  if get('draining') == '1' or gets_no_work() or rest_ms() > 0 then return {'barred'} end
  redis.call('HSET', key, 'lease', ARGV[4], 'held', stamp(now_ms()))
  note_of_batch(id, 'leased', ARGV[4], {})
  see()
  return {'ok'}
end

-- Arguments: session, batch, fence, '1' for a fault, reason of the fault, '1' if the device invented a result,
-- '1' if the library may have caused the fault. Counts each attempt once.
function operations.settle()
  local stale = why_stale(ARGV[3])
  if stale then return stale end
  local is_in_hand = get('lease') == ARGV[4]
  if is_in_hand then redis.call('HSET', key, 'lease', '') end
  local attempt = KEYS[2] .. ':' .. ARGV[4] .. ':' .. ARGV[5]
  if redis.call('SET', attempt, '', 'NX', 'EX', DAY_S) then
    if is_in_hand then note_load(ARGV[6] == '1' and 0 or 1) end
    if ARGV[6] == '1' then
      count_fault(ARGV[4], ARGV[7], ARGV[8] == '1', ARGV[9] == '1')
    else
      note_of_batch(id, 'measured', ARGV[4], {seconds = (now_ms() - number('held')) / 1000})
      redis.call('HINCRBY', key, 'measured', 1)
      count_in_minute('batches')
      redis.call('HSET', key, 'faults_in_a_row', 0, 'rest_until', 0)
      redis.call('HDEL', key, 'library_jobs')
    end
  end
  see()
  return {'ok'}
end

-- Arguments: batches whose leases have ended without a fault of the device.
function operations.let_go()
  for i = 3, #ARGV do
    if get('lease') == ARGV[i] then redis.call('HSET', key, 'lease', '') end
  end
  stand()
  return {'ok'}
end

-- Arguments: session, batch, reason. The agent lacks something that the batch
-- needs; the device gets no work until another instance of the agent connects.
function operations.decline()
  local stale = why_stale(ARGV[3])
  if stale then return stale end
  if get('lease') == ARGV[4] then redis.call('HSET', key, 'lease', '') end
  redis.call('HSET', key, 'unfit', ARGV[5])
  note(id, 'unfit', {batch = ARGV[4], reason = ARGV[5]})
  see()
  return {'ok'}
end

-- Arguments: session, sha256. Answer: ok, '1' if the current batch refers to this blob, otherwise '0'.
function operations.may_read()
  local stale = why_stale(ARGV[3])
  if stale then return stale end
  see()
  local batch = get('lease') or ''
  local names = batch ~= '' and redis.call('HGET', 'farrier:batch:item:' .. batch, 'blobs') or ''
  for name in string.gmatch(names, '%S+') do
    if name == ARGV[4] then return {'ok', '1'} end
  end
  return {'ok', '0'}
end

-- Argument: batch. Another device had the same fault with the batch, so the device is not to blame: its fault
-- is subtracted, at most once per batch.
function operations.acquit()
  local once = KEYS[2] .. ':' .. ARGV[3] .. ':acquitted'
  if redis.call('EXISTS', key) == 0 then return {'ok'} end  -- The device was removed meanwhile.
  if redis.call('SET', once, '', 'NX', 'EX', DAY_S) then
    redis.call('HSET', key, 'faults', math.max(number('faults') - 1, 0))
    local jobs = {}
    for job in string.gmatch(get('library_jobs') or '', '%S+') do
      if job == asker(ARGV[3]) then
        redis.call('HSET', key, 'faults_in_a_row', math.max(number('faults_in_a_row') - 1, 0))
      else
        jobs[#jobs + 1] = job
      end
    end
    redis.call('HSET', key, 'library_jobs', table.concat(jobs, ' '))
    redis.call('HSET', key, 'rest_until', 0)
    note_of_batch(id, 'acquitted', ARGV[3], {})
    stand()
  end
  return {'ok'}
end

-- Argument: '1' trusts the device, '0' does not, '' trusts it unless an operator has decided otherwise.
-- Answers: ok | unenrolled (any owner of the shared token can use the name, so trusting it would trust all).
function operations.trust()
  local before = get('trusted') or ''
  local trusted = ARGV[3] == '' and (before == '' and '1' or before) or ARGV[3]
  if trusted == before then return {'ok'} end
  if trusted == '1' and not redis.call('HGET', standing_key(id), 'generation') then return {'unenrolled'} end
  distrust()
  redis.call('HSET', key, 'trusted', trusted)
  note(id, trusted == '1' and 'trusted' or 'untrusted', {})
  list_as_connected()
  return {'ok'}
end

function operations.release()
  note(id, 'released', {})
  redis.call('HDEL', key, 'unfit', 'library_jobs')
  redis.call('HSET', key, 'faults_in_a_row', 0, 'rest_until', 0)
  list_as_connected()
  stand()
  return {'ok'}
end

-- Argument: class. Answer: ok, '1' if a device of the class (or ARGV[2], if it is not '') may get work,
-- otherwise '0'. A time far in the future, left over from a clock that was set back, does not count.
function operations.is_there()
  local class, now = ARGV[3], now_ms()
  local from, to = now - POLICY.expiry_ms, now + POLICY.expiry_ms
  local found
  if id == '' then
    found = redis.call('ZCOUNT', connected_key(class), stamp(from), stamp(to)) > 0
  else
    local seen = tonumber(redis.call('ZSCORE', connected_key(class), id) or '')
    found = seen and seen >= from and seen <= to
  end
  return {'ok', found and '1' or '0'}
end

-- Arguments: class, engine ('+trusted' for the trusted devices, '' for all). Answer: ok, at most 16 devices of
-- the class that may get work and run the engine, the latest call first. If ARGV[2] names a device, the list
-- contains that device or nothing.
function operations.with_engine()
  local connected, now = connected_key(ARGV[3]), now_ms()
  if ARGV[4] ~= '' then connected = connected .. ':' .. ARGV[4] end
  local from, to = stamp(now - POLICY.expiry_ms), stamp(now + POLICY.expiry_ms)
  if id == '' then
    return {'ok', redis.call('ZREVRANGEBYSCORE', connected, to, from, 'LIMIT', 0, 16)}
  end
  local seen = tonumber(redis.call('ZSCORE', connected, id) or '')
  return {'ok', seen and seen >= tonumber(from) and seen <= tonumber(to) and {id} or {}}
end

-- Mark the devices that have not called for too long as lost. Answer: ok.
function operations.look()
  look(function(device) return KEYS[1] .. ':' .. device end, now_ms())
  return {'ok'}
end
