--- What the manifests take for granted about clusters, in one place. Change it here and render again.

return {
    -- Where the rendered files are served from, and so where pods fetch ncrun.
    base = "https://access.nationalcompute.com/first-job",

    -- National Compute: one CPU worker that stays (about 64 GiB of memory), GPU nodes of eight that a
    -- market takes back, an NFS volume that nodes mount where there is one. Everything is in one namespace,
    -- for the Secret with the bucket's keys exists there only.
    namespace = "default",
    bucket_secret = "nc-storage",
    hub_secret = { name = "api-keys", key = "HF_TOKEN" },
    shared_volume = "/mnt/shared",
    cpu_worker = { ["node-role.kubernetes.io/cpu"] = "" },
    gpu_worker = { ["node-role.kubernetes.io/gpu-worker"] = "" },
    gpus_per_node = 8,
    -- vendor -> the resource's name, which is the nodes' taint too
    gpus = { nvidia = "nvidia.com/gpu", amd = "amd.com/gpu" },

    -- NRP: Rook Ceph, and Slurm sites behind InterLink.
    nrp = {
        storage_class = "rook-cephfs",
        bucket_secret = "nrp-tutorial-s3",
        interlink = {
            taint = "virtual-node.interlink/no-schedule",
            secret = "interlink-s3",
            endpoint = "https://s3-west.nrp-nautilus.io",
        },
    },

    -- Pinned by tag. `ncrun` holds nothing but ncrun, for delivery=image; `client` is any small image with
    -- sh and one of curl, wget, python3.
    images = {
        ncrun = "access.nationalcompute.com/ncrun:0.1.0",
        client = "docker.io/curlimages/curl:8.10.1",
        python = "docker.io/library/python:3.12-slim",
        pytorch = {
            nvidia = "nvcr.io/nvidia/pytorch:25.06-py3",
            amd = "docker.io/rocm/pytorch:rocm7.0_ubuntu24.04_py3.12_pytorch_release_2.8.0",
        },
    },
}
