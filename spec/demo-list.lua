--- Lists what is in the bucket: size and key of each object, and the sum.

local s3 = require "nc.s3"
local units = require "nc.units"

local bucket <close> = s3.bucket(os.getenv "NC_BUCKET")
local count, bytes = 0, 0
for object in bucket:list "" do
    print(("%10d  %s"):format(object.size, object.key))
    count, bytes = count + 1, bytes + object.size
end
print(("%d objects, %s"):format(count, units.format_size(bytes)))
