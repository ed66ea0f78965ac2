#include "src/boot/interfaces.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "src/base/name_filter.h"
#include "src/base/service_fd.h"

namespace axccl::boot {
namespace {

bool LinkLocal(const Address& address) {
  return address.family == 6 && address.ip[0] == 0xfe && (address.ip[1] & 0xc0) == 0x80;
}

// The first address of each family.
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

// Docker names the bridges of its networks br- and twelve hexadecimal digits; br-ex and the like belong to others.
bool IsDockerNetwork(std::string_view name) {
  return name.size() == 15 && name.starts_with("br-") &&
         name.find_first_not_of("0123456789abcdef", 3) == std::string_view::npos;
}

bool IsOfContainers(std::string_view name) {
  static constexpr std::string_view kPrefixes[] = {"docker", "virbr",   "veth", "vnet",  "cni",
                                                   "cali",   "flannel", "lxc",  "lxdbr", "podman"};
  return IsDockerNetwork(name) || std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                                              [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// The selection of NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY, applied to interfaces.
class Choice {
 public:
  static Result<Choice> Make(std::string_view ifname, std::string_view family) {
    if (!family.empty() && family != "AF_INET" && family != "AF_INET6") {
      return MakeStatus(Code::kInvalidUsage, "NCCL_SOCKET_FAMILY=%.*s: expected AF_INET or AF_INET6",
                        static_cast<int>(family.size()), family.data());
    }
    Choice choice;
    choice.filter_ = NameFilter(ifname);
    choice.family_ = family.empty() ? 0 : family == "AF_INET" ? 4 : 6;
    return choice;
  }

  std::vector<Address> Addresses(const Interface& interface) const { return Pick(interface, family_); }

  // Returns why the interface is not usable; empty: it is.
  std::string WhyNot(const Interface& interface) const {
    if (!interface.up) return "down";
    if (Addresses(interface).empty()) {
      return family_ == 0 ? "no address" : family_ == 4 ? "no IPv4 address" : "no global IPv6 address";
    }
    if (!filter_.empty()) return filter_.Takes(interface.name) ? "" : filter_.excludes() ? "excluded" : "not asked for";
    if (interface.loopback) return "loopback";
    if (!interface.carrier) return "no carrier";
    if (IsOfContainers(interface.name)) return "belongs to containers or virtual machines";
    return "";
  }

  // Returns the usable interfaces, best first. A list that only excludes names does not say which of the others to use:
  // one that leads out of the machine, if there is any. If the user selected nothing, loopback serves the ranks of this
  // machine when nothing better exists.
  std::vector<const Interface*> Usable(const std::vector<Interface>& interfaces) const {
    std::vector<const Interface*> usable;
    for (const Interface& interface : interfaces) {
      if (WhyNot(interface).empty()) usable.push_back(&interface);
    }
    if (filter_.excludes()) {
      std::stable_partition(usable.begin(), usable.end(), [](const Interface* each) { return !each->loopback; });
    }
    if (filter_.empty() && usable.empty()) {
      for (const Interface& interface : interfaces) {
        if (interface.loopback && interface.up && !Addresses(interface).empty()) usable.push_back(&interface);
      }
    }
    return usable;
  }

  // "lo 127.0.0.1 (loopback), ib0 (down)".
  std::string Describe(const std::vector<Interface>& interfaces) const {
    std::string text;
    for (const Interface& interface : interfaces) {
      text += (text.empty() ? "" : ", ") + interface.name;
      for (const Address& address : interface.addresses) text += " " + HostText(address);
      const std::string reason = WhyNot(interface);
      text += " (" + (reason.empty() ? "usable" : reason) + ")";
    }
    return text.empty() ? "none" : text;
  }

 private:
  NameFilter filter_{""};
  int family_ = 0;
};

Status NothingMatches(const Choice& choice, const std::vector<Interface>& interfaces, std::string_view ifname,
                      std::string_view family) {
  return MakeStatus(Code::kInvalidUsage,
                    "NCCL_SOCKET_IFNAME=%.*s NCCL_SOCKET_FAMILY=%.*s: no network interface to use; there are: %s",
                    static_cast<int>(ifname.size()), ifname.data(), static_cast<int>(family.size()), family.data(),
                    choice.Describe(interfaces).c_str());
}

// "10.0.0.0/24".
std::string NetworkText(Address address, const Address& mask) {
  int bits = 0;
  for (size_t i = 0; i < sizeof(address.ip); ++i) {
    address.ip[i] &= mask.ip[i];
    bits += std::popcount(mask.ip[i]);
  }
  return HostText(address) + "/" + std::to_string(bits);
}

}  // namespace

Result<std::vector<Interface>> ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return service::OpenError(errno, "listing network interfaces: getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> guard(list, freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    auto found = std::find_if(interfaces.begin(), interfaces.end(),
                              [&](const Interface& known) { return known.name == entry->ifa_name; });
    if (found == interfaces.end()) {
      const auto has = [&](unsigned flag) { return (entry->ifa_flags & flag) != 0; };
      found = interfaces.insert(interfaces.end(),
                                Interface{entry->ifa_name, has(IFF_LOOPBACK), {}, has(IFF_UP), has(IFF_RUNNING), {}});
    }
    if (entry->ifa_addr == nullptr) continue;
    const Address address = FromSockaddr(entry->ifa_addr);
    if (address.family == 0 || LinkLocal(address)) continue;
    found->addresses.push_back(address);
    const sockaddr* const mask = entry->ifa_netmask;
    found->networks.push_back(mask == nullptr ? "" : NetworkText(address, FromSockaddr(mask)));
  }
  return interfaces;
}

Result<std::vector<Address>> SelectAddresses(const std::vector<Interface>& interfaces, std::string_view ifname,
                                             std::string_view family) {
  AXCCL_ASSIGN_OR_RETURN(const Choice choice, Choice::Make(ifname, family));
  const std::vector<const Interface*> usable = choice.Usable(interfaces);
  if (usable.empty()) return NothingMatches(choice, interfaces, ifname, family);
  return choice.Addresses(*usable.front());
}

std::string NetworkOf(const Interface& interface, const Address& address) {
  for (size_t i = 0; i < std::min(interface.addresses.size(), interface.networks.size()); ++i) {
    const Address& own = interface.addresses[i];
    if (own.family == address.family && own.ip == address.ip) return interface.networks[i];
  }
  return "";
}

Result<std::vector<std::string>> SelectNames(const std::vector<Interface>& interfaces, std::string_view ifname,
                                             std::string_view family) {
  AXCCL_ASSIGN_OR_RETURN(const Choice choice, Choice::Make(ifname, family));
  std::vector<std::string> names;
  for (const Interface* each : choice.Usable(interfaces)) names.push_back(each->name);
  if (names.empty()) return NothingMatches(choice, interfaces, ifname, family);
  return names;
}

}  // namespace axccl::boot
