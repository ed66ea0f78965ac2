// make, transform and search as a user types them.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "tests/harness/command.h"
#include "tests/harness/folder.h"

namespace axccl::program {
namespace {

using harness::Outcome;

class TrainingCommand : public testing::Test {
 protected:
  static Outcome RunProgram(const std::string& arguments) {
    return harness::RunCommand(std::string("timeout 100 ") + AXCCL_PROGRAM + " " + arguments);
  }
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  harness::Folder folder_;
};

TEST_F(TrainingCommand, FromAModelToARunOnEightRanks) {
  const std::string mlp = Path("mlp.axp"), run = Path("run.axp");
  ASSERT_EQ(RunProgram("make mlp --layers 4 --dim 16 --batch 32 > " + mlp).exit, 0);
  const Outcome transformed = RunProgram("transform " + mlp +
                                         " --data 2 --tensor 2 --pipeline 2 --microbatches 4 --schedule 1f1b --zero 1 "
                                         "--recompute 1 --overlap 1k > " +
                                         run);
  ASSERT_EQ(transformed.exit, 0) << transformed.text;
  EXPECT_EQ(RunProgram("check " + run).text, "right\n");
  EXPECT_EQ(RunProgram("run " + run + " --against reference").text, "equal to reference\n");
  EXPECT_EQ(RunProgram("transform " + mlp + " --local-layer stages --pipeline 4 --microbatches 2 --data 2 | " +
                       std::string(AXCCL_PROGRAM) + " run - --against reference")
                .text,
            "equal to reference\n");
  EXPECT_EQ(RunProgram("make transformer --layers 1 --dim 8 --heads 2 --sequence 4 --batch 4 --type bf16 | " +
                       std::string(AXCCL_PROGRAM) + " transform - --tensor 2 --data 2 --zero 3 | " + AXCCL_PROGRAM +
                       " run - --against reference")
                .text,
            "equal to reference\n");
}

TEST_F(TrainingCommand, SearchPrintsATableAndWritesTheFastest) {
  const std::string mlp = Path("mlp.axp"), best = Path("best.axp");
  ASSERT_EQ(RunProgram("make mlp --layers 4 --dim 64 --batch 32 > " + mlp).exit, 0);
  const Outcome o =
      RunProgram("search " + mlp + " --devices 8 --microbatches 2 --zero 0,3 --recompute 0 --rows 3 --emit " + best);
  EXPECT_EQ(o.exit, 0) << o.text;
  EXPECT_EQ(o.text.rfind("  data tensor stages  micro  zero recompute   time [ms] peak [GB] exposed%  idle%\n", 0), 0u)
      << o.text;
  // Three of four times two, for as many copies, and one way without copies, for each number of stages but eight.
  EXPECT_NE(o.text.find("and 12 more; --rows N shows more\n"), std::string::npos) << o.text;
  EXPECT_NE(o.text.find("left out, 1: transform pipeline: 8 stages, but the program has 4 layers\n"), std::string::npos)
      << o.text;
  EXPECT_EQ(RunProgram("search " + mlp + " --devices 4 --rows 200").text.find("-0.0"), std::string::npos);
  EXPECT_EQ(RunProgram("check " + best).text, "right\n");
  EXPECT_NE(Read("best.axp").find("ranks 8\n"), std::string::npos);
  const Outcome small = RunProgram("search " + mlp + " --devices 2 --memory 1k --emit " + best);
  EXPECT_EQ(small.exit, 1);
  EXPECT_NE(small.text.find("nothing to write"), std::string::npos) << small.text;
  EXPECT_NE(small.text.find("too little memory; the smallest needs"), std::string::npos) << small.text;
  EXPECT_EQ(RunProgram("search " + mlp + " --devices 4 --model distir").exit, 0);
}

TEST_F(TrainingCommand, SearchDrawsTheFastestAsSimulateDoes) {
  const std::string mlp = Path("mlp.axp"), best = Path("best.axp"), fabric = Path("slow.fabric");
  ASSERT_EQ(RunProgram("make mlp --layers 4 --dim 64 --batch 32 > " + mlp).exit, 0);
  std::ofstream(fabric)
      << "axccl-fabric 1\nranks_per_machine 2\nmemory_bytes 1e9\nlaunch_seconds 1e-3\nf64_flops 1e12\n"
         "f32_flops 1e12\nf16_flops 1e12\ninteger_flops 1e12\nelement_flops 1e12\n"
         "memory_bytes_per_second 1e12\nlink_bytes_per_second 1e12\nnic_bytes_per_second 1e12\n"
         "op_seconds 1e-7\nsignal_seconds 1e-7\nmessage_seconds 1e-7\nnetwork_seconds 1e-7\n";
  for (const std::string& model : {std::string(), std::string(" --model distir"), " --fabric " + fabric}) {
    SCOPED_TRACE(model);
    const std::string search = "search " + mlp + " --devices 4 --microbatches 2" + model;
    const Outcome table = RunProgram(search);
    Outcome o = RunProgram(search + " --emit " + best + " --svg " + Path("best.svg"));
    EXPECT_EQ(o.exit, 0);
    EXPECT_EQ(o.text, table.text);
    ASSERT_EQ(RunProgram("simulate " + best + model + " --svg " + Path("simulated.svg")).exit, 0);
    EXPECT_NE(Read("best.svg").find("<title>"), std::string::npos);
    EXPECT_EQ(Read("best.svg"), Read("simulated.svg"));
    o = RunProgram(search + " --svg " + Path("alone.svg"));
    EXPECT_EQ(o.exit, 0) << o.text;
    EXPECT_EQ(Read("alone.svg"), Read("best.svg"));
  }
  const std::string drawn = Read("alone.svg");
  const Outcome small = RunProgram("search " + mlp + " --devices 2 --memory 1k --svg " + Path("alone.svg"));
  EXPECT_EQ(small.exit, 1);
  EXPECT_NE(small.text.find("nothing to write, no way is possible"), std::string::npos) << small.text;
  EXPECT_EQ(Read("alone.svg"), drawn);
  for (const char* option : {"--emit", "--svg"}) {
    const Outcome nowhere = RunProgram("search " + mlp + " --devices 2 " + option + " " + mlp + "/file");
    EXPECT_EQ(nowhere.exit, 2) << option;
    EXPECT_NE(nowhere.text.find("mlp.axp/file"), std::string::npos) << nowhere.text;
  }
}

TEST_F(TrainingCommand, NamesWhatIsWrong) {
  const std::string mlp = Path("mlp.axp");
  ASSERT_EQ(RunProgram("make mlp > " + mlp).exit, 0);
  const struct {
    std::string arguments;
    int exit;
    const char* text;
  } cases[] = {
      {"make", 2, "0 arguments beside options; give a model, mlp or transformer"},
      {"make cnn", 2, "make: no model 'cnn'; there are mlp and transformer"},
      {"make mlp --heads 2", 2, "make mlp has no --heads and no --sequence"},
      {"make mlp --layers 0", 2, "--layers is '0'; give a number of at least 1"},
      {"make mlp --layers 5000", 1, "make mlp: layers is 5000, must be 1 to 4096"},
      {"make mlp --type u8", 1, "make mlp: weights are floats or signed integers, such as f32 and i32"},
      {"make mlp --type f99", 2, "--type is 'f99'; give a type of floats or signed integers, such as f32, bf16, i32"},
      {"make transformer --heads 3 --dim 8", 1, "make transformer: dim is 8, must be a multiple of the heads, 3"},
      {"transform " + mlp + " --rank 2", 2, "--rank: no such option"},
      {"transform " + mlp + " --data", 2, "--data needs a value"},
      {"transform " + mlp + " --schedule gpipe", 2, "--schedule is 'gpipe'; give fifo or 1f1b"},
      {"transform " + mlp + " --local-layer", 2, "--local-layer needs a value"},
      {"transform " + mlp + " --local-layer all", 2, "--local-layer is 'all'; give stages or layers"},
      {"transform " + mlp + " --local-layer stages", 1, "transform local-layer: a loss for each stage, but 1 stages"},
      {"transform " + mlp + " --zero 4", 2, "--zero is '4'; give 0, 1, 2 or 3"},
      {"transform " + mlp + " --overlap x", 2, "--overlap is 'x'; give a number of bytes, such as 25M"},
      {"transform " + mlp + " --tensor 7", 1,
       "transform tensor 7: %6 dot_general: no dimension of the weight %0 can be cut into 7"},
      {"transform " + Path("none.axp"), 2, "none.axp"},
      {"search " + mlp + " --svg", 2, "--svg needs a value"},
      {"search " + mlp + " --zero 4", 2, "--zero is '4'; give stages, such as 0,1,3"},
      {"search " + mlp + " --model distir --fabric x", 2, "--fabric and --model exclude each other"},
      {"search " + mlp + " --devices 2000000", 1, "search: 2000000 devices, must be 1 to 1048576"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.arguments);
    const Outcome o = RunProgram(c.arguments);
    EXPECT_EQ(o.exit, c.exit);
    EXPECT_NE(o.text.find(c.text), std::string::npos) << o.text;
  }
}

}  // namespace
}  // namespace axccl::program
