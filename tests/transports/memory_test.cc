// Where the stretches and the line of a message are stored (transports/remote/memory.h).
#include "transports/remote/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "transports/remote/outgoing.h"

namespace axccl::remote {
namespace {

constexpr uint64_t kBytes = 4096;

class MemoryTest : public testing::Test {
 protected:
  // Adds a stretch, whose bytes are all `value`.
  void Add(uint64_t offset, uint32_t bytes, int value, bool of_receiver, bool guarded) {
    message_.stretch[message_.head.stretches++] = {offset, bytes, of_receiver, guarded, 0, 0};
    data_.insert(data_.end(), bytes, static_cast<std::byte>(value));
  }
  static std::vector<std::byte> Of(const std::byte* where, uint64_t offset, size_t bytes) {
    return {where + offset, where + offset + bytes};
  }
  static std::vector<std::byte> Filled(size_t bytes, int value) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
  }

  alignas(64) std::byte own_[kBytes]{};
  alignas(64) std::byte mirror_[kBytes]{};
  Memory memory_{0, own_, mirror_, kBytes};
  Message message_{};
  std::vector<std::byte> data_;
};

TEST_F(MemoryTest, StretchesAreStoredOneAfterTheOther) {
  Add(8, 5, 1, false, false);
  Add(640, 24, 2, false, true);
  Add(8, 3, 3, true, false);
  Add(64, 16, 4, true, true);
  ASSERT_TRUE(FitsMemory(message_, kBytes, data_.size()));
  memory_.Store(message_, data_.data());
  EXPECT_EQ(Of(mirror_, 8, 5), Filled(5, 1));
  EXPECT_EQ(Of(mirror_, 640, 24), Filled(24, 2));
  EXPECT_EQ(Of(own_, 8, 3), Filled(3, 3));
  EXPECT_EQ(Of(own_, 64, 16), Filled(16, 4));
  EXPECT_EQ(Of(mirror_, 13, 627), Filled(627, 0)) << "between the stretches";
  EXPECT_EQ(Of(mirror_, 664, kBytes - 664), Filled(kBytes - 664, 0));
  EXPECT_EQ(Of(own_, 11, 53), Filled(53, 0));
}

TEST_F(MemoryTest, TheLineIsOfTheMirror) {
  message_.head.line = 128;
  std::memset(message_.head.line_bytes, 7, sizeof message_.head.line_bytes);
  memory_.StoreLine(message_.head);
  EXPECT_EQ(Of(mirror_, 128, 64), Filled(64, 7));
  EXPECT_EQ(Of(mirror_, 0, 128), Filled(128, 0));
  EXPECT_EQ(Of(mirror_, 192, 64), Filled(64, 0));
  EXPECT_EQ(Of(own_, 0, kBytes), Filled(kBytes, 0));
}

TEST_F(MemoryTest, AMessageMayHaveNoLine) {
  message_.head.line = transport::Reach::kNoLine;
  std::memset(message_.head.line_bytes, 7, sizeof message_.head.line_bytes);
  memory_.StoreLine(message_.head);
  EXPECT_EQ(Of(mirror_, 0, kBytes), Filled(kBytes, 0));
}

TEST_F(MemoryTest, AMirrorOfAnAreaIsMappedAndEmpty) {
  const auto area = Memory::WithMirror(5, own_, kBytes, 1);
  ASSERT_TRUE(area.ok()) << area.status().message();
  const Memory& memory = *area.value();
  EXPECT_EQ(memory.key(), 5u);
  EXPECT_EQ(memory.bytes(), kBytes);
  EXPECT_EQ(Of(memory.mirror(), 0, kBytes), Filled(kBytes, 0));
  EXPECT_EQ(memory.PlaceOf({8, 4, 1, 0, 0, 0}), own_ + 8);
  EXPECT_EQ(memory.PlaceOf({8, 4, 0, 0, 0, 0}), memory.mirror() + 8);
}

// ---- parts on devices ----

// The second half of both memories is on a device, too, where it is the first half of something else.
class FakePart final : public transport::Reach::DevicePart {
 public:
  std::byte* At(bool of_peer, uint64_t offset, uint64_t bytes) const override {
    if (offset < kBytes / 2 || bytes > kBytes - offset) return nullptr;
    return (of_peer ? mirror_ : own_) + (offset - kBytes / 2);
  }
  void Call(const std::function<void()>& call) const override { call(); }
  Status Land() const override { return Status(); }

 private:
  mutable std::byte own_[kBytes / 2]{}, mirror_[kBytes / 2]{};
};

TEST_F(MemoryTest, StretchesOnADeviceBelongThere) {
  const auto part = std::make_shared<const FakePart>();
  memory_.SetDevice(part);
  EXPECT_EQ(memory_.PlaceOf({2048 + 8, 4, 1, 0, 1, 0}), part->At(false, 2048 + 8, 4));
  EXPECT_EQ(memory_.PlaceOf({2048 + 8, 4, 0, 0, 1, 0}), part->At(true, 2048 + 8, 4));
  EXPECT_EQ(memory_.PlaceOf({2048 + 8, 4, 0, 0, 0, 0}), mirror_ + 2048 + 8);
}

TEST_F(MemoryTest, StretchesOnADeviceMustFitIt) {
  const auto fits = [&](uint64_t offset, uint32_t bytes, bool guarded = false) {
    message_.head.stretches = 1;
    message_.head.line = transport::Reach::kNoLine;
    message_.stretch[0] = {offset, bytes, 0, guarded, 1, 0};
    return FitsMemory(message_, kBytes, bytes) && memory_.FitsDevice(message_);
  };
  EXPECT_FALSE(fits(2048, 64)) << "there is no device";
  memory_.SetDevice(std::make_shared<const FakePart>());
  EXPECT_TRUE(fits(2048, 64));
  EXPECT_TRUE(fits(2048, 2048));
  EXPECT_FALSE(fits(2048, 64, true)) << "the processor would have to store it";
  EXPECT_FALSE(fits(2047, 64));
  EXPECT_FALSE(fits(2049, 2048));
  EXPECT_FALSE(fits(~uint64_t{0} - 7, 16));
  message_.stretch[1] = {0, 64, 0, 0, 0, 0};
  message_.stretch[0] = {2048, 64, 0, 0, 1, 0};
  message_.head.stretches = 2;
  EXPECT_FALSE(FitsMemory(message_, kBytes, 128)) << "it is fetched alone";
}

TEST_F(MemoryTest, StretchesOnADeviceAreMessagesOfTheirOwn) {
  using Stretch = transport::Reach::Stretch;
  const std::vector<Stretch> stretches = {
      {0, 8},   {64, 8}, {2048, 600, false, false, nullptr, true}, {3000, 8, false, false, nullptr, true},
      {128, 8}, {192, 8}};
  std::vector<size_t> counts;
  std::vector<bool> lines;
  CutIntoMessages(stretches, 256, 512, [&](std::span<const Stretch> some, transport::Reach::LineAt line) {
    counts.push_back(some.size());
    lines.push_back(line.offset == 256);
    for (const Stretch& stretch : some) EXPECT_EQ(stretch.on_device, some.size() == 1);
  });
  EXPECT_EQ(counts, (std::vector<size_t>{2, 1, 1, 2}));
  EXPECT_EQ(lines, (std::vector<bool>{false, false, false, true}));
}

}  // namespace
}  // namespace axccl::remote
