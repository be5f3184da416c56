-- The catalog, run: each rendered manifest is taken apart and its pods run as a node runs them, with the
-- local server as hub and bucket, and ncrun fetched from where the manifests are.
local helper = require "spec.helper"
local jobs = require "spec.jobs"
local json = require "dkjson"
local pods = require "spec.pods"
local staging = require "spec.staging"

local FOLDER -- what `ncrun render` has written, served at BASE
local BASE

-- What a GPU image has is played by scripts; nanoGPT's source is an archive of the real one's shape.
local function gpu_image()
    local image = helper.tmp()
    helper.write(image .. "/bin/python3", [[#!/bin/sh
        case "$2" in
        *device_count*) echo 8 ;;
        "import torch" | "import numpy"*) ;;
        *) exec /usr/bin/python3 "$@" ;;
        esac
    ]])
    helper.write(image .. "/bin/torchrun", '#!/bin/sh\necho "torchrun $*"\nexit 7\n')
    helper.write(image .. "/nanoGPT-master/data/shakespeare_char/prepare.py", "print('prepared')\n")
    local code, _,
        err = helper.sh(("chmod +x %s/bin/*; cd %s && tar -czf master.tar.gz nanoGPT-master"):format(image, image))
    assert(code == 0, err)
    return image
end

local SOURCE <const> = "https://github.com/karpathy/nanoGPT/archive/refs/heads/master.tar.gz"

local function manifest(name)
    return assert(helper.read(("%s/%s.yaml"):format(FOLDER, name)), name)
end

-- The same where ncrun can't be fetched; three tries, without their pauses.
local function unreachable(text)
    return (text:gsub("base=%S+", "base=" .. BASE .. "/nowhere"):gsub("for wait in 1 3 0", "for wait in 0 0 0"))
end

local function training(name)
    local text, n = manifest(name):gsub(SOURCE:gsub("%p", "%%%0"), "file:///image/master.tar.gz")
    assert(n >= 1)
    return text
end

-- A training's pod, on a cluster with this bucket or none.
local function gpu_pod(image, env, more)
    return helper.env({
        name = "nanogpt-x7", image = { ["/image"] = image }, image_env = { PATH = "/image/bin:/usr/bin:/bin" },
        secrets = { ["nc-storage"] = env },
    }, more or {})
end

local function bucket_env(env)
    return {
        AWS_ACCESS_KEY_ID = env.AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY = env.AWS_SECRET_ACCESS_KEY,
        AWS_ENDPOINT_URL = env.AWS_ENDPOINT_URL, AWS_REGION = env.AWS_REGION, NC_BUCKET = env.NC_BUCKET,
    }
end

-- A folder that stands for an NFS server, mounted so that the kernel calls it a network file system.
local function shared_volume()
    local behind, path = helper.tmp(), helper.tmp()
    local child = helper.start { "bindfs", "-f", "-o", "subtype=juicefs", behind, path }
    helper.eventually(10, "a mount at " .. path, function()
        return helper.sh("grep -q ' " .. path .. " .*fuse.juicefs' /proc/self/mountinfo") == 0
    end)
    return setmetatable({ path = path, behind = behind }, { __close = function()
        helper.sh("umount -l " .. path)
        child:__close()
    end })
end

-- Puts key, text, key, text, ... into the bucket.
local function put(env, ...)
    local path = helper.tmp() .. "/put.lua"
    helper.write(path, [[
        local words = { ... }
        local bucket <close> = require "nc.s3".bucket(os.getenv "NC_BUCKET")
        for i = 1, #words, 2 do bucket:put(words[i], words[i + 1]) end
    ]])
    local code, _, err = helper.ncrun({ path, ... }, { env = env })
    assert.equal(0, code, err)
end

local function hub(repository)
    local root = helper.tmp()
    helper.checkpoint(root .. "/" .. repository, { size = "3MiB", shards = 2 })
    return root
end

describe("a rendered pod", function()
    local site, server, image, env
    setup(function()
        FOLDER = helper.tmp()
        site = helper.start({ "/usr/bin/python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "0" },
            { cwd = FOLDER })
        local port = helper.eventually(20, "a web server", function() return site:stdout():match "port (%d+)" end)
        BASE = "http://127.0.0.1:" .. port
        local code, _, err = helper.ncrun { "render", "out=" .. FOLDER, "base=" .. BASE, "binary=" .. helper.NCRUN }
        assert.equal(0, code, err)
        server, image = helper.server(), gpu_image()
        env = bucket_env(server.env)
    end)
    teardown(function()
        local _ <close> = site
        local _ <close> = server
    end)

    for _, vendor in ipairs { "", "-amd" } do
        it("of nanogpt-job" .. vendor .. " trains, its log in the bucket, its exit code the training's own", function()
            local pod = "nanogpt-x" .. #vendor
            local code, out, err = pods.run(training("nanogpt-job" .. vendor), gpu_pod(image, env, { name = pod }))
            assert.equal(7, code, err)
            local log = "prepared\ntorchrun --standalone --nproc-per-node=8 train.py config/train_shakespeare_char.py "
                .. "--max_iters=5000 --lr_decay_iters=5000 --gradient_accumulation_steps=8\n"
            assert.equal(log, out)
            assert.equal(log, staging.object(server.env, ("logs/nanogpt/%s.log"):format(pod)))
        end)

        it("of nanogpt-multinode" .. vendor .. " finds the first node and keeps its own log", function()
            local code, out, err = pods.run(training("nanogpt-multinode" .. vendor), gpu_pod(image, env, {
                name = "nanogpt-mn-1-x" .. #vendor, hostname = "nanogpt-mn-1", hosts = "nanogpt-mn-0.nanogpt-mn",
                cluster_env = { JOB_COMPLETION_INDEX = "1" },
            }))
            assert.equal(7, code, err)
            assert.matches("torchrun --nnodes=2 --nproc-per-node=8 --node-rank=1 --master-addr=nanogpt-mn-0.nanogpt-mn "
                .. "--master-port=29500", out:gsub("%-%-rdzv.*", ""), 1, true)
            assert.equal(out, staging.object(server.env, "logs/nanogpt-mn/nanogpt-mn-1-x" .. #vendor .. ".log"))
        end)
    end

    it("keeps a training's log on the volume where one is mounted, and nothing where there is neither", function()
        local volume <close> = shared_volume()
        local code, out, err = pods.run(training "nanogpt-job", gpu_pod(image, nil,
            { host = { ["/mnt/shared"] = volume.path } }))
        assert.equal(7, code, err)
        assert.equal(out, helper.read(volume.behind .. "/logs/nanogpt/nanogpt-x7.log"))
        code, out, err = pods.run(training "nanogpt-job", gpu_pod(image, nil))
        assert.equal(7, code, err .. out)
        assert.matches("nothing of this run's log is kept", err)
    end)

    it("runs a training without ncrun where that can't be had, and the others stop with the reason", function()
        local code, out, err = pods.run(unreachable(training "nanogpt-job"), gpu_pod(image, env))
        assert.equal(7, code, err)
        assert.matches("^prepared\ntorchrun %-%-standalone", out)
        assert.matches("start: no ncrun: " .. BASE .. "/nowhere/ncrun-", err, 1, true)
        assert.matches("can't be fetched; the command runs without it, and no log of it will be kept\n$", err)
        code, out, err = pods.run(training("nanogpt-job"):gsub("sum=%x+", "sum=" .. ("0"):rep(64)), gpu_pod(image, env))
        assert.equal(7, code, out)
        assert.matches("is not the one of this manifest", err)
        for _, name in ipairs { "bucket-logs-reader", "kimi-k3-weights-to-bucket", "shared-pvc", "s3-shell-pod" } do
            code, out, err = pods.run(unreachable(manifest(name)), {
                name = "pod", secrets = { ["nc-storage"] = env, ["nrp-tutorial-s3"] = env },
                claims = { ["jupyterhub-shared-volume"] = helper.tmp() },
            })
            assert.equal(1, code)
            assert.equal("", out)
            assert.matches("start: no ncrun: .* can't be fetched\n$", err)
        end
    end)

    it("prints a job's newest log, and another's once JOB is edited, or the one that KEY names", function()
        put(env, "logs/nanogpt/zzz.log", "step 1\n", "logs/other/zzz.log", "step 2\n")
        os.execute "sleep 1.1" -- a bucket's clock counts seconds
        put(env, "logs/nanogpt/newest.log", "the newest\n")
        local reader, cluster = manifest "bucket-logs-reader", { name = "pod", secrets = { ["nc-storage"] = env } }
        local code, out, err = pods.run(reader, cluster)
        assert.equal(0, code, err)
        assert.equal("the newest\n", out)
        local edited, n = reader:gsub("(name: JOB\n%s*value: )nanogpt", "%1other")
        assert.equal(1, n)
        code, out = pods.run(edited, cluster)
        assert.equal(0, code)
        assert.equal("step 2\n", out)
        edited, n = reader:gsub('(name: KEY\n%s*value: )""', "%1logs/nanogpt/zzz.log")
        assert.equal(1, n)
        code, out = pods.run(edited, cluster)
        assert.equal(0, code)
        assert.equal("step 1\n", out)
    end)

    it("prints a log from the volume", function()
        local volume <close> = shared_volume()
        helper.write(volume.behind .. "/logs/nanogpt/a.log", "on the volume\n")
        local code, out, err = pods.run(manifest "volume-logs-reader", { name = "pod",
            host = { ["/mnt/shared"] = volume.path } })
        assert.equal(0, code, err)
        assert.equal("on the volume\n", out)
    end)

    for name, repository in pairs {
        ["kimi-k3-weights-to-bucket"] = "moonshotai/Kimi-K3",
        ["inkling-weights-to-bucket"] = "thinkingmachines/Inkling-NVFP4",
        ["inkling-weights-to-bucket-amd"] = "lightseekorg/Inkling-MXFP4",
    } do
        it("of " .. name .. " stages into the bucket, and finds it complete when applied again", function()
            local own <close> = helper.server { hub = hub(repository) }
            local cluster = { name = "pod", secrets = { ["nc-storage"] = bucket_env(own.env) },
                image_env = { HF_ENDPOINT = own.env.HF_ENDPOINT } }
            local code, _, err = pods.run(manifest(name), cluster)
            assert.equal(0, code, err)
            local marker = json.decode(staging.object(own.env,
                ("models/%s/.complete"):format(name:match "^(.-)%-weights")))
            assert.equal(repository, marker.repository)
            code, _, err = pods.run(manifest(name), cluster)
            assert.equal(0, code)
            assert.matches("already complete", err)
        end)

        local to_volume = name:gsub("bucket", "volume")
        it("of " .. to_volume .. " stages onto the volume", function()
            local own <close> = helper.server { hub = hub(repository) }
            local volume <close> = shared_volume()
            local code, _, err = pods.run(manifest(to_volume), { name = "pod",
                image_env = { HF_ENDPOINT = own.env.HF_ENDPOINT }, host = { ["/mnt/shared"] = volume.path } })
            assert.equal(0, code, err)
            local place = volume.behind .. "/models/" .. name:match "^(.-)%-weights"
            assert.equal(repository, json.decode(helper.read(place .. "/.complete")).repository)
            local same = helper.sh(("cmp %s/config.json %s/%s/config.json"):format(place, own.hub, repository))
            assert.equal(0, same)
        end)
    end

    for name, case in pairs {
        ["kimi-k3-serve-amd"] = { "moonshotai/Kimi-K3", "sglang", "serve --model-path /mnt/nvme/models/kimi-k3 " },
        ["inkling-serve-amd"] = { "lightseekorg/Inkling-MXFP4", "vllm", "serve /mnt/nvme/models/inkling " },
        ["inkling-serve-nvidia"] = { "thinkingmachines/Inkling-NVFP4", "vllm", "serve /mnt/nvme/models/inkling " },
    } do
        it("of " .. name .. " places the weights on the NVMe and starts the engine with them", function()
            local own <close> = helper.server { hub = hub(case[1]) }
            local nvme, engine = helper.tmp(), helper.tmp()
            helper.write(engine .. "/" .. case[2], '#!/bin/sh\necho "$@"\nexit 5\n')
            helper.sh("chmod +x " .. engine .. "/*")
            local cluster = { name = "pod", host = { ["/mnt/nvme"] = nvme }, image = { ["/image"] = engine },
                image_env = { HF_ENDPOINT = own.env.HF_ENDPOINT, PATH = "/image:/usr/bin:/bin" },
                secrets = { ["nc-storage"] = bucket_env(own.env) } }
            local code, out, err = pods.run(manifest(name), cluster)
            assert.equal(5, code, err) -- the engine's own
            assert.equal(case[3], out:sub(1, #case[3]))
            local place = nvme .. "/models/" .. name:match "^(.-)%-serve"
            assert.equal(0, (helper.sh(("cmp %s/config.json %s/%s/config.json"):format(place, own.hub, case[1]))))
            assert.truthy(helper.read(place .. "/.complete"))
        end)
    end

    it("of shared-pvc shows the volume to the other pod", function()
        local claims = { ["jupyterhub-shared-volume"] = helper.tmp() }
        local labels = { ["batch.kubernetes.io/controller-uid"] = "1-2-3" }
        local first <close> = pods.start(manifest "shared-pvc", { name = "shared-volume-0", claims = claims,
            labels = labels })
        local code, out, err = pods.run(manifest "shared-pvc", { name = "shared-volume-1", claims = claims,
            labels = labels })
        assert.equal(0, code, err)
        assert.equal("shared-volume-0\nshared-volume-1\n", out)
        code, out = first:wait(30)
        assert.equal(0, code)
        assert.equal("shared-volume-0\nshared-volume-1\n", out)
    end)

    it("of s3-shell-pod has keys and clients, says that it is ready, and ends when told to", function()
        helper.write(image .. "/pip/python3", '#!/bin/sh\necho "$@" >/scratch/installed\n')
        helper.sh("chmod +x " .. image .. "/pip/python3")
        local text = manifest("s3-shell-pod"):gsub("username", "alice"):gsub("value: /ncrun:", "%0/image/pip:")
        local secret = helper.env(env, { S3_BUCKET = env.NC_BUCKET, NC_BUCKET = false })
        local pod <close> = pods.start(text, { name = "tutorial-alice-pod", image = { ["/image"] = image },
            secrets = { ["nrp-tutorial-s3"] = secret } })
        helper.eventually(30, "a ready pod", function()
            assert(pod:running(), pod:stderr())
            return pod:stdout() == "ready: kubectl exec -it tutorial-alice-pod -- bash\n"
        end)
        assert.matches("s3://" .. env.NC_BUCKET .. " can be read", pod:stderr(), 1, true)
        assert.matches("Done with installs", pod:stderr())
    end)

    it("of run-job stages the data set in, runs the command and publishes below the user's name", function()
        local data = helper.tmp()
        helper.write(data .. "/set/labels.csv", "a,b\n")
        helper.sh(("cd %s && tar -czf dataset.tar.gz -C set ."):format(data))
        jobs.put(env, data .. "/dataset.tar.gz", "dataset.tar.gz")
        local text = manifest("run-job"):gsub("username", "alice")
        local secret = helper.env(env, { S3_BUCKET = env.NC_BUCKET, NC_BUCKET = false })
        local code, out, err = pods.run(text, { name = "run-job-alice-x1", secrets = { ["nrp-tutorial-s3"] = secret } })
        assert.equal(0, code, err)
        assert.matches("labels.csv\n$", out)
        assert.equal("labels.csv\n", staging.object(server.env, "alice/run-job-alice/result.txt"))
        assert.equal(out, staging.object(server.env, "logs/run-job-alice/run-job-alice-x1.log"))
    end)

    it("of interlink-job refuses an endpoint that the node can't reach", function()
        local secret = { ["access-key"] = "k", ["secret-key"] = "s", endpoint = "http://rook-ceph-rgw-x.rook" }
        local code, out, err = pods.run(manifest "interlink-job", { name = "interlink-job-x1",
            secrets = { ["interlink-s3"] = secret } })
        assert.equal(2, code, err)
        assert.equal("", out)
        assert.matches("resolves only inside the cluster", err)
    end)

    it("may be rendered to take ncrun from an image", function()
        local code, text, err = helper.ncrun { "render", "only=bucket-logs-reader", "stdout", "delivery=r.io/ncrun:1" }
        assert.equal(0, code, err)
        -- the image is played by the program itself
        local played, n = text:gsub("(image: r.io/ncrun:1\n)", "%1        command:\n        - /image/ncrun\n")
        assert.equal(1, n)
        local bin = helper.tmp()
        helper.sh(("cp %s %s/ncrun"):format(helper.NCRUN, bin))
        local out
        code, out, err = pods.run(played, { name = "pod", image = { ["/image"] = bin },
            secrets = { ["nc-storage"] = env } })
        assert.equal(0, code, err)
        assert.is_true(#out > 0)
    end)

    -- { shell, { tool, ... } }: what else the image has is what every image has.
    for what, case in pairs {
        ["dash, wget and sha256sum"] = { "dash", { "wget", "sha256sum" } },
        ["bash, python3 and openssl"] = { "bash", { "python3", "openssl" } },
        ["bash and python3 alone"] = { "bash", { "python3" } },
        ["busybox and curl"] = { "busybox", { "curl" } },
    } do
        it("gets ncrun in an image with " .. what, function()
            local tools, dir = helper.tmp(), helper.tmp()
            local line = ("cd %s && ln -s $(command -v %s) sh"):format(tools, case[1])
            for _, tool in ipairs(case[2]) do
                line = line .. ("; ln -s $(readlink -f $(command -v %s)) %s"):format(tool, tool)
            end
            local busybox = case[1] == "busybox"
            for _, tool in ipairs { "uname", "chmod", "mv", "sleep", busybox and "sha256sum" or nil } do
                line = line .. ("; ln -s $(command -v %s) %s"):format(busybox and "busybox" or tool, tool)
            end
            assert.equal(0, (helper.sh(line)))
            helper.write(dir .. "/hello.lua", 'print("hello", ...)\n')
            local code, _, err = helper.ncrun({ "render", "hello.lua", "name=hello", "base=" .. BASE,
                "binary=" .. helper.NCRUN, "to=you" }, { cwd = dir })
            assert.equal(0, code, err)
            local out
            code, out, err = pods.run(helper.read(dir .. "/hello.yaml"), { name = "pod",
                image = { ["/image"] = tools }, image_env = { PATH = "/image" } })
            assert.equal(0, code, err)
            assert.equal("hello\tto=you\n", out)
        end)
    end

    it("says so where there is no ncrun for its machine", function()
        local tools = helper.tmp()
        helper.write(tools .. "/uname", "#!/bin/sh\necho riscv64\n")
        helper.sh("chmod +x " .. tools .. "/uname")
        local code, _, err = pods.run(manifest "bucket-logs-reader", { name = "pod",
            image = { ["/image"] = tools }, image_env = { PATH = "/image:/usr/bin:/bin" } })
        assert.equal(1, code)
        assert.equal("start: no ncrun: there is none for riscv64\n", err)
    end)

    it("ends with the training it runs without ncrun when told to, within its grace", function()
        local text = unreachable(training "nanogpt-job")
        helper.write(image .. "/slow/torchrun", "#!/bin/sh\ntrap 'echo told; exit 9' TERM\necho up\n"
            .. "while :; do sleep 0.05; done\n")
        helper.sh("chmod +x " .. image .. "/slow/torchrun")
        local pod <close> = pods.start(text, gpu_pod(image, env, {
            image_env = { PATH = "/image/slow:/image/bin:/usr/bin:/bin" } }))
        helper.eventually(30, "a running training", function() return pod:stdout():find "up" end)
        local children = helper.read(("/proc/%d/task/%d/children"):format(pod.pid, pod.pid))
        os.execute("kill -TERM " .. children:match "%d+") -- PID 1 of the pod
        local code, out = pod:wait(20)
        assert.equal(9, code)
        assert.matches("told", out)
    end)
end)

