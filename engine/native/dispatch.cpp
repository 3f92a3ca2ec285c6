// Which kernel sets this machine can run, decided once.
#include <array>
#include <cstring>

#include "kernels_sets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(SMOE_AMX)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace smoe {
namespace {

constexpr int most_sets = 4;

struct Available {
  std::array<const Kernels*, most_sets> sets{};
  std::array<const char*, most_sets + 1> names{};
  int count = 0;

  void add(const Kernels& kernels) {
    sets[count] = &kernels;
    names[count++] = kernels.name;
  }
};

#if defined(__x86_64__)
constexpr bool has(unsigned word, unsigned bits) { return (word & bits) == bits; }

// The register state that the operating system saves at a context switch (XCR0).
unsigned saved_state() {
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

#if defined(SMOE_AMX)
// Linux gives the tiles' registers only to a process that asks (https://docs.kernel.org/arch/x86/xstate.html), before its
// threads start.
bool may_use_tiles() {
  constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

void add_amx(Available& available, unsigned features, unsigned saved) {
  constexpr unsigned tile_and_int8 = 1u << 24 | 1u << 25, tile_state = 3u << 17;
  if (!has(features, tile_and_int8) || !has(saved, tile_state) || !may_use_tiles()) return;
  static const Kernels amx_kernels = [] {
    Kernels kernels = avx512_kernels;
    kernels.name = "amx";
    kernels.matmul = amx_matmul;
    return kernels;
  }();
  available.add(amx_kernels);
}
#else
void add_amx(Available&, unsigned, unsigned) {}
#endif

void add_vector_sets(Available& available) {
  constexpr unsigned fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
  constexpr unsigned avx2 = 1u << 5;
  constexpr unsigned avx512_f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31, vnni = 1u << 11;
  constexpr unsigned ymm_state = 0x06, zmm_state = 0xe6;

  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, fma | osxsave | avx | f16c)) return;
  const unsigned saved = saved_state();
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, avx2) || !has(saved, ymm_state)) return;
  available.add(avx2_kernels);
  if (!has(b, avx512_f_dq_bw_vl) || !has(c, vnni) || !has(saved, zmm_state)) return;
  available.add(avx512_kernels);
  add_amx(available, d, saved);
}
#elif defined(__aarch64__)
bool has_dot_products_and_half_floats() {
#if defined(__linux__)
  constexpr unsigned long half_floats = 1ul << 10, dot_products = 1ul << 20;  // HWCAP_ASIMDHP, HWCAP_ASIMDDP
  const unsigned long needed = half_floats | dot_products;
  return (getauxval(AT_HWCAP) & needed) == needed;
#else
  return true;  // every Apple silicon Mac
#endif
}

void add_vector_sets(Available& available) {
  if (has_dot_products_and_half_floats()) available.add(neon_kernels);
}
#else
void add_vector_sets(Available&) {}
#endif

const Available& available() {
  static const Available result = [] {
    Available found;
    found.add(scalar_kernels);
    add_vector_sets(found);
    return found;
  }();
  return result;
}

}  // namespace

const Kernels* select_kernels(const char* name) {
  const Available& found = available();
  if (!name) return found.sets[found.count - 1];
  for (int i = 0; i < found.count; i++)
    if (!std::strcmp(found.names[i], name)) return found.sets[i];
  return nullptr;
}

const char* const* available_kernels() { return available().names.data(); }

}  // namespace smoe
