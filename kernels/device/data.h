// SPDX-License-Identifier: Apache-2.0
//
// Random inputs that any rank can make again, and the checks against them.
// Element i of rank r under a seed is a function of (seed, r, i) alone, in
// [-1, 1), exact in bf16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device/attention.h"
#include "kernels/device/experts.h"
#include "kernels/device/prompt_attention.h"

namespace fabricwise {

// data[i] = element offset + i of `rank`.
cudaError_t LaunchFill(__nv_bfloat16* data, int64_t count, uint64_t seed,
                       int rank, int64_t offset, cudaStream_t stream);

// The same as 8-bit floats (e4m3), for fp8 products.
cudaError_t LaunchFillFp8(void* data, int64_t count, uint64_t seed, int rank,
                          cudaStream_t stream);

// Scales of blocks: from 0.5 to 1.5.
cudaError_t LaunchFillScales(float* data, int64_t count, uint64_t seed,
                             int rank, cudaStream_t stream);

// Adds to *wrong the elements of `data` that are further than `tolerance` from
// the sum over ranks 0..ranks-1 of their element offset + i.
cudaError_t LaunchCheckSum(const __nv_bfloat16* data, int64_t count,
                           uint64_t seed, int ranks, int64_t offset,
                           float tolerance, unsigned long long* wrong,
                           cudaStream_t stream);

// Adds to *wrong the elements of `data` that are not element offset + i of
// `rank`.
cudaError_t LaunchCheckCopy(const __nv_bfloat16* data, int64_t count,
                            uint64_t seed, int rank, int64_t offset,
                            unsigned long long* wrong, cudaStream_t stream);

// Adds to *wrong the sampled elements of out[m,n] = a[m,k] x w[n,k]^T that are
// further from a product in fp32 than `tolerance` times the norm of its terms.
// `fp8`: a and w are e4m3 instead of bf16. `samples` elements are checked.
cudaError_t LaunchCheckProduct(const void* a, const void* w,
                               const __nv_bfloat16* out, int64_t m, int64_t n,
                               int64_t k, bool fp8, int64_t samples,
                               uint64_t seed, float tolerance,
                               unsigned long long* wrong, cudaStream_t stream);

// The same of a grouped product whose row i has the weights of expert_of[i].
// Gated: SiLU of the gate's product times the other, its tolerance times the
// norms that either factor brings in.
cudaError_t LaunchCheckGrouped(const GroupedProduct& product,
                               const int32_t* expert_of, int64_t samples,
                               uint64_t seed, float tolerance,
                               unsigned long long* wrong, cudaStream_t stream);

// Adds to *wrong the elements of LaunchQuantise's output that are not the
// nearest e4m3 of the input over their block's scale, or whose scale does not
// make the largest of the block the format's largest.
cudaError_t LaunchCheckQuantised(const __nv_bfloat16* in, const void* out,
                                 const float* scales, int64_t rows,
                                 int64_t columns, unsigned long long* wrong,
                                 cudaStream_t stream);

// Adds to *wrong the elements of `samples` drawn heads' outputs that are
// further from attention in fp32 than `tolerance` times their size and the norm
// of their terms.
cudaError_t LaunchCheckAttention(const DecodeAttention& attention, int samples,
                                 uint64_t seed, float tolerance,
                                 unsigned long long* wrong,
                                 cudaStream_t stream);
// The same of a prompt; the first two samples are its first and last token.
cudaError_t LaunchCheckPromptAttention(const PromptAttention& attention,
                                       int samples, uint64_t seed,
                                       float tolerance,
                                       unsigned long long* wrong,
                                       cudaStream_t stream);

// Adds to *wrong the elements that are NaN, as poison is.
cudaError_t LaunchCheckWritten(const __nv_bfloat16* data, int64_t count,
                               unsigned long long* wrong, cudaStream_t stream);

}  // namespace fabricwise
