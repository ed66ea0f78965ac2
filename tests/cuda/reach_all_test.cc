// Windows of GPU ranks whose kernels reach the shares of all ranks by one address (NCCL's multimem), each rank on a
// device of its own.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "tests/api/device_functions.h"
#include "tests/cuda/device_comm.h"
#include "tests/cuda/window_memory.h"
#include "tests/harness/gpus_here.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::EnterGpu;
using harness::ExpectLastErrorHas;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;

constexpr size_t kUnit = size_t{2} << 20;

// `more`: variables, in addition.
void OnOwnGpus(const Layout& layout, const std::function<void(RankContext&, Clique&)>& body,
               std::vector<std::pair<std::string, std::string>> more = {}) {
  RunOptions options = SmallGpu(layout.nranks());
  options.environment.insert(options.environment.end(), more.begin(), more.end());
  options.environment.emplace_back(harness::kNeedsGpus, std::to_string(layout.nranks()));
  harness::RunRanks(
      layout,
      [&body](RankContext& context) {
        ASSERT_NE(EnterGpu(context.rank()), nullptr);
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        body(context, clique);
        ASSERT_TRUE(context.Barrier());  // no rank frees what others use
        ASSERT_TRUE(clique.Destroy());
      },
      options);
}

// Device memory that holds `words`.
void Store(char* to, const std::vector<uint32_t>& words) {
  for (size_t i = 0; i < words.size(); ++i)
    ASSERT_EQ(EnterGpu()->fill(reinterpret_cast<uint64_t>(to) + i * 4, words[i], 1, nullptr), 0);
  ASSERT_EQ(EnterGpu()->synchronize(nullptr), 0);
}
std::vector<uint32_t> Load(const char* from, size_t words) {
  std::vector<uint32_t> loaded(words);
  EXPECT_EQ(EnterGpu()->copy_to_host(loaded.data(), reinterpret_cast<uint64_t>(from), words * 4), 0);
  return loaded;
}

uint32_t WordOf(int rank, size_t i) {
  return static_cast<uint32_t>(1000 * (rank + 1) * (rank + 1)) + static_cast<uint32_t>(i);
}

// Each rank folds its part of the words at `offset` of the window, for all.
void FoldForAll(RankContext& context, Clique& clique, const DeviceComm& comm, ncclWindow_t window, size_t offset,
                char* own, size_t words) {
  const int n = context.nranks();
  std::vector<uint32_t> mine(words);
  for (size_t i = 0; i < words; ++i) mine[i] = WordOf(context.rank(), i);
  Store(own, mine);
  ASSERT_TRUE(context.Barrier());
  const int part = static_cast<int>(words) / n;
  int first = context.rank() * part;
  int count = context.rank() == n - 1 ? static_cast<int>(words) - first : part;
  const CommKernel kernel("fold_for_all", clique.stream());
  kernel.Launch(comm, {&window, &offset, &first, &count}, 1, 32);
  kernel.Wait();
  ASSERT_TRUE(context.Barrier());
  const std::vector<uint32_t> found = Load(own, words);
  for (size_t i = 0; i < words; ++i) {
    uint32_t sum = 0;
    for (int rank = 0; rank < n; ++rank) sum += WordOf(rank, i);
    ASSERT_EQ(found[i], sum) << i;
  }
  ASSERT_TRUE(context.Barrier());
}

ncclWindow_t Register(ncclComm_t comm, const WindowMemory& memory, size_t offset, size_t bytes,
                      int flags = NCCL_WIN_COLL_SYMMETRIC) {
  ncclWindow_t window = nullptr;
  EXPECT_OK(ncclCommWindowRegister(comm, memory.at(offset), bytes, &window, flags));
  return window;
}

// Where kernels look for all shares of a window (mcOffset4K), from the base.
uint64_t OffsetOf(ncclWindow_t window) {
  uint32_t pages = 0;
  EXPECT_EQ(EnterGpu()->copy_to_host(&pages, reinterpret_cast<uint64_t>(window) + 28, sizeof(pages)), 0);
  return uint64_t{pages} * 4096;
}

// The device has less.
constexpr uint64_t kNowhere = uint64_t{8} << 30;

class ReachAllTest : public testing::TestWithParam<std::tuple<Layout, unsigned>> {};
INSTANTIATE_TEST_SUITE_P(Versions, ReachAllTest,
                         testing::Combine(testing::Values(harness::Processes(3), harness::Threads(2), Layout{2, 2, 1}),
                                          testing::Values(0u, 22907u, 23203u)),
                         [](const auto& info) {
                           return std::get<0>(info.param).Text() + "_" + std::to_string(std::get<1>(info.param));
                         });

// Windows from before the device communicator and after it, of different sizes, that begin anywhere in their memory.
TEST_P(ReachAllTest, KernelsFoldWhatAllRanksHave) {
  const unsigned version = std::get<1>(GetParam());
  OnOwnGpus(std::get<0>(GetParam()), [version](RankContext& context, Clique& clique) {
    const WindowMemory first(kUnit), second(3 * kUnit);
    const size_t bytes = 8192 + 4096 * static_cast<size_t>(context.rank());
    ncclWindow_t before = Register(clique.comm(), first, 4096, bytes);
    DeviceComm comm(version);
    Wishes wishes{};
    wishes.multimem = true;
    wishes.lsa_barriers = 2;
    ASSERT_OK(comm.Create(clique.comm(), wishes));
    const auto base = comm.Get<uint64_t>(static_cast<size_t>(comm.multicast()));
    EXPECT_NE(base, 0u);
    const ncclWindow_t after = Register(clique.comm(), second, 0, second.bytes());
    // Of large memory, another stretch of the same, over the boundary of two pages.
    const ncclWindow_t part = Register(clique.comm(), second, 2 * kUnit - 4096, 8192);
    ASSERT_NO_FATAL_FAILURE(FoldForAll(context, clique, comm, before, 0, first.at(4096), 100));
    ASSERT_NO_FATAL_FAILURE(FoldForAll(context, clique, comm, before, 8000, first.at(4096 + 8000), 48));
    ASSERT_NO_FATAL_FAILURE(FoldForAll(context, clique, comm, after, 2 * kUnit - 40, second.at(2 * kUnit - 40), 60));
    ASSERT_NO_FATAL_FAILURE(FoldForAll(context, clique, comm, part, 4000, second.at(2 * kUnit - 96), 60));
    EXPECT_LT(OffsetOf(part), kNowhere);
    // Only symmetric ones have it.
    const ncclWindow_t plain = Register(clique.comm(), second, 0, 4096, NCCL_WIN_DEFAULT);
    void* none = &clique;
    EXPECT_OK(ncclGetLsaMultimemDevicePointer(plain, 5000, &none));
    EXPECT_EQ(none, nullptr);
    EXPECT_GE(OffsetOf(plain), kNowhere);
    // The host finds the same.
    void *address = nullptr, *other = nullptr;
    ASSERT_OK(ncclGetLsaMultimemDevicePointer(before, 64, &address));
    EXPECT_GT(reinterpret_cast<uint64_t>(address), base);
    ASSERT_OK(ncclGetMultimemDevicePointer(before, 64, reinterpret_cast<void*>(base), &other));
    EXPECT_EQ(address, other);
    EXPECT_EQ(ncclGetLsaMultimemDevicePointer(before, 8192, &address), ncclInvalidArgument);
    ExpectLastErrorHas({"offset is 8192", "rank 0"});
    EXPECT_EQ(ncclGetMultimemDevicePointer(before, 64, reinterpret_cast<void*>(base + 4096), &other),
              ncclInvalidArgument);
    // Where one has gone, another one may be.
    for (int time = 0; time < 3; ++time) {
      ASSERT_OK(ncclCommWindowDeregister(clique.comm(), before));
      before = Register(clique.comm(), first, 8192, bytes);
      ASSERT_NO_FATAL_FAILURE(FoldForAll(context, clique, comm, before, 16, first.at(8192 + 16), 40));
    }
    EXPECT_OK(ncclDevCommDestroy(clique.comm(), comm.bytes));
    EXPECT_OK(ncclCommWindowDeregister(clique.comm(), before));
    for (const ncclWindow_t window : {after, part, plain}) EXPECT_OK(ncclCommWindowDeregister(clique.comm(), window));
  });
}

// A device communicator's own memory, as a barrier of the library of kernels uses it; asked for by the LSA team.
TEST(ReachAll, TheMemoryOfADeviceCommunicatorToo) {
  OnOwnGpus(harness::Processes(2), [](RankContext& context, Clique& clique) {
    DeviceComm comm(23007), without(23007);
    uint32_t buffer = 0;
    void* handle = nullptr;
    Resource resource{nullptr, 4096, 4096, &buffer, 0, 0, nullptr, nullptr};
    TeamWish team{nullptr, ncclTeamLsa(clique.comm()), true, &handle};
    Wishes wishes{};
    wishes.resources = &resource;
    wishes.teams = &team;
    ASSERT_OK(comm.Create(clique.comm(), wishes));
    const auto base = comm.Get<uint64_t>(static_cast<size_t>(comm.multicast()));
    EXPECT_EQ(reinterpret_cast<uint64_t>(handle), base);
    const auto window = reinterpret_cast<ncclWindow_t>(comm.Get<uint64_t>(32));
    void* own = nullptr;
    ASSERT_OK(ncclGetLsaDevicePointer(window, uint64_t{buffer} * 128, context.rank(), &own));
    ASSERT_NO_FATAL_FAILURE(
        FoldForAll(context, clique, comm, window, uint64_t{buffer} * 128, static_cast<char*>(own), 1000));
    ASSERT_OK(without.Create(clique.comm(), {}));
    EXPECT_EQ(without.Get<uint64_t>(static_cast<size_t>(without.multicast())), 0u);
    EXPECT_OK(ncclDevCommDestroy(clique.comm(), comm.bytes));
  });
}

TEST(ReachAll, RanksThatDifferGetErrors) {
  OnOwnGpus(harness::Processes(2), [](RankContext& context, Clique& clique) {
    DeviceComm comm(0);
    Wishes wishes{};
    wishes.multimem = context.rank() == 1;
    wishes.lsa_barriers = 1;
    EXPECT_EQ(comm.Create(clique.comm(), wishes), ncclInvalidUsage);
    ExpectLastErrorHas({"rank 1 asks for multimem and rank 0 does not"});
    TeamWish team{nullptr, {2, 0, 2}, true, nullptr};
    EXPECT_EQ(comm.Create(clique.comm(), {.teams = &team}), ncclInvalidArgument);
    ExpectLastErrorHas({"2 ranks, 2 apart", "ncclTeamLsa"});
    ASSERT_TRUE(context.Barrier());
  });
}

bool HasMultimem(ncclComm_t comm) {
  Properties properties{};
  properties.size = sizeof(properties);
  properties.magic = kMagic;
  properties.version = 23007;
  EXPECT_OK(ncclCommQueryProperties(comm, &properties));
  return properties.multimem;
}

// Windows go without it, and device communicators, unless they ask for it.
TEST(ReachAll, WithoutMulticast) {
  const std::vector<std::pair<std::string, std::string>> settings[] = {
      {{"NCCL_NVLS_ENABLE", "0"}}, {{"SOFTGPU_ARCH", "80"}}, {{"SOFTGPU_BIND", "0"}}};
  for (const auto& setting : settings) {
    const bool fails_late = setting[0].first == "SOFTGPU_BIND";
    OnOwnGpus(
        harness::Processes(2),
        [fails_late](RankContext& context, Clique& clique) {
          EXPECT_EQ(HasMultimem(clique.comm()), fails_late);
          const WindowMemory memory(kUnit);
          const ncclWindow_t window = Register(clique.comm(), memory, 0, kUnit);
          ASSERT_NE(window, nullptr);
          void* address = &clique;
          EXPECT_OK(ncclGetLsaMultimemDevicePointer(window, 0, &address));
          EXPECT_EQ(address, nullptr);
          if (fails_late) {
            EXPECT_GE(OffsetOf(window), kNowhere);
          }
          DeviceComm comm(0);
          EXPECT_EQ(comm.Create(clique.comm(), {.multimem = true}),
                    fails_late ? ncclUnhandledCudaError : ncclInvalidUsage);
          ExpectLastErrorHas({"ncclDevCommCreate", "multimem"});
          EXPECT_OK(comm.Create(clique.comm(), {}));
          ASSERT_TRUE(context.Barrier());
          EXPECT_OK(ncclDevCommDestroy(clique.comm(), comm.bytes));
          EXPECT_OK(ncclCommWindowDeregister(clique.comm(), window));
        },
        setting);
  }
}

}  // namespace
}  // namespace axccl::tests
