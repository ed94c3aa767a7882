-- The due entries of a shard: for each priority the next tenants in turn, and of each the ids that have been due for longest, with
-- their times. KEYS: epoch, waiting entries. ARGV: epoch, time, the tenant to begin after or nothing, the most tenants to look at,
-- the most entries of a priority, the beginning of a line for each priority, and the only tenant or nothing.
local most_tenants, most = tonumber(ARGV[4]), tonumber(ARGV[5])

-- The first tenant after this one, and up to the last one. A byte that no name contains stands behind all lines of a tenant, or of
-- all tenants. The server compares: the order of Lua depends on its locale.
local function next_tenant(prefix, tenant, last)
  local first = '(' .. prefix .. (tenant == '' and '' or tenant .. '\1')
  local found = redis.call('ZRANGEBYLEX', KEYS[2], first, '(' .. prefix .. last, 'LIMIT', 0, 1)[1]
  -- A zero byte, the time and the id follow the name.
  return found and string.sub(found, #prefix + 1, -42)
end

local function due(prefix, tenant, from, count)
  local line = prefix .. tenant .. '\0'
  local last = '(' .. line .. struct.pack('>I8', now + 1)
  return redis.call('ZRANGEBYLEX', KEYS[2], '[' .. line, last, 'LIMIT', from, count)
end

local function add(lane, members, prefix)
  local start = #prefix + #lane[1] + 2
  for _, member in ipairs(members) do lane[#lane + 1] = string.sub(member, start) end
end

local answer = {1, now}
for priority = 6, 8 do
  local prefix, after = ARGV[priority], ARGV[3]
  -- After the last tenant, the first one again, up to the one where the look began.
  local lanes, tenant, last, is_around, is_complete = {}, after, '\255', after == '', false
  if ARGV[9] ~= '' then
    lanes, is_complete = {{ARGV[9]}}, true
  end
  for _ = 1, ARGV[9] == '' and most_tenants or 0 do
    local found = next_tenant(prefix, tenant, last)
    if not found and is_around then
      is_complete = true
      break
    elseif not found then
      tenant, last, is_around = '', after .. '\1', true
    else
      tenant = found
      local members = due(prefix, tenant, 0, 1)
      if #members > 0 then lanes[#lanes + 1] = {tenant} end
    end
    if #lanes == most then break end
  end
  local share = math.max(math.floor(most / math.max(#lanes, 1)), 1)
  local left = most
  for _, lane in ipairs(lanes) do
    add(lane, due(prefix, lane[1], 0, share), prefix)
    left = left - (#lane - 1)
  end
  for _, lane in ipairs(lanes) do
    if left <= 0 then break end
    if #lane - 1 == share then
      local more = due(prefix, lane[1], share, left)
      add(lane, more, prefix)
      left = left - #more
    end
  end
  answer[#answer + 1] = lanes
  answer[#answer + 1] = is_complete and '' or tenant
end
return answer
