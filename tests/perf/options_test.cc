// The command line, NCCL_TESTS_SPLIT, and processes that are started by hand.

#include "perf/common/options.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "perf/common/launch.h"
#include "perf/common/split.h"
#include "perf/common/types.h"

namespace axccl::perf {
namespace {

Result<Options> Parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "tool");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  return ParseOptions(static_cast<int>(arguments.size()), argv.data());
}

std::string ErrorOf(std::vector<std::string> arguments) {
  Result<Options> options = Parse(std::move(arguments));
  return options.ok() ? "" : std::string(options.status().message());
}

TEST(Options, DefaultsAreThoseOfNcclTests) {
  Options o = Parse({}).value();
  EXPECT_EQ(o.threads, 1);
  EXPECT_EQ(o.ranks_per_thread, 1);
  EXPECT_EQ(o.min_bytes, 32u << 20);
  EXPECT_EQ(o.max_bytes, 32u << 20);
  EXPECT_EQ(o.step_bytes, 1u << 20);
  EXPECT_EQ(o.step_factor, 1u);
  EXPECT_EQ(o.iterations, 20);
  EXPECT_EQ(o.aggregate, 1);
  EXPECT_EQ(o.warmup, 1);
  EXPECT_EQ(o.cycles, 1);
  EXPECT_EQ(o.checks, 1);
  EXPECT_EQ(o.op, kSum);
  EXPECT_EQ(o.type, ncclFloat32);
  EXPECT_EQ(o.root, 0);
  EXPECT_EQ(o.blocking, Blocking::kNone);
  EXPECT_EQ(o.average, Average::kMean);
  EXPECT_EQ(o.timeout_seconds, 0);
  EXPECT_EQ(o.ranks, 0);
  EXPECT_FALSE(o.layout_given);
  EXPECT_FALSE(o.malloc_buffers);
}

TEST(Options, LettersAndNamesMeanTheSame) {
  const char* pairs[][3] = {{"-t", "--nthreads", "3"},
                            {"-g", "--ngpus", "2"},
                            {"-b", "--minbytes", "8"},
                            {"-e", "--maxbytes", "64M"},
                            {"-i", "--stepbytes", "4K"},
                            {"-f", "--stepfactor", "4"},
                            {"-n", "--iters", "7"},
                            {"-m", "--agg_iters", "2"},
                            {"-w", "--warmup_iters", "0"},
                            {"-N", "--run_cycles", "0"},
                            {"-p", "--parallel_init", "1"},
                            {"-c", "--check", "2"},
                            {"-o", "--op", "mulsum"},
                            {"-d", "--datatype", "f8e5m2"},
                            {"-r", "--root", "-1"},
                            {"-z", "--blocking", "3"},
                            {"-y", "--stream_null", "1"},
                            {"-T", "--timeout", "9"},
                            {"-G", "--cudagraph", "0"},
                            {"-C", "--report_cputime", "1"},
                            {"-S", "--report_timestamps", "1"},
                            {"-J", "--output_file", "x.json"},
                            {"-a", "--average", "3"},
                            {"-R", "--local_register", "2"},
                            {"-x", "--cta_policy", "2"},
                            {"-D", "--device_implementation", "0"},
                            {"-V", "--device_cta_count", "8"},
                            {"-M", "--memory", "1"},
                            {"-u", "--unalign", "1"},
                            {"-I", "--per_iter_timing", "1"}};
  for (auto& [letter, name, value] : pairs) {
    std::vector<std::string> sizes = {"-b", "4", "-e", "128M"};
    auto with = [&](const char* option) {
      std::vector<std::string> all = sizes;
      all.insert(all.end(), {option, value});
      return Parse(all);
    };
    Result<Options> by_letter = with(letter);
    Result<Options> by_name = with(name);
    ASSERT_TRUE(by_letter.ok()) << letter << ": " << by_letter.status().message();
    ASSERT_TRUE(by_name.ok()) << name << ": " << by_name.status().message();
    auto key = [](const Options& o) {
      return std::make_tuple(o.threads, o.ranks_per_thread, o.min_bytes, o.max_bytes, o.step_bytes, o.step_factor,
                             o.iterations, o.aggregate, o.warmup, o.cycles, o.parallel_init, o.checks, o.op, o.type,
                             o.root, o.blocking, o.null_stream, o.timeout_seconds, o.report_cpu_time,
                             o.report_timestamps, o.json_path, o.average, o.registration, o.cta_policy, o.memory_report,
                             o.unalign, o.per_iteration);
    };
    EXPECT_EQ(key(by_letter.value()), key(by_name.value())) << letter;
    bool without_effect = std::string("-G -D -V").find(letter) != std::string::npos;
    EXPECT_EQ(key(by_letter.value()) == key(Parse(sizes).value()), without_effect) << letter << " " << value;
  }
}

TEST(Options, ValuesLandInTheirFields) {
  Options o = Parse({"-t4", "-g", "2", "-o",      "all", "-d",       "all", "-K", "2",  "-I",
                     "1",   "-n", "5", "--ranks", "6",   "--malloc", "-R",  "1",  "-z", "2"})
                  .value();
  EXPECT_EQ(o.threads, 4);
  EXPECT_EQ(o.ranks_per_thread, 2);
  EXPECT_TRUE(o.layout_given);
  EXPECT_EQ(o.op, kAllOps);
  EXPECT_EQ(o.type, kAllTypes);
  EXPECT_EQ(o.per_iteration_skip, 2);
  EXPECT_EQ(o.ranks, 6);
  EXPECT_TRUE(o.malloc_buffers);
  EXPECT_EQ(o.registration, Registration::kLocal);
  EXPECT_EQ(o.blocking, Blocking::kInner);
  EXPECT_EQ(Parse({"-o", "avg"}).value().op, kAvg);
  EXPECT_EQ(Parse({"-d", "bfloat16"}).value().type, ncclBfloat16);
}

TEST(Options, ErrorsNameOptionAndValue) {
  const std::vector<std::string> bad[] = {{"-n", "abc"},    {"-n", "0"},        {"-n", "-3"},  {"-t", "0"},
                                          {"-b", "12Q"},    {"-b", "-1"},       {"-e", "nan"}, {"-d", "real"},
                                          {"-o", "xor"},    {"-z", "4"},        {"-a", "4"},   {"-r", "-2"},
                                          {"--ranks", "0"}, {"--ranks", "2.5"}, {"-x", "3"}};
  for (const auto& arguments : bad) {
    std::string error = ErrorOf(arguments);
    EXPECT_NE(error.find(arguments[0]), std::string::npos) << arguments[0] << ": " << error;
    EXPECT_NE(error.find("'" + arguments[1] + "'"), std::string::npos) << error;
  }
}

TEST(Options, OptionsForGpusOnlyAreRefusedWithAReason) {
  EXPECT_NE(ErrorOf({"-G", "2"}).find("graphs"), std::string::npos);
  EXPECT_NE(ErrorOf({"-D", "1"}).find("device kernels"), std::string::npos);
}

TEST(Options, ContradictionsAreErrors) {
  EXPECT_NE(ErrorOf({"-b", "2M", "-e", "1M"}).find("2097152 > 1048576"), std::string::npos);
  EXPECT_NE(ErrorOf({"-b", "0", "-f", "2"}), "");
  EXPECT_NE(ErrorOf({"-b", "8", "-i", "0"}), "");
  EXPECT_NE(ErrorOf({"-K", "1"}), "");
  EXPECT_NE(ErrorOf({"--frobnicate"}).find("--frobnicate"), std::string::npos);
  EXPECT_NE(ErrorOf({"-n"}).find("value"), std::string::npos);
  EXPECT_NE(ErrorOf({"stray"}).find("stray"), std::string::npos);
}

TEST(Options, SizesAreBinary) {
  EXPECT_EQ(ParseSize("8").value(), 8u);
  EXPECT_EQ(ParseSize("64K").value(), 65536u);
  EXPECT_EQ(ParseSize("1.5m").value(), 1572864u);
  EXPECT_EQ(ParseSize("2G").value(), 2147483648u);
  for (const char* bad : {"", "K", "8KB", "1e300", "-8", "0x"}) EXPECT_FALSE(ParseSize(bad).ok()) << bad;
}

TEST(Options, HelpListsEveryOption) {
  EXPECT_TRUE(Parse({"-h"}).value().help);
  EXPECT_TRUE(Parse({"--help"}).value().help);
  std::string usage = UsageText("tool");
  for (const char* option :
       {"-t,",    "-g,",   "-b,",         "-e,",          "-i,",       "-f,",           "-n,",
        "-m,",    "-w,",   "-N,",         "-p,",          "-c,",       "-o,",           "-d,",
        "-r,",    "-z,",   "-y,",         "-T,",          "-G,",       "-C,",           "-S,",
        "-J,",    "-a,",   "-R,",         "-x,",          "-D,",       "-V,",           "-M,",
        "-u,",    "-I,",   "-K,",         "-h,",          "--ranks",   "--malloc",      "--shape",
        "--list", "--dim", "--split-dim", "--concat-dim", "--strides", "--out-strides", "--groups"}) {
    EXPECT_NE(usage.find(std::string("[") + option), std::string::npos) << option;
  }
}

TEST(ViewOptions, ValuesLandInTheirFields) {
  ViewOptions v =
      Parse({"--shape", "64,512", "--dim", "-1", "--strides", "1,-64", "--out-strides", "1024,2"}).value().views;
  EXPECT_TRUE(v.given);
  EXPECT_EQ(v.shapes, (std::vector<Shape>{{64, 512}}));
  EXPECT_EQ(v.dim, -1);
  EXPECT_EQ(v.strides, (std::vector<int64_t>{1, -64}));
  EXPECT_EQ(v.out_strides, (std::vector<int64_t>{1024, 2}));
  v = Parse({"--split-dim", "2", "--concat-dim=1", "--list", "4x6,8,3x1x2"}).value().views;
  EXPECT_EQ(v.SplitDim(), 2);
  EXPECT_EQ(v.ConcatDim(), 1);
  EXPECT_EQ(v.shapes, (std::vector<Shape>{{4, 6}, {8}, {3, 1, 2}}));
  EXPECT_TRUE(v.is_list);
  v = Parse({"--list", "14"}).value().views;
  ASSERT_EQ(v.shapes.size(), 14u);
  EXPECT_EQ(v.shapes[2], (Shape{384, 128}));
  EXPECT_EQ(v.shapes[13], v.shapes[1]);
  v = Parse({"--groups", "[[0,2], [3, 1]]"}).value().views;
  EXPECT_TRUE(v.given);
  EXPECT_EQ(v.groups, (std::vector<std::vector<int64_t>>{{0, 2}, {3, 1}}));
  EXPECT_EQ(v.RanksTogether(4), 2);
  EXPECT_EQ(ViewText(v), "--groups [[0,2],[3,1]]");
  EXPECT_FALSE(Parse({"-b", "8"}).value().views.given);
}

TEST(ViewOptions, ErrorsNameOptionAndValue) {
  const std::vector<std::string> bad[] = {{"--shape", "4,x"},
                                          {"--shape", ""},
                                          {"--shape", "4,,4"},
                                          {"--shape", "-1"},
                                          {"--shape", "1,2,3,4,5,6,7,8,9"},
                                          {"--list", "0"},
                                          {"--list", "4x,3"},
                                          {"--dim", "8"},
                                          {"--split-dim", "one"},
                                          {"--strides", "1;2"},
                                          {"--groups", ""},
                                          {"--groups", "[]"},
                                          {"--groups", "[[]]"},
                                          {"--groups", "[0,1]"},
                                          {"--groups", "[[0,1],[2,3]"},
                                          {"--groups", "[[0,1]]]"},
                                          {"--groups", "[[0,-1]]"},
                                          {"--groups", "[[0,one]]"},
                                          {"--groups", "[[0,1],]"},
                                          {"--groups", "[[0,99999999999999999999]]"}};
  for (const auto& arguments : bad) {
    std::string error = ErrorOf(arguments);
    EXPECT_NE(error.find(arguments[0]), std::string::npos) << arguments[0] << ": " << error;
    EXPECT_NE(error.find("'" + arguments[1] + "'"), std::string::npos) << error;
  }
  EXPECT_NE(ErrorOf({"--shape", "4", "--list", "3"}).find("give one of them"), std::string::npos);
  EXPECT_NE(ErrorOf({"--shape", "4", "-b", "8"}).find("leave -b"), std::string::npos);
}

TEST(ViewOptions, ContradictionsAreRefusedWithARemedy) {
  auto refusal = [](ViewKind kind, std::vector<std::string> arguments) {
    return RefuseViews("tool", kind, Parse(std::move(arguments)).value().views, 3);
  };
  struct Case {
    ViewKind kind;
    std::vector<std::string> arguments;
    const char* words;  // "" = fits
  };
  const Case cases[] = {
      {ViewKind::kNone, {}, ""},
      {ViewKind::kNone, {"--shape", "4,4"}, "no form on views"},
      {ViewKind::kSame, {"--shape", "4,4", "--dim", "0"}, "leave it out"},
      {ViewKind::kConcat, {"--shape", "4,4", "--dim", "-2"}, ""},
      {ViewKind::kConcat, {"--shape", "4,4", "--dim", "2"}, "option --dim 2: the shape 4,4 has dimensions -2 to 1"},
      {ViewKind::kConcat, {"--list", "4,4x4", "--dim", "1"}, "the shape 4 has"},
      {ViewKind::kConcat, {"--dim", "1"}, "--shape"},
      {ViewKind::kConcat, {"--shape", "4", "--split-dim", "0"}, "use --dim"},
      {ViewKind::kSplit, {"--shape", "4,6", "--dim", "1"}, ""},
      {ViewKind::kSplit, {"--shape", "6,4", "--dim", "1"}, "3 ranks do not divide size 4"},
      {ViewKind::kSplitConcat, {"--shape", "6,4", "--split-dim", "0", "--concat-dim", "1"}, ""},
      {ViewKind::kSplitConcat, {"--shape", "6,4", "--dim", "1"}, "use --split-dim and --concat-dim"},
      {ViewKind::kSame, {"--shape", "4,4", "--strides", "0,1", "--out-strides", "-4,1"}, ""},
      {ViewKind::kSame, {"--shape", "4,4", "--strides", "1"}, "give 2"},
      {ViewKind::kSame, {"--shape", "4,4", "--out-strides", "0,1"}, "other than 0"},
      {ViewKind::kSame, {"--list", "4,4", "--strides", "2"}, "leave it out"},
      {ViewKind::kSame, {"--strides", "2"}, "needs --shape"},
      {ViewKind::kSame, {"--shape", "1000000000,1000000000"}, "smaller sizes"},
      {ViewKind::kSame, {"--groups", "[[2,0,1]]"}, ""},
      {ViewKind::kNone, {"--groups", "[[2,0,1]]"}, "no form on views"},
      {ViewKind::kSplit, {"--shape", "4", "--groups", "[[2],[0],[1]]"}, ""},
      {ViewKind::kSplit, {"--shape", "4", "--groups", "[[2,0,1]]"}, "3 ranks do not divide size 4"},
      {ViewKind::kSame, {"--groups", "[[0,1],[2]]"}, "option --groups [[0,1],[2]]: [2] is not as long as [0,1]; give"},
      {ViewKind::kSame, {"--groups", "[[0,1,3]]"}, "no rank 3, the communicator has 3; name each of the ranks 0 to 2"},
      {ViewKind::kSame, {"--groups", "[[0],[1],[1]]"}, "rank 1 is there twice; name each"},
      {ViewKind::kSame, {"--groups", "[[0,2]]"}, "rank 1 is missing; name each"}};
  for (const Case& c : cases) {
    std::string text = refusal(c.kind, c.arguments);
    EXPECT_EQ(text.empty(), *c.words == '\0') << c.words << ": " << text;
    EXPECT_NE(text.find(c.words), std::string::npos) << text;
  }
}

TEST(Split, FollowsTheRules) {
  EXPECT_EQ(SplitGroup(nullptr, nullptr, 5).value(), 0);
  EXPECT_EQ(SplitGroup("1", "MOD 3", 5).value(), 1);
  EXPECT_EQ(SplitGroup("0x6", nullptr, 5).value(), 4);
  EXPECT_EQ(SplitGroup(nullptr, "MOD 3", 5).value(), 2);
  EXPECT_EQ(SplitGroup(nullptr, "%3", 5).value(), 2);
  EXPECT_EQ(SplitGroup(nullptr, "and 0x4", 5).value(), 4);
  EXPECT_EQ(SplitGroup(nullptr, "& 0b100", 5).value(), 4);
  EXPECT_EQ(SplitGroup(nullptr, "OR 2", 5).value(), 7);
  EXPECT_EQ(SplitGroup(nullptr, "|2", 5).value(), 7);
  EXPECT_EQ(SplitGroup(nullptr, "DIV 4", 5).value(), 1);
  for (const char* bad : {"", "MOD", "XOR 3", "% 0", "/ 0", "MOD 3x"}) {
    EXPECT_FALSE(SplitGroup(nullptr, bad, 5).ok()) << bad;
  }
}

// ---- launchers ----

using Environment = std::map<std::string, std::string>;

TEST(Launcher, ByHandTakesAnAddress) {
  unsetenv("NCCL_COMM_ID");
  Options options;
  options.rank = 1;
  options.ranks = 2;
  EXPECT_FALSE(EnterWorld(options).ok());
  setenv("NCCL_COMM_ID", "192.0.2.1:4711", 1);
  Result<World> world = EnterWorld(options);
  ASSERT_TRUE(world.ok());
  EXPECT_EQ(world.value().process, 1);
  EXPECT_EQ(world.value().processes, 2);
  EXPECT_EQ(world.value().page, nullptr);
  options.rank = 2;
  EXPECT_FALSE(EnterWorld(options).ok());
  unsetenv("NCCL_COMM_ID");
}

}  // namespace
}  // namespace axccl::perf
