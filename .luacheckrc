std = "lua54"
self = false -- a method may need none of its object
files["spec/**/*_spec.lua"] = { std = "+busted" }
