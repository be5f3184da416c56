--- What `ncrun render` writes: { file, recipe, parameters, name = of its objects, group =, about = }.
-- To add a manifest, add a row. `group` is its section of the pages; `about` finishes "This one ...".

return {
    { "nanogpt-job", "nanogpt", { vendor = "nvidia" }, name = "nanogpt", group = "train",
      about = "trains nanoGPT on one node of NVIDIA GPUs" },
    { "nanogpt-job-amd", "nanogpt", { vendor = "amd" }, name = "nanogpt", group = "train",
      about = "trains nanoGPT on one node of AMD GPUs" },
    { "nanogpt-multinode", "nanogpt", { vendor = "nvidia", nodes = "2" }, name = "nanogpt-mn", group = "train",
      about = "trains nanoGPT on two nodes of NVIDIA GPUs" },
    { "nanogpt-multinode-amd", "nanogpt", { vendor = "amd", nodes = "2" }, name = "nanogpt-mn", group = "train",
      about = "trains nanoGPT on two nodes of AMD GPUs" },

    { "bucket-logs-reader", "read-logs", { job = "nanogpt" }, name = "bucket-logs-reader", group = "logs",
      about = "prints the newest log of a job from the bucket" },
    { "volume-logs-reader", "read-logs", { job = "nanogpt", from = "volume" }, name = "volume-logs-reader",
      group = "logs", about = "prints the newest log of a job from the shared volume" },

    { "kimi-k3-weights-to-bucket", "stage-weights", { model = "kimi-k3", vendor = "amd" },
      name = "kimi-k3-weights-to-bucket", group = "stage", about = "stages Kimi K3 (1561 GB) into the bucket" },
    { "kimi-k3-weights-to-volume", "stage-weights", { model = "kimi-k3", vendor = "amd", to = "volume" },
      name = "kimi-k3-weights-to-volume", group = "stage", about = "stages Kimi K3 (1561 GB) onto the shared volume" },
    { "inkling-weights-to-bucket", "stage-weights", { model = "inkling", vendor = "nvidia" },
      name = "inkling-weights-to-bucket", group = "stage", about = "stages Inkling for NVIDIA GPUs into the bucket" },
    { "inkling-weights-to-bucket-amd", "stage-weights", { model = "inkling", vendor = "amd" },
      name = "inkling-weights-to-bucket", group = "stage", about = "stages Inkling for AMD GPUs into the bucket" },
    { "inkling-weights-to-volume", "stage-weights", { model = "inkling", vendor = "nvidia", to = "volume" },
      name = "inkling-weights-to-volume", group = "stage",
      about = "stages Inkling for NVIDIA GPUs onto the shared volume" },
    { "inkling-weights-to-volume-amd", "stage-weights", { model = "inkling", vendor = "amd", to = "volume" },
      name = "inkling-weights-to-volume", group = "stage",
      about = "stages Inkling for AMD GPUs onto the shared volume" },

    { "kimi-k3-serve-amd", "serve", { model = "kimi-k3", vendor = "amd" }, name = "kimi-k3-serve", group = "serve",
      about = "serves Kimi K3 on one node of AMD GPUs" },
    { "inkling-serve-amd", "serve", { model = "inkling", vendor = "amd" }, name = "inkling-serve", group = "serve",
      about = "serves Inkling on one node of AMD GPUs" },
    { "inkling-serve-nvidia", "serve", { model = "inkling", vendor = "nvidia" }, name = "inkling-serve",
      group = "serve", about = "serves Inkling on one node of NVIDIA GPUs" },

    { "shared-pvc", "shared-volume", {}, name = "shared-volume", group = "nrp",
      about = "claims a CephFS volume and shows it to two pods at once" },
    { "s3-shell-pod", "s3-shell", {}, name = "tutorial-username-pod", group = "nrp",
      about = "is a pod with S3 clients and keys, to exec into" },
    { "run-job", "run-job", { input = "dataset.tar.gz", user = "username" }, name = "run-job-username", group = "nrp",
      about = "stages a data set in, runs a command, publishes its checkpoints and results" },
    { "interlink-job", "interlink-job", {}, name = "interlink-job", group = "nrp",
      about = "runs an application on a Slurm node behind InterLink, its data in Ceph S3" },
}
