#include "src/boot/unique_id.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sodium.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

namespace axccl::boot {
namespace {

static_assert(std::endian::native == std::endian::little, "ids and frames are defined little-endian");

std::array<uint8_t, 8> Checksum(const IdFields& fields) {
  std::array<uint8_t, 16> hash;
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(&fields),
                     offsetof(IdFields, checksum), nullptr, 0);
  std::array<uint8_t, 8> checksum;
  std::copy_n(hash.begin(), checksum.size(), checksum.begin());
  return checksum;
}

Status SplitHostPort(const std::string& text, std::string* host, std::string* port) {
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos) {
    *host = text.substr(0, colon);
    *port = text.substr(colon + 1);
    if (host->size() >= 2 && host->front() == '[' && host->back() == ']') *host = host->substr(1, host->size() - 2);
    const bool digits = !port->empty() && port->size() <= 5 &&
                        std::all_of(port->begin(), port->end(), [](char c) { return c >= '0' && c <= '9'; });
    const int number = digits ? std::atoi(port->c_str()) : 0;
    if (!host->empty() && number >= 1 && number <= 65535) return Status();
  }
  return MakeStatus(Code::kInvalidArgument,
                    "NCCL_COMM_ID=%s: expected host:port or [IPv6]:port with a port from 1 to 65535", text.c_str());
}

Result<Address> Resolve(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return MakeStatus(
        Code::kInvalidUsage,
        "NCCL_COMM_ID: cannot resolve host '%s': %s; an address works, too, as in NCCL_COMM_ID=10.0.0.1:%s",
        host.c_str(), gai_strerror(error), port.c_str());
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, freeaddrinfo);
  // IPv4 first: "localhost" must mean the same address to every rank.
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
      if (entry->ai_family == family) return FromSockaddr(entry->ai_addr);
    }
  }
  return MakeStatus(Code::kInvalidUsage, "NCCL_COMM_ID: host '%s' has no IPv4 or IPv6 address", host.c_str());
}

}  // namespace

UniqueId Pack(IdFields fields) {
  fields.checksum = Checksum(fields);
  UniqueId id;
  std::memcpy(id.bytes, &fields, sizeof id.bytes);
  return id;
}

Result<IdFields> Unpack(const UniqueId& id) {
  IdFields fields;
  std::memcpy(static_cast<void*>(&fields), id.bytes, sizeof id.bytes);
  if (std::all_of(std::begin(id.bytes), std::end(id.bytes), [](uint8_t b) { return b == 0; })) {
    return MakeStatus(Code::kInvalidArgument,
                      "unique id: all 128 bytes are zero; make one with ncclGetUniqueId and send it to every rank");
  }
  if (fields.magic != IdFields().magic) {
    return MakeStatus(
        Code::kInvalidArgument,
        "unique id: not made by this library (starts with %02x%02x%02x%02x); use one library on all ranks", id.bytes[0],
        id.bytes[1], id.bytes[2], id.bytes[3]);
  }
  if (fields.version != IdFields().version) {
    return MakeStatus(Code::kInvalidArgument,
                      "unique id: layout version %u, this library reads version %u; use one version on all ranks",
                      fields.version, IdFields().version);
  }
  bool sound = fields.checksum == Checksum(fields) && fields.num_addresses >= 1 && fields.num_addresses <= 2;
  for (int i = 0; sound && i < fields.num_addresses; ++i) {
    sound = (fields.address[i].family == 4 || fields.address[i].family == 6) && fields.address[i].port != 0;
  }
  if (!sound) {
    return MakeStatus(Code::kInvalidArgument,
                      "unique id: checksum or addresses are wrong; send all 128 bytes as they are (binary, not text)");
  }
  return fields;
}

Status CheckUniqueId(const UniqueId& id) { return Unpack(id).status(); }

Result<UniqueId> IdFromText(const std::string& host_port) {
  std::string host, port;
  AXCCL_RETURN_IF_ERROR(SplitHostPort(host_port, &host, &port));
  AXCCL_ASSIGN_OR_RETURN(const Address address, Resolve(host, port));
  AXCCL_ASSIGN_OR_RETURN(const std::optional<Secret> given, EnvironmentSecret());
  IdFields fields;
  fields.flags = kFromEnvironment;
  if (given.has_value()) {
    fields.secret = *given;
  } else if (IsLoopback(address)) {
    AXCCL_ASSIGN_OR_RETURN(fields.secret, UserSecret("NCCL_COMM_ID=" + host_port));
    fields.flags |= kUserSecret;
  } else {
    return MakeStatus(
        Code::kInvalidUsage,
        "NCCL_COMM_ID=%s: not a loopback address, so the ranks need a shared secret: set AXCCL_SECRET_FILE to "
        "a file with the same random text on every rank (or AXCCL_SECRET to the text)",
        host_port.c_str());
  }
  const std::string_view key(reinterpret_cast<const char*>(fields.secret.data()), fields.secret.size());
  const Secret derived = HashText(key, "axccl environment id " + std::to_string(address.port));
  std::copy_n(derived.begin(), fields.id.size(), fields.id.begin());
  fields.num_addresses = 1;
  fields.address[0] = address;
  return Pack(fields);
}

sockaddr_storage ToSockaddr(const Address& address, socklen_t* bytes) {
  sockaddr_storage storage{};
  if (address.family == 4) {
    auto* const in = reinterpret_cast<sockaddr_in*>(&storage);
    in->sin_family = AF_INET;
    in->sin_port = htons(address.port);
    std::memcpy(&in->sin_addr, address.ip.data(), sizeof in->sin_addr);
    *bytes = sizeof *in;
  } else {
    auto* const in6 = reinterpret_cast<sockaddr_in6*>(&storage);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(address.port);
    std::memcpy(&in6->sin6_addr, address.ip.data(), sizeof in6->sin6_addr);
    in6->sin6_scope_id = address.scope;
    *bytes = sizeof *in6;
  }
  return storage;
}

Address FromSockaddr(const sockaddr* from) {
  Address address;
  if (from->sa_family == AF_INET) {
    const auto* const in = reinterpret_cast<const sockaddr_in*>(from);
    address.family = 4;
    address.port = ntohs(in->sin_port);
    std::memcpy(address.ip.data(), &in->sin_addr, sizeof in->sin_addr);
  } else if (from->sa_family == AF_INET6) {
    const auto* const in6 = reinterpret_cast<const sockaddr_in6*>(from);
    address.family = 6;
    address.port = ntohs(in6->sin6_port);
    std::memcpy(address.ip.data(), &in6->sin6_addr, sizeof in6->sin6_addr);
    address.scope = in6->sin6_scope_id;
  }
  return address;
}

std::string ToText(const Address& address) { return HostText(address) + ":" + std::to_string(address.port); }

std::string HostText(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(address.family == 4 ? AF_INET : AF_INET6, address.ip.data(), text, sizeof text);
  return address.family == 4 ? text : std::string("[") + text + "]";
}

bool IsLoopback(const Address& address) {
  if (address.family == 4) return address.ip[0] == 127;
  return std::all_of(address.ip.begin(), address.ip.end() - 1, [](uint8_t b) { return b == 0; }) && address.ip[15] == 1;
}

}  // namespace axccl::boot
