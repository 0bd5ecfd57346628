-- Add a record to all of its indexes, or remove it from all of them, in one atomic call (`records.py` lists
-- the keys). An entry has nine words: digest, line, place, kind, class, task, target, created, failed.
-- The last argument of each script is the prefix of the keys of its store.

local WORDS = 9
local STORE = table.remove(ARGV)

local function key(name, of) return STORE .. name .. (of and ':' .. of or '') end

local ARCHIVES, STALE = key('archived-up-to'), key('stale')

local function enter_record(words, first)
  local digest, _, place, kind, class, task, target, created, failed =
    unpack(words, first, first + WORDS - 1)
  local id = redis.call('XADD', key('log'), '*', 'digest', digest)
  redis.call('XADD', key('on', place), id, 'digest', digest)
  redis.call('SADD', key('targets', task), target)
  redis.call('SADD', key('kinds'), kind)
  redis.call('ZADD', key('made', kind), created, digest)
  redis.call('HINCRBY', key('counts', kind), task, 1)
  redis.call('HINCRBY', key('counts', class), task, 1)
  if failed == '1' then redis.call('HINCRBY', key('failed'), kind, 1) end
  redis.call('INCR', key('waiting'))
  redis.call('SADD', 'farrier:record-stores', STORE)
end

local function add_record(words, first)
  if redis.call('HSETNX', key('lines'), words[first], words[first + 1]) == 0 then return 0 end
  enter_record(words, first)
  return 1
end

local function uncount(hash, field)
  if redis.call('HINCRBY', hash, field, -1) == 0 then redis.call('HDEL', hash, field) end
end

local function remove_record(id, words, first)
  local digest, _, place, kind, class, task, target, _, failed =
    unpack(words, first, first + WORDS - 1)
  if redis.call('XDEL', key('log'), id) == 0 then return 0 end
  redis.call('HDEL', key('lines'), digest)
  local on, made = key('on', place), key('made', kind)
  redis.call('XDEL', on, id)
  if redis.call('XLEN', on) == 0 then
    redis.call('DEL', on)
    redis.call('SREM', key('targets', task), target)
  end
  redis.call('ZREM', made, digest)
  if redis.call('EXISTS', made) == 0 then redis.call('SREM', key('kinds'), kind) end
  uncount(key('counts', kind), task)
  uncount(key('counts', class), task)
  if failed == '1' then uncount(key('failed'), kind) end
  local archive = redis.call('XRANGE', ARCHIVES, id, '+', 'COUNT', 1)[1]
  if archive then
    redis.call('SADD', STALE, archive[1])
  else
    redis.call('DECR', key('waiting'))
  end
  return 1
end
