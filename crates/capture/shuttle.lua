-- Dissector of Shuttle for Wireshark and tshark, of captures that `weft run --pcap
-- FILE,view=shuttle` has written. The format of packets is in docs/shuttle.md.
--
--   tshark -X lua_script:crates/capture/shuttle.lua -r FILE

local shuttle = Proto("weft.shuttle", "Shuttle")

local KINDS = {
    [1] = "Request", [2] = "Reply", [3] = "Reject", [4] = "Retry",
    [5] = "Data", [6] = "Control", [7] = "Probe",
}
local DATA, CONTROL = 5, 6
local DATA_LEN, CONTROL_LEN, HELLO_LEN = 18, 10, 28

local FRAMES = {
    [0x00] = "Padding", [0x01] = "Ping", [0x02] = "Ack", [0x03] = "Stream",
    [0x04] = "Credit", [0x05] = "Query", [0x06] = "Floor", [0x07] = "Challenge",
    [0x08] = "Response", [0x09] = "Close", [0x0a] = "Closed", [0x0b] = "Rate",
    [0x0c] = "Skip", [0x0d] = "Interval",
}

local f = {
    kind = ProtoField.uint8("shuttle.kind", "Kind", base.DEC, KINDS, 0xe0),
    phase = ProtoField.uint8("shuttle.phase", "Key phase", base.DEC, nil, 0x18),
    ack_now = ProtoField.bool("shuttle.ack_now", "Acknowledge now", 8, nil, 0x04),
    several = ProtoField.bool("shuttle.several", "Several segments", 8, nil, 0x02),
    path = ProtoField.uint8("shuttle.path", "Path"),
    cid = ProtoField.uint32("shuttle.cid", "Connection id", base.HEX),
    pn = ProtoField.uint32("shuttle.pn", "Packet number"),
    dsn = ProtoField.uint32("shuttle.dsn", "Segment number"),
    frontier = ProtoField.uint64("shuttle.frontier", "Frontier"),
    segment = ProtoField.bytes("shuttle.segment", "Segment"),
    version = ProtoField.uint8("shuttle.version", "Version"),
    from = ProtoField.uint32("shuttle.from", "Sender's connection id", base.HEX),
    nonce = ProtoField.uint64("shuttle.nonce", "Nonce", base.HEX),
    echo = ProtoField.uint64("shuttle.echo", "Echoed nonce", base.HEX),
    parameters = ProtoField.bytes("shuttle.parameters", "Parameters"),
    frame = ProtoField.uint8("shuttle.frame", "Frame", base.HEX, FRAMES),
    stream = ProtoField.uint8("shuttle.stream", "Stream"),
    largest = ProtoField.uint64("shuttle.ack.largest", "Largest packet number"),
    floor = ProtoField.uint64("shuttle.ack.floor", "Floor"),
    delay = ProtoField.uint64("shuttle.ack.delay_us", "Delay in us"),
    arrived = ProtoField.uint32("shuttle.ack.arrived_us", "Receiver's clock in us"),
    marked = ProtoField.uint64("shuttle.ack.marked", "Packets with a congestion mark"),
    dropped = ProtoField.uint64("shuttle.ack.dropped", "Packets dropped by the receiver's host"),
    range = ProtoField.string("shuttle.ack.range", "Arrived"),
    value = ProtoField.uint64("shuttle.value", "Value"),
    token = ProtoField.uint64("shuttle.token", "Token", base.HEX),
}
local fields = {}
for _, field in pairs(f) do fields[#fields + 1] = field end
shuttle.fields = fields

local truncated = ProtoExpert.new("shuttle.truncated", "Packet ends inside a field",
    expert.group.MALFORMED, expert.severity.ERROR)
local unknown = ProtoExpert.new("shuttle.unknown", "Unknown frame: the rest is ignored",
    expert.group.UNDECODED, expert.severity.WARN)
shuttle.experts = { truncated, unknown }

-- Reads the fields of a packet one after the other.
local Reader = {}
Reader.__index = Reader

function Reader.new(buffer, tree)
    return setmetatable({ buffer = buffer, tree = tree, at = 0 }, Reader)
end

function Reader:left() return self.buffer:len() - self.at end

function Reader:take(length)
    if self:left() < length then error({ truncated = true }) end
    local range = self.buffer(self.at, length)
    self.at = self.at + length
    return range
end

function Reader:add(field, length)
    local range = self:take(length)
    self.tree:add(field, range)
    return range
end

-- An integer in 1, 2, 4 or 8 octets (RFC 9000, section 16), as UInt64, and its range.
function Reader:varint()
    if self:left() < 1 then error({ truncated = true }) end
    local length = 2 ^ bit.rshift(self.buffer(self.at, 1):uint(), 6)
    local range = self:take(length)
    local high, low = 0, range(length > 4 and 4 or 0, length > 4 and 4 or length):uint()
    if length == 8 then
        high = bit.band(range(0, 4):uint(), 0x3fffffff)
    else
        low = low % 2 ^ (8 * length - 2)
    end
    return UInt64.new(low, high), range
end

function Reader:add_varint(field)
    local value, range = self:varint()
    self.tree:add(field, range, value)
    return value
end

-- The runs that arrived, from the top down: each less one, with holes less one between them.
local function add_ranges(reader, top, length)
    local stop = reader.at + length
    local last, first = top, top - reader:varint()
    while true do
        local text = tostring(first) .. " to " .. tostring(last)
        reader.tree:add(f.range, reader.buffer(stop - length, length), text)
        if reader.at >= stop then return end
        last = first - reader:varint() - 2
        first = last - reader:varint()
    end
end

local function ack(reader)
    reader:add(f.path, 1)
    local largest = reader:add_varint(f.largest)
    local behind, range = reader:varint()
    reader.tree:add(f.floor, range, largest + 1 - behind)
    reader:add_varint(f.delay)
    reader:add(f.arrived, 4)
    reader:add_varint(f.marked)
    reader:add_varint(f.dropped)
    local top = largest - reader:varint()
    local length = reader:varint():tonumber()
    if reader:left() < length then error({ truncated = true }) end
    add_ranges(reader, top, length)
    return " to " .. tostring(largest)
end

local function numbered(id)
    return function(reader)
        reader:add(id, 1)
        return " " .. tostring(reader:add_varint(f.value))
    end
end

local function frontier(reader)
    reader:add(f.stream, 1)
    return " " .. tostring(reader:add_varint(f.frontier))
end

local function credit(reader)
    reader:add(f.stream, 1)
    local limit = reader:add_varint(f.value)
    return " " .. tostring(limit) .. ", wait " .. tostring(reader:add_varint(f.value)) .. " us"
end

local function token(reader) reader:add(f.token, 8) end

local function value(reader) return " " .. tostring(reader:add_varint(f.value)) end

local CONTENTS = {
    [0x02] = ack, [0x03] = frontier, [0x04] = credit,
    [0x05] = function(reader) reader:add(f.stream, 1) end,
    [0x06] = numbered(f.path), [0x07] = token, [0x08] = token, [0x09] = value,
    [0x0b] = numbered(f.path), [0x0c] = numbered(f.stream), [0x0d] = numbered(f.path),
}

-- Gives the names of the frames. Padding is one item, however long.
local function add_frames(buffer, tree)
    local names, reader = {}, Reader.new(buffer, tree)
    while reader:left() > 0 do
        local start = reader.at
        local kind = reader:take(1):uint()
        while kind == 0 and reader:left() > 0 and buffer(reader.at, 1):uint() == 0 do
            reader:take(1)
        end
        local item = tree:add(f.frame, buffer(start, 1), kind)
        if not FRAMES[kind] then
            item:add_proto_expert_info(unknown)
            return names
        end
        reader.tree = item
        local said = CONTENTS[kind] and CONTENTS[kind](reader) or ""
        item:set_len(reader.at - start)
        item:append_text(said)
        if kind ~= 0 then names[#names + 1] = FRAMES[kind] .. said end
    end
    return names
end

-- The lengths of the segments: but for the last, behind them with how many they are.
local function lengths_of(body, several)
    if not several then return { body:len() } end
    if body:len() < 2 then error({ truncated = true }) end
    local count = body(body:len() - 2, 2):uint()
    local left = body:len() - 2 * count
    if count < 2 or left < 0 then error({ truncated = true }) end
    local lengths, table_at = {}, left
    for i = 1, count - 1 do
        lengths[i] = body(table_at + 2 * (i - 1), 2):uint()
        left = left - lengths[i]
    end
    lengths[count] = left
    return lengths
end

local function add_segments(body, several, pinfo, tree, root)
    local at, ddp = 0, Dissector.get("iwarp_ddp_rdmap")
    for _, length in ipairs(lengths_of(body, several)) do
        if length <= 0 or at + length > body:len() then error({ truncated = true }) end
        local segment = body(at, length)
        tree:add(f.segment, segment)
        -- What takes the payload for its own protocol may find it malformed.
        pcall(ddp.call, ddp, segment:tvb(), pinfo, root)
        at = at + length
    end
end

local function add_hello(buffer, tree)
    if buffer:len() < HELLO_LEN then error({ truncated = true }) end
    tree:add(f.version, buffer(1, 1))
    tree:add(f.cid, buffer(2, 4))
    tree:add(f.from, buffer(6, 4))
    tree:add(f.nonce, buffer(10, 8))
    tree:add(f.echo, buffer(18, 8))
    local length = buffer(26, 2):uint()
    if length > 0 and HELLO_LEN + length <= buffer:len() then
        tree:add(f.parameters, buffer(HELLO_LEN, length))
    end
end

local function add_packet(buffer, pinfo, tree, root)
    local flags = buffer(0, 1)
    local kind = bit.rshift(flags:uint(), 5)
    tree:add(f.kind, flags)
    local info = KINDS[kind] or ("Unknown kind " .. kind)
    pinfo.cols.info = info
    if kind ~= DATA and kind ~= CONTROL then
        if KINDS[kind] then add_hello(buffer, tree) end
        return
    end
    local length = kind == DATA and DATA_LEN or CONTROL_LEN
    if buffer:len() < length then error({ truncated = true }) end
    tree:add(f.phase, flags)
    tree:add(f.ack_now, flags)
    tree:add(f.path, buffer(1, 1))
    tree:add(f.cid, buffer(2, 4))
    tree:add(f.pn, buffer(6, 4))
    info = info .. " " .. buffer(6, 4):uint() .. " of path " .. buffer(1, 1):uint()
    if kind == CONTROL then
        local names = add_frames(buffer(length), tree)
        pinfo.cols.info = info .. ": " .. table.concat(names, ", ")
        return
    end
    local several = bit.band(flags:uint(), 0x02) ~= 0
    tree:add(f.several, flags)
    tree:add(f.dsn, buffer(10, 4))
    tree:add(f.frontier, buffer(14, 4), UInt64.new(buffer(14, 4):uint(), 0))
    add_segments(buffer(length):tvb(), several, pinfo, tree, root)
    pinfo.cols.protocol = "Shuttle"
    pinfo.cols.info = info .. ", segment " .. buffer(10, 4):uint()
        .. ", frontier " .. buffer(14, 4):uint()
end

function shuttle.dissector(buffer, pinfo, root)
    pinfo.cols.protocol = "Shuttle"
    local tree = root:add(shuttle, buffer())
    local done, why = pcall(add_packet, buffer, pinfo, tree, root)
    if not done then
        if type(why) ~= "table" then error(why) end
        tree:add_proto_expert_info(truncated)
    end
    return buffer:len()
end
