// How close the strided movers of the host come to the best loops written for a single access pattern.
//
//   box_bench                               everything, with the best instruction set of this machine
//   box_bench --benchmark_filter=gather/    as every Google Benchmark program
//
// GB/s counts bytes of the destination. "floor" is such a loop: it has its pattern and its size at compile time.
// "gather" reads runs that are twice their size apart and writes without gaps, "scatter" is the reverse; "tiles" makes
// one call for each 128 KiB of the destination, as the library does. "nt" writes around the cache.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "kernels/host/box.h"

namespace axccl::kernels {
namespace {

constexpr size_t kLarge = size_t{16} << 20;
constexpr size_t kCached = size_t{256} << 10;
constexpr uint64_t kTileBytes = size_t{128} << 10;

constexpr size_t kMemory = (size_t{128} << 20) + 4096;

struct Free {
  void operator()(char* p) const { std::free(p); }
};

// The same three pieces of memory for all benchmarks, because the placement of physical pages affects the times.
char* Memory(int i) {
  static std::unique_ptr<char, Free> memory[3];
  if (memory[i] == nullptr) {
    memory[i].reset(static_cast<char*>(std::aligned_alloc(4096, kMemory)));
    std::memset(memory[i].get(), 1, kMemory);
  }
  return memory[i].get() + 256 * i;
}

void Report(benchmark::State& state, size_t bytes) {
  const double gigabytes = static_cast<double>(bytes) * static_cast<double>(state.iterations()) / 1e9;
  state.counters["GB/s"] = benchmark::Counter(gigabytes, benchmark::Counter::kIsRate);
}

template <class Fn>
void Register(const std::string& name, Fn fn) {
  benchmark::RegisterBenchmark(name.c_str(), fn)->MinTime(0.1);
}

// Two dimensions of elements from one buffer to another; strides in elements, null for packed.
struct Pattern {
  int64_t sizes[2];
  const int64_t* dst;
  const int64_t* src;
  size_t element;

  uint64_t Elements() const { return static_cast<uint64_t>(sizes[0] * sizes[1]); }
};

void CopyBench(benchmark::State& state, const Pattern& pattern, bool tiles, bool non_temporal) {
  char* const from = Memory(0);
  char* const to = Memory(1);
  const BoxOperand src = {from, pattern.src};
  const BoxOperand dst = {to, pattern.dst};
  const uint64_t all = pattern.Elements();
  const uint64_t step = tiles ? kTileBytes / pattern.element : all;
  for (auto _ : state) {
    for (uint64_t begin = 0; begin < all; begin += step) {
      BoxOperand tile_src = src;
      BoxOperand tile_dst = dst;
      if (pattern.src == nullptr) tile_src.data = from + begin * pattern.element;
      if (pattern.dst == nullptr) tile_dst.data = to + begin * pattern.element;
      CopyBox({2, pattern.sizes, begin, step}, &tile_dst, 1, tile_src, pattern.element, non_temporal);
    }
    benchmark::ClobberMemory();
  }
  Report(state, all * pattern.element);
}

// Two sources of the pattern to one destination.
void ReduceBench(benchmark::State& state, const Pattern& pattern, DataType type) {
  const BoxOperand src[2] = {{Memory(0), pattern.src}, {Memory(2), pattern.src}};
  const BoxOperand dst = {Memory(1), pattern.dst};
  for (auto _ : state) {
    ReduceBox({{2, pattern.sizes, 0, pattern.Elements()}, &dst, 1, src, 2, type, Combine::kSum});
    benchmark::ClobberMemory();
  }
  Report(state, pattern.Elements() * pattern.element);
}

using FloorLoop = void (*)(char* dst, const char* src, size_t bytes);

void FloorBench(benchmark::State& state, FloorLoop loop, size_t bytes) {
  for (auto _ : state) {
    loop(Memory(1), Memory(0), bytes);
    benchmark::ClobberMemory();
  }
  Report(state, bytes);
}

template <size_t kRun, size_t kDstPitch, size_t kSrcPitch>
void PlainRuns(char* __restrict dst, const char* __restrict src, size_t bytes) {
  for (size_t i = 0; i < bytes / kRun; ++i) std::memcpy(dst + i * kDstPitch, src + i * kSrcPitch, kRun);
}

// The compiled loop of one run size if the compiler may use AVX2.
template <size_t kRun, size_t kDstPitch, size_t kSrcPitch>
__attribute__((target("avx2"), optimize("O3"))) void WideRuns(char* __restrict dst, const char* __restrict src,
                                                              size_t bytes) {
  for (size_t i = 0; i < bytes / kRun; ++i) __builtin_memcpy(dst + i * kDstPitch, src + i * kSrcPitch, kRun);
}

template <size_t kRun>
void RegisterRuns(size_t bytes, const std::string& size) {
  constexpr size_t kElement = kRun < 4 ? kRun : 4;
  static constexpr int64_t kStrides[] = {2 * kRun / kElement, 1};
  const int64_t rows = static_cast<int64_t>(bytes / kRun);
  const Pattern gather = {{rows, kRun / kElement}, nullptr, kStrides, kElement};
  const Pattern scatter = {{rows, kRun / kElement}, kStrides, nullptr, kElement};
  const std::string end = "/" + std::to_string(kRun) + "B/" + size;
  Register("gather" + end, [=](auto& state) { CopyBench(state, gather, false, false); });
  Register("gather/floor" + end, [=](auto& state) { FloorBench(state, PlainRuns<kRun, kRun, 2 * kRun>, bytes); });
  Register("gather/floor_avx2" + end, [=](auto& state) { FloorBench(state, WideRuns<kRun, kRun, 2 * kRun>, bytes); });
  Register("scatter" + end, [=](auto& state) { CopyBench(state, scatter, false, false); });
  Register("scatter/floor" + end, [=](auto& state) { FloorBench(state, PlainRuns<kRun, 2 * kRun, kRun>, bytes); });
  Register("scatter/floor_avx2" + end, [=](auto& state) { FloorBench(state, WideRuns<kRun, 2 * kRun, kRun>, bytes); });
  if (bytes == kLarge) {
    Register("gather/tiles" + end, [=](auto& state) { CopyBench(state, gather, true, false); });
    Register("gather/nt" + end, [=](auto& state) { CopyBench(state, gather, false, true); });
  }
  if (kElement == 4) {
    Register("gather/reduce/float" + end, [=](auto& state) { ReduceBench(state, gather, DataType::kFloat32); });
  }
}

// [4096, 4096] of Word, a square at a time.
template <class Word, size_t kSide>
void PlainTranspose(char* __restrict dst, const char* __restrict src, size_t) {
  constexpr size_t kN = 4096;
  const Word* __restrict from = reinterpret_cast<const Word*>(src);
  Word* __restrict to = reinterpret_cast<Word*>(dst);
  for (size_t r = 0; r < kN; r += kSide) {
    for (size_t c = 0; c < kN; c += kSide) {
      for (size_t i = r; i < r + kSide; ++i) {
        for (size_t j = c; j < c + kSide; ++j) to[i * kN + j] = from[j * kN + i];
      }
    }
  }
}

template <class Word>
void RegisterTranspose(const std::string& type, DataType data_type) {
  constexpr int64_t kN = 4096;
  static constexpr int64_t kTransposed[] = {1, kN};
  constexpr size_t kBytes = kN * kN * sizeof(Word);
  const Pattern reading = {{kN, kN}, nullptr, kTransposed, sizeof(Word)};
  const Pattern writing = {{kN, kN}, kTransposed, nullptr, sizeof(Word)};
  const std::string name = "transpose/" + type;
  Register(name, [=](auto& state) { CopyBench(state, reading, false, false); });
  Register(name + "/nt", [=](auto& state) { CopyBench(state, reading, false, true); });
  Register(name + "/tiles", [=](auto& state) { CopyBench(state, reading, true, false); });
  Register(name + "/tiles/nt", [=](auto& state) { CopyBench(state, reading, true, true); });
  Register(name + "/tiles/to_strided", [=](auto& state) { CopyBench(state, writing, true, false); });
  Register(name + "/reduce", [=](auto& state) { ReduceBench(state, reading, data_type); });
  Register(name + "/floor/whole", [=](auto& state) { FloorBench(state, PlainTranspose<Word, kN>, kBytes); });
  Register(name + "/floor/8", [=](auto& state) { FloorBench(state, PlainTranspose<Word, 8>, kBytes); });
  Register(name + "/floor/32", [=](auto& state) { FloorBench(state, PlainTranspose<Word, 32>, kBytes); });
}

// One rank's part of an all_gather in dimension 1: rows of 16 KiB side by side with another rank's.
void RegisterRows() {
  constexpr int64_t kN = 4096;
  constexpr size_t kBytes = kN * kN * sizeof(float);
  static constexpr int64_t kDst[] = {2 * kN, 1};
  static constexpr int64_t kSrc[] = {kN, 1};
  const Pattern rows = {{kN, kN}, kDst, kSrc, sizeof(float)};
  Register("rows/16KiB", [=](auto& state) { CopyBench(state, rows, false, false); });
  Register("rows/16KiB/tiles", [=](auto& state) { CopyBench(state, rows, true, false); });
  Register("rows/16KiB/nt", [=](auto& state) { CopyBench(state, rows, false, true); });
  Register("rows/16KiB/tiles/nt", [=](auto& state) { CopyBench(state, rows, true, true); });
  Register("rows/16KiB/floor", [=](auto& state) { FloorBench(state, PlainRuns<16384, 32768, 16384>, kBytes); });
}

// The cost of a call besides moving the bytes.
void RegisterSmall() {
  static constexpr int64_t kStrides[] = {64, 1};
  for (int64_t rows : {1, 2, 16}) {
    const Pattern few = {{rows, 16}, nullptr, kStrides, 4};
    Register("call/" + std::to_string(rows) + "x64B", [=](auto& state) { CopyBench(state, few, false, false); });
    Register("call/reduce/" + std::to_string(rows) + "x64B",
             [=](auto& state) { ReduceBench(state, few, DataType::kFloat32); });
  }
}

void RegisterSize(size_t bytes, const std::string& size) {
  RegisterRuns<1>(bytes, size);
  RegisterRuns<2>(bytes, size);
  RegisterRuns<4>(bytes, size);
  RegisterRuns<8>(bytes, size);
  RegisterRuns<12>(bytes, size);
  RegisterRuns<16>(bytes, size);
  RegisterRuns<32>(bytes, size);
  RegisterRuns<64>(bytes, size);
  RegisterRuns<256>(bytes, size);
  RegisterRuns<1024>(bytes, size);
}

}  // namespace
}  // namespace axccl::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("isa", axccl::kernels::ActiveIsa());
  axccl::kernels::RegisterSmall();
  axccl::kernels::RegisterSize(axccl::kernels::kCached, "256KiB");
  axccl::kernels::RegisterSize(axccl::kernels::kLarge, "16MiB");
  axccl::kernels::RegisterTranspose<uint32_t>("float", axccl::DataType::kFloat32);
  axccl::kernels::RegisterTranspose<uint16_t>("bfloat16", axccl::DataType::kBfloat16);
  axccl::kernels::RegisterRows();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
