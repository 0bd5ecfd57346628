-- The registry of devices: every change is one call of this script, so it is atomic.
--
-- KEYS are `farrier:device` and `farrier:settled`; ARGV[1] names the operation, ARGV[2] the device.
--   farrier:device:<id>  hash: description, session, instance, seen, draining, lease, counters,
--                        rest_until
--   farrier:device       set of all ids
--   farrier:settled:<batch>:<fence>  an attempt that has been counted, for a day
-- The answer is `ok`, of `connect` the session, or `stale` for one that is not the device's newest.

local key = KEYS[1] .. ':' .. ARGV[2]
local SETTLED_S = 86400

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function stamp(ms) return string.format('%d', ms) end

local function is_stale(session)
  return session == '' or redis.call('HGET', key, 'session') ~= session
end

-- A faulty device rests twice as long after each fault in a row, so that others get the batch.
local function count_fault()
  redis.call('HINCRBY', key, 'faults', 1)
  local row = redis.call('HINCRBY', key, 'faults_in_a_row', 1)
  local rest_ms = math.min(1000 * 2 ^ (row - 1), 30000)
  redis.call('HSET', key, 'rest_until', stamp(now_ms() + rest_ms))
end

local operations = {}

-- session, description, instance. One instance has one session, and goes on with it: what it asked
-- for long ago and gets done only now does not fence it out. Another one that comes in the middle of a
-- batch has lost it: a fault.
function operations.connect()
  local session, description, instance = ARGV[3], ARGV[4], ARGV[5]
  if instance == '' or redis.call('HGET', key, 'instance') ~= instance then
    redis.call('SADD', KEYS[1], ARGV[2])
    if (redis.call('HGET', key, 'lease') or '') ~= '' then count_fault() end
    redis.call('HSET', key, 'session', session, 'instance', instance, 'lease', '')
  elseif redis.call('HGET', key, 'session') == '' then
    redis.call('HSET', key, 'session', session)
  end
  redis.call('HSET', key, 'description', description, 'seen', stamp(now_ms()), 'draining', '0')
  return redis.call('HGET', key, 'session')
end

-- The device is to open another session.
function operations.close()
  if redis.call('EXISTS', key) == 1 then redis.call('HSET', key, 'session', '') end
end

-- session, '0' or '1' for draining, '' to leave that as it is
function operations.heartbeat()
  if is_stale(ARGV[3]) then return 'stale' end
  redis.call('HSET', key, 'seen', stamp(now_ms()))
  if ARGV[4] ~= '' then redis.call('HSET', key, 'draining', ARGV[4]) end
end

-- session, batch
function operations.hold()
  if is_stale(ARGV[3]) then return 'stale' end
  redis.call('HSET', key, 'seen', stamp(now_ms()), 'lease', ARGV[4])
end

-- session, batch, fence, '1' for a fault
function operations.settle()
  if is_stale(ARGV[3]) then return 'stale' end
  if redis.call('HGET', key, 'lease') == ARGV[4] then redis.call('HSET', key, 'lease', '') end
  redis.call('HSET', key, 'seen', stamp(now_ms()))
  local attempt = KEYS[2] .. ':' .. ARGV[4] .. ':' .. ARGV[5]
  if not redis.call('SET', attempt, '', 'NX', 'EX', SETTLED_S) then return end
  if ARGV[6] == '1' then
    count_fault()
  else
    redis.call('HINCRBY', key, 'measured', 1)
    redis.call('HSET', key, 'faults_in_a_row', 0, 'rest_until', 0)
  end
end

-- session, batch: the lease is gone, through no fault of the device
function operations.let_go()
  if redis.call('HGET', key, 'lease') == ARGV[4] then redis.call('HSET', key, 'lease', '') end
end

function operations.release()
  redis.call('HSET', key, 'faults_in_a_row', 0, 'rest_until', 0)
end

return operations[ARGV[1]]() or 'ok'
