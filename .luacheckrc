std = "lua54"
self = false -- methods of one interface need not all use it
files["spec/**/*_spec.lua"] = { std = "+busted" }
