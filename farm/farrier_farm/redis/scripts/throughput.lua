-- The throughput of the farm per minute.
--
--   farrier:throughput:<minute>  hash: the numbers of `trials`, `batches` and `finished` jobs in this minute
--                                (minutes since 1970); kept for two hours

local function count_in_minute(what)
  local key = 'farrier:throughput:' .. string.format('%d', redis.call('TIME')[1] / 60)
  redis.call('HINCRBY', key, what, 1)
  redis.call('EXPIRE', key, 7200)
end
