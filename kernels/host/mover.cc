#include "kernels/host/mover.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "kernels/host/isa.h"
#include "src/base/float_mode.h"

namespace axccl::kernels {
namespace {

struct Isa {
  const char* name;
  const IsaTable* table;
};

// Weakest first. The requirements of each are the instructions that CMakeLists.txt lets the compiler use.
constexpr Isa kIsas[] = {
    {"baseline", &baseline::kTable},
#if defined(AXCCL_KERNELS_X86)
    {"avx2", &avx2::kTable},
    {"avx512", &avx512::kTable},
#endif
};
constexpr int kNumIsas = sizeof(kIsas) / sizeof(kIsas[0]);

int NumSupported() {
#if defined(AXCCL_KERNELS_X86)
  __builtin_cpu_init();  // this code may run before the constructor that does it
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c")) return 1;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? 3 : 2;
#else
  return 1;
#endif
}

// The best one that runs here, or the one that AXCCL_ISA names if that is lower.
int Choose() {
  const int best = NumSupported() - 1;
  const char* forced = std::getenv("AXCCL_ISA");
  if (forced == nullptr) return best;
  for (int isa = 0; isa < best; ++isa) {
    if (std::strcmp(forced, kIsas[isa].name) == 0) return isa;
  }
  return best;
}

void ResolveAndReduce(const ReduceRequest& request);
void ResolveAndReduceUnscaled(const ReduceRequest& request);
void ResolveAndCopy(void* const* dst, int num_dst, const void* src, size_t bytes, bool non_temporal);

// Replaces the chosen table until the first call, which stores it. So a call costs one load and one jump, needs no
// guard, and works before the constructors of neighbouring files have run. Relaxed is enough: tables are constants, and
// threads that race to resolve store the same pointer. The box movers call ActiveTable().
constexpr IsaTable kUnresolved = {ResolveAndReduce, ResolveAndReduceUnscaled, ResolveAndCopy, nullptr, nullptr, nullptr,
                                  nullptr};
constinit std::atomic<const IsaTable*> active_table{&kUnresolved};

const IsaTable& Resolve() {
  const IsaTable* table = kIsas[Choose()].table;
  active_table.store(table, std::memory_order_relaxed);
  return *table;
}

void ResolveAndReduce(const ReduceRequest& request) { Resolve().reduce(request); }

void ResolveAndReduceUnscaled(const ReduceRequest& request) { Resolve().reduce_unscaled(request); }

void ResolveAndCopy(void* const* dst, int num_dst, const void* src, size_t bytes, bool non_temporal) {
  Resolve().copy(dst, num_dst, src, bytes, non_temporal);
}

}  // namespace

void Reduce(const ReduceRequest& request) {
  const DefaultFloatMode mode;
  active_table.load(std::memory_order_relaxed)->reduce(request);
}

void ReduceUnscaled(const ReduceRequest& request) {
  const DefaultFloatMode mode;
  active_table.load(std::memory_order_relaxed)->reduce_unscaled(request);
}

void Copy(void* const* dst, int num_dst, const void* src, size_t bytes, bool non_temporal) {
  active_table.load(std::memory_order_relaxed)->copy(dst, num_dst, src, bytes, non_temporal);
}

const IsaTable& ActiveTable() {
  const IsaTable* table = active_table.load(std::memory_order_relaxed);
  return table == &kUnresolved ? Resolve() : *table;
}

const IsaTable& TableOf(int isa) { return *kIsas[isa].table; }

const char* ActiveIsa() {
  const IsaTable* table = &ActiveTable();
  for (const Isa& isa : kIsas) {
    if (isa.table == table) return isa.name;
  }
  return kIsas[0].name;
}

int NumIsas() {
  static const int num = NumSupported();
  return num;
}

const char* IsaName(int isa) { return kIsas[isa].name; }

void ReduceWithIsa(int isa, const ReduceRequest& request) {
  const DefaultFloatMode mode;
  kIsas[isa].table->reduce(request);
}

void CopyWithIsa(int isa, void* const* dst, int num_dst, const void* src, size_t bytes, bool non_temporal) {
  kIsas[isa].table->copy(dst, num_dst, src, bytes, non_temporal);
}

}  // namespace axccl::kernels
