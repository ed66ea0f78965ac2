// Repeated use: memory, descriptors, threads and mappings stay flat over init/operate/destroy cycles, hundreds of
// communicators exist at once, and nothing is left in /dev/shm.
#include <dirent.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/harness/case_runner.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Call;
using harness::CaseRunner;
using harness::Clique;
using harness::Cuda;
using harness::Fold;
using harness::FullTests;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Seed;

std::set<std::string> Entries(const char* directory) {
  std::set<std::string> names;
  DIR* stream = opendir(directory);
  if (stream == nullptr) return names;
  while (const dirent* entry = readdir(stream)) names.insert(entry->d_name);
  closedir(stream);
  return names;
}

size_t Lines(const char* path) {
  size_t lines = 0;
  FILE* file = std::fopen(path, "r");
  if (file == nullptr) return 0;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) lines += c == '\n' ? 1 : 0;
  std::fclose(file);
  return lines;
}

size_t ResidentBytes() {
  size_t size = 0;
  size_t resident = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  const int fields = std::fscanf(file, "%zu %zu", &size, &resident);
  std::fclose(file);
  return fields == 2 ? resident * static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

// The resources of a process.
struct Holdings {
  size_t descriptors = Entries("/proc/self/fd").size();
  size_t threads = Entries("/proc/self/task").size();
  size_t mappings = Lines("/proc/self/maps");
  size_t resident = ResidentBytes();
};

// A separate thread closes the rendezvous' sockets after the communicator exists: a descriptor or a thread counts as
// left behind if it is still there after AllowedNs. The caller checks the bounds.
Holdings WhenSettled(size_t descriptors, size_t threads) {
  const uint64_t give_up = harness::NowNs() + harness::AllowedNs(1000);
  Holdings now;
  while ((now.descriptors > descriptors || now.threads > threads) && harness::NowNs() < give_up) {
    harness::LookLater();
    now = Holdings();
  }
  return now;
}

void Cycle(RankContext& context, int i) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  CaseRunner runner(context, clique, size_t{1} << 17);
  const uint64_t seed = Seed() + static_cast<uint64_t>(i);
  ASSERT_TRUE(runner.Enqueue({Call::kAllReduce, ncclFloat32, Fold::kSum, 500, 0, seed}, {}));
  ASSERT_TRUE(runner.Enqueue({Call::kAllGather, ncclInt8, Fold::kSum, 31, 0, seed}, {}));
  ASSERT_TRUE(runner.Finish());
}

class SoakTest : public testing::TestWithParam<Layout> {};

TEST_P(SoakTest, CyclesLeaveNothingBehind) {
  const int cycles = FullTests() ? 10000 : 300;
  RunOptions options;
  options.deadline = std::chrono::seconds(FullTests() ? 1800 : 50);
  RunRanks(
      GetParam(),
      [cycles](RankContext& context) {
        // With several arenas, the resident memory would depend on which thread gets which.
        mallopt(M_ARENA_MAX, 1);
        Holdings before;
        for (int i = 0; i < cycles; ++i) {
          ASSERT_NO_FATAL_FAILURE(Cycle(context, i));
          ASSERT_FALSE(context.AnyFailed());
          // Caches and pools fill up first; from then on everything is flat.
          if (i == cycles / 3) before = Holdings();
        }
        ASSERT_TRUE(context.Barrier());
        const Holdings after = WhenSettled(before.descriptors, before.threads);
        if (context.rank() == 0) {
          std::printf(
              "%d cycles, from the %dth on: descriptors %zu -> %zu, threads %zu -> %zu, mappings %zu -> %zu, resident "
              "%zu -> %zu KiB\n",
              cycles, cycles / 3, before.descriptors, after.descriptors, before.threads, after.threads, before.mappings,
              after.mappings, before.resident >> 10, after.resident >> 10);
          std::fflush(stdout);
        }
        // Threads of one process also count each other's streams and sockets.
        const size_t slack = context.layout().threads > 1 ? 4 : 0;
        EXPECT_LE(after.descriptors, before.descriptors + slack);
        EXPECT_LE(after.threads, before.threads + slack);
        EXPECT_LE(after.mappings, before.mappings + 8);
        if (harness::TimeScale() == 1) {
          EXPECT_LE(after.resident, before.resident + (size_t{1} << 20));
        }
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(Layouts, SoakTest,
                         testing::Values(harness::Processes(2), harness::Threads(3), harness::OneThread(2)),
                         [](const auto& info) { return info.param.Text(); });

TEST(Soak, HundredsOfCommunicatorsAtOnce) {
  RunOptions options;
  options.deadline = std::chrono::seconds(50);
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        constexpr int kComms = 256;
        Clique first;
        ASSERT_TRUE(first.Init(context));
        std::vector<ncclComm_t> comms(kComms);
        for (int i = 0; i < kComms; ++i) {
          ASSERT_TRUE(context.Step("communicator %d", i));
          if (i % 4 == 0) {
            ncclUniqueId id;
            ASSERT_TRUE(harness::ShareUniqueId(context, &id));
            ASSERT_OK(ncclCommInitRank(&comms[i], 2, id, context.rank()));
          } else {
            ASSERT_OK(ncclCommSplit(first.comm(), 0, context.rank(), &comms[i], nullptr));
          }
        }
        std::vector<int64_t> data(kComms, context.rank() + 1);
        for (int i = 0; i < kComms; ++i) {
          const int k = (i * 37) % kComms;
          ASSERT_OK(ncclAllReduce(&data[k], &data[k], 1, ncclInt64, ncclSum, comms[k], Cuda(first.stream())));
        }
        ASSERT_TRUE(first.Synchronize());
        for (const int64_t value : data) ASSERT_EQ(value, 3);
        for (const ncclComm_t comm : comms) ASSERT_OK(ncclCommDestroy(comm));
      },
      options);
}

TEST(Soak, NothingInDevShm) {
  const std::set<std::string> before = Entries("/dev/shm");
  RunRanks(harness::Processes(3), [&](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    CaseRunner runner(context, clique, size_t{8} << 20);
    ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclFloat32, Fold::kSum, 300000, 0, Seed()}, {}));
    for (const std::string& name : Entries("/dev/shm")) EXPECT_TRUE(before.count(name) == 1) << name;
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 2) context.Die();
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
  for (const std::string& name : Entries("/dev/shm")) EXPECT_TRUE(before.count(name) == 1) << name;
}

TEST(Soak, DescriptorsAreNotInherited) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    const std::set<std::string> before = Entries("/proc/self/fd");
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    CaseRunner runner(context, clique, size_t{1} << 20);
    ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclFloat32, Fold::kSum, 3000, 0, Seed()}, {}));
    for (const std::string& name : Entries("/proc/self/fd")) {
      if (before.count(name) == 1) continue;
      const std::string path = "/proc/self/fdinfo/" + name;
      FILE* file = std::fopen(path.c_str(), "r");
      if (file == nullptr) continue;  // the directory's own
      char line[256];
      unsigned flags = 0;
      while (std::fgets(line, sizeof line, file) != nullptr) std::sscanf(line, "flags: %o", &flags);
      std::fclose(file);
      EXPECT_NE(flags & 02000000u, 0u) << "descriptor " << name << " is not O_CLOEXEC";
    }
  });
}

}  // namespace
}  // namespace axccl::tests
