// Clients that have no right to the heap, and heaps whose owner lies about them.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "src/base/service_fd.h"
#include "tests/harness/random.h"
#include "tests/harness/restrict.h"
#include "tests/harness/run_ranks.h"
#include "tests/transports/peer.h"
#include "transports/shm/attach.h"
#include "transports/shm/handover.h"
#include "transports/shm/heap.h"
#include "transports/shm/host_id.h"

namespace axccl::shm {
namespace {

using harness::RankContext;
using service::Fd;
using transport::ProcessAddress;
using transport::ProcessPage;

sockaddr_un SocketAddress(const char* name, socklen_t* bytes) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(name);
  std::memcpy(address.sun_path + 1, name, length);
  *bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

Fd Dial(const ProcessAddress& to) {
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  socklen_t bytes;
  const sockaddr_un address = SocketAddress(to.socket.data(), &bytes);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) return Fd();
  return fd;
}

// Returns the number of bytes in the answer to `request` (0: the connection was closed), and the number of descriptors
// with it.
ssize_t Ask(const ProcessAddress& to, const void* request, size_t bytes, Reply* reply, int* descriptors) {
  const Fd fd = Dial(to);
  if (!fd) return -1;
  (void)!send(fd.get(), request, bytes, MSG_NOSIGNAL);
  iovec data{reply, sizeof *reply};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = recvmsg(fd.get(), &message, MSG_CMSG_CLOEXEC);
  *descriptors = 0;
  if (n > 0 && CMSG_FIRSTHDR(&message) != nullptr) {
    *descriptors = 1;
    int number;
    std::memcpy(&number, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof number);
    close(number);
  }
  return n < 0 && errno == ECONNRESET ? 0 : n;
}

TEST(HostileClientTest, OnlyTheTokenOpens) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    const ProcessAddress self = SelfAddress().value();
    Reply reply;
    int descriptors = 0;
    Request request;
    request.token = self.token;
    ASSERT_EQ(Ask(self, &request, sizeof request, &reply, &descriptors), static_cast<ssize_t>(sizeof reply));
    EXPECT_EQ(descriptors, 1);
    EXPECT_EQ(reply.heap_bytes, self.heap_bytes);
    for (size_t i = 0; i < request.token.size(); ++i) {
      Request wrong = request;
      wrong.token[i] ^= 1;
      EXPECT_EQ(Ask(self, &wrong, sizeof wrong, &reply, &descriptors), static_cast<ssize_t>(sizeof reply));
      EXPECT_EQ(reply.heap_bytes, 0u);
      EXPECT_EQ(descriptors, 0);
    }
    Request version = request;
    ++version.version;
    Ask(self, &version, sizeof version, &reply, &descriptors);
    EXPECT_EQ(descriptors, 0);
    Request magic = request;
    magic.magic ^= 1;
    EXPECT_EQ(Ask(self, &magic, sizeof magic, &reply, &descriptors), 0);
    EXPECT_EQ(Ask(self, &request, sizeof request - 1, &reply, &descriptors), 0) << "short";
    char longer[sizeof request + 1] = {};
    std::memcpy(longer, &request, sizeof request);
    EXPECT_EQ(Ask(self, longer, sizeof longer, &reply, &descriptors), 0) << "long";
  });
}

// The number of the process's descriptors that can be opened through /proc.
int OpenedOf(pid_t process) {
  int opened = 0;
  for (int fd = 0; fd < 64; ++fd) {
    const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(fd);
    opened += static_cast<bool>(Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)));
  }
  return opened;
}

// Even if it knows everything that peers know.
TEST(HostileClientTest, AnotherUserReachesNoMemory) {
  if (!harness::MayActForOthers()) GTEST_SKIP() << "only root may act for other users, and not in every container";
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    const ProcessAddress self = SelfAddress().value();
    const auto heap = reinterpret_cast<uint64_t>(Heap::Get().value()->base());
    const pid_t process = getpid();
    ASSERT_TRUE(CanCallCopy(self.pid, heap, ProcessPage::kMagic)) << "the same user has access";
    ASSERT_GT(OpenedOf(process), 0);
    const pid_t child = fork();
    if (child == 0) {
      if (setresuid(65534, 65534, 65534) != 0) _exit(99);
      uint64_t word = 0;
      _exit(OpenedOf(process) != 0 || CallRead(self.pid, &word, heap, sizeof word).ok());
    }
    EXPECT_EQ(AwaitChild(child), 0);
  });
}

TEST(HostileClientTest, AnotherUserIsCut) {
  if (!harness::MayActForOthers()) GTEST_SKIP() << "only root may act for other users, and not in every container";
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    const ProcessAddress self = SelfAddress().value();
    const pid_t child = fork();
    if (child == 0) {
      if (setresuid(65534, 65534, 65534) != 0) _exit(99);
      Request request;
      request.token = self.token;
      Reply reply;
      int descriptors = 0;
      const ssize_t n = Ask(self, &request, sizeof request, &reply, &descriptors);
      _exit(n > 0 || descriptors != 0);
    }
    EXPECT_EQ(AwaitChild(child), 0);
  });
}

TEST(HostileClientTest, SilenceAndGarbageBlockNoClient) {
  harness::RunRanks(harness::Processes(2), [](RankContext& context) {
    const Result<ProcessAddress> self = SelfAddress();
    ASSERT_TRUE(self.ok()) << self.status().message();
    Publish(context, context.rank(), self.value());
    ASSERT_TRUE(context.Barrier());
    const ProcessAddress address = Published(context, 1 - context.rank());
    harness::Random random(harness::Scramble(harness::Seed(), static_cast<uint64_t>(context.rank())));
    std::vector<Fd> silent;
    for (int i = 0; i < 200; ++i) {
      Fd fd = Dial(address);
      ASSERT_TRUE(fd);
      if (i % 4 == 0) {
        std::vector<uint64_t> garbage(1 + random.Below(100));
        for (uint64_t& word : garbage) word = random.Next();
        (void)!send(fd.get(), garbage.data(), garbage.size() * 8 - random.Below(8), MSG_NOSIGNAL);
      }
      silent.push_back(std::move(fd));
      if (i % 50 != 49) continue;
      const auto peer = Attach(address, Clock::now() + std::chrono::seconds(10) * harness::TimeScale(), nullptr);
      ASSERT_TRUE(peer.ok()) << peer.status().message();
    }
    EXPECT_LT(CountDescriptors(), 200 + 64 + 40) << "the number of connections is limited";
    // The first connections are closed already, to make room for later ones.
    char byte;
    EXPECT_LE(recv(silent[1].get(), &byte, 1, 0), 0);
    ASSERT_TRUE(context.Barrier());
  });
}

// ---- servers that lie ----

// Serves one connection on a socket of its own with whatever `answer` sends.
class FakeOwner {
 public:
  explicit FakeOwner(const std::function<void(int fd, const ProcessAddress&)>& answer) {
    address_ = SelfAddress().value();
    address_.process_id[0] ^= 1;
    static int count = 0;
    std::snprintf(address_.socket.data(), address_.socket.size(), "axccl-test-%d-%d", getpid(), count++);
    listener_ = Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    socklen_t bytes;
    const sockaddr_un name = SocketAddress(address_.socket.data(), &bytes);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&name), bytes), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    thread_ = std::thread([this, answer] {
      const Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      Request request;
      if (recv(fd.get(), &request, sizeof request, 0) == sizeof request) answer(fd.get(), address_);
    });
  }
  ~FakeOwner() { thread_.join(); }

  ProcessAddress address_;

 private:
  Fd listener_;
  std::thread thread_;
};

void Answer(int fd, const Reply& reply, const std::vector<int>& descriptors) {
  iovec data{const_cast<Reply*>(&reply), sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  }
  (void)!sendmsg(fd, &message, MSG_NOSIGNAL);
}

Reply GoodReply(const ProcessAddress& address) {
  Reply reply;
  reply.pid = address.pid;
  reply.heap_bytes = address.heap_bytes;
  reply.process_id = address.process_id;
  return reply;
}

Fd MakeFile(size_t bytes, int seals, bool with_page) {
  Fd fd(memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (with_page) {
    ProcessPage page{};
    page.magic = ProcessPage::kMagic;
    page.version = ProcessPage::kVersion;
    EXPECT_EQ(pwrite(fd.get(), &page, sizeof page, 0), static_cast<ssize_t>(sizeof page));
  }
  EXPECT_TRUE(seals == 0 || fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status AttachTo(const std::function<void(int fd, const ProcessAddress&)>& answer) {
  FakeOwner owner(answer);
  return Attach(owner.address_, Clock::now() + std::chrono::seconds(10) * harness::TimeScale(), nullptr).status();
}

#define EXPECT_REFUSED(status_expression, text)                                           \
  {                                                                                       \
    const Status refused = status_expression;                                             \
    EXPECT_FALSE(refused.ok());                                                           \
    EXPECT_NE(refused.message().find(text), std::string_view::npos) << refused.message(); \
  }

TEST(HostileOwnerTest, FilesThatCouldChangeOrAreNotAsAnnouncedAreRefused) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_TRUE(SelfAddress().ok());
    const int before = CountDescriptors();
    EXPECT_TRUE(AttachTo([](int fd, const ProcessAddress& address) {
                  Answer(fd, GoodReply(address), {MakeFile(address.heap_bytes, kSealed, true).get()});
                }).ok());
    for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_GROW | F_SEAL_SEAL}) {
      EXPECT_REFUSED(AttachTo([seals](int fd, const ProcessAddress& address) {
                       Answer(fd, GoodReply(address), {MakeFile(address.heap_bytes, seals, true).get()});
                     }),
                     "sealed");
    }
    for (const int64_t difference : {-4096, 4096}) {
      EXPECT_REFUSED(AttachTo([difference](int fd, const ProcessAddress& address) {
                       const size_t bytes = address.heap_bytes + static_cast<size_t>(difference);
                       Answer(fd, GoodReply(address), {MakeFile(bytes, kSealed, true).get()});
                     }),
                     "announced");
    }
    EXPECT_REFUSED(AttachTo([](int fd, const ProcessAddress& address) {
                     Answer(fd, GoodReply(address), {MakeFile(address.heap_bytes, kSealed, false).get()});
                   }),
                   "not a heap");
    EXPECT_REFUSED(
        AttachTo([](int fd, const ProcessAddress& address) { Answer(fd, GoodReply(address), {STDIN_FILENO}); }),
        "memfd");
    EXPECT_EQ(CountDescriptors(), before);
    EXPECT_EQ(CountMappings("memfd:fake"), 0);
  });
}

TEST(HostileOwnerTest, HeapOfAnOwnerThatDiedMeanwhileIsRefused) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_TRUE(SelfAddress().ok());
    const Status status = AttachTo([](int fd, const ProcessAddress& address) {
      const Fd file = MakeFile(address.heap_bytes, kSealed, true);
      const uint32_t owner_died = 0x40000000;
      (void)!pwrite(file.get(), &owner_died, sizeof owner_died, offsetof(ProcessPage, liveness));
      Answer(fd, GoodReply(address), {file.get()});
    });
    EXPECT_EQ(status.code(), Code::kRemoteError) << status.message();
    EXPECT_EQ(CountMappings("memfd:fake"), 0);
  });
}

// Another user took over the name of a socket, and even gives correct answers.
TEST(HostileOwnerTest, AnotherUserIsNotBelieved) {
  if (!harness::MayActForOthers()) GTEST_SKIP() << "only root may act for other users, and not in every container";
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_TRUE(SelfAddress().ok());
    FakeOwner owner([](int fd, const ProcessAddress& address) {
      Answer(fd, GoodReply(address), {MakeFile(address.heap_bytes, kSealed, true).get()});
    });
    ASSERT_EQ(seteuid(65534), 0);
    EXPECT_REFUSED(Attach(owner.address_, Clock::now() + std::chrono::hours(1), nullptr).status(),
                   "is now held by user 0, not by user 65534");
    EXPECT_EQ(CountMappings("memfd:fake"), 0);
    ASSERT_EQ(seteuid(0), 0);
  });
}

TEST(HostileOwnerTest, AnswersOfTheWrongShapeAreRefused) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_TRUE(SelfAddress().ok());
    const int before = CountDescriptors();
    for (const size_t count : {0, 2, 3, 5, 16}) {
      EXPECT_REFUSED(AttachTo([count](int fd, const ProcessAddress& address) {
                       const Fd file = MakeFile(address.heap_bytes, kSealed, true);
                       Answer(fd, GoodReply(address), std::vector<int>(count, file.get()));
                     }),
                     "unexpected answer");
    }
    EXPECT_REFUSED(AttachTo([](int fd, const ProcessAddress& address) {
                     Reply reply = GoodReply(address);
                     reply.process_id[5] ^= 1;
                     Answer(fd, reply, {MakeFile(address.heap_bytes, kSealed, true).get()});
                   }),
                   "another process");
    EXPECT_REFUSED(AttachTo([](int fd, const ProcessAddress& address) {
                     Reply reply = GoodReply(address);
                     reply.heap_bytes = 1ull << 62;
                     Answer(fd, reply, {MakeFile(address.heap_bytes, kSealed, true).get()});
                   }),
                   "another process");
    EXPECT_REFUSED(AttachTo([](int fd, const ProcessAddress&) { (void)!send(fd, "hi", 2, MSG_NOSIGNAL); }),
                   "unexpected answer");
    EXPECT_REFUSED(AttachTo([](int, const ProcessAddress&) {}), "gone");
    EXPECT_EQ(CountDescriptors(), before) << "surplus descriptors are closed";
  });
}

}  // namespace
}  // namespace axccl::shm
