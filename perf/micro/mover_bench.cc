// How close the host data movers come to what the memory allows, and the cost of a small call.
//
//   mover_bench                              everything, with the best instruction set of this machine
//   AXCCL_ISA=baseline mover_bench           with a lower one
//   mover_bench --benchmark_filter=reduce/   as every Google Benchmark program
//
// GB/s counts bytes of one destination. The limits are measured in the same run: a mover with S sources and D
// destinations cannot take less than S / read limit + D / write limit per byte out of cache, and inside a cache it is
// bounded by the larger of the two. "nt" writes around the cache.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/host/mover.h"

namespace axccl::kernels {
namespace {

constexpr int kMaxBuffers = 10;
constexpr size_t kSizes[] = {size_t{64} << 10, size_t{1} << 20, size_t{64} << 20};

struct Free {
  void operator()(char* p) const { std::free(p); }
};

// Buffers start at different offsets within a page, as in an application; equal ones would make loads wait for stores
// whose low address bits match.
class Buffers {
 public:
  Buffers(int num, size_t bytes) {
    for (int i = 0; i < num; ++i) {
      const size_t room = ((bytes + 8192) / 4096 + 1) * 4096;
      memory_.emplace_back(static_cast<char*>(std::aligned_alloc(4096, room)));
      std::memset(memory_.back().get(), 0, room);
      pointers_.push_back(memory_.back().get() + 256 * i);
    }
  }
  void* const* at(int i) const { return pointers_.data() + i; }

 private:
  std::vector<std::unique_ptr<char, Free>> memory_;
  std::vector<void*> pointers_;
};

void Report(benchmark::State& state, size_t bytes) {
  const double gigabytes = static_cast<double>(bytes) * static_cast<double>(state.iterations()) / 1e9;
  state.counters["GB/s"] = benchmark::Counter(gigabytes, benchmark::Counter::kIsRate);
}

// With loads of 16 bytes, which every machine has: beyond the second-level cache wider ones gain nothing, inside it the
// true limit is up to twice as high.
void ReadLimit(benchmark::State& state, size_t bytes) {
  typedef uint64_t V __attribute__((vector_size(16)));
  const Buffers buffers(1, bytes);
  const char* from = static_cast<const char*>(*buffers.at(0));
  for (auto _ : state) {
    V sum[8] = {};
    for (size_t at = 0; at < bytes; at += sizeof(sum)) {
#pragma GCC unroll 8
      for (size_t i = 0; i < 8; ++i) {
        V v;
        std::memcpy(&v, from + at + i * sizeof(V), sizeof(V));
        sum[i] |= v;
      }
    }
    for (V& v : sum) benchmark::DoNotOptimize(v);
  }
  Report(state, bytes);
}

void WriteLimit(benchmark::State& state, size_t bytes) {
  const Buffers buffers(1, bytes);
  for (auto _ : state) {
    std::memset(*buffers.at(0), 1, bytes);
    benchmark::ClobberMemory();
  }
  Report(state, bytes);
}

// Copies one cached block over and over, so that only the stores reach memory.
void StreamLimit(benchmark::State& state, size_t bytes) {
  constexpr size_t kBlock = 16384;
  const Buffers buffers(2, bytes);
  for (auto _ : state) {
    for (size_t at = 0; at < bytes; at += kBlock) {
      void* to = static_cast<char*>(*buffers.at(0)) + at;
      Copy(&to, 1, *buffers.at(1), kBlock, true);
    }
    benchmark::ClobberMemory();
  }
  Report(state, bytes);
}

void CopyBench(benchmark::State& state, size_t bytes, int num_dst, bool non_temporal) {
  const Buffers buffers(1 + num_dst, bytes);
  for (auto _ : state) {
    Copy(buffers.at(1), num_dst, *buffers.at(0), bytes, non_temporal);
    benchmark::ClobberMemory();
  }
  Report(state, bytes);
}

struct Shape {
  DataType type;
  Combine combine;
  int num_src;
  int num_dst;
  bool scaled;
  bool non_temporal;
};

void ReduceBench(benchmark::State& state, const Shape& shape, size_t bytes) {
  const Buffers buffers(shape.num_src + shape.num_dst, bytes);
  std::vector<Factor> pre(shape.num_src);
  for (Factor& factor : pre) {
    if (ScalarType(shape.type) == DataType::kFloat64) {
      factor.f64 = 0.5;
    } else if (IsFloat(ScalarType(shape.type))) {
      factor.f32 = 0.5f;
    } else {
      factor.u64 = 3;
    }
  }
  ReduceRequest request = {.dst = buffers.at(shape.num_src),
                           .num_dst = shape.num_dst,
                           .src = buffers.at(0),
                           .num_src = shape.num_src,
                           .count = bytes / ElementSize(shape.type),
                           .type = shape.type,
                           .combine = shape.combine};
  request.non_temporal = shape.non_temporal;
  if (shape.scaled) request.pre = pre.data();
  for (auto _ : state) {
    Reduce(request);
    benchmark::ClobberMemory();
  }
  Report(state, bytes);
}

template <class Fn>
void Register(const std::string& name, Fn fn) {
  benchmark::RegisterBenchmark(name.c_str(), fn)->MinTime(0.05);
}

void RegisterReduce(const Shape& shape, size_t bytes, const std::string& size) {
  std::string name = std::string("reduce/") + DataTypeName(shape.type) + "/";
  name += CombineName(shape.combine);
  name += "/" + std::to_string(shape.num_src) + "to" + std::to_string(shape.num_dst);
  if (shape.scaled) name += "/scaled";
  if (shape.non_temporal) name += "/nt";
  Register(name + "/" + size, [=](benchmark::State& state) { ReduceBench(state, shape, bytes); });
}

void RegisterSmall() {
  for (size_t bytes : {size_t{8}, size_t{64}, size_t{512}}) {
    Register("copy/small/1to1/" + std::to_string(bytes), [=](auto& state) { CopyBench(state, bytes, 1, false); });
  }
  for (size_t count : {1, 2, 3, 4, 7, 16, 100}) {
    const std::string size = "small/" + std::to_string(4 * count);
    RegisterReduce({DataType::kFloat32, Combine::kSum, 2, 1, false, false}, 4 * count, size);
    RegisterReduce({DataType::kFloat32, Combine::kSum, 2, 2, false, false}, 4 * count, size);
    RegisterReduce({DataType::kFloat32, Combine::kSum, 4, 1, false, false}, 4 * count, size);
    RegisterReduce({DataType::kFloat32, Combine::kSum, 2, 1, true, false}, 4 * count, size);
    RegisterReduce({DataType::kBfloat16, Combine::kSum, 2, 1, false, false}, 4 * count, size);
  }
}

void RegisterSize(size_t bytes) {
  const std::string size =
      bytes < (1 << 20) ? std::to_string(bytes >> 10) + "KiB" : std::to_string(bytes >> 20) + "MiB";
  Register("limit/read/" + size, [=](auto& state) { ReadLimit(state, bytes); });
  Register("limit/write/" + size, [=](auto& state) { WriteLimit(state, bytes); });
  Register("limit/write/nt/" + size, [=](auto& state) { StreamLimit(state, bytes); });
  for (int num_dst : {1, 2, 4}) {
    const std::string name = "copy/1to" + std::to_string(num_dst);
    Register(name + "/" + size, [=](auto& state) { CopyBench(state, bytes, num_dst, false); });
    Register(name + "/nt/" + size, [=](auto& state) { CopyBench(state, bytes, num_dst, true); });
  }
  for (int t = 0; t < kNumArithmeticTypes; ++t) {
    const DataType type = static_cast<DataType>(t);
    for (Combine combine : {Combine::kSum, Combine::kMax, Combine::kXor, Combine::kLogicalAnd, Combine::kProd}) {
      const bool only_complex = combine == Combine::kProd;
      if (Combines(type, combine) && (!only_complex || IsComplex(type)))
        RegisterReduce({type, combine, 2, 1, false, false}, bytes, size);
    }
    RegisterReduce({type, Combine::kSum, 2, 1, false, true}, bytes, size);
    if (type != DataType::kBool) RegisterReduce({type, Combine::kSum, 2, 1, true, false}, bytes, size);
    RegisterReduce({type, Combine::kSum, 2, 2, false, false}, bytes, size);
    RegisterReduce({type, Combine::kSum, 4, 1, false, false}, bytes, size);
    RegisterReduce({type, Combine::kSum, 8, 1, false, false}, bytes, size);
  }
}

}  // namespace
}  // namespace axccl::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("isa", axccl::kernels::ActiveIsa());
  axccl::kernels::RegisterSmall();
  for (size_t bytes : axccl::kernels::kSizes) axccl::kernels::RegisterSize(bytes);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
