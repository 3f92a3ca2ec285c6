// The kernel sets that were compiled for this architecture. Each is constant data: naming one runs none of its code.
#pragma once

#include "kernels.h"

namespace smoe {

extern const Kernels scalar_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#if defined(SMOE_AMX)
// Kernels::matmul on AMX tiles for activations that avx512_kernels prepared.
void amx_matmul(const Matrix& w, int row0, int row1, const Activations& x, float* y, std::size_t ldy);
#endif
#elif defined(__aarch64__)
extern const Kernels neon_kernels;
#endif

}  // namespace smoe
