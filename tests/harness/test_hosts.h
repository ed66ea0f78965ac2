// Pretended machines for tests: network namespaces on a network that can be made slow, lossy or broken.
//
// Every host has one interface, eth0, an IPv4 and an IPv6 address, loopback, and a name; a bridge in a namespace of its
// own connects them. With several NICs there are eth1 and so on, each with a network and a bridge of its own. The
// namespaces have no names and no processes: they exist because this process holds descriptors of them, so nothing is
// left once it and those it forked have ended, however they end. Nothing appears in the namespace of the test.
//
// Packets are dropped where they arrive at the other side of a link, so a sender sees a network that loses them. Needs
// root (or the like); Missing() returns what is missing. Create and destroy in the test process; processes forked later
// may also call the other functions. Thread-safe after Create.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace axccl::harness {

class TestHosts {
 public:
  enum class Way { kBoth, kIn, kOut };  // seen from the host

  // The reason why hosts cannot be made here; empty if they can.
  static const std::string& Missing();
  // The exit status of a test program whose tests all need hosts: 0 if they can be made. Otherwise prints why, and
  // returns 77 (CTest: skipped), or 1 with AXCCL_TEST_REQUIRE_HOSTS=1.
  static int CheckPresence();

  // Returns null, with a GoogleTest failure, if it fails.
  static std::unique_ptr<TestHosts> Create(int hosts, int nics = 1);
  ~TestHosts();
  TestHosts(const TestHosts&) = delete;
  TestHosts& operator=(const TestHosts&) = delete;

  int size() const { return static_cast<int>(hosts_.size()); }
  static constexpr const char* kInterface = "eth0";
  // A counter, such as "rx_bytes", of the host on which the calling process runs.
  static int64_t Counter(int nic, const std::string& name);
  // The TCP connections of the calling process to other hosts.
  static std::vector<int> Connections();
  static std::string Name(int host);  // "host-0"
  static std::string Interface(int nic) { return "eth" + std::to_string(nic); }
  static std::string Address(int host, int nic = 0);  // IPv4
  static std::string Address6(int host, int nic = 0);

  // Moves the calling process, which must have one thread, to the host: network, /sys, host name. Returns false, with a
  // text on stderr, if it fails.
  bool Enter(int host) const;
  // The same with a descriptor of the host's namespace; see descriptor().
  static bool EnterBy(int descriptor, int host);
  int descriptor(int host) const { return hosts_[static_cast<size_t>(host)]; }
  // Moves only the network of the calling thread.
  bool EnterNetwork(int host) const;
  // Runs a program on the host and returns its exit status; -1 if it could not be started.
  int Run(int host, const std::vector<std::string>& arguments) const;

  // Each returns false if it fails. `rate` as tc writes it: "10mbit"; for each direction and each NIC. After a pause,
  // `burst` bytes pass at once.
  bool Limit(int host, const std::string& rate, const std::string& burst = "256kb") const;
  // Takes a NIC out of service, as its driver does when the cable is pulled.
  bool PullCable(int host, int nic) const;
  // Loses packets of both directions at random, on all NICs. 100 and more: all packets.
  bool Lose(int host, double percent) const { return Drop(host, Way::kBoth, percent); }
  bool Cut(int host, Way way) const { return Drop(host, way, 100); }
  bool CutNic(int host, int nic) const { return DropAt(host, nic, Way::kBoth, 100); }
  // Ends Lose, Cut and CutNic.
  bool Heal(int host) const;

 private:
  TestHosts() = default;
  bool Build(int hosts);
  bool AddNic(int nic) const;
  bool Drop(int host, Way way, double percent) const;
  bool DropAt(int host, int nic, Way way, double percent) const;
  bool Filter(int name_space, const std::string& device, double percent) const;

  int nics_ = 1;
  std::vector<int> hosts_;  // descriptors of namespaces
  int bridge_ = -1;
};

}  // namespace axccl::harness
