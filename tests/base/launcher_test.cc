// What the variables of launchers mean.
#include "src/base/launcher.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>

namespace axccl {
namespace {

using Environment = std::map<std::string, std::string>;

Result<std::optional<Launched>> Detect(const Environment& environment) {
  return DetectLauncher([&](const char* name) {
    auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launcher, NoneWithoutItsVariables) {
  EXPECT_FALSE(Detect({}).value().has_value());
  EXPECT_FALSE(Detect({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).value().has_value());
  // The environment of an sbatch script that srun did not start.
  EXPECT_FALSE(Detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).value().has_value());
}

TEST(Launcher, Torchrun) {
  Launched l = *Detect({{"RANK", "3"},
                        {"WORLD_SIZE", "8"},
                        {"LOCAL_WORLD_SIZE", "4"},
                        {"MASTER_ADDR", "node0"},
                        {"MASTER_PORT", "29500"},
                        {"TORCHELASTIC_RUN_ID", "run7"}})
                    .value();
  EXPECT_EQ(l.launcher, "torchrun");
  EXPECT_EQ(l.rank, 3);
  EXPECT_EQ(l.size, 8);
  EXPECT_EQ(l.local_size, 4);
  EXPECT_EQ(l.coordinator, "node0:29501");
  EXPECT_NE(l.key.find("run7"), std::string::npos);
}

TEST(Launcher, OpenMpiSrunAndPmi) {
  Launched mpi = *Detect({{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"OMPI_MCA_ess_base_jobid", "77"}})
                      .value();
  EXPECT_EQ(mpi.launcher, "Open MPI");
  EXPECT_EQ(mpi.local_size, 2);
  EXPECT_NE(mpi.key.find("77"), std::string::npos);
  Launched srun = *Detect({{"SLURM_STEP_ID", "0"},
                           {"SLURM_JOB_ID", "5"},
                           {"SLURM_PROCID", "2"},
                           {"SLURM_STEP_NUM_TASKS", "3"},
                           {"SLURM_STEP_NUM_NODES", "1"},
                           {"PMI_RANK", "2"},
                           {"PMI_SIZE", "3"}})
                       .value();
  EXPECT_EQ(srun.launcher, "srun");
  EXPECT_EQ(srun.size, 3);
  EXPECT_EQ(srun.local_size, 3);
  Launched pmi = *Detect({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}).value();
  EXPECT_EQ(pmi.launcher, "PMI");
  EXPECT_EQ(pmi.size, 4);
}

TEST(Launcher, SrunOnSeveralMachines) {
  Environment variables = {{"SLURM_STEP_ID", "3"},
                           {"SLURM_JOB_ID", "1234"},
                           {"SLURM_PROCID", "5"},
                           {"SLURM_STEP_NUM_TASKS", "6"},
                           {"SLURM_STEP_NUM_NODES", "4"},
                           {"SLURM_NODEID", "3"},
                           {"SLURM_STEP_TASKS_PER_NODE", "2,1(x2),2"},
                           {"SLURM_STEP_NODELIST", "gpu[07-09,12]"}};
  Launched srun = *Detect(variables).value();
  EXPECT_EQ(srun.local_size, 2);
  EXPECT_EQ(srun.coordinator.substr(0, 6), "gpu07:");
  const std::string port = srun.coordinator.substr(6);
  variables["SLURM_NODEID"] = "1";
  variables["SLURM_PROCID"] = "2";
  EXPECT_EQ(Detect(variables).value()->local_size, 1);
  EXPECT_EQ(Detect(variables).value()->coordinator, srun.coordinator);
  variables["SLURM_STEP_ID"] = "4";
  EXPECT_NE(Detect(variables).value()->coordinator, srun.coordinator) << "two steps at the same time";
  for (const auto& [list, first] : {std::pair{"a,b[1-3]", "a:"},
                                    {"n[1-2]-ib,m", "n1-ib:"},
                                    {"rack[0-1]n[03,5-6]", "rack0n03:"},
                                    {"[12]", "12:"},
                                    {"cut[7-", "cut7:"}}) {
    variables["SLURM_STEP_NODELIST"] = list;
    EXPECT_EQ(Detect(variables).value()->coordinator.substr(0, std::strlen(first)), first);
  }
}

TEST(Launcher, APlaceThatAUserHasSet) {
  const auto place = [](const Environment& environment) {
    return DetectPlace([&](const char* name) {
      auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_FALSE(place({{"RANK", "1"}}).value().has_value());
  const std::pair<const char*, const char*> all[] = {{"RANK", "WORLD_SIZE"},
                                                     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                     {"PMI_RANK", "PMI_SIZE"},
                                                     {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                                     {"SLURM_PROCID", "SLURM_NTASKS"}};
  for (const auto& [rank, size] : all) {
    SCOPED_TRACE(rank);
    const Launched found = *place({{rank, "2"}, {size, "4"}}).value();
    EXPECT_EQ(found.rank, 2);
    EXPECT_EQ(found.size, 4);
    const auto bad = place({{rank, "one"}, {size, "4"}});
    ASSERT_FALSE(bad.ok());
    const std::string text(bad.status().message());
    EXPECT_NE(text.find(std::string(rank) + " is 'one', not a number"), std::string::npos) << text;
    EXPECT_FALSE(place({{rank, "4"}, {size, "4"}}).ok());
  }
  // A launcher's own variables come before those of the batch script around it.
  EXPECT_EQ(place({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}).value()->rank,
            3);
}

TEST(Launcher, NonsenseIsAnError) {
  // The variable that has the value is named, not the one that could have had it.
  const auto bad = Detect({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "many"}});
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.status().message().find("SLURM_NTASKS is 'many'"), std::string::npos) << bad.status().message();

  EXPECT_FALSE(Detect({{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}}).ok());
  EXPECT_FALSE(Detect({{"PMI_RANK", "one"}, {"PMI_SIZE", "4"}}).ok());
  EXPECT_FALSE(Detect({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "0"}}).ok());
}

}  // namespace
}  // namespace axccl
