--- The checkpoints that recipes know by name. Everything a recipe needs to know of a model is here;
--- to add one, add a row.
--
-- A vendor that has no row of its own takes `any`. Sizes are rounded: what counts is what the hub
-- lists when a stage begins.

return {
    ["kimi-k3"] = {
        any = { repository = "moonshotai/Kimi-K3", size = "1561 GB" },
    },
    inkling = {
        nvidia = { repository = "thinkingmachines/Inkling-NVFP4", size = "592 GB" },
        amd    = { repository = "lightseekorg/Inkling-MXFP4", size = "527 GiB" },
    },
}
