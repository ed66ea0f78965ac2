// Pretended machines for tests: network namespaces on a network that can be made slow, lossy or broken.
//
// Every host has one interface, eth0, an IPv4 and an IPv6 address, loopback, and a name; a bridge in a namespace of its
// own joins them. With several NICs there are eth1 and so on, each of a network and a bridge of its own. The namespaces
// have no names and no processes: they exist because this process holds descriptors of them, so nothing is left once it
// and those it forked have ended, however they end. Nothing appears in the namespace of the test.
//
// Packets are dropped where they come in at the other side of a link: to a sender it is the network that loses them.
// Needs root (or the like); where that is missing, Missing() says so. Create and destroy in the test process; the rest
// may be called from processes forked later, too. Thread-safe after Create.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace axccl::harness {

class TestHosts {
 public:
  enum class Way { kBoth, kIn, kOut };  // seen from the host

  // Why there can be no hosts here; empty where there can.
  static const std::string& Missing();
  // Exit status of a test program whose tests all need hosts: 0 where there can be any. Else 77 (CTest: skipped), and
  // says why; or 1 with AXCCL_TEST_REQUIRE_HOSTS=1.
  static int CheckPresence();

  // Null with a GoogleTest failure where it does not work.
  static std::unique_ptr<TestHosts> Create(int hosts, int nics = 1);
  ~TestHosts();
  TestHosts(const TestHosts&) = delete;
  TestHosts& operator=(const TestHosts&) = delete;

  int size() const { return static_cast<int>(hosts_.size()); }
  static constexpr const char* kInterface = "eth0";
  // What the host that the calling process lives on has counted: "rx_bytes".
  static int64_t Counter(int nic, const std::string& name);
  static std::string Name(int host);  // "host-0"
  static std::string Interface(int nic) { return "eth" + std::to_string(nic); }
  static std::string Address(int host, int nic = 0);  // IPv4
  static std::string Address6(int host, int nic = 0);

  // The calling process, which must have one thread, lives on the host from now on: network, /sys, host name. False
  // with a text on stderr where it does not work.
  bool Enter(int host) const;
  // The same with a descriptor of the host's namespace; see descriptor().
  static bool EnterBy(int descriptor, int host);
  int descriptor(int host) const { return hosts_[static_cast<size_t>(host)]; }
  // Only the network, of the calling thread.
  bool EnterNetwork(int host) const;
  // Runs a program on the host and returns its exit status, -1 where it did not come to that.
  int Run(int host, const std::vector<std::string>& arguments) const;

  // Each returns false where it does not work. `rate` as tc writes it: "10mbit"; of both ways, of each NIC for itself.
  bool Limit(int host, const std::string& rate) const;
  // Takes a NIC out of service, as its driver does when the cable is pulled.
  bool PullCable(int host, int nic) const;
  // Loses packets of both ways at random, of all NICs. 100 and more: all of them.
  bool Lose(int host, double percent) const { return Drop(host, Way::kBoth, percent); }
  bool Cut(int host, Way way) const { return Drop(host, way, 100); }
  // Ends Lose and Cut.
  bool Heal(int host) const;

 private:
  TestHosts() = default;
  bool Build(int hosts);
  bool AddNic(int nic) const;
  bool Drop(int host, Way way, double percent) const;
  bool Filter(int name_space, const std::string& device, double percent) const;

  int nics_ = 1;
  std::vector<int> hosts_;  // descriptors of namespaces
  int bridge_ = -1;
};

}  // namespace axccl::harness
