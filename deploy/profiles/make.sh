#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes the shipped profiles from what was measured. Usage:
#   deploy/profiles/make.sh FABRICWISE RECORDED_NODE
# FABRICWISE is the client's binary; RECORDED_NODE a folder with nccl_tests/
# <fabric>_*.json (nccl-tests -J), gemm.csv, experts.csv and memory.csv of 2x
# H200. The seed's points are in here.
set -eu

fabricwise=$1
node=$2
out=$(dirname "$0")

# NVML's total of this GPU model, 143771 MiB, in 1e9 bytes.
h200_gb=150.754820096
# The same of RTX PRO 6000 Blackwell, 97887 MiB.
rtx_gb=102.641958912

h200() {
  fabric=$1 label=$2 path=$3
  "$fabricwise" profile import "$node/nccl_tests/${fabric}"_*.json \
    "$node/gemm.csv" "$node/experts.csv" "$node/memory.csv" \
    --name "h200x2-$fabric" --out "$out/h200x2-$fabric.json" \
    --gpus 2 --gpu-name "NVIDIA H200" --gpu-memory-gb "$h200_gb" \
    --compute-capability 90 --peer-access all --nvlinks 18 \
    --fabric "$label" --time 2026-11-29T00:00:00Z \
    --note "One host with two H200, measured on 2026-11-29; $path. One box makes three fabrics by NCCL's environment; the GPUs have peer access and 18 NVLinks in all of them." \
    --note "Collectives: nccl-tests 2.19.6 -g 2 -d half -n 20 -c 0, in a CUDA graph (-G 5) and eager; out of place, means, not verified, no spread recorded." \
    --note "Products, routed experts (bf16, uniform routing), memory and graph node: CUDA kernels, medians with their interquartile range; the same in all three profiles, since no fabric is in them. Of their time only the day is known." \
    --note "GPU memory is NVML's total of the model (143771 MiB), not read by the runs. NVLink multicast was off (NCCL_NVLS_ENABLE=0). Attention was not measured."
}

h200 p2p nvlink "peer access over NVLink"
h200 shm shm "peer access off, staged through host memory, as PCIe boxes without it do"
h200 net net "peer access and shared memory off, sockets, as two hosts without RDMA do"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/published_all_reduce.csv" <<'CSV'
# op: all_reduce; ngpus: 8; in CUDA graphs (-G )
size_bytes,time_us,iqr_us
14336,78,
CSV
# Sizes are one rank's whole send buffer: 14 KiB and 224 KiB to each of 8. Of
# the first, 19 to 25 us was published: its middle and its width.
cat > "$work/published_all_to_all.csv" <<'CSV'
# op: alltoall; ngpus: 8; in CUDA graphs (-G )
size_bytes,time_us,iqr_us
114688,22,6
1835008,1007,
CSV
"$fabricwise" profile import "$work/published_all_reduce.csv" "$work/published_all_to_all.csv" \
  --name seed-8x-rtx-pro-6000 --out "$out/seed-8x-rtx-pro-6000.json" \
  --origin measured --gpus 8 \
  --gpu-name "NVIDIA RTX PRO 6000 Blackwell" --gpu-memory-gb "$rtx_gb" \
  --nvlinks 0 \
  --fabric pcie \
  --note "Eight GPUs on PCIe without NVLink, as published with a profile of Kimi-K2.5 INT4: all-reduce of 14 KiB 78 us (in a burst), all-to-all of 14 KiB to each peer 19 to 25 us, of 224 KiB to each peer 1007 us. When they were measured was not published, nor NCCL's version." \
  --note "Three points and nothing else: it answers what collectives cost near these sizes. An all-reduce above 56 KiB, an all-to-all above 7 MiB, other collectives, other groups than all eight GPUs, and everything that computes (products, experts, attention, memory) are not answerable from it." \
  --note "GPU memory is NVML's total of the model (97887 MiB)."
