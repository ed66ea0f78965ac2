// What libaxccl-malloc.so costs a program, and what its large memory costs one that communicates. perf/malloc runs this
// with and without it, in turns.
//
//   malloc_bench                                           the C library's malloc
//   LD_PRELOAD=build/libaxccl-malloc.so malloc_bench       a program that does not communicate
//   ... malloc_bench --communicate                         one that does: large memory comes from the mapped heap
//
// "pair" frees what it has just allocated, over and over, which no program does, and which shows every cycle. "mix" is
// a program's life: it replaces one of 10,000 live blocks, whose sizes are spread evenly over powers of two, writes its
// first and last byte, and reads those of the one that goes. "grow" resizes from 64 B by half more up to 1 MiB. "touch"
// allocates, writes each page and frees. An "operation" is one allocation and one free, or one resize.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "nccl.h"

namespace {

constexpr size_t kKilo = 1024, kMega = kKilo * kKilo;

uint64_t Next(uint64_t* state) {  // xorshift64
  *state ^= *state << 13;
  *state ^= *state >> 7;
  return *state ^= *state << 17;
}

void Pair(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    void* memory = std::malloc(bytes);
    benchmark::DoNotOptimize(memory);
    std::free(memory);
  }
}

struct Block {
  char* memory = nullptr;
  size_t bytes = 0;
};

// Sizes from 16 B to below 2^range(0) B.
void Mix(benchmark::State& state) {
  const auto powers = static_cast<uint64_t>(state.range(0)) - 4;
  std::vector<Block> blocks(10000);
  uint64_t random = 88172645463325252u + static_cast<uint64_t>(state.thread_index());
  uint64_t sum = 0;
  const auto replace = [&](Block* block) {
    if (block->memory != nullptr) sum += static_cast<uint64_t>(block->memory[0] + block->memory[block->bytes - 1]);
    std::free(block->memory);
    const uint64_t drawn = Next(&random);
    const uint64_t least = uint64_t{16} << (drawn % powers);
    block->bytes = least + (drawn >> 32) % least;
    block->memory = static_cast<char*>(std::malloc(block->bytes));
    block->memory[0] = block->memory[block->bytes - 1] = 1;
  };
  for (Block& block : blocks) replace(&block);
  for (auto _ : state) replace(&blocks[Next(&random) % blocks.size()]);
  benchmark::DoNotOptimize(sum);
  for (Block& block : blocks) std::free(block.memory);
}

void Grow(benchmark::State& state) {
  int64_t operations = 0;
  for (auto _ : state) {
    void* memory = nullptr;
    for (size_t bytes = 64; bytes <= kMega; bytes += bytes / 2, ++operations) memory = std::realloc(memory, bytes);
    benchmark::DoNotOptimize(memory);
    std::free(memory);
  }
  state.SetItemsProcessed(operations);
}

void Zeroed(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    void* memory = std::calloc(1, bytes);
    benchmark::DoNotOptimize(memory);
    std::free(memory);
  }
}

void Touch(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    auto* memory = static_cast<char*>(std::malloc(bytes));
    for (size_t at = 0; at < bytes; at += 4 * kKilo) memory[at] = 1;
    benchmark::DoNotOptimize(memory);
    std::free(memory);
  }
}

BENCHMARK(Pair)->Name("pair")->Arg(32)->Arg(1000)->Arg(20000)->Arg(100000);
BENCHMARK(Mix)->Name("mix")->Arg(10)->Arg(15)->Arg(18);
BENCHMARK(Mix)->Name("mix_by_two_threads")->Arg(10)->Arg(15)->Threads(2);
BENCHMARK(Grow)->Name("grow");
BENCHMARK(Zeroed)->Name("zeroed")->Arg(100)->Arg(100000);
BENCHMARK(Touch)->Name("touch")->Arg(64 * kKilo)->Arg(kMega)->Arg(8 * kMega)->Arg(40 * kMega);

}  // namespace

int main(int argc, char** argv) {
  bool communicate = false;
  int count = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--communicate") == 0) {
      communicate = true;
    } else {
      argv[count++] = argv[i];
    }
  }
  benchmark::Initialize(&count, argv);
  if (benchmark::ReportUnrecognizedArguments(count, argv)) return 2;
  ncclComm_t comm = nullptr;
  if (communicate && ncclCommInitAll(&comm, 1, nullptr) != ncclSuccess) {
    std::fprintf(stderr, "%s\n", ncclGetLastError(nullptr));
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  return communicate && ncclCommDestroy(comm) != ncclSuccess ? 1 : 0;
}
