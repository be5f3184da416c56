--- What a Linux program is built for, from its ELF header (System V ABI; elf(5)).

local elf = {}

-- e_machine -> what `uname -m` says there
local MACHINES <const> = { [62] = "x86_64", [183] = "aarch64" }
local PT_INTERP <const> = 3

--- nil for what is no 64-bit little-endian ELF file.
---@param text string  the file, or enough of its beginning
---@return { machine: string?, static: boolean }?
function elf.read(text)
    if #text < 64 or text:sub(1, 6) ~= "\127ELF\2\1" then return nil end
    local machine = ("<I2"):unpack(text, 19)
    local at = ("<I8"):unpack(text, 33)
    local size, count = ("<I2I2"):unpack(text, 55)
    local static = true
    for i = 0, count - 1 do
        local from = at + i * size + 1
        if from + 3 > #text then return nil end
        if ("<I4"):unpack(text, from) == PT_INTERP then static = false end
    end
    return { machine = MACHINES[machine], static = static }
end

return elf
