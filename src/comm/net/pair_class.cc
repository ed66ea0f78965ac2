#include "src/comm/net/pair_class.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "src/base/files.h"
#include "src/boot/interfaces.h"

namespace axccl::comm {

namespace {

template <size_t N>
void Store(std::string_view text, char (&field)[N]) {
  const size_t bytes = std::min(text.size(), N - 1);
  std::copy_n(text.begin(), bytes, field);
  std::fill(field + bytes, field + N, '\0');
}

// Another rank wrote the text, and it goes into files and logs.
template <size_t N>
std::string Load(const char (&field)[N]) {
  std::string text(field, std::find(field, field + N, '\0'));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

std::string Attribute(const std::string& device, const char* name) {
  const std::string value = FirstLine("/sys/class/net/" + device + "/" + name);
  return value.empty() ? "?" : value;
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : std::string(" ") + name + "=" + value;
}

// The subnet of an address of this machine; "" if it is not known.
std::string SubnetOf(const boot::Address& address) {
  const Result<std::vector<boot::Interface>> interfaces = boot::ListInterfaces();
  if (!interfaces.ok()) return "";
  for (const boot::Interface& interface : interfaces.value()) {
    if (std::string network = boot::NetworkOf(interface, address); !network.empty()) return network;
  }
  return "";
}

std::string NameOf(const NetworkText& a, const NetworkText& b) {
  const std::string subnet = Load(a.subnet), ways = Load(a.devices) + " - " + Load(b.devices);
  if (Load(a.address) == Load(b.address)) return ways + ", one machine";
  return ways + (subnet == Load(b.subnet) ? ", subnet " : ", routed from ") + (subnet.empty() ? "?" : subnet);
}

}  // namespace

NetworkText DescribeNetwork(const std::vector<std::string>& devices, const boot::Address& address,
                            const std::vector<std::string>& networks) {
  std::string text;
  for (size_t i = 0; i < devices.size(); ++i) {
    text += text.empty() ? "" : ", ";
    text += devices[i] + " " + Attribute(devices[i], "speed") + " Mbit/s mtu " + Attribute(devices[i], "mtu");
    if (i < networks.size()) text += " on " + networks[i];
  }
  text += Environment("UCX_TLS") + Environment("UCX_NET_DEVICES");
  NetworkText network{};
  Store(text, network.devices);
  Store(SubnetOf(address), network.subnet);
  Store(boot::HostText(address), network.address);
  return network;
}

std::vector<PairClass> FindPairClasses(std::span<const int> machine_of, std::span<const NetworkText> networks) {
  std::vector<PairClass> classes;
  for (size_t rank = 0; rank < machine_of.size() && classes.size() < kMostClasses; ++rank) {
    if (machine_of[rank] == machine_of[0]) continue;
    const std::string name = NameOf(networks[0], networks[rank]);
    const bool known = std::any_of(classes.begin(), classes.end(), [&](const PairClass& c) { return c.name == name; });
    if (!known) classes.push_back({name, static_cast<int>(rank)});
  }
  return classes;
}

}  // namespace axccl::comm
