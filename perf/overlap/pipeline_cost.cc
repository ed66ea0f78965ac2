// pipeline_cost: what pipelines cost beside the moving of data. perf/overlap/run puts its figures beside their bars.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "perf/overlap/cost.h"

namespace axccl::perf::overlap {
namespace {

[[noreturn]] void Help(int status) {
  std::fprintf(status == kExitOk ? stdout : stderr,
               "USAGE: %s MEASURE [rounds]\n"
               "  chunk        us of a chunk of 64 B: (64 slices - 1 slice) / 63, and of a call for each slice\n"
               "  call         a start and finish with one slice, and ncclAllGather, 8 B and 1 MiB\n"
               "  create       creation, first step and destruction, 8 ranks in threads, 8 slices\n"
               "  memory       of 500 idle pipelines, 8 ranks in threads, 8 slices\n"
               "  wake         from a chunk's ready until a thread that computes sees it; both cores compute\n"
               "  late         from a start until the chunks of the ranks that have come, while one is 200 ms late\n"
               "  failure      from a death or an abort until all words are 2\n"
               "  allocations  of the starts after the first\n"
               "Prints lines: name, figure, unit.\n",
               ProgramName().c_str());
  std::exit(status);
}

int CostMain(int argc, char** argv) {
  BeginProgram(argc, argv);
  setenv("AXCCL_DEVICE", "host", 0);
  if (argc < 2 || argc > 3) Help(kExitUsage);
  if (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0) Help(kExitOk);
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 0;
  if (argc > 2 && rounds < 1) Fail(kExitUsage, "'%s' rounds: pass a number above 0", argv[2]);
  struct Measure {
    const char* name;
    void (*run)(int);
    int rounds;
  };
  constexpr Measure kMeasures[] = {
      {"chunk", MeasureChunks, 41},     {"call", MeasureCalls, 101},
      {"create", MeasureCreation, 201}, {"memory", [](int) { MeasureMemory(); }, 1},
      {"wake", MeasureWaking, 30},      {"late", MeasureLateRank, 11},
      {"failure", MeasureFailures, 11}, {"allocations", [](int) { MeasureAllocations(); }, 1},
  };
  for (const Measure& measure : kMeasures) {
    if (std::strcmp(measure.name, argv[1]) != 0) continue;
    measure.run(rounds > 0 ? rounds : measure.rounds);
    return kExitOk;
  }
  Help(kExitUsage);
}

}  // namespace
}  // namespace axccl::perf::overlap

int main(int argc, char** argv) { return axccl::perf::overlap::CostMain(argc, argv); }
