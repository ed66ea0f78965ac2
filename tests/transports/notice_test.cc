// Notices arrive as they were written, however they are cut; any change, repetition or omission is found.
#include "transports/remote/notice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace axccl::remote {
namespace {

const NoticeWriter::Key kKey{1, 2, 3};

std::vector<std::byte> Written(int notices) {
  NoticeWriter writer(kKey);
  std::vector<std::byte> bytes;
  for (uint32_t i = 0; i < static_cast<uint32_t>(notices); ++i) {
    bytes.push_back(kBeatByte);
    writer.Write({Notice::kRevoked, i, 1000 + i, 7 * i, std::vector<std::byte>(i, std::byte{0x5a})}, &bytes);
  }
  bytes.push_back(kBeatByte);
  return bytes;
}

TEST(Notice, ArrivesHoweverItIsCut) {
  const std::vector<std::byte> bytes = Written(3);
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    NoticeReader reader(kKey);
    std::vector<Notice> notices;
    for (size_t at = 0; at < bytes.size(); at += piece)
      ASSERT_TRUE(reader.Read(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)), &notices));
    ASSERT_EQ(notices.size(), 3u);
    for (uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(notices[i].kind, Notice::kRevoked);
      EXPECT_EQ(notices[i].rank, i);
      EXPECT_EQ(notices[i].comm, 1000 + i);
      EXPECT_EQ(notices[i].number, 7 * i);
      EXPECT_EQ(notices[i].text, std::vector<std::byte>(i, std::byte{0x5a}));
    }
  }
}

TEST(Notice, IsRefusedIfAnyBitIsNotTheWriters) {
  const std::vector<std::byte> bytes = Written(2);
  const size_t first = Written(1).size() - 1;  // of the first notice, with the beat before it
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::vector<std::byte> changed = bytes;
    changed[bit / 8] ^= std::byte{1} << bit % 8;
    NoticeReader reader(kKey);
    std::vector<Notice> notices;
    const bool taken = reader.Read(changed, &notices);
    if (bit / 8 == bytes.size() - 1) continue;  // the beat that follows
    EXPECT_FALSE(taken) << bit;
    EXPECT_EQ(notices.size(), bit / 8 < first ? 0u : 1u) << bit;
  }
}

TEST(Notice, IsRefusedIfItIsTooLong) {
  for (const size_t bytes : {Notice::kMostText, Notice::kMostText + 1}) {
    NoticeWriter writer(kKey);
    std::vector<std::byte> written;
    writer.Write({.kind = Notice::kShown, .text = std::vector<std::byte>(bytes)}, &written);
    NoticeReader reader(kKey);
    std::vector<Notice> notices;
    EXPECT_EQ(reader.Read(written, &notices), bytes == Notice::kMostText);
  }
}

TEST(Notice, IsOfNoUseAgain) {
  const std::vector<std::byte> bytes = Written(1);
  NoticeReader reader(kKey);
  std::vector<Notice> notices;
  ASSERT_TRUE(reader.Read(bytes, &notices));
  EXPECT_FALSE(reader.Read(bytes, &notices));
  EXPECT_EQ(notices.size(), 1u);
}

TEST(Notice, IsMissedIfLeftOut) {
  const std::vector<std::byte> bytes = Written(2);
  NoticeReader reader(kKey);
  std::vector<Notice> notices;
  const size_t first = Written(1).size() - 1;
  EXPECT_FALSE(reader.Read(std::span(bytes).subspan(first), &notices));
  EXPECT_TRUE(notices.empty());
}

TEST(Notice, IsOfNoUseToAnotherLine) {
  NoticeReader reader({3, 2, 1});
  std::vector<Notice> notices;
  EXPECT_FALSE(reader.Read(Written(1), &notices));
  EXPECT_TRUE(notices.empty());
}

}  // namespace
}  // namespace axccl::remote
