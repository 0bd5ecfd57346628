-- Curves of the best time so far. A curve is a list of points in the order of their arrival; each point is
-- the text `<trial> <seconds> <time>`. When a point is added to a full curve, the curve is thinned first.
--
-- Thinning removes one point of each pair: the one whose step, the change of time multiplied by the number
-- of trials that it lasts, is smaller and so is least visible. It keeps the first, the last and the lowest
-- point. Of three neighbours at least one stays, so that several small steps do not merge into a large one.

local CURVE_POINTS, TASK_POINTS = 2048, 256 -- before a curve is thinned

local function thinned(texts)
  local x, y, lowest = {}, {}, 1
  for i, text in ipairs(texts) do
    local trial, time = text:match('^(%S+) %S+ (%S+)$')
    x[i], y[i] = tonumber(trial), tonumber(time)
    if y[i] < y[lowest] then lowest = i end
  end
  local function step(i) return math.abs(y[i] - y[i - 1]) * (x[i + 1] - x[i]) end
  local kept, i = {texts[1]}, 2
  while i < #texts do
    if i + 1 == #texts or i == lowest then
      kept[#kept + 1] = texts[i]
      i = i + 1
    else
      local stays = (i + 1 == lowest or step(i + 1) > step(i)) and i + 1 or i
      kept[#kept + 1] = texts[stays]
      i = i + 2
    end
  end
  kept[#kept + 1] = texts[#texts]
  return kept
end

-- Add a point to the curve stored in the list `key`, unless the last point has the same time.
local function add_point(key, trial, seconds, time)
  local last = redis.call('LINDEX', key, -1)
  if last and last:match('%S+$') == time then return end
  if redis.call('LLEN', key) >= CURVE_POINTS then
    local kept = thinned(redis.call('LRANGE', key, 0, -1))
    redis.call('DEL', key)
    redis.call('RPUSH', key, unpack(kept))
  end
  redis.call('RPUSH', key, string.format('%d %.3f %s', trial, seconds, time))
end

-- Add a point to the curve stored in a field of a hash, where `;` separates the points.
local function add_point_to_field(key, field, trial, seconds, time)
  local texts = {}
  for text in (redis.call('HGET', key, field) or ''):gmatch('[^;]+') do texts[#texts + 1] = text end
  if #texts >= TASK_POINTS then texts = thinned(texts) end
  texts[#texts + 1] = string.format('%d %.3f %s', trial, seconds, time)
  redis.call('HSET', key, field, table.concat(texts, ';'))
end

local function now_s()
  local time = redis.call('TIME')
  return time[1] + time[2] / 1e6
end

-- Return the seconds since a job started; 0 before its start.
local function seconds_of(job_key)
  local started = tonumber(redis.call('HGET', job_key, 'started') or '')
  return started and math.max(now_s() - started / 1000, 0) or 0
end
