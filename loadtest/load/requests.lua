-- Requests for wrk, spread over numbered streams:
--   wrk ... -- METHOD PREFIX STREAMS BODY_BYTES [unlike | lanes KEY LANE... | TOKENS_FILE]
-- Every wrk thread has its own Lua state; each starts at another stream and goes round, so that
-- as many connections as streams keep about one request on each. "unlike" numbers the requests
-- in a header, so that no two heads are equal and a server cannot remember a parsed one. With a
-- file of tokens, each of them reads ten of the streams; all requests are made beforehand. With
-- lanes (PORT:NAME,NAME...), each thread has a server and streams of its own, one lane a thread.

local MARK = "#NUMBER#"
local READS_PER_TOKEN = 10
local threads = 0

function setup(thread)
  thread:set("first", threads)
  threads = threads + 1
end

function init(args)
  local method, prefix, streams, size = args[1], args[2], tonumber(args[3]), tonumber(args[4])
  unlike = args[5] == "unlike"
  if args[5] == "lanes" then
    return init_lane(method, size, args[6], args[7 + first])
  end
  if args[5] and not unlike then
    return init_tokens(prefix, streams, args[5])
  end
  local headers, body, query = parts_of(method, size)
  if unlike then
    headers["X-Trace-Id"] = MARK
  end
  before, after = {}, {}
  for number = 0, streams - 1 do
    local path = "/v1/stream/" .. prefix .. "-" .. number .. query
    local whole = wrk.format(method, path, headers, body)
    local from, to = whole:find(MARK, 1, true)
    before[number] = from and whole:sub(1, from - 1) or whole
    after[number] = to and whole:sub(to + 1) or ""
  end
  count, turn = streams, first
  sent = os.time() % 1e6 * 1e7 + first * 1e6 -- another range in every run
end

function parts_of(method, size)
  if method == "POST" then
    return { ["Content-Type"] = "application/octet-stream" }, string.rep("x", size), ""
  end
  return {}, nil, "?offset=-1"
end

function init_lane(method, size, key, lane)
  local headers, body, query = parts_of(method, size)
  local port, names = lane:match("^(%d+):(.+)$")
  headers["Weir-Access-Key"] = key
  wrk.thread.addr = wrk.lookup("127.0.0.1", port)[1]
  before, count, turn = {}, 0, 0
  for name in names:gmatch("[^,]+") do
    before[count] = wrk.format(method, "/v1/stream/" .. name .. query, headers, body)
    count = count + 1
  end
end

function init_tokens(prefix, streams, file)
  local tokens = {}
  for token in io.lines(file) do
    tokens[#tokens + 1] = token
  end
  before, count, turn = {}, #tokens * READS_PER_TOKEN, first
  for number = 0, count - 1 do
    local stream = (number * 7 + math.floor(number / #tokens)) % streams
    local headers = { Authorization = "Bearer " .. tokens[number % #tokens + 1] }
    local path = "/v1/stream/" .. prefix .. "-" .. stream .. "?offset=-1"
    before[number] = wrk.format("GET", path, headers)
  end
end

function request()
  turn = (turn + 1) % count
  if unlike then
    sent = sent + 1
    return before[turn] .. sent .. after[turn]
  end
  return before[turn]
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    "RESULT requests=%d duration_us=%d bytes=%d p50_us=%d p99_us=%d max_us=%d status=%d broken=%d\n",
    summary.requests, summary.duration, summary.bytes, latency:percentile(50),
    latency:percentile(99), latency.max, e.status, e.connect + e.read + e.write + e.timeout))
end
