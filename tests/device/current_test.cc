// Which devices belong to threads that chose none, and how their numbers are given back.
#include "src/device/host/current.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/device/work.h"

namespace axccl::device::host {
namespace {

int Claim() {
  const Result<int> claimed = ClaimDevice();
  EXPECT_TRUE(claimed.ok()) << claimed.status().message();
  return claimed.ok() ? claimed.value() : -1;
}

void OnThread(const std::function<void()>& fn) { std::thread(fn).join(); }

TEST(CurrentDevice, ThreadsClaimDevicesOfTheirOwn) {
  OnThread([] {
    EXPECT_EQ(CurrentDevice(), 0);
    const int first = Claim();
    EXPECT_EQ(first, Claim()) << "a thread keeps its device";
    EXPECT_EQ(first, CurrentDevice());
    EXPECT_TRUE(Device::Get(first)->claimed());
    OnThread([first] { EXPECT_NE(Claim(), first); });
  });
  OnThread([] {
    ChooseDevice(9);
    EXPECT_EQ(Claim(), 9);
    EXPECT_FALSE(Device::Get(9)->claimed());
  });
  EXPECT_EQ(Device::Get(9), Device::Get(9));
}

TEST(CurrentDevice, NumbersAreGivenBackWhenNothingUsesThem) {
  int first = -1, second = -1;
  OnThread([&] { first = Claim(); });
  OnThread([&] { second = Claim(); });
  EXPECT_EQ(first, second) << "the thread has ended, and nothing else uses its device";
  Device* const device = Device::Get(first);
  DeviceHold hold = device->Hold();
  OnThread([&] { EXPECT_NE(Claim(), first) << "a communicator is on it"; });
  hold = nullptr;
  auto stream = std::make_shared<Stream>(first, true);
  device->AddStream(stream);
  OnThread([&] { EXPECT_NE(Claim(), first) << "a stream is on it"; });
  const auto gate = std::make_shared<GatedWork>();
  Submit(device, stream.get(), gate);
  stream = nullptr;
  OnThread([&] { EXPECT_NE(Claim(), first) << "work is on it"; });
  gate->open = true;
  ASSERT_TRUE(WaitThrough(device->queue(), [&] { return !device->queue()->pending(); }));
  OnThread([&] { EXPECT_EQ(Claim(), first); });
}

TEST(CurrentDevice, ErrorsStayWithTheThreadThatMadeThem) {
  int first = -1;
  OnThread([&] {
    first = Claim();
    Device::Get(first)->null_stream()->timeline()->SetError(Status(Code::kTimeout, "late"));
  });
  OnThread([&] {
    ASSERT_EQ(Claim(), first);
    EXPECT_TRUE(Device::Get(first)->null_stream()->timeline()->TakeError().ok());
  });
}

TEST(CurrentDevice, ClaimingMoreThanThereAreIsAnError) {
  std::vector<DeviceHold> holds;
  std::set<int> numbers;
  for (;;) {
    Result<DeviceHold> claimed = Device::Claim();
    if (!claimed.ok()) {
      EXPECT_EQ(claimed.status().code(), Code::kInvalidUsage);
      EXPECT_NE(claimed.status().message().find("1024 host devices"), std::string_view::npos);
      break;
    }
    ASSERT_TRUE(numbers.insert(claimed.value()->ordinal()).second);
    holds.push_back(std::move(claimed).value());
  }
  EXPECT_GT(holds.size(), 900u);
  OnThread([] { EXPECT_FALSE(ClaimDevice().ok()); });
  const int freed = holds.back()->ordinal();
  holds.pop_back();
  OnThread([freed] { EXPECT_EQ(Claim(), freed); });
}

}  // namespace
}  // namespace axccl::device::host
