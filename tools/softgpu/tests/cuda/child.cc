#include "tools/softgpu/tests/cuda/child.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>

extern char** environ;

namespace softgpu::test {
namespace {

std::map<std::string, ChildFunction>& Functions() {
  static std::map<std::string, ChildFunction> functions;
  return functions;
}

constexpr char kFunction[] = "SOFTGPU_TEST_CHILD", kArgument[] = "SOFTGPU_TEST_ARGUMENT";
// The descriptor of a child's end of the channel.
constexpr int kChannel = 99;

}  // namespace

RegisterChild::RegisterChild(const char* name, ChildFunction function) { Functions()[name] = function; }

Child::Child(const std::string& name, const std::string& argument,
             const std::vector<std::pair<std::string, std::string>>& environment) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) abort();
  channel_ = ends[0];
  std::vector<std::string> settings = {std::string(kFunction) + "=" + name, std::string(kArgument) + "=" + argument};
  for (const auto& [key, value] : environment) settings.push_back(key + "=" + value);
  std::vector<char*> pointers;
  for (std::string& setting : settings) pointers.push_back(setting.data());
  for (char** entry = environ; *entry != nullptr; ++entry) pointers.push_back(*entry);
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kChannel);
  char program[] = "/proc/self/exe";
  char* arguments[] = {program, nullptr};
  if (posix_spawn(&pid_, program, &actions, nullptr, arguments, pointers.data()) != 0) abort();
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
}

Child::~Child() {
  if (pid_ > 0) {
    Kill();
    Wait();
  }
  close(channel_);
}

int Child::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Child::Kill() { kill(pid_, SIGKILL); }

void SendBytes(int channel, const void* data, size_t bytes) {
  if (send(channel, data, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) abort();
}
bool ReceiveBytes(int channel, void* data, size_t bytes) {
  return recv(channel, data, bytes, 0) == static_cast<ssize_t>(bytes);
}
void SendSignal(int channel) { SendBytes(channel, "", 1); }
bool AwaitSignal(int channel) {
  char byte;
  return ReceiveBytes(channel, &byte, 1);
}

void SendDescriptor(int channel, int descriptor) {
  char byte = 0;
  iovec text = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  sendmsg(channel, &message, 0);
}

int ReceiveDescriptor(int channel) {
  char byte = 0;
  iovec text = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(channel, &message, 0) != 1 || CMSG_FIRSTHDR(&message) == nullptr) return -1;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
  return descriptor;
}

namespace {

// Runs before GoogleTest runs tests: a child never reaches them.
class RunChild : public testing::Environment {
 public:
  void SetUp() override {
    const char* name = std::getenv(kFunction);
    if (name == nullptr) return;
    const std::string function = name, argument = std::getenv(kArgument);
    _exit(Functions().at(function)(argument, kChannel));
  }
};
const testing::Environment* const g_run_child = testing::AddGlobalTestEnvironment(new RunChild);

}  // namespace
}  // namespace softgpu::test
