-- Identities of devices, and the standing that an operator sets: the part of `devices.lua` that outlives
-- sessions.
--
--   farrier:invitation:<sha256 of an enrolment token>  hash: `name` ('' for any), `expires` in ms, `replaces`
--                        ('1' if it may replace an enrolled device), and after its use `device` and `nonce`.
--                        It is kept for a week after it expires, so that a late use gets a clear error.
--   farrier:invited:<name>  the newest unused invitation of a name; until it expires, only the owner of its
--                        token may enrol under this name
--   farrier:devices:revoked  set of the devices that are rejected

local KEPT_MS = 7 * DAY_S * 1000

local function invitation_key(token) return 'farrier:invitation:' .. token end

local function invited_key(name) return 'farrier:invited:' .. name end

-- Invalidate the newest unused invitation of the device's name.
local function withdraw_invitation()
  local invitation = redis.call('GET', invited_key(id))
  if invitation then redis.call('DEL', invitation_key(invitation), invited_key(id)) end
end

local function end_session()
  if redis.call('EXISTS', key) == 1 then redis.call('HSET', key, 'session', '', 'lease', '') end
  redis.call('ZREM', 'farrier:beating', id)
  leave_present(id, key)
  list_as_connected()
  stand()
end

-- Arguments: hash of the token, '1' to replace an enrolled device, validity in ms. Answers: ok, time of
-- expiry | taken (a device with this name is enrolled).
function operations.invite()
  if id ~= '' and ARGV[4] == '0' and redis.call('HEXISTS', standing_key(id), 'generation') == 1 then
    return {'taken'}
  end
  if id ~= '' then withdraw_invitation() end
  local expires = now_ms() + tonumber(ARGV[5])
  local invitation = invitation_key(ARGV[3])
  redis.call('HSET', invitation, 'name', id, 'expires', stamp(expires), 'replaces', ARGV[4])
  redis.call('PEXPIRE', invitation, stamp(tonumber(ARGV[5]) + KEPT_MS))
  if id ~= '' then redis.call('SET', invited_key(id), ARGV[3], 'PX', ARGV[5]) end
  return {'ok', stamp(expires)}
end

-- Return the name to enrol under, nil, and whether an enrolled device may be replaced; or nil and the answer
-- that rejects the invitation.
local function invited_name(token, nonce)
  local invitation = invitation_key(token)
  local name, expires, replaces, user, device = unpack(
    redis.call('HMGET', invitation, 'name', 'expires', 'replaces', 'nonce', 'device'))
  if not name then return nil, {'no-invitation'} end
  if user and user ~= nonce then return nil, {'used', device} end
  local late = now_ms() - tonumber(expires)
  if not user and late > 0 then return nil, {'expired', stamp(late)} end
  if name ~= '' and id ~= '' and id ~= name then return nil, {'named', name} end
  if device and id ~= '' and id ~= device then return nil, {'named', device} end
  name = device or (name ~= '' and name or id)
  if name == '' then return nil, {'nameless'} end
  return name, nil, replaces == '1'
end

-- Arguments: hash of the nonce, hash of the token ('' for the shared token), a new generation.
-- Answers: ok, name, generation | no-invitation | used, by this device | expired, ms ago | named, for this
-- device | nameless | invited | owned | revoked. A repeated call with the same nonce gets the same answer.
function operations.enrol()
  local nonce, token, generation = ARGV[3], ARGV[4], ARGV[5]
  local name, refusal, replaces = id, nil, false
  if token ~= '' then
    name, refusal, replaces = invited_name(token, nonce)
    if refusal then return refusal end
  end
  local standing_of = standing_key(name)
  local before, its_nonce, how = unpack(redis.call('HMGET', standing_of, 'generation', 'nonce', 'standing'))
  if before and its_nonce == nonce and how ~= 'revoked' then return {'ok', name, before} end
  if how == 'revoked' and not replaces then return {'revoked', name} end
  if before and not replaces then return {'owned', name} end
  if token ~= '' then
    if redis.call('HEXISTS', invitation_key(token), 'nonce') == 1 then return {'used', name} end
    redis.call('HSET', invitation_key(token), 'nonce', nonce, 'device', name)
    if redis.call('GET', invited_key(name)) == token then redis.call('DEL', invited_key(name)) end
  elseif redis.call('EXISTS', invited_key(name)) == 1 then
    return {'invited', name}
  end
  redis.call('HSET', standing_of, 'generation', generation, 'nonce', nonce, 'enrolled', stamp(now_ms()))
  redis.call('HDEL', standing_of, 'standing')
  redis.call('SREM', 'farrier:devices:revoked', name)
  id, key = name, KEYS[1] .. ':' .. name
  if (get('trusted') or '') ~= '' then  -- The trust was given to the previous device.
    distrust()
    redis.call('HDEL', key, 'trusted')
  end
  end_session()
  note(name, 'enrolled', {})
  return {'ok', name, generation}
end

-- Argument: paused, drained, revoked, or '' to resume work. Answers: ok, the current batch | unknown | revoked.
-- Revoking a device ends its session at once, and only a new enrolment can undo it.
function operations.set_standing()
  local how = ARGV[3]
  local is_known = redis.call('EXISTS', key) == 1 or redis.call('EXISTS', standing_key(id)) == 1
  if not is_known then return {'unknown'} end
  if standing() == 'revoked' and how ~= 'revoked' then return {'revoked'} end
  local lease = get('lease') or ''
  if standing() ~= how then note(id, how == '' and 'resumed' or how, {}) end
  if how == '' then
    redis.call('HDEL', standing_key(id), 'standing')
  else
    redis.call('HSET', standing_key(id), 'standing', how)
  end
  if how == 'revoked' then
    redis.call('SADD', 'farrier:devices:revoked', id)
    withdraw_invitation()
    end_session()
  else
    list_as_connected()
  end
  return {'ok', lease}
end

-- Argument: tags, separated by blanks. Answers: ok | unknown.
function operations.tag()
  if redis.call('EXISTS', key) == 0 and redis.call('EXISTS', standing_key(id)) == 0 then return {'unknown'} end
  redis.call('HSET', standing_key(id), 'tags', ARGV[3])
  return {'ok'}
end

-- Remove a device and its history. Answers: ok | unknown | there (it is connected, and not revoked).
function operations.remove()
  if redis.call('EXISTS', key) == 0 and redis.call('EXISTS', standing_key(id)) == 0
      and redis.call('EXISTS', invited_key(id)) == 0 then
    return {'unknown'}
  end
  local is_there = (get('session') or '') ~= '' and math.abs(now_ms() - number('seen')) <= POLICY.expiry_ms
  if is_there and standing() ~= 'revoked' then return {'there'} end
  if get('class') then
    for _, connected in ipairs(connected_keys()) do redis.call('ZREM', connected, id) end
  end
  leave_present(id, key)
  for _, name in ipairs({'busy', 'quarantined', 'emulated'}) do
    redis.call('ZREM', 'farrier:devices:' .. name, id)
  end
  withdraw_invitation()
  leave_present(id, key)
  redis.call('DEL', key, standing_key(id), POLICY.history .. ':' .. id)
  redis.call('SREM', KEYS[1], id)
  redis.call('SREM', 'farrier:devices:revoked', id)
  redis.call('ZREM', 'farrier:devices', id)
  redis.call('ZREM', 'farrier:beating', id)
  return {'ok'}
end
