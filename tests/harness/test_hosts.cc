#include "tests/harness/test_hosts.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "tests/harness/mounts.h"

namespace axccl::harness {
namespace {

// Returns a descriptor of a new namespace; -1 with errno.
int MakeNetwork() {
  int descriptor = -1, error = 0;
  // A separate thread, because a thread may leave the namespace of its process.
  std::thread([&] {
    if (unshare(CLONE_NEWNET) == 0) descriptor = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    error = errno;
  }).join();
  errno = error;
  return descriptor;
}

// Runs a program in a namespace (-1: this one), with `input` for it to read.
int RunIn(int name_space, const std::vector<std::string>& arguments, const std::string& input) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  std::vector<char*> words;
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[0], STDIN_FILENO);
    if (name_space >= 0 && setns(name_space, CLONE_NEWNET) != 0) _exit(126);
    execvp(words[0], words.data());
    _exit(127);
  }
  close(ends[0]);
  [[maybe_unused]] const ssize_t written = write(ends[1], input.data(), input.size());  // less than a pipe holds
  close(ends[1]);
  int status = 0;
  if (pid < 0) return -1;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Whether a process in another network may have its own /sys: 0, or the error.
int TryMounts() {
  const pid_t pid = fork();
  if (pid == 0) _exit(unshare(CLONE_NEWNS | CLONE_NEWNET) == 0 && MountOver("sysfs", "/sys") ? 0 : errno);
  int status = 0;
  if (pid < 0) return errno;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

// Lines for `ip` or `tc`.
bool Batch(int name_space, const char* tool, const std::string& lines) {
  return RunIn(name_space, {tool, "-batch", "-"}, lines) == 0;
}

// The bridge's interface, where a NIC's cable ends.
std::string Port(int host, int nic) {
  return "port" + std::to_string(host) + (nic > 0 ? "-" + std::to_string(nic) : "");
}
std::string Bridge(int nic) { return "hub" + std::to_string(nic); }

// Classic BPF, so that no compiler is needed: drops a packet if a random number is below the threshold. 2 is
// TC_ACT_SHOT, ~0 continues; 0xfffff038 reads random bits (SKF_AD_OFF + SKF_AD_RANDOM).
std::string DropCode(double percent) {
  if (percent >= 100) return "1,6 0 0 2";
  const auto threshold = static_cast<uint32_t>(percent / 100 * 4294967295.0);
  return "4,32 0 0 4294963256,53 0 1 " + std::to_string(threshold) + ",6 0 0 4294967295,6 0 0 2";
}

}  // namespace

std::string TestHosts::Name(int host) { return "host-" + std::to_string(host); }
std::vector<int> TestHosts::Connections() {
  std::vector<int> found;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in own{}, peer{};
    socklen_t own_bytes = sizeof own, peer_bytes = sizeof peer;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) == 0 && own.sin_family == AF_INET &&
        getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0 &&
        own.sin_addr.s_addr != peer.sin_addr.s_addr)
      found.push_back(fd);
  }
  return found;
}

int64_t TestHosts::Counter(int nic, const std::string& name) {
  int64_t count = -1;
  std::ifstream("/sys/class/net/" + Interface(nic) + "/statistics/" + name) >> count;
  return count;
}

std::string TestHosts::Address(int host, int nic) {
  return "10." + std::to_string(77 + nic) + ".0." + std::to_string(host + 1);
}
std::string TestHosts::Address6(int host, int nic) {
  return "fd" + std::to_string(77 + nic) + "::" + std::to_string(host + 1);
}

const std::string& TestHosts::Missing() {
  static const std::string why = [] {
    const int made = MakeNetwork();
    if (made < 0) return std::string("making a network namespace: ") + std::strerror(errno);
    close(made);
    if (!Batch(-1, "ip", "") || !Batch(-1, "tc", "")) return std::string("no ip or tc (Debian: iproute2)");
    if (const int error = TryMounts(); error != 0)
      return std::string("mounting /sys anew: ") + std::strerror(error) +
             (error == EINVAL ? " (a chroot? Make its folder a mount point first: mount --rbind DIR DIR)" : "");
    return std::string();
  }();
  return why;
}

int TestHosts::CheckPresence() {
  if (Missing().empty()) return 0;
  const char* const required = std::getenv("AXCCL_TEST_REQUIRE_HOSTS");
  const bool fails = required != nullptr && required[0] == '1';
  std::fprintf(stderr, "%s: these tests need hosts made of network namespaces: %s\n", fails ? "FAILED" : "SKIPPED",
               Missing().c_str());
  return fails ? 1 : 77;
}

std::unique_ptr<TestHosts> TestHosts::Create(int hosts, int nics) {
  std::unique_ptr<TestHosts> made(new TestHosts);
  made->nics_ = nics;
  if (Missing().empty() && made->Build(hosts)) return made;
  ADD_FAILURE() << "could not make " << hosts << " hosts: " << Missing();
  return nullptr;
}

TestHosts::~TestHosts() {
  for (const int host : hosts_) close(host);
  if (bridge_ >= 0) close(bridge_);
}

bool TestHosts::Build(int hosts) {
  bridge_ = MakeNetwork();
  for (int i = 0; i < hosts; ++i) hosts_.push_back(MakeNetwork());
  if (bridge_ < 0 || std::count(hosts_.begin(), hosts_.end(), -1) != 0) return false;
  for (int i = 0; i < hosts; ++i)
    if (!Batch(hosts_[static_cast<size_t>(i)], "ip", "link set lo up\n")) return false;
  for (int nic = 0; nic < nics_; ++nic)
    if (!AddNic(nic)) return false;
  return true;
}

// Adds one NIC to each host, and the bridge that connects them.
bool TestHosts::AddNic(int nic) const {
  std::string tc, ip = "link add " + Bridge(nic) + " type bridge forward_delay 0 stp_state 0 mcast_snooping 0\n" +
                       "link set " + Bridge(nic) + " up\n";
  const std::string own = "/proc/" + std::to_string(getpid()) + "/fd/", eth = Interface(nic);
  for (int i = 0; i < size(); ++i) {
    ip += "link add " + Port(i, nic) + " type veth peer name " + eth + " netns " + own + std::to_string(descriptor(i)) +
          "\n";
    ip += "link set " + Port(i, nic) + " master " + Bridge(nic) + " up\n";
    tc += "qdisc add dev " + Port(i, nic) + " clsact\n";
  }
  if (!Batch(bridge_, "ip", ip) || !Batch(bridge_, "tc", tc)) return false;
  for (int i = 0; i < size(); ++i) {
    // The kernel adds an IPv6 address's own route some time after the address; until then, it would search for the
    // address on the network.
    const std::string lines = "link set " + eth + " up\nroute add local " + Address6(i, nic) +
                              " dev lo table local\naddr add " + Address(i, nic) + "/24 dev " + eth + "\naddr add " +
                              Address6(i, nic) + "/64 dev " + eth + " nodad\n";
    if (!Batch(descriptor(i), "ip", lines) || !Batch(descriptor(i), "tc", "qdisc add dev " + eth + " clsact\n"))
      return false;
  }
  return true;
}

bool TestHosts::Enter(int host) const { return EnterBy(descriptor(host), host); }

bool TestHosts::EnterBy(int descriptor, int host) {
  const auto failed = [](const char* what) {
    std::fprintf(stderr, "entering a host: %s: %s\n", what, std::strerror(errno));
    return false;
  };
  if (setns(descriptor, CLONE_NEWNET) != 0) return failed("setns");
  // /sys lists the network devices of the namespace it was mounted in.
  if (unshare(CLONE_NEWNS | CLONE_NEWUTS) != 0) return failed("unshare");
  if (!MountOver("sysfs", "/sys")) return failed("mount /sys");
  const std::string name = Name(host);
  return sethostname(name.data(), name.size()) == 0 || failed("sethostname");
}

int TestHosts::Run(int host, const std::vector<std::string>& arguments) const {
  return RunIn(hosts_[static_cast<size_t>(host)], arguments, "");
}

bool TestHosts::Limit(int host, const std::string& rate, const std::string& burst) const {
  const std::string rule = " root tbf burst " + burst + " latency 100ms rate " + rate + "\n";
  for (int nic = 0; nic < nics_; ++nic) {
    if (!Batch(descriptor(host), "tc", "qdisc replace dev " + Interface(nic) + rule) ||
        !Batch(bridge_, "tc", "qdisc replace dev " + Port(host, nic) + rule))
      return false;
  }
  return true;
}

bool TestHosts::PullCable(int host, int nic) const {
  return Batch(descriptor(host), "ip", "link set " + Interface(nic) + " down\n");
}

bool TestHosts::Filter(int name_space, const std::string& device, double percent) const {
  const std::string filter = "filter replace dev " + device + " ingress prio 1 handle 1 bpf da bytecode \"";
  return Batch(name_space, "tc", filter + DropCode(percent) + "\"\n");
}

bool TestHosts::Drop(int host, Way way, double percent) const {
  for (int nic = 0; nic < nics_; ++nic) {
    if (!DropAt(host, nic, way, percent)) return false;
  }
  return true;
}

bool TestHosts::DropAt(int host, int nic, Way way, double percent) const {
  return (way == Way::kOut || Filter(descriptor(host), Interface(nic), percent)) &&
         (way == Way::kIn || Filter(bridge_, Port(host, nic), percent));
}

bool TestHosts::EnterNetwork(int host) const { return setns(hosts_[static_cast<size_t>(host)], CLONE_NEWNET) == 0; }

// Installs a filter that drops nothing, because there may be none to remove.
bool TestHosts::Heal(int host) const { return Lose(host, 0); }

}  // namespace axccl::harness
