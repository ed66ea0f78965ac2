#include "src/boot/interfaces.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>

namespace axccl::boot {
namespace {

struct NameFilter {
  bool exclude = false;
  bool exact = false;
  std::vector<std::string> names;

  bool Listed(const std::string& name) const {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& wanted) { return exact ? name == wanted : name.starts_with(wanted); });
  }
};

NameFilter ParseFilter(std::string_view text) {
  NameFilter filter;
  if (text.starts_with('^')) {
    filter.exclude = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    filter.exact = true;
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma != 0) filter.names.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return filter;
}

bool LinkLocal(const Address& address) {
  return address.family == 6 && address.ip[0] == 0xfe && (address.ip[1] & 0xc0) == 0x80;
}

// One address a family, in the order the interface has them.
std::vector<Address> Pick(const Interface& interface, int only_family) {
  std::vector<Address> picked;
  for (const int family : {4, 6}) {
    if (only_family != 0 && family != only_family) continue;
    const auto found = std::find_if(interface.addresses.begin(), interface.addresses.end(),
                                    [&](const Address& address) { return address.family == family; });
    if (found != interface.addresses.end()) picked.push_back(*found);
  }
  return picked;
}

std::string Names(const std::vector<Interface>& interfaces) {
  std::string text;
  for (const Interface& interface : interfaces) {
    text += (text.empty() ? "" : ", ") + interface.name;
    for (const Address& address : interface.addresses) {
      std::string shown = ToText(address);
      shown.resize(shown.rfind(':'));
      text += " " + shown;
    }
  }
  return text.empty() ? "none" : text;
}

}  // namespace

Result<std::vector<Interface>> ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return SystemError(errno, "listing network interfaces: getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> guard(list, freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    Address address = FromSockaddr(entry->ifa_addr);
    if (address.family == 0 || LinkLocal(address)) continue;
    auto found = std::find_if(interfaces.begin(), interfaces.end(),
                              [&](const Interface& known) { return known.name == entry->ifa_name; });
    if (found == interfaces.end()) {
      found =
          interfaces.insert(interfaces.end(), Interface{entry->ifa_name, (entry->ifa_flags & IFF_LOOPBACK) != 0, {}});
    }
    found->addresses.push_back(address);
  }
  return interfaces;
}

Result<std::vector<Address>> SelectAddresses(const std::vector<Interface>& interfaces, std::string_view ifname,
                                             std::string_view family) {
  if (!family.empty() && family != "AF_INET" && family != "AF_INET6") {
    return MakeStatus(Code::kInvalidUsage, "NCCL_SOCKET_FAMILY=%.*s: expected AF_INET or AF_INET6",
                      static_cast<int>(family.size()), family.data());
  }
  const int only_family = family.empty() ? 0 : family == "AF_INET" ? 4 : 6;
  const NameFilter filter = ParseFilter(ifname);
  // Excluding names leaves open which of the others is meant: one that leads out of the machine, if there is any.
  for (const bool loopback : {false, true}) {
    for (const Interface& interface : interfaces) {
      if (ifname.empty() ? !interface.loopback : filter.Listed(interface.name) == filter.exclude) continue;
      if (!ifname.empty() && filter.exclude && interface.loopback != loopback) continue;
      std::vector<Address> picked = Pick(interface, only_family);
      if (ifname.empty() && picked.size() > 1) picked.resize(1);
      if (!picked.empty()) return picked;
    }
  }
  return MakeStatus(Code::kInvalidUsage,
                    "NCCL_SOCKET_IFNAME=%.*s NCCL_SOCKET_FAMILY=%.*s: no interface that is up matches; there are: %s",
                    static_cast<int>(ifname.size()), ifname.data(), static_cast<int>(family.size()), family.data(),
                    Names(interfaces).c_str());
}

Result<std::vector<std::string>> SelectNames(const std::vector<Interface>& interfaces, std::string_view ifname,
                                             std::string_view family) {
  // Bridges of containers have the same addresses on every machine.
  static constexpr std::string_view kDefault = "^lo,docker,virbr";
  const bool asked = !ifname.empty();
  const NameFilter filter = ParseFilter(asked ? ifname : kDefault);
  const int only_family = family.empty() ? 0 : family == "AF_INET" ? 4 : 6;
  std::vector<std::string> names, loopback;
  for (const Interface& interface : interfaces) {
    if (Pick(interface, only_family).empty()) continue;
    if (filter.Listed(interface.name) != filter.exclude) names.push_back(interface.name);
    if (interface.loopback) loopback.push_back(interface.name);
  }
  if (names.empty() && !asked) names = loopback;
  if (!names.empty()) return names;
  AXCCL_RETURN_IF_ERROR(SelectAddresses(interfaces, ifname, family).status());
  return MakeStatus(Code::kInvalidUsage, "no network interface to send over; there are: %s", Names(interfaces).c_str());
}

}  // namespace axccl::boot
