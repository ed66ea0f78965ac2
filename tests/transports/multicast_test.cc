// Multicast objects, and the addresses at which a device reaches several of them, on the software GPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/residue.h"
#include "tests/harness/run_ranks.h"
#include "tests/transports/is_mapped.h"
#include "transports/cuda_ipc/memory.h"
#include "transports/cuda_ipc/multicast.h"
#include "transports/cuda_ipc/multicast_space.h"

namespace axccl::cuda_ipc {
namespace {

using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;
using harness::RankContext;
using test::IsMapped;

constexpr uint64_t kUnit = uint64_t{2} << 20;

void OnTwoDevices(const std::function<void(RankContext&, const Device&)>& body,
                  std::vector<std::pair<std::string, std::string>> environment = {}) {
  harness::RunOptions options;
  options.environment = std::move(environment);
  options.environment.emplace_back("SOFTGPU_DEVICES", "2");
  harness::RunRanks(
      harness::Processes(2),
      [&body](RankContext& context) {
        const Result<Device*> device = Device::Get(context.rank());
        ASSERT_TRUE(device.ok()) << device.status().message();
        body(context, *device.value());
      },
      options);
}

// An object of both ranks.
std::unique_ptr<MulticastObject> Make(RankContext& context, const Device& device, uint64_t bytes) {
  auto object = std::make_unique<MulticastObject>(device);
  if (context.rank() == 0) {
    const Result<Handle> handle = object->Create(2, bytes);
    EXPECT_TRUE(handle.ok()) << handle.status().message();
    std::memcpy(context.board(), &handle.value(), sizeof(Handle));
  }
  EXPECT_TRUE(context.Barrier());
  Handle handle;
  std::memcpy(&handle, context.board(), sizeof(handle));
  const Status joined = object->Join(handle);
  EXPECT_TRUE(joined.ok()) << joined.message();
  EXPECT_TRUE(context.Barrier());
  return object;
}

TEST(Multicast, ObjectsAreAtPlacesOfTheirOwn) {
  OnTwoDevices([](RankContext& context, const Device& device) {
    const uint64_t unit = MulticastObject::LeastUnit(device, 2).value();
    const auto space = std::make_shared<MulticastSpace>(device);
    std::vector<std::unique_ptr<MulticastObject>> objects;
    std::vector<std::unique_ptr<MulticastSpace::Place>> places;
    for (const uint64_t units : {1, 3, 2}) {
      objects.push_back(Make(context, device, units * kUnit - 100));
      EXPECT_EQ(objects.back()->bytes(), units * kUnit);
      auto place = space->Map(*objects.back(), unit);
      ASSERT_TRUE(place.ok()) << place.status().message();
      places.push_back(std::move(place).value());
    }
    const CUdeviceptr base = places[0]->base();
    EXPECT_EQ(places[0]->address(), base);
    EXPECT_EQ(places[1]->address(), places[0]->address() + kUnit);
    EXPECT_EQ(places[2]->address(), places[1]->address() + 3 * kUnit);
    EXPECT_FALSE(IsMapped(device, base + space->nowhere()));
    // What is free is used again, where it suffices.
    const CUdeviceptr second = places[1]->address();
    places[1] = nullptr;
    EXPECT_FALSE(IsMapped(device, second));
    auto large = Make(context, device, 4 * kUnit), small = Make(context, device, kUnit);
    const auto behind = space->Map(*large, unit), between = space->Map(*small, unit);
    ASSERT_TRUE(behind.ok() && between.ok());
    EXPECT_EQ(behind.value()->address(), places[2]->address() + 2 * kUnit);
    EXPECT_EQ(between.value()->address(), second);
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(Multicast, AddressesMayRunOut) {
  OnTwoDevices([](RankContext& context, const Device& device) {
    const uint64_t unit = MulticastObject::LeastUnit(device, 2).value();
    const auto space = std::make_shared<MulticastSpace>(device);
    const auto large = Make(context, device, 2 * space->nowhere()), half = Make(context, device, space->nowhere());
    const auto none = space->Map(*large, unit);
    EXPECT_EQ(none.status().code(), Code::kSystemError);
    EXPECT_NE(none.status().message().find("16 GiB"), std::string::npos) << none.status().message();
    EXPECT_TRUE(space->Map(*half, unit).ok());
    ASSERT_TRUE(context.Barrier());
  });
}

// Ranks bind as much as they have, at any place, and what one has bound goes with its object.
TEST(Multicast, MemoryIsBoundAndUnbound) {
  OnTwoDevices([](RankContext& context, const Device& device) {
    const Scope scope(device);
    const CUmemAllocationProp properties = ShareableOn(device);
    CUmemGenericAllocationHandle memory = 0;
    ASSERT_EQ(Driver::Loaded().cuMemCreate(&memory, 2 * kUnit, &properties, 0), CUDA_SUCCESS);
    for (int round = 0; round < 3; ++round) {
      const auto object = Make(context, device, 4 * kUnit);
      const uint64_t at = context.rank() == 0 ? 0 : 2 * kUnit;
      EXPECT_TRUE(object->Bind(at, memory, 0, 2 * kUnit).ok());
      EXPECT_FALSE(object->Bind(at + kUnit, memory, 0, kUnit).ok());  // bound already
      EXPECT_FALSE(object->Bind(3 * kUnit, memory, 0, 2 * kUnit).ok());
      EXPECT_TRUE(object->Bind(2 * kUnit - at, memory, kUnit, kUnit).ok());  // the same memory again
      EXPECT_FALSE(object->Bind(100, memory, 0, kUnit).ok());
      ASSERT_TRUE(context.Barrier());
    }
    EXPECT_EQ(Driver::Loaded().cuMemRelease(memory), CUDA_SUCCESS);
    size_t free = 0, total = 0;
    ASSERT_EQ(Driver::Loaded().cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    EXPECT_GT(free, total - (uint64_t{16} << 20));  // nothing of it is left, beyond what a device keeps
  });
}

TEST(Multicast, NothingIsOpenWhenAllIsGone) {
  OnTwoDevices([](RankContext& context, const Device& device) {
    const uint64_t unit = MulticastObject::LeastUnit(device, 2).value();
    (void)Make(context, device, kUnit);
    ASSERT_TRUE(context.Barrier());
    const int descriptors = harness::Entries("/proc/self/fd");
    for (int round = 0; round < 5; ++round) {
      const auto space = std::make_shared<MulticastSpace>(device);
      const auto object = Make(context, device, kUnit);
      EXPECT_TRUE(space->Map(*object, unit).ok());
      ASSERT_TRUE(context.Barrier());
    }
    EXPECT_EQ(harness::Entries("/proc/self/fd"), descriptors);
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(Multicast, WhyADeviceIsInNoTeam) {
  OnTwoDevices(
      [](RankContext&, const Device& device) {
        const Status status = MulticastObject::Check(device);
        EXPECT_EQ(status.code(), Code::kInvalidUsage);
        EXPECT_NE(status.message().find("has no multicast"), std::string::npos) << status.message();
      },
      {{"SOFTGPU_MULTICAST", "0"}});
  OnTwoDevices([](RankContext& context, const Device& device) {
    EXPECT_TRUE(MulticastObject::Check(device).ok());
    MulticastObject object(device);
    EXPECT_EQ(object.Join(Handle{}).code(), Code::kRemoteError);
    ASSERT_TRUE(context.Barrier());
  });
}

}  // namespace
}  // namespace axccl::cuda_ipc
