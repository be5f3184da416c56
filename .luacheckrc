std = "lua54"
files["spec/**/*_spec.lua"] = { std = "+busted" }
