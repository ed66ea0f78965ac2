#include "perf/overlap/options.h"

#include <cstdio>
#include <cstdlib>

#include "perf/common/fail.h"
#include "src/base/command_line.h"

namespace axccl::perf::overlap {
namespace {

using command_line::Word;

constexpr const char* kPatterns[] = {"ag_matmul", "matmul_ar", "matmul_rs", "ag_matmul_own"};
constexpr const char* kMemories[] = {"nccl", "malloc"};
constexpr const char* kModes[] = {"bulk", "calls", "pipeline"};
constexpr const char* kDevices[] = {"host", "cuda"};
constexpr const char* kEngines[] = {"auto", "kernel", "copy"};

// Long options without a letter of their own.
enum Long {
  kPattern = 256,
  kMode,
  kRanks,
  kRank,
  kM,
  kK,
  kN,
  kSlices,
  kBalance,
  kTrace,
  kMemory,
  kDevice,
  kEngine,
  kPlain
};

constexpr command_line::Option kOptions[] = {
    {"--pattern", true, 0, kPattern},
    {"--mode", true, 0, kMode},
    {"--ranks", true, 0, kRanks},
    {"--rank", true, 0, kRank},
    {"--nthreads", true, 't', 't'},
    {"--m", true, 0, kM},
    {"--k", true, 0, kK},
    {"--n", true, 0, kN},
    {"--slices", true, 0, kSlices},
    {"--rounds", true, 'N', 'N'},
    {"--balance", false, 0, kBalance},
    {"--trace", true, 0, kTrace},
    {"--memory", true, 0, kMemory},
    {"--device", true, 0, kDevice},
    {"--engine", true, 0, kEngine},
    {"--plain", false, 0, kPlain},
    {"--output_file", true, 'J', 'J'},
};

[[noreturn]] void Help() {
  std::printf(
      "USAGE: %s [option value]...\n"
      "Times a matrix product and a collective, one after the other (bulk), with a call for each slice (calls), and as "
      "a\n"
      "pipeline. D ranks, S slices, [M, K] x [K, N]; <D>: a dimension of which each rank has one index.\n"
      "  --pattern ag_matmul      all_gather of [S, <D>, M/SD, K], x [K, N] (default)\n"
      "            matmul_ar      [S, <D>, M/S, K/D] x [<D>, K/D, N], all_reduce\n"
      "            matmul_rs      [S, <D>, D, M/SD, K/D] x [<D>, K/D, N], reduce_scatter\n"
      "            ag_matmul_own  all_gather of [<D>, M/D, K], x [K, N], the own block first\n"
      "  --mode bulk|calls|pipeline|all (all)\n"
      "  --m, --k, --n            sizes (4096, 4096, 1024)\n"
      "  --slices S               (8)\n"
      "  --balance                change n, or k of matmul_*, until computation takes as long as communication, +-25 "
      "%%\n"
      "  --ranks D                processes (2); --rank R: this one of them, started by hand, with NCCL_COMM_ID\n"
      "  -t N                     threads of one process instead, a rank each\n"
      "  --memory nccl|malloc     ncclMemAlloc (default) or aligned heap memory\n"
      "  --device host|cuda       cuda: elements are bfloat16, cuBLAS multiplies where it can be loaded, and ranks "
      "have\n"
      "                           the GPUs in turn\n"
      "  --engine auto|kernel|copy  of pipelines on GPUs (auto)\n"
      "  --plain                  on GPUs a plain kernel multiplies\n"
      "  -N rounds                of which the medians count (5)\n"
      "  --trace FILE             one more round, as Chrome trace events (Perfetto)\n"
      "  -J FILE                  the figures as JSON\n",
      ProgramName().c_str());
  std::exit(kExitOk);
}

template <class T, size_t size>
T Find(const Word& word, const char* const (&names)[size]) {
  std::string all;
  for (size_t i = 0; i < size; ++i) {
    if (word.text == names[i]) return static_cast<T>(i);
    all += std::string(i == 0 ? "" : ", ") + names[i];
  }
  Fail(kExitUsage, "option %s %s: pass one of %s", word.as.c_str(), word.text.c_str(), all.c_str());
}

int64_t Number(const Word& word, int64_t least, int64_t most) {
  char* end = nullptr;
  const long long value = std::strtoll(word.text.c_str(), &end, 10);
  if (word.text.empty() || *end != '\0' || value < least || value > most)
    Fail(kExitUsage, "option %s %s: pass a number from %lld to %lld", word.as.c_str(), word.text.c_str(),
         static_cast<long long>(least), static_cast<long long>(most));
  return value;
}

// Of devices.
void RefuseOptions(const OverlapOptions& o) {
  if (!o.gpu && (o.plain || o.engine != axcclEngineAuto))
    Fail(kExitUsage, "options --plain and --engine are for --device cuda");
  if (!o.gpu) return;
  if (o.malloc) Fail(kExitUsage, "option --memory malloc: GPUs have memory of ncclMemAlloc only");
  if (!o.trace_path.empty()) Fail(kExitUsage, "option --trace: only host ranks know when chunks come");
  if (o.rank >= 0) Fail(kExitUsage, "option --rank: ranks on GPUs are on one machine; give --ranks alone, or -t");
}

struct Given {
  bool ranks = false, threads = false;
};

void Take(const Word& word, OverlapOptions* o, Given* given) {
  constexpr int64_t kMostSize = 1 << 20;
  switch (word.option.number) {
    case kPattern:
      o->pattern = Find<Pattern>(word, kPatterns);
      break;
    case kMode:
      if (word.text != "all") o->modes = {Find<Mode>(word, kModes)};
      break;
    case kRanks:
      o->ranks = static_cast<int>(Number(word, 1, 256)), given->ranks = true;
      break;
    case kRank:
      o->rank = static_cast<int>(Number(word, 0, 255));
      break;
    case 't':
      o->threads = static_cast<int>(Number(word, 1, 256)), given->threads = true;
      break;
    case kM:
      o->m = Number(word, 1, kMostSize);
      break;
    case kK:
      o->k = Number(word, 1, kMostSize);
      break;
    case kN:
      o->n = Number(word, 1, kMostSize);
      break;
    case kSlices:
      o->slices = Number(word, 1, 65536);
      break;
    case 'N':
      o->rounds = static_cast<int>(Number(word, 1, 10000));
      break;
    case kBalance:
      o->balance = true;
      break;
    case kTrace:
      o->trace_path = word.text;
      break;
    case kMemory:
      o->malloc = Find<int>(word, kMemories) == 1;
      break;
    case kDevice:
      o->gpu = Find<int>(word, kDevices) == 1;
      break;
    case kEngine:
      o->engine = Find<axcclEngine_t>(word, kEngines);
      break;
    case kPlain:
      o->plain = true;
      break;
    case 'J':
      o->json_path = word.text;
      break;
  }
}

}  // namespace

const char* PatternName(Pattern pattern) { return kPatterns[static_cast<int>(pattern)]; }
const char* ModeName(Mode mode) { return kModes[static_cast<int>(mode)]; }

std::string RefuseSizes(const OverlapOptions& o) {
  const auto refuse = [](const char* name, int64_t value, const char* divisor, int64_t by) {
    return "option --" + std::string(name) + " " + std::to_string(value) + ": has to be a multiple of " + divisor +
           " = " + std::to_string(by);
  };
  const bool reduces = o.pattern == Pattern::kMatmulAr || o.pattern == Pattern::kMatmulRs;
  const int64_t parts = o.pattern == Pattern::kMatmulAr ? o.slices : o.slices * o.ranks;
  if (o.m % parts != 0) return refuse("m", o.m, reduces && parts == o.slices ? "slices" : "slices x ranks", parts);
  if (reduces && o.k % o.ranks != 0) return refuse("k", o.k, "ranks", o.ranks);
  return "";
}

OverlapOptions ParseOverlapOptions(int argc, char** argv) {
  const Result<command_line::Words> words = command_line::Split({argv + 1, argv + argc}, kOptions);
  if (!words.ok()) Fail(kExitUsage, "%s", std::string(words.status().message()).c_str());
  OverlapOptions o;
  Given given;
  for (const Word& word : words.value().words) {
    if (!word.is_option()) Fail(kExitUsage, "'%s' is no option; --help lists them", word.text.c_str());
    Take(word, &o, &given);
  }
  if (words.value().help) Help();
  if (given.ranks && given.threads) Fail(kExitUsage, "options --ranks and -t: give one of them");
  if (given.threads) o.ranks = o.threads;
  RefuseOptions(o);
  const std::string refusal = RefuseSizes(o);
  if (!refusal.empty()) Fail(kExitUsage, "%s", refusal.c_str());
  return o;
}

}  // namespace axccl::perf::overlap
