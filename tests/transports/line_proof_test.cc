// Which process may hold a lifeline: only the peer itself, and no process that recorded its messages.
#include "transports/remote/line_proof.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

namespace axccl::remote {
namespace {

using Verdict = LineGuest::Verdict;

constexpr LineProcess kCaller{1}, kCalled{2}, kOther{3};

LineGuest::Verdict Feed(LineGuest* guest, std::span<const std::byte> bytes) {
  Verdict verdict = Verdict::kMore;
  while (!bytes.empty() && verdict == Verdict::kMore) {
    const std::span<std::byte> room = guest->room();
    const size_t chunk = std::min<size_t>({room.size(), bytes.size(), 7});  // in pieces, as the network may deliver it
    std::copy_n(bytes.begin(), chunk, room.begin());
    bytes = bytes.subspan(chunk);
    verdict = guest->Took(chunk);
  }
  return verdict;
}

template <class T>
LineGuest::Verdict Feed(LineGuest* guest, const T& what) {
  return Feed(guest, std::as_bytes(std::span(&what, 1)));
}

class LineProofTest : public testing::Test {
 protected:
  void SetUp() override {
    caller_ = LineIdentity::Make().value();
    called_ = LineIdentity::Make().value();
    of_caller_ = caller_.KeysWith(called_.public_key(), true).value();
    of_called_ = called_.KeysWith(caller_.public_key(), false).value();
  }

  LineHello Hello() const { return {.from = kCaller, .to = kCalled, .nonce = FreshNonce()}; }
  LineGuest Guest() {
    return LineGuest(kCalled,
                     [this](const LineProcess& process) { return process == kCaller ? &of_called_ : nullptr; });
  }

  LineIdentity caller_, called_;
  LineKeys of_caller_, of_called_;
};

TEST_F(LineProofTest, TheOwnerOfTheKeyIsAccepted) {
  LineGuest guest = Guest();
  const LineHello hello = Hello();
  ASSERT_EQ(Feed(&guest, hello), Verdict::kAnswer);
  EXPECT_TRUE(SameProof(guest.answer().proof, of_caller_.CalledProof(hello, guest.answer().nonce)));
  EXPECT_EQ(Feed(&guest, of_caller_.CallerProof(hello, guest.answer().nonce)), Verdict::kProved);
  EXPECT_EQ(guest.from(), kCaller);
}

TEST_F(LineProofTest, AReplayIsRejected) {
  LineGuest first = Guest();
  const LineHello hello = Hello();
  ASSERT_EQ(Feed(&first, hello), Verdict::kAnswer);
  const LineProof proof = of_caller_.CallerProof(hello, first.answer().nonce);
  ASSERT_EQ(Feed(&first, proof), Verdict::kProved);
  LineGuest second = Guest();
  ASSERT_EQ(Feed(&second, hello), Verdict::kAnswer);
  EXPECT_NE(second.answer().nonce, first.answer().nonce);
  EXPECT_EQ(Feed(&second, proof), Verdict::kDrop);
}

TEST_F(LineProofTest, TheOtherSidesProofIsRejected) {
  LineGuest guest = Guest();
  const LineHello hello = Hello();
  ASSERT_EQ(Feed(&guest, hello), Verdict::kAnswer);
  EXPECT_EQ(Feed(&guest, guest.answer().proof), Verdict::kDrop);
}

TEST_F(LineProofTest, EveryFlippedBitIsRejected) {
  const LineHello hello = Hello();
  for (size_t bit = 0; bit < 8 * sizeof hello; ++bit) {
    LineHello bad = hello;
    reinterpret_cast<unsigned char*>(&bad)[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    LineGuest guest = Guest();
    const Verdict verdict = Feed(&guest, bad);
    if (verdict == Verdict::kUnknown || verdict == Verdict::kDrop) continue;  // from, to, magic
    ASSERT_EQ(verdict, Verdict::kAnswer) << bit;
    EXPECT_EQ(Feed(&guest, of_caller_.CallerProof(hello, guest.answer().nonce)), Verdict::kDrop) << bit;
    EXPECT_FALSE(SameProof(guest.answer().proof, of_caller_.CalledProof(hello, guest.answer().nonce))) << bit;
  }
  for (size_t bit = 0; bit < 8 * sizeof(LineProof); ++bit) {
    LineGuest guest = Guest();
    ASSERT_EQ(Feed(&guest, hello), Verdict::kAnswer);
    LineProof proof = of_caller_.CallerProof(hello, guest.answer().nonce);
    proof[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    EXPECT_EQ(Feed(&guest, proof), Verdict::kDrop) << bit;
  }
}

TEST_F(LineProofTest, OnlyCallsFromOthersToThisProcessAreAnswered) {
  for (const auto& [from, to] : {std::pair{kCaller, kOther}, {kCalled, kCalled}}) {
    LineGuest guest = Guest();
    LineHello hello = Hello();
    hello.from = from;
    hello.to = to;
    EXPECT_EQ(Feed(&guest, hello), Verdict::kDrop);
  }
}

// A process may call before this process knows it.
TEST_F(LineProofTest, ACallerIsAnsweredOnceItIsKnown) {
  bool known = false;
  LineGuest guest(kCalled, [&](const LineProcess&) { return known ? &of_called_ : nullptr; });
  const LineHello hello = Hello();
  EXPECT_EQ(Feed(&guest, hello), Verdict::kUnknown);
  EXPECT_TRUE(guest.room().empty());
  EXPECT_EQ(guest.Look(), Verdict::kUnknown);
  known = true;
  ASSERT_EQ(guest.Look(), Verdict::kAnswer);
  EXPECT_EQ(Feed(&guest, of_caller_.CallerProof(hello, guest.answer().nonce)), Verdict::kProved);
}

// Keys of low order: every process can compute the secret that results from them.
TEST_F(LineProofTest, InvalidKeysAreRefused) {
  for (const bool calls : {false, true}) {
    EXPECT_EQ(caller_.KeysWith(LineKey{}, calls).status().code(), Code::kRemoteError);
    EXPECT_EQ(caller_.KeysWith(LineKey{1}, calls).status().code(), Code::kRemoteError);
  }
}

}  // namespace
}  // namespace axccl::remote
