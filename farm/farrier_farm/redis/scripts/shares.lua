-- Fair shares: the order in which the items of a queue are leased.
--
-- Each item belongs to a share; the share of a job is its owner. In each queue the items of a share form a
-- line, sorted by priority (`priorities.py`), and within a priority by arrival. So a priority does not affect
-- other shares. A lease takes the first item of the line of the share with the fewest running items. Among
-- equal shares, those that were never served come first, in the order of their arrival, then the one served
-- longest ago. A kind of item without shares has the single share '', and so one line for each queue.
--
--   <prefix>:line:<share>:<queue>  sorted set: the queued items, by priority and arrival
--   <prefix>:lines:<share>         set: the queues in which the share has a line
--   <prefix>:turns:<queue>         sorted set: the shares that have a line in the queue, by their turn
--   <prefix>:served                hash: share → the number of the ticket that it drew at its last lease. A new
--                                  share draws one at its arrival, reduced by `NEWCOMER`. For items that are
--                                  removed soon after their end the entry stays, so that a share whose items
--                                  come one by one does not count as new each time
--   <prefix>:tickets               the number of tickets drawn
--
-- Invariants between two calls (checked by `tests/farm/conftest.py`):
-- 1. An item is in the line of its share and queue while it is queued, once a `take` has sorted it.
-- 2. `lines` and `turns` name exactly the lines that exist.
-- 3. The score of a share in each `turns` is `turn(share)`.
--
-- A lease takes time logarithmic in the number of shares and items. A change of a share's running items takes
-- as much for each queue in which it has a line; there is at most one queue for each class of devices.
-- Older versions have no lines: an item that they took out of a queue is removed from its line when it is found.

-- With these values a turn is below 2^53, so a score represents it exactly.
local NEWCOMER, RUNNING, MOST_RUNNING = 2 ^ 35, 2 ^ 36, 65535
local SORTED_AT_ONCE = 1000
-- Offsets of the priorities, added to the time of arrival in microseconds. That time stays below 2^52 until
-- the year 2112, so the scores of different priorities do not overlap, and are exact.
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

-- Update the turn of a share in all its queues, after a change of its running items or of its ticket.
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

-- Repair the indexes of an item by state and share, which older versions do not update.
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

-- Return the next item of a queue to lease, with its turn and time of arrival; nil if no item is queued.
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

-- Return why no further item of the share can be queued: the full share ('' for all shares together), and the
-- number of its queued items; nil if there is space.
local function fullness(share)
  for _, bound in ipairs({{'', POLICY.most_queued}, {share, POLICY.most_of_share}}) do
    local whose, most = unpack(bound)
    if most > 0 then
      local waiting = redis.call('ZCARD', state_key('queued', whose ~= '' and whose or nil))
      if waiting >= most then return {whose, waiting} end
    end
  end
end
