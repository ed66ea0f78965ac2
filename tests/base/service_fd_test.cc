// Descriptors whose numbers the program uses itself, and errors when none can be opened.
#include "src/base/service_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>

namespace axccl::service {
namespace {

int OpenFile() { return memfd_create("axccl-test", MFD_CLOEXEC); }
bool IsOpen(int number) { return fcntl(number, F_GETFD) >= 0; }

// Gives the number to a file of the program.
void Usurp(int number) {
  const int file = OpenFile();
  ASSERT_EQ(dup2(file, number), number);
  if (file != number) close(file);
}

// Returns the exit status of a forked child.
int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Fd, LeavesFilesOfTheProgramAlone) {
  Fd fd(OpenFile());
  const int number = fd.get();
  EXPECT_TRUE(fd.IsOurs());
  EXPECT_TRUE(fd.Check("a call").ok());
  close(number);
  EXPECT_FALSE(fd.IsOurs());
  Usurp(number);
  EXPECT_FALSE(fd.IsOurs());
  const Status lost = fd.Check("a call");
  EXPECT_EQ(lost.code(), Code::kInvalidUsage);
  const std::string words = "a call: the program closed descriptor " + std::to_string(number);
  EXPECT_NE(lost.message().find(words), std::string_view::npos) << lost.message();
  EXPECT_EQ(InChild([&] { return IsOpen(number) ? 0 : 1; }), 0);
  fd.Close();
  EXPECT_TRUE(IsOpen(number));
  close(number);
}

TEST(Fd, EndsItsOwnConnectionOnly) {
  int pair[2], later[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, later), 0);
  const Fd near(pair[0]), far(pair[1]), other(later[1]);
  near.ShutDown();
  EXPECT_EQ(send(far.get(), "x", 1, MSG_NOSIGNAL), -1);
  ASSERT_EQ(dup2(later[0], near.get()), near.get());
  close(later[0]);
  near.ShutDown();
  EXPECT_EQ(send(other.get(), "x", 1, MSG_NOSIGNAL), 1);
  close(near.get());
}

// What the program has closed may be followed by a descriptor of the library.
TEST(Fd, LeavesLaterDescriptorsOfTheLibraryAlone) {
  Fd first(OpenFile());
  const int number = first.get();
  close(number);
  const Fd second(OpenFile());
  ASSERT_EQ(second.get(), number);
  first.Close();
  EXPECT_TRUE(second.IsOurs());
  EXPECT_EQ(InChild([&] { return IsOpen(number) ? 1 : 0; }), 0);
}

TEST(Fd, IsNoStandardStream) {
  const auto body = [] {
    for (const int number : {0, 1, 2}) close(number);
    const Fd fd(OpenFile());
    if (fd.get() <= 2 || !fd.IsOurs() || (fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) == 0) return 1;
    return IsOpen(0) || IsOpen(1) || IsOpen(2) ? 2 : 0;
  };
  EXPECT_EQ(InChild(body), 0);
}

// When a call fails for lack of a descriptor and another thread then closes one, the limit is still the cause.
TEST(OpenError, NamesTheLimitEvenIfADescriptorIsFreeAgain) {
  ASSERT_TRUE(CheckRoom(1, "a socket").ok());
  const Status error = OpenError(EMFILE, "a socket");
  EXPECT_EQ(error.code(), Code::kSystemError);
  EXPECT_NE(error.message().find("a socket needs 1 file descriptor, but process "), std::string::npos)
      << error.message();
  EXPECT_NE(error.message().find("ulimit -n"), std::string::npos) << error.message();
}

TEST(OpenError, PassesOtherErrorsOn) {
  EXPECT_EQ(OpenError(EACCES, "a socket").message().find("ulimit"), std::string::npos);
}

}  // namespace
}  // namespace axccl::service
