#include "perf/overlap/gpu.h"

#include <dlfcn.h>

#include <algorithm>

#include "perf/common/calls.h"
#include "perf/common/place.h"

namespace axccl::perf::overlap {
namespace {

// A block computes a row, a thread every ntid-th element of it.
constexpr const char* kPlain = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry multiply(.param .u64 p_a, .param .u64 p_b, .param .u64 p_c, .param .u32 p_n, .param .u32 p_k) {
  .reg .pred %p;
  .reg .b16 %half;
  .reg .u32 %n, %k, %row, %column, %step, %i, %bits;
  .reg .u64 %a, %b, %c, %at, %of_a, %of_b, %pitch;
  .reg .f32 %sum, %x, %y;
  ld.param.u64 %a, [p_a];
  ld.param.u64 %b, [p_b];
  ld.param.u64 %c, [p_c];
  ld.param.u32 %n, [p_n];
  ld.param.u32 %k, [p_k];
  mov.u32 %row, %ctaid.x;
  mov.u32 %column, %tid.x;
  mov.u32 %step, %ntid.x;
  mul.wide.u32 %at, %row, %k;
  shl.b64 %at, %at, 1;
  add.u64 %a, %a, %at;
  mul.wide.u32 %at, %row, %n;
  shl.b64 %at, %at, 1;
  add.u64 %c, %c, %at;
  mul.wide.u32 %pitch, %n, 2;
next_column:
  setp.ge.u32 %p, %column, %n;
  @%p bra done;
  mul.wide.u32 %at, %column, 2;
  mov.u64 %of_a, %a;
  add.u64 %of_b, %b, %at;
  mov.f32 %sum, 0f00000000;
  mov.u32 %i, 0;
next:
  setp.ge.u32 %p, %i, %k;
  @%p bra store;
  ld.global.b16 %half, [%of_a];
  cvt.u32.u16 %bits, %half;
  shl.b32 %bits, %bits, 16;
  mov.b32 %x, %bits;
  ld.global.b16 %half, [%of_b];
  cvt.u32.u16 %bits, %half;
  shl.b32 %bits, %bits, 16;
  mov.b32 %y, %bits;
  fma.rn.f32 %sum, %x, %y, %sum;
  add.u64 %of_a, %of_a, 2;
  add.u64 %of_b, %of_b, %pitch;
  add.u32 %i, %i, 1;
  bra next;
store:
  add.u64 %at, %c, %at;
  mov.b32 %bits, %sum;
  shr.u32 %bits, %bits, 16;
  cvt.u16.u32 %half, %bits;
  st.global.b16 [%at], %half;
  add.u32 %column, %column, %step;
  bra next_column;
done:
  ret;
}
)";

const CudaDriver& Get() { return Place::Driver(); }

// Of cuBLAS, with its numbers.
struct Cublas {
  int (*create)(void**) = nullptr;
  int (*set_stream)(void*, void*) = nullptr;
  int (*multiply)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                  const void*, void*, int, int, int, int) = nullptr;
};
constexpr int kNotTransposed = 0, kBfloat16 = 14, kComputeFloat = 68, kAnyAlgorithm = -1;

const Cublas* FindCublas() {
  static const Cublas found = [] {
    Cublas cublas;
    void* library = dlopen("libcublas.so", RTLD_NOW);
    for (const char* name : {"libcublas.so.13", "libcublas.so.12"})
      library = library != nullptr ? library : dlopen(name, RTLD_NOW);
    if (library == nullptr) return cublas;
    cublas.create = reinterpret_cast<decltype(cublas.create)>(dlsym(library, "cublasCreate_v2"));
    cublas.set_stream = reinterpret_cast<decltype(cublas.set_stream)>(dlsym(library, "cublasSetStream_v2"));
    cublas.multiply = reinterpret_cast<decltype(cublas.multiply)>(dlsym(library, "cublasGemmEx"));
    return cublas;
  }();
  return found.create != nullptr && found.set_stream != nullptr && found.multiply != nullptr ? &found : nullptr;
}

void Check(int result, const char* call) {
  if (result != 0) Fail(kExitFailed, "%s returned %d", call, result);
}

const Place& Process() {
  static const Place place;
  return place;
}

uint64_t Address(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

}  // namespace

Gpu::Gpu(int rank, bool plain) {
  if (!Process().on_gpus()) Fail(kExitUsage, "option --device cuda: there is no GPU");
  Process().Use(Process().Device(rank));
  if (!plain && LoadCublas()) return;
  void* module = nullptr;
  Check(Get().cuModuleLoadData(&module, kPlain), "cuModuleLoadData");
  Check(Get().cuModuleGetFunction(&plain_, module, "multiply"), "cuModuleGetFunction");
}

bool Gpu::LoadCublas() {
  const Cublas* const cublas = FindCublas();
  return cublas != nullptr && cublas->create(&cublas_) == 0;
}

std::string Gpu::multiplier() const { return cublas_ != nullptr ? "cuBLAS" : "a plain kernel"; }

// cuBLAS thinks in columns: the transposed product is that of the transposed factors in the other order.
void Gpu::Multiply(const void* a, const void* b, void* c, int64_t rows, int64_t n, int64_t k, cudaStream_t stream) {
  if (cublas_ != nullptr) {
    const float one = 1, zero = 0;
    const auto m_of = static_cast<int>(n), n_of = static_cast<int>(rows), k_of = static_cast<int>(k);
    Check(FindCublas()->set_stream(cublas_, stream), "cublasSetStream");
    Check(FindCublas()->multiply(cublas_, kNotTransposed, kNotTransposed, m_of, n_of, k_of, &one, b, kBfloat16, m_of, a,
                                 kBfloat16, k_of, &zero, c, kBfloat16, m_of, kComputeFloat, kAnyAlgorithm),
          "cublasGemmEx");
    return;
  }
  auto columns = static_cast<unsigned>(n), inner = static_cast<unsigned>(k);
  void* parameters[] = {&a, &b, &c, &columns, &inner};
  const unsigned threads = std::min(256u, (columns + 31) / 32 * 32);
  Check(Get().cuLaunchKernel(plain_, static_cast<unsigned>(rows), 1, 1, threads, 1, 1, 0, stream, parameters, nullptr),
        "cuLaunchKernel");
}

cudaStream_t Gpu::NewStream() { return Process().NewStream(); }
void Gpu::Wait(cudaStream_t stream) { Process().Wait(stream); }

Gpu::Event Gpu::NewEvent() {
  constexpr unsigned kWithoutTime = 2;
  void* event = nullptr;
  Check(Get().cuEventCreate(&event, kWithoutTime), "cuEventCreate");
  return event;
}
void Gpu::Record(Event event, cudaStream_t stream) { Check(Get().cuEventRecord(event, stream), "cuEventRecord"); }
void Gpu::Follow(cudaStream_t stream, Event event) {
  Check(Get().cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
}

void Gpu::Upload(void* to, const void* from, size_t bytes) {
  Check(Get().cuMemcpyHtoD_v2(Address(to), from, bytes), "cuMemcpyHtoD");
}
void Gpu::Download(void* to, const void* from, size_t bytes) {
  Check(Get().cuMemcpyDtoH_v2(to, Address(from), bytes), "cuMemcpyDtoH");
}
void Gpu::Set(void* to, unsigned char value, size_t bytes) {
  Check(Get().cuMemsetD8_v2(Address(to), value, bytes), "cuMemsetD8");
}

void Gpu::Settle() { Check(Get().cuCtxSynchronize(), "cuCtxSynchronize"); }

}  // namespace axccl::perf::overlap
