#include "perf/common/options.h"

#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "axccl/views.h"
#include "perf/common/types.h"
#include "src/base/command_line.h"

namespace axccl::perf {
namespace {

using command_line::Word;

// Long options without a letter.
enum LongOnly {
  kRanks = 256,
  kRank,
  kMalloc,
  kShape,
  kList,
  kDim,
  kSplitDim,
  kConcatDim,
  kStrides,
  kOutStrides,
  kGroups
};

constexpr command_line::Option kOptions[] = {
    {"--nthreads", true, 't', 't'},
    {"--ngpus", true, 'g', 'g'},
    {"--minbytes", true, 'b', 'b'},
    {"--maxbytes", true, 'e', 'e'},
    {"--stepbytes", true, 'i', 'i'},
    {"--stepfactor", true, 'f', 'f'},
    {"--iters", true, 'n', 'n'},
    {"--agg_iters", true, 'm', 'm'},
    {"--warmup_iters", true, 'w', 'w'},
    {"--run_cycles", true, 'N', 'N'},
    {"--parallel_init", true, 'p', 'p'},
    {"--check", true, 'c', 'c'},
    {"--op", true, 'o', 'o'},
    {"--datatype", true, 'd', 'd'},
    {"--root", true, 'r', 'r'},
    {"--blocking", true, 'z', 'z'},
    {"--stream_null", true, 'y', 'y'},
    {"--timeout", true, 'T', 'T'},
    {"--cudagraph", true, 'G', 'G'},
    {"--report_cputime", true, 'C', 'C'},
    {"--report_timestamps", true, 'S', 'S'},
    {"--output_file", true, 'J', 'J'},
    {"--average", true, 'a', 'a'},
    {"--local_register", true, 'R', 'R'},
    {"--cta_policy", true, 'x', 'x'},
    {"--device_implementation", true, 'D', 'D'},
    {"--device_cta_count", true, 'V', 'V'},
    {"--memory", true, 'M', 'M'},
    {"--unalign", true, 'u', 'u'},
    {"--per_iter_timing", true, 'I', 'I'},
    {"--per_iter_skip", true, 'K', 'K'},
    {"--ranks", true, 0, kRanks},
    {"--rank", true, 0, kRank},
    {"--malloc", false, 0, kMalloc},
    {"--shape", true, 0, kShape},
    {"--list", true, 0, kList},
    {"--dim", true, 0, kDim},
    {"--split-dim", true, 0, kSplitDim},
    {"--concat-dim", true, 0, kConcatDim},
    {"--strides", true, 0, kStrides},
    {"--out-strides", true, 0, kOutStrides},
    {"--groups", true, 0, kGroups},
};

Status BadValue(const Word& word, const std::string& expected) {
  return MakeStatus(Code::kInvalidArgument, "option %s: '%s' is not %s", word.as.c_str(), word.text.c_str(),
                    expected.c_str());
}

Result<long> ParseNumber(const Word& word, long lowest, long highest) {
  errno = 0;
  const char* const text = word.text.c_str();
  char* end = nullptr;
  long value = std::strtol(text, &end, 0);
  if (end == text || *end != '\0' || errno != 0 || value < lowest || value > highest) {
    return BadValue(word, "a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest));
  }
  return value;
}

// Stores an integer option in a field of any integer, bool or enum type.
template <class T>
Status Store(const Word& word, long lowest, long highest, T* field) {
  AXCCL_ASSIGN_OR_RETURN(long value, ParseNumber(word, lowest, highest));
  *field = static_cast<T>(value);
  return Status();
}

Status StoreSize(const Word& word, size_t* field) {
  Result<size_t> size = ParseSize(word.text.c_str());
  if (!size.ok()) return BadValue(word, "a size such as 8, 64K, 1.5M or 2G");
  *field = size.value();
  return Status();
}

// For options about features of GPUs: 0 requests nothing and is accepted.
Status RefuseUnlessZero(const Word& word, const char* what) {
  AXCCL_ASSIGN_OR_RETURN(long value, ParseNumber(word, 0, INT_MAX));
  if (value == 0) return Status();
  return MakeStatus(Code::kInvalidUsage, "option %s %ld: host ranks have no %s; leave the option out or pass 0",
                    word.as.c_str(), value, what);
}

Status StoreName(const Word& word, int (*lookup)(const char*), int all, int* field) {
  int found = word.text == "all" ? all : lookup(word.text.c_str());
  if (found < 0 && word.text != "all") {
    return BadValue(word, word.option.number == 'o' ? "sum, prod, max, min, avg, mulsum or all"
                                                    : "one of " + DataTypeNames() + " or all");
  }
  *field = found;
  return Status();
}

// Stores the result of `parse`, or returns an error with what was expected.
template <class T, class Parse>
Status StoreParsed(const Word& word, const char* expected, Parse parse, T* field) {
  Result<T> parsed = parse(word.text.c_str());
  if (!parsed.ok()) return BadValue(word, expected);
  *field = std::move(parsed).value();
  return Status();
}

Status StoreDim(const Word& word, std::optional<int>* field) {
  int dim = 0;
  AXCCL_RETURN_IF_ERROR(Store(word, -AXCCL_MAX_DIMS, AXCCL_MAX_DIMS - 1, &dim));
  *field = dim;
  return Status();
}

// Either --shape or --list may describe the operands.
Status RefuseSecondShape(const Word& word, const ViewOptions& views) {
  if (views.shapes.empty()) return Status();
  return MakeStatus(Code::kInvalidArgument, "option %s '%s': there is a --shape or --list already; give one of them",
                    word.as.c_str(), word.text.c_str());
}

Status StoreShape(const Word& word, ViewOptions* views) {
  Shape shape;
  AXCCL_RETURN_IF_ERROR(RefuseSecondShape(word, *views));
  AXCCL_RETURN_IF_ERROR(StoreParsed(
      word, "a shape such as 64,512: sizes of at most 8 dimensions",
      [](const char* text) { return ParseShape(text, ','); }, &shape));
  views->shapes = {shape};
  return Status();
}

Status ParseViewOption(const Word& word, ViewOptions* views) {
  const char* strides = "a list of strides in elements such as 1,64, one for each dimension";
  views->given = true;
  switch (word.option.number) {
    case kShape:
      return StoreShape(word, views);
    case kList:
      AXCCL_RETURN_IF_ERROR(RefuseSecondShape(word, *views));
      views->is_list = true;
      return StoreParsed(word, "a number of operands such as 200, or shapes such as 128x64,64,256x128", ParseList,
                         &views->shapes);
    case kDim:
      return StoreDim(word, &views->dim);
    case kSplitDim:
      return StoreDim(word, &views->split_dim);
    case kConcatDim:
      return StoreDim(word, &views->concat_dim);
    case kStrides:
      return StoreParsed(word, strides, ParseStrides, &views->strides);
    case kOutStrides:
      return StoreParsed(word, strides, ParseStrides, &views->out_strides);
    default:
      return StoreParsed(word, "lists of ranks such as [[0,1],[2,3]]", ParseGroups, &views->groups);
  }
}

Status ParseSizeOption(const Word& word, Options* o) {
  o->sizes_given = true;
  switch (word.option.number) {
    case 'b':
      return StoreSize(word, &o->min_bytes);
    case 'e':
      return StoreSize(word, &o->max_bytes);
    case 'i':
      return StoreSize(word, &o->step_bytes);
    default:
      return Store(word, 0, LONG_MAX, &o->step_factor);
  }
}

Status ParseLayoutOption(const Word& word, Options* o) {
  o->layout_given = true;
  return word.option.number == 't' ? Store(word, 1, 1024, &o->threads) : Store(word, 1, 1024, &o->ranks_per_thread);
}

Status ParseOne(const Word& word, Options* o) {
  switch (word.option.number) {
    case 't':
    case 'g':
      return ParseLayoutOption(word, o);
    case kRanks:
      return Store(word, 1, 1024, &o->ranks);
    case kRank:
      return Store(word, 0, 1023, &o->rank);
    case kMalloc:
      o->malloc_buffers = true;
      return Status();
    case kShape:
    case kList:
    case kDim:
    case kSplitDim:
    case kConcatDim:
    case kStrides:
    case kOutStrides:
    case kGroups:
      return ParseViewOption(word, &o->views);
    case 'b':
    case 'e':
    case 'i':
    case 'f':
      return ParseSizeOption(word, o);
    case 'n':
      return Store(word, 1, INT_MAX, &o->iterations);
    case 'm':
      return Store(word, 1, INT_MAX, &o->aggregate);
    case 'w':
      return Store(word, 0, INT_MAX, &o->warmup);
    case 'N':
      return Store(word, 0, INT_MAX, &o->cycles);
    case 'p':
      return Store(word, 0, 1, &o->parallel_init);
    case 'c':
      return Store(word, 0, INT_MAX, &o->checks);
    case 'o':
      return StoreName(word, FindOp, kAllOps, &o->op);
    case 'd':
      return StoreName(word, FindDataType, kAllTypes, &o->type);
    case 'r':
      return Store(word, -1, INT_MAX, &o->root);
    case 'z':
      return Store(word, 0, 3, &o->blocking);
    case 'y':
      return Store(word, 0, 1, &o->null_stream);
    case 'T':
      return Store(word, 0, 86400, &o->timeout_seconds);
    case 'G':
      return RefuseUnlessZero(word, "CUDA graphs");
    case 'C':
      return Store(word, 0, 1, &o->report_cpu_time);
    case 'S':
      return Store(word, 0, 1, &o->report_timestamps);
    case 'J':
      o->json_path = word.text;
      return Status();
    case 'a':
      return Store(word, 0, 3, &o->average);
    case 'R':
      return Store(word, 0, 2, &o->registration);
    case 'x':
      return Store(word, 0, 2, &o->cta_policy);
    case 'D':
      return RefuseUnlessZero(word, "device kernels");
    case 'V': {
      int unused;
      return Store(word, 1, 128, &unused);
    }  // only shapes device kernels
    case 'M':
      return Store(word, 0, 1, &o->memory_report);
    case 'u':
      return Store(word, 0, 1 << 20, &o->unalign);
    case 'I':
      return Store(word, 0, 1, &o->per_iteration);
    case 'K':
      return Store(word, 0, INT_MAX, &o->per_iteration_skip);
    default:
      return MakeStatus(Code::kInternalError, "option %d has no meaning", word.option.number);
  }
}

Status CheckTogether(const Options& o) {
  if (o.sizes_given && !o.views.shapes.empty()) {
    return MakeStatus(Code::kInvalidArgument, "option %s says how large operands are; leave -b, -e, -i and -f out",
                      o.views.is_list ? "--list" : "--shape");
  }
  if (o.min_bytes > o.max_bytes) {
    return MakeStatus(Code::kInvalidArgument, "invalid sizes for 'minbytes' and 'maxbytes': %zu > %zu", o.min_bytes,
                      o.max_bytes);
  }
  if (o.step_factor <= 1 && o.step_bytes == 0 && o.min_bytes < o.max_bytes) {
    return MakeStatus(Code::kInvalidArgument, "option -i 0 never gets from %zu to %zu bytes; give a step or -f 2",
                      o.min_bytes, o.max_bytes);
  }
  if (o.step_factor > 1 && o.min_bytes == 0) {
    return MakeStatus(Code::kInvalidArgument, "option -f %zu cannot start from -b 0", o.step_factor);
  }
  if (o.per_iteration_skip != 0 && (!o.per_iteration || o.per_iteration_skip >= o.iterations)) {
    return MakeStatus(Code::kInvalidArgument, "option -K %d needs -I 1 and must be below the %d iterations (-n)",
                      o.per_iteration_skip, o.iterations);
  }
  return Status();
}

}  // namespace

Result<size_t> ParseSize(const char* text) {
  char* end = nullptr;
  double value = std::strtod(text, &end);
  double unit = 1;
  if (end != text && *end != '\0') {
    switch (*end++) {
      case 'k':
      case 'K':
        unit = 1024.0;
        break;
      case 'm':
      case 'M':
        unit = 1024.0 * 1024;
        break;
      case 'g':
      case 'G':
        unit = 1024.0 * 1024 * 1024;
        break;
      default:
        unit = -1;
    }
  }
  // 2^53 is where a double stops holding every whole number.
  if (end == text || *end != '\0' || unit < 0 || !(value >= 0) || value * unit > 9007199254740992.0) {
    return MakeStatus(Code::kInvalidArgument, "'%s' is not a size such as 8, 64K, 1.5M or 2G", text);
  }
  return static_cast<size_t>(value * unit);
}

Result<Options> ParseOptions(int argc, char** argv) {
  AXCCL_ASSIGN_OR_RETURN(const command_line::Words words, command_line::Split({argv + 1, argv + argc}, kOptions));
  Options options;
  for (const Word& word : words.words) {
    if (!word.is_option())
      return MakeStatus(Code::kInvalidArgument, "'%s' is not an option; --help lists them", word.text.c_str());
    AXCCL_RETURN_IF_ERROR(ParseOne(word, &options));
  }
  options.help = words.help;
  if (!options.help) AXCCL_RETURN_IF_ERROR(CheckTogether(options));
  return options;
}

std::string UsageText(const std::string& program) {
  return "USAGE: " + program + R"(
    [-t,--nthreads <threads per process>] (1)
    [-g,--ngpus <ranks per thread>] (1)
    [-b,--minbytes <min size in bytes>] (32M)
    [-e,--maxbytes <max size in bytes>] (32M)
    [-i,--stepbytes <increment size>] (1M)
    [-f,--stepfactor <increment factor>] (off)
    [-n,--iters <iteration count>] (20)
    [-m,--agg_iters <operations per group>] (1)
    [-w,--warmup_iters <warmup iteration count>] (1)
    [-N,--run_cycles <cycle count, 0=endless>] (1)
    [-p,--parallel_init <0/1> every thread initializes its own ranks] (0)
    [-c,--check <check iteration count>] (1)
    [-o,--op <sum/prod/min/max/avg/mulsum/all>] (sum)
    [-d,--datatype <)" +
         DataTypeNames() + R"(/all>] (float)
    [-r,--root <root, -1=every rank>] (0)
    [-z,--blocking <0/1/2/3> 1=wait and barrier after each operation, 2=wait only, 3=wait and barrier after each
        iteration, barrier not counted] (0)
    [-y,--stream_null <0/1>] (0)
    [-T,--timeout <seconds> end the run when one wait takes longer] (0=never)
    [-G,--cudagraph <graph launches>] (0; host ranks refuse others)
    [-C,--report_cputime <0/1> report the time to enqueue] (0)
    [-S,--report_timestamps <0/1>] (0)
    [-J,--output_file <file> also write JSON; an existing file is kept and a number appended to the name]
    [-a,--average <0/1/2/3> reported time <0=RANK0/1=AVG/2=MIN/3=MAX>] (1)
    [-R,--local_register <0/1/2> register buffers: 1 local, 2 window] (0)
    [-x,--cta_policy <0/1/2> passed on in the communicator's config; host ranks ignore it]
    [-D,--device_implementation <number>] (0; host ranks refuse others)
    [-V,--device_cta_count <1..128>] (16; no effect without -D)
    [-M,--memory <0/1> report memory per rank and time of initialization] (0)
    [-u,--unalign <elements> misalign the buffers] (0)
    [-I,--per_iter_timing <0/1> time every iteration; waits after each] (0)
    [-K,--per_iter_skip <count> leave leading samples out of the -I summary] (0)
    [-h,--help] [--version]
  and beyond nccl-tests:
    [--ranks <N> run N processes on this machine] (2, unless -t, -g or a launcher's variables say otherwise)
    [--rank <R> with --ranks: be process R of N, of which the others are started elsewhere; they meet at NCCL_COMM_ID]
    [--malloc use plain aligned heap memory instead of ncclMemAlloc]
  and for AxCCL's calls on views, which any of these asks for:
    [--shape <A,B,..> sizes of the input of a rank, instead of -b and -e] (one dimension, of the sizes of -b and -e)
    [--list <N or AxB,C,..> several operands a call: the first N parameters of transformer blocks of width 128, or
        these shapes; instead of --shape] (one operand)
    [--dim <D> dimension of all_gather, reduce_scatter, gather and scatter; negative ones count from the end] (0)
    [--split-dim <D>] [--concat-dim <D>] dimensions of alltoall (0)
    [--strides <S0,S1,..> of the input, in elements; 0 and negative ones, too] (row-major without gaps)
    [--out-strides <S0,S1,..> of the output] (row-major without gaps)
    [--groups <[[R,..],..]> lists of ranks such as [[0,1],[2,3]]: each does the operation on its own, all at the same
        time; a rank's place in its list is what the operation knows it by, and what -r counts] (one of all ranks)

Sizes take K, M, G (binary). Ranks = processes x threads x ranks per thread. Under torchrun, mpirun or srun every
process joins by the launcher's variables. NCCL_TESTS_DEVICE, NCCL_TESTS_SPLIT, NCCL_TESTS_SPLIT_MASK and
NCCL_TESTS_MIN_BW mean what they mean for nccl-tests. Exit status: 0 fine, 1 failed or wrong data, 2 usage,
3 timeout.
)";
}

}  // namespace axccl::perf
