--- The engines that serve the models of manifests/models.lua: image, variables and command for a node of
--- eight GPUs. Everything `serve` knows of an engine is here; to use another one, or other flags, change
--- a row. `{dir}` in a command is the folder on the NVMe.

return {
    ["kimi-k3"] = {
        amd = {
            image = "lmsysorg/sglang-rocm:rocm720-mi35x-k3-20260727", port = 30000, health = "/health",
            env = {
                SGLANG_USE_AITER = "1", SGLANG_AITER_K3_OPT = "1", AITER_FLYDSL_FORCE = "1",
                AITER_SITUV2_A8W4 = "1",
            },
            command = {
                "sglang", "serve", "--model-path", "{dir}", "--trust-remote-code", "--tp", "8",
                "--attention-backend", "triton", "--dtype", "bfloat16", "--mem-fraction-static", "0.85",
                "--cuda-graph-max-bs-decode", "256", "--disable-radix-cache",
                "--reasoning-parser", "kimi_k3", "--tool-call-parser", "kimi_k3",
                "--host", "0.0.0.0", "--port", "30000",
            },
        },
    },
    inkling = {
        nvidia = {
            image = "vllm/vllm-openai:v0.26.0", port = 8000, health = "/health",
            env = { VLLM_USE_V2_MODEL_RUNNER = "1" },
            command = {
                "vllm", "serve", "{dir}", "--tokenizer-mode", "inkling", "--reasoning-parser", "inkling",
                "--tool-call-parser", "inkling", "--enable-auto-tool-choice", "--tensor-parallel-size", "8",
                "--trust-remote-code", "--kernel-config.enable_flashinfer_autotune=False",
                "--host", "0.0.0.0", "--port", "8000",
            },
        },
        amd = {
            image = "vllm/vllm-openai-rocm:v0.26.0", port = 8000, health = "/health",
            env = { VLLM_ROCM_USE_AITER = "1" },
            command = {
                "vllm", "serve", "{dir}", "--tokenizer-mode", "inkling", "--reasoning-parser", "inkling",
                "--tool-call-parser", "inkling", "--enable-auto-tool-choice", "--tensor-parallel-size", "8",
                "--trust-remote-code", "--host", "0.0.0.0", "--port", "8000",
            },
        },
    },
}
