// What the node of a rank has for the rank's thread (src/boot/mailbox.h).
#include "src/boot/mailbox.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace axccl::boot {
namespace {

using News = Mailbox::News;

const Status kGone(Code::kRemoteError, "rank 3 is gone");

Patience Long() { return {Clock::now() + std::chrono::minutes(1), nullptr}; }
// The deadline has passed, so a wait only looks.
Patience Over() { return {Clock::now(), nullptr}; }

class MailboxTest : public testing::Test {
 protected:
  bool Has(News news) { return mailbox_.Await(news, Over(), "looking").ok(); }

  Mailbox mailbox_{2, 8};
};

TEST_F(MailboxTest, TheStartHasComeOnceEveryHubHasSentIt) {
  mailbox_.ExpectStart();
  mailbox_.ExpectStart();
  StartBody with_parent, without;
  with_parent.parent.num_addresses = 1;
  with_parent.pid = 812;
  mailbox_.PutStart(with_parent);
  EXPECT_FALSE(Has(News::kStart));
  mailbox_.PutStart(without);
  EXPECT_TRUE(Has(News::kStart));
  EXPECT_EQ(mailbox_.start().pid, 812u) << "the hub that knows no parent changes nothing";
}

TEST_F(MailboxTest, BlocksOfAnEarlierExchangeDoNotEndTheNextWait) {
  const std::vector<std::byte> blocks(8, std::byte{7});
  std::vector<std::byte> all(8);
  mailbox_.PutBlocks(blocks);
  EXPECT_TRUE(Has(News::kBlocks));
  ASSERT_TRUE(mailbox_.CopyBlocks(all).ok());
  EXPECT_EQ(all, blocks);
  mailbox_.ExpectBlocks();
  EXPECT_FALSE(Has(News::kBlocks));
}

TEST_F(MailboxTest, BlocksOfTheWrongSizeAreNotCopied) {
  mailbox_.PutBlocks(std::vector<std::byte>(8, std::byte{7}));
  std::vector<std::byte> all(16);
  EXPECT_EQ(mailbox_.CopyBlocks(all).message(), "exchange of 16 bytes gave 8");
  EXPECT_EQ(all, std::vector<std::byte>(16));
}

TEST_F(MailboxTest, WhatHasComeBelongsToTheRankThoughTheRendezvousHasFailedSince) {
  mailbox_.PutLinks();
  mailbox_.PutFailure(kGone);
  EXPECT_TRUE(mailbox_.Await(News::kLinks, Long(), "waiting").ok());
  EXPECT_EQ(mailbox_.Await(News::kBlocks, Long(), "waiting").message(), kGone.message());
}

TEST_F(MailboxTest, TheFirstReasonOfTheEndCounts) {
  EXPECT_TRUE(mailbox_.failure().ok());
  mailbox_.PutFailure(kGone);
  mailbox_.PutFailure(Status(Code::kTimeout, "rank 4 did not come"));
  EXPECT_EQ(mailbox_.failure().message(), kGone.message());
}

TEST_F(MailboxTest, ADeadlineOrAStopEndsAWait) {
  const Status late = mailbox_.Await(News::kLinks, Over(), "waiting for the ranks next to it");
  EXPECT_EQ(late.code(), Code::kTimeout);
  EXPECT_NE(late.message().find("waiting for the ranks next to it"), std::string::npos) << late.message();
  int looks = 0;
  Patience stopped = Long();
  stopped.stop = [&] { return ++looks == 3; };
  EXPECT_EQ(mailbox_.Await(News::kLinks, stopped, "waiting").code(), Code::kRemoteError);
}

TEST_F(MailboxTest, NewsWakeTheThreadThatWaits) {
  for (const News news : {News::kStart, News::kLinks, News::kBlocks, News::kEnd}) {
    Mailbox mailbox(2, 8);
    mailbox.ExpectStart();
    std::thread service([&] {
      if (news == News::kStart) mailbox.PutStart(StartBody());
      if (news == News::kLinks) mailbox.PutLinks();
      if (news == News::kBlocks) mailbox.PutBlocks(std::vector<std::byte>(8));
      if (news == News::kEnd) mailbox.PutFailure(kGone);
    });
    const Status status = mailbox.Await(news, Long(), "waiting");
    service.join();
    EXPECT_EQ(status.ok(), news != News::kEnd) << status.message();
    EXPECT_NE(status.code(), Code::kTimeout);
  }
}

TEST_F(MailboxTest, AReasonReplacesTheErrorThatTheRankSaw) {
  const Status seen(Code::kRemoteError, "the parent does not answer");
  EXPECT_EQ(mailbox_.AwaitReason(News::kEnd, seen, nullptr).message(), seen.message());
  mailbox_.PutFailure(Status(Code::kTimeout, "rank 4 did not come"));
  EXPECT_EQ(mailbox_.AwaitReason(News::kEnd, seen, nullptr).message(), "rank 4 did not come");
  mailbox_.PutLinks();
  EXPECT_TRUE(mailbox_.AwaitReason(News::kLinks, seen, nullptr).ok());
}

}  // namespace
}  // namespace axccl::boot
