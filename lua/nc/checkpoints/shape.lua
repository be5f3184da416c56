--- Whether a file is as long as its own format says: half of a checkpoint often gives itself away.
--
-- safetensors: https://huggingface.co/docs/safetensors (8 bytes of length, a JSON header, the tensors);
-- zip, which PyTorch's .pt and NumPy's .npz are: APPNOTE.TXT 4.3.16 (ends with its directory's record).

local json = require "nc.json"

local shape = {}

local HEADER_MAX <const> = 100 << 20
local ZIP_TAIL <const> = 22 + 65535 -- the record and the longest comment

local function is_whole_safetensors(file, size)
    local length = file:read(8)
    if not length or #length < 8 then return false end
    length = string.unpack("<I8", length)
    if length < 2 or length > HEADER_MAX or length + 8 > size then return false end
    local ok, header = pcall(json.decode, file:read(length) or "")
    if not ok or type(header) ~= "table" then return false end
    local last = 0
    for name, tensor in pairs(header) do
        local offsets = name ~= "__metadata__" and type(tensor) == "table" and tensor.data_offsets
        if type(offsets) == "table" and math.type(offsets[2]) == "integer" then last = math.max(last, offsets[2]) end
    end
    return size == 8 + length + last
end

local function is_whole_zip(file, size)
    file:seek("set", math.max(0, size - ZIP_TAIL))
    local tail = file:read "a"
    local from = 1
    while true do
        local at = tail:find("PK\5\6", from, true)
        if not at then return false end
        if #tail >= at + 21 and at + 21 + string.unpack("<I2", tail, at + 20) == #tail then return true end
        from = at + 1
    end
end

--- False for a file that was cut short; true for a whole one, and for one of a format that does not say.
function shape.is_whole(path, size)
    local file <close> = io.open(path, "rb")
    if not file then return false end
    if path:find "%.safetensors$" then return is_whole_safetensors(file, size) end
    if file:read(4) == "PK\3\4" then return is_whole_zip(file, size) end
    return true
end

--- The files that an index (model.safetensors.index.json and the like) names, or nil where it is none
--- that can be read.
---@return table<string, boolean>?
function shape.files_of_index(text)
    local ok, index = pcall(json.decode, text)
    local map = ok and type(index) == "table" and index.weight_map
    if type(map) ~= "table" then return nil end
    local names = {}
    for _, name in pairs(map) do
        if type(name) == "string" then names[name] = true end
    end
    return names
end

return shape
