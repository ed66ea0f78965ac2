// In which order what arrives from one sender has its turn (transports/remote/arrivals.h).
#include "transports/remote/arrivals.h"

#include <gtest/gtest.h>

#include <vector>

namespace axccl::remote {
namespace {

class ArrivalsTest : public testing::Test {
 protected:
  std::shared_ptr<Incoming> Hold(uint32_t turn, bool here = true) {
    uint64_t number = 0;
    EXPECT_TRUE(arrivals_.Expects(turn, &number)) << turn;
    auto incoming = std::make_shared<Incoming>();
    incoming->message.head.turn = turn;
    incoming->here = here;
    arrivals_.Hold(number, incoming);
    return incoming;
  }
  // The turns of all that can be taken now.
  std::vector<uint32_t> TakeAll() {
    std::vector<uint32_t> turns;
    while (const auto next = arrivals_.TakeNext()) turns.push_back(next->message.head.turn);
    return turns;
  }
  bool Expects(uint32_t turn) const {
    uint64_t number = 0;
    return arrivals_.Expects(turn, &number);
  }

  Arrivals arrivals_;
};

TEST_F(ArrivalsTest, TheNextOneNeedNotBeHeld) {
  for (uint64_t number = 0; number < 3; ++number) {
    EXPECT_TRUE(arrivals_.IsNext(number));
    EXPECT_FALSE(arrivals_.IsNext(number + 1));
    arrivals_.Pass();
    EXPECT_FALSE(Expects(static_cast<uint32_t>(number))) << "it has had its turn";
  }
  EXPECT_EQ(arrivals_.TakeNext(), nullptr);
}

TEST_F(ArrivalsTest, EarlyOnesWaitForThoseBefore) {
  Hold(3);
  Hold(1);
  EXPECT_TRUE(TakeAll().empty());
  arrivals_.Pass();
  EXPECT_EQ(TakeAll(), (std::vector<uint32_t>{1}));
  Hold(2);
  EXPECT_EQ(TakeAll(), (std::vector<uint32_t>{2, 3}));
  EXPECT_TRUE(arrivals_.IsNext(4));
}

TEST_F(ArrivalsTest, OneWithoutAllOfItsDataHoldsBackThoseBehind) {
  const auto fetched = Hold(0, false);
  Hold(1);
  EXPECT_TRUE(TakeAll().empty());
  fetched->here = true;
  EXPECT_EQ(TakeAll(), (std::vector<uint32_t>{0, 1}));
}

TEST_F(ArrivalsTest, NoNumberIsExpectedTwice) {
  Hold(2);
  EXPECT_FALSE(Expects(2));
  arrivals_.Pass();
  EXPECT_FALSE(Expects(0));
  EXPECT_TRUE(Expects(1));
  EXPECT_TRUE(Expects(kMostAhead));
  EXPECT_FALSE(Expects(kMostAhead + 1));
}

TEST_F(ArrivalsTest, WhatHasComeIsKnownHoweverLongAgo) {
  EXPECT_FALSE(arrivals_.HasCome(0));
  EXPECT_FALSE(arrivals_.HasCome(~uint32_t{0}));
  Hold(2);
  EXPECT_TRUE(arrivals_.HasCome(2));
  EXPECT_FALSE(arrivals_.HasCome(1));
  for (uint32_t number = 0; number < 3 * kMostAhead; ++number) arrivals_.Pass();
  for (const uint32_t turn : {0u, 1u, kMostAhead, 3 * kMostAhead - 1}) EXPECT_TRUE(arrivals_.HasCome(turn)) << turn;
  for (const uint32_t turn : {3 * kMostAhead, 3 * kMostAhead + 1}) EXPECT_FALSE(arrivals_.HasCome(turn)) << turn;
  EXPECT_FALSE(arrivals_.HasCome(~uint32_t{0}));
}

TEST_F(ArrivalsTest, WhatIsBeingFetchedIsNotDropped) {
  struct Fetched : Incoming {
    bool fetching() const override { return true; }
  };
  arrivals_.Hold(0, std::make_shared<Fetched>());
  const std::weak_ptr<Incoming> other = Hold(1);
  arrivals_.Drop();
  EXPECT_TRUE(other.expired());
  EXPECT_FALSE(Expects(0));
  EXPECT_TRUE(Expects(1));
}

}  // namespace
}  // namespace axccl::remote
