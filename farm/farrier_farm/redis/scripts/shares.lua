-- Fair shares: whose item of a queue is leased next.
--
-- An item counts in a share: a job in that of its owner. In each queue the items of a share wait in a
-- line, those of a higher priority first (`priorities.py`), and of one priority in the order in which they
-- came. So a priority changes nothing between shares. Who leases gets the first item of the line whose turn it is:
-- that of the share with the fewest items running, and among such of the one served longest ago; those
-- never served precede these, in the order in which they came. A kind of item without shares has the one
-- share '', and so one line for each queue.
--
--   <prefix>:line:<share>:<queue>  sorted set: the queued items, by priority and by when they came
--   <prefix>:lines:<share>         set: the queues in which the share has a line
--   <prefix>:turns:<queue>         sorted set: the shares that have a line in the queue, by their turn
--   <prefix>:served                hash: share → the ticket that it drew when it was served last. One that
--                                  was never served has drawn one as well: less `NEWCOMER`. Of items that
--                                  are forgotten soon after their end, it stays: a share whose items come
--                                  one by one is not new each time
--   <prefix>:tickets               how many were drawn
--
-- What holds between two calls (`tests/farm/conftest.py` compares):
-- 1. An item is in the line of its share and queue while it is queued, once a `take` has sorted it.
-- 2. `lines` and `turns` name the lines that are there, and no others.
-- 3. The score of a share in each `turns` is `turn(share)`.
--
-- A lease costs the logarithm of the number of shares and items. A change of what a share has running
-- costs as much for each queue in which it has a line: of those there are as many as classes of devices,
-- at most. Roles of an older version know no lines: what they took out of the queue is dropped from its
-- line where it is found.

-- Turns are exact in the 53 bits of a score.
local NEWCOMER, RUNNING, MOST_RUNNING = 2 ^ 35, 2 ^ 36, 65535
local SORTED_AT_ONCE = 1000
-- Added to when an item came, in microseconds, which stays below 2^52 until the year 2112: the scores of one
-- priority are apart from those of another, and exact.
local PRIORITIES = {high = -2 ^ 52, low = 2 ^ 52}

local function line_key(share, queue) return prefix .. ':line:' .. share .. ':' .. queue end
local function lines_key(share) return prefix .. ':lines:' .. share end
local function turns_key(queue) return prefix .. ':turns:' .. queue end

local function score(number) return string.format('%.0f', number) end

local function turn(share)
  if share == '' then return '0' end
  local running = redis.call('ZCARD', state_key('running', share))
  local served = tonumber(redis.call('HGET', prefix .. ':served', share) or 0)
  return score(math.min(running, MOST_RUNNING) * RUNNING + served)
end

-- What the share has running, or when it was served, has changed.
local function take_turn(share)
  if share == '' then return end
  local now = turn(share)
  for _, queue in ipairs(redis.call('SMEMBERS', lines_key(share))) do
    redis.call('ZADD', turns_key(queue), now, share)
  end
end

local function draw_ticket(share, less)
  if share == '' then return end
  local ticket = redis.call('INCR', prefix .. ':tickets') - less
  redis.call('HSET', prefix .. ':served', share, score(ticket))
end

local function line_up(id, share, queue, entry)
  local ms, number = entry:match('(%d+)-(%d+)')
  local came = tonumber(ms) * 1000 + math.min(tonumber(number), 999)
  came = came + (PRIORITIES[get(id, 'priority') or ''] or 0)
  if redis.call('HEXISTS', prefix .. ':served', share) == 0 then draw_ticket(share, NEWCOMER) end
  redis.call('ZADD', line_key(share, queue), score(came), id)
  redis.call('SADD', lines_key(share), queue)
  redis.call('ZADD', turns_key(queue), turn(share), share)
end

local function leave_line(id, share, queue)
  redis.call('ZREM', line_key(share, queue), id)
  if redis.call('EXISTS', line_key(share, queue)) == 0 then
    redis.call('SREM', lines_key(share), queue)
    redis.call('ZREM', turns_key(queue), share)
  end
end

-- Puts right what an older version has changed, which knows of no share: its indexes by state.
local function settle(id)
  local share, state = share_of(id), get(id, 'state')
  if share == '' then return end
  for other in pairs(CHANGES) do
    if other ~= state then redis.call('ZREM', state_key(other, share), id) end
  end
  if state then
    enter_state(id, state, share)
    enter_groups(id, share)
  end
  take_turn(share)
end

-- The item of a queue whose turn it is, with turn and time; nil where none waits.
local function first_of(queue)
  while true do
    local share, its_turn = unpack(redis.call('ZRANGE', turns_key(queue), 0, 0, 'WITHSCORES'))
    if not share then return nil end
    local id, came = unpack(redis.call('ZRANGE', line_key(share, queue), 0, 0, 'WITHSCORES'))
    if get(id, 'state') == 'queued' then
      return {id = id, turn = tonumber(its_turn), came = tonumber(came)}
    end
    leave_line(id, share, queue)
    settle(id)
  end
end

local function is_before(one, other)
  return one.turn < other.turn or (one.turn == other.turn and one.came < other.came)
end

-- Why no item of the share may be put: whose queue is full, and how many wait there; nil where one may.
local function fullness(share)
  for _, bound in ipairs({{'', POLICY.most_queued}, {share, POLICY.most_of_share}}) do
    local whose, most = unpack(bound)
    if most > 0 then
      local waiting = redis.call('ZCARD', state_key('queued', whose ~= '' and whose or nil))
      if waiting >= most then return {whose, waiting} end
    end
  end
end
