"""The programs that Redis runs (Lua): each is one step that nothing comes between, whole or not at all.

Keys are built in the programs: a store stands in one database of one server, not in a cluster.
"""

_COMMON = """
local P = 'massmem:'
local EXPIRING = {'session', 'log', 'deltas', 'turns', 'words', 'summaries', 'aside', 'lease', 'writers'}

local function milliseconds()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Runs the commands that follow in ARGV, each after the number of its parts.
local function apply(at)
  while at <= #ARGV do
    local parts, name = tonumber(ARGV[at]), ARGV[at + 1]
    if name == 'ADDWORDS' then
      for i = at + 3, at + parts, 2 do
        local old = redis.call('HGET', ARGV[at + 2], ARGV[i])
        redis.call('HSET', ARGV[at + 2], ARGV[i], (old or '') .. ARGV[i + 1])
      end
    elseif name == 'CUTWORDS' then
      for i = at + 3, at + parts, 2 do
        local old = redis.call('HGET', ARGV[at + 2], ARGV[i])
        if old then
          local new = string.gsub(';' .. old, ';' .. ARGV[i + 1] .. ':%d+;', ';', 1)
          if new == ';' then redis.call('HDEL', ARGV[at + 2], ARGV[i])
          else redis.call('HSET', ARGV[at + 2], ARGV[i], string.sub(new, 2)) end
        end
      end
    else
      redis.call(unpack(ARGV, at + 1, at + parts))
    end
    at = at + parts + 1
  end
end

-- ttl: milliseconds from now; 0: as it is, also for keys that are new; -1: never.
local function touch(session, ttl)
  if ttl == 0 then ttl = redis.call('PTTL', P .. 'session:' .. session) end
  local keys = {P .. 'id:' .. redis.call('HGET', P .. 'session:' .. session, 'hash')}
  for _, kind in ipairs(EXPIRING) do keys[#keys + 1] = P .. kind .. ':' .. session end
  for _, key in ipairs(keys) do
    if ttl > 0 then redis.call('PEXPIRE', key, ttl) else redis.call('PERSIST', key) end
  end
  redis.call('ZADD', P .. 'all:expiry', ttl > 0 and milliseconds() + ttl or '+inf', session)
end

-- Take the lease, or, with 0 for `ms`, let go of it; false when somebody else has it.
-- expired: take it also from whoever has it no longer than until now.
local function lease(session, owner, ms, expired)
  local key, now = P .. 'lease:' .. session, milliseconds()
  local held = redis.call('HMGET', key, 'owner', 'until')
  if held[1] and held[1] ~= owner and not (expired and tonumber(held[2]) <= now) then return false end
  if ms == 0 then redis.call('DEL', key)
  else redis.call('HSET', key, 'owner', owner, 'until', now + ms) end
  return true
end

local function drop(session)
  for _, field in ipairs(redis.call('HKEYS', P .. 'recordings:' .. session)) do
    local kind, member = string.match(field, '^(%a+)%z(.*)$')
    redis.call('ZREM', P .. 'all:ready:' .. kind, member)
    redis.call('ZREM', P .. 'all:later:' .. kind, member)
    redis.call('ZREM', P .. 'all:trouble', field)
  end
  local hash = redis.call('HGET', P .. 'session:' .. session, 'hash')
  if hash then redis.call('DEL', P .. 'id:' .. hash) end
  for _, kind in ipairs(EXPIRING) do redis.call('DEL', P .. kind .. ':' .. session) end
  redis.call('DEL', P .. 'recordings:' .. session)
  for _, index in ipairs({'created', 'used', 'expiry'}) do redis.call('ZREM', P .. 'all:' .. index, session) end
end
"""

COMMIT = f"""{_COMMON}
-- session, version that it must have ('': there must be none), who changes it, new version, ttl,
-- owner who takes the lease ('': nobody), for how many milliseconds (0: lets go of it), commands
local key, writers = P .. 'session:' .. ARGV[1], P .. 'writers:' .. ARGV[1]
local last = redis.call('HGET', writers, ARGV[3])
if last and string.match(last, '^%S+') == ARGV[4] then return 1 end
if (redis.call('HGET', key, 'version') or '') ~= ARGV[2] then return 0 end
if ARGV[6] ~= '' and not lease(ARGV[1], ARGV[6], tonumber(ARGV[7]), false) then return 2 end
if ARGV[2] == '' then drop(ARGV[1]) end
apply(8)
redis.call('HSET', key, 'version', ARGV[4])
local now = milliseconds()
if redis.call('HLEN', writers) > 32 then
  local all = redis.call('HGETALL', writers)
  for i = 1, #all, 2 do
    if now - tonumber(string.match(all[i + 1], '%d+$')) > 300000 then redis.call('HDEL', writers, all[i]) end
  end
end
redis.call('HSET', writers, ARGV[3], ARGV[4] .. ' ' .. string.format('%d', now))
touch(ARGV[1], tonumber(ARGV[5]))
return 1
"""
"""Change one session, unless somebody else has changed it since it was read (0), or has its lease (2).

The last change of each writer is remembered for some minutes: one that is sent again, because its reply was lost with
the connection, is not made twice.
"""

APPLY = f"""{_COMMON}
-- key, number of this step, commands: nothing when it has been taken already
if redis.call('GET', ARGV[1]) == ARGV[2] then return 0 end
apply(3)
redis.call('SET', ARGV[1], ARGV[2], 'PX', 3600000)
return 1
"""

DROP = f"""{_COMMON}
-- session, version that it must have
if (redis.call('HGET', P .. 'session:' .. ARGV[1], 'version') or '') ~= ARGV[2] then return 0 end
drop(ARGV[1])
return 1
"""

REPLACE = f"""{_COMMON}
-- session, prefix of the keys that take the place of its own, new version, ttl, commands
if redis.call('HGET', P .. 'session:' .. ARGV[1], 'version') == ARGV[3] then return 1 end
drop(ARGV[1])
for _, kind in ipairs({{'log', 'deltas', 'turns', 'words', 'summaries'}}) do
  local new = ARGV[2] .. kind .. ':' .. ARGV[1]
  if redis.call('EXISTS', new) == 1 then
    redis.call('RENAME', new, P .. kind .. ':' .. ARGV[1])
    redis.call('PERSIST', P .. kind .. ':' .. ARGV[1])
  end
end
apply(5)
redis.call('HSET', P .. 'session:' .. ARGV[1], 'version', ARGV[3])
touch(ARGV[1], tonumber(ARGV[4]))
return 1
"""

SWEEP = f"""{_COMMON}
-- sessions that may have gone beside those whose time has passed
local now = milliseconds()
local found = redis.call('ZRANGEBYSCORE', P .. 'all:expiry', '-inf', now, 'LIMIT', 0, 100)
for _, session in ipairs(ARGV) do found[#found + 1] = session end
for _, session in ipairs(found) do
  local left = redis.call('PTTL', P .. 'session:' .. session)
  if left == -2 then drop(session)
  else redis.call('ZADD', P .. 'all:expiry', left == -1 and '+inf' or now + left, session) end
end
return #found
"""
"""Take what is left of sessions that have expired out of the indexes; a hundred at a time."""

ACQUIRE = f"""{_COMMON}
-- session, owner, milliseconds, ttl
if redis.call('EXISTS', P .. 'session:' .. ARGV[1]) == 0 then return -1 end
if not lease(ARGV[1], ARGV[2], tonumber(ARGV[3]), true) then return 0 end
touch(ARGV[1], tonumber(ARGV[4]))
return 1
"""

RENEW = f"""{_COMMON}
-- session, owner, milliseconds
local key = P .. 'lease:' .. ARGV[1]
if redis.call('HGET', key, 'owner') ~= ARGV[2] then return 0 end
redis.call('HSET', key, 'until', milliseconds() + tonumber(ARGV[3]))
return 1
"""

RELEASE = f"""{_COMMON}
-- session, owner
local key = P .. 'lease:' .. ARGV[1]
if redis.call('HGET', key, 'owner') == ARGV[2] then redis.call('DEL', key) end
return 1
"""

HEADS = """
-- index, highest, lowest, first, most: each session by its time, the newest first, and its head, '' when it has gone
local found = {}
for _, session in ipairs(redis.call('ZREVRANGEBYSCORE', ARGV[1], ARGV[2], ARGV[3], 'LIMIT', ARGV[4], ARGV[5])) do
  found[#found + 1] = session
  found[#found + 1] = redis.call('HGET', 'massmem:session:' .. session, 'head') or ''
end
return found
"""
"""One reply for a thousand sessions: a pipeline of as many commands costs the client ten times as much."""

SEARCH = """
-- number of words, words, sessions: of each session with any of the words where they are, and how long its messages are
local count, found = tonumber(ARGV[1]), {}
local words = {}
for i = 1, count do words[i] = ARGV[i + 1] end
for i = count + 2, #ARGV do
  local key = 'massmem:words:' .. ARGV[i]
  local at, any = redis.call('HMGET', key, unpack(words)), false
  for j = 1, count do
    any = any or at[j]
    at[j] = at[j] or ''
  end
  if any then
    at[count + 1] = redis.call('HGET', key, '') or ''
    found[#found + 1] = {ARGV[i], at}
  end
end
return found
"""
