#include "src/boot/wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/harness/random.h"

namespace axccl::boot {
namespace {

struct Parties {
  Secret secret{};
  Hello rank, hub;
};

Parties SomeParties() {
  Parties parties;
  for (size_t i = 0; i < parties.secret.size(); ++i) parties.secret[i] = static_cast<uint8_t>(i);
  parties.rank.rank = 3;
  parties.rank.nranks = 8;
  FillNonce(&parties.rank);
  parties.hub.role = Role::kHub;
  FillNonce(&parties.hub);
  return parties;
}

TEST(ProofTest, DependsOnEveryByteOfBothHellosTheRoleAndTheSecret) {
  const Parties good = SomeParties();
  const Proof proof = Prove(good.secret, Role::kRank, good.rank, good.hub);
  EXPECT_TRUE(SameProof(proof, Prove(good.secret, Role::kRank, good.rank, good.hub)));
  EXPECT_FALSE(SameProof(proof, Prove(good.secret, Role::kHub, good.rank, good.hub)));
  EXPECT_FALSE(SameProof(proof, ConnectionKey(good.secret, good.rank, good.hub)));
  for (size_t i = 0; i < sizeof(Hello); ++i) {
    Parties bad = good;
    reinterpret_cast<uint8_t*>(&bad.rank)[i] ^= 4;
    EXPECT_FALSE(SameProof(proof, Prove(bad.secret, Role::kRank, bad.rank, bad.hub))) << i;
    bad = good;
    reinterpret_cast<uint8_t*>(&bad.hub)[i] ^= 4;
    EXPECT_FALSE(SameProof(proof, Prove(bad.secret, Role::kRank, bad.rank, bad.hub))) << i;
    bad = good;
    bad.secret[i % bad.secret.size()] ^= 4;
    EXPECT_FALSE(SameProof(proof, Prove(bad.secret, Role::kRank, bad.rank, bad.hub))) << i;
  }
}

TEST(ProofTest, NoncesAreFresh) {
  Hello a, b;
  FillNonce(&a);
  FillNonce(&b);
  EXPECT_NE(a.nonce, b.nonce);
}

class FrameTest : public testing::Test {
 protected:
  FrameTest() : rank_(Key{7}, Role::kRank), hub_(Key{7}, Role::kHub), payload_(100) {
    harness::Random random(harness::Seed());
    for (std::byte& byte : payload_) byte = static_cast<std::byte>(random.Next());
  }
  FrameCipher rank_, hub_;
  std::vector<std::byte> payload_;
};

TEST_F(FrameTest, BothWaysInOrder) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(hub_.Open(rank_.Seal(FrameType::kContribute, payload_), payload_));
    EXPECT_TRUE(rank_.Open(hub_.Seal(FrameType::kGathered, payload_), payload_));
    EXPECT_TRUE(rank_.Open(hub_.Seal(FrameType::kStart, {}), {}));
  }
}

TEST_F(FrameTest, EveryFlippedBitIsRejected) {
  const FrameHeader header = rank_.Seal(FrameType::kContribute, payload_);
  for (size_t bit = 0; bit < 8 * sizeof header; ++bit) {
    FrameHeader bad = header;
    reinterpret_cast<uint8_t*>(&bad)[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_FALSE(hub_.Open(bad, payload_)) << "header bit " << bit;
  }
  for (size_t bit = 0; bit < 8 * payload_.size(); ++bit) {
    std::vector<std::byte> bad = payload_;
    bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(hub_.Open(header, bad)) << "payload bit " << bit;
  }
  EXPECT_TRUE(hub_.Open(header, payload_));
}

TEST_F(FrameTest, ReplayReflectionReorderAndForeignKeysAreRejected) {
  const FrameHeader first = rank_.Seal(FrameType::kContribute, payload_);
  const FrameHeader second = rank_.Seal(FrameType::kContribute, payload_);
  EXPECT_FALSE(hub_.Open(second, payload_)) << "out of order";
  EXPECT_TRUE(hub_.Open(first, payload_));
  EXPECT_FALSE(hub_.Open(first, payload_)) << "replayed";
  FrameCipher mirror(Key{7}, Role::kRank);
  EXPECT_FALSE(mirror.Open(first, payload_)) << "reflected";
  FrameCipher stranger(Key{8}, Role::kHub);
  EXPECT_FALSE(stranger.Open(first, payload_));
}

TEST(LimitTest, HoldsForEveryTypeAndSide) {
  size_t limit = 0;
  EXPECT_TRUE(PayloadLimit(Role::kHub, FrameType::kContribute, 8, &limit));
  EXPECT_EQ(limit, kMaxContribution);
  EXPECT_TRUE(PayloadLimit(Role::kRank, FrameType::kGathered, 8, &limit));
  EXPECT_EQ(limit, 8 * kMaxContribution);
  EXPECT_FALSE(PayloadLimit(Role::kHub, FrameType::kGathered, 8, &limit));
  EXPECT_FALSE(PayloadLimit(Role::kHub, FrameType::kStart, 8, &limit));
  EXPECT_FALSE(PayloadLimit(Role::kRank, FrameType::kContribute, 8, &limit));
  EXPECT_FALSE(PayloadLimit(Role::kRank, FrameType::kJoin, 8, &limit));
  for (int type = 0; type < 65536; ++type) {
    if (type >= 1 && type <= 9) continue;
    EXPECT_FALSE(PayloadLimit(Role::kHub, static_cast<FrameType>(type), 8, &limit));
    EXPECT_FALSE(PayloadLimit(Role::kRank, static_cast<FrameType>(type), 8, &limit));
  }
}

TEST(ErrorTest, SurvivesTheWireAndNeverBecomesOk) {
  const std::string payload = EncodeError(MakeStatus(Code::kTimeout, "rank 3 is late"));
  const Status back = DecodeError(std::as_bytes(std::span(payload)));
  EXPECT_EQ(back.code(), Code::kTimeout);
  EXPECT_EQ(back.message(), "rank 3 is late");
  const std::string longest = EncodeError(MakeStatus(Code::kSystemError, "%s", std::string(5000, 'x').c_str()));
  EXPECT_EQ(longest.size(), sizeof(uint32_t) + kMaxText);
  harness::Random random(harness::Seed());
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes(random.Below(40));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
    if (bytes.size() >= 4 && random.OneIn(2)) bytes[1] = bytes[2] = bytes[3] = std::byte{0};
    const Status status = DecodeError(bytes);
    ASSERT_FALSE(status.ok());
    ASSERT_LE(status.code(), Code::kTimeout);
    for (const char c : status.message()) ASSERT_TRUE(c >= 0x20 && c <= 0x7e);
  }
}

}  // namespace
}  // namespace axccl::boot
