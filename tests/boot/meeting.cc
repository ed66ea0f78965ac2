#include "tests/boot/meeting.h"

#include <gtest/gtest.h>
#include <cstring>
#include <vector>

#include "tests/harness/free_port.h"
#include "tests/harness/random.h"

namespace axccl::boot {

std::string FreePort() { return std::to_string(harness::FreePort()); }

UniqueId ShareId(harness::RankContext& context, int slot) {
  std::byte* const place = context.board() + static_cast<size_t>(slot) * sizeof(UniqueId);
  if (context.first_rank() == 0) {
    const Result<UniqueId> id = CreateUniqueId();
    EXPECT_TRUE(id.ok()) << id.status().message();
    if (id.ok()) std::memcpy(place, id.value().bytes, sizeof(UniqueId));
  }
  context.Barrier();
  UniqueId id;
  std::memcpy(id.bytes, place, sizeof id.bytes);
  return id;
}

std::unique_ptr<Session> JoinWell(harness::RankContext& context, const UniqueId& id) {
  Result<std::unique_ptr<Session>> session = Session::Join(id, context.rank(), context.nranks(), Patient(), nullptr);
  EXPECT_TRUE(session.ok()) << session.status().message();
  return session.ok() ? std::move(session).value() : nullptr;
}

Status JoinStatus(const UniqueId& id, int rank, int nranks, Clock::time_point deadline) {
  return Session::Join(id, rank, nranks, deadline, nullptr).status();
}

void ExpectExchange(Session* session, int rank, int nranks, size_t bytes, uint64_t salt) {
  ASSERT_NE(session, nullptr);
  const auto expected = [&](int r, size_t i) {
    return static_cast<uint8_t>(harness::Scramble(salt, static_cast<uint64_t>(r), i));
  };
  std::vector<uint8_t> mine(bytes), all(bytes * static_cast<size_t>(nranks), 0xee);
  for (size_t i = 0; i < bytes; ++i) mine[i] = expected(rank, i);
  const Status status = session->AllGather(mine.data(), bytes, all.data());
  ASSERT_TRUE(status.ok()) << status.message();
  for (int r = 0; r < nranks; ++r) {
    for (size_t i = 0; i < bytes; ++i)
      ASSERT_EQ(all[static_cast<size_t>(r) * bytes + i], expected(r, i)) << r << " " << i;
  }
}

}  // namespace axccl::boot
