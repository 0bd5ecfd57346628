-- What the farm does, minute by minute.
--
--   farrier:throughput:<minute>  hash: how many `trials`, `batches` and `finished` jobs the minute brought,
--                                counted from 1970 on; for two hours

local function count_in_minute(what)
  local key = 'farrier:throughput:' .. string.format('%d', redis.call('TIME')[1] / 60)
  redis.call('HINCRBY', key, what, 1)
  redis.call('EXPIRE', key, 7200)
end
