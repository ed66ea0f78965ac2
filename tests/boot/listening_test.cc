// Listeners close when they are not needed: once communicators are made, strangers find no open port.
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "src/base/service_fd.h"
#include "src/boot/hub.h"
#include "src/boot/unique_id.h"
#include "tests/boot/meeting.h"
#include "tests/harness/run_ranks.h"

namespace axccl::boot {
namespace {

using harness::RankContext;

// The errno of connecting to the id's address; 0: a socket listens there.
int Knock(const UniqueId& id) {
  const Address address = Unpack(id).value().address[0];
  const service::Fd fd(socket(address.family == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  socklen_t bytes = 0;
  const sockaddr_storage storage = ToSockaddr(address, &bytes);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&storage), bytes) == 0 ? 0 : errno;
}

// The hub learns that the last rank has left a moment after that rank has continued.
void AwaitRefusal(RankContext& context, const UniqueId& id) {
  const auto limit = Patient();
  int error = 0;
  while ((error = Knock(id)) != ECONNREFUSED && Clock::now() < limit && !context.AnyFailed()) usleep(1000);
  EXPECT_EQ(error, ECONNREFUSED);
}

bool Mentions(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string_view::npos;
}

void Meet(RankContext& context, const UniqueId& id, int barrier) {
  {
    const auto session = JoinWell(context, id);
    ASSERT_NE(session, nullptr);
    ExpectExchange(session.get(), context.rank(), context.nranks(), 50, 1);
  }
  ASSERT_TRUE(context.Barrier(barrier));
}

size_t Listeners() { return Hub::Get().value()->Count().value().listeners; }

TEST(ListeningTest, EndsWhenEveryIdHasMadeItsCommunicator) {
  harness::RunRanks(harness::Processes(3), [](RankContext& context) {
    const UniqueId first = ShareId(context, 0), second = ShareId(context, 1);
    ASSERT_NO_FATAL_FAILURE(Meet(context, first, 1));
    EXPECT_EQ(Knock(second), 0);  // its ranks have not joined yet
    ASSERT_TRUE(context.Barrier(2));
    ASSERT_NO_FATAL_FAILURE(Meet(context, second, 3));
    AwaitRefusal(context, second);
    if (context.rank() == 0) {
      EXPECT_EQ(Listeners(), 0u);
    }
    // A rank that uses an id again gets an error at once, in the process that made the id and in any other.
    const Status again = JoinStatus(first, context.rank(), 3);
    if (context.rank() == 0) {
      EXPECT_EQ(again.code(), Code::kInvalidUsage);
      EXPECT_TRUE(Mentions(again, "already made a communicator of 3 ranks")) << again.message();
    } else {
      EXPECT_EQ(again.code(), Code::kRemoteError);
      EXPECT_TRUE(Mentions(again, "nothing listens at ")) << again.message();
      EXPECT_TRUE(Mentions(again, "the id has made its communicator already")) << again.message();
    }
    EXPECT_TRUE(Mentions(again, "call ncclGetUniqueId for each")) << again.message();
    ASSERT_TRUE(context.Barrier(4));
    // The next id is served.
    const UniqueId third = ShareId(context, 2);
    ASSERT_NO_FATAL_FAILURE(Meet(context, third, 5));
    AwaitRefusal(context, third);
  });
}

// Ranks that come late to a start that failed get its error, not the error that no process listens.
TEST(ListeningTest, ContinuesForRanksThatAreLateToAFailure) {
  harness::RunOptions options;
  options.environment = {{"AXCCL_INIT_TIMEOUT", "1"}};
  harness::RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        const UniqueId id = ShareId(context), other = ShareId(context, 1);
        if (context.rank() == 0) {
          EXPECT_EQ(JoinStatus(id, 0, 2, Clock::now() + std::chrono::milliseconds(30)).code(), Code::kTimeout);
        }
        ASSERT_TRUE(context.Barrier(1));
        ASSERT_NO_FATAL_FAILURE(Meet(context, other, 2));
        if (context.rank() == 1) {
          const Status late = JoinStatus(id, 1, 2);
          EXPECT_EQ(late.code(), Code::kTimeout);
          EXPECT_TRUE(Mentions(late, "for rank 1 of 2")) << late.message();
        }
        AwaitRefusal(context, id);  // it listens as long as ranks may come
      },
      options);
}

// Ranks in a tree have their own listeners meanwhile.
TEST(ListeningTest, OfRanksInATreeEndsWithIt) {
  harness::RunOptions options;
  options.environment = {{"AXCCL_TREE_RANKS", "2"}};
  harness::RunRanks(
      harness::Processes(9),
      [](RankContext& context) {
        const UniqueId id = ShareId(context);
        ASSERT_NO_FATAL_FAILURE(Meet(context, id, 1));
        AwaitRefusal(context, id);
        const auto limit = Patient();
        while (Listeners() != 0 && Clock::now() < limit) usleep(1000);
        EXPECT_EQ(Listeners(), 0u);
      },
      options);
}

TEST(ListeningTest, AtNcclCommIdEndsWithTheCommunicatorAndBeginsWithTheNext) {
  harness::RunOptions options;
  options.environment = {{"NCCL_COMM_ID", "127.0.0.1:" + FreePort()}};
  harness::RunRanks(
      harness::Processes(3),
      [](RankContext& context) {
        const UniqueId id = CreateUniqueId().value();
        for (int round = 0; round < 3; ++round) {
          ASSERT_NO_FATAL_FAILURE(Meet(context, id, 10 + round));
          AwaitRefusal(context, id);
          ASSERT_TRUE(context.Barrier(20 + round));
        }
      },
      options);
}

}  // namespace
}  // namespace axccl::boot
