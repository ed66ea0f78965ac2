#include "perf/common/options.h"

#include <getopt.h>

#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "axccl/views.h"
#include "perf/common/types.h"

namespace axccl::perf {
namespace {

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

const option kLongOptions[] = {
    {"nthreads", required_argument, nullptr, 't'},
    {"ngpus", required_argument, nullptr, 'g'},
    {"minbytes", required_argument, nullptr, 'b'},
    {"maxbytes", required_argument, nullptr, 'e'},
    {"stepbytes", required_argument, nullptr, 'i'},
    {"stepfactor", required_argument, nullptr, 'f'},
    {"iters", required_argument, nullptr, 'n'},
    {"agg_iters", required_argument, nullptr, 'm'},
    {"warmup_iters", required_argument, nullptr, 'w'},
    {"run_cycles", required_argument, nullptr, 'N'},
    {"parallel_init", required_argument, nullptr, 'p'},
    {"check", required_argument, nullptr, 'c'},
    {"op", required_argument, nullptr, 'o'},
    {"datatype", required_argument, nullptr, 'd'},
    {"root", required_argument, nullptr, 'r'},
    {"blocking", required_argument, nullptr, 'z'},
    {"stream_null", required_argument, nullptr, 'y'},
    {"timeout", required_argument, nullptr, 'T'},
    {"cudagraph", required_argument, nullptr, 'G'},
    {"report_cputime", required_argument, nullptr, 'C'},
    {"report_timestamps", required_argument, nullptr, 'S'},
    {"output_file", required_argument, nullptr, 'J'},
    {"average", required_argument, nullptr, 'a'},
    {"local_register", required_argument, nullptr, 'R'},
    {"cta_policy", required_argument, nullptr, 'x'},
    {"device_implementation", required_argument, nullptr, 'D'},
    {"device_cta_count", required_argument, nullptr, 'V'},
    {"memory", required_argument, nullptr, 'M'},
    {"unalign", required_argument, nullptr, 'u'},
    {"per_iter_timing", required_argument, nullptr, 'I'},
    {"per_iter_skip", required_argument, nullptr, 'K'},
    {"help", no_argument, nullptr, 'h'},
    {"ranks", required_argument, nullptr, kRanks},
    {"rank", required_argument, nullptr, kRank},
    {"malloc", no_argument, nullptr, kMalloc},
    {"shape", required_argument, nullptr, kShape},
    {"list", required_argument, nullptr, kList},
    {"dim", required_argument, nullptr, kDim},
    {"split-dim", required_argument, nullptr, kSplitDim},
    {"concat-dim", required_argument, nullptr, kConcatDim},
    {"strides", required_argument, nullptr, kStrides},
    {"out-strides", required_argument, nullptr, kOutStrides},
    {"groups", required_argument, nullptr, kGroups},
    {nullptr, 0, nullptr, 0},
};
// The leading ':' makes getopt distinguish a missing argument from an unknown option, and print nothing itself.
const char kShortOptions[] = ":t:g:b:e:i:f:n:m:w:N:p:c:o:d:r:z:y:T:hG:C:S:J:a:R:x:D:V:M:u:I:K:";

Status BadValue(const std::string& option, const char* value, const std::string& expected) {
  return MakeStatus(Code::kInvalidArgument, "option %s: '%s' is not %s", option.c_str(), value, expected.c_str());
}

std::string OptionName(int letter) {
  for (const option* o = kLongOptions; o->name; ++o) {
    if (o->val != letter) continue;
    std::string name = "--";
    name += o->name;
    if (letter >= 256) return name;
    return std::string{'-', static_cast<char>(letter)} + " (" + name + ")";
  }
  return "?";
}

Result<long> ParseNumber(int letter, long lowest, long highest) {
  errno = 0;
  char* end = nullptr;
  long value = std::strtol(optarg, &end, 0);
  if (end == optarg || *end != '\0' || errno != 0 || value < lowest || value > highest) {
    return BadValue(OptionName(letter), optarg,
                    "a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest));
  }
  return value;
}

// Stores an integer option in a field of any integer, bool or enum type.
template <class T>
Status Store(int letter, long lowest, long highest, T* field) {
  AXCCL_ASSIGN_OR_RETURN(long value, ParseNumber(letter, lowest, highest));
  *field = static_cast<T>(value);
  return Status();
}

Status StoreSize(int letter, size_t* field) {
  Result<size_t> size = ParseSize(optarg);
  if (!size.ok()) return BadValue(OptionName(letter), optarg, "a size such as 8, 64K, 1.5M or 2G");
  *field = size.value();
  return Status();
}

// For options about features of GPUs: 0 requests nothing and is accepted.
Status RefuseUnlessZero(int letter, const char* what) {
  AXCCL_ASSIGN_OR_RETURN(long value, ParseNumber(letter, 0, INT_MAX));
  if (value == 0) return Status();
  return MakeStatus(Code::kInvalidUsage, "option %s %ld: host ranks have no %s; leave the option out or pass 0",
                    OptionName(letter).c_str(), value, what);
}

Status StoreName(int letter, int (*lookup)(const char*), int all, int* field) {
  int found = std::strcmp(optarg, "all") == 0 ? all : lookup(optarg);
  if (found < 0 && std::strcmp(optarg, "all") != 0) {
    return BadValue(
        OptionName(letter), optarg,
        letter == 'o' ? "sum, prod, max, min, avg, mulsum or all" : "one of " + DataTypeNames() + " or all");
  }
  *field = found;
  return Status();
}

// Stores the result of `parse`, or returns an error with what was expected.
template <class T, class Parse>
Status StoreParsed(int letter, const char* expected, Parse parse, T* field) {
  Result<T> parsed = parse(optarg);
  if (!parsed.ok()) return BadValue(OptionName(letter), optarg, expected);
  *field = std::move(parsed).value();
  return Status();
}

Status StoreDim(int letter, std::optional<int>* field) {
  int dim = 0;
  AXCCL_RETURN_IF_ERROR(Store(letter, -AXCCL_MAX_DIMS, AXCCL_MAX_DIMS - 1, &dim));
  *field = dim;
  return Status();
}

// Either --shape or --list may describe the operands.
Status RefuseSecondShape(int letter, const ViewOptions& views) {
  if (views.shapes.empty()) return Status();
  return MakeStatus(Code::kInvalidArgument, "option %s '%s': there is a --shape or --list already; give one of them",
                    OptionName(letter).c_str(), optarg);
}

Status StoreShape(int letter, ViewOptions* views) {
  Shape shape;
  AXCCL_RETURN_IF_ERROR(RefuseSecondShape(letter, *views));
  AXCCL_RETURN_IF_ERROR(StoreParsed(
      letter, "a shape such as 64,512: sizes of at most 8 dimensions",
      [](const char* text) { return ParseShape(text, ','); }, &shape));
  views->shapes = {shape};
  return Status();
}

Status ParseViewOption(int letter, ViewOptions* views) {
  const char* strides = "a list of strides in elements such as 1,64, one for each dimension";
  views->given = true;
  switch (letter) {
    case kShape:
      return StoreShape(letter, views);
    case kList:
      AXCCL_RETURN_IF_ERROR(RefuseSecondShape(letter, *views));
      views->is_list = true;
      return StoreParsed(letter, "a number of operands such as 200, or shapes such as 128x64,64,256x128", ParseList,
                         &views->shapes);
    case kDim:
      return StoreDim(letter, &views->dim);
    case kSplitDim:
      return StoreDim(letter, &views->split_dim);
    case kConcatDim:
      return StoreDim(letter, &views->concat_dim);
    case kStrides:
      return StoreParsed(letter, strides, ParseStrides, &views->strides);
    case kOutStrides:
      return StoreParsed(letter, strides, ParseStrides, &views->out_strides);
    default:
      return StoreParsed(letter, "lists of ranks such as [[0,1],[2,3]]", ParseGroups, &views->groups);
  }
}

Status ParseSizeOption(int letter, Options* o) {
  o->sizes_given = true;
  switch (letter) {
    case 'b':
      return StoreSize(letter, &o->min_bytes);
    case 'e':
      return StoreSize(letter, &o->max_bytes);
    case 'i':
      return StoreSize(letter, &o->step_bytes);
    default:
      return Store(letter, 0, LONG_MAX, &o->step_factor);
  }
}

Status ParseLayoutOption(int letter, Options* o) {
  o->layout_given = true;
  return letter == 't' ? Store(letter, 1, 1024, &o->threads) : Store(letter, 1, 1024, &o->ranks_per_thread);
}

Status ParseOne(int letter, Options* o) {
  switch (letter) {
    case 't':
    case 'g':
      return ParseLayoutOption(letter, o);
    case kRanks:
      return Store(letter, 1, 1024, &o->ranks);
    case kRank:
      return Store(letter, 0, 1023, &o->rank);
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
      return ParseViewOption(letter, &o->views);
    case 'b':
    case 'e':
    case 'i':
    case 'f':
      return ParseSizeOption(letter, o);
    case 'n':
      return Store(letter, 1, INT_MAX, &o->iterations);
    case 'm':
      return Store(letter, 1, INT_MAX, &o->aggregate);
    case 'w':
      return Store(letter, 0, INT_MAX, &o->warmup);
    case 'N':
      return Store(letter, 0, INT_MAX, &o->cycles);
    case 'p':
      return Store(letter, 0, 1, &o->parallel_init);
    case 'c':
      return Store(letter, 0, INT_MAX, &o->checks);
    case 'o':
      return StoreName(letter, FindOp, kAllOps, &o->op);
    case 'd':
      return StoreName(letter, FindDataType, kAllTypes, &o->type);
    case 'r':
      return Store(letter, -1, INT_MAX, &o->root);
    case 'z':
      return Store(letter, 0, 3, &o->blocking);
    case 'y':
      return Store(letter, 0, 1, &o->null_stream);
    case 'T':
      return Store(letter, 0, 86400, &o->timeout_seconds);
    case 'G':
      return RefuseUnlessZero(letter, "CUDA graphs");
    case 'C':
      return Store(letter, 0, 1, &o->report_cpu_time);
    case 'S':
      return Store(letter, 0, 1, &o->report_timestamps);
    case 'J':
      o->json_path = optarg;
      return Status();
    case 'a':
      return Store(letter, 0, 3, &o->average);
    case 'R':
      return Store(letter, 0, 2, &o->registration);
    case 'x':
      return Store(letter, 0, 2, &o->cta_policy);
    case 'D':
      return RefuseUnlessZero(letter, "device kernels");
    case 'V': {
      int unused;
      return Store(letter, 1, 128, &unused);
    }  // only shapes device kernels
    case 'M':
      return Store(letter, 0, 1, &o->memory_report);
    case 'u':
      return Store(letter, 0, 1 << 20, &o->unalign);
    case 'I':
      return Store(letter, 0, 1, &o->per_iteration);
    case 'K':
      return Store(letter, 0, INT_MAX, &o->per_iteration_skip);
    default:
      return MakeStatus(Code::kInternalError, "option %d has no meaning", letter);
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
  Options options;
  optind = 0;  // glibc: forget the state of an earlier parse
  for (;;) {
    int letter = getopt_long(argc, argv, kShortOptions, kLongOptions, nullptr);
    if (letter == -1) break;
    if (letter == '?' || letter == ':') {
      return MakeStatus(Code::kInvalidArgument, "%s '%s'; --help lists the options",
                        letter == ':' ? "a value is missing behind" : "invalid option", argv[optind - 1]);
    }
    if (letter == 'h') {
      options.help = true;
      return options;
    }
    AXCCL_RETURN_IF_ERROR(ParseOne(letter, &options));
  }
  if (optind < argc) {
    return MakeStatus(Code::kInvalidArgument, "'%s' is not an option; --help lists them", argv[optind]);
  }
  AXCCL_RETURN_IF_ERROR(CheckTogether(options));
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
    [-h,--help]
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
