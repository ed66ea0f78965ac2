// Where the stretches and the line of a message are stored (transports/remote/memory.h).
#include "transports/remote/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace axccl::remote {
namespace {

constexpr uint64_t kBytes = 4096;

class MemoryTest : public testing::Test {
 protected:
  // Adds a stretch, whose bytes are all `value`.
  void Add(uint64_t offset, uint32_t bytes, int value, bool of_receiver, bool guarded) {
    message_.stretch[message_.head.stretches++] = {offset, bytes, of_receiver, guarded, {}};
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
  EXPECT_EQ(memory.PlaceOf({8, 4, 1, 0, {}}), own_ + 8);
  EXPECT_EQ(memory.PlaceOf({8, 4, 0, 0, {}}), memory.mirror() + 8);
}

}  // namespace
}  // namespace axccl::remote
